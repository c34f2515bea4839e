/* lkv_t.c: LKV-T of one head, forward and backward, as training runs it. The run-time form is dense.h's `utilities`. */
#include "runners/lkv/dense.h"
#include "runners/lkv/net.h"

void lkv_standardise(const struct lkv_net *net, int g, int64_t n, float *x)
{
	int in = lkv_inputs(&net->shape);
	const float *mean = net->p[LKV_MEAN] + (int64_t)g * in, *deviation = net->p[LKV_DEVIATION] + (int64_t)g * in;
	for (int64_t i = 0; i < n; i++)
		for (int c = 0; c < in; c++)
			x[i * in + c] = (x[i * in + c] - mean[c]) / deviation[c];
}

void lkv_t_forward(const struct lkv_net *net, int g, int64_t n, const float *z, float *h, float *s, float *u)
{
	int in = lkv_inputs(&net->shape), hid = net->shape.hid;
	const float *b1 = net->p[LKV_B1] + (int64_t)g * hid, *w2 = net->p[LKV_W2] + (int64_t)g * hid;
	for (int64_t i = 0; i < n; i++)
		for (int c = 0; c < hid; c++)
			h[i * hid + c] = b1[c];
	dense_kernels()->product(n, hid, in, z, in, 1, net->p[LKV_W1] + (int64_t)g * in * hid, hid, h, hid, true);
	dense_kernels()->silu(h, n * hid, s, NULL);
	for (int64_t i = 0; i < n; i++) {
		float sum = net->p[LKV_B2][g];
		for (int c = 0; c < hid; c++)
			sum += s[i * hid + c] * w2[c];
		u[i] = sum;
	}
}

static float *grad_of(const struct lkv_net *net, float *grad, enum lkv_tensor t)
{
	return grad + (net->p[t] - net->p[0]);
}

void lkv_t_backward(
	const struct lkv_net *net, int g, int64_t n, const float *z, float *h, const float *s, const float *du, float *grad)
{
	int in = lkv_inputs(&net->shape), hid = net->shape.hid;
	const float *w2 = net->p[LKV_W2] + (int64_t)g * hid;
	float *gb1 = grad_of(net, grad, LKV_B1) + (int64_t)g * hid, *gw2 = grad_of(net, grad, LKV_W2) + (int64_t)g * hid,
	      *gb2 = grad_of(net, grad, LKV_B2) + g, slope[512];
	for (int64_t i = 0; i < n; i++) {
		float *row = h + i * hid;
		dense_kernels()->silu(row, hid, row, slope);
		*gb2 += du[i];
		for (int c = 0; c < hid; c++) {
			gw2[c] += s[i * hid + c] * du[i];
			row[c] = du[i] * w2[c] * slope[c];
			gb1[c] += row[c];
		}
	}
	dense_kernels()->product(in, hid, n, z, 1, in, h, hid, grad_of(net, grad, LKV_W1) + (int64_t)g * in * hid, hid, true);
}
