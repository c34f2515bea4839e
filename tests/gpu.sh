#!/bin/bash
# Tests and timings of the CUDA backend on a real GPU: tests/gpu.sh [FOLDER for the results, default $OUT or build/gpu]
# Needs nvcc, gcc, cuBLAS and a GPU; no other library (runners/device, runners/forward and what a mapper is on a GPU are built, shapes and a small cmocka stand beside this script).
# On a Hopper GPU everything is built twice: with attention by wgmma, and without it (-portable): both are tested against the CPU, the rates of both are printed.
# Attention by cuDNN is tested and timed beside ours where its library is. Ends within 8 minutes. Prints each test and a table of every figure beside its floor; the same goes to FOLDER/gpu.txt. Without a GPU it builds and says so.
set -u -o pipefail
cd "$(dirname "$0")/.."
out=${1:-${OUT:-build/gpu}} build=build/gpu jobs=$(nproc)
mkdir -p "$out" "$build"
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) || { echo "skipped: no nvcc here"; exit 77; }
home=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
arch=${CUDA_ARCH:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .)}
arch=${arch:-90}
[ "$arch" = 90 ] && arch=90a
wgmma_built=; [ "$arch" = 90a ] && wgmma_built=yes

start=$SECONDS
limit() { # SECONDS: as many, or what is left until the whole must end
	local left=$((470 - (SECONDS - start)))
	[ "$left" -gt 1 ] || left=1
	echo $(($1 < left ? $1 : left))
}

build() {
	local c cu objects= wgmma= portable= kinds=
	[ "$arch" = 90a ] && wgmma=-DKVB_SM90A
	local flags="-std=c11 -D_GNU_SOURCE -pthread -fno-math-errno -ffp-contract=off -O2 -g -Wno-missing-field-initializers -I. -Itests/gpu -isystem $home/include"
	{
		for cu in runners/device/cuda/*.cu; do
			[ "$cu" = runners/device/cuda/attend_wgmma.cu ] || objects+=" $build/$(basename "$cu").o"
			echo "$build/$(basename "$cu").o: $cu"
			echo "	$nvcc -std=c++17 -O3 -lineinfo $wgmma -I. -gencode arch=compute_$arch,code=sm_$arch -c \$< -o \$@"
		done
		portable=$build/attend_portable.o
		echo "$portable: runners/device/cuda/attend_wgmma.cu"
		echo "	$nvcc -std=c++17 -O3 -I. -gencode arch=compute_$arch,code=sm_$arch -c \$< -o \$@"
		# attention by cuDNN is built in where its header is, as in cuda.mk
		local without='dnn_absent'; [ -e "$home/include/cudnn_graph.h" ] || without='dnn\.c|dnn_graph|dnn_load'
		for c in harness/base/base.c $(ls runners/device/*.c | grep -v cuda_absent) $(ls runners/device/cuda/*.c | grep -Ev "$without") runners/device/cpu/*.c; do
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
		blocks=$(ls runners/device/cpu/blocks/*.c | grep -v linear_)
		isa avx512bf16 "$avx512 -mavx512bf16 -mavx512vbmi" $blocks runners/device/cpu/blocks/linear_dot.c
		isa amx "$avx512 -mavx512bf16 -mavx512vbmi -mamx-tile -mamx-bf16" $blocks runners/device/cpu/blocks/linear_amx.c
		libs="-L$home/lib64 -lcudart_static -lstdc++ -lpthread -ldl -lrt -lm"
		program() { # NAME, the object that holds kernel_attend_wgmma, sources
			local name=$1 kernel=$2; shift 2
			kinds+=" $build/$name"
			echo "$build/$name: $* $kernel $objects"
			echo "	gcc $flags -o \$@ \$^ $libs"
		}
		bench="tests/gpu/bench.c tests/gpu/shapes.c runners/model/rope.c runners/proxykv/mapping.c $(echo runners/mapper/{program,layout,positions}.c) $(ls runners/forward/*.c | tr '\n' ' ')"
		program test_backend_ops "$build/attend_wgmma.cu.o" tests/cudaemu/test_backend_ops.c
		program test_backend_attention "$build/attend_wgmma.cu.o" tests/cudaemu/test_backend_attention.c
		program test_backend_cudnn "$build/attend_wgmma.cu.o" tests/cudaemu/test_backend_cudnn.c
		program bench "$build/attend_wgmma.cu.o" $bench
		if [ -n "$wgmma" ]; then
			program test_backend_attention-portable "$portable" tests/cudaemu/test_backend_attention.c
			program bench-portable "$portable" $bench
		fi
		echo "all: $kinds"
	} > "$build/gpu.mk"
	timeout "$(limit 470)" make -s -j"$jobs" -f "$build/gpu.mk" all > "$build/build.log" 2>&1
}

{
	build || { tail -20 "$build/build.log"; echo "the build failed"; exit 1; }
	echo "# built for sm_$arch in $((SECONDS - start)) s"
	export LD_LIBRARY_PATH="$home/lib64:${LD_LIBRARY_PATH:-}"
	if ! ls /dev/nvidia[0-9]* >/dev/null 2>&1 && ! nvidia-smi -L >/dev/null 2>&1; then echo "skipped: no GPU here (built, not run)"; exit 77; fi
	failed=0
	for t in test_backend_ops test_backend_attention test_backend_cudnn ${wgmma_built:+test_backend_attention-portable}; do
		timeout "$(limit 100)" "$build/$t" > "$build/$t.log" 2>&1 || { failed=1; echo "not ok - $t"; }
		cat "$build/$t.log"
	done
	if [ -n "$wgmma_built" ] && ! grep -q 'attention by sm_90a' "$build/test_backend_attention.log"; then failed=1; echo "not ok - wgmma was not chosen"; fi
	if [ -n "$wgmma_built" ]; then
		for b in bench bench-portable; do timeout "$(limit 45)" "$build/$b" --rates || failed=1; done
	fi
	timeout "$(limit 470)" "$build/bench" || failed=1
	echo "# $((SECONDS - start)) s in all"
	exit $failed
} 2>&1 | tee "$out/gpu.txt"
