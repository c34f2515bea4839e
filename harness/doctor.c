/* doctor.c: `kvbench doctor`: what this machine offers and whether the embedded model runs on it. */
#include "harness/environment.h"
#include "harness/models.h"
#include "harness/verbs.h"

#include <stdio.h>

static void print_bytes(const char *name, int64_t bytes)
{
	if (bytes < 0)
		printf("%-12s none\n", name);
	else
		printf("%-12s %.1f GB\n", name, (double)bytes / 1e9);
}

static void print_machine(const struct environment *e)
{
	const struct runner_machine *m = &e->machine;
	printf("%-12s %s\n", "version", e->row.version);
	printf("%-12s %s\n", "build", e->row.build_flags);
	printf("%-12s %s\n", "libraries", e->libraries);
	printf("%-12s %s, %s\n", "host", m->host, m->os);
	printf("%-12s %s, %d cores\n", "cpu", m->cpu, m->cores);
	printf("%-12s avx2 %s, avx512 %s, avx512bf16 %s, amx %s\n", "has", m->avx2 ? "yes" : "no", m->avx512 ? "yes" : "no",
		m->avx512bf16 ? "yes" : "no", m->amx ? "yes" : "no");
	printf("%-12s %s: %s\n", "kernels", m->isa, m->isa_why);
	print_bytes("memory", m->ram_bytes);
	print_bytes("available", m->available_bytes);
	print_bytes("cgroup limit", m->cgroup_limit_bytes);
	printf("%-12s %s\n", "gpu", m->gpu_why);
	printf("%-12s %s%s\n", "cudnn", m->cudnn_why, m->cudnn ? ": --attention cudnn may be chosen on a GPU" : "");
}

static int check_model(const struct options *o)
{
	struct runner_options ro;
	struct runner *r = NULL;
	char err[ERR_LEN];
	options_runner(o, &ro);
	if (models_open(&r, &ro, err)) {
		printf("%-12s FAULT: %s\n", "model", err);
		return EXIT_CELLS_FAILED;
	}
	const struct runner_info *i = runner_info(r);
	printf("%-12s %s loads: %s, %.1f million parameters, %d threads\n", "model", ro.target, i->arch, (double)i->params / 1e6,
		i->threads);
	runner_close(r);
	return EXIT_DONE;
}

static int run_doctor(const struct options *o)
{
	struct environment e;
	environment_read(&e, "auto", 0, NULL);
	print_machine(&e);
	return check_model(o);
}

static const struct option_def doctor_options[] = {OPTIONS_MODEL};
const struct verb verb_doctor = {
	.name = "doctor",
	.args = "",
	.title = "machine, kernel path, threads, memory, GPU or why not; does the embedded model load",
	.options = doctor_options,
	.n_options = sizeof doctor_options / sizeof *doctor_options,
	.run = run_doctor,
};
