/* peaks.c: what this machine can do at most, for the bench's ratios. Measured on all threads at once, best of several rounds:
 * the widest FMA there is, whatever kernels were chosen, and the faster of one read stream a thread and STREAMS of them, over memory larger than the
 * caches share: CPUs differ in how much of one stream they ask for ahead. */
#include "runners/device/cpu/cpu.h"

#include <stdlib.h>

static const int64_t MEASURE_NS = 100 * 1000 * 1000;
/* Of each thread, 256 MB: as the weights of a small model. Of 96 MB a shared cache of 480 MB held enough to double the rate. All together at most 4 GB. */
enum { READ_FLOATS = 64 << 20, READ_FLOATS_ALL = 1 << 30, STREAMS = 8 };

struct peak_job {
	double (*flops)(int64_t rounds);
	float (*read)(const float *x, int64_t n, int streams);
	int streams;
	float *const *x;
	int64_t floats; /* of each x */
	double *done;   /* [threads] */
	float *sink;  /* [threads] */
};

static void peak_item(void *arg, int64_t i, int thread)
{
	struct peak_job *j = arg;
	(void)thread;
	if (j->flops)
		j->done[i] = j->flops(20000);
	else {
		j->sink[i] += j->read(j->x[i], j->floats, j->streams);
		j->done[i] = 4.0 * (double)j->floats;
	}
}

static double rate(struct device *d, struct peak_job *j)
{
	int threads = pool_threads(d->pool);
	double best = 0;
	for (int64_t start = clock_ns(), t = start; t - start < MEASURE_NS;) {
		double sum = 0;
		pool_run(d->pool, threads, peak_item, j);
		int64_t end = clock_ns();
		for (int i = 0; i < threads; i++)
			sum += j->done[i];
		if (sum / (double)(end - t) > best)
			best = sum / (double)(end - t);
		t = end;
	}
	return best * 1e9;
}

void cpu_peaks(struct device *d, struct device_peaks *p)
{
	int threads = pool_threads(d->pool);
	*p = (struct device_peaks){0};
	double *done = mem_new((size_t)threads, sizeof *done);
	float *sink = mem_new((size_t)threads, sizeof *sink), **x = mem_new((size_t)threads, sizeof *x);
	const struct cpu_kernels *k = cpu_device(d)->kernels;
	if (!k->dot && cpu_has_avx512bf16())
		k = &kernels_avx512bf16;
	p->fma_f32 = rate(d, &(struct peak_job){.flops = k->peak_fma, .done = done});
	if (k->dot)
		p->dot_bf16 = rate(d, &(struct peak_job){.flops = k->peak_dot, .done = done});
	bool all = true;
	int64_t floats = READ_FLOATS_ALL / threads < READ_FLOATS ? READ_FLOATS_ALL / threads / 512 * 512 : READ_FLOATS;
	for (int i = 0; i < threads; i++) {
		x[i] = device_alloc(d, 4 * floats);
		all = all && x[i];
		if (x[i])
			memset(x[i], 0, (size_t)(4 * floats)); /* pages exist before they are timed */
	}
	for (int streams = 1; streams <= STREAMS && all; streams *= STREAMS) {
		double bytes = rate(d, &(struct peak_job){.read = k->read, .streams = streams, .x = x, .floats = floats, .done = done, .sink = sink});
		p->read_bytes = bytes > p->read_bytes ? bytes : p->read_bytes;
	}
	for (int i = 0; i < threads; i++)
		device_free(d, x[i], 4 * floats);
	free(x);
	free(sink);
	free(done);
}
