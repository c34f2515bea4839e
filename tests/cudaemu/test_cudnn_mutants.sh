#!/bin/bash
# One attribute of the graph of attention, or of its call, at a time is made wrong: the tests of attention by cuDNN must notice each. Called by `make test`, which hands
# over compilers, flags and objects in the environment.
cd "$(dirname "$0")/../.."
: "${KVB_EMU:?run it through make cudaemu}"
work=$KVB_EMU/cudnn-mutants
mkdir -p "$work"
try() { # NAME, FILE, sed expression
	local object=$work/mutant.o copy=$work/$(basename "$2") log=$work/log
	sed "$3" "$2" >"$copy"
	[ -n "$3" ] && cmp -s "$2" "$copy" && { echo "not ok - cuDNN's graph, $1: $2 has no such line"; return; }
	case $2 in
	*.cpp) $EMU_CXX $EMU_CXXFLAGS -I"$(dirname "$2")" -MF /dev/null -c "$copy" -o "$object" ;;
	*) $EMU_CC $EMU_CFLAGS -Wno-error -MF /dev/null -c "$copy" -o "$object" ;;
	esac >"$log" 2>&1 && $EMU_CXX -o "$work/test" "$KVB_EMU/tests/cudaemu/test_backend_cudnn.c.o" "$KVB_EMU/tests/cudaemu/filter.c.o" "$object" -Wl,-u,backend_cuda \
		"$KVB_EMU/libkvbcuda.a" $EMU_OBJECTS -Wl,--start-group $EMU_ARCHIVES -Wl,--end-group "$KVB_EMU/libkvbcuda.a" "$KVB_EMU/libcudaemu.a" -lcmocka $EMU_LIBS >>"$log" 2>&1 ||
		{ echo "not ok - cuDNN's graph, $1: does not build"; tail -5 "$log"; return; }
	KVB_SANITIZED=1 timeout 300 "$work/test" >"$log" 2>&1; rc=$?
	if [ -z "$3" ]; then
		if [ $rc -eq 0 ]; then echo "ok - cuDNN's graph, $1: right"; else echo "not ok - cuDNN's graph, $1 (status $rc)"; tail -5 "$log"; fi
	elif [ $rc -eq 0 ]; then echo "not ok - cuDNN's graph, $1: nothing noticed it"
	elif [ $rc -eq 124 ]; then echo "not ok - cuDNN's graph, $1: it hangs"
	else echo "ok - cuDNN's graph, $1: noticed"; fi
}
graph=runners/device/cuda/dnn_graph.c call=runners/device/cuda/dnn.c engine=tests/cudaemu/cudnn_graph.cpp
try 'as it is' $graph ''
try 'another scale' $call 's|1 / sqrtf((float)s->d)|1 / (float)s->d|'
try 'mask from the top left' $graph 's|row = pointwise(b, CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, row, keys, |row = pointwise(b, CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, row, rows, |'
try 'mask of one key less' $call 's|keys = (int32_t)s->keys;|keys = (int32_t)s->keys - 1;|'
try 'unseen keys count as 0' $call 's|unseen = -INFINITY|unseen = 0|'
try 'rows and columns changed over' $graph 's|row = numbers(b, x, 2), col = numbers(b, x, 3)|row = numbers(b, x, 3), col = numbers(b, x, 2)|'
try 'tile instead of repeat' $engine 's|h / (heads / t.dim\[1\])); // repeat layout|h % t.dim[1]);|'
try 'stride between KV heads' $graph 's|int64_t head = s->head_rows \* s->d;|int64_t head = s->keys * s->d;|'
try 'stride of queries' $call 's|s->tail_len + r + rows, d_pad,|s->tail_len + r + rows, d_pad + 8,|'
try 'stride of the result' $call 's|to.ld, lse ? lse->cols|d * heads + 8, lse ? lse->cols|'
try 'stride of lse' $graph 's|{s->rows \* s->lse_ld, 1, s->lse_ld, 1}|{s->rows * s->lse_ld, 1, s->heads, 1}|'
try 'lse without the maximum' $graph 's|pointwise(b, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, most, log_sum, NULL, lse)|pointwise(b, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, log_sum, log_sum, NULL, lse)|'
try 'probabilities in fp32' $graph 's|e, sum, NULL, inside(b, CUDNN_DATA_BFLOAT16, cols))|e, sum, NULL, inside(b, CUDNN_DATA_FLOAT, cols))|'
try 'V for K' $call 's|{packed, view_row(view, view->k,|{packed, view_row(view, view->v,|'
try 'an engine that changes its mind' $graph 's|note\[i\] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC|false|'
try 'no stream' $call 's|set_stream(n->handle, n->stream)|set_stream(n->handle, NULL)|'
try 'lots see the same keys' $call 's|s->tail_len + r + rows, d_pad|s->tail_len + rows, d_pad|'
try 'a cache of unequal heads' $call 's|if (first\[h\] - first\[h - 1\] != rows)|if (false)|'
