#!/bin/bash
# Every exit code of the table in `kvbench help`, and that data goes to stdout and talk to stderr.
cd "$(dirname "$0")/../.."
K=${KVBENCH:-./kvbench}
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
plan=$dir/plan.json
cat >"$plan" <<'J'
{"targets": ["tiny-pair/target"], "models": "runners/model", "methods": ["snapkv"], "retained": [0.3],
 "tasks": [{"name": "niah-multikey", "lengths": [256], "contexts": 2, "questions": 4}], "timing": {"enabled": false}}
J
wants() { # CODE, pattern on stderr ('' = whatever), command...
	local code=$1 pattern=$2 rc; shift 2
	"$@" >"$dir/out" 2>"$dir/err" </dev/null; rc=$?
	if [ "$rc" -eq "$code" ] && { [ -z "$pattern" ] || grep -qE -- "$pattern" "$dir/err"; }; then echo "ok - $code: ${*:1:6}"
	else echo "not ok - wanted $code and /$pattern/, got $rc: $*"; cat "$dir/err"; fi
}
silent() { # the command's stdout is empty
	"$@" 2>/dev/null | grep -q . && echo "not ok - talks on stdout: $*" || echo "ok - nothing on stdout: ${*:1:4}"
}
db=$dir/a.db
wants 0 '' "$K" help
wants 2 '' "$K"
wants 0 '' "$K" version
for verb in run status report export ask list doctor bench calibrate fetch score merge paper verify; do wants 0 '' "$K" $verb --help; done
wants 2 'did you mean "export"' "$K" exprot
wants 2 'did you mean --format' "$K" export --fromat csv x.db
wants 2 'usage: kvbench status DB' "$K" status
wants 2 'one argument too many' "$K" status a b
wants 2 'merge wants at least 3 arguments, not 2; usage: kvbench merge OUT.db' "$K" merge a b
wants 2 'inner keys go by --set timing.warmup=VALUE' "$K" run "$plan" --timing.warmup 2
wants 2 '--out needs FILE' "$K" report x.db --out
wants 2 'flag' "$K" run --dry-run=yes "$plan"
wants 2 'csv, json' "$K" export x.db --format xls
wants 2 'did you mean "methods"' "$K" list mehtods
wants 2 'whole number' "$K" ask --user-file x --threads two
wants 2 'from 1 to' "$K" ask --context x --question why --max-new 0
wants 2 'from 0 to' "$K" ask --context x --question why --threads 4294967297
wants 2 'from 1 to' "$K" calibrate kvzip-head --contexts 0
wants 2 'from 1 to' "$K" continue "$plan" --tokens 0
wants 2 'a number from 0' "$K" gate x.db --baseline main --alpha nan
wants 2 'a number from 0' "$K" gate x.db --baseline main --score-margin -1
for alpha in 0 1.01; do wants 2 'a probability' "$K" gate x.db --baseline main --alpha $alpha; wants 2 'a probability' "$K" compare x.db y.db --alpha $alpha; done
wants 2 'table goes with --format csv' "$K" compare x.db y.db --table flips
wants 2 'recent goes with --record' "$K" gate x.db --baseline main --recent 3
wants 2 'nights goes with --gate' "$K" bench --nights 3
wants 2 'tokens goes with benchmarks of a model' "$K" bench --gate --tokens 64
wants 2 'paths goes with list' "$K" baseline set main x.db --paths
wants 2 'tflops goes with --dry-run' "$K" paper kvzip --tflops 3 --dry-run
wants 2 'above 0' "$K" paper kvzip --scale full --dry-run --tflops 0
wants 2 '--context' "$K" ask --question why
wants 2 '--question has no part' "$K" ask --user-file x --question why
wants 2 'kvzip-head' "$K" calibrate everything
wants 2 'gone.json' "$K" run "$dir/gone.json"
wants 2 'did you mean "retained"' "$K" run "$plan" --set retaind=.3
wants 2 'snapkv' "$K" run "$plan" --methods snapkw
wants 2 'did you mean' "$K" run "$plan" --tasks niah-singel
wants 2 'unknown instruction set "sse"; there are' "$K" run "$plan" --isa sse --dry-run
wants 2 'unknown device "gpu"; there are' "$K" ask --context "$plan" --question why --device gpu
wants 2 'no chat template is called' "$K" run "$plan" --chat-template nosuch
wants 2 'no chat template is called' "$K" ask --context "$plan" --question why --template nosuch
wants 2 'unknown precision "fp8"' "$K" bench --precision fp8
wants 1 'no such database' "$K" status "$dir/gone.db"
wants 1 'not a database|not one of' "$K" export "$plan"
wants 1 'gone-model' "$K" run "$plan" --db "$dir/b.db" --targets gone-model
wants 0 '' "$K" run "$plan" --db "$db" --dry-run -q
grep -q '3 cells, 24 samples'  "$dir/out" && [ ! -e "$db" ] && echo "ok - a dry run only counts" || echo "not ok - a dry run only counts"
wants 0 '0 of them present before; now 24 answered' "$K" run "$plan" --db "$db"
wants 0 '24 of them present before; now 0 answered' "$K" run "$plan" --db "$db"
grep -q 'earlier' "$dir/err" && echo "not ok - one plan alone: no word of earlier ones" || echo "ok - one plan alone: no word of earlier ones"
cp "$db" "$dir/g.db"
wants 0 '2 more cells in .*/g.db are not of this plan but of earlier ones' "$K" run "$plan" --db "$dir/g.db" --retained .5
stdout() { grep -q -- "$1" "$dir/out" && echo "ok - it says: $1" || { echo "not ok - it says: $1"; cat "$dir/out"; }; }
wants 0 '' "$K" run "$plan" --dry-run --db "$dir/h.db" --set tasks.lengths=20000 --memory 16M
stdout '! more than is allowed'
stdout '! the model was made for 8192 tokens: longer prompts become failed rows; --allow-long'
wants 0 '' "$K" run "$plan" --dry-run --db "$dir/h.db"
grep -q '!' "$dir/out" && echo "not ok - nothing to warn of" || echo "ok - nothing to warn of"
printf '{"id": "a", "context": "The old man saw the lake.", "question": "Recall amber.", "answers": ["x"], "metric": "exact"}\n' >"$dir/own.jsonl"
wants 0 '' "$K" run "$plan" --db "$dir/i.db" --set 'tasks=[{"name":"jsonl","path":"'"$dir"'/own.jsonl"}]'
grep -q 'unpinned' "$dir/out" && echo "not ok - one's own rows are nobody else's data" || echo "ok - one's own rows are nobody else's data"
printf '{"id": "a", "context": "The old man saw the lake.", "question": "\\nRecall amber.", "answers": ["x"], "metric": "exact"}\n%.0s' 1 2 >"$dir/twins.jsonl"
wants 1 'two samples are called' "$K" run "$plan" --db "$dir/d.db" --set 'tasks=[{"name":"jsonl","path":"'"$dir"'/twins.jsonl"}]'
wants 0 'in all about .* MB' "$K" run "$plan" --db "$dir/e.db"
silent "$K" run "$plan" --targets gone-model --db "$dir/b.db"
for format in csv json md latex text; do wants 0 '' "$K" export "$db" --format $format; done
wants 0 '' "$K" status "$db"
wants 0 '' "$K" report "$db" -o "$dir/a.html"
for verb in report export compare; do
	args=("$db"); [ $verb = compare ] && args+=("$db")
	wants 2 'the file that is read' "$K" $verb "${args[@]}" -o "$dir/./a.db"
done
wants 0 '' "$K" status "$db"
mkfifo "$dir/pipe"
wants 1 'no plain file' "$K" report "$db" -o "$dir/pipe"
[ -p "$dir/pipe" ] && echo "ok - a pipe stays a pipe" || echo "not ok - a pipe stays a pipe"
wants 1 'cannot write .*: No such file' "$K" export "$db" -o "$dir/no/such/folder"
grep -q '</html>' "$dir/a.html" && echo "ok - the report is a whole file" || echo "not ok - the report is a whole file"
for kind in methods scorers allocators tasks metrics models templates; do
	wants 0 '' "$K" list $kind --models runners/model
	[ -s "$dir/out" ] && echo "ok - list $kind says something" || echo "not ok - list $kind says something"
done
wants 0 '' "$K" doctor --models runners/model

# a limit on files' sizes is told like a full disk; nothing half-written stays under its name
tight() { bash -c 'ulimit -f 16; exec "$@"' tight "$@"; }
wants 1 'a write was refused' tight "$K" run "$plan" --db "$dir/f.db" -q
wants 1 'File too large' tight "$K" report "$db" -o "$dir/tight.html"
wants 1 'a write was refused' tight "$K" merge "$dir/tight.db" "$db" "$db"
ls "$dir"/tight* >/dev/null 2>&1 && { echo "not ok - nothing is left where writing failed"; ls "$dir"/tight*; } || echo "ok - nothing is left where writing failed"

# a locked database and a signal: try again
long=(run "$plan" --db "$dir/c.db" --set tasks.contexts=400)
"$K" "${long[@]}" >/dev/null 2>&1 & pid=$!
for _ in $(seq 100); do [ -e "$dir/c.db.lock" ] && break; sleep .05; done
wants 75 'another kvbench' "$K" "${long[@]}"
for _ in $(seq 200); do "$K" status "$dir/c.db" 2>/dev/null | grep -qE '^all .* [1-9][0-9]*/4800' && break; sleep .05; done
kill -TERM $pid; wait $pid; rc=$?
[ $rc -eq 75 ] && echo "ok - 75 after TERM" || echo "not ok - 75 after TERM, got $rc"
setsid env --default-signal=INT "$K" run "$plan" --db "$dir/c.db" --dry-run --set tasks.contexts=50000 >"$dir/out" 2>"$dir/err" & pid=$!
sleep .5
kill -INT $pid; wait $pid; rc=$?
if [ $rc -eq 75 ] && grep -q 'stopped by signal 2' "$dir/err" && ! grep -q 'cells' "$dir/out"; then echo "ok - 75 after INT in a dry run"
else echo "not ok - 75 after INT in a dry run, got $rc"; fi
for sig in INT USR1; do # a background job of a script ignores INT: env gives it back its default
	setsid env --default-signal=INT "$K" "${long[@]}" >/dev/null 2>&1 & pid=$!
	sleep .5
	kill -$sig $pid; wait $pid; rc=$?
	[ $rc -eq 75 ] && echo "ok - 75 after $sig" || echo "not ok - 75 after $sig, got $rc"
done
