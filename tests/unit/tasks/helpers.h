/* helpers.h: what the tests of tasks/ share: cmocka, a stand-in tokenizer, the place of the shared data. */
#ifndef KVB_TEST_TASKS_HELPERS_H
#define KVB_TEST_TASKS_HELPERS_H

#include <ctype.h>
#include <unistd.h>

#include "tasks/task.h"
#include "tests/unit/test.h"

#define assert_ok(call)                                                                                                          \
	do {                                                                                                                     \
		if (call)                                                                                                        \
			fail_msg("%s", err);                                                                                     \
	} while (0)
#define assert_near(a, b)                                                                                                        \
	do {                                                                                                                     \
		if (!(fabs((a) - (b)) < 1e-12))                                                                                  \
			fail_msg("%s = %.17g, not %.17g", #a, (double)(a), (double)(b));                                         \
	} while (0)

/* Tokens as the tiny pair's tokenizer makes them of its dialect: a word with the blank before it, or one other character. */
static inline size_t token_end(const char *text, size_t len, size_t at)
{
	size_t i = at + (text[at] == ' ' && at + 1 < len && isalnum((unsigned char)text[at + 1]));
	if (!isalnum((unsigned char)text[i]))
		return i + 1;
	while (i < len && isalnum((unsigned char)text[i]))
		i++;
	return i;
}

static inline size_t cut_words(void *user, const char *text, size_t len, int64_t n)
{
	size_t at = 0;
	for (; n > 0 && at < len; n--)
		at = token_end(text, len, at);
	(void)user;
	return at;
}

static inline int64_t count_words(void *user, const char *text, size_t len)
{
	int64_t n = 0;
	for (size_t at = 0; at < len; n++)
		at = token_end(text, len, at);
	(void)user;
	return n;
}

/* Tokens of one byte. */
static inline int64_t count_bytes(void *user, const char *text, size_t len)
{
	(void)user, (void)text;
	return (int64_t)len;
}

static inline size_t cut_bytes(void *user, const char *text, size_t len, int64_t n)
{
	(void)user, (void)text;
	return (size_t)n < len ? (size_t)n : len;
}

/* Path under the shared data (KVB_SHARED, else ../shared), or NULL when it is not there. Static storage. */
static inline const char *shared_path(const char *below)
{
	static char path[512];
	snprintf(path, sizeof(path), "%s/%s", shared_dir(), below);
	return file_exists(path) ? path : NULL;
}

#define need_shared(path)                                                                                                        \
	do {                                                                                                                     \
		if (!(path)) {                                                                                                   \
			print_message("skip: the shared data are not there (KVB_SHARED or ../shared)\n");                        \
			skip();                                                                                                  \
		}                                                                                                                \
	} while (0)

#endif
