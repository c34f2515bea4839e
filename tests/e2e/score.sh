#!/bin/bash
# `kvbench score`: files of predictions against the published scores, and a database's answers anew.
cd "$(dirname "$0")/../.."
K=${KVBENCH:-./kvbench}
data=${KVB_SHARED:-../shared}/data
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
check() { local name=$1; shift; if "$@"; then echo "ok - $name"; else echo "not ok - $name"; cat "$dir/out" "$dir/err"; fi; }
score() { "$K" score "$@" >"$dir/out" 2>"$dir/err" </dev/null; }
says() { grep -qE -- "$1" "$dir/out"; }
refused() { local rc; score "${@:3}"; rc=$?; [ $rc -eq "$1" ] && grep -qE -- "$2" "$dir/err"; }
# FILE TASK SCORE N: json and text agree with what was published
published() {
	score --predictions "$1" --task "$2" --format json && says "\"task\": \"$2\"" && says "\"score\": ${3%.00}" && says "\"n\": $4," &&
		score --predictions "$1" --task "$2" && says "^$2 $3 \(.*, $4 rows"
}

printf '%s\n' '{"pred": "a boat", "answers": ["the boat", "x"], "all_classes": null, "length": 1}' '{"pred": "", "answers": ["y"], "length": 1}' >"$dir/qasper.jsonl"
check "rows of our own" score --predictions "$dir/qasper.jsonl" --task longbench-qasper --format json
check "their score" says '"score": 50\.0'
check "how many, and how many empty" says '"empty": 1'
check "another metric" score --predictions "$dir/qasper.jsonl" --task qasper --metric exact
check "is named" says '^qasper 0\.00 \(exact, 2 rows'
printf '%s\n' '{"prediction": "It is 7.9", "ground_truth": 7}' '{"prediction": "8", "ground_truth": 7.5}' >"$dir/math.jsonl"
check "numbers as gold answers" score --predictions "$dir/math.jsonl" --task math_find
check "whole ones against the whole part" says '^math_find 50\.00'

bench=$data/infinitebench/results/gpt4
if [ -e "$bench" ]; then
	check "InfiniteBench: KV 89.00" published "$bench/preds_kv_retrieval.jsonl" kv_retrieval 89.00 500
	check "InfiniteBench: Math.Find 60.00" published "$bench/preds_math_find.jsonl" math_find 60.00 350
	check "InfiniteBench: En.QA 22.44" published "$bench/preds_longbook_qa_eng.jsonl" longbook_qa_eng 22.44 351
	check "InfiniteBench: Zh.QA 25.96" published "$bench/preds_longbook_qa_chn.jsonl" longbook_qa_chn 25.96 189
else echo "skip - InfiniteBench: no predictions in $data"; fi
llama=$data/longbench/pred/llama2-7b-chat-4k
if [ -e "$llama" ]; then
	right=0
	times >"$dir/before" # of this shell and, in the second line, of what it ran: other work in the machine does not count
	while IFS='"' read -r _ task value; do
		score --predictions "$llama/$task.jsonl" --task "$task" --format json
		ours=$(sed -n 's/^ "score": \([0-9.]*\),$/\1/p' "$dir/out") theirs=$(echo "$value" | tr -dc '0-9.')
		[ "$(printf %.2f "$ours")" = "$(printf %.2f "$theirs")" ] && right=$((right + 1)) || echo "$task: $ours, published $theirs"
	done < <(tr ',{}' '\n\n\n' <"$llama/result.json" | grep '"')
	check "LongBench: the 21 published scores ($right of 21)" [ $right -eq 21 ]
	times >"$dir/after"
	ms=$(awk -F '[ms ]+' '{ sum[FILENAME] = FNR == 2 ? 60 * ($1 + $3) + $2 + $4 : 0 } END { printf "%d", 1000 * (sum[ARGV[2]] - sum[ARGV[1]]) }' "$dir/before" "$dir/after")
	check "in under 5 s of CPU time ($ms ms, 21 processes)" [ "$ms" -gt 0 -a "$ms" -lt 5000 ]
else echo "skip - LongBench: no predictions in $data"; fi

check "a file of no known form" refused 1 'end in .jsonl' --predictions "$0" --task qasper
check "a row that is none" refused 1 'row 1' --predictions "$dir/math.jsonl" --task qasper
check "a task nobody knows" refused 1 "no format of predictions is known for task 'qasperr'" --predictions "$dir/qasper.jsonl" --task qasperr
check "a metric nobody knows" refused 1 "'f2'" --predictions "$dir/qasper.jsonl" --task qasper --metric f2
check "neither file nor database" refused 2 'either a database or' --format json
check "both" refused 2 'either a database or' x.db --predictions y.jsonl --task qasper
check "a file without its task" refused 2 'go together' --predictions y.jsonl
check "no such format" refused 2 'text or json' --predictions y.jsonl --task qasper --format xml
check "no such database" refused 1 'no such database' "$dir/gone.db"
check "which is not made" [ ! -e "$dir/gone.db" ]
: >"$dir/empty.db"
check "an empty file has nothing to score" refused 1 'holds no results yet' "$dir/empty.db"

cat >"$dir/plan.json" <<'J'
{"targets": ["tiny-pair/target"], "models": "runners/model", "methods": [], "retained": [0.5],
 "tasks": [{"name": "niah-multikey", "lengths": [256], "contexts": 2, "questions": 3}], "timing": {"enabled": false}}
J
"$K" run "$dir/plan.json" --db "$dir/a.db" -q >"$dir/before" 2>"$dir/err"
check "a database" score "$dir/a.db"
check "all its answers, none of which changes" says '^12 answers scored by version [0-9]+, 0 scores changed$'
"$K" export "$dir/a.db" --format text >"$dir/after"
check "the same table as before" cmp -s "$dir/before" "$dir/after"
