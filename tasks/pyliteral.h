/* pyliteral.h: the constants of a Python source file, without Python: upstream's prompt tables are read out of upstream's own
 * files.
 *
 * Read: assignments `NAME = literal` at the outer level. Literals: strings (one or three quotes, escapes, raw, u, neighbours
 * joined, + ), numbers, True, False, None, dict, list, tuple, set, parentheses. A bare name as a value (a function) becomes
 * {"name": "..."}. Everything else of the file is skipped unread: imports, functions, classes. Refused where a wanted name needs
 * it: f-strings, bytes, calls, comprehensions, \N{...}, keys which are no strings. */
#ifndef KVB_PYLITERAL_H
#define KVB_PYLITERAL_H

#include "harness/base/base.h"

/* Gives a JSON object of the n names (n = 0: every constant that can be read). The last assignment of a name counts, as in
 * Python. A wanted name that is absent, no literal, or changed in place (NAME[...] = ..., NAME += ...) is an error with its line.
 * Caller frees *json. */
int pyliteral_read(const char *text, size_t len, const char *const *names, size_t n, char **json, char err[ERR_LEN]);

/* All values assigned to NAME as plain literals at any indentation, in the order of the text: a JSON array. None is an error. */
int pyliteral_inner(const char *text, size_t len, const char *name, char **json, char err[ERR_LEN]);

#endif
