#!/bin/bash
# The gate as a user meets it: planted changes and the exit code of each, compare on two precisions and on other prompts, and a
# night as cron runs it. Faults are planted into copies of one real database of the embedded target.
cd "$(dirname "$0")/../.."
K=${KVBENCH:-./kvbench} P=${PLANT:-${BUILD:-build/release}/plant}
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
[ -x "$P" ] || { echo "skip - gate: $P is not built (make tests-built)"; exit 0; }
cat >"$dir/plan.json" <<'J'
{"targets": ["tiny-pair/target"], "models": "runners/model", "methods": ["snapkv", "keydiff"], "retained": [0.3], "precision": ["fp32"],
 "tasks": [{"name": "niah-multikey", "lengths": [256], "contexts": 20, "questions": 8}], "timing": {"repetitions": 12, "decode_tokens": 1}}
J
check() { # WHAT, wanted code, pattern on stdout or stderr ('' = whatever), command...
	local what=$1 code=$2 pattern=$3 rc; shift 3
	"$@" >"$dir/out" 2>&1 </dev/null; rc=$?
	if [ "$rc" -eq "$code" ] && { [ -z "$pattern" ] || grep -qE -- "$pattern" "$dir/out"; }; then echo "ok - $what: exit $code"
	else echo "not ok - $what: wanted $code and /$pattern/, got $rc"; cat "$dir/out"; fi
}
plant() { # DB, SQL: must change something
	local n; n=$("$P" "$1" "$2") && [ "${n:-0}" -gt 0 ] || echo "not ok - planting changed ${n:-nothing}: $2"
}
of() { echo "(SELECT cell_id FROM cell JOIN method USING (method_id) WHERE name = '$1')"; }
gate() { "$K" gate "$1" --baseline main --history "$dir/history.db" "${@:2}"; }

check 'a run' 0 '' "$K" run "$dir/plan.json" --db "$dir/base.db" -q
# the times of the test must not depend on what else this machine does: rounds of one pace, no waiting for a core
quiet="UPDATE timing_fact SET value = 0 WHERE name = 'waited_ppm'"
"$P" "$dir/base.db" "$quiet" >/dev/null
"$P" "$dir/base.db" "UPDATE timing SET duration_ns = 50000000 + 400000 * ((repetition * 7 + length(phase)) % 12) WHERE phase = 'ttft'" >/dev/null
plant "$dir/base.db" "UPDATE timing SET duration_ns = CAST(duration_ns * 1.2 AS INTEGER) WHERE phase = 'ttft' AND cell_id IN $(of snapkv)"
check 'no baseline' 4 'no baseline main' gate "$dir/base.db"
check 'set' 0 'version 1' "$K" baseline set main "$dir/base.db" --why 'the first'
check 'set again' 2 'baseline move' "$K" baseline set main "$dir/base.db"
check 'move what is not there' 2 'baseline set' "$K" baseline move other "$dir/base.db" --why x
check 'move without a reason' 2 '--why' "$K" baseline move main "$dir/base.db"
check 'list' 0 'main +version 1 .* base.db .* the first' "$K" baseline list --history "$dir/history.db"

night() { cp "$dir/base.db" "$dir/$1.db"; [ -z "$2" ] || plant "$dir/$1.db" "$2"; }
night same ''
check 'no change' 0 'pass: all measured' gate "$dir/same.db"
night accuracy "UPDATE sample SET score = 0, answer = 'no', answer_ids = '[0]' WHERE score = 1 AND substr(prompt_sha256, 1, 1) < '8' AND cell_id IN $(of keydiff)"
check 'accuracy' 3 'REGRESSION accuracy: niah-multikey 256 agnostic keydiff r = 0.3' gate "$dir/accuracy.db"
for piece in 'score [0-9.]+ -> [0-9.]+, change -[0-9.]+ \[-[0-9.]+, -[0-9.]+\], n = 160 in 20 contexts' 'commits between: none' 'flipped: ' 'reproduce: kvbench run '; do
	grep -qE -- "$piece" "$dir/out" && echo "ok - an alert says /$piece/" || { echo "not ok - an alert says /$piece/"; cat "$dir/out"; }
done
command=$(sed -n 's/^ *reproduce: kvbench \(.*\) --db reproduce.db && kvbench compare .*/\1/p' "$dir/out" | head -1)
check 'its command runs' 0 '3 cells, 480 samples' bash -c "'$K' $command --db '$dir/reproduce.db' --dry-run -q"
night slow "UPDATE timing SET duration_ns = CAST(duration_ns * 1.12 AS INTEGER) WHERE phase = 'ttft' AND cell_id IN $(of snapkv)"
check 'TTFT of a method' 3 'REGRESSION ttft ratio: .* snapkv' gate "$dir/slow.db"
night slower "UPDATE timing SET duration_ns = CAST(duration_ns * 1.5 AS INTEGER) WHERE phase = 'ttft'"
check 'TTFT of everything' 3 'REGRESSION ttft: .* full' gate "$dir/slower.db"
night waiting "UPDATE timing SET duration_ns = CAST(duration_ns * 1.5 AS INTEGER) WHERE phase = 'ttft'"
plant "$dir/waiting.db" "INSERT OR REPLACE INTO timing_fact SELECT DISTINCT cell_id, run_id, 'waited_ppm', 400000 FROM timing"
check 'TTFT of everything, while threads waited for a core' 0 'waited for a core, .* 40 % tonight' gate "$dir/waiting.db"
night machine "UPDATE timing SET duration_ns = CAST(duration_ns * 1.5 AS INTEGER) WHERE phase = 'ttft'"
plant "$dir/machine.db" "UPDATE env SET host = 'elsewhere'"
check 'another machine' 0 'absolute times are not compared' gate "$dir/machine.db"
night cell "DELETE FROM sample WHERE cell_id IN $(of keydiff)"
plant "$dir/cell.db" "DELETE FROM timing WHERE cell_id IN $(of keydiff)"
plant "$dir/cell.db" "DELETE FROM cell WHERE cell_id IN $(of keydiff)"
check 'a missing cell' 4 'INCOMPLETE cell: .* keydiff' gate "$dir/cell.db"
night samples "DELETE FROM sample WHERE sample_id LIKE '%3'"
check 'missing samples' 4 'INCOMPLETE samples' gate "$dir/samples.db"
night empty "DELETE FROM sample"
check 'nothing measured' 4 'nothing was measured' gate "$dir/empty.db"
: >"$dir/zero.db"
check 'an empty file' 4 'nothing was measured' gate "$dir/zero.db" --record
night nan "UPDATE sample SET status = 'failed', score = NULL, message = 'the scores are not a number' WHERE sample_id LIKE '%1' AND cell_id IN $(of snapkv)"
check 'NaN' 4 'not a number' gate "$dir/nan.db"
night infinite "UPDATE sample SET score = 9e999 WHERE sample_id LIKE '%1' AND cell_id IN $(of snapkv)"
check 'an infinite score' 4 'not a number' gate "$dir/infinite.db"
night answers "UPDATE sample SET answer_ids = '[0]' WHERE sample_id LIKE '%1' AND cell_id IN $(of snapkv)"
check 'other answers, equal scores' 0 'notice answers: .*snapkv' gate "$dir/answers.db"
night prompts "UPDATE sample SET prompt_sha256 = 'x'"
check 'other prompts' 2 'prompts differ' gate "$dir/prompts.db"
check 'moved to the loss' 0 'version 2' "$K" baseline move main "$dir/accuracy.db" --why 'accepted'
check 'the moved baseline' 0 'version 2' gate "$dir/accuracy.db"
check 'the old state against it' 0 'notice accuracy' gate "$dir/same.db"
mv "$dir/accuracy.db" "$dir/gone.db"
check 'a baseline whose file is gone' 4 'not there any more' gate "$dir/same.db"
mv "$dir/gone.db" "$dir/accuracy.db"
plant "$dir/accuracy.db" "UPDATE sample SET score = 1 WHERE sample_id LIKE '%2'"
check 'a baseline whose file changed' 4 'other results than when it was set' gate "$dir/same.db"
check 'no --baseline' 2 'baseline NAME is needed' "$K" gate "$dir/same.db"
check 'no database' 1 'no such database' "$K" gate "$dir/none.db" --baseline main
check 'json' 4 '"verdict": "incomplete"' gate "$dir/same.db" --format json

# compare: another precision is what is compared; other prompts are refused
check 'a run in bf16' 0 '' "$K" run "$dir/plan.json" --db "$dir/bf16.db" -q --precision bf16 --set timing.enabled=false
check 'compare two precisions' 0 'precision: A fp32, B bf16' "$K" compare "$dir/base.db" "$dir/bf16.db"
for f in json md latex csv; do check "compare as $f" 0 'snapkv' "$K" compare "$dir/base.db" "$dir/bf16.db" --format $f; done
cp "$dir/base.db" "$dir/flips.db"; plant "$dir/flips.db" "UPDATE sample SET score = 0, answer = 'nothing' WHERE score = 1 AND cell_id IN $(of keydiff)"
check 'flipped samples' 0 '^niah-multikey 256 agnostic keydiff r = 0.3 .* 1 +0 .* nothing' "$K" compare "$dir/base.db" "$dir/flips.db"
check 'a run with other prompts' 0 '' "$K" run "$dir/plan.json" --db "$dir/seed.db" -q --seed 2 --set timing.enabled=false
check 'unequal prompts' 2 'prompts differ' "$K" compare "$dir/base.db" "$dir/seed.db"
check 'forced' 0 'FORCED, not comparable: prompts differ' "$K" compare "$dir/base.db" "$dir/seed.db" --force

# a night as cron runs it, with what is planted by a program of the same name
cat >"$dir/kvbench" <<W
#!/bin/bash
"$PWD/${K#./}" "\$@"; rc=\$?
if [ "\$1" = run ]; then
	for ((i = 1; i <= \$#; i++)); do [ "\${!i}" = --db ] && { i=\$((i + 1)); db=\${!i}; }; done
	"$P" "\$db" "UPDATE timing SET duration_ns = 50000000 + 400000 * ((repetition * 7 + length(phase)) % 12) WHERE phase = 'ttft'" >/dev/null
	"$P" "\$db" "$quiet" >/dev/null
	[ -z "\$PLANT_SQL" ] || "$P" "\$db" "\$PLANT_SQL" >/dev/null
fi
exit \$rc
W
[ "${K:0:1}" = / ] && sed -i "s#\"$PWD/$K\"#\"$K\"#" "$dir/kvbench"
chmod +x "$dir/kvbench"
nightly() { KVBENCH=$dir/kvbench harness/nightly.sh -k 2 "$dir/plan.json" "$dir/nights"; }
check 'the first night' 4 'no baseline main' nightly
first=$(ls "$dir/nights/"night-*.db)
check 'its baseline' 0 'version 1' "$K" baseline set main "$first"
sleep 1; check 'a night without a change' 0 'pass: all measured' nightly
sleep 1; PLANT_SQL="UPDATE timing SET duration_ns = CAST(duration_ns * 1.15 AS INTEGER) WHERE phase = 'ttft' AND cell_id IN $(of snapkv)" check 'a night that is slower' 3 'REGRESSION ttft ratio: .* snapkv' nightly
sleep 1; PLANT_SQL="UPDATE sample SET score = 0 WHERE score = 1 AND substr(prompt_sha256, 1, 1) < '8' AND cell_id IN $(of keydiff)" check 'a night that is worse' 3 'REGRESSION accuracy: .* keydiff' nightly
n=$(ls "$dir/nights/"night-*.db | wc -l)
[ "$n" -eq 3 ] && [ -e "$first" ] && echo "ok - the last two nights and the baseline are kept" || { echo "not ok - kept: $(ls "$dir/nights")"; }
n=$("$P" "$dir/nights/history.db" "SELECT count(*) || ' ' || sum(exit_code) FROM night")
[ "$n" = '4 10' ] && echo "ok - the history has four nights" || echo "not ok - the history has: $n"
n=$("$P" "$dir/nights/history.db" "SELECT count(*) FROM alert WHERE level = 'regression' AND message LIKE '%reproduce:%'")
[ "$n" -ge 2 ] && echo "ok - and their alerts" || echo "not ok - alerts in the history: $n"
for f in db txt html; do [ -s "$(ls "$dir/nights/"night-*.$f | tail -1)" ] && echo "ok - a night leaves a .$f" || echo "not ok - a night leaves a .$f"; done
echo night-20260101T000000Z >"$dir/nights/unfinished"
check 'an interrupted night' 0 'night-20260101T000000Z.db against baseline main' nightly
[ ! -e "$dir/nights/unfinished" ] && echo "ok - is finished" || echo "not ok - is finished"
exec 8>"$dir/nights/night.lock"; flock 8
check 'a night beside another one' 75 'at work' nightly
