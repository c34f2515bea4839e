/* soft_topk.c: see soft_topk.h. The closed form: with the y = x / tau sorted, c of them <= mu, a = y_c, t = e^(mu - a),
 *   p = sum_{i <= c} e^(y_i - a), q = sum_{i > c} e^(a - y_i), b = k - (n - c):   q t^2 / 2 + b t - p / 2 = 0.
 * p and q come from recurrences relative to the neighbour, so every exponent is <= 0; q across a wide gap underflows and stays a
 * logarithm. */
#include "runners/lkv/soft_topk.h"

#include "harness/base/base.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double LN2 = 0.69314718055994530942;

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* How many knots lie at or below mu: the sum of the gates at mu = y_i falls as i grows. */
static int64_t knots_below(const double *below, const double *above, int64_t n, double k)
{
	int64_t lo = 0, hi = n;
	while (lo < hi) {
		int64_t i = (lo + hi) / 2;
		double sum = (double)(n - 1 - i) - .5 * (above[i] - 1) + .5 * below[i];
		if (sum >= k)
			lo = i + 1;
		else
			hi = i;
	}
	return lo;
}

double soft_topk_solve(const double *x, int64_t n, double k, double tau)
{
	double *y = mem_new((size_t)n * 3 + 1, sizeof *y), *below = y + n, *above = below + n;
	for (int64_t i = 0; i < n; i++)
		y[i] = x[i] / tau;
	qsort(y, (size_t)n, sizeof *y, ascending);
	for (int64_t i = 0; i < n; i++) /* sum_{j <= i} e^(y_j - y_i) */
		below[i] = 1 + (i ? below[i - 1] * exp(y[i - 1] - y[i]) : 0);
	for (int64_t i = n - 1; i >= 0; i--) /* sum_{j >= i} e^(y_i - y_j) */
		above[i] = 1 + (i < n - 1 ? above[i + 1] * exp(y[i] - y[i + 1]) : 0);
	int64_t c = knots_below(below, above, n, k);
	double a = y[c ? c - 1 : 0], b = k - (double)(n - c);
	double p = c ? log(below[c - 1]) : -INFINITY, q = c < n ? log(above[c]) + a - y[c] : -INFINITY;
	double root = sqrt(b * b + exp(p + q));
	double mu = a + (b > 0 ? p - log(b + root) : b < 0 ? log(root - b) - q : .5 * (p - q));
	free(y);
	return mu;
}

double soft_topk_bisect(const double *x, int64_t n, double k, double tau)
{
	double lo = INFINITY, hi = -INFINITY;
	for (int64_t i = 0; i < n; i++) {
		lo = fmin(lo, x[i] / tau);
		hi = fmax(hi, x[i] / tau);
	}
	lo -= 60;
	hi += 60;
	for (int round = 0; round < 200; round++) {
		double mid = lo + (hi - lo) / 2, sum = 0;
		for (int64_t i = 0; i < n; i++) {
			double z = x[i] / tau - mid;
			sum += z < 0 ? .5 * exp(z) : 1 - .5 * exp(-z);
		}
		if (sum > k)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

void soft_topk_gates(const double *x, int64_t n, double mu, double tau, double *logm)
{
	for (int64_t i = 0; i < n; i++) {
		double z = x[i] / tau - mu;
		logm[i] = z < 0 ? z - LN2 : log1p(-.5 * exp(-z));
	}
}

/* d log m / dx_j = (h_i delta_ij - h_i e_j / sum(e)) / tau, d log m / dk = h_i / sum(e); e = e^-|z| / 2, h = 1 below lambda and
 * e / (1 - e) above it. */
double soft_topk_back(const double *x, int64_t n, double mu, double tau, const double *up, double *dx)
{
	double all = 0, weight = 0;
	for (int64_t i = 0; i < n; i++) {
		double z = x[i] / tau - mu, e = .5 * exp(-fabs(z));
		all += up[i] * (z < 0 ? 1 : e / (1 - e));
		weight += e;
	}
	double dk = all / fmax(weight, 1e-12);
	for (int64_t i = 0; i < n; i++) {
		double z = x[i] / tau - mu, e = .5 * exp(-fabs(z));
		dx[i] += (up[i] * (z < 0 ? 1 : e / (1 - e)) - e * dk) / tau;
	}
	return dk;
}
