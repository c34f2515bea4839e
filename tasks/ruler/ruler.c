/* ruler.c: RULER's 13 tasks and three generators as tables, and from a row to a context with its question.
 *
 * Without a `generator` the path decides: none = own, a folder = upstream, a file = rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tasks/ruler/ruler.h"

/* upstream's scripts/synthetic.yaml */
static const struct ruler_config configs[RULER_TASKS] = {
	{"niah_single_1", &ruler_niah, HAYSTACK_NOISE, KIND_WORDS, KIND_NUMBERS, 1, 1, 1, DOCUMENTS_NONE},
	{"niah_single_2", &ruler_niah, HAYSTACK_ESSAY, KIND_WORDS, KIND_NUMBERS, 1, 1, 1, DOCUMENTS_NONE},
	{"niah_single_3", &ruler_niah, HAYSTACK_ESSAY, KIND_WORDS, KIND_UUIDS, 1, 1, 1, DOCUMENTS_NONE},
	{"niah_multikey_1", &ruler_niah, HAYSTACK_ESSAY, KIND_WORDS, KIND_NUMBERS, 4, 1, 1, DOCUMENTS_NONE},
	{"niah_multikey_2", &ruler_niah, HAYSTACK_NEEDLES, KIND_WORDS, KIND_NUMBERS, 1, 1, 1, DOCUMENTS_NONE},
	{"niah_multikey_3", &ruler_niah, HAYSTACK_NEEDLES, KIND_UUIDS, KIND_UUIDS, 1, 1, 1, DOCUMENTS_NONE},
	{"niah_multivalue", &ruler_niah, HAYSTACK_ESSAY, KIND_WORDS, KIND_NUMBERS, 1, 4, 1, DOCUMENTS_NONE},
	{"niah_multiquery", &ruler_niah, HAYSTACK_ESSAY, KIND_WORDS, KIND_NUMBERS, 1, 1, 4, DOCUMENTS_NONE},
	{"vt", &ruler_vt, HAYSTACK_NOISE, 0, 0, 0, 0, 0, DOCUMENTS_NONE},
	{"cwe", &ruler_cwe, HAYSTACK_NONE, 0, 0, 0, 0, 0, DOCUMENTS_NONE},
	{"fwe", &ruler_fwe, HAYSTACK_NONE, 0, 0, 0, 0, 0, DOCUMENTS_NONE},
	{"qa_1", &ruler_qa, HAYSTACK_NONE, 0, 0, 0, 0, 0, DOCUMENTS_SQUAD},
	{"qa_2", &ruler_qa, HAYSTACK_NONE, 0, 0, 0, 0, 0, DOCUMENTS_HOTPOT},
};

static const struct ruler_generator *const generators[] = {
	&ruler_generator_own, &ruler_generator_upstream, &ruler_generator_rows};

/* ---- what the families ask of the state ---- */

struct twister ruler_fresh(const struct ruler *r)
{
	const uint32_t words[] = {(uint32_t)r->seed, (uint32_t)(r->seed >> 32)};
	return twister_python(words, words[1] ? 2 : 1);
}

int *ruler_shuffled(const struct ruler *r, int n)
{
	struct twister t = ruler_fresh(r);
	int *v = mem_new((size_t)n + 1, sizeof(*v));
	for (int i = 0; i < n; i++)
		v[i] = i;
	python_shuffle(&t, v, n);
	return v;
}

bool ruler_short(const struct ruler *r)
{
	return r->rq->length_tokens < 4096;
}

bool ruler_is_own(const struct ruler *r)
{
	return r->generator == &ruler_generator_own;
}

int64_t ruler_count(const struct ruler *r, const char *text, size_t len, char err[ERR_LEN])
{
	int64_t n = r->rq->count_tokens(r->rq->user, text, len);
	return n < 0 ? err_set(err, "%s: counting tokens failed", r->config->name) : n;
}

int64_t ruler_draft_tokens(const struct ruler *r, const struct ruler_draft *d, char err[ERR_LEN])
{
	int64_t n = ruler_count(r, d->text.text + d->uncounted, d->text.len - d->uncounted, err);
	return n < 0 || !d->example_apart ? n : n + r->example_tokens;
}

void ruler_python_list(const struct ruler_draft *d, struct strbuf *b)
{
	strbuf_puts(b, " [");
	for (int i = 0; i < d->n_answers; i++) {
		const char *s = d->answers[i], *quote = strchr(s, '\'') && !strchr(s, '"') ? "\"" : "'";
		strbuf_printf(b, "%s%s", i ? ", " : "", quote);
		for (; *s; s++)
			strbuf_printf(b, *s == *quote || *s == '\\' ? "\\%c" : "%c", *s);
		strbuf_puts(b, quote);
	}
	strbuf_puts(b, "]");
}

/* ---- the task ---- */

static bool is_folder(const char *path)
{
	struct stat st;
	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static const struct ruler_generator *generator_of(const struct task_request *rq, char err[ERR_LEN])
{
	if (!rq->generator)
		return !rq->path ? &ruler_generator_own : is_folder(rq->path) ? &ruler_generator_upstream : &ruler_generator_rows;
	for (size_t i = 0; i < sizeof(generators) / sizeof(generators[0]); i++)
		if (!strcmp(generators[i]->name, rq->generator))
			return generators[i];
	err_set(err, "task %s: unknown generator '%s' (there are own, upstream and rows)", rq->name, rq->generator);
	return NULL;
}

static int ruler_open(struct task *t, char err[ERR_LEN])
{
	enum { LEAST = 512, MOST = 1 << 24 };
	struct ruler *r = t->state = mem_new(1, sizeof(*r));
	r->config = &configs[t->def - task_ruler];
	r->generator = generator_of(&t->rq, err);
	r->rq = &t->rq;
	r->budget = t->rq.length_tokens; /* of which a generator takes off what the chat template needs */
	if (!r->generator)
		return -1;
	if (r->generator != &ruler_generator_rows && r->budget < LEAST)
		return err_set(err, "task %s needs a length of %d tokens or more", t->def->name, LEAST);
	if (r->budget > MOST)
		return err_set(err, "task %s: a length above %d tokens is not made", t->def->name, MOST);
	if (r->budget && !t->rq.count_tokens)
		return err_set(err, "task %s needs a tokenizer to count tokens", t->def->name);
	t->identity.metric = r->config->family->metric;
	t->identity.version = RULER_VERSION;
	return r->generator->open(t, r, err);
}

static void ruler_close(struct task *t)
{
	struct ruler *r = t->state;
	if (!r)
		return;
	ruler_assets_free(&r->assets);
	ruler_words_free(&r->vocabulary);
	ruler_rows_close(r->rows);
	free(r->before);
	free(r->example);
	free(r);
}

/* Where the asked needle lies in the context: bytes; SIZE_MAX = nowhere in particular. */
static size_t needle_find(const struct ruler *r, const struct ruler_draft *d)
{
	if (d->needle_at != SIZE_MAX || !r->config->family->one_place)
		return d->needle_at;
	const char *at = strstr(d->text.text, d->answers[0]);
	size_t offset = at ? (size_t)(at - d->text.text) : SIZE_MAX;
	return offset < d->question_at ? offset : SIZE_MAX;
}

static int64_t characters(const char *text, size_t len)
{
	int64_t n = 0;
	for (size_t i = 0; i < len; i++)
		n += ((unsigned char)text[i] & 0xc0) != 0x80;
	return n;
}

static int needle_place(const struct ruler *r, const struct ruler_draft *d, struct task_question *q, char err[ERR_LEN])
{
	size_t at = needle_find(r, d);
	if (at == SIZE_MAX)
		return 0;
	q->depth = (double)at / (double)d->question_at;
	q->needle_char = characters(d->text.text, at);
	if (!r->rq->count_tokens)
		return 0;
	q->needle_token = ruler_count(r, d->text.text, at, err);
	return q->needle_token < 0 ? -1 : 0;
}

static char *slice(const char *text, size_t from, size_t to)
{
	struct strbuf b = {0};
	strbuf_add(&b, text + from, to - from);
	return strbuf_take(&b);
}

static int ruler_make(struct task *t, int i, struct task_context *out, char err[ERR_LEN])
{
	struct ruler *r = t->state;
	struct ruler_draft d = {.needle_at = SIZE_MAX, .new_tokens = r->new_tokens};
	int failed = r->generator->row(r, &d, i, err);
	if (!failed) {
		struct task_question *q = task_question_add(out);
		out->chat = true;
		out->text = slice(d.text.text, 0, d.question_at);
		q->text = slice(d.text.text, d.question_at, d.prefix_at);
		free(q->answer_prefix);
		q->answer_prefix = slice(d.text.text, d.prefix_at, d.text.len);
		q->metric = r->config->family->metric;
		q->max_new_tokens = d.new_tokens;
		for (int k = 0; k < d.n_answers; k++)
			task_answer_add(q, d.answers[k]);
		failed = needle_place(r, &d, q, err);
	}
	ruler_draft_free(&d);
	return failed;
}

#define TASK(task, what)                                                                                                         \
	{                                                                                                                        \
		.name = "ruler-" task, .title = "RULER: " what,                                                                  \
		.parameters = "path generator release length contexts seed max_new_tokens", .open = ruler_open,                  \
		.make = ruler_make, .close = ruler_close                                                                         \
	}
const struct task_def task_ruler[RULER_TASKS] = {
	TASK("niah_single_1", "a number in noise"),
	TASK("niah_single_2", "a number in an essay"),
	TASK("niah_single_3", "a UUID in an essay"),
	TASK("niah_multikey_1", "one of four keys in an essay"),
	TASK("niah_multikey_2", "one number among numbers"),
	TASK("niah_multikey_3", "one UUID among UUIDs"),
	TASK("niah_multivalue", "four values of one key in an essay"),
	TASK("niah_multiquery", "four keys asked at once, in an essay"),
	TASK("vt", "variable tracking"),
	TASK("cwe", "common words of a list"),
	TASK("fwe", "frequent words of a coded text"),
	TASK("qa_1", "questions over documents (SQuAD)"),
	TASK("qa_2", "questions over documents (HotpotQA)"),
};
