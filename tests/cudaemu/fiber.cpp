// fiber.cpp: one block of CUDA threads on one OS thread. A thread starts on a stack that is free; if it ends without meeting a
// barrier the next one starts on the same stack, so a kernel without barriers is a plain loop. A thread that has to wait leaves
// its stack by a switch of seven registers straight to another runnable thread. Ready masks instead of polling: a deadlock shows
// as "nobody can run" and is reported with who waits where. Owns: stacks, warps and rounds, barriers, asynchronous copies,
// thread-local variables as shared memory. Leaves out: which block runs where (pool.cpp), what a tensor map says (tma.cpp). Compile without sanitizers'
// instrumentation, with CUEMU_TSAN or CUEMU_ASAN when the kernels have it.
#define CUEMU_SETS_INDICES
#include "state.h"
#include "tma.h"

#include <link.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <vector>

#ifdef CUEMU_ASAN
extern "C" {
void __sanitizer_start_switch_fiber(void **, const void *, size_t);
void __sanitizer_finish_switch_fiber(void *, const void **, size_t *);
void __asan_poison_memory_region(const volatile void *, size_t);
void __asan_unpoison_memory_region(const volatile void *, size_t);
}
#endif

alignas(128) thread_local unsigned char smem_raw[cuemu::SHARED_MAX];
__thread uint3 threadIdx, blockIdx, blockDim, gridDim;

// ---- stacks
// ---------------------------------------------------------------------------------------------------------------------------------
#if defined(__x86_64__) && !defined(CUEMU_UCONTEXT)
extern "C" void cuemu_switch(void **save, void *to);
asm(R"(
.text
.globl cuemu_switch
.type cuemu_switch,@function
cuemu_switch:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp,(%rdi)
	movq %rsi,%rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
.size cuemu_switch,.-cuemu_switch
)");
#else
#define CUEMU_UCONTEXT 1
#include <ucontext.h>
#endif

namespace cuemu
{
#if defined(CUEMU_TSAN) || defined(CUEMU_ASAN)
constexpr size_t STACK = 256 * 1024;
#else
constexpr size_t STACK = 64 * 1024;
#endif
constexpr int MEETINGS = 33; // a lane stands in at most one and a mask needs a lane: there is always a free one
constexpr int BARRIERS = 16, MBARRIERS = 64, BOXES = 64, MAPS = 64; // the last: tensor maps in device memory that a block uses
#if defined(CUEMU_TSAN) || defined(CUEMU_ASAN)
constexpr bool FILL_LOCALS = false; // sanitizers' runtimes may keep thread-local variables of their own among the program's
#else
constexpr bool FILL_LOCALS = true;
#endif

struct Meeting;
struct Context { // a stack and what runs on it
	void *sp;
	char *stack; // lowest address; a guard page stands below
	void *tsan, *fake;
#ifdef CUEMU_UCONTEXT
	ucontext_t uc;
#endif
};
struct Copy {
	void *to;
	const void *from;
	size_t n, zfill;
	int group;
};
struct alignas(64) Thread { // what every switch needs in the first 64 bytes
	Context *context;
	Meeting *last; // the meeting it was in last: its slots are read until the next one
	const char *what; // what it waits for; NULL: nothing
	Where where;
	uint32_t mask;
	int group;
	uint3 index;
	std::vector<Copy> copies;
	const float *product_of; // accumulators of its products under way; NULL: none
	float product[64];
};
struct Meeting {                               // lanes of one warp with one mask
	uint32_t mask, arrived, unread, of[2]; // unread: lanes that may still read their slots of the last round
	unsigned turn;
	const char *what;
	Where where;
	Fold fold;
	alignas(64) unsigned char slot[2][32 * SLOT];
};
struct Warp {
	uint32_t ready, fresh, alive; // fresh: not started; a subset of ready
	int meetings;
	Meeting meeting[MEETINGS];
};
struct Barrier {
	int arrived, need, predicate, result;
	unsigned turn;
	const char *what;
	Where where;
	int token[2];
	uint32_t waiting[WARPS_MAX]; // lanes of each warp
};
struct Mbarrier { // an mbarrier object of the block's shared memory
	uint64_t *at;
	int arrivals, missing; // of each phase; of this one
	int64_t bytes;         // expected and not there
	unsigned phase;
	int token[2];
	uint32_t waiting[WARPS_MAX];
};
struct Box { // a copy of cp.async.bulk.tensor on its way
	TensorMap map;
	int32_t at[5];
	unsigned char *to;
	Mbarrier *bar; // NULL: no box
	int told;      // TSan: what its thread did before
};
struct Worker {
	Thread thread[THREADS_MAX];
	Warp warp[WARPS_MAX];
	Barrier barrier[BARRIERS];
	Mbarrier mbarrier[MBARRIERS];
	Box box[BOXES];
	const void *acquired[MAPS]; // by fence.proxy.tensormap
	int mbarriers, boxes, maps; // arrays, since TSan would see a thread allocate what another frees
	Context host;
	std::vector<Context *> idle; // parked stacks, the warmest last
	Context *own[THREADS_MAX];   // TSan: of each thread of blocks that are watched
	uint32_t ready_warps;
	int current, warps, alive, contexts;
	uint64_t random;
	dim3 shape; // block shape that the indices were made for
	const Grid *grid;
	int token_start, token_end; // TSan: a block comes after the one before on this OS thread, since both use its memory ...
	void *relay;                // ... told from one to the other by a context that knows nothing else
	void *unwatched;            // the one context of all threads of a block that is not watched
	std::vector<char> kept; // thread-local variables of the OS thread, while a grid runs
};
struct Locals {
	Worker *worker;
	bool blind; // TSan: this block is run without being watched
	char *base; // of this OS thread's thread-local block
	bool in_kernel;
};
static thread_local Locals tls;

bool in_kernel()
{
	return tls.in_kernel;
}

static void describe(char *out, size_t n)
{
	if (tls.in_kernel)
		snprintf(out, n, "block (%u,%u,%u) thread (%u,%u,%u)", blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x,
			threadIdx.y, threadIdx.z);
	else
		snprintf(out, n, "host code");
}
const char *where_in_kernel()
{
	static thread_local char b[128];
	describe(b, sizeof b);
	return b;
}
void die(const std::string &what)
{
	fflush(stdout);
	fprintf(stderr, "cudaemu: %s\n  in %s\n", what.c_str(), where_in_kernel());
	fflush(stderr);
	abort();
}
void trap(const char *why)
{
	die(why);
}

#ifdef CUEMU_TSAN
static void *first_context = __tsan_create_fiber(0); // the parent of all parents; made before main
static void *context_from(void *parent)
{
	void *here = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(parent, 1);
	void *c = __tsan_create_fiber(0);
	__tsan_switch_to_fiber(here, 1);
	return c;
}
void *context_clean()
{
	static std::atomic_flag busy = ATOMIC_FLAG_INIT;
	static thread_local void *parent; // of this OS thread: a context is on one of them at a time
	if (!parent) {
		while (busy.test_and_set(std::memory_order_acquire))
			sched_yield();
		parent = context_from(first_context);
		busy.clear(std::memory_order_release);
	}
	return context_from(parent);
}
#endif
// TSan: each thread of a block that is watched has a stack and a context for itself.
static inline bool own_stacks()
{
#ifdef CUEMU_TSAN
	return !tls.blind;
#else
	return false;
#endif
}
static void context_main(void);
static void context_reset(Context *c, int number)
{
#ifdef CUEMU_UCONTEXT
	(void)number;
	getcontext(&c->uc);
	c->uc.uc_stack.ss_sp = c->stack;
	c->uc.uc_stack.ss_size = STACK;
	c->uc.uc_link = nullptr;
	makecontext(&c->uc, context_main, 0);
#else
	// spread over the cache sets: stacks lie a multiple of a page apart
	void **s = (void **)(c->stack + STACK - (size_t)(number * 5 % 64) * 64);
	*--s = nullptr; // keeps the stack aligned for a function's entry
	*--s = (void *)context_main;
	s -= 6;
	c->sp = s;
#endif
}
static Context *context_new(Worker *k)
{
	Context *c = new Context();
	char *m = (char *)mmap(nullptr, STACK + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m == MAP_FAILED)
		die("no memory for another stack");
	mprotect(m, 4096, PROT_NONE); // a kernel with too large local arrays faults
	c->stack = m + 4096;
#ifdef CUEMU_TSAN
	if (own_stacks())
		c->tsan = context_clean();
#endif
	context_reset(c, k->contexts++);
	return c;
}
static inline void jump(Context *from, Context *to, bool ends = false)
{
#ifdef CUEMU_TSAN
	if (!tls.blind)
		__tsan_switch_to_fiber(to->tsan, 1); // 1: the switch orders nothing
#endif
#ifdef CUEMU_ASAN
	__sanitizer_start_switch_fiber(ends ? nullptr : &from->fake, to->stack, STACK);
#endif
	(void)ends;
#ifdef CUEMU_UCONTEXT
	swapcontext(&from->uc, &to->uc);
#else
	cuemu_switch(&from->sp, to->sp);
#endif
#ifdef CUEMU_ASAN
	const void *bottom;
	size_t size;
	__sanitizer_finish_switch_fiber(from->fake, &bottom, &size);
#endif
}

static inline void acquire(void *token)
{
	if (!tls.blind)
		TSAN_ACQUIRE(token);
}
static inline void release(void *token)
{
	if (!tls.blind)
		TSAN_RELEASE(token);
}

// ---- who runs next
// ----------------------------------------------------------------------------------------------------------------------------
static inline int nth_bit(uint32_t m, int n)
{
	for (; n; n--)
		m &= m - 1;
	return __builtin_ctz(m);
}
static inline uint32_t next_random(Worker *k)
{
	k->random = k->random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(k->random >> 33);
}
static int pick_ready(Worker *k)
{ // a runnable thread of this block, or -1
	int w = k->current >> 5;
	if (settings.order == Order::forward) {
		uint32_t r = k->warp[w].ready;
		if (!r) {
			if (!k->ready_warps)
				return -1;
			w = __builtin_ctz(k->ready_warps);
			r = k->warp[w].ready;
		}
		return w * 32 + __builtin_ctz(r);
	}
	if (!k->ready_warps)
		return -1;
	if (settings.order == Order::reverse) {
		w = 31 - __builtin_clz(k->ready_warps);
		return w * 32 + 31 - __builtin_clz(k->warp[w].ready);
	}
	uint32_t x = next_random(k);
	w = nth_bit(k->ready_warps, (int)(x % (unsigned)__builtin_popcount(k->ready_warps)));
	uint32_t r = k->warp[w].ready;
	return w * 32 + nth_bit(r, (int)((x >> 8) % (unsigned)__builtin_popcount(r)));
}
static bool box_arrives(Worker *k);
static __attribute__((noinline)) int pick_any(Worker *k)
{ // the same, after boxes that are waited for have arrived where nobody could run
	int i = pick_ready(k);
	while (i < 0 && box_arrives(k))
		i = pick_ready(k);
	return i;
}
static inline int pick(Worker *k)
{ // mostly the next lane of the same warp
	int w = k->current >> 5;
	uint32_t r = k->warp[w].ready;
	return __builtin_expect(r && settings.order == Order::forward, 1) ? w * 32 + __builtin_ctz(r) : pick_any(k);
}
static inline void set_ready(Worker *k, int w, uint32_t lanes)
{
	k->warp[w].ready |= lanes;
	if (k->warp[w].ready)
		k->ready_warps |= 1u << w;
}
static inline void clear_ready(Worker *k, int t)
{
	uint32_t &r = k->warp[t >> 5].ready;
	r &= ~(1u << (t & 31));
	if (!r)
		k->ready_warps &= ~(1u << (t >> 5));
}

static void deadlock(Worker *k)
{
	std::map<std::string, std::string> groups; // what and where -> threads
	for (int t = 0; t < k->warps * 32; t++) {
		Warp &w = k->warp[t >> 5];
		Thread &h = k->thread[t];
		if (!(w.alive >> (t & 31) & 1))
			continue;
		char key[512];
		int n = snprintf(key, sizeof key, "%s at %s:%d", h.what ? h.what : "running", h.where.file ? h.where.file : "?",
			h.where.line);
		if (h.mask)
			snprintf(key + n, sizeof key - (size_t)n, ", mask %08x", h.mask);
		std::string &list = groups[key];
		if ((t & 31) == 0 || list.empty() || list.find("warp " + std::to_string(t >> 5) + " ") == std::string::npos) {
			uint32_t lanes = 0; // all lanes of this warp that wait at the same place
			for (int l = 0; l < 32; l++) {
				Thread &o = k->thread[(t & ~31) + l];
				if ((w.alive >> l & 1) && o.what == h.what && o.where.line == h.where.line &&
					o.where.file == h.where.file && o.mask == h.mask)
					lanes |= 1u << l;
			}
			char b[64];
			snprintf(b, sizeof b, "    warp %d lanes %08x\n", t >> 5, lanes);
			list += b;
		}
	}
	fflush(stdout);
	fprintf(stderr, "cudaemu: deadlock in block (%u,%u,%u): nobody can run; %d of %u threads have not left the kernel\n",
		blockIdx.x, blockIdx.y, blockIdx.z, k->alive, blockDim.x * blockDim.y * blockDim.z);
	for (auto &g : groups)
		fprintf(stderr, "  waiting in %s\n%s", g.first.c_str(), g.second.c_str());
	for (int i = 0; i < k->mbarriers; i++)
		fprintf(stderr, "  mbarrier %d, phase %u: %d arrivals and %lld bytes are missing\n", i, k->mbarrier[i].phase,
			k->mbarrier[i].missing, (long long)k->mbarrier[i].bytes);
	die("deadlock");
}

static Context *context_for(Worker *k, int t)
{ // a stack for a thread that has not started
	if (own_stacks()) {
		if (!k->own[t])
			k->own[t] = context_new(k);
		return k->own[t];
	}
	if (k->idle.empty())
		return context_new(k);
	Context *c = k->idle.back();
	k->idle.pop_back();
	return c;
}
static inline void enter(Worker *k, int t)
{
	k->current = t;
	threadIdx = k->thread[t].index;
	uint32_t bit = 1u << (t & 31);
	if (k->warp[t >> 5].fresh & bit) {
		k->warp[t >> 5].fresh &= ~bit;
		k->thread[t].context = context_for(k, t);
	}
}
// The running thread has registered what it waits for: the next one takes over.
static inline void wait_here(Worker *k, const char *what, Where where, uint32_t mask)
{
	int me = k->current;
	Thread &t = k->thread[me];
	t.what = what;
	t.where = where;
	t.mask = mask;
	clear_ready(k, me);
	int i = pick(k);
	if (__builtin_expect(i < 0, 0))
		deadlock(k);
	enter(k, i);
	if (i != me) // a box has arrived that this very thread waits for
		jump(t.context, k->thread[i].context);
}

// ---- meetings of a warp
// -----------------------------------------------------------------------------------------------------------------------
static inline bool meeting_done(Worker *k, int w, Meeting &m)
{ // complete it if all that live have come
	uint32_t of = m.mask & k->warp[w].alive;
	if (!m.arrived || m.arrived != of)
		return false;
	unsigned b = m.turn & 1;
	m.of[b] = of;
	if (m.fold)
		m.fold(m.slot[b], of);
	m.arrived = 0;
	m.unread = of;
	m.turn++;
	set_ready(k, w, of);
	return true;
}
// The entry of a mask. One is given to another mask when nobody stands in it and all lanes have taken what they came for.
static Meeting &meeting_of(Warp &w, uint32_t mask)
{
	int free = -1;
	for (int i = 0; i < w.meetings; i++) {
		if (w.meeting[i].mask == mask)
			return w.meeting[i];
		if (!w.meeting[i].arrived && !(w.meeting[i].unread & w.alive))
			free = i;
	}
	if (free < 0)
		free = w.meetings++;
	Meeting &m = w.meeting[free];
	m.mask = mask;
	m.arrived = m.unread = 0;
	m.turn = 0;
	return m;
}
// put: writes what the lane hands in into its slot, by constant sizes: a call of memcpy would be seen by TSan.
template <class Put> static inline Round meet(uint32_t mask, const char *what, Where where, bool fence, Fold fold, Put put)
{
	Worker *k = tls.worker;
	if (__builtin_expect(!tls.in_kernel, 0))
		die(std::string(what) + " outside a kernel");
	int t = k->current, wi = t >> 5;
	Warp &w = k->warp[wi];
	uint32_t bit = 1u << (t & 31);
	if (__builtin_expect(!(mask & bit), 0))
		die(std::string(what) + ": the calling lane is not in its own mask");
	Thread &me = k->thread[t];
	if (me.last)
		me.last->unread &= ~bit;
	Meeting &m = w.meetings && w.meeting[0].mask == mask ? w.meeting[0] : meeting_of(w, mask);
	me.last = &m;
	if (__builtin_expect(m.arrived && (m.where.line != where.line || m.what != what), 0)) {
		fprintf(stderr, "cudaemu: lanes of one warp meet in different places: %s at %s:%d and %s at %s:%d, mask %08x\n",
			m.what, m.where.file, m.where.line, what, where.file, where.line, mask);
		die("divergent warp operation");
	}
	unsigned b = m.turn & 1;
	put(m.slot[b] + (t & 31) * SLOT);
	if (!m.arrived) {
		m.what = what;
		m.where = where;
		m.fold = fold;
	}
	m.arrived |= bit;
	if (fence)
		release(m.slot[b]); // by parity: the next round must not order this one
	if (!meeting_done(k, wi, m))
		wait_here(k, what, where, mask);
	if (fence)
		acquire(m.slot[b]);
	return {m.slot[b], m.of[b]};
}
void meet_fence(uint32_t mask, const char *what, Where where)
{
	meet(mask, what, where, true, nullptr, [](unsigned char *) {});
}
Round meet8(uint32_t mask, uint64_t value, const char *what, Where where, Fold fold)
{
	return meet(mask, what, where, false, fold, [=](unsigned char *slot) { __builtin_memcpy(slot, &value, 8); });
}
uint64_t slot_word(Round r, unsigned lane, size_t at)
{
	if (!(r.mask >> lane & 1))
		die("a shuffle reads a lane that is not in the mask or has left the kernel");
	uint64_t word;
	__builtin_memcpy(&word, r.buf + lane * SLOT + at, 8);
	return word;
}

template <class T> static inline T slot_in(const unsigned char *buf, int l)
{
	T v;
	__builtin_memcpy(&v, buf + l * SLOT, sizeof v);
	return v;
}
template <class T, class F> static inline void fold_(unsigned char *buf, uint32_t mask, F f)
{ // one result for all lanes
	T r = slot_in<T>(buf, __builtin_ctz(mask));
	for (uint32_t m = mask & (mask - 1); m; m &= m - 1)
		r = f(r, slot_in<T>(buf, __builtin_ctz(m)));
	for (uint32_t m = mask; m; m &= m - 1)
		__builtin_memcpy(buf + __builtin_ctz(m) * SLOT + RESULT, &r, sizeof r);
}
void fold_ballot(unsigned char *buf, uint32_t mask)
{
	uint32_t r = 0;
	for (uint32_t m = mask; m; m &= m - 1)
		r |= slot_in<uint32_t>(buf, __builtin_ctz(m)) << __builtin_ctz(m);
	for (uint32_t m = mask; m; m &= m - 1)
		__builtin_memcpy(buf + __builtin_ctz(m) * SLOT + RESULT, &r, 4);
}
void fold_match(unsigned char *buf, uint32_t mask)
{
	for (uint32_t m = mask; m; m &= m - 1) {
		int l = __builtin_ctz(m);
		uint32_t r = 0;
		for (uint32_t n = mask; n; n &= n - 1)
			if (slot_in<uint64_t>(buf, l) == slot_in<uint64_t>(buf, __builtin_ctz(n)))
				r |= 1u << __builtin_ctz(n);
		__builtin_memcpy(buf + l * SLOT + RESULT, &r, 4);
	}
}
void fold_add(unsigned char *b, uint32_t m)
{
	fold_<uint32_t>(b, m, [](uint32_t x, uint32_t y) { return x + y; });
}
void fold_and(unsigned char *b, uint32_t m)
{
	fold_<uint32_t>(b, m, [](uint32_t x, uint32_t y) { return x & y; });
}
void fold_or(unsigned char *b, uint32_t m)
{
	fold_<uint32_t>(b, m, [](uint32_t x, uint32_t y) { return x | y; });
}
void fold_xor(unsigned char *b, uint32_t m)
{
	fold_<uint32_t>(b, m, [](uint32_t x, uint32_t y) { return x ^ y; });
}
void fold_min_s(unsigned char *b, uint32_t m)
{
	fold_<int32_t>(b, m, [](int32_t x, int32_t y) { return x < y ? x : y; });
}
void fold_max_s(unsigned char *b, uint32_t m)
{
	fold_<int32_t>(b, m, [](int32_t x, int32_t y) { return x > y ? x : y; });
}
void fold_min_u(unsigned char *b, uint32_t m)
{
	fold_<uint32_t>(b, m, [](uint32_t x, uint32_t y) { return x < y ? x : y; });
}
void fold_max_u(unsigned char *b, uint32_t m)
{
	fold_<uint32_t>(b, m, [](uint32_t x, uint32_t y) { return x > y ? x : y; });
}

// The whole warp's product: A [16][16], B [16][8], D [16][8] out of the slots (layout: cuemu/ptx.h; a 0..15, b 16..23, d 32..47; result from RESULT), k
// in ascending order, fp32 sums.
typedef float v8 __attribute__((vector_size(32), may_alias, aligned(4)));
static inline void unpack(float *lo, float *hi, uint32_t u)
{
	uint32_t a = u << 16, b = u & 0xffff0000u;
	__builtin_memcpy(lo, &a, 4);
	__builtin_memcpy(hi, &b, 4);
}
static void fold_mma_bf16(unsigned char *buf, uint32_t mask)
{
	if (mask != 0xffffffffu)
		die("mma.sync: not all lanes of the warp are there");
	float A[16][16], B[16][8];
	v8 D[16];
	for (int l = 0; l < 32; l++) {
		int g = l >> 2, t = l & 3;
		uint32_t w[6];
		__builtin_memcpy(w, buf + l * SLOT, 24);
		for (int i = 0; i < 4; i++) { // a[0] row g, a[1] row g+8, a[2], a[3] the same with columns + 8
			float *p = &A[g + 8 * (i & 1)][2 * t + 8 * (i >> 1)];
			unpack(p, p + 1, w[i]);
		}
		for (int i = 0; i < 2; i++)
			unpack(&B[2 * t + 8 * i][g], &B[2 * t + 8 * i + 1][g], w[4 + i]);
		float *d = (float *)&D[g] + 2 * t, *e = (float *)&D[g + 8] + 2 * t;
		__builtin_memcpy(d, buf + l * SLOT + 32, 8);
		__builtin_memcpy(e, buf + l * SLOT + 40, 8);
	}
	for (int r = 0; r < 16; r += 4)
		for (int kk = 0; kk < 16; kk++) {
			v8 b = *(const v8 *)B[kk];
			for (int i = 0; i < 4; i++)
				D[r + i] += A[r + i][kk] * b;
		}
	for (int l = 0; l < 32; l++) {
		int g = l >> 2, t = l & 3;
		__builtin_memcpy(buf + l * SLOT + RESULT, (float *)&D[g] + 2 * t, 8);
		__builtin_memcpy(buf + l * SLOT + RESULT + 8, (float *)&D[g + 8] + 2 * t, 8);
	}
}

F4 mma_(F4 d, U4 a, uint64_t b, Where where)
{
	Round r = meet(0xffffffffu, "mma.sync", where, false, fold_mma_bf16, [=](unsigned char *slot) {
		__builtin_memcpy(slot, &a, 16);
		__builtin_memcpy(slot + 16, &b, 8);
		__builtin_memcpy(slot + 32, &d, 16);
	});
	__builtin_memcpy(&d, r.buf + (tls.worker->current & 31) * SLOT + RESULT, 16);
	return d;
}
U4 ldmatrix_(U4 row, int matrices, bool trans, Where where)
{
	Round r = meet(0xffffffffu, "ldmatrix", where, false, nullptr, [=](unsigned char *slot) { __builtin_memcpy(slot, &row, 16); });
	int l = tls.worker->current & 31;
	U4 out = {};
	for (int i = 0; i < matrices; i++)
		if (trans) // rows 2(l % 4) and the next, of column l / 4
			out[i] = (uint32_t)slot_in<uint16_t>(r.buf + 2 * (l >> 2), 8 * i + 2 * (l & 3)) |
				 (uint32_t)slot_in<uint16_t>(r.buf + 2 * (l >> 2), 8 * i + 2 * (l & 3) + 1) << 16;
		else
			out[i] = slot_in<uint32_t>(r.buf + 4 * (l & 3), 8 * i + (l >> 2));
	return out;
}

// ---- barriers of a block
// ------------------------------------------------------------------------------------------------------------------------
static bool barrier_done(Worker *k, Barrier &b)
{
	int need = b.need ? b.need : k->alive; // __syncthreads: all that have not left the kernel
	if (!b.arrived || b.arrived < need)
		return false;
	for (int w = 0; w < k->warps; w++) {
		if (b.waiting[w])
			set_ready(k, w, b.waiting[w]);
		*(volatile uint32_t *)&b.waiting[w] = 0; // no library call: TSan would see it
	}
	b.result = b.predicate;
	b.arrived = b.predicate = 0;
	b.turn++;
	return true;
}
// wait = false: bar.arrive
static int barrier_wait(int id, int need, int predicate, Where where, const char *what, bool wait = true)
{
	Worker *k = tls.worker;
	if (!tls.in_kernel)
		die(std::string(what) + " outside a kernel");
	Barrier &b = k->barrier[id];
	if (b.arrived && id == 0 && (b.where.line != where.line || b.where.file != where.file)) {
		fprintf(stderr, "cudaemu: threads of one block wait at different barriers: %s:%d and %s:%d\n", b.where.file,
			b.where.line, where.file, where.line);
		die("barrier in divergent code");
	}
	b.where = where;
	b.need = need;
	b.arrived++;
	b.predicate += predicate;
	int *token = &b.token[b.turn & 1];
	release(token);
	if (!wait) {
		barrier_done(k, b);
		return 0;
	}
	b.waiting[k->current >> 5] |= 1u << (k->current & 31);
	if (!barrier_done(k, b))
		wait_here(k, what, where, 0);
	acquire(token);
	return b.result;
}
int sync_block(int predicate, Where where, const char *what)
{
	return barrier_wait(0, 0, predicate, where, what);
}
static void bar_check(int id, int threads)
{
	if (id < 0 || id >= BARRIERS || threads <= 0 || threads % 32)
		die("bar.sync, bar.arrive: id 0 to 15, threads a multiple of 32");
	const Barrier &b = tls.worker->barrier[id];
	if (b.arrived && b.need != threads)
		die("bar.sync, bar.arrive: threads that meet at one barrier expect different numbers of them");
}
int bar_sync_(int id, int threads, Where where)
{
	bar_check(id, threads);
	return barrier_wait(id, threads, 0, where, "bar.sync");
}
void bar_arrive_(int id, int threads, Where where)
{
	bar_check(id, threads);
	barrier_wait(id, threads, 0, where, "bar.arrive", false);
}
void fence_device()
{
	static int token;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	release(&token);
	acquire(&token);
}

// ---- asynchronous copies: done at the wait, so that a missing wait shows
// -----------------------------------------------------------------------
void cp_async(void *shared, const void *global, size_t n, size_t zfill)
{
	if ((n != 4 && n != 8 && n != 16) || (((uintptr_t)shared | (uintptr_t)global) & (n - 1)) || zfill > n)
		die("cp.async: size must be 4, 8 or 16, both addresses aligned to it");
	memset(shared, 0xff, n);
	Thread &t = tls.worker->thread[tls.worker->current];
	t.copies.push_back({shared, global, n, zfill, t.group});
}
void cp_async_commit()
{
	tls.worker->thread[tls.worker->current].group++;
}
void cp_async_wait(int keep)
{
	Thread &t = tls.worker->thread[tls.worker->current];
	size_t i = 0;
	for (; i < t.copies.size() && t.copies[i].group < t.group - keep; i++) {
		Copy &c = t.copies[i];
		memcpy(c.to, c.from, c.n - c.zfill);
		memset((char *)c.to + c.n - c.zfill, 0, c.zfill);
	}
	t.copies.erase(t.copies.begin(), t.copies.begin() + (long)i);
}

// ---- mbarriers and boxes (cuemu/tma.h): a box is NaN from its instruction on and arrives as late as can be: when nobody can
// run and somebody waits for its barrier. Which of several comes first: by the seed.
// -----------------------------------------------------------------------------------------------------------------------------
constexpr int64_t BYTES_MAX = (1 << 20) - 1; // of an mbarrier's transaction count
static void mbar_touched(const void *bar, bool write)
{ // TSan: operations on a barrier do not race with each other, but with its making and with plain accesses
#ifdef CUEMU_TSAN
	if (!tls.blind)
		(write ? __tsan_write_range : __tsan_read_range)((void *)bar, 8);
#endif
	(void)bar, (void)write;
}
static Mbarrier &mbar_at(const uint64_t *bar)
{
	Worker *k = tls.worker;
	if (!tls.in_kernel)
		die("an mbarrier outside a kernel");
	for (int i = 0; i < k->mbarriers; i++)
		if (k->mbarrier[i].at == bar) {
			mbar_touched(bar, false);
			if (*bar != (uint64_t)(uintptr_t)bar)
				die("an mbarrier was overwritten");
			return k->mbarrier[i];
		}
	die("an mbarrier that was not initialised");
}
void mbar_init(uint64_t *bar, unsigned arrivals)
{
	Worker *k = tls.worker;
	if (!tls.in_kernel || (uintptr_t)bar % 8 || arrivals < 1 || arrivals >= 1 << 20)
		die("mbarrier.init: in a kernel, at a multiple of 8 bytes, 1 to 2^20 - 1 arrivals");
	for (int i = 0; i < k->mbarriers; i++)
		if (k->mbarrier[i].at == bar)
			die("mbarrier.init: an mbarrier that is in use");
	if (k->mbarriers == MBARRIERS)
		die("mbarrier.init: too many mbarriers");
	Mbarrier &b = k->mbarrier[k->mbarriers++];
	b.at = bar;
	b.arrivals = b.missing = (int)arrivals;
	b.bytes = b.phase = 0;
	std::fill_n(b.waiting, WARPS_MAX, 0u);
	mbar_touched(bar, true);
	*bar = (uint64_t)(uintptr_t)bar;
}
static void mbar_settle(Worker *k, Mbarrier &b)
{ // ends the phase if all is there
	if (b.missing || b.bytes)
		return;
	b.missing = b.arrivals;
	b.phase++;
	for (int w = 0; w < k->warps; w++) {
		if (b.waiting[w])
			set_ready(k, w, b.waiting[w]);
		*(volatile uint32_t *)&b.waiting[w] = 0; // no library call: TSan would see it
	}
}
void mbar_arrive(uint64_t *bar, unsigned bytes)
{
	Mbarrier &b = mbar_at(bar);
	if (b.missing == 0)
		die("mbarrier.arrive: more arrivals in a phase than the mbarrier was made for");
	if (bytes > BYTES_MAX || b.bytes + bytes > BYTES_MAX)
		die("mbarrier.arrive.expect_tx: more than 2^20 - 1 bytes");
	release(&b.token[b.phase & 1]);
	b.missing--;
	b.bytes += bytes;
	mbar_settle(tls.worker, b);
}
void mbar_wait_(uint64_t *bar, unsigned parity, Where where)
{
	Worker *k = tls.worker;
	Mbarrier &b = mbar_at(bar);
	if (parity > 1)
		die("mbarrier.try_wait.parity: 0 or 1");
	while ((b.phase & 1) == parity) {
		b.waiting[k->current >> 5] |= 1u << (k->current & 31);
		wait_here(k, "mbarrier.try_wait", where, 0);
	}
	acquire(&b.token[parity]);
}
void map_acquire(const void *map)
{
	Worker *k = tls.worker;
	if (k->maps == MAPS)
		die("fence.proxy.tensormap: too many maps");
	k->acquired[k->maps++] = map;
}
static Box &box_new(Worker *k)
{
	for (Box &x : k->box)
		if (!x.bar) {
			k->boxes++;
			return x;
		}
	die("cp.async.bulk.tensor: too many copies on their way");
}
void box_copy(void *shared, const void *map, const int32_t *at, int rank, uint64_t *bar)
{
	Worker *k = tls.worker;
	Mbarrier &b = mbar_at(bar);
	TensorMap m = map_read(map);
	if (memory_find(map) && std::find(k->acquired, k->acquired + k->maps, map) == k->acquired + k->maps)
		die("cp.async.bulk.tensor: a tensor map in device memory without fence.proxy.tensormap in this block");
	if (m.rank != rank)
		die("cp.async.bulk.tensor: the map has another number of dimensions");
	if (shared_address(shared) % box_align(m))
		die("cp.async.bulk.tensor: shared memory that is not aligned for the swizzle (or to 128 bytes)");
	shared_at(shared_address(shared), box_bytes(m));
	memset(shared, 0xff, box_bytes(m));
	Box &x = box_new(k);
	x.map = m;
	x.to = (unsigned char *)shared;
	x.bar = &b;
	for (int i = 0; i < rank; i++)
		*(volatile int32_t *)&x.at[i] = at[i]; // no library call, as above
	release(&x.told);
}
// Writes one box in a context of its own: who has not waited for its barrier comes after nothing of it.
static void box_write(Box &x)
{
#ifdef CUEMU_TSAN
	void *here = tls.blind ? nullptr : __tsan_get_current_fiber(), *engine = nullptr;
	if (here) {
		engine = context_clean();
		__tsan_switch_to_fiber(engine, 1);
	}
	acquire(&x.told);
#endif
	box_land(x.map, x.at, x.to, shared_address(x.to));
	release(&x.bar->token[x.bar->phase & 1]);
#ifdef CUEMU_TSAN
	if (here) {
		__tsan_switch_to_fiber(here, 1);
		__tsan_destroy_fiber(engine);
	}
#endif
}
static bool box_awaited(const Worker *k, const Box &x)
{
	return x.bar && std::any_of(x.bar->waiting, x.bar->waiting + k->warps, [](uint32_t w) { return w; });
}
static bool box_arrives(Worker *k)
{
	int awaited = 0;
	Box *x = nullptr;
	for (int i = 0; i < BOXES && k->boxes; i++)
		if (box_awaited(k, k->box[i]) && next_random(k) % (unsigned)++awaited == 0)
			x = &k->box[i]; // each with the same chance
	if (!x)
		return false;
	Mbarrier &b = *x->bar;
	b.bytes -= (int64_t)box_bytes(x->map);
	if (b.bytes < 0)
		die("cp.async.bulk.tensor: more bytes than its mbarrier was told to expect");
	box_write(*x);
	x->bar = nullptr;
	k->boxes--;
	mbar_settle(k, b);
	return true;
}

// ---- products of a warpgroup (cuemu/wgmma.h)
// -----------------------------------------------------------------------------------------------------------------------------
constexpr uint32_t SHARED_START = 512; // dynamic shared memory begins at an address that is no multiple of 1024
uint32_t shared_address(const void *p)
{
	size_t at = (size_t)((const unsigned char *)p - smem_raw);
	if (at > SHARED_MAX)
		die("an address of dynamic shared memory was expected");
	return SHARED_START + (uint32_t)at;
}
const unsigned char *shared_at(uint32_t address, size_t bytes)
{
	if (address < SHARED_START || address - SHARED_START + bytes > tls.worker->grid->shared_bytes)
		die("wgmma, cp.async.bulk.tensor: outside the block's dynamic shared memory");
	return smem_raw + (address - SHARED_START);
}
float *product_open(const float *d)
{
	Thread &t = tls.worker->thread[tls.worker->current];
	if (t.product_of)
		die("wgmma.fence while products are under way that nobody waited for");
	t.product_of = d;
	return t.product;
}
float *product_of(const float *d, bool close)
{
	Thread &t = tls.worker->thread[tls.worker->current];
	if (t.product_of != d)
		die("wgmma: accumulators without a wgmma.fence before");
	if (close)
		t.product_of = nullptr;
	return t.product;
}

// A warp's part of a product: what its lanes hand in, of which all but the registers and the accumulators must be the same.
struct Wgmma {
	U4 a;
	uint64_t a_rows, b;
	float *sum; // [n / 2]: columns 8j + 2t, 8j + 2t + 1 of row g, then of row g + 8
	int n;
	bool registers, add, b_over_k;
};
static_assert(sizeof(Wgmma) <= SLOT);
// Where element (row, k) of an operand lies, and what follows it up to a multiple of 16 bytes; over_k: the rows in memory run along k (a "transposed"
// B), else along m or n.
static const unsigned char *operand_at(uint64_t operand, int row, int k, bool over_k, size_t bytes)
{
	uint32_t start = (uint32_t)(operand & 0x3fff) << 4, lead = (uint32_t)(operand >> 16 & 0x3fff) << 4,
		 stride = (uint32_t)(operand >> 32 & 0x3fff) << 4;
	if (operand >> 62 != 1 || (operand >> 46 & 0xffff))
		die("wgmma: an operand that is not of 128-byte swizzle, base offset 0");
	uint32_t at = over_k ? start + (uint32_t)(row / 64) * lead + (uint32_t)(row % 64) * 2 + (uint32_t)(k / 8) * stride + (uint32_t)(k % 8) * 128
			     : start + (uint32_t)(row / 8) * stride + (uint32_t)(row % 8) * 128 + (uint32_t)k * 2;
	at ^= (at >> 7 & 7) << 4;
	return shared_at(at, bytes);
}
// TSan: each lane reads what its own elements are made of.
static void operands_touched(const Wgmma &w, int lane, int warp)
{
#ifdef CUEMU_TSAN
	if (tls.blind)
		return;
	auto touch = [](const unsigned char *p, size_t n) { __tsan_read_range((void *)p, n); };
	int g = lane >> 2, t = lane & 3;
	for (int r = 0; r < 2 && !w.registers; r++)
		for (int k = 0; k < 16; k += 8)
			touch(operand_at(w.a_rows, warp % 4 * 16 + g + 8 * r, k, false, 16), 16);
	for (int j = 0; j < w.n; j += 8)
		if (w.b_over_k)
			for (int k = 0; k < 16; k++)
				touch(operand_at(w.b, j + 2 * t, k, true, 4), 4);
		else
			for (int e = 0; e < 2; e++)
				for (int k = 0; k < 16; k += 8)
					touch(operand_at(w.b, j + 2 * t + e, k, false, 16), 16);
#else
	(void)w, (void)lane, (void)warp;
#endif
}
typedef float v16 __attribute__((vector_size(64)));
static void fold_wgmma(unsigned char *buf, uint32_t mask)
{
	constexpr int N = 128;
	int warp = tls.worker->current >> 5 & 3;
	Wgmma lanes[32];
	for (int l = 0; l < 32; l++)
		__builtin_memcpy(&lanes[l], buf + l * SLOT, sizeof *lanes);
	const Wgmma &w = lanes[0];
	for (const Wgmma &o : lanes)
		if (o.a_rows != w.a_rows || o.b != w.b || o.n != w.n || o.registers != w.registers || o.add != w.add || o.b_over_k != w.b_over_k)
			die("wgmma: lanes of one warp name different operands");
	if (mask != 0xffffffffu)
		die("wgmma: not all lanes of the warp are there");
	float A[16][16];
	alignas(64) float B[16][N], D[16][N];
	for (int r = 0; r < 16; r++)
		for (int k = 0; k < 16; k += 8)
			if (w.registers) // register 0: row g, columns 2t, 2t + 1; 1: row g + 8; 2, 3: columns + 8
				for (int t = 0; t < 4; t++)
					unpack(&A[r][k + 2 * t], &A[r][k + 2 * t + 1], lanes[r % 8 * 4 + t].a[r / 8 + k / 8 * 2]);
			else
				for (int i = 0; i < 4; i++)
					unpack(&A[r][k + 2 * i], &A[r][k + 2 * i + 1],
						slot_in<uint32_t>(operand_at(w.a_rows, warp * 16 + r, k, false, 16) + 4 * i, 0));
	for (int j = 0; j < w.n; j += 8)
		for (int i = 0; i < 8; i++)
			if (w.b_over_k)
				for (int k = 0; k < 2; k++) {
					const unsigned char *p = operand_at(w.b, j, 2 * i + k, true, 16);
					for (int c = 0; c < 8; c += 2)
						unpack(&B[2 * i + k][j + c], &B[2 * i + k][j + c + 1], slot_in<uint32_t>(p + 2 * c, 0));
				}
			else
				for (int k = 0; k < 16; k += 8) {
					const unsigned char *p = operand_at(w.b, j + i, k, false, 16);
					for (int c = 0; c < 8; c += 2)
						unpack(&B[k + c][j + i], &B[k + c + 1][j + i], slot_in<uint32_t>(p + 2 * c, 0));
				}
	for (int l = 0; l < 32; l++)
		for (int j = 0; j < w.n / 2; j++) {
			float *d = &D[(l >> 2) + (j & 2) * 4][j / 4 * 8 + 2 * (l & 3) + (j & 1)];
			*d = w.add ? lanes[l].sum[j] : 0;
		}
	for (int r = 0; r < 16; r++)
		for (int j = 0; j < w.n; j += 64) {
			v16 d[4];
			for (int i = 0; i < 4; i++)
				d[i] = *(const v16 *)&D[r][j + 16 * i];
			for (int k = 0; k < 16; k++)
				for (int i = 0; i < 4; i++)
					d[i] += A[r][k] * *(const v16 *)&B[k][j + 16 * i];
			for (int i = 0; i < 4; i++)
				*(v16 *)&D[r][j + 16 * i] = d[i];
		}
	for (int l = 0; l < 32; l++)
		for (int j = 0; j < w.n / 2; j++)
			lanes[l].sum[j] = D[(l >> 2) + (j & 2) * 4][j / 4 * 8 + 2 * (l & 3) + (j & 1)];
}
void wgmma_(float *d, int n, U4 a, bool registers, uint64_t a_rows, uint64_t b, bool add, bool b_over_k, Where where)
{
	if (n != 64 && n != 128)
		die("wgmma: 64 or 128 columns");
	Wgmma w = {a, a_rows, b, product_of(d, false), n, registers, add, b_over_k};
	int t = tls.worker->current;
	operands_touched(w, t & 31, t >> 5);
	meet(0xffffffffu, "wgmma", where, false, fold_wgmma, [&](unsigned char *slot) { __builtin_memcpy(slot, &w, sizeof w); });
}

// ---- a block
// --------------------------------------------------------------------------------------------------------------------------------------
static void thread_ends(Worker *k)
{
	int t = k->current, wi = t >> 5;
	Warp &w = k->warp[wi];
	if (!k->thread[t].copies.empty())
		die("a thread ended while its cp.async copies to shared memory were on their way");
	w.alive &= ~(1u << (t & 31));
	clear_ready(k, t);
	k->alive--;
	for (int i = 0; i < w.meetings; i++)
		meeting_done(k, wi, w.meeting[i]); // who has left counts as arrived
	if (k->barrier[0].arrived && k->alive)
		barrier_done(k, k->barrier[0]);
}
static inline void park(Worker *k, Context *c)
{ // offers a stack to threads that have not started
	if (!own_stacks())
		k->idle.push_back(c);
}
static void context_main(void)
{
#ifdef CUEMU_ASAN
	const void *bottom;
	size_t size;
	__sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
	if (!tls.worker->host.stack)
		tls.worker->host.stack = (char *)bottom;
#endif
	for (;;) {
		Worker *k = tls.worker;
		const Grid *g = k->grid;
		Context *mine = k->thread[k->current].context;
		for (;;) { // threads that end without waiting follow each other on this stack
			Thread &t = k->thread[k->current];
			t.last = nullptr;
			t.product_of = nullptr;
			t.group = 0;
			acquire(&k->token_start);
			g->launch->call(g->launch->args);
			release(&k->token_end);
			thread_ends(k);
			int i = pick(k);
			if (i < 0) {
				if (k->alive)
					deadlock(k);
				park(k, mine);
				jump(mine, &k->host);
				break;
			}
			uint32_t bit = 1u << (i & 31);
			if (!own_stacks() && (k->warp[i >> 5].fresh & bit)) {
				k->warp[i >> 5].fresh &= ~bit;
				k->thread[i].context = mine;
				k->current = i;
				threadIdx = k->thread[i].index;
				continue;
			}
			enter(k, i); // before this stack is offered: it must not be handed to i
			park(k, mine);
			jump(mine, k->thread[i].context);
			break;
		}
	}
}

// Shared memory: the thread-local variables of the program, except the shim's own. Ranges are offsets in an OS thread's block,
// the same in all.
struct Range {
	size_t at, n;
};
struct Block {
	char *base;
	size_t n;
};
static Block locals_block()
{
	Block found = {nullptr, 0};
	dl_iterate_phdr(
		[](struct dl_phdr_info *info, size_t, void *data) {
			for (int i = 0; i < info->dlpi_phnum; i++)
				if (info->dlpi_phdr[i].p_type == PT_TLS) {
					char *b = (char *)info->dlpi_tls_data;
					size_t n = info->dlpi_phdr[i].p_memsz;
					if (b && (char *)smem_raw >= b && (char *)smem_raw < b + n)
						*(Block *)data = {b, n};
				}
			return 0;
		},
		&found);
	return found;
}
static std::vector<Range> fill_ranges_make()
{
	Block b = locals_block();
	std::vector<Range> ranges;
	std::map<size_t, size_t> own; // what must not be filled: offset -> bytes
	auto mine = [&](void *q, size_t n) { own[(size_t)((char *)q - b.base)] = n; };
	mine(smem_raw, sizeof smem_raw);
	mine(&threadIdx, sizeof threadIdx);
	mine(&blockIdx, sizeof blockIdx);
	mine(&blockDim, sizeof blockDim);
	mine(&gridDim, sizeof gridDim);
	mine(&tls, sizeof tls);
	size_t at = 0;
	for (auto &o : own) {
		if (o.first > at)
			ranges.push_back({at, o.first - at});
		at = o.first + o.second;
	}
	if (b.n > at)
		ranges.push_back({at, b.n - at});
	return ranges;
}
static const std::vector<Range> &fill_ranges()
{
	static const std::vector<Range> ranges = fill_ranges_make();
	if (!tls.base)
		tls.base = locals_block().base;
	return ranges;
}
static void fill_shared(size_t dynamic)
{
	if (FILL_LOCALS)
		for (const Range &r : fill_ranges())
			memset(tls.base + r.at, 0xff, r.n);
#ifdef CUEMU_ASAN
	__asan_unpoison_memory_region(smem_raw, SHARED_MAX);
#endif
	memset(smem_raw, 0xff, dynamic);
#ifdef CUEMU_ASAN
	__asan_poison_memory_region(smem_raw + dynamic, SHARED_MAX - dynamic);
#endif
}
#ifdef CUEMU_TSAN
// What the threads of a block come after, and what comes after them, passes through the relay. The blocks of a large grid after
// its first ones run unwatched, in one context whose accesses TSan ignores: they are alike, and watching costs ten times the
// work.
constexpr size_t WATCHED = 48;
static void block_before(Worker *k, const Grid &g, size_t linear)
{
	tls.blind = linear >= WATCHED && linear + 1 < g.blocks; // the last one is different often enough
	if (tls.blind) {
		__tsan_switch_to_fiber(k->unwatched, 1);
		fill_shared(g.shared_bytes);
		return;
	}
	__tsan_switch_to_fiber(k->relay, 1);
	TSAN_ACQUIRE(&k->token_end);
	for (const void *p : g.acquire)
		TSAN_ACQUIRE(p);
	fill_shared(g.shared_bytes);
	TSAN_RELEASE(&k->token_start);
	__tsan_switch_to_fiber(k->host.tsan, 1);
}
static void block_after(Worker *k, const Grid &g)
{
	if (!tls.blind) {
		__tsan_switch_to_fiber(k->relay, 1);
		TSAN_ACQUIRE(&k->token_end);
		TSAN_RELEASE(g.release);
	}
	tls.blind = false;
	__tsan_switch_to_fiber(k->host.tsan, 1);
}
#else
static void block_before(Worker *, const Grid &g, size_t)
{
	fill_shared(g.shared_bytes);
}
static void block_after(Worker *, const Grid &)
{
}
#endif
void worker_start()
{
	if (tls.worker)
		return;
	// Megabytes of zeros, most of which no block will need: of pages that are there when they are touched.
	void *zeros = mmap(nullptr, sizeof(Worker), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (zeros == MAP_FAILED)
		die("no memory for another OS thread's blocks");
	Worker *k = tls.worker = new (zeros) Worker;
	k->random = settings.seed * 2654435761u + 1;
	fault_stack();
#ifdef CUEMU_TSAN
	k->host.tsan = __tsan_get_current_fiber();
	k->relay = context_clean();
	k->unwatched = context_clean();
	__tsan_switch_to_fiber(k->unwatched, 1);
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
	__tsan_switch_to_fiber(k->host.tsan, 1);
	TSAN_RELEASE(&k->token_end); // the thread-local variables themselves were made by this OS thread
#endif
}
void grid_begin(bool keep)
{
	worker_start();
	std::vector<char> &kept = tls.worker->kept;
	kept.clear();
	if (FILL_LOCALS && keep)
		for (const Range &r : fill_ranges())
			kept.insert(kept.end(), tls.base + r.at, tls.base + r.at + r.n);
}
void grid_end()
{
	std::vector<char> &kept = tls.worker->kept;
	size_t at = 0;
	if (!kept.empty())
		for (const Range &r : fill_ranges()) {
			memcpy(tls.base + r.at, kept.data() + at, r.n);
			at += r.n;
		}
}
static void set_shape(Worker *k, dim3 b)
{
	if (k->shape.x == b.x && k->shape.y == b.y && k->shape.z == b.z && k->warps)
		return;
	for (unsigned i = 0, n = b.x * b.y * b.z; i < n; i++)
		k->thread[i].index = {i % b.x, i / b.x % b.y, i / (b.x * b.y)};
	k->shape = b;
}
void run_block(const Grid &g, size_t linear)
{
	Worker *k = tls.worker;
	int n = (int)(g.block.x * g.block.y * g.block.z);
	set_shape(k, g.block);
	k->warps = (n + 31) / 32;
	k->alive = n;
	k->grid = &g;
	k->ready_warps = 0;
	for (int w = 0; w < k->warps; w++) {
		int left = n - 32 * w;
		uint32_t lanes = left >= 32 ? 0xffffffffu : (1u << left) - 1;
		k->warp[w].alive = k->warp[w].ready = k->warp[w].fresh = lanes;
		k->warp[w].meetings = 0;
		k->ready_warps |= 1u << w;
	}
	k->mbarriers = k->maps = 0;
	for (Barrier &b : k->barrier) {
		b.arrived = b.predicate = b.need = 0;
		memset(b.waiting, 0, sizeof b.waiting);
	}
	blockIdx = {(unsigned)(linear % g.grid.x), (unsigned)(linear / g.grid.x % g.grid.y),
		(unsigned)(linear / ((size_t)g.grid.x * g.grid.y))};
	blockDim = {g.block.x, g.block.y, g.block.z};
	gridDim = {g.grid.x, g.grid.y, g.grid.z};
	block_before(k, g, linear);
	k->current = 0;
	enter(k, pick(k));
	tls.in_kernel = true;
	jump(&k->host, k->thread[k->current].context);
	tls.in_kernel = false;
	if (k->boxes)
		die("a block ended while cp.async.bulk.tensor copies to its shared memory were on their way");
	block_after(k, g);
}
} // namespace cuemu
