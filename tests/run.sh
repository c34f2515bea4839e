#!/bin/bash
# Runs test programs and adds up what they say: one after another, or, behind the word --together (until --alone), as many at a time as there are processors. A
# program is a cmocka binary, or a script which prints `ok - NAME`, `not ok - NAME`, `skip - NAME: why` lines. Prints failures and skips in full, ends with the
# plain line `N passed, N failed, N skipped`, and exits 0 only when nothing failed and something passed.
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0 failed=0 skipped=0 reported=0 started=()
logs=$(mktemp -d); trap 'rm -rf "$logs"' EXIT

run() { # NUMBER PROGRAM
	local start; start=$(date +%s.%N)
	timeout "${KVB_TEST_SECONDS:-600}" "$2" >"$logs/$1" 2>&1; echo "$? $(echo "$(date +%s.%N) - $start" | bc 2>/dev/null || echo 0)" >"$logs/$1.rc"
}
report() { # NUMBER PROGRAM
	local log=$logs/$1 rc seconds p f s
	read -r rc seconds <"$log.rc"
	p=$(grep -cE '^\[       OK \]|^ok - ' "$log"); f=$(grep -cE '^\[  FAILED  \] [A-Za-z_]|^not ok - ' "$log"); s=$(grep -cE '^\[  SKIPPED \] [A-Za-z_]|^skip - ' "$log")
	# cmocka lists each failed and skipped test twice: once where it ran, once at the end
	if grep -q '^\[==========\]' "$log"; then
		f=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -1); f=${f:-0}
		s=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$log" | tail -1); s=${s:-0}
	fi
	if [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; echo "$2: ended with status $rc before saying what failed"; fi
	printf '%-44s %3d passed %2d failed %2d skipped  %6.1f s\n' "${2#build/}" "$p" "$f" "$s" "$seconds"
	[ "$f" -eq 0 ] || sed 's/^/    /' "$log" | tail -n 60
	[ "$s" -eq 0 ] || grep -hE '^ *skip(ped)?( -|:)' "$log" | sed 's/^/    /' | sort -u | head -20
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}
finish() { # those that were started and are not reported, in the order of the command line
	wait
	for (( ; reported < ${#started[@]}; reported++)); do report "$reported" "${started[reported]}"; done
}

together=1
for t in "$@"; do
	case $t in
	--together) together=$(nproc); continue ;;
	--alone) finish; together=1; continue ;;
	esac
	while [ "$(jobs -rp | wc -l)" -ge "$together" ]; do wait -n; done
	run ${#started[@]} "$t" &
	started+=("$t")
	[ "$together" -gt 1 ] || finish
done
finish
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
