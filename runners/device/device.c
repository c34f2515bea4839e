/* device.c: opens the CPU, chooses its kernels once, counts its memory.
 *
 * Choice: the best table this CPU can run. Between avx512bf16 and avx512 a short timing decides: vdpbf16ps runs at half the
 * FLOP/s of fp32 FMA on Intel's cores and at twice on Zen 4. */
#include "runners/device/cpu/cpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const int64_t HUGE_PAGE = 2 << 20;

/* ---- memory ---- */

int device_fail(struct device *d, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(d->error, sizeof d->error, fmt, ap);
	va_end(ap);
	d->oom = false;
	return -1;
}

void *device_alloc(struct device *d, int64_t bytes)
{
	void *p = NULL;
	bytes = round_up(bytes > 0 ? bytes : 1, 64);
	bool huge = bytes >= HUGE_PAGE;
	if ((d->limit && bytes > d->limit - d->bytes) || posix_memalign(&p, huge ? (size_t)HUGE_PAGE : 64, (size_t)bytes)) {
		device_fail(d, "out of memory: asked for %lld bytes with %lld in use, limit %lld", (long long)bytes,
			(long long)d->bytes, (long long)d->limit);
		d->oom = true;
		d->oom_bytes = bytes;
		return NULL;
	}
	if (huge)
		madvise(p, (size_t)bytes, MADV_HUGEPAGE); /* a wish: nothing depends on it */
	d->bytes += bytes;
	if (d->bytes > d->peak_bytes)
		d->peak_bytes = d->bytes;
	return p;
}

void device_free(struct device *d, void *p, int64_t bytes)
{
	if (!p)
		return;
	free(p);
	d->bytes -= round_up(bytes > 0 ? bytes : 1, 64);
}

void *device_scratch(struct device *d, int thread)
{
	return (char *)d->scratch + (int64_t)thread * SCRATCH_BYTES;
}

/* ---- choice of kernels ---- */

static bool have_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
static bool have_avx512(void)
{
	return have_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
static bool have_avx512bf16(void)
{
	return have_avx512() && __builtin_cpu_supports("avx512bf16");
}
static bool have_any(void)
{
	return true;
}

/* Best first. kernels NULL: the place of a path that is not built in. */
static const struct choice {
	const char *name;
	const struct cpu_kernels *kernels;
	bool (*supported)(void);
} choices[] = {
	{"amx", NULL, NULL},
	{"avx512bf16", &kernels_avx512bf16, have_avx512bf16},
	{"avx512", &kernels_avx512, have_avx512},
	{"avx2", &kernels_avx2, have_avx2},
	{"reference", &kernels_reference, have_any},
};
enum { CHOICES = sizeof choices / sizeof *choices };

static int64_t thread_ns(void) /* of this thread: other programs on the machine do not count */
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Best rates of both loops, measured by turns: a core wakes its wide units only after some microseconds. About 0.3 ms. */
static double dot_over_fma(const struct cpu_kernels *k)
{
	double fma = 0, dot = 0;
	for (int i = 0; i < 10; i++) {
		int64_t t0 = thread_ns();
		double f = k->peak_fma(4000);
		int64_t t1 = thread_ns();
		double b = k->peak_dot(4000);
		int64_t t2 = thread_ns();
		fma = t1 > t0 ? fmax(fma, f / (double)(t1 - t0)) : fma;
		dot = t2 > t1 ? fmax(dot, b / (double)(t2 - t1)) : dot;
	}
	return fma > 0 ? dot / fma : 0;
}

static const struct cpu_kernels *choose_named(const char *name, char why[128], char err[ERR_LEN])
{
	for (int i = 0; i < CHOICES; i++) {
		const struct choice *c = &choices[i];
		if (strcmp(c->name, name))
			continue;
		if (!c->kernels)
			err_set(err, "instruction set \"%s\" is not built in", name);
		else if (!c->supported())
			err_set(err, "this CPU lacks the instruction set \"%s\"", name);
		else {
			snprintf(why, 128, "asked for");
			return c->kernels;
		}
		return NULL;
	}
	err_set(err, "unknown instruction set \"%s\"; there are avx512bf16, avx512, avx2, reference", name);
	return NULL;
}

static const struct cpu_kernels *choose_best(bool bf16, char why[128])
{
	for (int i = 0; i < CHOICES; i++) {
		const struct choice *c = &choices[i];
		if (!c->kernels || !c->supported())
			continue;
		if (!c->kernels->peak_dot) {
			snprintf(why, 128, "the best this CPU has");
			return c->kernels;
		}
		if (!bf16)
			continue; /* nothing in it for fp32 */
		double ratio = dot_over_fma(c->kernels);
		if (ratio > 1) {
			snprintf(why, 128, "vdpbf16ps measured at %.1f x fp32 FMA", ratio);
			return c->kernels;
		}
		snprintf(why, 128, "vdpbf16ps measured at %.1f x fp32 FMA: bf16 is widened", ratio);
		return choices[i + 1].kernels;
	}
	return &kernels_reference;
}

/* ---- device ---- */

int device_open(struct device **out, const struct device_options *o, char err[ERR_LEN])
{
	*out = NULL;
	const char *name = o->name ? o->name : "auto", *precision = o->precision ? o->precision : "bf16";
	if (strcmp(name, "auto") && strcmp(name, "cpu"))
		return err_set(err, "unknown device \"%s\"; there are auto, cpu", name);
	if (strcmp(precision, "bf16") && strcmp(precision, "fp32"))
		return err_set(err, "unknown precision \"%s\"; there are bf16, fp32", precision);
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	int threads = o->threads > 0 ? o->threads : cores > 0 ? (int)cores : 1;

	struct device *d = mem_new(1, sizeof *d);
	d->limit = o->memory_bytes;
	d->bf16 = !strcmp(precision, "bf16");
	d->kernels = o->isa ? choose_named(o->isa, d->why, err) : choose_best(d->bf16, d->why);
	if (!d->kernels)
		goto fail;
	if (!(d->pool = pool_new(threads))) {
		err_set(err, "cannot start %d threads", threads);
		goto fail;
	}
	if (!(d->scratch = device_alloc(d, (int64_t)threads * SCRATCH_BYTES))) {
		err_set(err, "opening the CPU: %s", d->error);
		goto fail;
	}
	*out = d;
	return 0;
fail:
	device_close(d);
	return -1;
}

void device_close(struct device *d)
{
	if (!d)
		return;
	if (d->pool)
		device_free(d, d->scratch, (int64_t)pool_threads(d->pool) * SCRATCH_BYTES);
	device_free(d, d->shared, d->shared_bytes);
	pool_free(d->pool);
	free(d);
}

const char *device_name(const struct device *d)
{
	(void)d;
	return "cpu";
}
const char *device_isa(const struct device *d)
{
	return d->kernels->name;
}
const char *device_isa_why(const struct device *d)
{
	return d->why;
}
int device_threads(const struct device *d)
{
	return pool_threads(d->pool);
}
bool device_is_bf16(const struct device *d)
{
	return d->bf16;
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
const char *device_error(const struct device *d)
{
	return d->error;
}
int64_t device_scratch_bytes(const struct device *d, int64_t max_k)
{
	return (int64_t)pool_threads(d->pool) * SCRATCH_BYTES + LINEAR_GROUP * round_up(max_k, 2) * 4;
}
bool device_oom(const struct device *d, int64_t *asked)
{
	if (asked)
		*asked = d->oom ? d->oom_bytes : 0;
	return d->oom;
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

/* A CPU queue runs at once: nothing is ever waiting in it. */
struct queue *queue_new(struct device *d)
{
	struct queue *q = mem_new(1, sizeof *q);
	q->d = d;
	return q;
}
void queue_free(struct queue *q)
{
	free(q);
}
int queue_sync(struct queue *q)
{
	(void)q;
	return 0;
}
struct device *queue_device(struct queue *q)
{
	return q->d;
}
