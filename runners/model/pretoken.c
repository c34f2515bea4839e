/* pretoken.c: the splitting itself, by PCRE2 with its JIT compiler (three to five times the interpreter's speed). */
#include "runners/model/pretoken.h"

#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { STEPS_MAX = 8, JIT_STACK_FIRST = 32 << 10, JIT_STACK_MAX = 8 << 20 };

const char PATTERN_GPT2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char PATTERN_LLAMA3[] =
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
	"\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char PATTERN_QWEN2[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
			     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char PATTERN_DIGIT[] = "\\p{N}";
const char PATTERN_DIGITS[] = "\\p{N}+";

struct step {
	char *pattern;
	bool keep_gaps;
	pcre2_code *code;
	pcre2_match_data *match; /* one a step: a step runs inside the loop of the one before it */
};
struct pretoken {
	struct step steps[STEPS_MAX];
	size_t n;
	pcre2_match_context *context;
	pcre2_jit_stack *stack; /* the default, 32 kB of the machine stack, is too small for long runs */
};

struct pretoken *pretoken_new(void)
{
	struct pretoken *p = mem_new(1, sizeof *p);
	p->context = pcre2_match_context_create(NULL);
	p->stack = pcre2_jit_stack_create(JIT_STACK_FIRST, JIT_STACK_MAX, NULL);
	if (p->context && p->stack)
		pcre2_jit_stack_assign(p->context, NULL, p->stack);
	return p;
}

/* MULTILINE gives $ the meaning it has in the reference's Ruby syntax: before any newline as well as at the end. */
static int compile(struct step *s, char err[ERR_LEN])
{
	struct strbuf rewritten = {0};
	int code, rc = pattern_rewrite(s->pattern, &rewritten, err);
	if (rc == 0) {
		PCRE2_SIZE at;
		s->code = pcre2_compile((PCRE2_SPTR)(rewritten.text ? rewritten.text : ""), rewritten.len,
			PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &code, &at, NULL);
		PCRE2_UCHAR why[128] = "";
		if (!s->code) {
			pcre2_get_error_message(code, why, sizeof why);
			rc = err_set(err, "split pattern, character %zu: %s in '%.300s'", (size_t)at, (char *)why, s->pattern);
		}
	}
	strbuf_free(&rewritten);
	return rc;
}

/* A match of no length would cut nothing; none of the known models has such a pattern. */
static int refuse_empty_match(const struct step *s, char err[ERR_LEN])
{
	uint32_t may_be_empty = 0;
	pcre2_pattern_info(s->code, PCRE2_INFO_MATCHEMPTY, &may_be_empty);
	return may_be_empty ? err_set(err, "split pattern '%.300s' can match nothing", s->pattern) : 0;
}

int pretoken_add(struct pretoken *p, const char *pattern, bool keep_gaps, char err[ERR_LEN])
{
	if (p->n == STEPS_MAX)
		return err_set(err, "more than %d pre-tokenizer steps", STEPS_MAX);
	struct step *s = &p->steps[p->n++];
	*s = (struct step){.pattern = text_copy(pattern), .keep_gaps = keep_gaps};
	if (compile(s, err) || refuse_empty_match(s, err))
		return -1;
	pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE); /* where there is no JIT, pcre2_match interprets */
	s->match = pcre2_match_data_create_from_pattern(s->code, NULL);
	return s->match && p->context && p->stack ? 0 : err_set(err, "out of memory for a split pattern");
}

void pretoken_describe(const struct pretoken *p, struct strbuf *out)
{
	for (size_t i = 0; i < p->n; i++)
		strbuf_printf(out, "%s %s\n", p->steps[i].keep_gaps ? "isolate" : "match", p->steps[i].pattern);
}

/* A split under way: what the steps hand down to each other. */
struct split {
	struct pretoken *p;
	piece_fn fn;
	void *to;
	char *err;
};

static int split_from(const struct split *w, size_t step, const char *text, size_t len);

/* Finds the first match at or after `from`; none: both ends are len. NO_UTF_CHECK: the caller's text is valid, and checking it
 * again for every piece would be quadratic. */
static int next_match(
	const struct split *w, struct step *s, const char *text, size_t len, size_t from, size_t *begin, size_t *end)
{
	int rc = pcre2_match(s->code, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK, s->match, w->p->context);
	*begin = *end = len;
	if (rc == PCRE2_ERROR_NOMATCH)
		return 0;
	if (rc < 0) {
		PCRE2_UCHAR why[128] = "";
		pcre2_get_error_message(rc, why, sizeof why);
		return err_set(w->err, "splitting text at byte %zu by '%.200s': %s", from, s->pattern, (char *)why);
	}
	const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(s->match);
	*begin = ends[0];
	*end = ends[1];
	return 0;
}

static int split_by(const struct split *w, size_t step, const char *text, size_t len)
{
	struct step *s = &w->p->steps[step];
	for (size_t done = 0, begin, end; done < len; done = end) {
		if (next_match(w, s, text, len, done, &begin, &end))
			return -1;
		if (begin > done && s->keep_gaps && split_from(w, step + 1, text + done, begin - done))
			return -1;
		if (end > begin && split_from(w, step + 1, text + begin, end - begin))
			return -1;
	}
	return 0;
}

static int split_from(const struct split *w, size_t step, const char *text, size_t len)
{
	return step < w->p->n ? split_by(w, step, text, len) : w->fn(w->to, text, len, w->err);
}

int pretoken_split(struct pretoken *p, const char *text, size_t len, piece_fn fn, void *to, char err[ERR_LEN])
{
	const struct split w = {p, fn, to, err};
	return len ? split_from(&w, 0, text, len) : 0;
}

void pretoken_free(struct pretoken *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n; i++) {
		free(p->steps[i].pattern);
		pcre2_code_free(p->steps[i].code);
		pcre2_match_data_free(p->steps[i].match);
	}
	pcre2_match_context_free(p->context);
	pcre2_jit_stack_free(p->stack);
	free(p);
}
