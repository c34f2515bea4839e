/* heads.c: what follows the sums of q and k: the norm of heads and their rotation. linear.c calls it for the columns that an item has just made. */
#include "runners/device/cpu/cpu.h"

void cpu_heads_finish(const struct cpu_kernels *k, const struct head_epilogue *e, struct tensor *out, int64_t row0, int64_t rows, int64_t head0, int64_t heads)
{
	int d = e->d;
	for (int64_t r = row0; r < row0 + rows; r++) {
		const float *cs = e->cs->x + r * e->cs->cols;
		for (int64_t h = head0; h < head0 + heads; h++) {
			float *x = out->x + r * out->cols + e->col + h * d;
			bool query = h < e->q_heads;
			const struct tensor *norm = query ? e->q_norm : e->k_norm;
			if (norm)
				k->rmsnorm(x, x, norm->x, d, e->eps);
			if (query && e->q_pre)
				memcpy(e->q_pre->x + r * e->q_pre->cols + h * d, x, (size_t)d * sizeof *x);
			k->rope(x, cs, cs + d / 2, d);
		}
	}
}
