// dnn.h: a cuDNN graph as the emulation holds it: between the descriptors (cudnn.cpp) and what they mean (cudnn_graph.cpp).
#pragma once
#include "include/cudnn_graph.h"
#include "state.h"

namespace cuemu
{
struct DnnTensor { // [1][heads][rows][columns]
	int64_t uid, dim[4], stride[4], align;
	cudnnDataType_t type;
	bool is_virtual, by_value;
	size_t extent() const; // bytes from its first to its last element
};
struct DnnOp {
	enum Kind { product, pointwise, reduction } kind;
	int mode;             // cudnnPointwiseMode_t, cudnnReduceTensorOp_t
	int64_t axis;         // GEN_INDEX
	cudnnDataType_t math; // what it computes in
	std::vector<size_t> in;
	size_t out; // indices of tensors
};
struct DnnGraph {
	std::vector<DnnTensor> tensor;
	std::vector<DnnOp> op; // in the order in which they can run
	bool dynamic = false;
};
// Why no engine runs the graph; "" = one does: two products, everything between them in no memory, Q, K, V as attention has them.
std::string dnn_refusal(const DnnGraph &g);
// Runs it, operation by operation, one head at a time, in fp32, rounded where a tensor is bf16. at: where each tensor lies (NULL:
// virtual).
void dnn_run(const DnnGraph &g, const std::vector<char *> &at);
size_t dnn_bytes(cudnnDataType_t t);
} // namespace cuemu
