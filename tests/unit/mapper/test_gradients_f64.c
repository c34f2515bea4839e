/* test_gradients_f64.c: the mapper's gradients in double: PyTorch's to 1e-9, finite differences to 1e-6 (both of the largest
 * entry). */
#define KVB_REAL double
#define KVB_REAL_NAME f64
#define TOLERANCE 1e-9
#define ZERO 1e-4
#include "tests/unit/mapper/gradients.h"

enum { SAMPLES = 20 }; /* entries of a parameter that are varied: all of a small one, evenly spread over a large one */
static const double STEP = 1e-4;

/* The fourth-order central difference of f at *p: truncation and rounding both below 1e-11. */
static double difference(real *p, double (*f)(void *), void *arg)
{
	const real at = *p;
	double v[4];
	for (int i = 0; i < 4; i++) {
		static const int step[4] = {-2, -1, 1, 2};
		*p = at + step[i] * STEP;
		v[i] = f(arg);
	}
	*p = at;
	return (v[0] - 8 * v[1] + 8 * v[2] - v[3]) / (12 * STEP);
}

struct functional { /* sum of direction * score */
	struct fixture *f;
	const real *direction;
	real *score;
};

static double network_value(void *arg)
{
	struct functional *a = arg;
	double sum = 0;
	run_forward(a->f, a->score, false);
	for (int64_t i = 0; i < a->f->rows * a->f->m; i++)
		sum += a->direction[i] * a->score[i];
	return sum;
}

static void check_network(struct fixture *f)
{
	const int64_t n = f->rows * f->m;
	real *direction = mem_new((size_t)n, sizeof *direction), *score = mem_new((size_t)n, sizeof *score);
	struct rng r = rng_seed(11, 0);
	for (int64_t i = 0; i < n; i++)
		direction[i] = rng_unit(&r) - .5;
	run_forward(f, score, false);
	run_backward(f, direction);
	struct functional a = {f, direction, score};
	for (int i = 0; i < f->layout.n; i++) {
		const struct param *p = &f->layout.p[i];
		if (p->at >= f->layout.trained)
			continue;
		const real *grad = f->grad + p->at;
		size_t apart = p->count > SAMPLES ? p->count / SAMPLES : 1;
		double largest = 1e-3;
		for (size_t j = 0; j < p->count; j++)
			largest = fabs(grad[j]) > largest ? fabs(grad[j]) : largest;
		for (size_t j = 0; j < p->count; j += apart) {
			real fd = difference(f->params + p->at + j, network_value, &a);
			near(grad + j, &fd, 1, largest, 1e-6, p->name);
		}
	}
	free(direction);
	free(score);
}

static void test_network_differences(void **state)
{
	(void)state;
	for (int c = 0; c < CASES; c++) {
		struct fixture f;
		fixture_open(&f, cases[c], REAL(kernels_at)(0));
		check_network(&f);
		fixture_close(&f);
	}
}

struct loss_at {
	const struct loss *loss;
	const struct kernels *kernels;
	real *d;
	int term;
};

static double loss_value(void *arg)
{
	struct loss_at *a = arg;
	double term[MAPPER_TERMS];
	assert_int_equal(REAL(loss)(a->loss, a->kernels, term, a->d), 0);
	return term[a->term];
}

/* Is entry i so near the threshold of some ratio that a step may cross it? That is a constant to the gradient, but not to a
 * difference. */
static bool near_threshold(const struct fixture *f, const real *score, int64_t i)
{
	const int64_t size = f->rows / f->units * f->m, unit = i / size;
	real *copy = mem_new((size_t)size, sizeof *copy);
	bool near = false;
	for (int r = 0; r < MAPPER_RATIOS; r++) {
		int64_t labels = 0;
		for (int64_t j = unit * size; j < (unit + 1) * size; j++)
			labels += f->y[j] > f->cut[r * f->units + unit];
		memcpy(copy, score + unit * size, (size_t)size * sizeof *copy);
		near |= fabs(score[i] - REAL(kth_smallest)(copy, size, size - labels > 1 ? size - labels : 1)) < 3 * STEP;
	}
	free(copy);
	return near;
}

static void check_loss(struct fixture *f, int term)
{
	const int64_t n = f->rows * f->m;
	real *score = mem_new((size_t)n, sizeof *score), *d = mem_new((size_t)n, sizeof *d),
	     *unused = mem_new((size_t)n, sizeof *unused);
	double weight[MAPPER_TERMS] = {0}, value[MAPPER_TERMS];
	int64_t checked = 0;
	weight[term] = 1;
	run_forward(f, score, false);
	const struct loss l = loss_of(f, score, weight);
	assert_int_equal(REAL(loss)(&l, f->net.kernels, value, d), 0);
	struct loss_at a = {&l, f->net.kernels, unused, term};
	double largest = 0;
	for (int64_t i = 0; i < n; i++)
		largest = fabs(d[i]) > largest ? fabs(d[i]) : largest;
	for (int64_t i = 0; i < n; i++) {
		if (term == 0 && near_threshold(f, score, i))
			continue;
		real fd = difference(score + i, loss_value, &a);
		near(d + i, &fd, 1, largest, 1e-6, mapper_terms[term]);
		checked++;
	}
	assert_true(checked > n / 2);
	free(score);
	free(d);
	free(unused);
}

static void test_loss_differences(void **state)
{
	(void)state;
	for (int c = 0; c < CASES; c++)
		for (int term = 0; term < MAPPER_TERMS; term++) {
			struct fixture f;
			fixture_open(&f, cases[c], REAL(kernels_at)(0));
			check_loss(&f, term);
			fixture_close(&f);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pytorch),
		cmocka_unit_test(test_network_differences),
		cmocka_unit_test(test_loss_differences),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
