/* pool.c: see pool.h. One atomic word carries the job's number and the next item, so that threads join late or not at all:
 * the caller never waits for a sleeper that has nothing to do.
 *
 * ticket = job << 32 | next item. A thread reads the ticket, then the job's fields, then takes the item by compare-and-swap. The
 * fields change only after every item of the job is done; a successful swap shows that one was not, so they were the job's own.
 */
#include "runners/device/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum { SPINS = 4000 };                    /* about 50 us of pauses before a thread sleeps */
static const int64_t ITEMS_MAX = 1 << 30; /* of one ticket; more are run in pieces */

struct pool {
	int threads;
	pthread_t *ids; /* [threads - 1] */
	_Alignas(64) _Atomic uint64_t ticket;
	_Atomic int64_t n, base, done;
	_Atomic(pool_fn) fn;
	_Atomic(void *) arg;
	_Atomic int used; /* threads that take part */
	/* Who may have to be woken. Each is set before its owner looks for work (or for the end) a last time, and read after work (or
	 * the end) was made known: so either the owner sees it or the other side sees the owner. */
	_Atomic int sleepers;
	_Atomic bool caller_waits;
	_Alignas(64) pthread_mutex_t lock;
	pthread_cond_t wake, finished;
	bool stop; /* under lock */
};

struct start {
	struct pool *pool;
	int thread;
};

static void pause_briefly(void)
{
	__builtin_ia32_pause();
}

/* Takes and runs items until the current job has none left. */
static void work(struct pool *p, int thread)
{
	for (;;) {
		uint64_t t = atomic_load(&p->ticket);
		int64_t n = atomic_load(&p->n), item = (int64_t)(uint32_t)t;
		pool_fn fn = atomic_load(&p->fn);
		void *arg = atomic_load(&p->arg);
		int64_t base = atomic_load(&p->base);
		if (item >= n)
			return;
		if (!atomic_compare_exchange_weak(&p->ticket, &t, t + 1))
			continue;
		fn(arg, base + item, thread);
		if (atomic_fetch_add(&p->done, 1) + 1 == n && atomic_load(&p->caller_waits)) {
			pthread_mutex_lock(&p->lock);
			pthread_cond_signal(&p->finished);
			pthread_mutex_unlock(&p->lock);
		}
	}
}

static bool has_work(struct pool *p, int thread)
{
	return thread < atomic_load(&p->used) && (int64_t)(uint32_t)atomic_load(&p->ticket) < atomic_load(&p->n);
}

/* false: the pool is being freed. */
static bool sleep_until_work(struct pool *p, int thread)
{
	pthread_mutex_lock(&p->lock);
	atomic_fetch_add(&p->sleepers, 1);
	while (!p->stop && !has_work(p, thread))
		pthread_cond_wait(&p->wake, &p->lock);
	atomic_fetch_sub(&p->sleepers, 1);
	bool stop = p->stop;
	pthread_mutex_unlock(&p->lock);
	return !stop;
}

static void *thread_main(void *arg)
{
	struct start s = *(struct start *)arg;
	struct pool *p = s.pool;
	free(arg);
	for (;;) {
		for (int i = 0; i < SPINS && !has_work(p, s.thread); i++)
			pause_briefly();
		if (!has_work(p, s.thread) && !sleep_until_work(p, s.thread))
			return NULL;
		work(p, s.thread);
	}
}

struct pool *pool_new(int threads)
{
	struct pool *p;
	if (posix_memalign((void **)&p, 64, sizeof *p))
		return NULL;
	*p = (struct pool){.threads = 1, .ids = calloc((size_t)threads, sizeof *p->ids)};
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wake, NULL);
	pthread_cond_init(&p->finished, NULL);
	for (; p->ids && p->threads < threads; p->threads++) {
		struct start *s = malloc(sizeof *s);
		if (s)
			*s = (struct start){p, p->threads};
		if (!s || pthread_create(&p->ids[p->threads - 1], NULL, thread_main, s)) {
			free(s);
			break;
		}
	}
	if (p->threads < threads) {
		pool_free(p);
		return NULL;
	}
	pool_use(p, 0);
	return p;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->lock);
	for (int i = 0; i < p->threads - 1; i++)
		pthread_join(p->ids[i], NULL);
	pthread_cond_destroy(&p->wake);
	pthread_cond_destroy(&p->finished);
	pthread_mutex_destroy(&p->lock);
	free(p->ids);
	free(p);
}

void pool_use(struct pool *p, int threads)
{
	atomic_store(&p->used, threads > 0 && threads < p->threads ? threads : p->threads);
}

int pool_threads(const struct pool *p)
{
	return p->threads;
}

static void run_piece(struct pool *p, int64_t base, int64_t n, pool_fn fn, void *arg)
{
	/* Until the new ticket is out the old one says "item >= n" or its swap fails: nobody acts on the new fields too early. */
	uint64_t job = (atomic_load(&p->ticket) >> 32) + 1;
	atomic_store(&p->ticket, job << 32 | UINT32_MAX);
	atomic_store(&p->fn, fn);
	atomic_store(&p->arg, arg);
	atomic_store(&p->base, base);
	atomic_store(&p->done, 0);
	atomic_store(&p->n, n);
	atomic_store(&p->ticket, (job + 1) << 32);
	if (atomic_load(&p->sleepers)) {
		pthread_mutex_lock(&p->lock);
		pthread_cond_broadcast(&p->wake);
		pthread_mutex_unlock(&p->lock);
	}
	work(p, 0);
	for (int i = 0; i < SPINS && atomic_load(&p->done) < n; i++)
		pause_briefly();
	if (atomic_load(&p->done) < n) {
		pthread_mutex_lock(&p->lock);
		atomic_store(&p->caller_waits, true);
		while (atomic_load(&p->done) < n)
			pthread_cond_wait(&p->finished, &p->lock);
		atomic_store(&p->caller_waits, false);
		pthread_mutex_unlock(&p->lock);
	}
}

void pool_run(struct pool *p, int64_t n, pool_fn fn, void *arg)
{
	if (n <= 1 || atomic_load(&p->used) == 1) {
		for (int64_t i = 0; i < n; i++)
			fn(arg, i, 0);
		return;
	}
	for (int64_t base = 0; base < n; base += ITEMS_MAX)
		run_piece(p, base, n - base < ITEMS_MAX ? n - base : ITEMS_MAX, fn, arg);
}

/* ---- near ---- */

enum { LANES_MAX = 64 }; /* more threads share them */

struct lane {
	_Alignas(64) _Atomic int64_t next;
	int64_t end;
};
struct near {
	struct lane lane[LANES_MAX];
	int lanes;
	pool_fn fn;
	void *arg;
};

/* One item each time, whichever ticket it was called for: there are as many tickets as items. */
static void near_item(void *arg, int64_t ticket, int thread)
{
	struct near *near = arg;
	(void)ticket;
	for (int i = 0; i < near->lanes; i++) {
		struct lane *l = &near->lane[(thread + i) % near->lanes];
		int64_t item = atomic_load_explicit(&l->next, memory_order_relaxed) < l->end ? atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed) : l->end;
		if (item < l->end) {
			near->fn(near->arg, item, thread);
			return;
		}
	}
}

void pool_run_near(struct pool *p, int64_t n, pool_fn fn, void *arg)
{
	int used = atomic_load(&p->used), lanes = used < LANES_MAX ? used : LANES_MAX;
	if (n <= 1 || lanes == 1) {
		pool_run(p, n, fn, arg);
		return;
	}
	struct near near = {.lanes = lanes, .fn = fn, .arg = arg};
	for (int i = 0; i < lanes; i++) {
		atomic_init(&near.lane[i].next, n * i / lanes);
		near.lane[i].end = n * (i + 1) / lanes;
	}
	pool_run(p, n, near_item, &near);
}
