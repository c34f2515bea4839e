/* function_lex.c: source code of six languages to tokens: enough that no bracket or keyword inside a text or comment counts. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/metrics/function_find.h"

struct lexer {
	const char *p;
	enum syntax syntax;
	struct code out;
	int cap;
	bool first, joined; /* of the next token */
	int column;
};

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || (unsigned char)c >= 0x80;
}

/* ---- literals: each returns the place behind it ---- */

/* From behind the opening quote. An unended one stops at the end of its line. */
static const char *skip_quoted(const char *p, char quote)
{
	for (; *p && *p != quote && *p != '\n'; p++)
		if (*p == '\\' && p[1])
			p++;
	return p + (*p == quote);
}

/* From behind the opening: to the end mark; escapes count unless raw. */
static const char *skip_to(const char *p, const char *end, bool raw)
{
	size_t n = strlen(end);
	for (; *p; p++) {
		if (!strncmp(p, end, n))
			return p + n;
		if (*p == '\\' && !raw && p[1])
			p++;
	}
	return p;
}

/* TypeScript's `...${...}...`, p behind the first mark. */
static const char *skip_template(const char *p)
{
	int depth = 0; /* of braces inside ${ } */
	for (; *p; p++) {
		if (*p == '\\' && p[1])
			p++;
		else if (!depth && *p == '`')
			return p + 1;
		else if (!depth && p[0] == '$' && p[1] == '{')
			depth = 1, p++;
		else if (depth && *p == '`')
			p = skip_template(p + 1) - 1;
		else if (depth && (*p == '"' || *p == '\''))
			p = skip_quoted(p + 1, *p) - 1;
		else if (depth)
			depth += (*p == '{') - (*p == '}');
	}
	return p;
}

static const char *skip_regex(const char *p)
{
	for (bool class = false; *p && *p != '\n' && (class || *p != '/'); p++) {
		if (*p == '\\' && p[1])
			p++;
		else
			class = *p == '[' || (class && *p != ']');
	}
	return p + (*p == '/');
}

/* r"..." r#"..."#, p on the first # or quote; NULL = it is none. */
static const char *skip_rust_raw(const char *p)
{
	size_t n = strspn(p, "#");
	if (p[n] != '"' || n > 16)
		return NULL;
	char end[20] = "\"################";
	end[n + 1] = 0;
	return skip_to(p + n + 1, end, true);
}

/* R"mark(...)mark", p on the quote. */
static const char *skip_cpp_raw(const char *p)
{
	char end[20];
	size_t n = strcspn(p + 1, "(\n");
	if (p[n + 1] != '(' || n > 16)
		return skip_quoted(p + 1, '"');
	end[0] = ')';
	memcpy(end + 1, p + 1, n);
	strcpy(end + n + 1, "\"");
	return skip_to(p + n + 2, end, true);
}

static const char *skip_string(const char *p, char quote, bool triple, bool raw)
{
	char end[4] = {quote, quote, quote, 0};
	return triple && !strncmp(p, end, 3) ? skip_to(p + 3, end, raw) : skip_quoted(p + 1, quote);
}

/* 'x', '\n': a character; 'a: a lifetime. */
static const char *skip_rust_quote(const char *p)
{
	const char *q = p + 1;
	if (*q == '\\')
		return skip_quoted(q, '\'');
	do
		q += *q != 0;
	while (((unsigned char)*q & 0xc0) == 0x80);
	return *q == '\'' ? q + 1 : p + 1;
}

/* After these a slash begins a regular expression. */
static bool regex_may_begin(const struct lexer *l)
{
	static const char *const words[] = {"return", "typeof", "case", "in", "of", "new", "delete", "void", "throw"};
	const struct token *last = l->out.n ? &l->out.v[l->out.n - 1] : NULL;
	if (!last || last->kind == TOKEN_MARK)
		return !last || !strchr(")]}", l->out.text[last->at]);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strlen(words[i]) == (size_t)(last->end - last->at) &&
			!memcmp(words[i], l->out.text + last->at, strlen(words[i])))
			return true;
	return false;
}

/* The end of the literal at p, or NULL when none begins there. */
static const char *skip_literal(const struct lexer *l, const char *p)
{
	switch (*p) {
	case '"':
		return skip_string(p, '"', l->syntax == SYNTAX_PYTHON || l->syntax == SYNTAX_JAVA, false);
	case '\'':
		if (l->syntax == SYNTAX_RUST)
			return skip_rust_quote(p);
		return skip_string(p, '\'', l->syntax == SYNTAX_PYTHON, false);
	case '`':
		if (l->syntax == SYNTAX_GO)
			return skip_to(p + 1, "`", true);
		return l->syntax == SYNTAX_TYPESCRIPT ? skip_template(p + 1) : NULL;
	case '/':
		return l->syntax == SYNTAX_TYPESCRIPT && regex_may_begin(l) ? skip_regex(p + 1) : NULL;
	default:
		return NULL;
	}
}

/* A literal that begins with letters (r"", b'', R"x()x", f""): its end, the word ending at p; else NULL. */
static const char *skip_prefixed(const struct lexer *l, const char *word, const char *p)
{
	size_t n = (size_t)(p - word);
	bool raw = n && strchr("rR", p[-1]);
	if (l->syntax == SYNTAX_RUST && raw && n <= 2)
		return skip_rust_raw(p);
	if (l->syntax == SYNTAX_CPP && *p == '"' && n <= 3)
		return p[-1] == 'R' ? skip_cpp_raw(p) : skip_quoted(p + 1, '"');
	if (l->syntax == SYNTAX_PYTHON && (*p == '"' || *p == '\'') && n <= 2)
		return skip_string(p, *p, true, false);
	return NULL;
}

/* ---- what lies between tokens ---- */

/* NULL = none begins at p. */
static const char *skip_comment(const struct lexer *l, const char *p)
{
	if (p[0] != '/' || (p[1] != '/' && p[1] != '*'))
		return NULL;
	if (p[1] == '/')
		return p + strcspn(p, "\n");
	int depth = 1;
	for (p += 2; *p && depth; p++)
		if (p[0] == '*' && p[1] == '/')
			depth--, p++;
		else if (l->syntax == SYNTAX_RUST && p[0] == '/' && p[1] == '*')
			depth++, p++;
	return p;
}

/* A preprocessor line with its continuations. */
static const char *skip_directive(const char *p)
{
	while (*p && (*p != '\n' || p[-1] == '\\'))
		p++;
	return p;
}

static void skip_blank(struct lexer *l)
{
	for (const char *end; *l->p; l->p++) {
		if (*l->p == '\n') {
			l->first = true;
			l->joined = false;
			l->column = 0;
		} else if (l->p[0] == '\\' && l->p[1] == '\n') {
			l->joined = true;
			l->p++;
		} else if (isspace((unsigned char)*l->p)) {
			l->column += *l->p == '\t' ? 8 : 1;
		} else if (l->syntax != SYNTAX_PYTHON && (end = skip_comment(l, l->p))) {
			if (memchr(l->p, '\n', (size_t)(end - l->p)))
				l->first = true;
			l->p = end - 1;
		} else {
			return;
		}
	}
}

/* ---- tokens ---- */

static void token_add(struct lexer *l, enum token_kind kind, const char *end)
{
	struct code *c = &l->out;
	if (c->n == l->cap)
		c->v = mem_grow(c->v, (size_t)(l->cap = l->cap * 2 + 256), sizeof(*c->v));
	c->v[c->n++] = (struct token){kind, (int)(l->p - c->text), (int)(end - c->text), l->first, l->joined, l->column};
	l->first = l->joined = false;
	l->p = end;
}

static void token_next(struct lexer *l)
{
	const char *p = l->p, *end = skip_literal(l, p);
	if (end) {
		token_add(l, TOKEN_TEXT, end);
	} else if (l->syntax == SYNTAX_CPP && *p == '#' && l->first) {
		token_add(l, TOKEN_LINE, skip_directive(p));
	} else if (l->syntax == SYNTAX_PYTHON && *p == '#') {
		token_add(l, TOKEN_LINE, p + strcspn(p, "\n"));
	} else if (is_word(*p)) {
		bool number = isdigit((unsigned char)*p);
		while (is_word(*p) || (number && (*p == '\'' || *p == '.') && is_word(p[1])))
			p++;
		end = skip_prefixed(l, l->p, p);
		token_add(l, end ? TOKEN_TEXT : TOKEN_WORD, end ? end : p);
	} else {
		token_add(l, TOKEN_MARK, p + 1);
	}
}

/* Of whatever kind they are: as many close as open. Until a bracket closes, `close` holds the one around it. */
static void brackets_match(struct code *c)
{
	int open = -1;
	for (int i = 0; i < c->n; i++) {
		struct token *t = &c->v[i];
		t->close = i;
		if (t->kind == TOKEN_MARK && strchr("([{", c->text[t->at])) {
			t->close = open;
			open = i;
		} else if (t->kind == TOKEN_MARK && strchr(")]}", c->text[t->at]) && open >= 0) {
			int around = c->v[open].close;
			c->v[open].close = i;
			open = around;
		}
	}
	while (open >= 0) {
		int around = c->v[open].close;
		c->v[open].close = c->n;
		open = around;
	}
}

struct code code_lex(const char *text, enum syntax syntax)
{
	struct lexer l = {.p = text, .syntax = syntax, .out = {.text = text}, .first = true};
	for (skip_blank(&l); *l.p; skip_blank(&l))
		token_next(&l);
	brackets_match(&l.out);
	return l.out;
}

void code_free(struct code *c)
{
	free(c->v);
}
