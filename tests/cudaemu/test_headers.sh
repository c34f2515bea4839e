#!/bin/bash
# Compares the shim's headers with NVIDIA's where those are at hand.
cd "$(dirname "$0")/../.."
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
home=${CUDA_HOME:-${nvcc:+$(dirname "$(dirname "$(readlink -f "$nvcc")")")}}
if [ ! -e "$home/include/cublas_v2.h" ]; then echo "skip - headers equal NVIDIA's: no CUDA toolkit here (only its headers would be needed)"; exit 0; fi
cudnn=0; [ -e "$home/include/cudnn_graph.h" ] && cudnn=1 # cuDNN's are compared where they are
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
for side in ours theirs; do
	include=tests/cudaemu/include; [ $side = theirs ] && include=$home/include
	gcc -std=c11 -DWITH_CUDNN=$cudnn -isystem "$include" tests/cudaemu/header_check.c -o "$dir/$side" 2>"$dir/$side.log" && "$dir/$side" >"$dir/$side.txt" || { echo "not ok - header_check.c compiles with $include"; cat "$dir/$side.log"; exit 1; }
done
if cmp -s "$dir/ours.txt" "$dir/theirs.txt"; then echo "ok - $(wc -l <"$dir/ours.txt") values and sizes equal NVIDIA's"; else echo "not ok - values and sizes equal NVIDIA's"; diff "$dir/ours.txt" "$dir/theirs.txt"; fi
