/* prompt.c: LongBench's prompts: templates filled in, and the middle taken out of what is too long. */
#include <stdlib.h>
#include <string.h>

#include "tasks/longbench/longbench.h"
#include "tasks/metrics/metrics.h"

static int fill(struct strbuf *b, const char *template, const char *input, char err[ERR_LEN])
{
	for (const char *p; (p = strpbrk(template, "{}")); template = p + strlen("{input}")) {
		if (strncmp(p, "{input}", strlen("{input}")))
			return err_set(err, "the prompt template has a field other than {context} and {input}: %.60s", p);
		strbuf_add(b, template, (size_t)(p - template));
		strbuf_puts(b, input);
	}
	strbuf_puts(b, template);
	return 0;
}

int longbench_prompt_make(
	struct longbench_prompt *p, const char *template, const char *context, const char *input, char err[ERR_LEN])
{
	const char *at = strstr(template, "{context}");
	if (!at)
		return err_set(err, "the prompt template has no {context}");
	struct strbuf b = {0};
	char *head = text_format("%.*s", (int)(at - template), template);
	int failed = fill(&b, head, input, err);
	strbuf_puts(&b, context);
	p->split = b.len;
	failed = failed || fill(&b, at + strlen("{context}"), input, err);
	free(head);
	p->text = strbuf_take(&b);
	return failed ? -1 : 0;
}

struct task_question *longbench_prompt_give(struct longbench_prompt *p, struct task_context *c)
{
	struct task_question *q = task_question_add(c);
	q->text = text_copy(p->text + p->split);
	p->text[p->split] = '\0';
	c->text = p->text;
	p->text = NULL;
	return q;
}

/* ---- the cut ---- */

int longbench_truncate_check(const struct task_request *rq, char err[ERR_LEN])
{
	bool ids = rq->truncate && !strcmp(rq->truncate, "ids");
	if (rq->truncate && !ids && strcmp(rq->truncate, "official"))
		return err_set(err, "truncate: '%s' is neither 'official' nor 'ids'", rq->truncate);
	if (rq->length_tokens && (!rq->count_tokens || !rq->cut_tokens))
		return err_set(err, "LongBench needs a tokenizer to keep to a length");
	if (rq->length_tokens && ids && !rq->drops_ids)
		return err_set(err, "truncate 'ids' needs a runner which leaves out token ids; this one cannot");
	return 0;
}

static bool inside_character(const char *p)
{
	return ((unsigned char)*p & 0xc0) == 0x80;
}

/* Writes what decoding makes of the first n bytes of one character before the last m of another: U+FFFD for the first part and
 * for each byte of the last one. joined: the ends are decoded as one text, where the parts may even make a character. */
static void parts_write(struct strbuf *b, const char *first, size_t n, const char *last, size_t m, bool joined)
{
	static const char unknown[] = "\xef\xbf\xbd";
	unsigned char lead = n ? (unsigned char)*first : 0;
	size_t whole = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2, taken = m < whole - n ? m : whole - n;
	char made[5] = "";
	const char *end = made;
	if (n && joined) {
		memset(made, 0x80, whole); /* what is still missing: any byte that may follow */
		memcpy(made, first, n);
		memcpy(made + n, last, taken);
		text_next(&end);
	}
	if (end == made + whole) { /* the last part may follow the first */
		strbuf_puts(b, n + taken == whole ? made : unknown);
		m -= taken;
	} else if (n) {
		strbuf_puts(b, unknown);
	}
	while (m--)
		strbuf_puts(b, unknown);
}

/* Takes bytes [from, to) out. */
static void take_out(struct longbench_prompt *p, size_t from, size_t to)
{
	struct strbuf b = {0};
	size_t len = strlen(p->text), whole = from, next = to;
	while (whole > 0 && inside_character(p->text + whole))
		whole--;
	while (next < len && inside_character(p->text + next))
		next++;
	strbuf_add(&b, p->text, whole);
	parts_write(&b, p->text + whole, from - whole, p->text + to, next - to, p->joined);
	strbuf_add(&b, p->text + next, len - next);
	if (p->split >= next)
		p->split = b.len - (len - p->split);
	else if (p->split > whole)
		p->split = whole;
	free(p->text);
	p->text = strbuf_take(&b);
}

static int count_failed(const struct task_context *c, char err[ERR_LEN])
{
	return err_set(err, "context %s: counting tokens failed", c->id);
}

static int cut_official(struct longbench_prompt *p, const struct task_request *rq, struct task_context *c, char err[ERR_LEN])
{
	size_t len = strlen(p->text);
	int64_t tokens = rq->count_tokens(rq->user, p->text, len), half = rq->length_tokens / 2, head = half - rq->special_tokens;
	int64_t tail = p->joined ? rq->length_tokens - half : half;
	if (tokens < 0)
		return count_failed(c, err);
	if (tokens + rq->special_tokens <= rq->length_tokens)
		return 0;
	head = head > 0 ? head : 0;
	c->cut_tokens = tokens - tail - head;
	take_out(p, rq->cut_tokens(rq->user, p->text, len, head), rq->cut_tokens(rq->user, p->text, len, tokens - tail));
	return 0;
}

/* Sides are tokenised apart, so the tokens are counted so; only the context's are dropped. */
static int cut_ids(const struct longbench_prompt *p, const struct task_request *rq, struct task_context *c, char err[ERR_LEN])
{
	const char *question = p->text + p->split;
	int64_t context_tokens = rq->count_tokens(rq->user, p->text, p->split);
	int64_t question_tokens = rq->count_tokens(rq->user, question, strlen(question));
	int64_t room = rq->length_tokens - rq->special_tokens - question_tokens, half = rq->length_tokens / 2;
	int64_t last = p->joined ? rq->length_tokens - half : half;
	if (context_tokens < 0 || question_tokens < 0)
		return count_failed(c, err);
	if (context_tokens <= room)
		return 0;
	if (room < 1)
		return err_set(err, "context %s: the question alone has %lld tokens, more than %lld", c->id,
			(long long)question_tokens, (long long)rq->length_tokens);
	int64_t tail = last > question_tokens ? last - question_tokens : 0, head = half - rq->special_tokens;
	c->drop_from = tail ? head : room;
	c->drop_tokens = c->cut_tokens = context_tokens - tail - c->drop_from;
	return 0;
}

int longbench_cut(struct longbench_prompt *p, const struct task_request *rq, struct task_context *c, char err[ERR_LEN])
{
	if (!rq->length_tokens)
		return 0;
	bool ids = rq->truncate && !strcmp(rq->truncate, "ids");
	return ids ? cut_ids(p, rq, c, err) : cut_official(p, rq, c, err);
}
