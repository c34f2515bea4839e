#!/bin/bash
# test_races.sh PROGRAM: runs every case of the TSan program `races`, over two seeds: a race must be reported exactly where one is.
program=${1:-$KVB_EMU/tsan/races}
while read -r kind name; do
	reported=0 others=0
	for seed in 1 2; do
		CUEMU_SEED=$seed TSAN_OPTIONS="exitcode=66 atexit_sleep_ms=0" "$program" "$name" >/tmp/races.$$ 2>&1; rc=$?
		[ $rc -eq 66 ] && grep -q 'data race' /tmp/races.$$ && reported=$((reported + 1))
		[ $rc -eq 0 ] || [ $rc -eq 66 ] || others=$((others + 1))
	done
	case $kind in race) want=2 ;; *) want=0 ;; esac
	if [ $reported -eq $want ] && [ $others -eq 0 ]; then echo "ok - $kind: $name"; else echo "not ok - $kind: $name ($reported of 2 runs report a race, $others ended otherwise)"; cat /tmp/races.$$; fi
done < <("$program" | grep -e "${2:-}")
rm -f /tmp/races.$$
