#!/bin/bash
# What nvcc makes of the attention kernels: they must use tensor cores (mma.sync), ldmatrix and asynchronous copies, and keep nothing in local memory. Needs nvcc, no GPU.
cd "$(dirname "$0")/../.."
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) || { echo "skip - PTX of the kernels: no nvcc here"; exit 0; }
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
for kernel in attend attend_few reduce; do
	if ! "$nvcc" -std=c++17 -O3 -I. -arch=compute_90 -ptx "runners/device/cuda/$kernel.cu" -o "$dir/$kernel.ptx" 2>"$dir/err"; then
		echo "not ok - $kernel.cu to PTX"; cat "$dir/err"; continue
	fi
	for wanted in mma.sync.aligned.m16n8k16 ldmatrix.sync.aligned cp.async.cg.shared.global cp.async.wait_group; do
		if grep -q "$wanted" "$dir/$kernel.ptx"; then echo "ok - $kernel uses $wanted"; else echo "not ok - $kernel has no $wanted"; fi
	done
	if grep -q __local_depot "$dir/$kernel.ptx"; then echo "not ok - $kernel keeps an array in local memory"; else echo "ok - $kernel keeps nothing in local memory"; fi
done
