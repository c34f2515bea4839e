// cudnn.cpp: the part of cuDNN's graph API in include/cudnn_graph.h: descriptors with their attributes, checked strictly: which a
// descriptor may have, of which type and number, that those it refers to are final; engines, of which all but one are traps;
// plans, a cache of compiled kernels, execution on the handle's stream. What graphs mean is in cudnn_graph.cpp.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "control.h"
#include "dnn.h"

struct cudnnContext {
	int device;
	cudaStream_t stream;
	bool has_stream; // the default stream is never meant here
};

namespace cuemu
{
struct Descriptor;
typedef std::shared_ptr<Descriptor> Ref;
struct Attribute {
	std::vector<char> bytes; // not of descriptors
	std::vector<Ref> refs;
	int64_t n;
};
// Engines offered for a graph that can run, in this order: results that change from run to run, far too much workspace, kernels
// that do not compile, and one that works, which for a single query is found by the fallback mode alone.
enum Engine { CHANGING, GREEDY, BROKEN, WORKING };
struct Descriptor {
	cudnnBackendDescriptorType_t type;
	bool final = false;
	std::map<int, Attribute> attribute;
	DnnGraph graph;                                         // of a graph, and of what is made from it
	Engine engine = WORKING;                                // of an engine, a configuration, a plan
	std::set<std::string> compiled;                         // of a kernel cache
	std::shared_ptr<int> queued = std::make_shared<int>(0); // of a plan: calls that have not run yet
	bool has(int name) const
	{
		return attribute.count(name) > 0;
	}
	template <class T> T get(int name, size_t i = 0) const
	{
		T v;
		memcpy(&v, attribute.at(name).bytes.data() + i * sizeof v, sizeof v);
		return v;
	}
	const Ref &ref(int name) const
	{
		return attribute.at(name).refs[0];
	}
};
static std::map<void *, Ref> &descriptors()
{
	static auto *all = new std::map<void *, Ref>;
	return *all;
}
static std::string last_words;
static size_t version = 91900;

static cudnnStatus_t refuse(cudnnStatus_t s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static cudnnStatus_t refuse(cudnnStatus_t s, const char *format, ...)
{
	char text[256];
	va_list a;
	va_start(a, format);
	vsnprintf(text, sizeof text, format, a);
	va_end(a);
	last_words = text;
	say("cudnn: %s", text);
	return s;
}

// ---- which attributes a descriptor has ----

enum { NO_REF = -1, ANY_OPERATION = -2 };
struct Rule {
	int descriptor, name, type;
	int64_t n; // how many; 0 = any number
	bool required;
	int ref; // the type of the descriptor that it refers to
};
#define D(x) CUDNN_BACKEND_##x##_DESCRIPTOR
static const Rule rules[] = {
	{D(TENSOR), CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true, NO_REF},
	{D(TENSOR), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, true, NO_REF},
	{D(TENSOR), CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, true, NO_REF},
	{D(TENSOR), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, true, NO_REF},
	{D(TENSOR), CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, true, NO_REF},
	{D(TENSOR), CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, false, NO_REF},
	{D(TENSOR), CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, false, NO_REF},
	{D(POINTWISE), CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, true, NO_REF},
	{D(POINTWISE), CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, true, NO_REF},
	{D(POINTWISE), CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, false, NO_REF},
	{D(OPERATION_POINTWISE), CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true,
		D(POINTWISE)},
	{D(OPERATION_POINTWISE), CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true, D(TENSOR)},
	{D(OPERATION_POINTWISE), CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, false, D(TENSOR)},
	{D(OPERATION_POINTWISE), CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, false, D(TENSOR)},
	{D(OPERATION_POINTWISE), CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true, D(TENSOR)},
	{D(REDUCTION), CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, true, NO_REF},
	{D(REDUCTION), CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true, NO_REF},
	{D(OPERATION_REDUCTION), CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true, D(REDUCTION)},
	{D(OPERATION_REDUCTION), CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true, D(TENSOR)},
	{D(OPERATION_REDUCTION), CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true, D(TENSOR)},
	{D(MATMUL), CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true, NO_REF},
	{D(OPERATION_MATMUL), CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true, D(MATMUL)},
	{D(OPERATION_MATMUL), CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true, D(TENSOR)},
	{D(OPERATION_MATMUL), CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true, D(TENSOR)},
	{D(OPERATION_MATMUL), CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true, D(TENSOR)},
	{D(OPERATIONGRAPH), CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, true, ANY_OPERATION},
	{D(OPERATIONGRAPH), CUDNN_ATTR_OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED, CUDNN_TYPE_BOOLEAN, 1, false, NO_REF},
	{D(KERNEL_CACHE), CUDNN_ATTR_KERNEL_CACHE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true, D(OPERATIONGRAPH)},
	{D(DEVICEPROP), CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, true, NO_REF},
	{D(ENGINEHEUR), CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true, D(OPERATIONGRAPH)},
	{D(ENGINEHEUR), CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, true, NO_REF},
	{D(ENGINEHEUR), CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true, D(DEVICEPROP)},
	{D(EXECUTION_PLAN), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true, D(ENGINECFG)},
	{D(EXECUTION_PLAN), CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true, D(DEVICEPROP)},
	{D(EXECUTION_PLAN), CUDNN_ATTR_EXECUTION_PLAN_KERNEL_CACHE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, false, D(KERNEL_CACHE)},
	{D(VARIANT_PACK), CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 0, true, NO_REF},
	{D(VARIANT_PACK), CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 0, true, NO_REF},
	{D(VARIANT_PACK), CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, true, NO_REF},
};
static size_t bytes_of(int type)
{
	return type == CUDNN_TYPE_BOOLEAN ? 1 : type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_VOID_PTR ? 8 : 4;
}
static bool is_operation(int type)
{
	return type == D(OPERATION_POINTWISE) || type == D(OPERATION_REDUCTION) || type == D(OPERATION_MATMUL);
}
static const Rule *rule_for(int descriptor, int name)
{
	for (const Rule &r : rules)
		if (r.descriptor == descriptor && r.name == name)
			return &r;
	return nullptr;
}
static Ref find(void *d)
{
	auto i = descriptors().find(d);
	return i == descriptors().end() ? nullptr : i->second;
}

static cudnnStatus_t set_refs(const Rule &r, Attribute &a, void *const *values)
{
	for (int64_t i = 0; i < a.n; i++) {
		Ref to = find(values[i]);
		if (!to || (r.ref == ANY_OPERATION ? !is_operation(to->type) : to->type != r.ref))
			return refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d: descriptor %lld is none, or of another type", r.name,
				(long long)i);
		if (!to->final)
			return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "attribute %d: descriptor %lld is not final", r.name,
				(long long)i);
		a.refs.push_back(to);
	}
	return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t set_attribute(Descriptor *d, int name, int type, int64_t n, const void *values)
{
	const Rule *r = rule_for(d->type, name);
	if (!r || r->type != type || n < 1 || (r->n && r->n != n) || !values || d->final)
		return refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d of descriptor type %d: type %d, %lld values%s", name, d->type,
			type, (long long)n, d->final ? ", already final" : "");
	Attribute a;
	a.n = n;
	if (r->ref != NO_REF) {
		cudnnStatus_t s = set_refs(*r, a, (void *const *)values);
		if (s)
			return s;
	} else {
		a.bytes.assign((const char *)values, (const char *)values + (size_t)n * bytes_of(type));
	}
	d->attribute[name] = a;
	return CUDNN_STATUS_SUCCESS;
}

// ---- from descriptors to a graph ----

static DnnTensor tensor_of(const Descriptor &d)
{
	DnnTensor t = {};
	t.uid = d.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
	t.align = d.get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
	t.type = d.get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
	t.is_virtual = d.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && d.get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
	t.by_value = d.has(CUDNN_ATTR_TENSOR_IS_BY_VALUE) && d.get<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
	for (size_t i = 0; i < 4; i++) {
		t.dim[i] = d.get<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, i);
		t.stride[i] = d.get<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, i);
	}
	return t;
}
static cudnnStatus_t finish_tensor(const Descriptor &d)
{
	DnnTensor t = tensor_of(d);
	for (int i = 0; i < 4; i++)
		if (t.dim[i] < 1 || t.stride[i] < 1)
			return refuse(CUDNN_STATUS_BAD_PARAM, "tensor %lld: dimension %d", (long long)t.uid, i);
	if (t.align < (int64_t)dnn_bytes(t.type) || (t.align & (t.align - 1)) || (t.is_virtual && t.by_value))
		return refuse(CUDNN_STATUS_BAD_PARAM, "tensor %lld: alignment, or both virtual and a value", (long long)t.uid);
	if (t.by_value && t.extent() != dnn_bytes(t.type))
		return refuse(CUDNN_STATUS_BAD_PARAM, "tensor %lld: a value is one element", (long long)t.uid);
	return CUDNN_STATUS_SUCCESS;
}
static bool same(const DnnTensor &a, const DnnTensor &b)
{
	return !memcmp(a.dim, b.dim, sizeof a.dim) && !memcmp(a.stride, b.stride, sizeof a.stride) && a.type == b.type &&
	       a.align == b.align && a.is_virtual == b.is_virtual && a.by_value == b.by_value;
}
// Index of the tensor in the graph; tensors are known by their uid, -1: two of the same uid differ.
static int64_t add_tensor(DnnGraph &g, const Descriptor &d)
{
	DnnTensor t = tensor_of(d);
	for (size_t i = 0; i < g.tensor.size(); i++)
		if (g.tensor[i].uid == t.uid)
			return same(g.tensor[i], t) ? (int64_t)i : -1;
	g.tensor.push_back(t);
	return (int64_t)g.tensor.size() - 1;
}
static DnnOp op_of(const Descriptor &d)
{
	DnnOp o = {};
	if (d.type == D(OPERATION_MATMUL)) {
		o.kind = DnnOp::product;
		o.math = d.ref(CUDNN_ATTR_OPERATION_MATMUL_DESC)->get<cudnnDataType_t>(CUDNN_ATTR_MATMUL_COMP_TYPE);
	} else if (d.type == D(OPERATION_REDUCTION)) {
		const Descriptor &how = *d.ref(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
		o.kind = DnnOp::reduction;
		o.mode = how.get<int>(CUDNN_ATTR_REDUCTION_OPERATOR);
		o.math = how.get<cudnnDataType_t>(CUDNN_ATTR_REDUCTION_COMP_TYPE);
	} else {
		const Descriptor &how = *d.ref(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
		o.kind = DnnOp::pointwise;
		o.mode = how.get<int>(CUDNN_ATTR_POINTWISE_MODE);
		o.math = how.get<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC);
		o.axis = how.has(CUDNN_ATTR_POINTWISE_AXIS) ? how.get<int64_t>(CUDNN_ATTR_POINTWISE_AXIS) : -1;
	}
	return o;
}
// How many tensors an operation reads.
static size_t reads(const DnnOp &o)
{
	bool one = o.mode == CUDNN_POINTWISE_EXP || o.mode == CUDNN_POINTWISE_LOG || o.mode == CUDNN_POINTWISE_GEN_INDEX;
	return o.kind == DnnOp::product                  ? 2
	       : o.kind == DnnOp::reduction || one       ? 1
	       : o.mode == CUDNN_POINTWISE_BINARY_SELECT ? 3
							 : 2;
}
static cudnnStatus_t finish_graph(Descriptor &d)
{
	static const int inputs[][3] = {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC, 0},
		{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
			CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
		{CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 0, 0}};
	static const int output[] = {
		CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_ATTR_OPERATION_REDUCTION_YDESC};
	for (const Ref &r : d.attribute[CUDNN_ATTR_OPERATIONGRAPH_OPS].refs) {
		DnnOp o = op_of(*r);
		int64_t at = 0;
		for (int name : inputs[o.kind])
			if (name && r->has(name)) {
				at = std::min(at, add_tensor(d.graph, *r->ref(name)));
				o.in.push_back((size_t)add_tensor(d.graph, *r->ref(name)));
			}
		o.out = (size_t)add_tensor(d.graph, *r->ref(output[o.kind]));
		if (at < 0 || (int64_t)o.out < 0)
			return refuse(CUDNN_STATUS_BAD_PARAM, "two tensors of one uid differ");
		if (o.in.size() != reads(o) || (o.mode == CUDNN_POINTWISE_GEN_INDEX) != (o.axis > 0))
			return refuse(CUDNN_STATUS_BAD_PARAM, "an operation (kind %d, mode %d) with %zu inputs", o.kind, o.mode,
				o.in.size());
		d.graph.op.push_back(o);
	}
	d.graph.dynamic = d.has(CUDNN_ATTR_OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED) &&
			  d.get<bool>(CUDNN_ATTR_OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED);
	return CUDNN_STATUS_SUCCESS;
}

// ---- engines and plans ----

// What a compiled kernel fits: any length, but one number of heads, channels, operations; a single query has its own.
static std::string kernel_of(const DnnGraph &g)
{
	const DnnTensor &q = g.tensor[g.op.front().in[0]], &k = g.tensor[g.op.front().in[1]];
	return std::to_string(q.dim[1]) + "/" + std::to_string(k.dim[1]) + " " + std::to_string(q.dim[3]) + " " +
	       std::to_string(g.op.size()) + (q.dim[2] == 1 ? " one" : "");
}
static std::vector<Engine> engines_for(const Descriptor &guess)
{
	const DnnGraph &g = guess.ref(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->graph;
	std::string why = dnn_refusal(g);
	bool fallback = guess.get<int>(CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_FALLBACK;
	if (!why.empty()) {
		refuse(CUDNN_STATUS_NOT_SUPPORTED, "%s", why.c_str());
		return {};
	}
	if (!fallback && g.tensor[g.op.front().in[0]].dim[2] == 1)
		return {CHANGING, GREEDY, BROKEN};
	return {CHANGING, GREEDY, BROKEN, WORKING};
}
static int64_t workspace_of(const DnnGraph &g, Engine e)
{
	const DnnTensor &q = g.tensor[g.op.front().in[0]];
	return e == GREEDY ? (int64_t)1 << 40 : 256 + q.dim[1] * q.dim[2] * 4;
}
static int device_of(const Descriptor &prop)
{
	return prop.get<int32_t>(CUDNN_ATTR_DEVICEPROP_DEVICE_ID);
}
static cudnnStatus_t finish_plan(Descriptor &d)
{
	const Descriptor &config = *d.ref(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
	d.graph = config.graph;
	d.engine = config.engine;
	if (d.engine == BROKEN)
		return refuse(CUDNN_STATUS_NOT_SUPPORTED, "the engine does not take this graph after all");
	if (!d.graph.dynamic || !d.has(CUDNN_ATTR_EXECUTION_PLAN_KERNEL_CACHE)) {
		Call call("cudnnCompile");
		return call.err ? refuse((cudnnStatus_t)call.err, "compilation failed") : CUDNN_STATUS_SUCCESS;
	}
	Descriptor &cache = *d.ref(CUDNN_ATTR_EXECUTION_PLAN_KERNEL_CACHE);
	std::string kernel = kernel_of(d.graph), made_for = kernel_of(cache.ref(CUDNN_ATTR_KERNEL_CACHE_OPERATION_GRAPH)->graph);
	auto without_one = [](const std::string &s) { return s.substr(0, s.find(" one")); };
	if (without_one(kernel) != without_one(made_for))
		return refuse(
			CUDNN_STATUS_BAD_PARAM, "a kernel cache of another graph: %s, not %s", made_for.c_str(), kernel.c_str());
	if (cache.compiled.count(kernel))
		return CUDNN_STATUS_SUCCESS;
	Call call("cudnnCompile");
	if (call.err)
		return refuse((cudnnStatus_t)call.err, "compilation failed");
	cache.compiled.insert(kernel);
	return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t finish_pack(const Descriptor &d)
{
	const Attribute &ids = d.attribute.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
	return ids.n == d.attribute.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).n
		       ? CUDNN_STATUS_SUCCESS
		       : refuse(CUDNN_STATUS_BAD_PARAM, "%lld uids, another number of pointers", (long long)ids.n);
}
static cudnnStatus_t finish(Descriptor &d)
{
	for (const Rule &r : rules)
		if (r.descriptor == d.type && r.required && !d.has(r.name))
			return refuse(CUDNN_STATUS_BAD_PARAM, "descriptor type %d lacks attribute %d", d.type, r.name);
	switch (d.type) {
	case D(TENSOR):
		return finish_tensor(d);
	case D(OPERATIONGRAPH):
		return finish_graph(d);
	case D(EXECUTION_PLAN):
		return finish_plan(d);
	case D(VARIANT_PACK):
		return finish_pack(d);
	case D(DEVICEPROP):
		return device_of(d) >= 0 && device_of(d) < settings.devices
			       ? CUDNN_STATUS_SUCCESS
			       : refuse(CUDNN_STATUS_BAD_PARAM, "no device %d", device_of(d));
	case D(ENGINE):
	case D(ENGINECFG):
		return refuse(CUDNN_STATUS_BAD_PARAM, "descriptor type %d is only got, never made", d.type);
	default:
		return CUDNN_STATUS_SUCCESS;
	}
}

// ---- what can be asked for ----

static cudnnStatus_t get_engines(const Descriptor &guess, int64_t room, int64_t *n, void *const *into)
{
	std::vector<Engine> e = engines_for(guess);
	*n = std::min((int64_t)e.size(), room);
	for (int64_t i = 0; i < *n; i++) {
		Ref to = find(into[i]);
		if (!to || to->type != D(ENGINECFG) || to->final)
			return refuse(CUDNN_STATUS_BAD_PARAM, "engines: no room for configuration %lld", (long long)i);
		to->engine = e[(size_t)i];
		to->graph = guess.ref(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->graph;
		to->final = true;
	}
	return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t get_engine(const Descriptor &config, int64_t *n, void *const *into)
{
	Ref to = find(into[0]);
	if (!to || to->type != D(ENGINE))
		return refuse(CUDNN_STATUS_BAD_PARAM, "engine: no room for it");
	to->engine = config.engine;
	to->final = true;
	*n = 1;
	return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t get_attribute(Descriptor &d, int name, int type, int64_t room, int64_t *n, void *values)
{
	if (!d.final)
		return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "attribute %d of a descriptor that is not final", name);
	if (d.type == D(ENGINEHEUR) && name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
		return get_engines(d, room, n, (void *const *)values);
	if (d.type == D(ENGINECFG) && name == CUDNN_ATTR_ENGINECFG_ENGINE && type == CUDNN_TYPE_BACKEND_DESCRIPTOR && room == 1)
		return get_engine(d, n, (void *const *)values);
	bool size = (d.type == D(ENGINECFG) && name == CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE) ||
		    (d.type == D(EXECUTION_PLAN) && name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
	if (size && type == CUDNN_TYPE_INT64 && room == 1) {
		*(int64_t *)values = workspace_of(d.graph, d.engine);
		*n = 1;
		return CUDNN_STATUS_SUCCESS;
	}
	if (d.type == D(ENGINE) && name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE && room >= 2) {
		cudnnBackendNumericalNote_t notes[] = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
		*n = d.engine == CHANGING ? 2 : 1;
		memcpy(values, notes, (size_t)*n * sizeof *notes);
		return CUDNN_STATUS_SUCCESS;
	}
	return refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d of descriptor type %d cannot be asked for so", name, d.type);
}

// ---- running ----

struct Bound { // a graph and where its tensors lie
	DnnGraph graph;
	std::vector<char *> at;
	std::vector<std::vector<char>> value; // of the host's, as they were at the call
	char *workspace;
	size_t workspace_bytes;
	Engine engine;
};
static cudnnStatus_t bind_tensor(Bound &b, size_t i, const Descriptor &pack, int device)
{
	const DnnTensor &t = b.graph.tensor[i];
	const Attribute &ids = pack.attribute.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
	char *p = nullptr;
	for (size_t j = 0; j < (size_t)ids.n; j++)
		if (pack.get<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, j) == t.uid)
			p = pack.get<char *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, j);
	if (!p || ((uintptr_t)p % (uintptr_t)t.align && !t.by_value))
		return refuse(CUDNN_STATUS_BAD_PARAM, "tensor %lld: no pointer, or not aligned to %lld", (long long)t.uid,
			(long long)t.align);
	if (t.by_value) {
		b.value[i].assign(p, p + t.extent());
		b.at[i] = b.value[i].data();
		return CUDNN_STATUS_SUCCESS;
	}
	b.at[i] = p;
	if (!memory_covers(p, t.extent(), device))
		return refuse(CUDNN_STATUS_BAD_PARAM,
			"tensor %lld (%p, %zu bytes) does not lie inside one allocation that the device may touch",
			(long long)t.uid, (void *)p, t.extent());
	return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t bind(Bound &b, const Descriptor &plan, const Descriptor &pack, int device)
{
	size_t given = 0;
	b.graph = plan.graph;
	b.engine = plan.engine;
	b.at.resize(b.graph.tensor.size());
	b.value.resize(b.graph.tensor.size());
	for (size_t i = 0; i < b.graph.tensor.size(); i++) {
		if (b.graph.tensor[i].is_virtual)
			continue;
		cudnnStatus_t s = bind_tensor(b, i, pack, device);
		if (s)
			return s;
		given++;
	}
	if (given != (size_t)pack.attribute.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).n)
		return refuse(CUDNN_STATUS_BAD_PARAM, "pointers of tensors that the graph does not have");
	b.workspace = pack.get<char *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
	b.workspace_bytes = (size_t)workspace_of(b.graph, b.engine);
	if (!memory_covers(b.workspace, b.workspace_bytes, device))
		return refuse(CUDNN_STATUS_BAD_PARAM, "workspace of %zu bytes", b.workspace_bytes);
	return CUDNN_STATUS_SUCCESS;
}
static void run(const Bound &b)
{
#ifdef CUEMU_TSAN
	__tsan_write_range(b.workspace, b.workspace_bytes);
#endif
	memset(b.workspace, 0xff, b.workspace_bytes);
	dnn_run(b.graph, b.at);
	if (b.engine == CHANGING) // who chose it must notice
		memset(b.at[b.graph.op.back().out], 0xff, b.graph.tensor[b.graph.op.back().out].extent());
}
static cudnnStatus_t execute(Call &call, cudnnHandle_t h, const Descriptor &plan, const Descriptor &pack)
{
	auto q = h->has_stream ? queue_of(h->stream) : nullptr;
	if (!q || q->device != h->device || device_of(*plan.ref(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP)) != h->device)
		return refuse(CUDNN_STATUS_BAD_PARAM, "the handle has no stream, or the plan another device");
	auto b = std::make_shared<Bound>();
	cudnnStatus_t s = bind(*b, plan, pack, q->device);
	if (s)
		return s;
	auto queued = plan.queued;
	++*queued;
	queue_submit(
		q,
		[b, queued](Queue &self) {
			as_copier(self, [&] { run(*b); });
			--*queued;
		},
		call.poison);
	return sticky() ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}
} // namespace cuemu

using namespace cuemu;
#define CALL(name)                                                                                                               \
	Call call(name);                                                                                                         \
	if (call.err)                                                                                                            \
	return refuse(sticky() ? CUDNN_STATUS_EXECUTION_FAILED : (cudnnStatus_t)call.err, "injected")

extern "C" {
void cuemu_set_cudnn(size_t v)
{
	version = v;
}
size_t cudnnGetVersion(void)
{
	return version;
}
static const struct {
	cudnnStatus_t s;
	const char *name;
} names[] = {{CUDNN_STATUS_SUCCESS, "CUDNN_STATUS_SUCCESS"}, {CUDNN_STATUS_NOT_INITIALIZED, "CUDNN_STATUS_NOT_INITIALIZED"},
	{CUDNN_STATUS_BAD_PARAM, "CUDNN_STATUS_BAD_PARAM"},
	{CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED"},
	{CUDNN_STATUS_NOT_SUPPORTED, "CUDNN_STATUS_NOT_SUPPORTED"}, {CUDNN_STATUS_INTERNAL_ERROR, "CUDNN_STATUS_INTERNAL_ERROR"},
	{CUDNN_STATUS_EXECUTION_FAILED, "CUDNN_STATUS_EXECUTION_FAILED"}};
const char *cudnnGetErrorString(cudnnStatus_t s)
{
	for (auto &n : names)
		if (n.s == s)
			return n.name;
	return "CUDNN_UNKNOWN_STATUS";
}
void cudnnGetLastErrorString(char *message, size_t max_size)
{
	snprintf(message, max_size, "%s", last_words.c_str());
}
cudnnStatus_t cudnnCreate(cudnnHandle_t *h)
{
	CALL("cudnnCreate");
	*h = new cudnnContext{current_device(), nullptr, false};
	count_handle(1);
	return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t h)
{
	Call call("cudnnDestroy");
	delete h;
	count_handle(-1);
	return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s)
{
	CALL("cudnnSetStream");
	h->stream = s;
	h->has_stream = s != nullptr;
	return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d)
{
	CALL("cudnnBackendCreateDescriptor");
	auto r = std::make_shared<Descriptor>();
	r->type = type;
	*d = r.get();
	descriptors()[r.get()] = r;
	count_handle(1);
	return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
	Call call("cudnnBackendDestroyDescriptor");
	Ref r = find(d);
	if (!r)
		return refuse(CUDNN_STATUS_BAD_PARAM, "no such descriptor");
	if (*r->queued && !sticky())
		die("a plan of cuDNN is destroyed while a call of it has not run yet");
	descriptors().erase(d);
	count_handle(-1);
	return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d)
{
	CALL("cudnnBackendFinalize");
	Ref r = find(d);
	if (!r || r->final)
		return refuse(CUDNN_STATUS_BAD_PARAM, "no such descriptor, or it is final");
	cudnnStatus_t s = finish(*r);
	r->final = s == CUDNN_STATUS_SUCCESS;
	return s;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
	cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
	CALL("cudnnBackendSetAttribute");
	Ref r = find(d);
	return r ? set_attribute(r.get(), name, type, n, values) : refuse(CUDNN_STATUS_BAD_PARAM, "no such descriptor");
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
	cudnnBackendAttributeType_t type, int64_t room, int64_t *n, void *values)
{
	CALL("cudnnBackendGetAttribute");
	Ref r = find(d);
	return r && values ? get_attribute(*r, name, type, room, n, values)
			   : refuse(CUDNN_STATUS_BAD_PARAM, "no such descriptor");
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
	CALL("cudnnBackendExecute");
	Ref p = find(plan), v = find(pack);
	if (!h || !p || !v || p->type != D(EXECUTION_PLAN) || v->type != D(VARIANT_PACK))
		return refuse(CUDNN_STATUS_BAD_PARAM, "no handle, plan or tensors");
	if (!p->final || !v->final)
		return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "plan or tensors of a call");
	return execute(call, h, *p, *v);
}
}
