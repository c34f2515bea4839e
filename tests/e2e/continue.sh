#!/bin/bash
# Texts that go on from a pruned cache: no difference where nothing is pruned, the less the better the method; what was trained on is refused.
cd "$(dirname "$0")/../.."
K=${KVBENCH:-./kvbench}
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
check() { local name=$1; shift; if "$@" >/dev/null; then echo "ok - $name"; else echo "not ok - $name"; tail -n 5 "$dir/err"; fi; }
both() { "$@" >"$dir/out" 2>"$dir/err" </dev/null; }
says() { grep -qF -- "$1" "$dir/err"; }
export KVBENCH_CALIBRATION="$dir/trained"
for i in 1 2 3 4; do # texts: sentences in another order each
	text=$(printf 'The green lake lies behind hill %d. A bird sings in tree %d. ' $(seq $i $((i + 19))) | tr -d '\n')
	printf '{"id":"t%d","context":"%s","question":" ","answers":["-"],"metric":"exact"}\n' "$i" "$text"
done >"$dir/texts.jsonl"
cat >"$dir/plan.json" <<J
{"title": "texts", "targets": ["tiny-pair/target"], "models": "runners/model",
 "tasks": [{"name": "jsonl", "path": "$dir/texts.jsonl", "lengths": 300}],
 "methods": ["kvzip", "streaming-llm"], "retained": [0.2, 1], "db": "$dir/a.db",
 "training": {"contexts": 3, "eval": 1, "shards": "$dir/shards", "runs": {"kv-mlp": [{"distil_steps": 3}]}}}
J
both "$K" continue "$dir/plan.json" -q --tokens 16
check "the plan's texts go on" [ $? -eq 0 ]
check "at r = 1 the distributions are the full cache's, and the full cache's own" awk '$2 == 1 { n++; bad += $4 != "0.0000" || $7 != "1.000" } END { exit !(n >= 3 && !bad) }' "$dir/out"
check "pruned, they are not" awk '$2 == .2 { n++; bad += $4 <= 0 } END { exit !(n >= 3 && !bad) }' "$dir/out"
cp "$dir/out" "$dir/first"
both "$K" continue "$dir/plan.json" -q --tokens 16 --threads 1
check "one thread says the same" cmp -s "$dir/out" "$dir/first"
both "$K" continue "$dir/plan.json" -q --tokens 16 --format csv
check "csv has a row for each text and variant" [ "$(grep -c ',ok,' "$dir/out")" = 28 ]
both "$K" continue "$dir/plan.json" -q --tokens 4000
check "a text shorter than its continuation is told" says "too short for a continuation of 4000"
both "$K" continue "$dir/plan.json" -q --tasks '[{"name":"niah-multikey","lengths":384,"contexts":2}]'
check "kvzip loses less than random entries" awk '$2 == .2 { kl[$1] = $4 } END { exit !(kl["kvzip"] < kl["random"]) }' "$dir/out"
both "$K" train kv-mlp "$dir/plan.json" -q
check "kv-mlp is trained on three of the texts" [ $? -eq 0 ]
both "$K" continue "$dir/plan.json" -q --tokens 16 --methods kvmlp --retained .2
check "those three are refused, and the run says so" [ $? -eq 1 ]
check "by the whole text's name, with what was cut off" grep -qE '^kvmlp .* 1 .* 3 failed: .*was trained on this context' "$dir/out"
