#!/bin/bash
# The demo's plan cut small: the table, the report and the timings are there, methods stand where they must, and a second run adds nothing.
cd "$(dirname "$0")/../.."
K=${KVBENCH:-./kvbench}
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
small=(run harness/demo.json --models runners/model --db "$dir/demo.db" --report "$dir/demo.html" --set tasks.lengths=512 --set tasks.contexts=2
	--set timing.lengths=512 --retained .3,1)
check() { local name=$1; shift; if "$@"; then echo "ok - $name"; else echo "not ok - $name"; fi; }

"$K" "${small[@]}" >"$dir/out" 2>"$dir/err"; rc=$?
check "the demo ends with 0" [ $rc -eq 0 ]
[ $rc -eq 0 ] || tail -5 "$dir/err"
for m in full random streaming-llm snapkv pyramidkv ada-snapkv h2o keydiff expected-attention kvzip proxykv selfkv head-prior; do
	check "$m is in the summary" grep -qE "^$m " "$dir/out"
done
check "the report is one whole file with charts" grep -q '<svg' "$dir/demo.html"
check "the run is over when its report is written" bash -c "! grep -q 'class=\"bad\"><dt>not ended, or killed' '$dir/demo.html'"
check "nothing in it comes from the network" bash -c "! grep -qE '(src|href)=.?https?:' '$dir/demo.html'"

# a field of one row of the table, by the column's name: FIELD METHOD PROTOCOL RETAINED (multi-key)
"$K" export "$dir/demo.db" --format csv | sed 's/"[^"]*\(""[^"]*\)*"/-/g' >"$dir/t.csv"
field() {
	awk -F, -v f="$1" -v m="$2" -v p="$3" -v r="$4" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
		NR > 1 && $at["method"] == m && $at["protocol"] == p && $at["retained"] == r && $at["task"] == "niah-multikey" { print $at[f] }' "$dir/t.csv"
}
check "kvzip at .3 stands 20 points above random without the question" \
	awk -v k="$(field score kvzip agnostic 0.3)" -v r="$(field score random agnostic 0.3)" 'BEGIN { exit !(k != "" && k >= r + .2) }'
check "snapkv at .3 is right with the question" awk -v s="$(field score snapkv aware 0.3)" 'BEGIN { exit !(s >= .9) }'
check "the full cache is right" awk -v s="$(field score full agnostic 1)" 'BEGIN { exit !(s >= .95) }'
check "9 repetitions beside the full cache" [ "$(field timed_repetitions kvzip agnostic 0.3)" = 9 -a "$(field timed_repetitions full agnostic 1)" = 9 ]
check "the realised share is just below the planned" awk -v x="$(field retained_realised snapkv agnostic 0.3)" 'BEGIN { exit !(x <= .3 && x > .29) }'

"$K" "${small[@]}" >"$dir/again" 2>"$dir/err"; rc=$?
check "the second run has nothing to do" grep -q 'now 0 answered' "$dir/err"
check "and gives the same table" cmp -s "$dir/out" "$dir/again"
