/* dnn_graph.c: attention as a graph of cuDNN's backend API, and the plan that runs it.
 *
 *     S = Q K^T                 matmul; H query heads by their KV heads (repeat layout), K as a transposed view
 *     S = scale S               the scale is a value of the host
 *     S[i,j] unseen             unless i + keys - rows >= j: row and column numbers; keys and rows are values of the host
 *     m = max_j, p = exp(S - m), z = sum_j p, lse = m + log z
 *     out = (p / z) V           p / z in bf16, everything else between in fp32
 *
 * This is the form whose parts cuDNN's fused engines recognise; it is put together as NVIDIA's cudnn-frontend does before 9.21.
 * Nothing but Q, K, V, out and lse lies in memory. Dimensions and strides are exact: with dynamic shapes a kernel is compiled
 * once for a number of heads (about a second) and a plan for another length takes milliseconds. Rounding lengths up would have
 * saved the rest, but then V behind the last key is multiplied by zero, and may be NaN.
 *
 * Checked against the real library (9.19, H200, A100, L40S, B200, tests/cudaemu/test_cudnn.sh) as far as this goes without a GPU:
 * it accepts the graph for every head size and length here and compiles kernels for it. Only hardware can tell that their results
 * are right, that lse is written with its stride, and times. */
#include "runners/device/cuda/dnn.h"

#include <math.h>
#include <stdio.h>

int dnn_error(const struct cudnn *f, cudnnStatus_t status, const char *what, char err[ERR_LEN])
{
	char says[200] = "";
	f->last_error(says, sizeof says);
	return err_set(err, "cuDNN: %s: %s%s%s", what, f->error_string(status), *says ? ": " : "", says);
}

/* ---- descriptors: the first failure is kept, and what comes after it does nothing ---- */

struct builder {
	const struct cudnn *f;
	struct dnn_plan *p; /* owns every descriptor made */
	cudnnBackendDescriptor_t op[32];
	int n_ops;
	int64_t next_uid; /* of tensors that lie in no memory */
	bool failed;
	char *err;
};
typedef cudnnBackendDescriptor_t desc;

static bool done(struct builder *b, cudnnStatus_t status, const char *what)
{
	if (status == CUDNN_STATUS_SUCCESS)
		return true;
	if (!b->failed)
		dnn_error(b->f, status, what, b->err);
	b->failed = true;
	return false;
}

static desc make(struct builder *b, cudnnBackendDescriptorType_t type)
{
	desc d = NULL;
	if (!b->failed && b->p->n_own == DNN_OWN)
		b->failed = err_set(b->err, "cuDNN: more than %d descriptors for one plan", DNN_OWN);
	if (b->failed || !done(b, b->f->descriptor_new(type, &d), "cudnnBackendCreateDescriptor"))
		return NULL;
	return b->p->own[b->p->n_own++] = d;
}

static void set(struct builder *b, desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
	const void *values)
{
	char what[48];
	snprintf(what, sizeof what, "attribute %d", (int)name);
	if (!b->failed)
		done(b, b->f->set(d, name, type, n, values), what);
}
static void set_desc(struct builder *b, desc d, cudnnBackendAttributeName_t name, desc value)
{
	set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}
static void set_type(struct builder *b, desc d, cudnnBackendAttributeName_t name, cudnnDataType_t type)
{
	set(b, d, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

static desc finish(struct builder *b, desc d, const char *what)
{
	if (!b->failed)
		done(b, b->f->finalize(d), what);
	return d;
}

/* ---- tensors ---- */

enum place { MEMORY, VALUE, INSIDE };
struct layout {
	int64_t dim[4], stride[4]; /* 1, heads, rows, columns; elements */
};

static desc tensor(struct builder *b, cudnnDataType_t type, int64_t uid, struct layout l, enum place place)
{
	desc d = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	int64_t align = type == CUDNN_DATA_BFLOAT16 ? 16 : 4;
	bool yes = true;
	set_type(b, d, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
	set(b, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, l.dim);
	set(b, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, l.stride);
	set(b, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
	set(b, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
	if (place != MEMORY)
		set(b, d, place == VALUE ? CUDNN_ATTR_TENSOR_IS_BY_VALUE : CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
			&yes);
	return finish(b, d, "tensor");
}

static desc value(struct builder *b, cudnnDataType_t type, int64_t uid)
{
	return tensor(b, type, uid, (struct layout){{1, 1, 1, 1}, {1, 1, 1, 1}}, VALUE);
}

/* [heads][rows][cols], in no memory. */
static desc inside(struct builder *b, cudnnDataType_t type, int64_t cols)
{
	const struct dnn_shape *s = &b->p->shape;
	struct layout l = {{1, s->heads, s->rows, cols}, {s->heads * s->rows * cols, s->rows * cols, cols, 1}};
	return tensor(b, type, b->next_uid++, l, INSIDE);
}

/* ---- operations ---- */

static void add_operation(struct builder *b, desc op, const char *what)
{
	b->op[b->n_ops++] = finish(b, op, what);
}

/* y = mode(x, second, third); second, third NULL = none. */
static desc pointwise(struct builder *b, cudnnPointwiseMode_t mode, cudnnDataType_t math, desc x, desc second, desc third, desc y)
{
	desc how = make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
	set(b, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	set_type(b, how, CUDNN_ATTR_POINTWISE_MATH_PREC, math);
	finish(b, how, "pointwise");
	desc op = make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
	set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
	set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
	if (second)
		set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, second);
	if (third)
		set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, third);
	set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
	add_operation(b, op, "pointwise operation");
	return y;
}

/* Numbers of the rows (axis 2) or columns (3) of `like`. */
static desc numbers(struct builder *b, desc like, int64_t axis)
{
	cudnnPointwiseMode_t mode = CUDNN_POINTWISE_GEN_INDEX;
	desc how = make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), y = inside(b, CUDNN_DATA_INT32, b->p->shape.keys);
	set(b, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	set_type(b, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
	set(b, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
	finish(b, how, "numbers");
	desc op = make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
	set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
	set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, like);
	set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
	add_operation(b, op, "numbers operation");
	return y;
}

/* Of each row of x. */
static desc reduced(struct builder *b, cudnnReduceTensorOp_t by, desc x)
{
	desc how = make(b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), y = inside(b, CUDNN_DATA_FLOAT, 1);
	set(b, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &by);
	set_type(b, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
	finish(b, how, "reduction");
	desc op = make(b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
	set_desc(b, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
	set_desc(b, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
	set_desc(b, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
	add_operation(b, op, "reduction operation");
	return y;
}

static desc product(struct builder *b, desc x, desc y, desc xy)
{
	desc how = make(b, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
	set_type(b, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
	finish(b, how, "matmul");
	desc op = make(b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
	set_desc(b, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
	set_desc(b, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, x);
	set_desc(b, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, y);
	set_desc(b, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, xy);
	add_operation(b, op, "matmul operation");
	return xy;
}

/* ---- the graph ---- */

/* Where each query's row sees the column: x, elsewhere DNN_UNSEEN. */
static desc masked(struct builder *b, desc x)
{
	int64_t cols = b->p->shape.keys;
	desc rows = value(b, CUDNN_DATA_INT32, DNN_ROWS), keys = value(b, CUDNN_DATA_INT32, DNN_KEYS),
	     unseen = value(b, CUDNN_DATA_FLOAT, DNN_UNSEEN);
	desc row = numbers(b, x, 2), col = numbers(b, x, 3);
	row = pointwise(b, CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, row, keys, NULL, inside(b, CUDNN_DATA_INT32, cols));
	row = pointwise(b, CUDNN_POINTWISE_SUB, CUDNN_DATA_INT32, row, rows, NULL, inside(b, CUDNN_DATA_INT32, cols));
	desc seen = pointwise(b, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, row, col, NULL, inside(b, CUDNN_DATA_BOOLEAN, cols));
	return pointwise(b, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, x, unseen, seen, inside(b, CUDNN_DATA_FLOAT, cols));
}

/* Rows of probabilities in bf16; lse NULL = not wanted. */
static desc probabilities(struct builder *b, desc x, desc lse)
{
	int64_t cols = b->p->shape.keys;
	desc most = reduced(b, CUDNN_REDUCE_TENSOR_MAX, x);
	desc below = pointwise(b, CUDNN_POINTWISE_SUB, CUDNN_DATA_FLOAT, x, most, NULL, inside(b, CUDNN_DATA_FLOAT, cols));
	desc e = pointwise(b, CUDNN_POINTWISE_EXP, CUDNN_DATA_FLOAT, below, NULL, NULL, inside(b, CUDNN_DATA_FLOAT, cols));
	desc sum = reduced(b, CUDNN_REDUCE_TENSOR_ADD, e);
	if (lse) {
		desc log_sum =
			pointwise(b, CUDNN_POINTWISE_LOG, CUDNN_DATA_FLOAT, sum, NULL, NULL, inside(b, CUDNN_DATA_FLOAT, 1));
		pointwise(b, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, most, log_sum, NULL, lse);
	}
	return pointwise(b, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, e, sum, NULL, inside(b, CUDNN_DATA_BFLOAT16, cols));
}

static desc graph(struct builder *b)
{
	const struct dnn_shape *s = &b->p->shape;
	int64_t head = s->head_rows * s->d;
	bool yes = true;
	desc q = tensor(b, CUDNN_DATA_BFLOAT16, DNN_Q,
		(struct layout){{1, s->heads, s->rows, s->d}, {s->heads * s->rows * s->q_ld, s->rows * s->q_ld, s->q_ld, 1}},
		MEMORY);
	desc k = tensor(b, CUDNN_DATA_BFLOAT16, DNN_K,
		(struct layout){{1, s->kv_heads, s->d, s->keys}, {s->kv_heads * head, head, 1, s->d}}, MEMORY);
	desc v = tensor(b, CUDNN_DATA_BFLOAT16, DNN_V,
		(struct layout){{1, s->kv_heads, s->keys, s->d}, {s->kv_heads * head, head, s->d, 1}}, MEMORY);
	desc out = tensor(b, CUDNN_DATA_BFLOAT16, DNN_OUT,
		(struct layout){{1, s->heads, s->rows, s->d}, {s->rows * s->out_ld, s->d, s->out_ld, 1}}, MEMORY);
	desc lse = s->lse_ld ? tensor(b, CUDNN_DATA_FLOAT, DNN_LSE,
				       (struct layout){{1, s->heads, s->rows, 1}, {s->rows * s->lse_ld, 1, s->lse_ld, 1}}, MEMORY)
			     : NULL;
	desc x = product(b, q, k, inside(b, CUDNN_DATA_FLOAT, s->keys));
	x = pointwise(b, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, x, value(b, CUDNN_DATA_FLOAT, DNN_SCALE), NULL,
		inside(b, CUDNN_DATA_FLOAT, s->keys));
	product(b, probabilities(b, masked(b, x), lse), v, out);
	desc g = make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
	set(b, g, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, b->n_ops, b->op);
	set(b, g, CUDNN_ATTR_OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED, CUDNN_TYPE_BOOLEAN, 1, &yes);
	return finish(b, g, "graph of attention");
}

/* ---- the plan ---- */

/* Whether an engine does what is promised here: the same bits every time, fp32 sums of what it was given, little workspace. */
static bool engine_suits(struct builder *b, desc config)
{
	cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
	int64_t n = 0, notes = 0, bytes = 0;
	desc engine = make(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	if (b->failed ||
		!done(b, b->f->get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine),
			"engine") ||
		!done(b,
			b->f->get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
				CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &notes, note),
			"engine's notes") ||
		!done(b, b->f->get(config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes),
			"engine's workspace"))
		return false;
	for (int64_t i = 0; i < notes; i++)
		if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC || note[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
			note[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
			return false;
	return bytes <= DNN_BYTES;
}

/* The plan of one engine; false = it does not take the graph after all (err says why): the next may. */
static bool plan_of(struct builder *b, desc config, desc device, desc kernels)
{
	int64_t n = 0;
	desc plan = make(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	set_desc(b, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
	set_desc(b, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
	set_desc(b, plan, CUDNN_ATTR_EXECUTION_PLAN_KERNEL_CACHE, kernels);
	if (b->failed)
		return false;
	cudnnStatus_t status = b->f->finalize(plan);
	if (status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000) {
		dnn_error(b->f, status, "plan for attention", b->err);
		return false;
	}
	if (!done(b, status, "plan for attention"))
		return false;
	b->p->plan = plan;
	return done(b, b->f->get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &b->p->workspace),
		"workspace");
}

/* The first engine that suits, best guess first. */
static bool choose_plan(struct builder *b, desc g, cudnnBackendHeurMode_t mode, desc device, desc kernels)
{
	enum { CONFIGS = 8 };
	desc config[CONFIGS], guess = make(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	int64_t n = 0;
	set_desc(b, guess, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g);
	set(b, guess, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	set_desc(b, guess, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
	finish(b, guess, "choice of engines");
	for (int i = 0; i < CONFIGS; i++)
		config[i] = make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	if (b->failed ||
		!done(b, b->f->get(guess, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS, &n, config),
			"engines"))
		return false;
	for (int64_t i = 0; i < n && i < CONFIGS && !b->failed; i++)
		if (engine_suits(b, config[i]) && plan_of(b, config[i], device, kernels))
			return true;
	return false;
}

static void kernels_make(struct builder *b, desc g, desc *kernels)
{
	if (*kernels || b->failed ||
		!done(b, b->f->descriptor_new(CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR, kernels), "cudnnBackendCreateDescriptor"))
		return;
	set_desc(b, *kernels, CUDNN_ATTR_KERNEL_CACHE_OPERATION_GRAPH, g);
	finish(b, *kernels, "kernel cache");
	if (b->failed) {
		b->f->descriptor_free(*kernels);
		*kernels = NULL;
	}
}

int dnn_plan_make(struct dnn_plan *p, const struct cudnn *f, cudnnBackendDescriptor_t device, cudnnBackendDescriptor_t *kernels,
	char err[ERR_LEN])
{
	struct builder b = {.f = f, .p = p, .next_uid = DNN_INSIDE, .err = err};
	const struct dnn_shape *s = &p->shape;
	err_set(err,
		"cuDNN has no engine for attention of %lld heads (%lld KV heads) of %lld channels, %lld queries, %lld keys, that "
		"gives the same bits every time",
		(long long)s->heads, (long long)s->kv_heads, (long long)s->d, (long long)s->rows, (long long)s->keys);
	desc g = graph(&b);
	kernels_make(&b, g, kernels);
	if (!b.failed &&
		(choose_plan(&b, g, CUDNN_HEUR_MODE_A, device, *kernels) ||
			choose_plan(&b, g, CUDNN_HEUR_MODE_FALLBACK, device, *kernels)) &&
		!b.failed)
		return 0;
	dnn_plan_free(p, f);
	return -1;
}

void dnn_plan_free(struct dnn_plan *p, const struct cudnn *f)
{
	while (p->n_own)
		f->descriptor_free(p->own[--p->n_own]);
	p->plan = NULL;
}
