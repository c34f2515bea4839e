/* stub_runner.h: a runner without a model, for tests of the harness: it reads the tiny dialect's needles out of the context
 * itself, so the full cache is always right, and `random` at r answers about r of the questions. A test sets `stub` to make
 * things go wrong. Included once a test program: its functions stand in for runners/runner.c at link time. */
#ifndef KVB_STUB_RUNNER_H
#define KVB_STUB_RUNNER_H

#include "runners/runner.h"

#include <stdlib.h>
#include <string.h>

struct runner {
	struct runner_info info;
	char path[256];
};

static struct stub {
	/* what a test asks for */
	const char *bad_target;                                    /* runner_open fails for it */
	const char *losing_target;                                 /* the device is lost while it is loaded; "*" = any */
	const char *failing, *oom, *unpruned, *with_nan, *unequal; /* method with that fate */
	const char *losing;                                        /* the device is lost when this method answers or is timed; "*" = any */
	int lose_after;                                            /* so many of its answers come first */
	bool job_fails;                                            /* runner_answer returns -1 */
	bool device_clock;                                         /* timing: the device has one */
	bool reuses, parts_off;                                    /* timing: no prefill; parts that do not sum */
	int stop_after;                                            /* answers after which stub_stop says yes; 0 = never */
	bool stop_timing;                                          /* it says so once something was timed, too */
	/* what happened */
	int opens, jobs, answers;
	char target[256]; /* of the last runner_open */
	char seen[8192];  /* a line for each job and question: what the harness asked for */
	int64_t prefill_tokens;
	char timed[4096]; /* methods in the order they were timed, "full snapkv " */
	bool timed_unstopped; /* a job to be timed cannot be stopped */
	bool lost;        /* until the next runner_open */
} stub;

static inline bool stub_stop(void)
{
	return (stub.stop_after && stub.answers >= stub.stop_after) || (stub.stop_timing && *stub.timed);
}

int runner_open(struct runner **out, const struct runner_options *o, char err[ERR_LEN])
{
	stub.opens++;
	stub.lost = false;
	snprintf(stub.target, sizeof stub.target, "%s", o->target);
	if (stub.bad_target && !strcmp(o->target, stub.bad_target))
		return err_set(err, "%s is not there", o->target);
	struct runner *r = mem_new(1, sizeof *r);
	snprintf(r->path, sizeof r->path, "%s", o->target);
	stub.lost = stub.losing_target && (!strcmp(stub.losing_target, "*") || !strcmp(stub.losing_target, o->target));
	r->info = (struct runner_info){.path = r->path,
		.arch = "stub",
		.dtype = "f32",
		.chat_template = "tiny-pair",
		.device = "cpu",
		.topology = "cpu",
		.isa = "none",
		.model_sha256 = "0",
		.tokenizer_sha256 = "1",
		.template_sha256 = "2",
		.kv_bytes_per_token = 64,
		.layers = 2,
		.kv_heads = 2,
		.head_dim = 4,
		.threads = 1};
	snprintf(r->info.name, sizeof r->info.name, "%s", o->target);
	if (stub.lost && !o->names_if_lost) {
		free(r);
		return err_set(err, "the device is lost");
	}
	*out = r;
	return stub.lost ? err_set(err, "the device is lost") : 0;
}

void runner_close(struct runner *r)
{
	free(r);
}

const char *runner_lost(const struct runner *r)
{
	(void)r;
	return stub.lost ? "cudaErrorTest" : NULL;
}

int runner_method_params(const struct runner *r, const char *method, const char *options, char **canonical, char err[ERR_LEN])
{
	(void)r;
	return runner_method_resolve(method, options, canonical, err);
}

const struct runner_info *runner_info(const struct runner *r)
{
	return &r->info;
}

struct runner_overhead runner_overhead(struct runner *r, bool chat, const char *system)
{
	(void)r, (void)system;
	return (struct runner_overhead){chat ? 4 : 0, chat ? 2 : 0, 1};
}

/* A token is a word. */
int64_t runner_count_tokens(struct runner *r, const char *text, size_t len)
{
	(void)r;
	int64_t n = 0;
	for (size_t i = 0; i < len; i++)
		n += text[i] != ' ' && (i == 0 || text[i - 1] == ' ');
	return n;
}

size_t runner_cut_tokens(struct runner *r, const char *text, size_t len, int64_t n)
{
	while (len && runner_count_tokens(r, text, len) > n)
		len--;
	return len;
}

int runner_method_resolve(const char *method, const char *options, char **canonical, char err[ERR_LEN])
{
	static const char *const names[] = {"full", "random", "snapkv", "kvzip", "pyramidkv", "streaming-llm", "snapkv@pyramid", "proxykv",
		"head-prior"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (!strcmp(names[i], method)) {
			*canonical = text_copy(options ? options : "{}");
			return 0;
		}
	}
	const char *near = name_nearest(method, names, sizeof names / sizeof *names);
	return err_set(err, "method \"%s\" is not known; did you mean \"%s\"?", method, near ? near : "");
}

int runner_names_check(const struct runner_options *o, char err[ERR_LEN])
{
	return o->isa && strcmp(o->isa, "avx2") ? err_set(err, "unknown instruction set \"%s\"", o->isa) : 0;
}

int runner_method_check(const char *method, const char *options, bool proxy, char err[ERR_LEN])
{
	(void)method, (void)options, (void)proxy, (void)err;
	return 0;
}

bool runner_method_trained(const char *method)
{
	return !strcmp(method, "proxykv") || !strcmp(method, "head-prior");
}

size_t runner_method_count(void)
{
	return 1;
}

struct runner_method_info runner_method_at(size_t i)
{
	(void)i;
	return (struct runner_method_info){"method", "snapkv", "SnapKV", "a paper", "window=32"};
}

size_t runner_arch_count(void)
{
	return 0;
}

const char *runner_arch_at(size_t i)
{
	(void)i;
	return "";
}

size_t runner_template_count(void)
{
	return 0;
}

const char *runner_template_at(size_t i)
{
	(void)i;
	return "";
}

/* "\nRecall amber, tulip." -> " amber 482 137, tulip 031 555." as the context says. */
static inline char *stub_recall(const char *context, const char *question)
{
	struct strbuf b = {0};
	const char *keys = strstr(question, "Recall ");
	char *list = text_copy(keys ? keys + 7 : ""), *rest = list, *key;
	list[strcspn(list, ".")] = 0;
	while ((key = strsep(&rest, ","))) {
		char *needle = text_format("Code %s ", key + (*key == ' '));
		const char *at = strstr(context, needle);
		if (at)
			strbuf_printf(&b, "%s %.*s", b.len ? "," : "", (int)strcspn(at + 5, "."), at + 5);
		free(needle);
	}
	strbuf_puts(&b, ".");
	free(list);
	return strbuf_take(&b);
}

static inline bool stub_is(const char *which, const struct runner_variant *v)
{
	return which && !strcmp(which, v->method);
}

/* The share of questions whose hash falls below r; the same in every run. */
static inline bool stub_forgets(const struct runner_variant *v, const char *question)
{
	char hex[SHA_LEN];
	if (strcmp(v->method, "random") || v->retained >= 1)
		return false;
	sha256_hex(question, strlen(question), hex);
	hex[4] = 0;
	return (double)strtol(hex, NULL, 16) / 65536 >= v->retained;
}

static inline void stub_answer_one(struct runner *r, const struct runner_job *job, int q, int v)
{
	const struct runner_variant *x = &job->variants[v];
	int context = (int)runner_count_tokens(r, job->context, strlen(job->context)), keep = (int)(context * x->retained + 1e-9);
	char *text = stub_forgets(x, job->questions[q].text) ? text_copy("") : stub_recall(job->context, job->questions[q].text);
	if (stub_is(stub.unequal, x))
		text[1] = text[1] ? '#' : 0;
	if (x->retained >= 1 || stub_is(stub.unpruned, x))
		keep = context;
	int32_t ids[] = {7, (int32_t)strlen(text), 2}, kept[] = {keep, keep, keep, keep},
		*prompt = mem_new((size_t)context + 2, sizeof *prompt);
	struct runner_answer a = {.question = q,
		.variant = v,
		.message = "",
		.text = text,
		.ids = ids,
		.n_ids = 3,
		.finish = FINISH_STOP,
		.flags = (*text ? 0 : FLAG_EMPTY) | (stub_is(stub.with_nan, x) ? FLAG_NAN : 0),
		.prefix_tokens = 1,
		.context_tokens = context,
		.question_tokens = 1,
		.prompt_ids = prompt,
		.kept = kept,
		.kept_total = 4 * keep,
		.kv_bytes_full = 64 * context,
		.kv_bytes_kept = 64 * keep};
	sha256_hex(job->context, strlen(job->context), a.prompt_sha256);
	if (stub_is(stub.failing, x) || stub_is(stub.oom, x)) {
		a.status = stub_is(stub.oom, x) ? ANSWER_OOM : ANSWER_FAILED;
		a.message = "as the test asked";
		a.oom_bytes = 12345;
	}
	stub.lost = stub.lost || ((stub_is(stub.losing, x) || stub_is(stub.losing, &(struct runner_variant){"*"})) && stub.lose_after-- <= 0);
	if (stub.lost) {
		a.status = ANSWER_FAILED;
		a.message = "the device is lost";
	}
	stub.answers++;
	job->done(job->user, &a);
	free(text);
	free(prompt);
}

__attribute__((format(printf, 1, 2))) static inline void stub_say(const char *fmt, ...)
{
	size_t n = strlen(stub.seen);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(stub.seen + n, sizeof stub.seen - n, fmt, ap);
	va_end(ap);
}

static inline void stub_see(const struct runner_job *job)
{
	stub_say("%s drop %d+%d\n", job->chat ? "chat" : "raw", job->drop_from, job->drop_tokens);
	for (int q = 0; q < job->n_questions; q++) {
		const struct runner_question *x = &job->questions[q];
		stub_say("q%d min %d stops %d", q, x->min_new_tokens, x->n_stops);
		for (int i = 0; i < x->n_history; i++)
			stub_say(" [%s|%s]", x->history[i].question + strspn(x->history[i].question, "\n"), x->history[i].golden);
		stub_say("\n");
	}
}

int runner_answer(struct runner *r, const struct runner_job *job, char err[ERR_LEN])
{
	stub.jobs++;
	stub_see(job);
	if (stub.job_fails)
		return err_set(err, "the context does not fit");
	for (int q = 0; q < job->n_questions; q++) {
		for (int v = 0; v < job->n_variants; v++) {
			if (job->stop && job->stop(job->user))
				return 1;
			if (!job->wanted || job->wanted(job->user, q, v))
				stub_answer_one(r, job, q, v);
		}
	}
	return 0;
}

struct runner_counters runner_counters(const struct runner *r)
{
	(void)r;
	return (struct runner_counters){.prefill_tokens = stub.prefill_tokens};
}

int runner_time(
	struct runner *r, const struct runner_job *job, int v, int decode_tokens, struct runner_timing *out, char err[ERR_LEN])
{
	const struct runner_variant *x = &job->variants[v];
	if (stub_is(stub.failing, x))
		return err_set(err, "as the test asked");
	if ((stub.lost = stub.lost || stub_is(stub.losing, x)))
		return err_set(err, "the device is lost");
	if (stub.stop_timing && !job->stop && !*stub.timed)
		stub.timed_unstopped = true;
	size_t n = strlen(stub.timed);
	snprintf(stub.timed + n, sizeof stub.timed - n, "%s ", x->method);
	int64_t tokens = runner_count_tokens(r, job->context, strlen(job->context));
	stub.prefill_tokens += stub.reuses ? 0 : tokens;
	*out = (struct runner_timing){10, 20, 30, 40, 50, 60, stub.parts_off ? 300 : 210, 110, 100 * decode_tokens,
		.decode_tokens = decode_tokens, .peak_bytes = 1000, .kv_bytes_before = 800, .kv_bytes_after = 400, .context_tokens = (int)tokens,
		.kept_total = 4, .prefill_flops = 1e6, .second_pass_flops = strcmp(x->method, "kvzip") ? 0 : 2e6};
	if (stub.device_clock)
		out->device = (struct runner_device_time){9, 19, 29, 39, 49, 59, 204};
	return 0;
}

double runner_peak_flops(struct runner *r)
{
	(void)r;
	return 1e10;
}

int64_t runner_peak_bytes(const struct runner *r)
{
	(void)r;
	return 1000;
}

struct runner_estimate runner_estimate(const struct runner *r, int64_t context_tokens, const struct runner_variant *variants,
	int n_variants, int n_questions, int max_new)
{
	(void)r, (void)variants, (void)n_variants, (void)n_questions, (void)max_new;
	return (struct runner_estimate){
		.kv_bytes = 64 * context_tokens, .total_bytes = 100 * context_tokens, .limit_bytes = 1 << 30};
}

int runner_calibrate_heads(
	struct runner *r, const char *const *contexts, int n, const char *folder, char **path, char err[ERR_LEN])
{
	(void)r, (void)contexts, (void)n, (void)folder, (void)path;
	return err_set(err, "the stub calibrates nothing");
}

int runner_bench(const struct runner_options *o, const struct runner_bench_options *b, char err[ERR_LEN])
{
	(void)o, (void)b;
	return err_set(err, "the stub measures nothing");
}

bool runner_device_usable(const char *device, char what[DEVICE_NAME_LEN])
{
	snprintf(what, DEVICE_NAME_LEN, "the stub's %s", device);
	return true;
}
void runner_device_name(const char *device, char name[DEVICE_NAME_LEN])
{
	snprintf(name, DEVICE_NAME_LEN, "%s", strcmp(device, "auto") ? device : "cpu");
}
void runner_machine(struct runner_machine *m)
{
	*m = (struct runner_machine){
		.cpu = "stub", .os = "stub", .host = "here", .cores = 1, .cgroup_limit_bytes = -1, .isa = "none"};
}

#endif
