#!/bin/bash
# What nvcc makes of the attention kernels: they must use tensor cores (mma.sync; on sm_90a wgmma), asynchronous copies (on sm_90a by tensor maps too), and keep
# nothing in local memory; ptxas must neither spill nor make one wgmma wait for the other. Needs nvcc, no GPU.
cd "$(dirname "$0")/../.."
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) || { echo "skip - PTX of the kernels: no nvcc here"; exit 0; }
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
for kernel in attend attend_few reduce attend_wgmma; do
	arch=80 all='mma.sync.aligned.m16n8k16 ldmatrix.sync.aligned'
	[ $kernel = attend_wgmma ] && arch=90a all='wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
		wgmma.fence.sync.aligned wgmma.wait_group.sync.aligned fence.proxy.async.shared::cta setmaxnreg.inc.sync bar.arrive
		cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes mbarrier.init.shared::cta.b64 fence.mbarrier_init.release.cluster
		mbarrier.arrive.shared::cta.b64 mbarrier.arrive.expect_tx.shared::cta.b64 mbarrier.try_wait.parity.shared::cta.b64
		fence.proxy.tensormap::generic.acquire.sys'
	if ! "$nvcc" -std=c++17 -O3 -I. -arch=compute_$arch -ptx "runners/device/cuda/$kernel.cu" -o "$dir/$kernel.ptx" 2>"$dir/err"; then
		echo "not ok - $kernel.cu to PTX"; cat "$dir/err"; continue
	fi
	for wanted in $all cp.async.cg.shared.global cp.async.wait_group; do
		if grep -q "$wanted" "$dir/$kernel.ptx"; then echo "ok - $kernel uses $wanted"; else echo "not ok - $kernel has no $wanted"; fi
	done
	if grep -q 'trap;' "$dir/$kernel.ptx"; then echo "not ok - $kernel is compiled to nothing"; fi
	if grep -q __local_depot "$dir/$kernel.ptx"; then echo "not ok - $kernel keeps an array in local memory"; else echo "ok - $kernel keeps nothing in local memory"; fi
done
# ptxas says on stderr when it serialises wgmma; without the `a` of sm_90a the kernel is nothing, and the program must not choose it.
if "$nvcc" -std=c++17 -O3 -I. -DKVB_SM90A -Werror all-warnings -Xptxas -warn-spills,-Werror -arch=sm_90a -c runners/device/cuda/attend_wgmma.cu -o "$dir/wgmma.o" 2>"$dir/err" && [ ! -s "$dir/err" ]; then
	echo "ok - attend_wgmma assembles for sm_90a without spills or serialised products"
else
	echo "not ok - attend_wgmma assembles for sm_90a without spills or serialised products"; cat "$dir/err"
fi
