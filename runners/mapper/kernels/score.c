/* score.c: the two ends of a mapper: column sums to features, and the binary term of the loss. */
#include "runners/mapper/kernels/vec.h"

static const real FEATURE_EPS = (real)1e-6;

void KERNEL(feature)(const float *x, const float *scale, real mean, real factor, int compress, int64_t n, real *out)
{
	for (int64_t i = 0; i < n; i += VL) {
		real lane[VL];
		for (int j = 0; j < VL; j++)
			lane[j] = (real)x[i + j] * (real)scale[i + j];
		vr v = vr_load(lane);
		if (compress == MAPPER_LOG)
			v = vr_log(v + FEATURE_EPS);
		else if (compress == MAPPER_LOG1P)
			v = vr_log1p(v);
		vr_store(out + i, (v - mean) * factor);
	}
}

/* Of one logit x = s - threshold with label b: max(x, 0) - x b + log(1 + e^-|x|); its slope is sigmoid(x) - b. */
double KERNEL(binary)(const real *s, const real *y, real threshold, real cut, real factor, int64_t n, real *d)
{
	double total = 0;
	for (int64_t i = 0; i < n; i += VL) {
		real in[VL], oracle[VL], loss[VL];
		int64_t m = n - i < VL ? n - i : VL;
		for (int64_t j = 0; j < VL; j++) {
			in[j] = j < m ? s[i + j] : threshold;
			oracle[j] = j < m ? y[i + j] : cut;
		}
		vr x = vr_load(in) - threshold, one = vr_set(1), zero = vr_set(0),
		   label = vr_select(vr_load(oracle) > cut, one, zero);
		vr e = vr_exp(-vr_abs(x)), part = (real)1 / (e + (real)1);
		vr slope = vr_select(x > zero, part, e * part) - label;
		vr_store(loss, vr_max(x, zero) - x * label + vr_log1p(e));
		vr_store(in, slope * factor);
		for (int64_t j = 0; j < m; j++) {
			total += (double)loss[j];
			d[i + j] += in[j];
		}
	}
	return total;
}
