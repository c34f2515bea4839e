/* maps.c: tensor maps, by which one thread of attend_wgmma.cu has whole tiles of a cache's rows copied. The driver makes them; the runtime finds the driver's
 * function, so that the program needs no link to it. */
#include "runners/device/cuda/cuda.h"

map_encoder cuda_map_encoder(void)
{
	map_encoder encode = NULL;
#if CUDART_VERSION >= 12050 /* before, the runtime could not be asked for a version of the function */
	enum cudaDriverEntryPointQueryResult found;
	void *function = NULL;
	if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found) != cudaSuccess)
		cudaGetLastError();
	else if (found == cudaDriverEntryPointSuccess)
		*(void **)&encode = function;
#endif
	return encode;
}

int cuda_map_rows(struct device *d, CUtensorMap *map, const void *rows, int64_t n, int dim)
{
	uint64_t extent[2] = {(uint64_t)dim, (uint64_t)n}, row_bytes[1] = {(uint64_t)dim * 2};
	uint32_t box[2] = {BOX_COLS, BOX_ROWS}, steps[2] = {1, 1};
	CUresult r = cuda_device(d)->encode_map(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)rows, extent, row_bytes, box, steps,
		CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	return r == CUDA_SUCCESS ? 0 : device_fail(d, "a tensor map of %lld rows: driver error %d", (long long)n, (int)r);
}
