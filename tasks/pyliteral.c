/* pyliteral.c: see pyliteral.h. One pass over the text: a lexer for what must be skipped, a recursive reader for values. */
#include "tasks/pyliteral.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 32, NAME_MAX_LEN = 128 };

struct reader {
	const char *at, *begin, *end;
	int depth; /* of brackets: a line end inside them is white space */
	char *err;
};

static int line_of(const struct reader *r)
{
	int line = 1;
	for (const char *c = r->begin; c < r->at; c++)
		line += *c == '\n';
	return line;
}

static json_t *refuse(const struct reader *r, const char *why)
{
	err_set(r->err, "line %d: %s", line_of(r), why);
	return NULL;
}

static int peek(const struct reader *r, size_t ahead)
{
	return (size_t)(r->end - r->at) > ahead ? (unsigned char)r->at[ahead] : -1;
}

static bool is_name_start(int c)
{
	return isalpha(c) || c == '_' || c >= 128;
}

static bool is_name(int c)
{
	return is_name_start(c) || isdigit(c);
}

/* Blanks, comments, joined lines; line ends too where a bracket is open. */
static void skip_blank(struct reader *r)
{
	for (int c; (c = peek(r, 0)) >= 0; r->at++) {
		if (c == '#') {
			while (peek(r, 1) >= 0 && peek(r, 1) != '\n')
				r->at++;
		} else if (c == '\\' && (peek(r, 1) == '\n' || (peek(r, 1) == '\r' && peek(r, 2) == '\n'))) {
			r->at++;
		} else if (c != ' ' && c != '\t' && c != '\r' && c != '\f' && !(c == '\n' && r->depth)) {
			return;
		}
	}
}

/* ---- strings ---- */

/* Letters in front of a quote at r->at: their number, and which of r, b, f are among them. -1 = no string starts here. */
static int string_prefix(const struct reader *r, bool *raw, bool *bytes, bool *format)
{
	int n = 0, c;
	*raw = *bytes = *format = false;
	for (; (c = tolower(peek(r, (size_t)n))) > 0 && strchr("rbfu", c) && n < 3; n++) {
		*raw |= c == 'r';
		*bytes |= c == 'b';
		*format |= c == 'f';
	}
	c = peek(r, (size_t)n);
	return c == '"' || c == '\'' ? n : -1;
}

/* The quotes at r->at: 1 or 3 of them; r->at goes behind them. */
static int open_quotes(struct reader *r, int *quote)
{
	*quote = peek(r, 0);
	int n = peek(r, 1) == *quote && peek(r, 2) == *quote ? 3 : 1;
	r->at += n;
	return n;
}

static bool at_quotes(const struct reader *r, int quote, int n)
{
	return peek(r, 0) == quote && (n == 1 || (peek(r, 1) == quote && peek(r, 2) == quote));
}

static void put_utf8(struct strbuf *b, unsigned c)
{
	char u[4];
	int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	if (n == 1) {
		u[0] = (char)c;
	} else {
		for (int i = n - 1; i > 0; i--, c >>= 6)
			u[i] = (char)(0x80 | (c & 0x3f));
		u[0] = (char)((0xf00 >> n & 0xff) | c);
	}
	strbuf_add(b, u, (size_t)n);
}

/* digits hex digits at r->at as a character; false where they are none or no character. */
static bool put_hex(struct reader *r, struct strbuf *b, int digits)
{
	unsigned c = 0;
	for (int i = 0; i < digits; i++) {
		int d = peek(r, 0);
		if (d < 0 || !isxdigit(d) || c > 0x10ffff)
			return false;
		c = c * 16 + (unsigned)(isdigit(d) ? d - '0' : tolower(d) - 'a' + 10);
		r->at++;
	}
	if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return false;
	put_utf8(b, c);
	return true;
}

static void put_octal(struct reader *r, struct strbuf *b)
{
	unsigned c = 0;
	for (int i = 0; i < 3 && peek(r, 0) >= '0' && peek(r, 0) <= '7'; i++, r->at++)
		c = c * 8 + (unsigned)(peek(r, 0) - '0');
	put_utf8(b, c);
}

/* The escape behind a backslash at r->at. An unknown one stays as it is written, backslash and all. */
static bool put_escape(struct reader *r, struct strbuf *b)
{
	static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
	int c = peek(r, 1);
	const char *known = c > 0 ? strchr(from, c) : NULL;
	if (c >= '0' && c <= '7') {
		r->at++;
		put_octal(r, b);
		return true;
	}
	r->at += 2;
	if (c == 'x' || c == 'u' || c == 'U')
		return put_hex(r, b, c == 'x' ? 2 : c == 'u' ? 4 : 8);
	if (c == 'N')
		return false;
	if (c == '\r' && peek(r, 0) == '\n')
		r->at++;
	else if (known)
		strbuf_add(b, &to[known - from], 1);
	else if (c != '\n' && c != '\r') {
		r->at -= 2;
		strbuf_add(b, r->at++, 1); /* the character behind it is read as any other */
	}
	return true;
}

/* One string at r->at into b. 0, or -1 with err. */
static int read_string(struct reader *r, struct strbuf *b)
{
	bool raw, bytes, format;
	int prefix = string_prefix(r, &raw, &bytes, &format), quote;
	if (bytes || format) {
		refuse(r, bytes ? "bytes are not read" : "an f-string has no value until it runs");
		return -1;
	}
	r->at += prefix;
	int n = open_quotes(r, &quote);
	while (!at_quotes(r, quote, n)) {
		int c = peek(r, 0);
		if (c < 0 || (n == 1 && c == '\n')) {
			refuse(r, "a string does not end");
			return -1;
		}
		if (c == '\\' && raw && peek(r, 1) >= 0) {
			strbuf_add(b, r->at, 2);
			r->at += 2;
		} else if (c == '\\' && peek(r, 1) >= 0) {
			if (!put_escape(r, b)) {
				refuse(r, "an escape which is not read (\\N{...}, half a surrogate pair, or no hex digits)");
				return -1;
			}
		} else {
			if (c != '\r' || peek(r, 1) != '\n') /* Python reads source with plain line ends */
				strbuf_add(b, r->at, 1);
			r->at++;
		}
	}
	r->at += n;
	return 0;
}

static bool string_starts(const struct reader *r)
{
	bool raw, bytes, format;
	return string_prefix(r, &raw, &bytes, &format) >= 0;
}

/* Neighbouring strings are one. */
static json_t *read_strings(struct reader *r)
{
	struct strbuf b = {0};
	int rc = 0;
	while (!rc && string_starts(r)) {
		rc = read_string(r, &b);
		skip_blank(r);
	}
	json_t *s = rc ? NULL : json_stringn(b.text ? b.text : "", b.len);
	if (!rc && !s)
		refuse(r, "a string is not UTF-8");
	strbuf_free(&b);
	return s;
}

/* ---- values ---- */

static json_t *read_value(struct reader *r);

static json_t *read_number(struct reader *r)
{
	char digits[64];
	size_t n = 0;
	bool real = false;
	for (int c; n + 1 < sizeof digits && ((c = peek(r, 0)) == '_' || isalnum(c) || c == '.' ||
						     ((c == '-' || c == '+') && (!n || tolower(digits[n - 1]) == 'e')));
		r->at++) {
		if (c != '_')
			digits[n++] = (char)c;
		real |= c == '.';
	}
	digits[n] = 0;
	const char *plain = digits + (digits[0] == '-' || digits[0] == '+');
	bool hex = plain[0] == '0' && tolower(plain[1]) == 'x', octal = plain[0] == '0' && tolower(plain[1]) == 'o',
	     binary = plain[0] == '0' && tolower(plain[1]) == 'b';
	real |= !hex && strpbrk(plain, "eE") != NULL;
	char *end;
	if (octal || binary) {
		long long v = strtoll(plain + 2, &end, octal ? 8 : 2);
		return *end || end == plain + 2 ? refuse(r, "not a number") : json_integer(digits[0] == '-' ? -v : v);
	}
	json_t *j = real ? json_real(strtod(digits, &end)) : json_integer(strtoll(digits, &end, hex ? 16 : 10));
	if (*end || end == digits || !j) {
		json_decref(j);
		return refuse(r, "not a number");
	}
	return j;
}

static size_t read_name(struct reader *r, char name[NAME_MAX_LEN])
{
	size_t n = 0;
	while (is_name(peek(r, 0)) && n + 1 < NAME_MAX_LEN)
		name[n++] = *r->at++;
	name[n] = 0;
	return n;
}

static json_t *read_word(struct reader *r)
{
	char name[NAME_MAX_LEN];
	read_name(r, name);
	if (!strcmp(name, "True") || !strcmp(name, "False"))
		return json_boolean(name[0] == 'T');
	if (!strcmp(name, "None"))
		return json_null();
	json_t *j = json_pack("{s:s}", "name", name);
	return j ? j : refuse(r, "a name is not UTF-8");
}

/* Goes behind the closing bracket if it is next. */
static bool closes(struct reader *r, int bracket)
{
	skip_blank(r);
	if (peek(r, 0) != bracket)
		return false;
	r->at++;
	return true;
}

/* A comma or the closing bracket must follow a value. */
static bool goes_on(struct reader *r, int bracket)
{
	skip_blank(r);
	if (peek(r, 0) == ',') {
		r->at++;
		return true;
	}
	return peek(r, 0) == bracket;
}

/* ": value" behind a key, into dict. */
static bool read_pair(struct reader *r, json_t *dict, const json_t *key)
{
	if (!json_is_string(key) || strlen(json_string_value(key)) != json_string_length(key))
		return refuse(r, "a key is no string");
	if (peek(r, 0) != ':')
		return refuse(r, "a colon is wanted behind a key");
	r->at++;
	skip_blank(r);
	json_t *value = read_value(r);
	if (value)
		json_object_set_new(dict, json_string_value(key), value);
	return value != NULL;
}

/* {k: v, ...}, or {a, b}: a set, which keeps the order of the text here. */
static json_t *read_brace(struct reader *r)
{
	json_t *dict = json_object(), *set = json_array();
	bool fine = true;
	while (fine && !closes(r, '}')) {
		json_t *first = read_value(r);
		skip_blank(r);
		bool pair = !json_array_size(set) && (peek(r, 0) == ':' || json_object_size(dict));
		fine = first && (pair ? read_pair(r, dict, first) : !json_array_append(set, first));
		json_decref(first);
		if (fine && !(fine = goes_on(r, '}')))
			refuse(r, "a comma or } is wanted here");
	}
	json_t *made = !fine ? NULL : json_incref(json_array_size(set) ? set : dict);
	json_decref(dict);
	json_decref(set);
	return made;
}

/* A list, a tuple, or a value in parentheses (no comma: the value itself). */
static json_t *read_list(struct reader *r, int bracket)
{
	json_t *list = json_array(), *value;
	bool comma = bracket != ')';
	while (!closes(r, bracket)) {
		value = read_value(r);
		skip_blank(r);
		comma |= peek(r, 0) == ',';
		bool fine = value && goes_on(r, bracket);
		if (value)
			json_array_append_new(list, value);
		if (!fine) {
			json_decref(list);
			return value ? refuse(r, "a comma or the closing bracket is wanted here") : NULL;
		}
	}
	if (comma || json_array_size(list) != 1)
		return list;
	value = json_incref(json_array_get(list, 0));
	json_decref(list);
	return value;
}

static json_t *read_bracket(struct reader *r, int open)
{
	if (r->depth >= DEPTH_MAX)
		return refuse(r, "brackets are nested too deep");
	r->at++;
	r->depth++;
	json_t *j = open == '[' ? read_list(r, ']') : open == '(' ? read_list(r, ')') : read_brace(r);
	r->depth--;
	return j;
}

static json_t *read_atom(struct reader *r)
{
	int c = peek(r, 0);
	if (string_starts(r))
		return read_strings(r);
	if (c == '{' || c == '[' || c == '(')
		return read_bracket(r, c);
	if (isdigit(c) || ((c == '.' || c == '-' || c == '+') && (isdigit(peek(r, 1)) || peek(r, 1) == '.')))
		return read_number(r);
	if (is_name_start(c))
		return read_word(r);
	return refuse(r, "a literal is wanted here");
}

/* An atom, and strings joined with +. */
static json_t *read_value(struct reader *r)
{
	json_t *j = read_atom(r);
	for (skip_blank(r); j && peek(r, 0) == '+'; skip_blank(r)) {
		r->at++;
		skip_blank(r);
		json_t *more = read_atom(r);
		struct strbuf b = {0};
		bool strings = json_is_string(j) && json_is_string(more);
		if (strings) {
			strbuf_add(&b, json_string_value(j), json_string_length(j));
			strbuf_add(&b, json_string_value(more), json_string_length(more));
		}
		json_decref(j);
		j = strings ? json_stringn(b.text ? b.text : "", b.len) : more ? refuse(r, "+ joins strings only") : NULL;
		json_decref(more);
		strbuf_free(&b);
	}
	return j;
}

/* ---- the file ---- */

/* Over a string of any kind without reading it. */
static void skip_string(struct reader *r)
{
	bool raw, bytes, format;
	int quote;
	r->at += string_prefix(r, &raw, &bytes, &format);
	int n = open_quotes(r, &quote);
	while (peek(r, 0) >= 0 && !at_quotes(r, quote, n)) {
		if (n == 1 && peek(r, 0) == '\n')
			return;
		r->at += peek(r, 0) == '\\' && peek(r, 1) >= 0 ? 2 : 1;
	}
	r->at += peek(r, 0) >= 0 ? n : 0;
}

/* To the start of the next logical line: strings, comments and brackets may hold line ends. */
static void skip_statement(struct reader *r)
{
	int open = 0;
	for (int c; (c = peek(r, 0)) >= 0;) {
		if (string_starts(r)) {
			skip_string(r);
		} else if (is_name(c)) {
			while (is_name(peek(r, 0)))
				r->at++;
		} else if (c == '#') {
			while (peek(r, 0) >= 0 && peek(r, 0) != '\n')
				r->at++;
		} else if (c == '\\' && peek(r, 1) >= 0) {
			r->at += 2;
		} else {
			open += c && strchr("([{", c) ? 1 : c && strchr(")]}", c) && open ? -1 : 0;
			r->at++;
			if (c == '\n' && !open)
				return;
		}
	}
}

static bool ends_statement(struct reader *r)
{
	skip_blank(r);
	int c = peek(r, 0);
	return c < 0 || c == '\n' || c == ';';
}

/* ": annotation" up to the =; false where there is none. */
static bool skip_annotation(struct reader *r)
{
	while (peek(r, 0) >= 0 && peek(r, 0) != '=' && peek(r, 0) != '\n')
		r->at++;
	return peek(r, 0) == '=';
}

/* Why a name cannot be read, kept until somebody wants it. */
static void mark_unread(json_t *unread, json_t *all, const char *name, const char *why)
{
	json_object_set_new(unread, name, json_string(why));
	json_object_del(all, name);
}

/* One statement at the start of a line which begins with a name. r->at ends anywhere inside it. */
static void read_assignment(struct reader *r, json_t *all, json_t *unread)
{
	char name[NAME_MAX_LEN], err[ERR_LEN];
	read_name(r, name);
	skip_blank(r);
	r->err = err;
	bool plain = peek(r, 0) == '=' && peek(r, 1) != '=', annotated = peek(r, 0) == ':' && skip_annotation(r);
	bool known = json_object_get(all, name) != NULL;
	if (plain || annotated) {
		r->at++;
		skip_blank(r);
		json_t *value = read_value(r);
		if (value && !ends_statement(r)) {
			json_decref(value);
			value = refuse(r, "more than a literal");
		}
		r->depth = 0;
		if (!value || json_object_set_new(all, name, value))
			mark_unread(unread, all, name, err);
		else
			json_object_del(unread, name);
	} else if (known && (peek(r, 0) == '[' || peek(r, 0) == '.' || peek(r, 1) == '=')) {
		refuse(r, "it is changed in place");
		mark_unread(unread, all, name, err);
	}
}

static void read_file(struct reader *r, json_t *all, json_t *unread)
{
	while (r->at < r->end) {
		struct reader line = *r;
		if (is_name_start(peek(r, 0)) && !string_starts(r))
			read_assignment(&line, all, unread);
		skip_statement(r);
	}
}

static json_t *choose(json_t *all, json_t *unread, const char *const *names, size_t n, char err[ERR_LEN])
{
	json_t *chosen = json_object();
	for (size_t i = 0; i < n; i++) {
		json_t *value = json_object_get(all, names[i]);
		const char *why = json_string_value(json_object_get(unread, names[i]));
		if (!value) {
			err_set(err, "%s: %s", names[i], why ? why : "there is no such assignment");
			json_decref(chosen);
			return NULL;
		}
		json_object_set(chosen, names[i], value);
	}
	return chosen;
}

int pyliteral_read(const char *text, size_t len, const char *const *names, size_t n, char **json, char err[ERR_LEN])
{
	json_t *all = json_object(), *unread = json_object();
	struct reader r = {.at = text, .begin = text, .end = text + len};
	if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
		r.at += 3;
	read_file(&r, all, unread);
	json_t *chosen = n ? choose(all, unread, names, n, err) : json_incref(all);
	*json = chosen ? json_dumps(chosen, JSON_INDENT(1)) : NULL;
	if (chosen && !*json)
		err_set(err, "the constants make no JSON");
	json_decref(chosen);
	json_decref(all);
	json_decref(unread);
	return *json ? 0 : -1;
}

/* The literal assigned to name by the statement at r->at; NULL when it is another statement, or no literal. */
static json_t *inner_value(struct reader *r, const char *name)
{
	char own[NAME_MAX_LEN], why[ERR_LEN];
	if (!is_name_start(peek(r, 0)) || string_starts(r))
		return NULL;
	read_name(r, own);
	skip_blank(r);
	if (strcmp(own, name) || peek(r, 0) != '=' || peek(r, 1) == '=')
		return NULL;
	r->at++;
	r->err = why;
	skip_blank(r);
	json_t *value = read_value(r);
	if (!value || ends_statement(r))
		return value;
	json_decref(value);
	return NULL;
}

int pyliteral_inner(const char *text, size_t len, const char *name, char **json, char err[ERR_LEN])
{
	json_t *list = json_array();
	struct reader r = {.at = text, .begin = text, .end = text + len};
	while (r.at < r.end) {
		skip_blank(&r);
		struct reader line = r;
		json_t *value = inner_value(&line, name);
		if (value)
			json_array_append_new(list, value);
		skip_statement(&r);
	}
	*json = json_array_size(list) ? json_dumps(list, JSON_INDENT(1)) : NULL;
	json_decref(list);
	return *json ? 0 : err_set(err, "%s: no literal is assigned to it", name);
}
