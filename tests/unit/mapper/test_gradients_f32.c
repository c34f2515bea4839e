/* test_gradients_f32.c: the mapper's gradients in float, as the program computes them: PyTorch's float64 ones to 1e-4 of the
 * largest entry. */
#define KVB_REAL float
#define KVB_REAL_NAME f32
#define TOLERANCE 1e-4
#define ZERO 1e-2
#include "tests/unit/mapper/gradients.h"

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_pytorch)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
