#!/bin/bash
# Runs test programs one after another and adds up what they say. A program is a cmocka binary, or a script which prints
# `ok - NAME`, `not ok - NAME`, `skip - NAME: why` lines. Prints failures and skips in full, ends with the plain line
# `N passed, N failed, N skipped`, and exits 0 only when nothing failed and something passed.
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0 failed=0 skipped=0
log=$(mktemp); trap 'rm -f "$log"' EXIT
for t in "$@"; do
	start=$(date +%s.%N)
	timeout "${KVB_TEST_SECONDS:-600}" "$t" >"$log" 2>&1; rc=$?
	p=$(grep -cE '^\[       OK \]|^ok - ' "$log"); f=$(grep -cE '^\[  FAILED  \] [A-Za-z_]|^not ok - ' "$log"); s=$(grep -cE '^\[  SKIPPED \] [A-Za-z_]|^skip - ' "$log")
	# cmocka lists each failed and skipped test twice: once where it ran, once at the end
	if grep -q '^\[==========\]' "$log"; then
		f=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -1); f=${f:-0}
		s=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$log" | tail -1); s=${s:-0}
	fi
	if [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; echo "$t: ended with status $rc before saying what failed"; fi
	printf '%-44s %3d passed %2d failed %2d skipped  %6.1f s\n' "${t#build/}" "$p" "$f" "$s" "$(echo "$(date +%s.%N) - $start" | bc 2>/dev/null || echo 0)"
	[ "$f" -eq 0 ] || sed 's/^/    /' "$log" | tail -n 60
	[ "$s" -eq 0 ] || grep -hE '^ *skip(ped)?( -|:)' "$log" | sed 's/^/    /' | sort -u | head -20
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
