#!/bin/bash
# The bench of tests/gpu.sh over the emulation, at a tiny scale: it runs whole, no figure that a GPU is to be asked for is missing, each stands beside a floor.
# No time in it is a measurement. Called as test_run.sh is.
cd "$(dirname "$0")/../.."
log=$(mktemp); trap 'rm -f "$log"' EXIT
"${KVB_EMU:?run it through make cudaemu}/gpu_bench" --tiny >"$log" 2>&1; rc=$?
if [ $rc -eq 0 ] && grep -q ', 0 failed$' "$log" && ! grep -qE 'FAILED|left out' "$log"; then echo "ok - the bench of a GPU runs whole"; else echo "not ok - the bench of a GPU runs whole (status $rc)"; cat "$log"; fi
grep -q '^# emulated:0' "$log" && echo "ok - and says that it was emulated" || echo "not ok - it does not say that it was emulated"
while IFS='|' read -r figure pattern; do
	if grep -qE "$pattern" "$log"; then echo "ok - $figure"; else echo "not ok - $figure: no line like /$pattern/"; cat "$log"; fi
done <<'FIGURES'
products|tiny: linear, many rows .* TFLOP/s .* of the product .*goal 0\.85
attention|tiny: attention, blocks .* TFLOP/s .* of the product
column sums|tiny: column sums .* TFLOP/s .* of the product
attention by our kernels, at a length|heads of .* ours .* TFLOP/s .* of the product
prefill|tiny: prefill of .* s .* x floor .*goal
KVzip's pass|tiny: KVzip pass over .* s .* x floor .*goal
decoding one variant|decode, 1 variants .* ms/step .* x reading it all
decoding 32 variants|decode, 32 variants .* ms/step .* x reading it all
the proxy's prefill and column sums|tiny-proxy .* prefill and column sums alone .* s .* x floor
ProxyKV on one GPU|ProxyKV shared: both prefills .* x faster .*goal 1\.80
ranking|one ranking over .* ms .* x four passes
mappers|mapper flat.* ms .* x its arithmetic
LKV|LKV-T over one layer.* ms .* x reading it
FIGURES
