#!/bin/bash
# The backend on an emulated sm_90: attention of 64 and 128 channels by wgmma (attend_wgmma.cu) against the CPU; and a part of it in the TSan build.
cd "$(dirname "$0")/../.."
log=$(mktemp); trap 'rm -f "$log"' EXIT
attention() { # NAME, PROGRAM
	CUEMU_CC=90 TSAN_OPTIONS='exitcode=66 atexit_sleep_ms=0' "$2" >"$log" 2>&1; rc=$?
	if [ $rc -eq 0 ] && grep -q '  PASSED  ' "$log" && grep -q 'attention by sm_90a' "$log"; then echo "ok - $1"; else echo "not ok - $1 (status $rc)"; tail -n 40 "$log"; fi
}
KVB_SANITIZED=1 attention 'attention by wgmma equals the CPU' "$KVB_EMU/test_backend_attention"
KVB_SANITIZED=1 KVB_TEST=test_batches attention 'attention by wgmma is free of races' "$KVB_EMU/tsan/test_backend_attention"
