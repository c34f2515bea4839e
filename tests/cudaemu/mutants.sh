#!/bin/bash
# mutants.sh [fixed]: takes one barrier, atomic or wait at a time out of the CUDA backend's sources and runs the matching test of the backend in the TSan
# build; what that does not notice runs plain under other orders and seeds. A mutant is caught when a run fails: by a race, by values, or by a report.
# Without argument: every site, as a table (Markdown) on stdout; status 1 if a real fault was not caught. Names of files ("offload.c"): their sites alone.
# fixed: five chosen ones, as `ok - ` lines.
# Called by `make mutants` and `make test`, which hand over compilers, flags and objects in the environment.
set -uo pipefail
cd "$(dirname "$0")/../.."
: "${KVB_EMU:?run it through make mutants}"
work=$KVB_EMU/mutants
mkdir -p "$work"
sites='cudaDeviceSynchronize|bar_sync|bar_arrive|mbar_init|mbar_arrive|mbar_arrive_expect|mbar_wait|map_acquire|__syncthreads|__syncwarp|__threadfence|copies_wait|atomic[A-Z][A-Za-z]*|cudaStreamWaitEvent|cudaEventSynchronize|cudaStreamSynchronize|cuda_queue_sync|queue_event_wait'

# Sites that one cannot miss: FILE, a piece of the line, why.
harmless() {
	while IFS=$'\t' read -r file piece why; do
		[ "$1" = "$file" ] && [[ $2 == *"$piece"* ]] && { echo "$why"; return; }
	done < <(grep -v '^#' tests/cudaemu/mutants.harmless)
}
tests_for() { # FILE -> program, pattern of its tests; a line each
	case $(basename "$1") in
	attend_few.cu) echo test_backend_attention 'test_batches' ;;
	attend_wgmma.cu) printf '%s\n' 'test_backend_tma *' 'test_backend_attention test_batches' ;;
	topk.cu) echo test_backend_ops 'test_selection' ;;
	dnn*.c) echo test_backend_cudnn_use 'test_many_shapes_queued' ;;
	attend*.cu | attention.c) echo test_backend_attention 'test_attention' ;;
	reduce*.cu) echo test_backend_attention 'test_key_sets' ;;
	offload.c) echo test_backend_offload '*' ;;
	device.c) printf '%s\n' 'test_backend_arena *' 'test_backend_offload test_*fre*' 'test_backend_errors test_sticky' 'test_backend_errors test_selection*' ;;
	timing.c | forward.c) echo test_backend_runner 'test_timing' ;;
	proxy.c) echo test_backend_runner 'test_*op*' ;; # topologies, stopped
	norm.cu | rope.cu) echo test_backend_ops 'test_norms_and_rope' ;;
	argmax.cu) echo test_backend_ops 'test_argmax' ;;
	moments.cu) echo test_backend_ops 'test_moments' ;;
	utilities.cu) echo test_backend_ops 'test_utilities' ;;
	steps.cu) echo test_backend_ops 'test_steps' ;;
	queue.c) echo test_backend_ops 'test_queues*' ;;
	*) echo test_backend_ops '*' ;;
	esac
}
build() { # VARIANT (tsan or plain), SOURCE, mutated copy, PROGRAM -> $work/VARIANT
	local dir=$KVB_EMU extra= out=$work/$1
	[ "$1" = tsan ] && dir=$KVB_EMU/tsan extra=-fsanitize=thread
	case $2 in
	*.cu) $EMU_CXX $EMU_CXXFLAGS $extra -MF /dev/null -x c++ -include cuda_runtime.h -include tests/cudaemu/mutants.h -c "$3" -o "$out.o" ;;
	*) $EMU_CC $EMU_CFLAGS $extra -Wno-error -MF /dev/null -include tests/cudaemu/mutants.h -c "$3" -o "$out.o" ;;
	esac && $EMU_CXX $extra -o "$out" "$dir/tests/cudaemu/$4.c.o" "$dir/tests/cudaemu/filter.c.o" "$out.o" -Wl,-u,backend_cuda "$dir/libkvbcuda.a" \
		$EMU_OBJECTS -Wl,--start-group $EMU_ARCHIVES -Wl,--end-group "$dir/libkvbcuda.a" "$dir/libcudaemu.a" -lcmocka $EMU_LIBS
}
run() { # VARIANT, PATTERN; says how it failed, nothing if it passed. Out of time is no failure: the emulation itself reports who waits for ever, and a loaded machine is slow
	local log=$work/$1.log rc
	TSAN_OPTIONS='halt_on_error=1 exitcode=66 atexit_sleep_ms=0' KVB_SANITIZED=1 KVB_TEST=$2 timeout "${KVB_MUTANT_SECONDS:-240}" "$work/$1" >"$log" 2>&1; rc=$?
	[ $rc -eq 0 ] && return
	if [ $rc -eq 66 ]; then echo race; elif [ $rc -eq 124 ]; then echo "$1, $2: not done after ${KVB_MUTANT_SECONDS:-240} s (KVB_MUTANT_SECONDS)" >&2; elif grep -q '^cudaemu: ' "$log"; then echo report; else echo values; fi
}
capability_for() { # FILE: of the GPU that takes its kernels
	if [[ $1 == *attend_wgmma.cu ]]; then echo 90; else echo 80; fi
}
# FILES: whether every test that is to notice something is silent on the code as it is
all_silent() {
	local file program pattern how rc=0
	while read -r file; do while read -r program pattern; do echo "$(capability_for "$file") $program $pattern"; done < <(tests_for "$file"); done < <(printf '%s\n' "$@" | sort -u) | sort -u |
		{ while read -r CUEMU_CC program pattern; do
			export CUEMU_CC
			ln -sf "$(realpath "$KVB_EMU/tsan/$program")" "$work/tsan"
			how=$(run tsan "$pattern")
			[ -z "$how" ] || { echo "$program, $pattern: $how without any mutant" >&2; rc=1; }
		done; rm -f "$work/tsan"; return $rc; }
}
# SOURCE, mutated copy, PROGRAM, PATTERN of its tests: how it was caught, or nothing
try_program() {
	local how order
	build tsan "$1" "$2" "$3" >"$work/build.log" 2>&1 || { echo "$2 does not build" >&2; cat "$work/build.log" >&2; return; }
	how=$(run tsan "$4")
	if [ -z "$how" ]; then
		build plain "$1" "$2" "$3" >"$work/build.log" 2>&1
		for order in 'fwd 1' 'rev 2' 'random 3' 'random 4'; do
			how=$(CUEMU_ORDER=${order% *} CUEMU_SEED=${order#* } run plain "$4")
			[ -n "$how" ] && { how="$how ($order)"; break; }
		done
	fi
	echo "$how"
}
# FILE, LINE, NAME: how it was caught, or nothing
try() {
	local program pattern how= copy=$work/$(basename "$1")
	export CUEMU_CC; CUEMU_CC=$(capability_for "$1")
	sed "$2s/\\b$3\\b/no_$3/" "$1" >"$copy"
	cmp -s "$1" "$copy" && { echo "cannot change $1:$2" >&2; return; }
	while [ -z "$how" ] && read -r program pattern; do how=$(try_program "$1" "$copy" "$program" "$pattern"); done < <(tests_for "$1")
	echo "$how"
}
all_sites() { # [NAMES of files]: FILE LINE NAME of every one: in the backend, and where its callers wait for a queue or for the proxy's thread
	{ grep -nEo "\\b($sites)(<[0-9A-Z]+>)?\\(" runners/device/cuda/*.cu runners/device/cuda/*.c /dev/null
		grep -nEo '\b(queue_sync|queue_event_wait|pthread_join)\(' runners/forward/forward.c runners/proxykv/proxy.c runners/timing.c; } | sed -E 's/^([^:]*):([0-9]*):([A-Za-z_]*).*/\1 \2 \3/' |
		while read -r file line name; do
			[ $# -eq 0 ] || [[ " $* " == *" ${file##*/} "* ]] || continue
			sed -n "${line}p" "$file" | grep -qE '^(static )?(int|void) ' || echo "$file" "$line" "$name"
		done
}

if [ "${1:-}" = fixed ]; then
	while IFS='|' read -r file name piece; do
		line=$(grep -nF "$piece" "$file" | head -1 | cut -d: -f1)
		[ -n "$line" ] || { echo "not ok - mutant: $file has no line with '$piece'"; continue; }
		how=$(try "$file" "$line" "$name")
		if [ -n "$how" ]; then echo "ok - without $name in $file ($piece): $how"; else echo "not ok - without $name in $file ($piece): nothing noticed it"; fi
	done <<'FIXED'
runners/device/cuda/attend.cu|__syncthreads|nobody reads K any more
runners/device/cuda/attend_few.cu|copies_wait|copies_wait<1>
runners/device/cuda/reduce.cu|__syncthreads|nobody reads this stage any more
runners/device/cuda/norm.cu|__syncthreads|__syncthreads
runners/device/cuda/queue.c|cudaStreamWaitEvent|cudaStreamWaitEvent
FIXED
	exit
fi
all_silent $(all_sites "$@" | cut -d' ' -f1) || { echo 'a test that reports something anyway notices nothing' >&2; exit 1; }
echo '| site | taken out | caught by |'
echo '|---|---|---|'
missed=0
while read -r file line name; do
	text=$(sed -n "${line}p" "$file")
	why=$(harmless "$file" "$text")
	how=$(try "$file" "$line" "$name")
	if [ -z "$how" ] && [ -n "$why" ]; then how="not caught, rightly: $why"; elif [ -z "$how" ]; then how='**not caught**'; missed=$((missed + 1)); fi
	file=${file#runners/device/cuda/}
	echo "| ${file#runners/}:$line | \`$name\` | $how |"
done < <(all_sites "$@")
echo "$missed real faults not caught" >&2
[ $missed -eq 0 ]
