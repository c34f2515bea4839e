#!/bin/bash
# Living with a database: looked at while a run writes to it, joined from shards, verified.
cd "$(dirname "$0")/../.."
K=${KVBENCH:-./kvbench}
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
check() { local name=$1; shift; if "$@"; then echo "ok - $name"; else echo "not ok - $name"; tail -n 20 "$dir/out" "$dir/err"; fi; }
cat >"$dir/plan.json" <<'J'
{"targets": ["tiny-pair/target"], "models": "runners/model", "methods": ["snapkv"], "retained": [0.3, 1],
 "tasks": [{"name": "niah-multikey", "lengths": [256], "contexts": 30, "questions": 4}], "protocols": ["agnostic", "aware"], "timing": {"enabled": false}}
J
run() { "$K" run "$dir/plan.json" -q "$@" >"$dir/out" 2>"$dir/err" </dev/null; }

# status and verify, again and again, while a run writes
"$K" run "$dir/plan.json" --db "$dir/live.db" -q >"$dir/run.out" 2>"$dir/run.err" </dev/null & pid=$!
for _ in $(seq 200); do [ -s "$dir/live.db" ] && "$K" status "$dir/live.db" >/dev/null 2>&1 && break; sleep .02; done
looks=0 refused=0 between=0 fell=0 last=0
while kill -0 $pid 2>/dev/null; do
	if "$K" status "$dir/live.db" >"$dir/out" 2>"$dir/err"; then
		answered=$(sed -nE 's|^all .* ([0-9]+)/1200 .*|\1|p' "$dir/out")
		answered=${answered:-0} # before the cells are planned
		[ "$answered" -lt "$last" ] && fell=$((fell + 1))
		[ "$answered" -gt 0 ] && [ "$answered" -lt 1200 ] && between=$((between + 1))
		last=$answered
		looks=$((looks + 1))
	else refused=$((refused + 1)); fi
	sleep .05
done
wait $pid; rc=$?
check "the run ends well under $looks looks" [ $rc -eq 0 ]
check "none of them was refused" [ $refused -eq 0 ]
check "some saw it half done" [ $between -gt 0 ]
check "what was answered stays answered" [ $fell -eq 0 ]
check "all is there at the end" bash -c "'$K' status '$dir/live.db' | grep -qE '^all .* 1200/1200 '"
run --db "$dir/quiet.db"
check "and equal to a run nobody looked at" cmp -s <("$K" export "$dir/live.db" --format json) <("$K" export "$dir/quiet.db" --format json)

# shards: each machine its methods, one of them only half of its work
few=(--set tasks.contexts=4)
run --db "$dir/a.db" "${few[@]}"
run --db "$dir/b.db" "${few[@]}" --methods kvzip
run --db "$dir/c.db" --set tasks.contexts=2 --methods streaming-llm
merge() { "$K" merge "$@" >"$dir/out" 2>"$dir/err"; }
check "three shards are joined" merge "$dir/abc.db" "$dir/a.db" "$dir/b.db" "$dir/c.db"
check "in another order, too" merge "$dir/cba.db" "$dir/c.db" "$dir/b.db" "$dir/a.db"
check "with the same result" cmp -s <("$K" export "$dir/abc.db" --format json) <("$K" export "$dir/cba.db" --format json)
for m in full random snapkv kvzip streaming-llm; do check "$m is in it" grep -q "\"$m\"" <("$K" export "$dir/abc.db" --format json); done
check "a file that is there is not overwritten" eval '! merge "$dir/abc.db" "$dir/a.db" "$dir/b.db"'
check "and the reason is given" grep -q 'is there already' "$dir/err"
check "a shard that is not there leaves nothing behind" eval '! merge "$dir/x.db" "$dir/a.db" "$dir/gone.db"; [ ! -e "$dir/x.db" ] && [ ! -e "$dir/x.db.part" ]'

# verify
"$K" verify "$dir/live.db" >"$dir/out" 2>"$dir/err"; rc=$?
check "a good run has no faults" [ $rc -eq 0 ]
check "and each check is listed" [ "$(grep -cE '^(ok|notice) ' "$dir/out")" -eq "$(sed -nE 's/^([0-9]+) checks, .* 0 faults.*/\1/p' "$dir/out")" ]
"$K" verify "$dir/abc.db" >"$dir/out" 2>"$dir/err"; rc=$?
check "nor have good shards when joined" [ $rc -eq 0 ]
"$K" verify "$dir/live.db" --format json >"$dir/out" 2>"$dir/err"
check "json has the counts" grep -q '"faults": 0' "$dir/out"
run --db "$dir/empty.db" --targets gone-model
"$K" verify "$dir/empty.db" >"$dir/out" 2>"$dir/err"; rc=$?
check "4 where nothing was measured" [ $rc -eq 4 ]
