// tma.h: tensor maps as the shim reads them: between their encoder (tma.cpp) and the copies (fiber.cpp). Internal to the shim.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace cuemu
{
struct TensorMap { // dimension 0 runs through memory; no padding: its bytes are summed
	uint64_t address;
	uint64_t dim[5];    // in 32 bits less one, on a GPU
	uint64_t stride[4]; // bytes, of dimensions 1 and on
	uint16_t box[5];
	int16_t swizzle; // enum CUtensorMapSwizzle
	int32_t rank;
	uint64_t element; // bytes
};
TensorMap map_read(const void *map); // or dies
size_t box_bytes(const TensorMap &m);
size_t box_align(const TensorMap &m); // of the shared address it is copied to
// The box whose first element is `at`, to shared memory at `to`, which the hardware calls `address`.
void box_land(const TensorMap &m, const int32_t *at, unsigned char *to, uint32_t address);
} // namespace cuemu
