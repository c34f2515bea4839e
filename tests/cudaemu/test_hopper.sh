#!/bin/bash
# The backend on an emulated sm_90: attention of 64 and 128 channels by wgmma (attend_wgmma.cu) against the CPU, with tensor maps and without; and, beside it,
# parts of it in the TSan build. fp32 has the same kernels on every GPU, which test_backend_attention and test_tsan.sh run: here once, for the choice.
cd "$(dirname "$0")/../.."
logs=$(mktemp -d); trap 'rm -rf "$logs"' EXIT
attention() { # LOG, PROGRAM
	KVB_SANITIZED=1 KVB_TEST_FP32=${FP32:-0} CUEMU_CC=90 TSAN_OPTIONS='exitcode=66 atexit_sleep_ms=0' "$2" >"$logs/$1" 2>&1; echo $? >"$logs/$1.rc"
}
judge() { # NAME, LOG
	local log=$logs/$2 rc; rc=$(<"$logs/$2.rc")
	if [ "$rc" = 0 ] && grep -q '  PASSED  ' "$log" && grep -q 'attention by sm_90a' "$log"; then echo "ok - $1"; else echo "not ok - $1 (status $rc)"; tail -n 40 "$log"; fi
}
attention plain "$KVB_EMU/test_backend_attention" &
FP32=1 CUEMU_TMA=0 KVB_TEST=test_batches attention without "$KVB_EMU/test_backend_attention" &
KVB_TEST=test_batches attention tsan "$KVB_EMU/tsan/test_backend_attention" &
KVB_TEST=test_few_maps_at_a_time attention boxes "$KVB_EMU/tsan/test_backend_tma" &
wait
judge 'attention by wgmma equals the CPU' plain
judge 'attention by wgmma without tensor maps equals the CPU' without
judge 'attention by wgmma is free of races' tsan
judge 'attention by wgmma with many tensor maps and without is free of races' boxes
