#!/bin/bash
# A sweep over rows of all three suites on the embedded model, to one report: LongBench's real rows where the shared data are there,
# SCBench's form with rows of our own (tests/fixtures/scbench) in both modes, RULER's own generator. The tiny pair reads none of
# these languages: what is tested is the way from rows to the page, not its scores.
cd "$(dirname "$0")/../.."
K=${KVBENCH:-./kvbench}
shared=${KVB_SHARED:-../shared}
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
check() { local name=$1; shift; if "$@"; then echo "ok - $name"; else echo "not ok - $name"; tail -n 20 "$dir/err"; fi; }
both() { "$@" >"$dir/out" 2>"$dir/err" </dev/null; }
column() { # NAME: the values of a column of the export, one a cell (no text of ours holds a comma)
	sed 's/"[^"]*"/-/g' "$dir/a.csv" | awk -F, -v want="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == want) at = i; next } { print $at }'
}
times() { [ "$(column "$1" | grep -cE -- "^($2)\$")" -eq "$3" ]; }

# vt wants a longer row in the tiny pair's tokens; the other twelve fit into 512
tasks=
for t in niah_single_1 niah_single_2 niah_single_3 niah_multikey_1 niah_multikey_2 niah_multikey_3 niah_multivalue niah_multiquery cwe fwe qa_1 qa_2; do
	tasks+="{\"name\": \"ruler-$t\", \"lengths\": 512, \"contexts\": 1},"
done
tasks+='{"name": "ruler-vt", "lengths": 2048, "contexts": 1}'
n_scbench=0 n_longbench=0
if [ -e "$shared/data/scbench/upstream/eval_utils.py" ]; then
	for t in kv prefix_suffix vt repoqa qa_eng qa_chn choice_eng many_shot mf summary summary_with_needles repoqa_and_kv; do
		for mode in multi-turn multi-request; do
			tasks+=",{\"name\": \"scbench-$t\", \"path\": \"tests/fixtures/scbench\", \"templates\": \"$shared/data/scbench/upstream\", \"contexts\": 1, \"mode\": \"$mode\"}"
			n_scbench=$((n_scbench + 1))
		done
	done
else echo "skip - SCBench: upstream's prompts are not in $shared/data/scbench"; fi
if [ -e "$shared/data/longbench/data/multi_news.jsonl" ]; then
	for t in multi_news multifieldqa_zh passage_retrieval_zh; do
		for how in official ids; do
			tasks+=",{\"name\": \"longbench-$t\", \"path\": \"$shared/data/longbench\", \"lengths\": 1000, \"contexts\": 2, \"truncate\": \"$how\"}"
			n_longbench=$((n_longbench + 1))
		done
	done
else echo "skip - LongBench: its rows are not in $shared/data/longbench"; fi
cat >"$dir/plan.json" <<J
{"title": "three suites", "targets": ["tiny-pair/target"], "models": "runners/model", "methods": ["snapkv"], "retained": [0.5, 1],
 "allow_long": true, "max_new_tokens": 4, "timing": {"enabled": false}, "tasks": [$tasks]}
J
run=(run "$dir/plan.json" --db "$dir/a.db" --report "$dir/a.html")
check "the sweep ends well" both "$K" "${run[@]}"
check "nothing failed" grep -q ' 0 failed, 0 out of memory, 0 not applicable' "$dir/err"
"$K" export "$dir/a.db" --format csv >"$dir/a.csv"
check "5 cells of each RULER task" times task 'ruler-.*' 65
check "5 cells of each SCBench task and mode" times task 'scbench-.*' $((5 * n_scbench))
check "half of them multi-turn" times mode multi-turn $((5 * n_scbench / 2))
check "half multi-request" times mode multi-request $((5 * n_scbench / 2))
check "5 cells of each LongBench task and cut" times task 'longbench-.*' $((5 * n_longbench))
check "whose contexts were cut, all of them" times cut 2 $((5 * n_longbench))
check "RULER's texts are ours" times task_variant own 65
if [ $n_scbench -gt 0 ]; then
	check "SCBench's sane metrics stand beside upstream's" [ "$(column also_metric | sort -u | tr -d '\n')" = "many_shot_strictqa_chnsubstring" ]
	check "their mean is there, of all twelve" [ "$(grep -o 'SCBench: mean of 12 tasks · multi-[a-z]*' "$dir/a.html" | sort -u | wc -l)" -eq 2 ]
	check "in as many tables as there are modes" [ "$(grep -o 'data-n="scbench-kv · multi-[a-z]*' "$dir/a.html" | sort -u | wc -l)" -eq 2 ]
fi
check "the report is one whole page" grep -q '</html>' "$dir/a.html"
for suite in ruler $([ $n_scbench -gt 0 ] && echo scbench) $([ $n_longbench -gt 0 ] && echo longbench); do
	check "with $suite in it" grep -q "<h4>$suite-" "$dir/a.html"
done
check "the same command asks nothing twice" both "$K" "${run[@]}"
check "as it says" grep -q 'now 0 answered' "$dir/err"
check "scoring anew" both "$K" score "$dir/a.db"
check "changes nothing" grep -qE '^[1-9][0-9]* answers scored by version [0-9]+, 0 scores changed$' "$dir/out"
