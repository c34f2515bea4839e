#!/bin/bash
# Tests and timings of the CUDA backend on a real GPU: tests/gpu.sh [FOLDER for the results, default $OUT or build/gpu]
# Needs nvcc, gcc, cuBLAS and a GPU; no other library (runners/device and runners/forward alone are built, shapes and a small cmocka stand beside this script).
# Ends within 8 minutes. Prints each test and a table of every figure beside its floor; the same goes to FOLDER/gpu.txt.
set -u -o pipefail
cd "$(dirname "$0")/.."
out=${1:-${OUT:-build/gpu}} build=build/gpu jobs=$(nproc)
mkdir -p "$out" "$build"
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) || { echo "skipped: no nvcc here"; exit 77; }
home=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
arch=${CUDA_ARCH:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .)}
arch=${arch:-90}
[ "$arch" = 90 ] && arch=90a

build() {
	local c cu flags="-std=c11 -D_GNU_SOURCE -pthread -fno-math-errno -ffp-contract=off -O2 -g -Wno-missing-field-initializers -I. -Itests/gpu -isystem $home/include"
	{
		echo "all: $build/test_backend_ops $build/test_backend_attention $build/bench"
		for cu in runners/device/cuda/*.cu; do
			objects+=" $build/$(basename "$cu").o"
			echo "$build/$(basename "$cu").o: $cu"
			echo "	$nvcc -std=c++17 -O3 -lineinfo -I. -gencode arch=compute_$arch,code=sm_$arch -c \$< -o \$@"
		done
		for c in harness/base/base.c $(ls runners/device/*.c | grep -v cuda_absent) runners/device/cuda/*.c runners/device/cpu/*.c; do
			objects+=" $build/${c//\//_}.o"
			echo "$build/${c//\//_}.o: $c"
			echo "	gcc $flags -c \$< -o \$@"
		done
		isa() { # NAME flags files...: the CPU's kernels, for comparison
			local name=$1 extra=$2 f; shift 2
			for f in "$@"; do
				objects+=" $build/${f//\//_}.$name.o"
				echo "$build/${f//\//_}.$name.o: $f"
				echo "	gcc $flags $extra -O3 -DKVB_ISA=$name -c \$< -o \$@"
			done
		}
		avx512="-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512"
		isa avx2 "-mavx2 -mfma -mf16c" runners/device/cpu/kernels/*.c
		isa avx512 "$avx512" runners/device/cpu/kernels/*.c
		isa avx512bf16 "$avx512 -mavx512bf16" runners/device/cpu/kernels/*.c
		isa amx "$avx512 -mavx512bf16 -mavx512vbmi -mamx-tile -mamx-bf16" runners/device/cpu/amx/*.c
		libs="-L$home/lib64 -lcudart_static -lstdc++ -lpthread -ldl -lrt -lm"
		for c in test_backend_ops test_backend_attention; do
			echo "$build/$c: tests/cudaemu/$c.c $objects"
			echo "	gcc $flags -o \$@ \$^ $libs"
		done
		echo "$build/bench: tests/gpu/bench.c tests/gpu/shapes.c runners/model/rope.c $(ls runners/forward/*.c | tr '\n' ' ') $objects"
		echo "	gcc $flags -o \$@ \$^ $libs"
	} > "$build/gpu.mk"
	make -s -j"$jobs" -f "$build/gpu.mk" all > "$build/build.log" 2>&1
}

objects=
start=$SECONDS
{
	build || { tail -20 "$build/build.log"; echo "the build failed"; exit 1; }
	echo "# built for sm_$arch in $((SECONDS - start)) s"
	export LD_LIBRARY_PATH="$home/lib64:${LD_LIBRARY_PATH:-}"
	failed=0
	for t in test_backend_ops test_backend_attention; do
		timeout 120 "$build/$t" || { failed=1; echo "not ok - $t"; }
	done
	left=$((470 - (SECONDS - start)))
	if [ "$left" -gt 30 ]; then
		timeout "$left" "$build/bench" || failed=1
	fi
	echo "# $((SECONDS - start)) s in all"
	exit $failed
} 2>&1 | tee "$out/gpu.txt"
