#!/bin/bash
# `kvbench paper`: every paper from end to end on the embedded models with few rows, in its three formats; estimated at full scale.
cd "$(dirname "$0")/../.."
K=${KVBENCH:-./kvbench}
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
check() { local name=$1; shift; if "$@"; then echo "ok - $name"; else echo "not ok - $name"; tail -n 20 "$dir/out" "$dir/err"; fi; }
export KVBENCH_DATA=$dir/no-data
said() { grep -qE -- "$1" "$dir/out"; }
talked() { grep -qE -- "$1" "$dir/err"; }
paper() { "$K" paper "$@" --models runners/model -q >"$dir/out" 2>"$dir/err" </dev/null; rc=$?; }

for p in proxykv lkv kvzip snapkv-longbench ruler-kvpress; do
	few=("$p" --db "$dir/$p.db" --set tasks.contexts=1 --set timing.enabled=false)
	paper "$p" --scale full --dry-run
	check "$p at full scale is estimated" [ $rc -eq 0 ]
	check "$p: cells, samples, tokens" said '^[0-9]+ cells, [0-9]+ samples, [0-9]+ tokens to prefill, [0-9]+ to decode'
	check "$p: memory and time" eval "said 'longest context about [0-9]+ tokens: weights [0-9.]+ GB, KV cache [0-9.]+ GB.* in all about' && said '^time about '"

	paper "${few[@]}"
	# a trained method whose weights are not here fails, and says so in its place
	if [ $rc -eq 1 ]; then check "$p at tiny scale: what failed is a missing file, named" said 'failed: no trained file'
	else check "$p at tiny scale runs" [ $rc -eq 0 ]; fi
	check "$p: published beside measured" said '\| [a-zA-Z0-9-]+ \| [0-9.]* \| [0-9.]+ .*\| [0-9.]+ .*\| [0-9]+ \| not comparable: a'
	check "$p: why not" said 'model: tiny-pair/target, published: '
	check "$p: what the paper leaves open" said '^## What it does not state'
	cp "$dir/out" "$dir/$p.md"
	paper "${few[@]}" --format latex
	check "$p again, as LaTeX, measures nothing" talked 'now 0 answered|now 0 answered, [0-9]+ failed'
	check "$p: a LaTeX table" said '^\\end\{tabular\}'
	paper "${few[@]}" --format html
	check "$p: one whole HTML file" grep -q '</html>' "$dir/$p.html"
	check "$p: nothing of it comes from the network" bash -c "! grep -qE '(src|href)=.?https?:|<script' '$dir/$p.html'"
done

check "a published figure stands as printed" grep -q '| ruler: mean of 13 | kvzip | 0.2 | 94.9 | 0.992 | ' "$dir/kvzip.md"
check "with how far it can be read" grep -q '| scbench-kv | snapkv | 0.5 | [0-9.]* ±1.5 | ' "$dir/kvzip.md"
check "what has no counterpart is listed" grep -qE '^- .*KVzip.*squad: not among the tasks measured \([0-9]+ figures\)' "$dir/kvzip.md"
check "and never filled in" bash -c "! grep -q '^| squad' '$dir/kvzip.md'"
check "a protocol stands beside its own only" grep -q '| snapkv (question seen) | ' "$dir/ruler-kvpress.md"

paper ruler-kvpress --scale full --dry-run # 2 models x 2 protocols x 13 tasks x (full + 11 methods x 4 ratios), 500 rows of 4,096 tokens
check "an estimate counts right" said '^2340 cells, 1170000 samples, 106496000 tokens to prefill, 115920000 to decode'
check "shapes are the models' own" said '^meta-llama/Llama-3.1-8B-Instruct, bf16: 32 layers x 8 KV heads x 128, 8.03 G weights, 131072 bytes of KV'
paper ruler-kvpress --scale full --dry-run --tflops 800 --gbytes 6000
check "twice the machine takes half the time" said '^time about 5 h'

paper kvzip --plan --scale full
check "a plan is printed" [ $rc -eq 0 ]
paper kvzip --plan
cp "$dir/out" "$dir/plan.json"
"$K" run "$dir/plan.json" --dry-run --models runners/model --db "$dir/none.db" --set tasks.contexts=1 -q >"$dir/out" 2>"$dir/err"
check "that run takes" said '^[0-9]+ cells, [0-9]+ samples, 0 of them present'
paper kvzip --scale small
check "small needs a model" [ $rc -eq 2 ]
check "and says so" talked 'needs --model MODEL$'
paper proxykv --scale small --model runners/model/tiny-pair/target
check "with a proxy where the paper has one" [ $rc -eq 2 ]
paper kvzip --scale small --model runners/model/tiny-pair/target --dry-run --retained .3 --set tasks.lengths=512 --set tasks.contexts=1
check "a small dry run" said 'in all about'
check "tasks without their data are left out, with the command" talked 'task scbench-kv; .kvbench fetch scbench. gets its data'
mkdir -p "$dir/own/longbench/data"
echo '{"input": "What?", "context": "Passage 1: a house is blue. Passage 2: a door is red.", "answers": ["blue"], "length": 9, "dataset": "hotpotqa", "language": "en", "all_classes": null, "_id": "1"}' >"$dir/own/longbench/data/hotpotqa.jsonl"
echo '{"hotpotqa": "{context} {input}"}' >"$dir/own/longbench/dataset2prompt.json"; echo '{"hotpotqa": 8}' >"$dir/own/longbench/dataset2maxlen.json"
KVBENCH_DATA=$dir/own paper snapkv-longbench --scale small --model runners/model/tiny-pair/target --dry-run
check "rows of one's own need no data.zip" eval "said '^  longbench-hotpotqa 2000 aware +[0-9]+ +[0-9]+ ' && talked 'longbench-qasper; .kvbench fetch longbench'"
paper kvzap; check "an unknown paper is bad usage" [ $rc -eq 2 ]
paper kvzip --scale huge; check "an unknown scale, too" [ $rc -eq 2 ]
paper kvzip --scale full --dry-run --model org/unknown
check "no shape, no estimate" [ $rc -eq 1 ]
