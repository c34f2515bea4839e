/* test.h: what every test program needs: cmocka's includes, where shared data lies, JSON files. */
#ifndef KVB_TEST_H
#define KVB_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/base/base.h"

/* ../shared, or KVB_SHARED; tests that need it skip with a plain message when it is not there. */
static inline const char *shared_dir(void)
{
	const char *dir = getenv("KVB_SHARED");
	return dir ? dir : "../shared";
}

/* Of the process, all threads: what limits of speed are set in, since a machine with other work gives less of the clock's time. */
static inline int64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#define skip_without(path)                                                   \
	do {                                                                 \
		if (!file_exists(path)) {                                    \
			printf("skipped: %s is not there\n", path);          \
			skip();                                              \
		}                                                            \
	} while (0)

/* Damages a file: the byte behind the first `key` in it becomes `value`. */
static inline void file_damage(const char *path, const char *key, char value)
{
	char *data, err[ERR_LEN];
	size_t len, n = strlen(key), at = 0;
	if (file_read(path, &data, &len, err))
		fail_msg("%s", err);
	while (at + n < len && memcmp(data + at, key, n) != 0)
		at++;
	assert_true(at + n < len);
	data[at + n] = value;
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
	free(data);
}

static inline json_t *json_file(const char *path)
{
	json_error_t e;
	json_t *j = json_load_file(path, 0, &e);
	if (!j)
		fail_msg("%s: %s", path, e.text);
	return j;
}

/* An array of integers; caller frees. */
static inline int32_t *json_ids(const json_t *array, size_t *n)
{
	*n = json_array_size(array);
	int32_t *v = mem_new(*n, sizeof *v);
	for (size_t i = 0; i < *n; i++)
		v[i] = (int32_t)json_integer_value(json_array_get(array, i));
	return v;
}

#endif
