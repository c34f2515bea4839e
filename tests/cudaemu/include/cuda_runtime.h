// cuda_runtime.h (emulation): what nvcc gives a .cu file by itself, for g++ and clang++: keywords, built-in variables, typed launches, and with the
// headers of cuemu/ the warp, atomic, scalar and PTX-twin functions. Include it first (`-include cuda_runtime.h`), as nvcc does. In a C file it is the
// runtime's C interface alone. CUEMU tells a source that it is compiled here.
#ifndef CUEMU_CUDA_RUNTIME_H
#define CUEMU_CUDA_RUNTIME_H
#include "cuda_runtime_api.h"
#ifdef __cplusplus
#ifdef __CUDACC__
#error "tests/cudaemu/include is for the host compiler only"
#endif
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#define CUEMU 1
#define CUEMU_UNWATCHED __attribute__((no_sanitize("thread")))
#define __global__
#define __device__
#define __host__
#define __constant__
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
// A block stays on one OS thread from start to end, so what a block shares is thread-local. At block scope a lone `thread_local` implies static;
// `extern __shared__ T smem_raw[]` is an extern thread-local array, defined under that one name by the shim.
#define __shared__ thread_local

// Constant to a kernel, of whose threads each keeps its own: read once, and no access for TSan to look at; so none is a dim3, whose constructor would
// make it a variable. fiber.cpp alone sets them.
#ifndef CUEMU_SETS_INDICES
#define CUEMU_SETS_INDICES const
#endif
extern __thread CUEMU_SETS_INDICES uint3 threadIdx, blockIdx, blockDim, gridDim;
static const int warpSize = 32;

namespace cuemu {
// Where a call stands in the source: default arguments are evaluated at the caller's line.
struct Where {
	const char *file;
	int line;
};
#define CUEMU_HERE const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()
#define CUEMU_WHERE \
	cuemu::Where { file_, line_ }
[[noreturn]] void trap(const char *why);
inline unsigned linear_tid() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
inline unsigned lane() { return linear_tid() & 31; }

// A launch: the kernel, its arguments copied at the call (owned, freed by drop), and which of them are pointers.
struct Launch {
	const void *kernel;
	void (*call)(void *args);
	void (*drop)(void *args);
	void *args;
	const void *pointer[32];
	int position[32], pointers; // 1-based position of each pointer argument
};
cudaError_t launch(const cudaLaunchConfig_t &config, const Launch &l);

template <class... P> struct Packed {
	using Args = std::tuple<std::decay_t<P>...>;
	Args args;
	void (*kernel)(P...);
	const void *at[sizeof...(P) + 1]; // where each argument lies in args
	// Each thread takes its copy of the arguments here, which is nothing for TSan to look at.
	template <size_t... I> CUEMU_UNWATCHED static void spread(const Packed *p, std::index_sequence<I...>) {
		p->kernel(*(const std::decay_t<P> *)p->at[I]...);
	}
	CUEMU_UNWATCHED static void call(void *p) { spread((const Packed *)p, std::index_sequence_for<P...>{}); }
	static void drop(void *p) { delete (Packed *)p; }
	template <class T> static void note(Launch &l, int position, const T &v) {
		if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>)
			if (l.pointers < 32) {
				l.position[l.pointers] = position;
				l.pointer[l.pointers++] = (const void *)v;
			}
	}
	cudaError_t launch(const cudaLaunchConfig_t &c) {
		Launch l = {(const void *)kernel, call, drop, this, {}, {}, 0};
		std::apply(
			[&](const auto &...v) {
				int i = 0;
				((at[i] = &v, note(l, ++i, v)), ...);
			},
			args);
		return cuemu::launch(c, l);
	}
};
template <class... P, size_t... I> inline cudaError_t launch_array(const cudaLaunchConfig_t &c, void (*k)(P...), void **v, std::index_sequence<I...>) {
	return (new Packed<P...>{{*(std::decay_t<P> *)v[I]...}, k, {}})->launch(c);
}
} // namespace cuemu

template <class... P, class... A> inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...), A &&...a) {
	return (new cuemu::Packed<P...>{typename cuemu::Packed<P...>::Args(std::forward<A>(a)...), kernel, {}})->launch(*c);
}
template <class... P> inline cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void **args, size_t smem = 0, cudaStream_t s = 0) {
	cudaLaunchConfig_t c = {grid, block, smem, s, nullptr, 0};
	return cuemu::launch_array(c, kernel, args, std::index_sequence_for<P...>{});
}
template <class... P> inline cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute a, int v) {
	return cudaFuncSetAttribute((const void *)kernel, a, v);
}
template <class... P> inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, void (*kernel)(P...)) {
	return cudaFuncGetAttributes(a, (const void *)kernel);
}
template <class... P> inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void (*kernel)(P...), int block, size_t smem) {
	return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, (const void *)kernel, block, smem);
}
template <class T> inline cudaError_t cudaMalloc(T **p, size_t n) { return cudaMalloc((void **)p, n); }
template <class T> inline cudaError_t cudaMallocHost(T **p, size_t n) { return cudaMallocHost((void **)p, n); }
template <class T> inline cudaError_t cudaMallocAsync(T **p, size_t n, cudaStream_t s) { return cudaMallocAsync((void **)p, n, s); }
template <class T> inline cudaError_t cudaHostAlloc(T **p, size_t n, unsigned f) { return cudaHostAlloc((void **)p, n, f); }
// Symbols are plain variables here: one for all devices.
extern "C" cudaError_t cuemu_symbol_copy(void *dst, const void *src, size_t n);
template <class T> inline cudaError_t cudaMemcpyToSymbol(T &symbol, const void *src, size_t n, size_t off = 0, cudaMemcpyKind = cudaMemcpyHostToDevice) {
	return cuemu_symbol_copy((char *)&symbol + off, src, n);
}
template <class T> inline cudaError_t cudaMemcpyFromSymbol(void *dst, const T &symbol, size_t n, size_t off = 0, cudaMemcpyKind = cudaMemcpyDeviceToHost) {
	return cuemu_symbol_copy(dst, (const char *)&symbol + off, n);
}

#define CUEMU_MAKE(name, T)                                                                         \
	inline name##1 make_##name##1(T x) { return {x}; }                                              \
	inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                      \
	inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                              \
	inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUEMU_MAKE(char, signed char)
CUEMU_MAKE(uchar, unsigned char)
CUEMU_MAKE(short, short)
CUEMU_MAKE(ushort, unsigned short)
CUEMU_MAKE(int, int)
CUEMU_MAKE(uint, unsigned)
CUEMU_MAKE(longlong, long long)
CUEMU_MAKE(ulonglong, unsigned long long)
CUEMU_MAKE(float, float)
CUEMU_MAKE(double, double)

#include "cuemu/warp.h"
#include "cuemu/atomics.h"
#include "cuemu/scalars.h"
#include "cuemu/ptx.h"
#include "cuemu/wgmma.h"
#include "cuemu/tma.h"
#endif
#endif
