/* cmocka.h (for tests/gpu.sh): as much of cmocka as the device tests use, so that they run on a machine that has nothing but a compiler and CUDA. */
#ifndef KVB_SMALL_CMOCKA_H
#define KVB_SMALL_CMOCKA_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
	const char *name;
	void (*run)(void **state);
};
#define cmocka_unit_test(f) {#f, f}
#define print_message(...) printf(__VA_ARGS__)

static jmp_buf small_cmocka_end;
#define fail_msg(...) (printf("%s:%d: ", __FILE__, __LINE__), printf(__VA_ARGS__), printf("\n"), longjmp(small_cmocka_end, 1))
#define assert_true(c) ((c) ? (void)0 : fail_msg("not true: %s", #c))
#define assert_false(c) assert_true(!(c))
#define assert_null(p) assert_true((p) == NULL)
#define assert_non_null(p) assert_true((p) != NULL)
#define assert_int_equal(a, b) assert_true((long long)(a) == (long long)(b))
#define assert_string_equal(a, b) assert_true(!strcmp(a, b))
#define assert_memory_equal(a, b, n) assert_true(!memcmp(a, b, n))

static inline int small_cmocka_run(const struct CMUnitTest *t, int n)
{
	volatile int failed = 0;
	for (volatile int i = 0; i < n; i++)
		if (setjmp(small_cmocka_end)) {
			printf("[  FAILED  ] %s\n", t[i].name);
			failed++;
		} else {
			t[i].run(NULL);
			printf("[       OK ] %s\n", t[i].name);
		}
	return failed;
}
#define cmocka_run_group_tests(t, a, b) small_cmocka_run(t, (int)(sizeof(t) / sizeof *(t)))

#endif
