/* bench_impl.h: what the files of the bench share. Private to runners/bench*.c.
 *
 * bench.c opens the target, measures the peaks and calls the rest in order; bench_kernels.c times single operations on the target's
 * shapes; bench_model.c times prefill and decoding of the whole model; bench_peer.c runs other programs beside ours. */
#ifndef KVB_BENCH_IMPL_H
#define KVB_BENCH_IMPL_H

#include "runners/runner_impl.h"

enum {
	BENCH_REPEAT = 3,    /* times a figure is measured at least; at most: */
	BENCH_FIGURES = 20,  /* ... of the model */
	BENCH_KERNELS = 2000, /* ... of an operation alone */
	BENCH_DECODE = 32    /* tokens of one measurement of decoding */
};
struct peer;
enum { PEERS_MAX = 2 };

struct bench {
	struct device *device;
	struct queue *queue;
	struct forward *forward;
	const struct model_config *config;
	const struct runner_bench_options *options;
	struct device_peaks peaks;
	double peak_flops; /* of the precision in use */
	struct peer *peer[PEERS_MAX];
	int peers;
};
/* Whether to measure once more: at least BENCH_REPEAT times, and up to `most` times within so many seconds: on a shared machine a core's units
 * belong to others for tens of milliseconds or seconds, and the best of three may have met none of its own. */
static inline bool bench_again(int done, int most, int64_t begin, double seconds)
{
	return done < BENCH_REPEAT || (done < most && (double)(clock_ns() - begin) < seconds * 1e9);
}

/* A row; peer NAN = none, else in the row's own unit. of_peak may be NAN. */
void bench_row(struct bench *b, const char *name, double value, const char *unit, double of_peak, double peer);
/* Ids, or values in (-scale, scale), the same in every run. Caller frees. */
int32_t *bench_ids(const struct bench *b, int64_t n);
float *bench_values(uint64_t seed, int64_t n, float scale);
/* A cache of `layers` layers of the target's shape, `tokens` rows each; NULL = out of memory. */
struct kv *bench_cache(struct bench *b, int layers, int64_t tokens);
/* A view of a cache of `depth` rows that keeps share r of them, other ones for each seed, layer and head. Caller frees with kept_free. */
struct kept *bench_view(struct bench *b, int layers, int64_t depth, double r, uint64_t seed);
int bench_failed(const struct bench *b, const char *what, char err[ERR_LEN]); /* the device's last error; -1 */

/* ---- bench_kernels.c ---- */
int bench_kernels(struct bench *b, char err[ERR_LEN]);

/* ---- bench_model.c ---- */
int bench_model(struct bench *b, char err[ERR_LEN]);

/* ---- bench_peer.c ---- */
/* One thing measured of a model: prefill of `prompt` tokens, or with prompt 0 the decoding of BENCH_DECODE tokens after `depth`. */
struct figure {
	int64_t prompt, depth;
};
/* Starts nothing that runs beside a measurement of ours. path: the target as runner_info gives it. */
int peers_open(struct bench *b, const char *path, char err[ERR_LEN]);
void peers_close(struct bench *b);
const char *peer_name(const struct peer *p);
int peer_seconds(struct peer *p, const struct figure *f, double *seconds, char err[ERR_LEN]);

#endif
