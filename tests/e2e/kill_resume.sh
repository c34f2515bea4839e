#!/bin/bash
# 100 kills with SIGKILL at random moments; the same command goes on each time. The final table must equal that of a run
# that nobody disturbed. When a database is finished before the kills are, the next one begins: every one of them must be equal.
cd "$(dirname "$0")/../.."
K=${KVBENCH:-./kvbench}
KILLS=${KVB_KILLS:-100}
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
RANDOM=20260601
cat >"$dir/plan.json" <<'J'
{"targets": ["tiny-pair/target"], "models": "runners/model", "methods": ["snapkv", "streaming-llm"], "retained": [0.3, 0.5],
 "tasks": [{"name": "niah-multikey", "lengths": [256], "contexts": 4, "questions": 4}, {"name": "niah-single", "lengths": [256], "contexts": 6}],
 "protocols": ["agnostic", "aware"], "timing": {"enabled": false}}
J
run() { "$K" run "$dir/plan.json" --db "$1" -q >/dev/null 2>>"$dir/err"; }
table() { "$K" export "$1" --format json; }
samples() { "$K" status "$1" | sed -n '/^group/,$p'; }

start=$(date +%s%N)
run "$dir/whole.db" || { echo "not ok - the undisturbed run"; cat "$dir/err"; exit 1; }
whole_ms=$((($(date +%s%N) - start) / 1000000))
table "$dir/whole.db" >"$dir/whole.json"; samples "$dir/whole.db" >"$dir/whole.txt"
[ -s "$dir/whole.json" ] && echo "ok - the undisturbed run ($whole_ms ms)" || echo "not ok - the undisturbed run has a table"

kills=0 finished=0 unequal=0 broken=0
while [ $kills -lt "$KILLS" ]; do
	db=$dir/killed$finished.db
	while :; do
		"$K" run "$dir/plan.json" --db "$db" -q >/dev/null 2>>"$dir/err" & pid=$!
		if [ $kills -lt "$KILLS" ]; then # between a twentieth and a half of the whole
			ms=$((whole_ms / 20 + RANDOM * whole_ms * 9 / 20 / 32768))
			sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
			kill -KILL $pid 2>/dev/null
		fi
		wait $pid 2>/dev/null; rc=$?
		[ $rc -eq 0 ] && break
		[ $rc -eq 137 ] || { broken=$((broken + 1)); break 2; }
		kills=$((kills + 1))
	done
	finished=$((finished + 1))
	table "$db" >"$dir/t.json"; samples "$db" >"$dir/t.txt"
	cmp -s "$dir/whole.json" "$dir/t.json" && cmp -s "$dir/whole.txt" "$dir/t.txt" || unequal=$((unequal + 1))
done
[ $broken -eq 0 ] && echo "ok - nothing but the kills ended a run" || { echo "not ok - a run ended by itself"; tail -5 "$dir/err"; }
[ $unequal -eq 0 ] && echo "ok - $kills kills, $finished databases, each equal to the undisturbed one" ||
	{ echo "not ok - $unequal of $finished databases differ after $kills kills"; diff "$dir/whole.json" "$dir/t.json" | head -20; }
