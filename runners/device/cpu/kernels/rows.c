/* rows.c: RMSNorm and RoPE of one row, and its rounding to bf16. */
#include "runners/device/cpu/kernels/simd.h"

void ISA(rmsnorm)(float *out, const float *x, const float *w, int64_t n, float eps)
{
	vf s[4] = {{0}};
	int64_t i = 0;
	for (; i + 4 * VL <= n; i += 4 * VL)
#pragma GCC unroll 4
		for (int j = 0; j < 4; j++) {
			vf v = vf_load(x + i + j * VL);
			s[j] = vf_fma(v, v, s[j]);
		}
	float sum = vf_sum((s[0] + s[1]) + (s[2] + s[3]));
	for (; i < n; i++)
		sum += x[i] * x[i];
	float scale = 1 / sqrtf(sum / (float)n + eps);
	for (i = 0; i + VL <= n; i += VL)
		vf_store(out + i, vf_load(x + i) * scale * vf_load(w + i));
	for (; i < n; i++)
		out[i] = x[i] * scale * w[i];
}

void ISA(rope)(float *x, const float *cos, const float *sin, int d)
{
	int half = d / 2, t = 0;
	for (; t + VL <= half; t += VL) {
		vf a = vf_load(x + t), b = vf_load(x + t + half), c = vf_load(cos + t), s = vf_load(sin + t);
		vf_store(x + t, a * c - b * s);
		vf_store(x + t + half, b * c + a * s);
	}
	for (; t < half; t++) {
		float a = x[t], b = x[t + half];
		x[t] = a * cos[t] - b * sin[t];
		x[t + half] = b * cos[t] + a * sin[t];
	}
}

/* bf16_from of each, in a form that the compiler turns into vectors. */
void ISA(round_row)(uint16_t *out, const float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t u;
		memcpy(&u, x + i, 4);
		uint32_t even = (u + 0x7fff + (u >> 16 & 1)) >> 16, nan = u >> 16 | 0x40;
		out[i] = (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? nan : even);
	}
}
