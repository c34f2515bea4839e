/* device.c: opens a device by name, counts its memory, keeps its last error. Queues, events and whatever else needs no check are
 * handed to the backend here; operations in ops.c. */
#include "runners/device/backend.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- errors and memory ---- */

int device_fail(struct device *d, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(d->error, sizeof d->error, fmt, ap);
	va_end(ap);
	d->failure = DEVICE_REFUSED;
	return -1;
}

static void fail_memory(struct device *d, int64_t bytes, bool host)
{
	char text[64] = "";
	int64_t there = host ? machine_memory_free() : d->backend->free_bytes(d), left = d->limit > d->bytes ? d->limit - d->bytes : 0;
	d->oom_bytes = bytes;
	d->oom_free = !host && d->limit && (there < 0 || left < there) ? left : there;
	if (there >= 0)
		snprintf(text, sizeof text, ", %lld free %s", (long long)there, host ? "there" : "on the device");
	if (host)
		device_fail(d, "out of memory: asked for %lld bytes of pinned memory on the host%s", (long long)bytes, text);
	else
		device_fail(d, "out of memory: asked for %lld bytes with %lld in use, limit %lld%s", (long long)bytes, (long long)d->bytes,
			(long long)d->limit, text);
	d->failure = DEVICE_MEMORY;
}

static void *alloc(struct device *d, int64_t bytes, bool cache)
{
	bytes = counted(bytes);
	bool host = cache && cache_on_host(d, bytes);
	enum device_failure before = d->failure;
	d->failure = DEVICE_FINE;
	void *p = !host && d->limit && bytes > d->limit - d->bytes ? NULL : d->backend->alloc(d, bytes, cache);
	if (!p) {
		if (d->failure == DEVICE_FINE) /* else the backend said what else it was */
			fail_memory(d, bytes, host);
		return NULL;
	}
	d->failure = before;
	d->bytes += host ? 0 : bytes;
	if (d->bytes > d->peak_bytes)
		d->peak_bytes = d->bytes;
	return p;
}

static void release(struct device *d, void *p, int64_t bytes, bool cache)
{
	if (!p)
		return;
	d->backend->free(d, p, counted(bytes), cache);
	d->bytes -= cache && cache_on_host(d, counted(bytes)) ? 0 : counted(bytes);
}

void *device_alloc(struct device *d, int64_t bytes)
{
	return alloc(d, bytes, false);
}
void device_free(struct device *d, void *p, int64_t bytes)
{
	release(d, p, bytes, false);
}
void *device_alloc_cache(struct device *d, int64_t bytes)
{
	return alloc(d, bytes, true);
}
void device_free_cache(struct device *d, void *p, int64_t bytes)
{
	release(d, p, bytes, true);
}

void device_reserve(struct device *d, int64_t bytes)
{
	if (bytes > 0 && (!d->limit || bytes <= d->limit - d->bytes))
		d->backend->reserve(d, counted(bytes));
}

/* ---- by name ---- */

/* The backend of a name and the device's index; NULL = no such name. */
static const struct backend *backend_named(const char *name, int *index)
{
	char *end;
	*index = 0;
	if (!strcmp(name, "cpu"))
		return &backend_cpu;
	if (!strcmp(name, "cuda"))
		return &backend_cuda;
	if (strncmp(name, "cuda:", 5) || name[5] < '0' || name[5] > '9')
		return NULL;
	long n = strtol(name + 5, &end, 10);
	if (*end || n > 1023)
		return NULL;
	*index = (int)n;
	return &backend_cuda;
}

bool device_usable(const char *name, char what[DEVICE_WHAT])
{
	int index;
	if (!strcmp(name, "auto"))
		return backend_cuda.usable(0, what) || backend_cpu.usable(0, what);
	const struct backend *b = backend_named(name, &index);
	if (b)
		return b->usable(index, what);
	snprintf(what, DEVICE_WHAT, "unknown device \"%.32s\"", name);
	return false;
}

void device_resolve(const char *name, char out[DEVICE_WHAT])
{
	char what[DEVICE_WHAT];
	int index;
	if (!strcmp(name, "auto"))
		name = backend_cuda.usable(0, what) ? "cuda" : "cpu";
	if (backend_named(name, &index) != &backend_cuda)
		snprintf(out, DEVICE_WHAT, "%s", name);
	else
		snprintf(out, DEVICE_WHAT, "%s:%d", backend_cuda.usable(index, what) && !strncmp(what, "emulated", 8) ? "emulated" : "cuda", index);
}

bool device_attention_usable(const char *attention, char what[DEVICE_WHAT])
{
	if (!strcmp(attention, "cudnn"))
		return backend_cuda.cudnn_usable(what);
	snprintf(what, DEVICE_WHAT, "attention \"%.32s\"; there are own, cudnn", attention);
	return !strcmp(attention, "own");
}

/* "own", or "cudnn" where the backend, the precision and the library allow it. */
static int check_attention(const struct backend *b, const char *attention, const char *precision, char err[ERR_LEN])
{
	char what[DEVICE_WHAT];
	if (!strcmp(attention, "own"))
		return 0;
	if (!b->cudnn_usable)
		return err_set(err, "attention \"cudnn\" needs a GPU; device \"%s\" has its own alone", b->name);
	if (strcmp(precision, "bf16"))
		return err_set(err, "attention \"cudnn\" needs precision bf16, not %s", precision);
	return b->cudnn_usable(what) ? 0 : err_set(err, "attention \"cudnn\": %s", what);
}

enum { THREADS_MAX = 4096 }; /* far beyond any machine's cores; a hundred thousand would take minutes to start */

static const char *text_or(const char *text, const char *otherwise)
{
	return text ? text : otherwise;
}

int device_names_check(const struct device_options *o, char err[ERR_LEN])
{
	const char *name = text_or(o->name, "auto"), *precision = text_or(o->precision, "bf16"), *attention = text_or(o->attention, "own");
	int index;
	if (strcmp(name, "auto") && !backend_named(name, &index))
		return err_set(err, "unknown device \"%s\"; there are auto, cpu, cuda, cuda:N", name);
	if (strcmp(precision, "bf16") && strcmp(precision, "fp32"))
		return err_set(err, "unknown precision \"%s\"; there are bf16, fp32", precision);
	if (strcmp(attention, "own") && strcmp(attention, "cudnn"))
		return err_set(err, "unknown attention \"%s\"; there are own, cudnn", attention);
	if (o->threads > THREADS_MAX)
		return err_set(err, "%d threads: at most %d", o->threads, THREADS_MAX);
	if (o->isa && !backend_cpu.isa_named(o->isa))
		return err_set(err, "unknown instruction set \"%s\"; there are amx, avx512bf16, avx512, avx2, reference", o->isa);
	return 0;
}

int device_open(struct device **out, const struct device_options *o, char err[ERR_LEN])
{
	*out = NULL;
	const char *name = text_or(o->name, "auto");
	char what[DEVICE_WHAT];
	int index;
	if (device_names_check(o, err))
		return -1;
	if (!strcmp(name, "auto"))
		name = backend_cuda.usable(0, what) ? "cuda" : "cpu";
	const struct backend *b = backend_named(name, &index);
	if (check_attention(b, text_or(o->attention, "own"), text_or(o->precision, "bf16"), err))
		return -1;
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	int threads = o->threads > 0 ? o->threads : cores > 0 ? (int)cores : 1;
	struct pool *pool = pool_new(threads);
	if (!pool)
		return err_set(err, "cannot start %d threads", threads);
	*out = b->open(o, index, pool, err);
	if (!*out)
		pool_free(pool);
	return *out ? 0 : -1;
}

void device_head(struct device *d, const struct backend *b, const struct device_options *o, struct pool *pool)
{
	d->backend = b;
	d->pool = pool;
	d->limit = o->memory_bytes;
	d->low_priority = o->low_priority;
	d->cudnn = o->attention && !strcmp(o->attention, "cudnn");
	d->bf16 = !o->precision || !strcmp(o->precision, "bf16");
}

void device_close(struct device *d)
{
	if (!d)
		return;
	struct pool *pool = d->pool;
	d->backend->close(d);
	pool_free(pool);
}

/* ---- what a device says of itself ---- */

const char *device_name(const struct device *d)
{
	return d->name;
}
const char *device_isa(const struct device *d)
{
	return d->isa;
}
const char *device_isa_why(const struct device *d)
{
	return d->why;
}
void device_use_threads(struct device *d, int n)
{
	pool_use(d->pool, n);
}

int device_threads(const struct device *d)
{
	return pool_threads(d->pool);
}
const char *device_attention(const struct device *d)
{
	return d->cudnn ? "cudnn" : "own";
}
bool device_attention_fits(const struct device *d, int head_dim)
{
	return !d->cudnn || (head_dim % CUDNN_HEAD_DIM_STEP == 0 && head_dim <= CUDNN_HEAD_DIM_MAX);
}
bool device_is_bf16(const struct device *d)
{
	return d->bf16;
}
bool device_offloads(const struct device *d)
{
	return d->host_cache_from != 0;
}
int64_t device_bytes(const struct device *d)
{
	return d->bytes;
}
int64_t device_peak_bytes(const struct device *d)
{
	return d->peak_bytes;
}
void device_peak_reset(struct device *d)
{
	d->peak_bytes = d->bytes;
}
int64_t device_free_bytes(struct device *d)
{
	return d->backend->free_bytes(d);
}
void device_limit(struct device *d, int64_t bytes)
{
	d->limit = bytes;
}
int device_pass_rows(const struct device *d)
{
	return d->pass_rows;
}
const char *device_error(const struct device *d)
{
	return d->error;
}
enum device_failure device_failure(const struct device *d)
{
	return d->failure;
}
const char *device_lost(const struct device *d)
{
	return d->lost;
}
int64_t device_scratch_bytes(const struct device *d, int64_t max_k)
{
	return d->backend->scratch_bytes(d, max_k);
}
bool device_oom(const struct device *d, int64_t *asked)
{
	bool oom = d->failure == DEVICE_MEMORY;
	if (asked)
		*asked = oom ? d->oom_bytes : 0;
	return oom;
}
int64_t device_oom_free(const struct device *d)
{
	return d->failure == DEVICE_MEMORY ? d->oom_free : -1;
}
void device_peaks(struct device *d, struct device_peaks *p)
{
	d->backend->peaks(d, p);
}

struct host_loop {
	void (*fn)(void *arg, int64_t i);
	void *arg;
};
static void host_loop_item(void *arg, int64_t i, int thread)
{
	struct host_loop *l = arg;
	(void)thread;
	l->fn(l->arg, i);
}
void device_parallel(struct device *d, int64_t n, void (*fn)(void *arg, int64_t i), void *arg)
{
	pool_run(d->pool, n, host_loop_item, &(struct host_loop){fn, arg});
}

/* ---- queues and events ---- */

struct queue *queue_new(struct device *d)
{
	return d->backend->queue_new(d, d->low_priority);
}
struct queue *queue_new_low(struct device *d)
{
	return d->backend->queue_new(d, true);
}
void queue_free(struct queue *q)
{
	if (q)
		q->d->backend->queue_free(q);
}
int queue_sync(struct queue *q)
{
	return q->d->backend->queue_sync(q);
}
struct device *queue_device(struct queue *q)
{
	return q->d;
}
struct event *event_new(struct device *d)
{
	return d->backend->event_new(d);
}
void event_free(struct event *e)
{
	if (e)
		e->d->backend->event_free(e);
}
int queue_event_record(struct queue *q, struct event *e)
{
	if (q->d != e->d)
		return device_fail(q->d, "queue_event_record: the event belongs to %s", e->d->name);
	return q->d->backend->event_record(q, e);
}
int queue_event_wait(struct queue *q, struct event *e)
{
	if (q->d->backend != e->d->backend)
		return event_sync(e);
	return q->d->backend->event_wait(q, e);
}
int event_sync(struct event *e)
{
	return e->d->backend->event_sync(e);
}
int event_elapsed(struct event *from, struct event *to, int64_t *ns)
{
	if (from->d != to->d)
		return device_fail(to->d, "event_elapsed: events of %s and %s", from->d->name, to->d->name);
	return to->d->backend->event_elapsed(from, to, ns);
}
