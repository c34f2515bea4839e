/* bench.c: `kvbench bench`: tokens/s, GEMM and attention, each beside this machine's own measured peak, and beside other programs
 * where the environment names them. */
#include "harness/gate_bench.h"
#include "harness/models.h"
#include "harness/verbs.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *number_or_null(double x)
{
	return isnan(x) ? json_null() : json_real(x);
}

static void take_row(void *user, const struct runner_bench_row *r)
{
	printf("%-44s %12.2f %-9s", r->name, r->value, r->unit);
	if (!isnan(r->of_peak))
		printf(" %5.1f %% of peak", 100 * r->of_peak);
	if (!isnan(r->peer))
		printf("%*s %.2f x of %.2f", isnan(r->of_peak) ? 16 : 0, "", r->ratio, r->peer);
	printf("\n");
	fflush(stdout);
	json_array_append_new(
		user, json_pack("{s:s, s:f, s:s, s:o, s:o, s:o}", "name", r->name, "value", r->value, "unit", r->unit, "of_peak",
			      number_or_null(r->of_peak), "peer", number_or_null(r->peer), "ratio", number_or_null(r->ratio)));
}

static void take_profile(void *user, const struct runner_profile_row *r)
{
	(void)user;
	printf("%-20s %-22s %8lld calls %10.2f ms %5.1f %%", r->phase, r->operation, (long long)r->calls, (double)r->ns * 1e-6,
		100 * r->share);
	if (!isnan(r->of_peak))
		printf(" %6.1f %% of peak (%s)", 100 * r->of_peak, r->bound);
	printf("\n");
	fflush(stdout);
}

static int write_rows(const json_t *rows, const char *path, char err[ERR_LEN])
{
	struct strbuf text = {0};
	char *json = json_dumps(rows, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	strbuf_puts(&text, json ? json : "[]");
	free(json);
	int rc = file_write(path, &text, err);
	strbuf_free(&text);
	return rc;
}

static const char *from_environment(const char *name)
{
	const char *value = getenv(name);
	return value && *value ? value : NULL;
}

static int run_bench(const struct options *o)
{
	static const char *const of_models[] = {"target", "tokens", "seconds", "profile", "out"};
	struct runner_options ro;
	struct model_paths found;
	char err[ERR_LEN];
	bool gate = option_has(o, "gate");
	option_only(o, "nights", gate, "--gate");
	for (size_t i = 0; i < sizeof of_models / sizeof *of_models; i++)
		option_only(o, of_models[i], !gate, "benchmarks of a model");
	if (gate) {
		int failed = gate_bench(option_int(o, "nights", 2, 200), err);
		return failed ? (fprintf(stderr, "kvbench bench: %s\n", err), EXIT_CELLS_FAILED) : EXIT_DONE;
	}
	const char *out = option_text(o, "out", NULL);
	json_t *rows = json_array();
	struct runner_bench_options b = {.tokens = option_int(o, "tokens", 1, 4096),
		.seconds = option_number(o, "seconds", 8),
		.peer_llama = from_environment("BENCH_PEER_LLAMA"),
		.peer_torch = from_environment("BENCH_PEER_TORCH"),
		.user = rows,
		.row = take_row,
		.profile = option_has(o, "profile") ? take_profile : NULL};
	options_runner(o, &ro);
	ro.target = option_text(o, "target", RUNNER_BENCH_TARGET);
	int rc = models_find(&ro, &found, err) ? -1 : runner_bench(&ro, &b, err);
	if (!rc && out)
		rc = write_rows(rows, out, err);
	json_decref(rows);
	models_free(&found);
	if (rc)
		fprintf(stderr, "kvbench bench: %s\n", err);
	return rc ? EXIT_CELLS_FAILED : EXIT_DONE;
}

static const struct option_def bench_options[] = {
	OPTIONS_TARGET,
	{"tokens", "N", "longest prefill (default 4096)"},
	{"seconds", "S", "of repeating a figure beyond its three times; an operation alone has a fifth of it (default 8)"},
	{"profile", NULL, "where the time of a prefill and of decoding goes, an operation a line"},
	{"gate", NULL, "instead: false alarms and power of `kvbench gate`, on simulated nights"},
	{"nights", "N", "with --gate (default 200)"},
	{"out", "FILE", "the rows as a JSON list as well (-o)"},
};
const struct verb verb_bench = {
	.name = "bench",
	.args = "",
	.title = "tokens/s, GEMM and attention beside the measured peaks of this machine",
	.help = "Without --target the shape of SmolLM2-135M with random weights is measured. Other programs run by turns with\n"
		"kvbench when the environment names them: BENCH_PEER_LLAMA=llama-bench (needs a .gguf target),\n"
		"BENCH_PEER_TORCH=python (torch and transformers; needs a folder or random: target and the source tree as\n"
		"working folder). A last figure `R x of P` of a row is its ratio R to the peer's P in the same unit.\n",
	.options = bench_options,
	.n_options = sizeof bench_options / sizeof *bench_options,
	.run = run_bench,
};
