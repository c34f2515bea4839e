// pool.cpp: spreads the blocks of a grid (and the tasks of a GEMM) over OS threads. Blocks share nothing but global memory and
// meet only through atomics, so any distribution is right. Short grids stay on the calling thread: waking a helper costs more
// than they do. TSan: a pool a stream, whose threads alone run its blocks, block i on thread i % n, so that nothing but events
// orders two streams' kernels.
#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "fiber.h"

namespace cuemu
{
struct Pool {
	std::mutex m;
	std::condition_variable wake, done;
	const std::function<void(int)> *job = nullptr; // job(helper number, from 0)
	uint64_t turn = 0;
	int helpers = 0, busy = 0;
	void help(int number)
	{
		worker_start();
		for (uint64_t seen = 0;;) {
			std::unique_lock<std::mutex> l(m);
			wake.wait(l, [&] { return turn != seen; });
			seen = turn;
			const std::function<void(int)> *j = job;
			l.unlock();
			(*j)(number);
			l.lock();
			if (--busy == 0)
				done.notify_one();
		}
	}
	void start(const std::function<void(int)> &j)
	{
		std::lock_guard<std::mutex> l(m);
		job = &j;
		turn++;
		busy = helpers;
		wake.notify_all();
	}
	void finish()
	{
		std::unique_lock<std::mutex> l(m);
		done.wait(l, [&] { return busy == 0; });
	}
};
Pool *pool_new(int helpers)
{
	Pool *p = new Pool(); // never freed: its threads wait until the program ends
	p->helpers = helpers;
	for (int i = 0; i < helpers; i++)
		std::thread([p, i] { p->help(i); }).detach();
	return p;
}
static Pool *shared;
Pool *pool_shared()
{
	if (!shared) {
		shared = pool_new(settings.threads - 1);
		pthread_atfork(nullptr, nullptr, [] { shared = pool_new(0); }); // a child has no helpers
	}
	return shared;
}

static size_t block_at(const Grid &g, size_t i)
{ // the order of blocks: forward, reverse, or a stride coprime to their number
	if (settings.order == Order::forward)
		return i;
	if (settings.order == Order::reverse)
		return g.blocks - 1 - i;
	size_t step = 0x9e3779b1u % g.blocks;
	for (step |= 1; std::__gcd(step, g.blocks) != 1; step++) {
	}
	return (i * step + settings.seed) % g.blocks;
}
#ifndef CUEMU_TSAN
static double now_us()
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}
constexpr double WAKE_US = 30; // waking a helper and waiting for it costs about half of this
#endif

void pool_grid(Pool *p, const Grid &g)
{
#ifdef CUEMU_TSAN
	std::function<void(int)> job = [&](int helper) {
		grid_begin(false);
		for (size_t i = (size_t)helper; i < g.blocks; i += (size_t)p->helpers)
			run_block(g, block_at(g, i));
		grid_end();
	};
	p->start(job);
	p->finish();
#else
	std::atomic<size_t> next{0};
	auto work = [&](size_t most) {
		for (size_t i; most-- && (i = next.fetch_add(1, std::memory_order_relaxed)) < g.blocks;)
			run_block(g, block_at(g, i));
	};
	std::function<void(int)> job = [&](int) {
		grid_begin(false);
		work(SIZE_MAX);
		grid_end();
	};
	grid_begin(true);
	double start = now_us();
	work(1);
	bool split = p->helpers && g.blocks > 1 && (now_us() - start) * (double)(g.blocks - 1) > WAKE_US;
	if (split)
		p->start(job);
	work(SIZE_MAX);
	grid_end();
	if (split)
		p->finish();
#endif
}

void pool_for(Pool *p, size_t n, const std::function<void(size_t)> &fn)
{
	std::atomic<size_t> next{0};
	std::function<void(int)> job = [&](int) {
		for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;)
			fn(i);
	};
	bool split = p->helpers && n > 1;
	if (split)
		p->start(job);
	job(0);
	if (split)
		p->finish();
}
} // namespace cuemu
