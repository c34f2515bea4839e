// memory.cpp: device and pinned memory. Every allocation has a mapping of its own, filled with 0xff (NaN), with a page behind it
// that nobody may touch; freed memory is unmapped. Who may touch what is held by page protection: work of one device does not see
// the other's memory without peer access, and with CUEMU_PROTECT the host sees none.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "state.h"

#ifdef CUEMU_ASAN
extern "C" void __asan_poison_memory_region(const volatile void *, size_t);
extern "C" void __asan_unpoison_memory_region(const volatile void *, size_t);
#endif

namespace cuemu
{
static std::map<uintptr_t, Memory> &all()
{
	static auto *m = new std::map<uintptr_t, Memory>;
	return *m;
}
static std::map<uintptr_t, size_t> &freed()
{
	static auto *m = new std::map<uintptr_t, size_t>;
	return *m;
}
static size_t used[DEVICES_MAX], limit[DEVICES_MAX];
static bool limit_set[DEVICES_MAX], peers[DEVICES_MAX][DEVICES_MAX];
static bool hidden[DEVICES_MAX]; // the device's memory cannot be touched now
static int runs_for = -1;        // whose work runs; -1: the host

size_t memory_total(int d)
{
	return limit_set[d] ? limit[d] : settings.memory;
}
size_t memory_used(int d)
{
	return used[d];
}
void memory_set_total(int d, size_t n)
{
	limit[d] = n;
	limit_set[d] = true;
}
void memory_set_peer(int from, int to, bool on)
{
	peers[from][to] = on;
}
bool memory_peer(int from, int to)
{
	return from == to || peers[from][to];
}
size_t memory_live(bool pinned)
{
	size_t n = 0;
	for (auto &m : all())
		n += (m.second.device < 0) == pinned;
	return n;
}

static const Memory *nearest(const void *p)
{ // the allocation whose mapping, guard page included, p lies in
	auto i = all().upper_bound((uintptr_t)p);
	if (i == all().begin())
		return nullptr;
	const Memory &m = (--i)->second;
	return (uintptr_t)p < (m.registered ? (uintptr_t)m.p + m.n : (uintptr_t)m.map + m.map_bytes) ? &m : nullptr;
}
const Memory *memory_find(const void *p)
{
	const Memory *m = nearest(p);
	return m && (uintptr_t)p <= (uintptr_t)m->p + m->n ? m : nullptr;
}
bool memory_covers(const void *p, size_t n, int device)
{
	const Memory *m = memory_find(p);
	return m && (m->device < 0 || memory_peer(device, m->device)) && (uintptr_t)p + n <= (uintptr_t)m->p + m->n;
}
bool memory_pinned(const void *p, size_t n)
{
	const Memory *m = memory_find(p);
	return m && m->device < 0 && (uintptr_t)p + n <= (uintptr_t)m->p + m->n;
}
bool memory_freed(const void *p)
{
	auto i = freed().upper_bound((uintptr_t)p);
	if (i == freed().begin() || memory_find(p))
		return false;
	--i;
	return (uintptr_t)p < i->first + i->second;
}

static void protect(const Memory &m, bool on)
{
	if (mprotect(m.map, m.map_bytes - 4096, on ? PROT_READ | PROT_WRITE : PROT_NONE))
		die("mprotect failed");
}
static void show(int device, bool on)
{
	if (hidden[device] == !on)
		return;
	for (auto &m : all())
		if (m.second.device == device)
			protect(m.second, on);
	hidden[device] = !on;
}
void memory_visible(int device)
{
	runs_for = device;
	for (int d = 0; d < settings.devices; d++)
		show(d, device < 0 ? !settings.protect : memory_peer(device, d));
}
void memory_visible_all()
{
	for (int d = 0; d < settings.devices; d++)
		show(d, true);
}

// An access that the protection refused: who, and whose memory. Runs on a stack of its own, since a fiber's may be the one that
// overflowed.
static void on_fault(int sig, siginfo_t *info, void *)
{
	signal(sig, SIG_DFL);
	char b[256];
	const char *at = (const char *)info->si_addr;
	const Memory *m = nearest(at);
	if (m && at >= m->p + m->n)
		snprintf(b, sizeof b, "access %zu bytes behind the end of an allocation of %zu bytes (%p)",
			(size_t)(at - m->p) - m->n, m->n, info->si_addr);
	else if (m && m->device >= 0 && in_kernel())
		snprintf(b, sizeof b, "a kernel of device %d touched memory of device %d without peer access (%p)", runs_for,
			m->device, info->si_addr);
	else if (m && m->device >= 0)
		snprintf(b, sizeof b, "the host touched memory of device %d (%p, %zu bytes after its start)", m->device,
			info->si_addr, (size_t)(at - m->p));
	else if (memory_freed(info->si_addr))
		snprintf(b, sizeof b, "memory was touched after it was freed (%p)", info->si_addr);
	else
		snprintf(b, sizeof b, "invalid access at %p (out of bounds, a host pointer that is none, or a stack overflow)",
			info->si_addr);
	die(b);
}
static void catch_faults()
{ // at every allocation: a test framework may have put its own handler there
#if !defined(CUEMU_ASAN)
	struct sigaction sa = {};
	sa.sa_sigaction = on_fault;
	sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
	sigaction(SIGSEGV, &sa, nullptr);
	sigaction(SIGBUS, &sa, nullptr);
#else
	(void)on_fault;
#endif
}
void fault_stack()
{ // each OS thread that runs blocks needs one
#if !defined(CUEMU_ASAN) && !defined(CUEMU_TSAN)
	stack_t old = {};
	sigaltstack(nullptr, &old);
	if (!(old.ss_flags & SS_DISABLE))
		return;
	stack_t s = {};
	s.ss_size = 64 * 1024;
	s.ss_sp = malloc(s.ss_size);
	sigaltstack(&s, nullptr);
#endif
}

// Of new memory, in which TSan has nothing to look for: no call of memset, which it would watch.
static void fill_quietly(char *p, size_t n)
{
#ifdef CUEMU_TSAN
	for (size_t i = 0; i < n; i += 8)
		*(volatile uint64_t *)(p + i) = ~0ull;
#else
	memset(p, 0xff, n);
#endif
}
// New memory reads as 0xff. Large blocks are private mappings of one file full of it: pages that nobody writes cost nothing.
constexpr size_t CHUNK = 4 << 20;
static void fill_new(char *map, size_t n)
{
	static int file = -1;
	if (n >= CHUNK / 4 && file < 0) {
		file = memfd_create("cudaemu", MFD_CLOEXEC);
		char *ff = file < 0 || ftruncate(file, CHUNK) ? (char *)MAP_FAILED
							       : (char *)mmap(nullptr, CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
		if (ff != MAP_FAILED) {
			fill_quietly(ff, CHUNK);
			munmap(ff, CHUNK);
		} else if (file >= 0) {
			close(file);
			file = -1;
		}
	}
	if (n < CHUNK / 4 || file < 0) {
		fill_quietly(map, n);
		return;
	}
	for (size_t at = 0; at < n; at += CHUNK)
		if (mmap(map + at, std::min(CHUNK, n - at), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) ==
			MAP_FAILED)
			die("mmap failed");
}
static bool map_new(Memory &m, size_t n)
{
	size_t body = (n + 256 + 4095) & ~(size_t)4095;
	m.map_bytes = body + 4096;
	m.map = (char *)mmap(nullptr, m.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m.map == MAP_FAILED)
		return false;
	mprotect(m.map + body, 4096, PROT_NONE);
	m.p = m.map + ((body - n) & ~(size_t)255); // as close to the guard page as the alignment allows
	m.n = n;
	return true;
}
cudaError_t memory_new(void **p, size_t n, int device)
{
	catch_faults();
	fault_stack();
	if (device >= 0 &&
		(n > memory_total(device) - std::min(used[device], memory_total(device)) || alloc_limit(used[device] + n))) {
		say("out of memory on device %d: %zu bytes asked, %zu of %zu in use", device, n, used[device],
			memory_total(device));
		return cudaErrorMemoryAllocation;
	}
	Memory m = {nullptr, 0, device, nullptr, 0, false};
	if (!map_new(m, n))
		return cudaErrorMemoryAllocation;
	fill_new(m.map, m.map_bytes - 4096);
#ifdef CUEMU_ASAN
	__asan_poison_memory_region(m.map, m.map_bytes);
	__asan_unpoison_memory_region(m.p, n);
#endif
	all()[(uintptr_t)m.p] = m;
	if (device >= 0) {
		memory_visible(runs_for);
		used[device] += n;
		if (hidden[device])
			protect(m, false);
	}
	*p = m.p;
	return cudaSuccess;
}
void memory_register(void *p, size_t n)
{
	all()[(uintptr_t)p] = {(char *)p, n, -1, nullptr, 0, true};
}
void memory_free(void *p)
{
	auto i = all().find((uintptr_t)p);
	Memory m = i->second;
	all().erase(i);
	if (m.registered)
		return;
	if (m.device >= 0)
		used[m.device] -= m.n;
	freed()[(uintptr_t)m.p] = m.n;
#ifdef CUEMU_ASAN
	__asan_unpoison_memory_region(m.map, m.map_bytes);
#endif
	munmap(m.map, m.map_bytes);
}
} // namespace cuemu
