/* device.c: the CPU as a backend: its memory, the choice of its kernels (once, when it is opened), its queues, its table.
 *
 * Choice: the best table this CPU can run and the system grants (AMX), where a short timing finds its products of bf16 faster than fp32 FMA: vdpbf16ps
 * runs at half the FLOP/s of fp32 FMA on Intel's cores and at twice on Zen 4 and 5. */
#include "runners/device/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const int64_t HUGE_PAGE = 2 << 20;

/* ---- memory ---- */

static void *pages_new(int64_t bytes)
{
	void *p = NULL;
	bool huge = bytes >= HUGE_PAGE;
	if (posix_memalign(&p, (size_t)(huge ? HUGE_PAGE : ARENA_ALIGN), (size_t)bytes))
		return NULL;
	if (huge)
		madvise(p, (size_t)bytes, MADV_HUGEPAGE); /* a wish: nothing depends on it */
	return p;
}

static void *cpu_alloc(struct device *d, int64_t bytes, bool cache)
{
	void *p = arena_take(&cpu_device(d)->arena, bytes);
	(void)cache;
	return p ? p : pages_new(bytes);
}

static void cpu_free(struct device *d, void *p, int64_t bytes, bool cache)
{
	struct arena *a = &cpu_device(d)->arena;
	(void)cache;
	if (arena_holds(a, p))
		arena_give(a, p, bytes);
	else
		free(p);
}

/* Matrices of less than a huge page, too, stand in one then: read through pages of 4 KB, the weights of a small model came a quarter slower. The block costs what is
 * written to it, no more. Under AddressSanitizer every piece keeps a zone of its own. */
static void cpu_reserve(struct device *head, int64_t bytes)
{
#ifndef __SANITIZE_ADDRESS__
	struct cpu_device *d = cpu_device(head);
	bytes = round_up(bytes + ARENA_RANGES, ARENA_ALIGN);
	if (arena_largest(&d->arena) >= bytes)
		return;
	arena_drop_unused(&d->arena, free);
	void *base = pages_new(bytes);
	if (base)
		arena_add(&d->arena, base, bytes);
#else
	(void)head;
	(void)bytes;
#endif
}

static int64_t cpu_free_bytes(struct device *d)
{
	(void)d;
	return -1; /* the system hands out more than it has */
}

static int cpu_upload(struct device *d, void *dst, const void *host, int64_t bytes)
{
	(void)d;
	memcpy(dst, host, (size_t)bytes);
	return 0;
}

static int64_t cpu_scratch_bytes(const struct device *d, int64_t max_k)
{
	return (int64_t)pool_threads(d->pool) * SCRATCH_BYTES + LINEAR_GROUP * (cpu_has_blocks(d) ? round_up(max_k, OPERAND_BLOCK) * 2 : round_up(max_k, 2) * 4);
}

/* ---- choice of kernels ---- */

/* AMX is there only if the system grants its 8 KB of state: once a process, for all its threads. */
static bool have_amx(void)
{
	enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
	return cpu_has_amx() && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
static bool have_any(void)
{
	return true;
}

/* Best first. */
static const struct choice {
	const char *name;
	const struct cpu_kernels *kernels;
	bool (*supported)(void);
} choices[] = {
	{"amx", &kernels_amx, have_amx},
	{"avx512bf16", &kernels_avx512bf16, cpu_has_avx512bf16},
	{"avx512", &kernels_avx512, cpu_has_avx512},
	{"avx2", &kernels_avx2, cpu_has_avx2},
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

/* NULL = none. */
static const struct choice *choice_named(const char *name)
{
	for (int i = 0; i < CHOICES; i++)
		if (!strcmp(choices[i].name, name))
			return &choices[i];
	return NULL;
}

static bool cpu_isa_named(const char *name)
{
	return choice_named(name);
}

static const struct cpu_kernels *choose_named(const char *name, bool bf16, char why[128], char err[ERR_LEN])
{
	const struct choice *c = choice_named(name);
	snprintf(why, 128, "asked for");
	if (c->kernels->dot && !bf16)
		return err_set(err, "instruction set \"%s\" works on bf16 alone", name), NULL;
	if (!c->supported())
		return err_set(err, "this CPU lacks the instruction set \"%s\", or the system does not grant it", name), NULL;
	return c->kernels;
}

static const struct cpu_kernels *choose_best(bool bf16, char why[128])
{
	for (int i = 0; i < CHOICES; i++) {
		const struct choice *c = &choices[i];
		if ((c->kernels->dot && !bf16) || !c->supported())
			continue;
		if (!c->kernels->dot) {
			if (!*why)
				snprintf(why, 128, "the best this CPU has for %s", bf16 ? "bf16" : "fp32");
			return c->kernels;
		}
		double ratio = dot_over_fma(c->kernels);
		snprintf(why, 128, "%s measured at %.1f x fp32 FMA%s", c->kernels->dot, ratio, ratio > 1 ? "" : ": bf16 is widened");
		if (ratio > 1)
			return c->kernels;
	}
	return &kernels_reference;
}

/* ---- device ---- */

static bool cpu_usable(int index, char what[DEVICE_WHAT])
{
	char why[128];
	(void)index;
	snprintf(what, DEVICE_WHAT, "%s", choose_best(true, why)->name);
	return true;
}

static void cpu_close(struct device *head)
{
	struct cpu_device *d = cpu_device(head);
	device_free(head, d->scratch, (int64_t)pool_threads(head->pool) * SCRATCH_BYTES);
	device_free(head, d->shared, d->shared_bytes);
	arena_drop_unused(&d->arena, free);
	free(d);
}

static struct device *cpu_open(const struct device_options *o, int index, struct pool *pool, char err[ERR_LEN])
{
	struct cpu_device *d = mem_new(1, sizeof *d);
	(void)index;
	device_head(&d->head, &backend_cpu, o, pool);
	d->head.pass_rows = 512;
	snprintf(d->head.name, sizeof d->head.name, "cpu");
	d->kernels = o->isa ? choose_named(o->isa, d->head.bf16, d->head.why, err) : choose_best(d->head.bf16, d->head.why);
	if (!d->kernels)
		goto fail;
	d->head.isa = d->kernels->name;
	if (!(d->scratch = device_alloc(&d->head, (int64_t)pool_threads(pool) * SCRATCH_BYTES))) {
		err_set(err, "opening the CPU: %s", d->head.error);
		goto fail;
	}
	return &d->head;
fail:
	cpu_close(&d->head);
	return NULL;
}

/* ---- queues: they run at once, nothing is ever waiting in them ---- */

static struct queue *cpu_queue_new(struct device *d, bool low_priority)
{
	struct queue *q = mem_new(1, sizeof *q);
	(void)low_priority;
	q->d = d;
	return q;
}
static void cpu_queue_free(struct queue *q)
{
	free(q);
}
static int cpu_queue_sync(struct queue *q)
{
	(void)q;
	return 0;
}

struct cpu_event {
	struct event head;
	int64_t ns; /* when it was recorded */
};
static struct event *cpu_event_new(struct device *d)
{
	struct cpu_event *e = mem_new(1, sizeof *e);
	e->head.d = d;
	return &e->head;
}
static void cpu_event_free(struct event *e)
{
	free(e);
}
static int cpu_event_record(struct queue *q, struct event *e)
{
	(void)q;
	((struct cpu_event *)e)->ns = clock_ns();
	return 0;
}
static int cpu_event_wait(struct queue *q, struct event *e)
{
	(void)q;
	(void)e;
	return 0;
}
static int cpu_event_sync(struct event *e)
{
	(void)e;
	return 0;
}
static int cpu_event_elapsed(struct event *from, struct event *to, int64_t *ns)
{
	*ns = ((struct cpu_event *)to)->ns - ((struct cpu_event *)from)->ns;
	return 0;
}

const struct backend backend_cpu = {
	.name = "cpu",
	.isa_named = cpu_isa_named,
	.usable = cpu_usable,
	.open = cpu_open,
	.close = cpu_close,
	.scratch_bytes = cpu_scratch_bytes,
	.peaks = cpu_peaks,
	.alloc = cpu_alloc,
	.free = cpu_free,
	.reserve = cpu_reserve,
	.free_bytes = cpu_free_bytes,
	.upload = cpu_upload,
	.queue_new = cpu_queue_new,
	.queue_free = cpu_queue_free,
	.queue_sync = cpu_queue_sync,
	.event_new = cpu_event_new,
	.event_free = cpu_event_free,
	.event_record = cpu_event_record,
	.event_wait = cpu_event_wait,
	.event_sync = cpu_event_sync,
	.event_elapsed = cpu_event_elapsed,
	.tensor_write = cpu_tensor_write,
	.tensor_read = cpu_tensor_read,
	.tensor_fill = cpu_tensor_fill,
	.operand_bytes = cpu_operand_bytes,
	.operand_clear = cpu_operand_clear,
	.weight_new = cpu_weight_new,
	.weight_free = cpu_weight_free,
	.weight_bytes = cpu_weight_bytes,
	.kv_read = cpu_kv_read,
	.kv_write = cpu_kv_write,
	.kv_append = cpu_kv_append,
	.kv_gather = cpu_kv_gather,
	.embed = cpu_embed,
	.rmsnorm = cpu_rmsnorm,
	.linear = cpu_linear,
	.rope_table = cpu_rope_table,
	.linear_swiglu = cpu_linear_swiglu,
	.copy = cpu_copy,
	.gather_rows = cpu_gather_rows,
	.argmax = cpu_argmax,
	.topk = cpu_topk,
	.top_counts = cpu_top_counts,
	.pool = cpu_pool,
	.attention = cpu_attention,
	.attn_lse = cpu_attn_lse,
	.attn_reduce = cpu_attn_reduce,
	.moments = cpu_moments,
};
