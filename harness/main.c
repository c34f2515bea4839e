/* main.c: kvbench VERB [options]: finds the verb, reads its options, runs it. Data goes to stdout, talk to stderr. */
#include "harness/verbs.h"
#include "results/compare.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct verb *const verbs[] = {
	&verb_run, &verb_status, &verb_report, &verb_export, &verb_ask, &verb_list, &verb_doctor, &verb_bench, &verb_calibrate, &verb_collect, &verb_train, &verb_scores, &verb_continue,
	&verb_fetch, &verb_score,
	&verb_merge,
	&verb_compare,
	&verb_gate,
	&verb_baseline,
	&verb_paper,
	&verb_verify,
};
enum { VERBS = sizeof verbs / sizeof *verbs };

static const struct {
	int code;
	const char *means;
} exit_codes[] = {
	{EXIT_DONE, "done"},
	{EXIT_CELLS_FAILED, "some cells failed (each is a row that says why), or the work could not be done"},
	{EXIT_USAGE, "bad usage or plan"},
	{GATE_REGRESSION, "gate: a regression; verify: faults"},
	{GATE_INCOMPLETE, "gate: incomplete, or nothing measured, or no baseline; verify: nothing measured"},
	{EXIT_TRY_AGAIN, "try again: interrupted (TERM, INT, USR1) or the database is locked; the same command continues"},
};

static void print_help(FILE *to)
{
	fprintf(to, "kvbench %s: what KV-cache pruning does to a long-context language model\n\n", kvbench_version);
	for (int i = 0; i < VERBS; i++)
		fprintf(to, "  kvbench %-9s %-15s %s\n", verbs[i]->name, verbs[i]->args, verbs[i]->title);
	fprintf(to, "  kvbench %-9s %-15s %s\n\nEach verb has --help. Exit codes:\n", "version", "",
		"the version, as git describes it");
	for (size_t i = 0; i < sizeof exit_codes / sizeof *exit_codes; i++)
		fprintf(to, "  %2d  %s\n", exit_codes[i].code, exit_codes[i].means);
}

static const struct verb *find_verb(const char *name)
{
	const char *names[VERBS];
	for (int i = 0; i < VERBS; i++) {
		if (!strcmp(names[i] = verbs[i]->name, name))
			return verbs[i];
	}
	const char *near = name_nearest(name, names, VERBS);
	die(EXIT_USAGE, "there is no verb \"%s\"%s%s%s; see `kvbench help`", name, near ? "; did you mean \"" : "",
		near ? near : "", near ? "\"?" : "");
}

/* JSON is a small thing like those of mem_new. jansson itself says nothing where memory is short: a key is missing, a message empty. */
static void *json_memory(size_t bytes)
{
	return mem_grow(NULL, bytes, 1);
}

int main(int argc, char **argv)
{
	json_set_alloc_funcs(json_memory, free);
	signal(SIGXFSZ, SIG_IGN); /* a limit on a file's size is an error of the write, which has its message */
	const char *name = argc > 1 ? argv[1] : "";
	if (!*name || !strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h")) {
		print_help(*name ? stdout : stderr);
		return *name ? EXIT_DONE : EXIT_USAGE;
	}
	if (!strcmp(name, "version") || !strcmp(name, "--version")) {
		printf("kvbench %s\n", kvbench_version);
		return EXIT_DONE;
	}
	const struct verb *v = find_verb(name);
	struct options o;
	options_parse(&o, v, argc - 1, argv + 1);
	int code = v->run(&o);
	options_free(&o);
	if (fflush(stdout) || ferror(stdout))
		die(EXIT_CELLS_FAILED, "the output could not be written");
	return code;
}
