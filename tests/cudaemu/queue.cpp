// queue.cpp: streams and events. Work is queued when it is submitted and runs when somebody waits: one operation at a time, of a
// queue chosen by the seed, bound by nothing but the order inside a stream, events, and the legacy default stream's rules. So
// work that merely happens to be ready on a GPU is late here, and two streams that nothing orders run in every order over the
// seeds. Seed 0: the order of submission.
#include "state.h"

namespace cuemu
{
static std::map<cudaStream_t, std::shared_ptr<Queue>> &queues()
{
	static auto *m = new std::map<cudaStream_t, std::shared_ptr<Queue>>;
	return *m;
}
static std::shared_ptr<Queue> &legacy(int device)
{
	static auto *q = new std::shared_ptr<Queue>[DEVICES_MAX];
	if (!q[device]) {
		q[device] = std::make_shared<Queue>();
		q[device]->device = device;
		q[device]->legacy = true;
	}
	return q[device];
}
static uint64_t tickets;
const Op *running;

#ifdef CUEMU_TSAN
// OS threads and contexts are few under TSan: a stream that is gone leaves its pool to the next one.
static std::vector<Pool *> &pools_left()
{
	static auto *p = new std::vector<Pool *>;
	return *p;
}
Queue::Queue()
{ // not when the first kernel runs: what its threads know when they start, all its kernels would seem to come after
	copier = context_clean();
	if (pools_left().empty())
		pool = pool_new(2);
	else {
		pool = pools_left().back();
		pools_left().pop_back();
	}
}
Pool *Queue::blocks()
{
	return pool;
}
Queue::~Queue()
{
	pools_left().push_back(pool);
	__tsan_destroy_fiber(copier);
}
#else
Queue::Queue()
{
}
Pool *Queue::blocks()
{
	return pool_shared();
}
Queue::~Queue()
{
}
#endif
std::shared_ptr<Queue> queue_of(cudaStream_t s)
{
	if (s == 0 || s == cudaStreamLegacy)
		return legacy(current_device());
	auto i = queues().find(s);
	return i == queues().end() || i->second->destroyed ? nullptr : i->second;
}
cudaError_t queue_new(cudaStream_t *s, unsigned flags, int priority)
{
	static uintptr_t handles = 0x1000;
	auto q = std::make_shared<Queue>();
	q->device = current_device();
	q->flags = flags;
	q->priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
	*s = (cudaStream_t)(handles += 0x10); // a number, not an address: whoever dereferences it faults
	queues()[*s] = q;
	return cudaSuccess;
}
void queue_delete(cudaStream_t s)
{ // what is on it still runs, whenever that is
	auto i = queues().find(s);
	i->second->destroyed = true;
	if (i->second->ops.empty())
		queues().erase(i);
}
size_t streams_live()
{
	size_t n = 0;
	for (auto &q : queues())
		n += !q.second->destroyed;
	return n;
}
size_t operations_pending()
{
	size_t n = 0;
	for (int d = 0; d < settings.devices; d++)
		n += legacy(d)->ops.size();
	for (auto &q : queues())
		n += q.second->ops.size();
	return n;
}

void queue_submit(const std::shared_ptr<Queue> &q, std::function<void(Queue &)> run, cudaError_t poison, const Record *after)
{
	Op op;
	op.run = std::move(run);
	op.poison = poison;
	op.ticket = ++tickets;
	if (after)
		op.after.push_back({after->queue, after->number});
	if (q->legacy) { // waits for all blocking streams of its device ...
		for (auto &o : queues())
			if (o.second->device == q->device && !(o.second->flags & cudaStreamNonBlocking))
				op.after.push_back({o.second, o.second->submitted});
	} else if (!(q->flags & cudaStreamNonBlocking)) // ... and they for it
		op.after.push_back({legacy(q->device), legacy(q->device)->submitted});
#ifdef CUEMU_TSAN
	op.told = std::make_shared<char>();
	TSAN_RELEASE(op.told.get());
#endif
	q->ops.push_back(std::move(op));
	q->submitted++;
	if (settings.eager)
		drain(q, q->submitted);
}
void queue_after(const std::shared_ptr<Queue> &q, const std::shared_ptr<Record> &r)
{
	queue_submit(
		q, [r](Queue &self) { as_copier(self, [&] { TSAN_ACQUIRE(&r->token); }); }, cudaSuccess, r.get());
}
std::shared_ptr<Record> queue_record(const std::shared_ptr<Queue> &q)
{
	auto r = std::make_shared<Record>();
	r->queue = q;
	r->number = q->submitted + 1;
	queue_submit(q, [r](Queue &self) {
		struct timespec t;
		clock_gettime(CLOCK_MONOTONIC, &t);
		r->ms = t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
		as_copier(self, [&] { TSAN_RELEASE(&r->token); });
	});
	return r;
}
void as_copier(Queue &q, const std::function<void()> &fn)
{
#ifdef CUEMU_TSAN
	void *host = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(q.copier, 1);
	TSAN_ACQUIRE(&q.token);
	TSAN_ACQUIRE(running->told.get());
	fn();
	TSAN_RELEASE(&q.token);
	__tsan_switch_to_fiber(host, 1);
#else
	(void)q;
	fn();
#endif
}

static bool runnable(const Queue &q)
{
	if (q.ops.empty())
		return false;
	for (auto &a : q.ops.front().after)
		if (a.first->done < a.second)
			return false;
	return true;
}
// The next queue to serve. Mostly the same again for a while, so that one stream also gets far ahead of another.
static std::shared_ptr<Queue> choose()
{
	static uint64_t random;
	static uint64_t seeded;
	static int burst;
	static std::weak_ptr<Queue> last;
	if (seeded != settings.seed || !random) {
		seeded = settings.seed;
		random = settings.seed * 0x9e3779b97f4a7c15ull + 1;
	}
	std::vector<std::shared_ptr<Queue>> ready;
	for (int d = 0; d < settings.devices; d++)
		if (runnable(*legacy(d)))
			ready.push_back(legacy(d));
	for (auto &q : queues())
		if (runnable(*q.second))
			ready.push_back(q.second);
	if (ready.empty())
		return nullptr;
	if (settings.seed == 0) {
		auto *first = &ready[0];
		for (auto &q : ready)
			if (q->ops.front().ticket < (*first)->ops.front().ticket)
				first = &q;
		return *first;
	}
	if (burst > 0)
		if (auto q = last.lock())
			if (runnable(*q)) {
				burst--;
				return q;
			}
	random = random * 6364136223846793005ull + 1442695040888963407ull;
	auto q = ready[(random >> 33) % ready.size()];
	burst = (int)(random >> 20 & 15) - 8; // half the time none
	last = q;
	return q;
}
static void run_front(Queue &q)
{
	Op op = std::move(q.ops.front());
	q.ops.pop_front();
	if (!sticky()) {
		const Op *outer = running;
		running = &op;
		memory_visible(q.device);
#ifdef CUEMU_TSAN
		if (q.legacy || !(q.flags & cudaStreamNonBlocking)) // the default stream's rules order memory too
			for (auto &a : op.after)
				as_copier(q, [&] { TSAN_ACQUIRE(&a.first->token); });
#endif
		if (op.poison)
			set_sticky(op.poison);
		else
			op.run(q);
		running = outer;
#ifdef CUEMU_TSAN
		// Arguments and staged copies stay: freed by the host they would race with their readers, who need not have told
		// it that they are done.
		static auto *done = new std::deque<std::function<void(Queue &)>>;
		done->push_back(std::move(op.run));
#endif
	}
	q.done++;
}
bool step()
{
	auto q = choose();
	if (!q)
		return false;
	run_front(*q);
	if (q->destroyed && q->ops.empty())
		for (auto i = queues().begin(); i != queues().end(); ++i)
			if (i->second == q) {
				queues().erase(i);
				break;
			}
	return true;
}
void drain_quietly(const std::shared_ptr<Queue> &q, uint64_t number)
{
	while (q->done < number)
		if (!step())
			die("a stream waits for work that cannot run");
	memory_visible(-1);
}
void drain(const std::shared_ptr<Queue> &q, uint64_t number)
{
	drain_quietly(q, number);
	TSAN_ACQUIRE(&q->token);
}
void drain_device(int device)
{
	drain(legacy(device), legacy(device)->submitted);
	auto copy = queues();
	for (auto &q : copy)
		if (q.second->device == device)
			drain(q.second, q.second->submitted);
}
void drain_all()
{
	for (int d = 0; d < settings.devices; d++)
		drain_device(d);
}
} // namespace cuemu
