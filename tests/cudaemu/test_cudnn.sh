#!/bin/bash
# The real cuDNN, where it lies beside the CUDA toolkit, takes our graph of attention for several GPUs and compiles kernels for it. No GPU and no driver is needed: the toolkit's
# stub of libcuda stands in for it.
cd "$(dirname "$0")/../.."
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
home=${CUDA_HOME:-${nvcc:+$(dirname "$(dirname "$(readlink -f "$nvcc")")")}}
if [ ! -e "$home/include/cudnn_graph.h" ] || [ ! -e "$home/lib64/libcudnn.so.9" ] || [ ! -e "$home/lib64/stubs/libcuda.so" ]; then
	echo "skip - cuDNN accepts our graph of attention: no cuDNN beside a CUDA toolkit here"; exit 0
fi
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
ln -s "$home/lib64/stubs/libcuda.so" "$dir/libcuda.so.1"
gcc -std=c11 -D_GNU_SOURCE -pthread -Wall -Wno-missing-field-initializers -I. -isystem "$home/include" tests/cudaemu/cudnn_check.c runners/device/cuda/dnn_graph.c runners/device/cuda/dnn_load.c runners/device/cuda/library.c \
	harness/base/base.c -o "$dir/check" -ldl -lm 2>"$dir/log" || { echo "not ok - cudnn_check.c compiles"; cat "$dir/log"; exit 1; }
LD_LIBRARY_PATH=$dir:$home/lib64 timeout 300 "$dir/check" >"$dir/out" 2>"$dir/err"; rc=$?
cat "$dir/out"
[ $rc -eq 0 ] || { echo "not ok - cudnn_check ends (status $rc)"; cat "$dir/err"; }
