/* ask.c: `kvbench ask`: the quickest look at what pruning does to one's own text: one question, many methods, answers side by
 * side with what was kept and the time to first token. `--user-file` gives a whole user turn to the full cache instead. */
#include "harness/json_bytes.h"
#include "harness/models.h"
#include "harness/progress.h"
#include "harness/verbs.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reply { /* one variant's answer, copied out of the callback */
	enum runner_status status;
	char *message, *text;
	int32_t *ids;
	int n_ids;
	enum runner_finish finish;
	double kept;    /* share of context entries, counted in the cache */
	double ttft_ms; /* NAN = not timed */
};

struct ask {
	const struct options *o;
	struct runner *runner;
	char *context, *question, *user_turn;
	struct runner_question asked;
	struct runner_job job;
	struct runner_variant *variants;
	char **names; /* what the variants' method names point to */
	int n_variants, n_names;
	struct reply *replies; /* [n_variants] */
	int32_t *prompt_ids;
	int n_prompt, context_tokens;
};

static void keep_reply(void *user, const struct runner_answer *a)
{
	struct ask *k = user;
	const struct runner_info *info = runner_info(k->runner);
	struct reply *r = &k->replies[a->variant];
	int64_t all = (int64_t)a->context_tokens * info->layers * info->kv_heads;
	*r = (struct reply){.status = a->status,
		.message = text_copy(a->message ? a->message : ""),
		.text = text_copy(a->text ? a->text : ""),
		.n_ids = a->n_ids,
		.finish = a->finish,
		.kept = all ? (double)a->kept_total / (double)all : 1,
		.ttft_ms = NAN};
	r->ids = mem_new((size_t)a->n_ids, sizeof *r->ids);
	if (a->n_ids)
		memcpy(r->ids, a->ids, (size_t)a->n_ids * sizeof *r->ids);
	if (k->prompt_ids || !a->prompt_ids)
		return;
	k->context_tokens = a->context_tokens;
	k->n_prompt = a->prefix_tokens + a->context_tokens + a->question_tokens;
	k->prompt_ids = mem_new((size_t)k->n_prompt, sizeof *k->prompt_ids);
	memcpy(k->prompt_ids, a->prompt_ids, (size_t)k->n_prompt * sizeof *k->prompt_ids);
}

/* ---- what is asked ---- */

static int longest_answer(const struct options *o)
{
	return option_int(o, "max-new", 1, 128);
}

/* methods x retained from the options; full has one ratio, 1. */
static void make_variants(struct ask *k)
{
	char *methods = text_copy(option_text(k->o, "methods", "full,snapkv,kvzip")), *rest = methods, *name;
	while ((name = strsep(&rest, ","))) {
		char *ratios = text_copy(strcmp(name, "full") ? option_text(k->o, "retained", ".3") : "1"), *more = ratios,
		     *ratio;
		k->names = mem_grow(k->names, (size_t)k->n_names + 1, sizeof *k->names);
		k->names[k->n_names++] = text_copy(name);
		while ((ratio = strsep(&more, ","))) {
			char *end;
			double r = strtod(ratio, &end);
			if (*end || end == ratio || !(r > 0 && r <= 1))
				die(EXIT_USAGE, "ask: --retained wants shares above 0 up to 1, not \"%s\"", ratio);
			k->variants = mem_grow(k->variants, (size_t)k->n_variants + 1, sizeof *k->variants);
			k->variants[k->n_variants++] = (struct runner_variant){.method = k->names[k->n_names - 1], .retained = r};
		}
		free(ratios);
	}
	free(methods);
	k->replies = mem_new((size_t)k->n_variants, sizeof *k->replies);
}

static int check_methods(const struct ask *k, char err[ERR_LEN])
{
	for (int i = 0; i < k->n_variants; i++) {
		const struct runner_variant *v = &k->variants[i];
		if (runner_method_check(v->method, NULL, option_has(k->o, "proxy"), err))
			return -1;
		for (int j = 0; j < i; j++)
			if (!strcmp(v->method, k->variants[j].method) && v->retained == k->variants[j].retained)
				return err_set(err, "--methods, --retained: %s at %g is there twice", v->method, v->retained);
	}
	return 0;
}

static int read_texts(struct ask *k, char err[ERR_LEN])
{
	size_t len;
	if (option_has(k->o, "user-file")) {
		k->variants[0] = (struct runner_variant){.method = "full", .retained = 1};
		k->n_variants = 1;
		return file_read(option_text(k->o, "user-file", NULL), &k->user_turn, &len, err);
	}
	/* the tiny pair's dialect has one newline before a question, everybody else an empty line */
	const char *gap = !strcmp(runner_info(k->runner)->chat_template, "tiny-pair") ? "\n" : "\n\n";
	k->question = text_format("%s%s", gap, option_text(k->o, "question", ""));
	return file_read(option_text(k->o, "context", NULL), &k->context, &len, err);
}

static void ask_free(struct ask *k)
{
	for (int i = 0; k->replies && i < k->n_variants; i++) {
		free(k->replies[i].message);
		free(k->replies[i].text);
		free(k->replies[i].ids);
	}
	for (int i = 0; i < k->n_names; i++)
		free(k->names[i]);
	free(k->names);
	free(k->variants);
	free(k->replies);
	free(k->context);
	free(k->question);
	free(k->user_turn);
	free(k->prompt_ids);
	runner_close(k->runner);
}

/* ---- answers, then one timing of each, which takes a prefill of its own ---- */

static int answer_all(struct ask *k, char err[ERR_LEN])
{
	k->asked = (struct runner_question){.text = k->question ? k->question : "", .max_new_tokens = longest_answer(k->o)};
	k->job = (struct runner_job){.context = k->context ? k->context : "",
		.chat = true,
		.user_turn = k->user_turn,
		.questions = &k->asked,
		.n_questions = 1,
		.protocol = !strcmp(option_text(k->o, "protocol", "agnostic"), "aware") ? PROTOCOL_AWARE : PROTOCOL_AGNOSTIC,
		.variants = k->variants,
		.n_variants = k->n_variants,
		.user = k,
		.done = keep_reply};
	if (runner_answer(k->runner, &k->job, err))
		return -1;
	struct runner_counters c = runner_counters(k->runner);
	fprintf(stderr, "%lld prefill(s), %lld scorer pass(es), %lld forward calls for %d answers\n", (long long)c.prefills,
		(long long)c.scorer_passes, (long long)c.forward_calls, k->n_variants);
	spent_print(&c);
	return 0;
}

static bool is_timed(const struct ask *k)
{
	return !k->user_turn && !option_has(k->o, "untimed");
}

/* Said before, since it can take many times as long as the answers did. */
static void tell_timing(const struct ask *k)
{
	char time[32];
	struct runner_counters c = runner_counters(k->runner);
	duration_text((double)c.prefill_ns * 1e-9 * k->n_variants, time, sizeof time);
	if (is_timed(k))
		fprintf(stderr, "  times to first token, one prefill each: %s or more (--untimed leaves them out)\n", time);
}

static void time_one(struct ask *k, int v)
{
	char err[ERR_LEN];
	struct runner_timing t;
	if (is_timed(k) && k->replies[v].status == ANSWER_OK && !runner_time(k->runner, &k->job, v, 0, &t, err))
		k->replies[v].ttft_ms = (double)t.ttft_ns / 1e6;
}

/* ---- showing ---- */

/* One row of the table: a line break of the answer is shown, not made. */
static void print_line(const char *text)
{
	for (; *text; text++)
		*text == '\n' ? fputs("\\n", stdout) : putchar(*text);
	putchar('\n');
}

/* Each row as soon as it is there. */
static void print_text(struct ask *k)
{
	printf("%-20s %8s %8s %9s  %s\n", "method", "retained", "kept", "ttft ms", "answer");
	for (int v = 0; v < k->n_variants; v++) {
		const struct reply *r = &k->replies[v];
		char ttft[32] = "-";
		time_one(k, v);
		if (!isnan(r->ttft_ms))
			snprintf(ttft, sizeof ttft, "%.1f", r->ttft_ms);
		printf("%-20s %8.3g %8.4f %9s  ", k->variants[v].method, k->variants[v].retained, r->kept, ttft);
		print_line(r->status == ANSWER_OK ? r->text : r->message);
		fflush(stdout);
	}
}

static json_t *json_ids(const int32_t *ids, int n)
{
	json_t *list = json_array();
	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_integer(ids[i]));
	return list;
}

static void print_json(struct ask *k)
{
	static const char *const statuses[] = {
		[ANSWER_OK] = "ok", [ANSWER_FAILED] = "failed", [ANSWER_OOM] = "oom", [ANSWER_NOT_APPLICABLE] = "not-applicable"};
	json_t *answers = json_array();
	for (int v = 0; v < k->n_variants; v++) {
		const struct reply *r = &k->replies[v];
		time_one(k, v);
		json_array_append_new(answers,
			json_pack("{s:o, s:f, s:f, s:o, s:s, s:o, s:s, s:o, s:o}", "method", json_bytes(k->variants[v].method),
				"retained", k->variants[v].retained, "kept", r->kept, "ttft_ms",
				isnan(r->ttft_ms) ? json_null() : json_real(r->ttft_ms), "status", statuses[r->status], "message",
				json_bytes(r->message), "finish", r->finish == FINISH_STOP ? "stop" : "length", "text",
				json_bytes(r->text), "ids", json_ids(r->ids, r->n_ids)));
	}
	char *name = models_name(option_text(k->o, "target", ""), k->runner);
	json_t *all = json_pack("{s:o, s:i, s:o, s:o}", "target", json_bytes(name), "context_tokens", k->context_tokens,
		"prompt_ids", json_ids(k->prompt_ids, k->n_prompt), "answers", answers);
	free(name);
	json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	printf("\n");
	json_decref(all);
}

static int all_ok(const struct ask *k)
{
	for (int v = 0; v < k->n_variants; v++) {
		if (k->replies[v].status != ANSWER_OK)
			return EXIT_CELLS_FAILED;
	}
	return EXIT_DONE;
}

static void check_options(const struct options *o)
{
	static const char *const apart[] = {"context", "question", "methods", "retained", "protocol", "untimed"};
	if (!option_has(o, "user-file") && (!option_has(o, "context") || !option_has(o, "question")))
		die(EXIT_USAGE, "ask: --context FILE and --question TEXT are needed, or --user-file FILE");
	for (size_t i = 0; option_has(o, "user-file") && i < sizeof apart / sizeof *apart; i++)
		if (option_has(o, apart[i]))
			die(EXIT_USAGE, "ask: --user-file is a whole user turn for the full cache, --%s has no part in it",
				apart[i]);
	longest_answer(o);
	const char *format = option_text(o, "format", "text"), *protocol = option_text(o, "protocol", "agnostic");
	if (strcmp(format, "text") && strcmp(format, "json"))
		die(EXIT_USAGE, "ask: --format is text or json, not \"%s\"", format);
	if (strcmp(protocol, "agnostic") && strcmp(protocol, "aware"))
		die(EXIT_USAGE, "ask: --protocol is agnostic or aware, not \"%s\"", protocol);
}

static int run_ask(const struct options *o)
{
	struct ask k = {.o = o};
	struct runner_options ro;
	char err[ERR_LEN] = "";
	int code = EXIT_USAGE;
	check_options(o);
	options_runner(o, &ro);
	make_variants(&k);
	if (check_methods(&k, err))
		goto cleanup;
	code = EXIT_CELLS_FAILED;
	if (models_open_told(&k.runner, &ro, false, err) || read_texts(&k, err) || answer_all(&k, err))
		goto cleanup;
	tell_timing(&k);
	if (!strcmp(option_text(o, "format", "text"), "json"))
		print_json(&k);
	else
		print_text(&k);
	code = all_ok(&k);
cleanup:
	if (*err && code)
		fprintf(stderr, "kvbench ask: %s\n", err);
	ask_free(&k);
	return code;
}

static const struct option_def ask_options[] = {
	OPTIONS_MODEL,
	{"context", "FILE", "the text to be pruned"},
	{"question", "TEXT", "asked after it"},
	{"methods", "LIST", "default full,snapkv,kvzip"},
	{"retained", "LIST", "shares to keep (default .3)"},
	{"protocol", "P", "agnostic (default): pruned before the question is seen; or aware"},
	{"user-file", "FILE", "a whole user turn, full cache, instead of context and question"},
	{"untimed", NULL, "leaves out the times to first token, each of which takes a prefill of its own"},
	{"max-new", "N", "longest answer (default 128)"},
	{"format", "F", "text (default) or json, with prompt and answer token ids"},
};
const struct verb verb_ask = {
	.name = "ask",
	.args = "",
	.title = "one question about one's own text: answers of several methods side by side",
	.options = ask_options,
	.n_options = sizeof ask_options / sizeof *ask_options,
	.run = run_ask,
};
