#!/bin/bash
# The backend's operations in the TSan build: no race between threads of a block, between blocks, between streams, or with the host.
cd "$(dirname "$0")/../.."
for program in test_backend_ops test_backend_attention test_backend_cudnn; do
	log=$(mktemp)
	TSAN_OPTIONS='exitcode=66 atexit_sleep_ms=0' KVB_SANITIZED=1 "$KVB_EMU/tsan/$program" >"$log" 2>&1; rc=$?
	if [ $rc -eq 0 ] && grep -q '  PASSED  ' "$log"; then echo "ok - $program is free of races"; else echo "not ok - $program is free of races (status $rc)"; grep -m1 -A40 'WARNING: ThreadSanitizer' "$log" || tail -n 30 "$log"; fi
	rm -f "$log"
done
