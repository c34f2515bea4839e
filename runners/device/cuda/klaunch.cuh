/* klaunch.cuh: the one way kernels are launched: plain C++ (no <<<>>>), so that the same source compiles with nvcc and, for tests, with a C++
 * compiler. Returns the launch's error; what the kernel itself does wrong shows at a later synchronisation. */
#ifndef KVB_KLAUNCH_CUH
#define KVB_KLAUNCH_CUH

#include <cuda_runtime.h>
#include <stdint.h>
#include <utility>

template <class... P, class... A>
static inline cudaError_t klaunch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream, A &&...args)
{
	if (shared > 48 * 1024) {
		cudaError_t e = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
		if (e != cudaSuccess)
			return e;
	}
	cudaLaunchConfig_t c = {};
	c.gridDim = grid;
	c.blockDim = block;
	c.dynamicSmemBytes = shared;
	c.stream = stream;
	return cudaLaunchKernelEx(&c, kernel, std::forward<A>(args)...);
}

/* Blocks of `each` that cover n. */
static inline unsigned blocks_for(int64_t n, int64_t each)
{
	return (unsigned)((n + each - 1) / each);
}

#endif
