// tma.cpp: tensor maps: what cuTensorMapEncodeTiled takes and refuses, and what a copy of a box reads and writes (fiber.cpp says
// when). Only what is opaque of a map is our own: its limits, the order of a box in shared memory and the swizzle are those of
// CUDA's manuals. Leaves out: packed types, interleaved layouts, element strides, NaN as filling, boxes narrower than their
// swizzle.
#include "tma.h"

#include <string.h>

#include "cuda.h"
#include "state.h"

namespace cuemu
{
constexpr uint64_t MAGIC = 0x70616d726f736e74ull;
struct Encoded { // the opaque 128 bytes
	uint64_t magic;
	TensorMap map;
	uint64_t check;
};
static_assert(sizeof(Encoded) <= sizeof(CUtensorMap));

static uint64_t sum_of(const TensorMap &m)
{
	unsigned char bytes[sizeof m];
	uint64_t sum = MAGIC;
	memcpy(bytes, &m, sizeof m);
	for (unsigned char b : bytes)
		sum = (sum ^ b) * 0x100000001b3ull;
	return sum;
}

TensorMap map_read(const void *map)
{
	Encoded e;
	if ((uintptr_t)map % 64)
		die("a tensor map at an address that is no multiple of 64");
	size_t n = sizeof e;
	asm("" : "+r"(n)); // a call of memcpy: TSan sees who reads the map
	memcpy(&e, map, n);
	if (e.magic != MAGIC || e.check != sum_of(e.map))
		die("cp.async.bulk.tensor: this is no tensor map");
	return e.map;
}

static size_t span_of(const TensorMap &m)
{
	return m.swizzle ? (size_t)16 << m.swizzle : 0;
}
size_t box_align(const TensorMap &m)
{ // where the pattern of a swizzle begins anew
	return m.swizzle ? 8 * span_of(m) : 128;
}
size_t box_bytes(const TensorMap &m)
{
	size_t n = m.element;
	for (int i = 0; i < m.rank; i++)
		n *= m.box[i];
	return n;
}
// One row of a box, 16 bytes at a time, zeros outside the tensor; there: the row lies in it.
static void row_copy(const TensorMap &m, unsigned char *to, uint32_t address, const char *from, int64_t first, bool there)
{
	for (size_t at = 0; at < m.box[0] * m.element; at += 16) {
		size_t n[2] = {0, 0}; // bytes before the tensor's first column and of it
		for (size_t b = 0; b < 16; b += m.element) {
			int64_t col = first + (int64_t)((at + b) / m.element);
			if (col < 0)
				n[0] += m.element;
			else if (there && col < (int64_t)m.dim[0])
				n[1] += m.element;
		}
		uint32_t place = address + (uint32_t)at;
		if (m.swizzle)
			place ^= (place >> 7 & (uint32_t)(span_of(m) / 16 - 1)) << 4;
		unsigned char *p = to + (int64_t)(place - address);
		memset(p, 0, n[0]);
		memcpy(p + n[0], from + (first * (int64_t)m.element + (int64_t)(at + n[0])), n[1]);
		memset(p + n[0] + n[1], 0, 16 - n[0] - n[1]);
	}
}
void box_land(const TensorMap &m, const int32_t *at, unsigned char *to, uint32_t address)
{
	size_t rows = box_bytes(m) / (m.box[0] * m.element);
	for (size_t r = 0; r < rows; r++) {
		const char *from = (const char *)m.address;
		bool there = true;
		size_t left = r;
		for (int i = 1; i < m.rank; i++) {
			int64_t x = at[i] + (int64_t)(left % m.box[i]);
			left /= m.box[i];
			there = there && x >= 0 && x < (int64_t)m.dim[i];
			from += x * (int64_t)m.stride[i - 1];
		}
		uint32_t row = (uint32_t)(r * m.box[0] * m.element);
		row_copy(m, to + row, address + row, from, at[0], there);
	}
}

// ---- the encoder
static int element_of(CUtensorMapDataType t)
{
	static const int bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
	return (unsigned)t < sizeof bytes / sizeof *bytes ? bytes[t] : 0;
}
// What the manual asks of the arguments; NULL = all of it.
static const char *fault_of(
	const TensorMap &m, const void *map, const uint64_t *dims, const uint32_t *box, const uint32_t *steps, int interleave)
{
	bool by32 = interleave == CU_TENSOR_MAP_INTERLEAVE_32B;
	if ((uintptr_t)map % 64)
		return "the map's address is no multiple of 64";
	if (m.rank < 1 || m.rank > 5 || (interleave && m.rank < 3))
		return "rank";
	if (m.element == 0 || m.swizzle < 0 || m.swizzle > CU_TENSOR_MAP_SWIZZLE_128B || interleave < 0 ||
		interleave > CU_TENSOR_MAP_INTERLEAVE_32B || (by32 && m.swizzle != CU_TENSOR_MAP_SWIZZLE_32B))
		return "type, swizzle or interleave";
	if (!m.address || m.address % (by32 ? 32 : 16))
		return "the tensor's address is no multiple of 16 (32 where interleaved by 32)";
	for (int i = 0; i < m.rank; i++)
		if (dims[i] < 1 || dims[i] > 1ull << 32 || box[i] < 1 || box[i] > 256 || steps[i] < 1 || steps[i] > 8)
			return "a dimension, an extent of the box or an element stride";
	for (int i = 0; i + 1 < m.rank; i++)
		if (m.stride[i] % (by32 ? 32 : 16) || m.stride[i] >= 1ull << 40)
			return "a stride is no multiple of 16, or too large";
	if (m.rank > 1 && m.stride[0] < dims[0] * m.element)
		return "rows overlap";
	if (!interleave && box[0] * m.element % 16)
		return "the box's rows are not whole 16 bytes";
	if (!interleave && m.swizzle && box[0] * m.element > span_of(m))
		return "the box's rows are longer than the swizzle";
	return nullptr;
}
static size_t extent_of(const TensorMap &m)
{
	size_t n = m.dim[0] * m.element;
	for (int i = 1; i < m.rank; i++)
		n += (m.dim[i] - 1) * m.stride[i - 1];
	return n;
}
} // namespace cuemu

using namespace cuemu;
extern "C" CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, uint32_t rank, void *address,
	const uint64_t *dims, const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,
	CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill)
{
	Call call("cuTensorMapEncodeTiled");
	if (call.err)
		return (CUresult)call.err;
	TensorMap m = {};
	m.address = (uint64_t)address;
	m.rank = (int)(rank < 6 ? rank : 6);
	m.element = (size_t)element_of(type);
	m.swizzle = swizzle;
	for (int i = 0; i < m.rank && m.rank < 6; i++) {
		m.dim[i] = dims[i];
		m.box[i] = (uint16_t)box[i];
		if (i + 1 < m.rank)
			m.stride[i] = strides[i];
	}
	const char *fault = fault_of(m, map, dims, box, element_strides, interleave);
	if (!fault && ((unsigned)l2 > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
			      (unsigned)fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA))
		fault = "L2 promotion or filling";
	if (fault) {
		say("cuTensorMapEncodeTiled: %s", fault);
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (int i = 1; i < m.rank; i++)
		if (element_strides[i] != 1)
			die("cuTensorMapEncodeTiled: element strides are not emulated");
	if (interleave || fill || (swizzle && m.box[0] * m.element != span_of(m)))
		die("cuTensorMapEncodeTiled: interleaved layouts, NaN as filling, boxes narrower than their swizzle are not emulated");
	if (!memory_covers(address, extent_of(m), current_device()))
		die("cuTensorMapEncodeTiled: a tensor that does not lie inside one allocation of its device");
	Encoded e = {MAGIC, m, sum_of(m)};
	memset(map, 0, sizeof *map);
	memcpy(map, &e, sizeof e);
	return CUDA_SUCCESS;
}
