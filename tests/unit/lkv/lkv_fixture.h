/* lkv_fixture.h: reading the fixtures of tests/fixtures/lkv (tests/oracle/make_lkv.py), and comparing with them. */
#ifndef KVB_TEST_LKV_FIXTURE_H
#define KVB_TEST_LKV_FIXTURE_H

#include "runners/model/safetensors.h"
#include "tests/unit/test.h"

static inline struct st_file *fixture_open(const char *path)
{
	struct st_file *f = NULL;
	char err[ERR_LEN] = "";
	if (st_open(&f, path, err))
		fail_msg("%s", err);
	return f;
}

/* A tensor of doubles, copied (the file's bytes need not be aligned); caller frees. */
static inline double *fixture_get(struct st_file *f, const char *name, int64_t *n)
{
	const struct st_tensor *t = st_find(f, name);
	if (!t || t->type != ST_F64)
		fail_msg("no fp64 tensor \"%s\"", name);
	double *v = mem_new((size_t)t->count + 1, sizeof *v);
	memcpy(v, t->data, (size_t)t->count * sizeof *v);
	if (n)
		*n = t->count;
	return v;
}

static inline int32_t *fixture_ints(struct st_file *f, const char *name, int64_t *n)
{
	const struct st_tensor *t = st_find(f, name);
	if (!t || t->type != ST_I32)
		fail_msg("no int32 tensor \"%s\"", name);
	int32_t *v = mem_new((size_t)t->count + 1, sizeof *v);
	memcpy(v, t->data, (size_t)t->count * sizeof *v);
	*n = t->count;
	return v;
}

/* Every difference within `tolerance` of the largest entry of want; a NaN fails. */
static inline void assert_near(const char *what, const double *got, const double *want, int64_t n, double tolerance)
{
	double largest = 0;
	for (int64_t i = 0; i < n; i++)
		largest = fmax(largest, fabs(want[i]));
	assert_true(largest > 0);
	for (int64_t i = 0; i < n; i++)
		if (!(fabs(got[i] - want[i]) <= tolerance * largest))
			fail_msg("%s: number %lld is %.17g, not %.17g (largest %.3g)", what, (long long)i, got[i], want[i],
				largest);
}

#endif
