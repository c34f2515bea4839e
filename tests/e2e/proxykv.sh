#!/bin/bash
# Trained methods from end to end on the embedded pair: collect, train, answer; the same seed gives the same file; what was trained on is
# refused; controls stand in the table by themselves; scores go out to a file and come back.
cd "$(dirname "$0")/../.."
K=${KVBENCH:-./kvbench}
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
check() { local name=$1; shift; if "$@" >/dev/null; then echo "ok - $name"; else echo "not ok - $name"; tail -n 5 "$dir/err"; fi; }
both() { "$@" >"$dir/out" 2>"$dir/err" </dev/null; }
says() { grep -qF -- "$1" "$dir/err"; }
export KVBENCH_CALIBRATION="$dir/trained"
cat >"$dir/plan.json" <<J
{"title": "trained", "pairs": [{"target": "tiny-pair/target", "proxy": "tiny-pair/proxy"}], "models": "runners/model",
 "tasks": [{"name": "niah-multikey", "lengths": [384], "contexts": 2, "questions": 5}],
 "methods": ["kvzip", "proxykv", {"method": "proxykv", "options": {"layers": 2, "mapper": "linear"}}, "selfkv", "snapkv@head-prior"],
 "retained": [0.3, 1], "timing": {"enabled": false}, "db": "$dir/a.db",
 "training": {"contexts": 4, "eval": 2, "shards": "$dir/shards", "features": "all,last:64",
  "runs": [{"mapper": "flat", "steps": 40, "eval_every": 20}, {"mapper": "linear", "layers": 2}]}}
J
both "$K" collect proxykv "$dir/plan.json" -q
check "collect writes a shard for each context" [ "$(ls "$dir"/shards/mapper/*.safetensors 2>/dev/null | wc -l)" = 6 ]
both "$K" collect proxykv "$dir/plan.json" -q
check "collect again writes nothing" says "0 shards written, 6 were there"
both "$K" train proxykv "$dir/plan.json" -q
check "train proxykv ends well" [ $? -eq 0 ]
cp "$dir/out" "$dir/table"
check "a file is named by kind and models" ls "$dir"/trained/proxykv-flat-*-*.safetensors "$dir"/trained/proxykv-linear-l2-*-*.safetensors
check "its recall is printed beside the floor" grep -qE '^proxykv-flat .* 0\.[0-9]{3}\(0\.[0-9]{2}\)' "$dir/table"
sha256sum "$dir"/trained/*.safetensors >"$dir/sums"
both "$K" train proxykv "$dir/plan.json" -q --threads 1
check "the same seed gives the same weights, on one thread too" sha256sum -c --status "$dir/sums"
both "$K" train selfkv "$dir/plan.json" -q --set 'training.runs=[{"mapper":"flat","steps":40}]'
check "train selfkv takes the same shards" [ "$(ls "$dir"/shards/mapper/*.safetensors | wc -l)" = 6 ]
check "and writes its file" ls "$dir"/trained/selfkv-flat-*.safetensors
both "$K" train proxykv,head-prior "$dir/plan.json" -q --set 'training.runs={"proxykv":[{"mapper":"linear","layers":2}]}'
check "two kinds at once" [ "$(grep -cE '^(proxykv-linear-l2|head-prior) ' "$dir/out")" = 2 ]
check "train head-prior" ls "$dir"/trained/head-prior-*.safetensors
both "$K" export "$dir/a.db" --table recall --format csv
check "the prior stands in the table of recall beside the mappers, by the same contexts" bash -c 'prior=$(sed -n "s/^head-prior head-prior,\"recall, held-out contexts\",//p" "$1"); [ -n "$prior" ] && grep -qF "floor: head prior,$prior" "$1"' - "$dir/out"
both "$K" report "$dir/a.db" -o "$dir/a.html"
check "its curve says what 1, 2 and all 4 contexts count" grep -q 'recall@0.1: last [0-9.]* at step 4<' "$dir/a.html"
both "$K" list pairs
check "list pairs shows them" grep -q '^proxykv-flat  *target [0-9a-f]\{16\}  proxy [0-9a-f]\{16\}' "$dir/out"
check "curves are in the database" grep -qa 'recall@0.1' "$dir/a.db"

both "$K" run "$dir/plan.json" -q
check "the trained methods answer" [ $? -eq 0 ]
for m in full random head-prior kvzip proxykv selfkv snapkv@head-prior; do
	check "$m is in the table" grep -qE "^$m " "$dir/out"
done
check "r = 1 equals the full cache" bash -c "! grep -q 'differ' '$dir/err'"
cp "$dir/out" "$dir/first"
both "$K" run "$dir/plan.json" -q --db "$dir/b.db" --threads 2 --proxy-threads 1
check "overlapped, the same answers" cmp -s "$dir/out" "$dir/first"

# trained on, then asked for: refused by the context's hash, one failed row each
both "$K" run "$dir/plan.json" -q --db "$dir/c.db" --set seed=1000001
check "contexts of the training are refused" [ $? -eq 1 ]
check "and the rows say why" grep -qa 'was trained on this context' "$dir/c.db"
both "$K" train proxykv "$dir/plan.json" -q --set training.seed=1
check "the plan's own seed is no training seed" says "what is trained on would be evaluated on"
cp -r runners/model/tiny-pair/proxy "$dir/other"
sed -i 's/lake"/leke"/' "$dir/other/tokenizer.json"
both "$K" run "$dir/plan.json" -q --db "$dir/d.db" --pairs "[{\"target\":\"tiny-pair/target\",\"proxy\":\"$dir/other\"}]"
check "another tokenizer is no pair" says "no pair: their tokenizers differ"

# scores out and in
both "$K" scores "$dir/plan.json" -q --method kvzip --out "$dir/kvzip.safetensors"
check "scores are written" [ -s "$dir/kvzip.safetensors" ]
both "$K" run "$dir/plan.json" -q --db "$dir/e.db" --methods "[\"kvzip\",\"scores:$dir/kvzip.safetensors\"]" --retained .3
check "scores are read" [ $? -eq 0 ]
"$K" export "$dir/e.db" --format csv 2>/dev/null | sed 's/"[^"]*\(""[^"]*\)*"/-/g' >"$dir/e.csv"
check "and say what kvzip says" awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
	NR > 1 && $at["method"] == "kvzip" { a = $at["score"] } NR > 1 && $at["method"] ~ /^scores/ { b = $at["score"] } END { exit !(a != "" && a == b) }' "$dir/e.csv"
