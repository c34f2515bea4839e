/* lkv_h.c: LKV-H: a static ratio for each KV head from a learned embedding; all L Hk heads compete, no minimum, no prior by
 * layer. spec/proxykv-lkv.md 2.1, 2.3. The temperature stays 1: towards 0 ratios become 0 or 1, which was not measurably better.
 */
#include "runners/lkv/net.h"
#include "runners/lkv/soft_topk.h"

#include <math.h>
#include <stdlib.h>

static const double TAU_H = 1;

/* Scores a [G], and before SiLU z [G][32]. */
static void scores(const struct lkv_net *net, double *z, double *a)
{
	int G = net->shape.layers * net->shape.kv_heads, emb = net->shape.emb;
	for (int g = 0; g < G; g++) {
		a[g] = net->p[LKV_C2][0];
		for (int c = 0; c < LKV_H_HID; c++) {
			double s = net->p[LKV_C1][c];
			for (int i = 0; i < emb; i++)
				s += (double)net->p[LKV_E][g * emb + i] * net->p[LKV_H1][i * LKV_H_HID + c];
			z[g * LKV_H_HID + c] = s;
			a[g] += s / (1 + exp(-s)) * net->p[LKV_H2][c];
		}
	}
}

void lkv_h_ratios(const struct lkv_net *net, double R, double *ratio)
{
	int G = net->shape.layers * net->shape.kv_heads;
	double *z = mem_new((size_t)G * LKV_H_HID, sizeof *z);
	scores(net, z, ratio);
	soft_topk_gates(ratio, G, soft_topk_solve(ratio, G, R * G, TAU_H), TAU_H, ratio);
	for (int g = 0; g < G; g++)
		ratio[g] = exp(ratio[g]);
	free(z);
}

void lkv_h_backward(const struct lkv_net *net, double R, const double *dratio, float *grad)
{
	int G = net->shape.layers * net->shape.kv_heads, emb = net->shape.emb;
	double *z = mem_new((size_t)G * (LKV_H_HID + 3), sizeof *z), *a = z + G * LKV_H_HID, *up = a + G, *da = up + G;
	float *ge = grad + (net->p[LKV_E] - net->p[0]), *gh1 = grad + (net->p[LKV_H1] - net->p[0]),
	      *gc1 = grad + (net->p[LKV_C1] - net->p[0]), *gh2 = grad + (net->p[LKV_H2] - net->p[0]),
	      *gc2 = grad + (net->p[LKV_C2] - net->p[0]);
	scores(net, z, a);
	double mu = soft_topk_solve(a, G, R * G, TAU_H);
	soft_topk_gates(a, G, mu, TAU_H, up);
	for (int g = 0; g < G; g++)
		up[g] = exp(up[g]) * dratio[g]; /* ratio = e^(log m) */
	soft_topk_back(a, G, mu, TAU_H, up, da);
	for (int g = 0; g < G; g++) {
		gc2[0] += (float)da[g];
		for (int c = 0; c < LKV_H_HID; c++) {
			double s = z[g * LKV_H_HID + c], q = 1 / (1 + exp(-s)),
			       dz = da[g] * net->p[LKV_H2][c] * q * (1 + s * (1 - q));
			gh2[c] += (float)(da[g] * s * q);
			gc1[c] += (float)dz;
			for (int i = 0; i < emb; i++) {
				gh1[i * LKV_H_HID + c] += (float)(dz * net->p[LKV_E][g * emb + i]);
				ge[g * emb + i] += (float)(dz * net->p[LKV_H1][i * LKV_H_HID + c]);
			}
		}
	}
	free(z);
}

void lkv_h_budgets(const struct lkv_net *net, double R, int64_t n, int64_t *budget)
{
	int G = net->shape.layers * net->shape.kv_heads;
	double *ratio = mem_new((size_t)G, sizeof *ratio);
	lkv_h_ratios(net, R, ratio);
	for (int g = 0; g < G; g++) {
		double b = floor(ratio[g] * (double)n + 1e-9); /* ratios solved to the last bits end just under an integer */
		budget[g] = b > (double)n ? n : (int64_t)b;
	}
	free(ratio);
}
