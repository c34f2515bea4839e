// fiber.h: how a grid runs: what the queue (stream.cpp) hands to the blocks (fiber.cpp, pool.cpp). Internal to the shim.
#pragma once
#include <atomic>
#include <functional>
#include <string>

#include "cuda_runtime.h"

// TSan: the shim itself is compiled without instrumentation and says by hand what orders what.
#ifdef CUEMU_TSAN
extern "C" {
void *__tsan_create_fiber(unsigned);
void __tsan_destroy_fiber(void *);
void __tsan_switch_to_fiber(void *, unsigned);
void *__tsan_get_current_fiber(void);
void AnnotateIgnoreReadsBegin(const char *, int);
void AnnotateIgnoreWritesBegin(const char *, int);
void __tsan_acquire(void *);
void __tsan_release(void *);
void __tsan_read_range(void *, unsigned long);
void __tsan_write_range(void *, unsigned long);
}
#define TSAN_ACQUIRE(p) __tsan_acquire((void *)(p))
#define TSAN_RELEASE(p) __tsan_release((void *)(p))
namespace cuemu
{
void *context_clean(); // a TSan context that knows nothing of what others did: one made by its user would come after all that the
		       // user saw
}
#else
#define TSAN_ACQUIRE(p) ((void)(p))
#define TSAN_RELEASE(p) ((void)(p))
#endif

namespace cuemu
{
constexpr size_t SHARED_MAX = 227 * 1024; // dynamic shared memory a block, as on sm_90
constexpr int THREADS_MAX = 1024, WARPS_MAX = THREADS_MAX / 32;

enum class Order { forward, reverse, random }; // which runnable thread goes first
struct Settings {
	Order order;
	uint64_t seed;
	bool eager, protect, peer;
	size_t memory;
	int devices, threads;
	int capability; // 80: sm_80
	bool tma;       // the driver makes tensor maps
};
extern Settings settings; // device.cpp; from the environment, changed by control.h

struct Grid {
	dim3 grid, block;
	size_t shared_bytes, blocks;
	const Launch *launch;
	const void *acquire[2]; // TSan: what each thread of the grid comes after
	void *release;          // TSan: what its end is told to
};
// One OS thread's block machine (fibers, warps, stacks); made at first use, never freed.
void run_block(const Grid &g, size_t linear);
// Between these two, thread-local variables of the program hold shared memory; end puts back what the OS thread had there.
void worker_start(); // makes this OS thread's machine; TSan: before it learns anything of the work
void grid_begin(bool keep_thread_locals);
void grid_end();
bool in_kernel();
void fault_stack(); // memory.cpp: each OS thread that runs blocks needs one to report faults

struct Pool;
Pool *pool_new(int threads); // OS threads that run blocks; TSan: one pool a stream, so that nothing but events orders two streams
Pool *pool_shared();
void pool_grid(Pool *p, const Grid &g);
void pool_for(Pool *p, size_t n, const std::function<void(size_t)> &fn); // plain loop over tasks

// Prints what happened and where, and aborts.
[[noreturn]] void die(const std::string &what);
const char *where_in_kernel(); // "block (..) thread (..)" of the calling OS thread, or "host code"
} // namespace cuemu
