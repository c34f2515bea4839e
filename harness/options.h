/* options.h: the command line: one table of options a verb; `--help` is printed from the same table.
 *
 * Option parsing may end the process (die, exit code 2): nothing has been opened yet. */
#ifndef KVB_OPTIONS_H
#define KVB_OPTIONS_H

#include "harness/base/base.h"
#include "runners/runner.h"

/* Exit codes of every verb; `kvbench help` prints them. */
enum { EXIT_DONE = 0, EXIT_CELLS_FAILED = 1, EXIT_USAGE = 2, EXIT_TRY_AGAIN = 75 };

struct option_def {
	const char *name; /* without the dashes */
	const char *arg;  /* what follows, in capitals; NULL = a flag */
	const char *help;
};

struct options;
struct verb {
	const char *name, *args, *title; /* args: "PLAN", "DB"; "" = none */
	const char *help;                /* paragraphs below the option list; may be NULL */
	const struct option_def *options;
	size_t n_options;
	int min_args, max_args;
	bool plan_keys;                      /* every plan key is an option as well: --retained .1,.3 */
	const char *const *unused_keys;      /* but for these, NULL behind the last: "timing", "tasks.contexts"; NULL = none. A plan may
	                                      * have them for other verbs; said for this one alone they are refused */
	int (*run)(const struct options *o); /* returns an exit code */
};

struct options { /* everything points into argv */
	const struct verb *verb;
	const char *args[64];
	int n_args;
	struct option_given {
		const char *name, *value;
	} * given;
	int n_given;
};

/* argv[0] is the verb's name. `--help` prints and exits 0. */
void options_parse(struct options *o, const struct verb *v, int argc, char **argv);
void options_free(struct options *o);
/* Does the verb do something with that plan key ("retained", "tasks.contexts")? */
bool verb_uses_key(const struct verb *v, const char *key);
/* An option that has no effect is refused: dies when it is given though `counts` is false. with: what it goes with, in words. */
void option_only(const struct options *o, const char *name, bool counts, const char *with);
/* --out must not be one of the files that are read (arguments PATH or PATH:RUN): else dies. */
void options_check_out(const struct options *o);
bool option_has(const struct options *o, const char *name);
const char *option_text(const struct options *o, const char *name, const char *otherwise); /* the last one given */
int64_t option_count(const struct options *o, const char *name, int64_t otherwise);        /* >= 0, else die */
int option_int(const struct options *o, const char *name, int least, int otherwise);        /* from `least` to INT_MAX, else die */
double option_number(const struct options *o, const char *name, double otherwise);         /* finite and >= 0, else die */
double option_alpha(const struct options *o, double otherwise); /* --alpha, above 0 and up to 1, else die */
int64_t option_bytes(const struct options *o, const char *name); /* "8G", "512M"; 0 = not given */

/* Digits with K, M, G or T behind them (powers of 1024), or plain bytes; -1 = not a size. */
int64_t bytes_parse(const char *text);

/* Options of every verb that loads a model (OPTIONS_TARGET), and a proxy or a text as well (OPTIONS_MODEL). */
/* clang-format off */
#define OPTIONS_TARGET \
	{"target", "MODEL", "folder, .gguf file, random:CONFIG.json, an embedded name (default tiny-pair/target), or ORG/NAME of the hub cache"}, \
	{"models", "DIR", "where model names are looked up (default: runners/model beside the executable)"}, \
	{"precision", "P", "bf16 (default) or fp32"}, \
	{"device", "D", "auto (default: a GPU if one is usable, else the CPU), cpu, cuda or cuda:N"}, \
	{"kv-offload", NULL, "GPU: caches in the host's memory, streamed by layer"}, \
	{"attention", "A", "own (default), or cudnn: GPU, bf16: prefill attention by cuDNN, all other attention by our kernels"}, \
	{"isa", "NAME", "kernel path: amx, avx512bf16, avx512, avx2, reference (default: the best this CPU has)"}, \
	{"threads", "N", "default: all cores"}, \
	{"memory", "SIZE", "limit, such as 8G (default: what is free)"}
#define OPTIONS_MODEL \
	OPTIONS_TARGET, \
	{"proxy", "MODEL", "the proxy, where a method needs one"}, \
	{"proxy-device", "D", "the proxy's (default: the target's)"}, \
	{"proxy-threads", "N", "of the threads for the proxy, beside the target's prefill (default 0: in turn)"}, \
	{"template", "NAME", "chat template (default: the model's own; see `kvbench list templates`)"}, \
	{"allow-long", NULL, "contexts beyond the model's trained positions"}
/* clang-format on */
/* What is said of the proxy without --proxy, or of a GPU without one, ends the process. */
void options_runner(const struct options *o, struct runner_options *ro);

#endif
