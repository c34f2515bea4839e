// cudnn_graph.cpp: what a graph of cuDNN's operations means: the checks that an engine for fused attention makes, and the
// operations one after the other on the CPU. Sums run over k in ascending order in fp32.
#include <math.h>
#include <string.h>

#include "dnn.h"

namespace cuemu
{
size_t dnn_bytes(cudnnDataType_t t)
{
	return t == CUDNN_DATA_BFLOAT16 ? 2 : t == CUDNN_DATA_BOOLEAN ? 1 : 4;
}
size_t DnnTensor::extent() const
{
	int64_t last = 0;
	for (int i = 0; i < 4; i++)
		last += (dim[i] - 1) * stride[i];
	return (size_t)(last + 1) * dnn_bytes(type);
}

// ---- checks ----

static bool in_memory(const DnnTensor &t)
{
	return !t.is_virtual && !t.by_value;
}
static bool is_number(cudnnDataType_t t)
{
	return t == CUDNN_DATA_FLOAT || t == CUDNN_DATA_BFLOAT16;
}
// Types that operation o may have.
static bool types_fit(const DnnGraph &g, const DnnOp &o)
{
	auto in = [&](size_t i) { return g.tensor[o.in[i]].type; };
	cudnnDataType_t out = g.tensor[o.out].type;
	if (o.kind == DnnOp::product)
		return in(0) == CUDNN_DATA_BFLOAT16 && in(1) == CUDNN_DATA_BFLOAT16 && is_number(out) &&
		       o.math == CUDNN_DATA_FLOAT;
	if (o.kind == DnnOp::reduction)
		return in(0) == CUDNN_DATA_FLOAT && out == CUDNN_DATA_FLOAT && o.math == CUDNN_DATA_FLOAT;
	switch (o.mode) {
	case CUDNN_POINTWISE_GEN_INDEX:
		return out == CUDNN_DATA_INT32 && (o.axis == 2 || o.axis == 3);
	case CUDNN_POINTWISE_CMP_GE:
		return in(0) == in(1) && out == CUDNN_DATA_BOOLEAN && o.math == CUDNN_DATA_BOOLEAN;
	case CUDNN_POINTWISE_BINARY_SELECT:
		return in(0) == CUDNN_DATA_FLOAT && in(1) == CUDNN_DATA_FLOAT && in(2) == CUDNN_DATA_BOOLEAN &&
		       out == CUDNN_DATA_FLOAT;
	}
	if (in(0) == CUDNN_DATA_INT32)
		return in(1) == CUDNN_DATA_INT32 && out == CUDNN_DATA_INT32 && o.math == CUDNN_DATA_INT32;
	return in(0) == CUDNN_DATA_FLOAT && in(o.in.size() - 1) == CUDNN_DATA_FLOAT && is_number(out) &&
	       o.math == CUDNN_DATA_FLOAT;
}
static bool shapes_fit(const DnnGraph &g, const DnnOp &o)
{
	const DnnTensor &y = g.tensor[o.out], &a = g.tensor[o.in[0]];
	if (o.kind == DnnOp::product) {
		const DnnTensor &b = g.tensor[o.in[1]];
		return a.dim[3] == b.dim[2] && a.dim[2] == y.dim[2] && b.dim[3] == y.dim[3] && a.dim[1] == y.dim[1] &&
		       y.dim[1] % b.dim[1] == 0;
	}
	if (o.kind == DnnOp::reduction)
		return a.dim[1] == y.dim[1] && a.dim[2] == y.dim[2] && y.dim[3] == 1;
	for (size_t i : o.in)
		for (int d = 0; d < 4; d++)
			if (g.tensor[i].dim[d] != 1 && g.tensor[i].dim[d] != y.dim[d])
				return false;
	return true;
}
// Rows of Q, V, out: d channels side by side; of K: its transposed view. No element lies in two rows.
static bool layout_fits(const DnnTensor &t, int row, int channel)
{
	return t.dim[0] == 1 && t.stride[channel] == 1 && t.stride[row] >= t.dim[channel] && t.stride[row] % 8 == 0 &&
	       t.stride[1] % 8 == 0 && t.dim[channel] % 8 == 0 && t.dim[channel] <= 128 &&
	       (t.dim[1] == 1 || t.stride[1] >= t.dim[row] * t.stride[row] || t.stride[row] >= t.dim[1] * t.stride[1]) &&
	       t.align % 16 == 0;
}
static std::string operands_refusal(const DnnGraph &g)
{
	const DnnOp &first = g.op.front(), &last = g.op.back();
	const DnnTensor &q = g.tensor[first.in[0]], &k = g.tensor[first.in[1]], &v = g.tensor[last.in[1]],
			&out = g.tensor[last.out];
	if (!in_memory(q) || !in_memory(k) || !in_memory(v) || !in_memory(out) || !g.tensor[first.out].is_virtual ||
		!g.tensor[last.in[0]].is_virtual)
		return "Q, K, V and the result lie in memory, scores and probabilities do not";
	if (!layout_fits(q, 2, 3) || !layout_fits(k, 3, 2) || !layout_fits(v, 2, 3) || !layout_fits(out, 2, 3) ||
		out.type != CUDNN_DATA_BFLOAT16)
		return "layout of Q, K, V or the result";
	if (k.dim[1] != v.dim[1] || k.dim[3] != v.dim[2] || q.dim[3] != v.dim[3] || q.dim[2] > k.dim[3])
		return "Q, K and V do not belong together";
	return "";
}
std::string dnn_refusal(const DnnGraph &g)
{
	std::set<size_t> written;
	int products = 0;
	for (const DnnOp &o : g.op) {
		products += o.kind == DnnOp::product;
		if (!types_fit(g, o) || !shapes_fit(g, o))
			return "types or shapes of an operation (kind " + std::to_string(o.kind) + ", mode " +
			       std::to_string(o.mode) + ")";
		for (size_t i : o.in)
			if (g.tensor[i].is_virtual && !written.count(i))
				return "an operation reads what nothing has written";
		if (g.tensor[o.out].by_value || !written.insert(o.out).second)
			return "a tensor is written twice, or is a value";
	}
	if (products != 2 || g.op.front().kind != DnnOp::product || g.op.back().kind != DnnOp::product)
		return "not two products with a softmax between them";
	return operands_refusal(g);
}

// ---- running ----

static float from_bf16(uint16_t b)
{
	uint32_t u = (uint32_t)b << 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}
static uint16_t to_bf16(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	return (u & 0x7fffffffu) > 0x7f800000u ? 0x7fff : (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
// One head of a tensor.
struct Slice {
	int64_t rows = 0, cols = 0;
	std::vector<float> x;
	float at(int64_t r, int64_t c) const // broadcast
	{
		return x[(size_t)((rows == 1 ? 0 : r) * cols + (cols == 1 ? 0 : c))];
	}
};
static int64_t offset(const DnnTensor &t, int64_t h, int64_t r, int64_t c)
{
	return h * t.stride[1] + r * t.stride[2] + c * t.stride[3];
}
// The shim is not instrumented: says what is read or written, in runs of elements that lie side by side.
static void tell_tsan(const DnnTensor &t, const char *p, int64_t h, bool write)
{
#ifdef CUEMU_TSAN
	int run = t.stride[2] == 1 ? 2 : 3, step = 5 - run;
	int64_t whole = t.stride[run] == 1 ? t.dim[run] : 1;
	for (int64_t i = 0; i < t.dim[step]; i++)
		for (int64_t j = 0; j < t.dim[run]; j += whole) {
			char *from = (char *)p +
				     (h * t.stride[1] + i * t.stride[step] + j * t.stride[run]) * (int64_t)dnn_bytes(t.type);
			(write ? __tsan_write_range : __tsan_read_range)(from, (size_t)whole * dnn_bytes(t.type));
		}
#else
	(void)t, (void)p, (void)h, (void)write;
#endif
}
static Slice load(const DnnTensor &t, const char *p, int64_t h)
{
	Slice s{t.dim[2], t.dim[3], std::vector<float>((size_t)(t.dim[2] * t.dim[3]))};
	tell_tsan(t, p, h, false);
	for (int64_t r = 0; r < s.rows; r++)
		for (int64_t c = 0; c < s.cols; c++) {
			int64_t at = offset(t, h, r, c);
			s.x[(size_t)(r * s.cols + c)] = t.type == CUDNN_DATA_BFLOAT16 ? from_bf16(((const uint16_t *)p)[at])
							: t.type == CUDNN_DATA_INT32  ? (float)((const int32_t *)p)[at]
										      : ((const float *)p)[at];
		}
	return s;
}
static void store(const DnnTensor &t, char *p, int64_t h, const Slice &s)
{
	tell_tsan(t, p, h, true);
	for (int64_t r = 0; r < s.rows; r++)
		for (int64_t c = 0; c < s.cols; c++) {
			float v = s.x[(size_t)(r * s.cols + c)];
			if (t.type == CUDNN_DATA_BFLOAT16)
				((uint16_t *)p)[offset(t, h, r, c)] = to_bf16(v);
			else
				((float *)p)[offset(t, h, r, c)] = v;
		}
}
static Slice multiply(const Slice &a, const Slice &b)
{
	Slice y{a.rows, b.cols, std::vector<float>((size_t)(a.rows * b.cols))};
	for (int64_t i = 0; i < a.rows; i++)
		for (int64_t k = 0; k < a.cols; k++) {
			float f = a.x[(size_t)(i * a.cols + k)], *to = &y.x[(size_t)(i * b.cols)];
			const float *row = &b.x[(size_t)(k * b.cols)];
			for (int64_t j = 0; j < b.cols; j++)
				to[j] += f * row[j];
		}
	return y;
}
static Slice reduce(const Slice &a, bool largest)
{
	Slice y{a.rows, 1, std::vector<float>((size_t)a.rows)};
	for (int64_t i = 0; i < a.rows; i++) {
		float v = largest ? -INFINITY : 0;
		for (int64_t j = 0; j < a.cols; j++) {
			float x = a.x[(size_t)(i * a.cols + j)];
			v = !largest ? v + x : x > v || isnan(x) ? x : v; // NaN stays
		}
		y.x[(size_t)i] = v;
	}
	return y;
}
static float apply(const DnnOp &o, const std::vector<const Slice *> &in, int64_t r, int64_t c)
{
	float x = o.mode == CUDNN_POINTWISE_GEN_INDEX ? 0 : in[0]->at(r, c), b = in.size() > 1 ? in[1]->at(r, c) : 0;
	switch (o.mode) {
	case CUDNN_POINTWISE_ADD:
		return x + b;
	case CUDNN_POINTWISE_SUB:
		return x - b;
	case CUDNN_POINTWISE_MUL:
		return x * b;
	case CUDNN_POINTWISE_DIV:
		return x / b;
	case CUDNN_POINTWISE_EXP:
		return expf(x);
	case CUDNN_POINTWISE_LOG:
		return logf(x);
	case CUDNN_POINTWISE_CMP_GE:
		return x >= b;
	case CUDNN_POINTWISE_BINARY_SELECT:
		return in[2]->at(r, c) != 0 ? x : b;
	}
	return (float)(o.axis == 2 ? r : c);
}
static Slice pointwise(const DnnOp &o, const std::vector<const Slice *> &in, const DnnTensor &t)
{
	Slice y{t.dim[2], t.dim[3], std::vector<float>((size_t)(t.dim[2] * t.dim[3]))};
	for (int64_t r = 0; r < y.rows; r++)
		for (int64_t c = 0; c < y.cols; c++)
			y.x[(size_t)(r * y.cols + c)] = apply(o, in, r, c);
	return y;
}
static void run_head(const DnnGraph &g, const std::vector<char *> &at, int64_t h, int64_t heads)
{
	std::vector<Slice> slice(g.tensor.size());
	for (const DnnOp &o : g.op) {
		std::vector<const Slice *> in;
		for (size_t i : o.in) {
			const DnnTensor &t = g.tensor[i];
			if (!t.is_virtual && slice[i].x.empty())
				slice[i] = load(t, at[i], h / (heads / t.dim[1])); // repeat layout
			in.push_back(&slice[i]);
		}
		const DnnTensor &t = g.tensor[o.out];
		Slice y = o.kind == DnnOp::product     ? multiply(*in[0], *in[1])
			  : o.kind == DnnOp::reduction ? reduce(*in[0], o.mode == CUDNN_REDUCE_TENSOR_MAX)
						       : pointwise(o, in, t);
		if (t.type == CUDNN_DATA_BFLOAT16)
			for (float &v : y.x)
				v = from_bf16(to_bf16(v));
		if (!t.is_virtual)
			store(t, at[o.out], h, y);
		slice[o.out] = std::move(y);
	}
}
void dnn_run(const DnnGraph &g, const std::vector<char *> &at)
{
	int64_t heads = g.tensor[g.op.back().out].dim[1];
	for (int64_t h = 0; h < heads; h++)
		run_head(g, at, h, heads);
}
} // namespace cuemu
