/* filter.c: KVB_TEST=PATTERN runs only the tests of that name (with * and ?), for programs whose main does not ask; mutants.sh
 * needs it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

__attribute__((constructor)) static void filter(void)
{
	if (getenv("KVB_TEST"))
		cmocka_set_test_filter(getenv("KVB_TEST"));
}
