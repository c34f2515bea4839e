/* test_bench.c: what the bench hands over: rows and their ratios, the profile's shares, peers that are small shell scripts. No speed is
 * asserted: the machine's other work decides that. */
#include "runners/runner.h"
#include "tests/unit/test.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHAPE "random:tests/fixtures/models/smollm2-tiny/config.json"
#define GGUF "tests/fixtures/gguf/smollm2-tiny.gguf"

enum { MAX_ROWS = 64 };
struct seen {
	int n, phases;
	struct runner_bench_row row[MAX_ROWS];
	double share, shares[3]; /* of the phase at work; of the phases that ended */
};

static void take(void *user, const struct runner_bench_row *r)
{
	struct seen *s = user;
	assert_in_range(s->n, 0, MAX_ROWS - 1);
	s->row[s->n++] = *r;
}

static void take_profile(void *user, const struct runner_profile_row *r)
{
	struct seen *s = user;
	assert_true(r->calls > 0 && isfinite(r->share) && *r->phase && *r->operation);
	s->share += r->share;
	if (!strcmp(r->operation, "between operations")) {
		assert_true(isnan(r->of_peak) && !*r->bound);
		s->shares[s->phases++] = s->share;
		s->share = 0;
	} else
		assert_true(r->of_peak > 0 && (!strcmp(r->bound, "arithmetic") || !strcmp(r->bound, "memory")));
}

static const struct runner_bench_row *find(const struct seen *s, const char *name)
{
	for (int i = 0; i < s->n; i++)
		if (!strcmp(s->row[i].name, name))
			return &s->row[i];
	fail_msg("no row is called '%s'", name);
	return NULL;
}

static int bench(const char *target, struct runner_bench_options b, struct seen *s, char err[ERR_LEN])
{
	*s = (struct seen){0};
	b.user = s;
	b.row = take;
	err[0] = 0;
	return runner_bench(&(struct runner_options){.target = target, .models_dir = "runners/model"}, &b, err);
}

/* A program that stands for a peer. Caller frees and unlinks. */
static char *script(const char *body)
{
	char *path = text_copy("/tmp/kvb-peer-XXXXXX");
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_true(dprintf(fd, "#!/bin/sh\n%s\n", body) > 0);
	assert_int_equal(fchmod(fd, 0700), 0);
	close(fd);
	return path;
}

static void script_free(char *path)
{
	unlink(path);
	free(path);
}

static int file_lines(const char *path)
{
	char err[ERR_LEN], *data;
	size_t len;
	int lines = 0;
	assert_int_equal(file_read(path, &data, &len, err), 0);
	for (size_t i = 0; i < len; i++)
		lines += data[i] == '\n';
	free(data);
	return lines;
}

static void test_rows_profile_and_torch(void **state)
{
	(void)state;
	char err[ERR_LEN];
	/* the peer answers what it was asked with, so that a figure mixed up with another would show */
	char *asked = script(""); /* a line each time a prefill of 512 was asked for */
	setenv("KVB_ASKED", asked, 1);
	char *torch = script("test \"$1\" = tests/oracle/bench_torch.py && test -f \"$2\" && test -n \"$MALLOC_TRIM_THRESHOLD_\" || exit 1\n"
			     "while read what a b; do case $what in prefill) test $a != 512 || echo >>$KVB_ASKED; echo seconds 2;; decode) echo seconds 4;; esac; done");
	struct seen s;
	if (bench(SHAPE, (struct runner_bench_options){.tokens = 4096, .peer_torch = torch, .profile = take_profile}, &s, err))
		fail_msg("%s", err);
	script_free(torch);
	assert_int_equal(file_lines(asked), 2 + 3); /* no seconds for more: three times, behind the script's own two lines */
	script_free(asked);
	assert_string_equal(s.row[0].name, "peak fp32 FMA");
	for (int i = 0; i < s.n; i++) {
		const struct runner_bench_row *r = &s.row[i];
		bool fitted = !strncmp(r->name, "fit ", 4); /* what a tiny model's noise is fitted by may be negative */
		if (!(fitted || r->value >= 0) || *r->unit == 0 || r->of_peak <= 0)
			fail_msg("%s: %g %s, %g of peak", r->name, r->value, r->unit, r->of_peak);
		assert_true(isnan(r->peer) ? isnan(r->ratio) : fabs(r->ratio * r->peer - r->value) <= 1e-9 * r->value);
	}
	assert_float_equal(find(&s, "prefill 512 / torch")->peer, 256, 1e-9);
	assert_float_equal(find(&s, "prefill 4096 / torch")->peer, 2048, 1e-9);
	assert_float_equal(find(&s, "decode, depth 4096 / torch")->peer, 8, 1e-9);
	assert_true(find(&s, "prefill 512")->value == find(&s, "prefill 512 / torch")->value);
	assert_true(isnan(find(&s, "prefill 512")->peer));
	assert_true(find(&s, "step of 32 variants / step of 1")->ratio > 0);
	assert_true(find(&s, "column sums on top of attention, T 2048")->ratio > 0);
	assert_true(find(&s, "attention of a token, view r 0.3 of 2048")->ratio > 0);
	/* three points and two unknowns: the fit passes near all of them */
	assert_true(find(&s, "fit, largest deviation")->value < 100);
	assert_float_equal(100 * fabs(find(&s, "prefill time 1024 / fitted aT + bT^2")->ratio - 1), find(&s, "fit, largest deviation")->value,
		find(&s, "fit, largest deviation")->value + 1e-9);
	assert_string_equal(s.row[s.n - 1].name, "peak memory");
	assert_int_equal(s.phases, 3);
	assert_float_equal(s.shares[0], 1, 1e-6);
	assert_float_equal(s.shares[1], 1, 1e-6);
	assert_float_equal(s.shares[2], 1, 1e-6);
}

static void test_llama(void **state)
{
	(void)state;
	char err[ERR_LEN];
	char *llama = script("echo \"[{\\\"n_prompt\\\": $4, \\\"avg_ts\\\": 1$4$6}]\""); /* -m FILE -p N -n M: 1NM tokens/s */
	struct seen s;
	if (bench(GGUF, (struct runner_bench_options){.tokens = 512, .peer_llama = llama}, &s, err))
		fail_msg("%s", err);
	script_free(llama);
	assert_float_equal(find(&s, "prefill 512 / llama.cpp")->peer, 15120, 1e-6);
	assert_float_equal(find(&s, "decode, depth 512 / llama.cpp")->peer, 1032, 1e-6);
	for (int i = 0; i < s.n; i++)
		assert_null(strstr(s.row[i].name, "fit")); /* too short for a fit */
}

static void test_errors(void **state)
{
	(void)state;
	char err[ERR_LEN], *silent = script("exit 3");
	struct seen s;
	assert_int_equal(bench(SHAPE, (struct runner_bench_options){.tokens = 512, .peer_llama = "llama-bench"}, &s, err), -1);
	assert_non_null(strstr(err, "needs a .gguf target"));
	assert_int_equal(bench(GGUF, (struct runner_bench_options){.tokens = 512, .peer_torch = "python3"}, &s, err), -1);
	assert_non_null(strstr(err, "config.json"));
	assert_int_equal(s.n, 0); /* known before anything is measured */
	assert_int_equal(bench("random:no-such.json", (struct runner_bench_options){.tokens = 512}, &s, err), -1);
	assert_non_null(strstr(err, "no-such.json"));
	if (!getenv("KVB_SANITIZED")) {
		assert_int_equal(bench(SHAPE, (struct runner_bench_options){.tokens = 512, .peer_torch = silent}, &s, err), -1);
		assert_non_null(strstr(err, "gave no figure"));
		assert_int_equal(bench(GGUF, (struct runner_bench_options){.tokens = 512, .peer_llama = silent}, &s, err), -1);
		assert_non_null(strstr(err, "printed no speed"));
	}
	script_free(silent);
}

int main(void)
{
	const struct CMUnitTest measuring[] = {
		cmocka_unit_test(test_rows_profile_and_torch),
		cmocka_unit_test(test_llama),
		cmocka_unit_test(test_errors),
	};
	const struct CMUnitTest sanitized[] = {cmocka_unit_test(test_errors)}; /* peaks mean nothing under sanitizers */
	return getenv("KVB_SANITIZED") ? cmocka_run_group_tests(sanitized, NULL, NULL) : cmocka_run_group_tests(measuring, NULL, NULL);
}
