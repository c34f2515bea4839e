#!/bin/bash
# The backend's operations in the TSan build: no race between threads of a block, between blocks, between streams, or with the host. The programs run side by side.
cd "$(dirname "$0")/../.."
programs=(test_backend_ops test_backend_attention test_backend_cudnn)
logs=$(mktemp -d); trap 'rm -rf "$logs"' EXIT
for program in "${programs[@]}"; do
	{ TSAN_OPTIONS='exitcode=66 atexit_sleep_ms=0' KVB_SANITIZED=1 "$KVB_EMU/tsan/$program" >"$logs/$program" 2>&1; echo $? >"$logs/$program.rc"; } &
done
wait
for program in "${programs[@]}"; do
	log=$logs/$program rc=$(<"$logs/$program.rc")
	if [ "$rc" = 0 ] && grep -q '  PASSED  ' "$log"; then echo "ok - $program is free of races"; else echo "not ok - $program is free of races (status $rc)"; grep -m1 -A40 'WARNING: ThreadSanitizer' "$log" || tail -n 30 "$log"; fi
done
