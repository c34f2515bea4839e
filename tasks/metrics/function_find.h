/* function_find.h: the first function of a piece of source code, as RepoQA's scorer takes it by tree-sitter.
 *
 * What counts is upstream's query: python `def` (also of a class), java methods, typescript `function` declarations (no methods,
 * no arrows), rust `fn` items, go `func` without a receiver, C++ definitions whose declarator is a plain name (no `A::f`, none
 * inside a class, none that returns by `*` or `&`). Decorators, attributes, `export`, `template <...>` and comments before it do
 * not belong to it; modifiers and Java's annotations do. A tokenizer and a few rules a language, not a parser.
 *
 * Where it differs from tree-sitter: (1) a function whose body is cut off is none here; tree-sitter's recovery from errors gives
 * none either in python, typescript, rust and C++, the mended method in Java, the signature alone in Go; (2) C++ where a macro
 * stands in the place of a declaration or before a class's name (MATCHER(a, b) {...}, class API X {...}) and tree-sitter recovers
 * otherwise; (3) other broken code. Counted: 2 of the 107 pieces of tests/unit/tasks/test_scbench_functions.c, both (1); when it
 * was written, 5 of 2863 pieces (2400 functions, 463 files) of six public projects, all (2). */
#ifndef KVB_FUNCTION_FIND_H
#define KVB_FUNCTION_FIND_H

#include "harness/base/base.h"

/* Bytes [*start, *start + *len) of the first function; false = there is none, or the language is unknown. */
bool function_find(const char *lang, const char *code, size_t *start, size_t *len);

/* ---- its tokenizer (function_lex.c) ---- */

enum token_kind {
	TOKEN_WORD, /* name, keyword or number */
	TOKEN_MARK, /* one character of punctuation */
	TOKEN_TEXT, /* literal */
	TOKEN_LINE  /* C++: preprocessor line; python: comment */
};
struct token {
	enum token_kind kind;
	int at, end; /* bytes */
	bool first;  /* on its line */
	bool joined; /* its line goes on from the one before by a backslash */
	int column;  /* white space before it on its line, a tab counts 8; only of first tokens */
	int close;   /* of an opening bracket: the token which closes it, the code's n when none does; of others themselves */
};
enum syntax { SYNTAX_PYTHON, SYNTAX_JAVA, SYNTAX_TYPESCRIPT, SYNTAX_RUST, SYNTAX_CPP, SYNTAX_GO };
struct code { /* tokens of a text; comments are left out, but for python's */
	const char *text;
	struct token *v;
	int n;
};
struct code code_lex(const char *text, enum syntax syntax);
void code_free(struct code *c);

#endif
