#!/bin/bash
# test_races.sh PROGRAM: runs every case of the TSan program `races`, over two seeds side by side: a race must be reported exactly where one is.
program=${1:-$KVB_EMU/tsan/races}
logs=$(mktemp -d); trap 'rm -rf "$logs"' EXIT
while read -r kind name; do
	reported=0 others=0
	for seed in 1 2; do
		{ CUEMU_SEED=$seed TSAN_OPTIONS="exitcode=66 atexit_sleep_ms=0" "$program" "$name" >"$logs/$seed" 2>&1 </dev/null; echo $? >"$logs/$seed.rc"; } &
	done
	wait
	for seed in 1 2; do
		rc=$(<"$logs/$seed.rc")
		[ "$rc" = 66 ] && grep -q 'data race' "$logs/$seed" && reported=$((reported + 1))
		[ "$rc" = 0 ] || [ "$rc" = 66 ] || others=$((others + 1))
	done
	case $kind in race) want=2 ;; *) want=0 ;; esac
	if [ $reported -eq $want ] && [ $others -eq 0 ]; then echo "ok - $kind: $name"; else echo "not ok - $kind: $name ($reported of 2 runs report a race, $others ended otherwise)"; cat "$logs/1"; fi
done < <("$program" | grep -e "${2:-}")
