// state.h: what the parts of the shim share: devices, memory, queues, calls. Everything here is used under one lock, which a Call
// holds.
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "fiber.h"

namespace cuemu
{
constexpr int DEVICES_MAX = 8;

// ---- calls (calls.cpp): each API function opens one; it takes the lock, counts, and gives the injected or sticky error ----
struct Call {
	Call(const char *name);
	~Call();
	cudaError_t err; // not cudaSuccess: return it at once
	cudaError_t poison =
		cudaSuccess;             // an injected error of the work, not of the call: it shows when the work runs, and stays
	cudaError_t done(cudaError_t e); // remembers e as the last error and returns it
};
cudaError_t sticky();
void set_sticky(cudaError_t e);
bool alloc_limit(size_t in_use_after); // injected limit of bytes in use: true = fails
int current_device();
void count_event(int by);
void count_handle(int by);
cudaError_t last_error(bool forget);
void say(const char *format, ...) __attribute__((format(printf, 1, 2))); // CUEMU_SAY=1: explains an error code on stderr

// ---- memory (memory.cpp) ----
struct Memory {
	char *p;
	size_t n;
	int device; // -1: pinned host memory
	char *map;  // what was mapped
	size_t map_bytes;
	bool registered; // host memory of the caller
};
const Memory *memory_find(const void *p);                // the allocation p lies in (its end counts), or NULL
bool memory_covers(const void *p, size_t n, int device); // [p, p+n) inside one allocation that kernels of this device may touch
bool memory_pinned(const void *p, size_t n);
bool memory_freed(const void *p); // lies in device or pinned memory that was freed and not given out again
cudaError_t memory_new(void **p, size_t n, int device);
void memory_free(void *p);
void memory_visible(int device); // work of this device runs; -1: the host runs
void memory_visible_all();       // a copy between devices runs
bool memory_peer(int from, int to);
void memory_set_peer(int from, int to, bool on);
size_t memory_total(int device);
size_t memory_used(int device);
void memory_set_total(int device, size_t n);
size_t memory_live(bool pinned); // allocations
void memory_register(void *p, size_t n);

// ---- queues (queue.cpp) ----
struct Record { // one recording of an event
	std::shared_ptr<struct Queue> queue;
	uint64_t number; // done when so many operations of the queue are
	double ms = 0;   // when it was reached
	char token;
};
struct Op {
	std::function<void(struct Queue &)> run;
	std::vector<std::pair<std::shared_ptr<struct Queue>, uint64_t>> after; // (queue, operations that must be done there)
	uint64_t ticket;                                                       // order of submission over all queues
	std::shared_ptr<char> told;                                            // TSan: what the submitting thread did before
	cudaError_t poison = cudaSuccess;
};
struct Queue {
	int device = 0, priority = 0;
	unsigned flags = 0;
	bool legacy = false, destroyed = false;
	std::deque<Op> ops;
	uint64_t submitted = 0, done = 0;
	char token = 0, end = 0; // TSan: the end of the newest operation that ran; of the running grid's threads
	void *copier = nullptr;  // TSan: the context in which copies of this stream run
	Pool *pool = nullptr;
	Pool *blocks(); // who runs its kernels
	Queue();
	~Queue();
};
std::shared_ptr<Queue> queue_of(cudaStream_t s); // NULL: no such stream
cudaError_t queue_new(cudaStream_t *s, unsigned flags, int priority);
void queue_delete(cudaStream_t s);
void queue_submit(const std::shared_ptr<Queue> &q, std::function<void(Queue &)> run, cudaError_t poison = cudaSuccess,
	const Record *after = nullptr);
void queue_after(const std::shared_ptr<Queue> &q, const std::shared_ptr<Record> &r);
std::shared_ptr<Record> queue_record(const std::shared_ptr<Queue> &q);
void drain(const std::shared_ptr<Queue> &q, uint64_t number); // runs operations, of any queue, until so many of q's are done
void drain_quietly(const std::shared_ptr<Queue> &q,
	uint64_t number); // the same; the calling thread has not waited for the queue's last operation
void drain_device(int device);
void drain_all();
bool step(); // runs one operation; false: nothing to run
// Runs fn for the running operation; TSan: on the stream's copy engine, after what came before in the stream and at the
// submitter.
void as_copier(Queue &q, const std::function<void()> &fn);
extern const Op *running; // the operation being run
size_t streams_live();
size_t operations_pending();
} // namespace cuemu
