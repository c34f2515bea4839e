/* soft_topk.h: Soft-TopK: gates m_i = F((x_i - lambda) / tau) with sum(m) = k exactly, F the Laplace distribution function.
 * spec/proxykv-lkv.md 2.2.
 *
 * Everything is in logarithms: attention adds log m to its logits, and d log m / dz stays in (0, 1] where m itself underflows at
 * small tau. Double precision; no e^(x / tau) is ever formed. Owns nothing; scratch is freed before a call returns. */
#ifndef KVB_LKV_SOFT_TOPK_H
#define KVB_LKV_SOFT_TOPK_H

#include <stdint.h>

/* lambda / tau of n finite utilities, 0 <= k <= n (0: +inf, n: -inf). O(n log n). Between integers k and wide gaps lambda is not
 * unique: compare gates, not lambdas. */
double soft_topk_solve(const double *x, int64_t n, double k, double tau);
/* The same by bisection: the reference of the tests. */
double soft_topk_bisect(const double *x, int64_t n, double k, double tau);
/* log m [n] for a given mu = lambda / tau. logm may be x. */
void soft_topk_gates(const double *x, int64_t n, double mu, double tau, double *logm);
/* Adds to dx [n] what `up` = d loss / d log m [n] gives it, and returns d loss / d k. */
double soft_topk_back(const double *x, int64_t n, double mu, double tau, const double *up, double *dx);

#endif
