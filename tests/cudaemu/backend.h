/* backend.h: what the tests of the CUDA backend share: a CPU device (the reference) and a CUDA device side by side. The tests run over the emulation in every
 * `make test` and, unchanged, on a GPU (tests/gpu.sh). Tolerances are chosen for a GPU; observed values are the emulation's. */
#ifndef KVB_TEST_BACKEND_H
#define KVB_TEST_BACKEND_H

#include "tests/unit/device/fixture.h"

enum { CPU, CUDA };
/* Loops go from the last of PRECISIONS to this one: bf16 first, since most kernels are its, so that a mutant of one is noticed sooner. KVB_TEST_FP32=0:
 * without fp32, for runs on a GPU that has other kernels for bf16 alone. */
static inline int first_precision(void)
{
	const char *fp32 = getenv("KVB_TEST_FP32");
	return fp32 && !strcmp(fp32, "0") ? 1 : 0;
}
struct both {
	struct device *d[2];
	struct queue *q[2];
};

static inline struct both open_both(const char *precision)
{
	struct both b;
	char err[ERR_LEN];
	struct device_options o[2] = {{.name = "cpu", .isa = "reference", .precision = precision, .threads = 2},
		{.name = "cuda", .precision = precision, .threads = 2}};
	for (int i = 0; i < 2; i++) {
		if (device_open(&b.d[i], &o[i], err))
			fail_msg("%s", err);
		b.q[i] = queue_new(b.d[i]);
		if (!b.q[i])
			fail_msg("%s", device_error(b.d[i]));
	}
	return b;
}

/* Nothing may be left on a device but its queue. */
static inline void close_both(struct both *b)
{
	for (int i = 0; i < 2; i++) {
		queue_free(b->q[i]);
		if (i == CUDA)
			assert_int_equal(device_bytes(b->d[i]), 0);
		device_close(b->d[i]);
	}
}

static inline void must(struct both *b, int i, int rc)
{
	if (rc)
		fail_msg("%s: %s", device_name(b->d[i]), device_error(b->d[i]));
}

#endif
