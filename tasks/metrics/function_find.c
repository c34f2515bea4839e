/* function_find.c: the first function of a piece of code in six languages (function_find.h): rules over tokens. */
#include "tasks/metrics/function_find.h"

#include <ctype.h>
#include <string.h>

struct span { /* tokens, last included */
	int first, last;
};

/* ---- tokens ---- */

static bool is(const struct code *c, int i, const char *text)
{
	size_t n = strlen(text);
	return i >= 0 && i < c->n && c->v[i].kind != TOKEN_TEXT && (size_t)(c->v[i].end - c->v[i].at) == n &&
	       !memcmp(c->text + c->v[i].at, text, n);
}

static bool is_mark(const struct code *c, int i, const char *marks)
{
	return i >= 0 && i < c->n && c->v[i].kind == TOKEN_MARK && strchr(marks, c->text[c->v[i].at]);
}

/* list: words with a blank around each. */
static bool is_of(const struct code *c, int i, const char *list)
{
	if (i < 0 || i >= c->n || c->v[i].kind != TOKEN_WORD)
		return false;
	size_t n = (size_t)(c->v[i].end - c->v[i].at);
	for (const char *p = list; (p = memmem(p, strlen(p), c->text + c->v[i].at, n)); p++)
		if (p[-1] == ' ' && p[n] == ' ')
			return true;
	return false;
}

static bool is_name(const struct code *c, int i)
{
	return i >= 0 && i < c->n && c->v[i].kind == TOKEN_WORD && !isdigit((unsigned char)c->text[c->v[i].at]);
}

/* Two marks without anything between them, as "::" or "->". */
static bool is_pair(const struct code *c, int i, const char *pair)
{
	return i + 1 < c->n && c->v[i].kind == TOKEN_MARK && c->v[i + 1].at == c->v[i].end && c->text[c->v[i].at] == pair[0] &&
	       c->text[c->v[i + 1].at] == pair[1];
}

/* The bracket which closes the one at i; c->n when none does. */
static int close_of(const struct code *c, int i)
{
	return i < c->n ? c->v[i].close : c->n;
}

/* A function from token `first` whose body opens at token `open`; one whose body was cut off is none. */
static bool body(const struct code *c, int first, int open, struct span *out)
{
	*out = (struct span){first, close_of(c, open)};
	return is_mark(c, open, "{") && out->last < c->n;
}

/* Behind the ">" of the "<" at i. Arrows are not brackets. */
static int behind_angles(const struct code *c, int i)
{
	for (int depth = 0; i < c->n; i++) {
		if (is_mark(c, i, "([{"))
			i = close_of(c, i);
		else if (is_pair(c, i, "->") || is_pair(c, i, "=>"))
			i++;
		else if (is_mark(c, i, "<>") && !(depth += is_mark(c, i, "<") - is_mark(c, i, ">")))
			return i + 1;
	}
	return i;
}

/* ---- python: lines and their indents ---- */

static bool starts_line(const struct code *c, int i, int depth)
{
	return i < c->n && c->v[i].first && !c->v[i].joined && !depth;
}

/* The last token of the logical line of token i. */
static int line_end(const struct code *c, int i)
{
	for (int depth = 0;; i++) {
		depth += is_mark(c, i, "([{") - is_mark(c, i, ")]}");
		if (i + 1 >= c->n || starts_line(c, i + 1, depth > 0))
			return i;
	}
}

/* The last token of the block below the line which ends at token `last`: lines indented deeper than `column`. Comments among them
 * belong to it, those which stand further left do not end it. */
static int block_end(const struct code *c, int last, int column)
{
	for (int i = last + 1, end; i < c->n; i = end + 1) {
		end = line_end(c, i);
		if (c->v[i].column > column)
			last = end;
		else if (c->v[i].kind != TOKEN_LINE)
			break;
	}
	return last;
}

/* Is a bracket of the tokens first .. last not closed? */
static bool open_at(const struct code *c, int first, int last)
{
	int depth = 0;
	for (int i = first; i <= last; i++)
		depth += is_mark(c, i, "([{") - is_mark(c, i, ")]}");
	return depth > 0;
}

static bool python_def(const struct code *c, int i, struct span *out)
{
	int def = is(c, i, "async") ? i + 1 : i, last = line_end(c, i), colon = def + 2;
	if (!is(c, def, "def") || !is_name(c, def + 1))
		return false;
	while (colon < last && !is_mark(c, colon, ":"))
		colon = is_mark(c, colon, "([{") ? close_of(c, colon) + 1 : colon + 1;
	bool one_line = colon < last && c->v[colon + 1].kind != TOKEN_LINE;
	int end = one_line ? last : block_end(c, last, c->v[i].column);
	*out = (struct span){i, end};
	return (one_line || end > last) && !open_at(c, i, end);
}

static bool find_python(const struct code *c, struct span *out)
{
	for (int i = 0; i < c->n; i = line_end(c, i) + 1)
		if (python_def(c, i, out))
			return true;
	return false;
}

/* ---- go ---- */

static bool go_func(const struct code *c, int i, struct span *out)
{
	int k = i + 2;
	if (!is(c, i, "func") || !is_name(c, i + 1))
		return false;
	if (is_mark(c, k, "["))
		k = close_of(c, k) + 1;
	if (!is_mark(c, k, "("))
		return false;
	for (k = close_of(c, k) + 1; k < c->n && !c->v[k].first && !is_mark(c, k, "{;"); k++)
		if (is_of(c, k, " interface struct ") && is_mark(c, k + 1, "{"))
			k = close_of(c, k + 1);
		else if (is_mark(c, k, "(["))
			k = close_of(c, k);
	*out = (struct span){i, k - 1};
	return !is_mark(c, k, "{") || body(c, i, k, out);
}

static bool find_go(const struct code *c, struct span *out)
{
	for (int i = 0; i < c->n; i++)
		if (go_func(c, i, out))
			return true;
		else if (is_mark(c, i, "([{"))
			i = close_of(c, i);
	return false;
}

/* ---- rust ---- */

/* The "(" of a pub(...) which token i closes; 0 = it is none. */
static int pub_of(const struct code *c, int i)
{
	while (i > 0 && !is_mark(c, i, "("))
		i--;
	return is(c, i - 1, "pub") ? i : 0;
}

/* The first of the modifiers which end before token i. */
static int rust_modifiers(const struct code *c, int i)
{
	for (int open;; i--)
		if (i >= 2 && is(c, i - 2, "extern") && c->v[i - 1].kind == TOKEN_TEXT)
			i--;
		else if (is_mark(c, i - 1, ")") && (open = pub_of(c, i - 1)))
			i = open;
		else if (!is_of(c, i - 1, " pub async unsafe const extern default "))
			return i;
}

static bool rust_fn(const struct code *c, int i, struct span *out)
{
	int k = i + 2;
	if (!is(c, i, "fn") || !is_name(c, i + 1))
		return false;
	for (; k < c->n && !is_mark(c, k, "{;"); k++)
		if (is_mark(c, k, "(["))
			k = close_of(c, k);
	return body(c, rust_modifiers(c, i), k, out);
}

static bool find_rust(const struct code *c, struct span *out)
{
	for (int i = 0; i < c->n; i++) {
		if (rust_fn(c, i, out))
			return true;
		if (is_name(c, i) && is_mark(c, i + 1, "!") && !is_pair(c, i + 1, "!=")) { /* a macro's tokens are no items */
			int open = is_name(c, i + 2) ? i + 3 : i + 2;
			i = is_mark(c, open, "([{") ? close_of(c, open) : i;
		}
	}
	return false;
}

/* ---- typescript ---- */

/* Can a statement begin at token i? Else `function` there is an expression. */
static bool statement_begins(const struct code *c, int i)
{
	if (i == 0 || is_mark(c, i - 1, ";{})") || is_of(c, i - 1, " export default else do "))
		return true;
	bool goes_on = c->v[i - 1].kind == TOKEN_MARK ||
		       is_of(c, i - 1, " return typeof new void await yield in of instanceof case throw delete ");
	return c->v[i].first && !goes_on;
}

/* Behind the type which begins at token i: a brace where a type is due belongs to the type. */
static int behind_type(const struct code *c, int i)
{
	for (bool due = true; i < c->n; i++) {
		if (is_mark(c, i, "{") && !due)
			return i;
		if (is_mark(c, i, ";") || (c->v[i].first && !due && !is_mark(c, i, "|&{")))
			return i;
		if (is_mark(c, i, "([{")) {
			i = close_of(c, i);
			due = false;
		} else if (is_mark(c, i, "<")) {
			i = behind_angles(c, i) - 1;
			due = false;
		} else if (is_pair(c, i, "=>")) {
			i++;
			due = true;
		} else {
			due = is_mark(c, i, "|&") || is_of(c, i, " is extends keyof typeof infer readonly asserts ");
		}
	}
	return i;
}

static bool typescript_function(const struct code *c, int i, struct span *out)
{
	int first = i && is(c, i - 1, "async") && !c->v[i].first ? i - 1 : i, k = i + 2;
	if (!is(c, i, "function") || !is_name(c, i + 1) || !statement_begins(c, first))
		return false;
	if (is_mark(c, k, "<"))
		k = behind_angles(c, k);
	if (!is_mark(c, k, "("))
		return false;
	k = close_of(c, k) + 1;
	if (is_mark(c, k, ":"))
		k = behind_type(c, k + 1);
	return body(c, first, k, out);
}

static bool find_typescript(const struct code *c, struct span *out)
{
	for (int i = 0; i < c->n; i++)
		if (typescript_function(c, i, out))
			return true;
	return false;
}

/* ---- java ---- */

static const char java_not_type[] = " return new throw else case yield assert package import class interface enum goto if for "
				    "while do switch try catch super this ";

static int behind_annotations_and_modifiers(const struct code *c, int i)
{
	for (;;)
		if (is_mark(c, i, "@") && is_name(c, i + 1) && !is(c, i + 1, "interface")) {
			for (i += 2; is_mark(c, i, ".") && is_name(c, i + 1); i += 2)
				;
			if (is_mark(c, i, "("))
				i = close_of(c, i) + 1;
		} else if (is_of(c, i, " public protected private static final abstract synchronized native default strictfp ")) {
			i++;
		} else {
			return i;
		}
}

/* Behind a type, or -1. */
static int behind_java_type(const struct code *c, int i)
{
	if (!is_name(c, i) || is_of(c, i, java_not_type))
		return -1;
	for (i++; i < c->n;)
		if (is_mark(c, i, "<"))
			i = behind_angles(c, i);
		else if (is_mark(c, i, "[") && is_mark(c, i + 1, "]"))
			i += 2;
		else if (is_mark(c, i, ".") && is_name(c, i + 1))
			i += 2;
		else
			return i;
	return -1;
}

/* outside: of any brace, where tree-sitter also takes a constructor for a method. */
static bool java_method(const struct code *c, int i, bool outside, struct span *out)
{
	int k = behind_annotations_and_modifiers(c, i), name;
	bool modified = k > i;
	if (is_mark(c, k, "<"))
		k = behind_annotations_and_modifiers(c, behind_angles(c, k));
	name = is(c, k, "record") ? -1 : behind_java_type(c, k);
	if (outside && modified && name == k + 1 && is_mark(c, name, "("))
		name = k;
	if (name < 0 || !is_name(c, name) || is_of(c, name, java_not_type) || !is_mark(c, name + 1, "("))
		return false;
	k = close_of(c, name + 1) + 1;
	while (is_mark(c, k, "[]"))
		k++;
	if (is(c, k, "throws"))
		while (k < c->n && !is_mark(c, k, "{;"))
			k++;
	*out = (struct span){i, k};
	return is_mark(c, k, ";") || body(c, i, k, out);
}

static bool find_java(const struct code *c, struct span *out)
{
	for (int i = 0, depth = 0; i < c->n; i++) {
		if ((i == 0 || is_mark(c, i - 1, ";{}")) && java_method(c, i, !depth, out))
			return true;
		if (is_mark(c, i, "@") && is(c, i + 1, "interface") && is_mark(c, i + 3, "{"))
			i = close_of(c, i + 3); /* an annotation's elements are no methods */
		depth += is_mark(c, i, "{") - is_mark(c, i, "}");
	}
	return false;
}

/* ---- C++ ---- */

/* Behind what stands between the parameters and the body, initialisers of members included. */
static int behind_trailer(const struct code *c, int k)
{
	for (; k < c->n; k++)
		if (is_name(c, k) && is_mark(c, k + 1, "(")) /* noexcept(...), throw(...), a macro */
			k = close_of(c, k + 1);
		else if (is_pair(c, k, "->"))
			for (k += 2; k < c->n && !is_mark(c, k + 1, "{;"); k++)
				k = is_mark(c, k + 1, "<") ? behind_angles(c, k + 1) - 2 : k;
		else if (!is_of(c, k, " const volatile noexcept override final try ") && !is_mark(c, k, "&"))
			break;
	if (!is_mark(c, k, ":"))
		return k;
	for (k++; k < c->n; k++) {
		while (k < c->n && !is_mark(c, k, "({"))
			k = is_mark(c, k, "<") ? behind_angles(c, k) : k + 1;
		k = close_of(c, k) + 1;
		if (!is_mark(c, k, ","))
			return k;
	}
	return k;
}

/* The "(" of the parameters of the declaration at i, or the token which shows that it has none. */
static int parameters_of(const struct code *c, int i)
{
	for (; i < c->n && !is_mark(c, i, "(;={}") && c->v[i].kind != TOKEN_LINE; i++)
		if (is_of(c, i, " __attribute__ alignas decltype explicit __declspec ") && is_mark(c, i + 1, "("))
			i = close_of(c, i + 1);
		else if (is_mark(c, i, "["))
			i = close_of(c, i);
		else if (is_mark(c, i, "<"))
			i = behind_angles(c, i) - 1;
		else if (is(c, i, "operator"))
			while (i + 1 < c->n && !is_mark(c, i + 1, "("))
				i++;
	return i;
}

/* The plain name of a function whose result comes by value: not A::f, ~f, f<int>, *f, &f, operator. */
static bool is_plain_name(const struct code *c, int name)
{
	return is_name(c, name) && !is_mark(c, name - 1, "~*&") && !(name > 1 && is_pair(c, name - 2, "::")) &&
	       !is_of(c, name, " if for while switch catch return sizeof operator ") && !is(c, name - 1, "operator");
}

/* The last token of the handlers which follow the body that ends at token i, or i. */
static int behind_catches(const struct code *c, int i)
{
	while (is(c, i + 1, "catch") && is_mark(c, i + 2, "("))
		i = close_of(c, close_of(c, i + 2) + 1);
	return i;
}

/* In a class only constructors have a plain name: nothing but specifiers stands before it. */
static bool is_constructor(const struct code *c, int i, int name)
{
	while (is_of(c, i, " explicit inline constexpr "))
		i++;
	return i == name;
}

struct cpp_place {
	int next;      /* where to go on */
	int class_end; /* the closing brace of the outermost class around, or 0 */
};

/* Is there a function of the kind asked for at token i? */
static bool cpp_declaration(const struct code *c, int i, struct span *out, struct cpp_place *at)
{
	int open = parameters_of(c, i), k;
	if (is_of(c, i, " class struct union enum ") && is_mark(c, open, "{")) {
		int close = close_of(c, open);
		at->next = is(c, i, "enum") ? close + 1 : open + 1;
		at->class_end = close > at->class_end ? close : at->class_end;
		return false;
	}
	if (!is_mark(c, open, "(") || is_of(c, open - 1, " if for while switch catch return sizeof "))
		return false;
	k = behind_trailer(c, close_of(c, open) + 1);
	bool set = is_mark(c, k, "=") && is_of(c, k + 1, " default delete ");
	if (!set && !is_mark(c, k, "{"))
		return false;
	*out = (struct span){i, set ? k + 2 : behind_catches(c, close_of(c, k))};
	if (out->last >= c->n)
		return false;
	at->next = out->last + 1;
	bool in_class = i < at->class_end && !is(c, i - 1, "friend");
	return is_plain_name(c, open - 1) && (!in_class || is_constructor(c, i, open - 1));
}

/* Can a declaration begin at token i? */
static bool cpp_begins(const struct code *c, int i)
{
	return i == 0 || is_mark(c, i - 1, ";{}") || c->v[i - 1].kind == TOKEN_LINE;
}

static bool find_cpp(const struct code *c, struct span *out)
{
	struct cpp_place at = {0};
	for (int i = 0; i < c->n; i = at.next) {
		at.next = i + 1;
		if (!cpp_begins(c, i) || is(c, i, "namespace") || is_mark(c, i, ";{}"))
			continue;
		while (is_of(c, i, " public private protected ") && is_mark(c, i + 1, ":"))
			i += 2;
		while (is(c, i, "template") && is_mark(c, i + 1, "<"))
			i = behind_angles(c, i + 1);
		if (is(c, i, "extern") && i + 1 < c->n && c->v[i + 1].kind == TOKEN_TEXT)
			i += 2;
		i += is(c, i, "friend");
		at.next = i + 1;
		if (!is_mark(c, i, "{") && cpp_declaration(c, i, out, &at))
			return true;
	}
	return false;
}

/* ---- the table ---- */

bool function_find(const char *lang, const char *code, size_t *start, size_t *len)
{
	static const struct {
		const char *name;
		enum syntax syntax;
		bool (*find)(const struct code *c, struct span *out);
	} languages[] = {
		{"python", SYNTAX_PYTHON, find_python},
		{"java", SYNTAX_JAVA, find_java},
		{"typescript", SYNTAX_TYPESCRIPT, find_typescript},
		{"rust", SYNTAX_RUST, find_rust},
		{"cpp", SYNTAX_CPP, find_cpp},
		{"go", SYNTAX_GO, find_go},
	};
	for (size_t i = 0; i < sizeof(languages) / sizeof(languages[0]); i++) {
		if (strcmp(languages[i].name, lang))
			continue;
		struct span s;
		struct code c = code_lex(code, languages[i].syntax);
		bool found = languages[i].find(&c, &s) && s.last < c.n; /* a bracket may not close */
		if (found) {
			*start = (size_t)c.v[s.first].at;
			*len = (size_t)c.v[s.last].end - *start;
		}
		code_free(&c);
		return found;
	}
	return false;
}
