#!/bin/bash
# `ask` on one's own text, `calibrate`, and what `kvzip@head` says without its table.
cd "$(dirname "$0")/../.."
K=${KVBENCH:-./kvbench}
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
export KVBENCH_CALIBRATION=$dir/calibration
check() { local name=$1; shift; if "$@"; then echo "ok - $name"; else echo "not ok - $name"; cat "$dir/out" "$dir/err"; fi; }
ask() { "$K" ask --models runners/model "$@" >"$dir/out" 2>"$dir/err" </dev/null; }
said() { grep -qE -- "$1" "$dir/out"; }
talked() { grep -qE -- "$1" "$dir/err"; }

context='The old man saw the lake.'
for needle in 'amber 482 137' 'tulip 031 555' 'otter 120 007'; do context="$context Code $needle. Every king in the house praised a boat."; done
printf '%s' "$context" >"$dir/context.txt"
printf '%s\nRecall tulip.' "$context" >"$dir/user.txt"
one=(--context "$dir/context.txt" --question 'Recall tulip.')

check "full and kvzip give the answer" ask "${one[@]}" --methods full,kvzip --retained .5
check "side by side, with what was kept" said '^full +1 +1\.0000 +[0-9.]+ +tulip 031 555\.$'
check "the pruned one too" said '^kvzip +0\.5 +0\.[45][0-9]+ +[0-9.]+ +tulip 031 555\.$'
check "its cost was told" talked 'times to first token, one prefill each: .* or more \(--untimed'
check "left out where that is wanted" ask "${one[@]}" --methods full,kvzip --retained .5 --untimed
check "with the same answers" said '^kvzip +0\.5 +0\.[45][0-9]+ +- +tulip 031 555\.$'
check "and nothing told" bash -c "! grep -q 'times to first' '$dir/err'"
check "from one prefill and one pass of the scorer" talked '^1 prefill\(s\), 1 scorer pass\(es\)'
check "three ratios of two methods share them" ask "${one[@]}" --methods snapkv,kvzip --retained .3,.5,.9
check "as they should" talked '^1 prefill\(s\), 2 scorer pass\(es\), .* 6 answers'
check "a whole user turn, as json" ask --user-file "$dir/user.txt" --format json --max-new 8
check "with the answer" said '"text": " ?tulip 031 555\."'
prompt=$(tr -d ' \n' <"$dir/out" | sed 's/.*"prompt_ids":\[\([0-9,]*\)\].*/\1/')
check "context and question give the same prompt" ask "${one[@]}" --methods full --format json
check "token by token" [ "$prompt" = "$(tr -d ' \n' <"$dir/out" | sed 's/.*"prompt_ids":\[\([0-9,]*\)\].*/\1/')" ]
ask "${one[@]}" --methods kvzip@head; rc=$?
check "kvzip@head without its table fails" [ $rc -eq 1 ]
check "and names the command that makes it" grep -q 'kvbench calibrate kvzip-head' "$dir/out" "$dir/err"
check "calibrate" "$K" calibrate kvzip-head --models runners/model --contexts 2 --length 256 >/dev/null
check "then it answers" ask "${one[@]}" --methods kvzip@head --retained .5
ask "${one[@]}" --methods snapkw; rc=$?
check "a mistyped method is bad usage" [ $rc -eq 2 ]
