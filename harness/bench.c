/* bench.c: `kvbench bench`: tokens/s, GEMM and attention, each beside this machine's own measured peak. */
#include "harness/verbs.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

static json_t *number_or_null(double x)
{
	return isnan(x) ? json_null() : json_real(x);
}

/* peer and ratio (another program's figure on the same machine) are filled by whoever measures one. */
static void take_row(void *user, const struct runner_bench_row *r)
{
	printf("%-44s %12.2f %-10s", r->name, r->value, r->unit);
	if (!isnan(r->of_peak))
		printf(" %5.1f %% of peak", 100 * r->of_peak);
	printf("\n");
	fflush(stdout);
	json_array_append_new(user, json_pack("{s:s, s:f, s:s, s:o, s:n, s:n}", "name", r->name, "value", r->value, "unit",
					    r->unit, "of_peak", number_or_null(r->of_peak), "peer", "ratio"));
}

static int run_bench(const struct options *o)
{
	struct runner_options ro;
	char err[ERR_LEN];
	const char *out = option_text(o, "out", NULL);
	json_t *rows = json_array();
	options_runner(o, &ro);
	int rc = runner_bench(ro.target, &ro, take_row, rows, err);
	if (!rc && out && json_dump_file(rows, out, JSON_INDENT(1) | JSON_REAL_PRECISION(9)))
		rc = err_set(err, "cannot write %s", out);
	json_decref(rows);
	if (rc)
		fprintf(stderr, "kvbench bench: %s\n", err);
	return rc ? EXIT_CELLS_FAILED : EXIT_DONE;
}

static const struct option_def bench_options[] = {
	OPTIONS_MODEL,
	{"out", "FILE", "the rows as a JSON list as well (-o)"},
};
const struct verb verb_bench = {
	.name = "bench",
	.args = "",
	.title = "tokens/s, GEMM and attention beside the measured peaks of this machine",
	.options = bench_options,
	.n_options = sizeof bench_options / sizeof *bench_options,
	.run = run_bench,
};
