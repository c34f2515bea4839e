/* reference.c: the kernels in plain C: what every fast path is tested against. No blocks, no tricks; sums in ascending order. */
#include "runners/device/cpu/cpu.h"

static void pack_rows(void *dst, const float *x, int64_t ld, int64_t rows, int64_t k, bool bf16)
{
	float *p = dst;
	int64_t k_pad = round_up(k, 2);
	for (int64_t i = 0; i < k_pad; i++)
		for (int64_t r = 0; r < rows; r++)
			p[i * rows + r] = i >= k ? 0 : bf16 ? bf16_round(x[r * ld + i]) : x[r * ld + i];
}

static float panel_at(const char *panel, int64_t k, int64_t c, bool bf16)
{
	return bf16 ? bf16_to(((const uint16_t *)panel)[(k / 2 * PANEL + c) * 2 + k % 2]) : ((const float *)panel)[k * PANEL + c];
}

static float dot(const struct linear_item *a, int64_t r, int64_t c)
{
	const float *x = (const float *)a->x + r * a->k; /* tiles of one row */
	const char *panel = a->w + c / PANEL * a->panel_bytes;
	float sum = 0;
	for (int64_t k = 0; k < a->k; k++)
		sum += x[k] * panel_at(panel, k, c % PANEL, a->bf16);
	return sum;
}

static void linear(const struct linear_item *a, void *scratch)
{
	(void)scratch;
	for (int64_t r = 0; r < a->rows; r++)
		for (int64_t c = 0; c < a->cols; c++) {
			float *out = a->out + r * a->out_ld + c, sum;
			if (a->swiglu) {
				if (c % PANEL < SWIGLU_TURN) {
					float gate = dot(a, r, c);
					a->out[r * a->out_ld + c / PANEL * SWIGLU_TURN + c % PANEL] =
						gate / (1 + expf(-gate)) * dot(a, r, c + SWIGLU_TURN);
				}
				continue;
			}
			sum = dot(a, r, c);
			if (a->bias)
				sum += a->bias[c];
			*out = a->add ? *out + sum : sum;
		}
}

static void linear_limits(int64_t k, int64_t *rows, int64_t *least, int64_t *most)
{
	(void)k;
	*rows = LINEAR_ROWS;
	*least = 1;
	*most = LINEAR_PANELS;
}

static float key_dot(const float *q, const struct segment *s, int64_t key, int d, bool bf16)
{
	int64_t row = s->index ? s->index[key] : key;
	float sum = 0;
	for (int t = 0; t < d; t++)
		sum += bf16 ? bf16_round(q[t]) * bf16_to(((const uint16_t *)s->k)[row * d + t])
			    : q[t] * ((const float *)s->k)[row * d + t];
	return sum;
}

static float value_at(const struct segment *s, int64_t key, int t, int d, bool bf16)
{
	int64_t row = s->index ? s->index[key] : key;
	return bf16 ? bf16_to(((const uint16_t *)s->v)[row * d + t]) : ((const float *)s->v)[row * d + t];
}

/* Keys of segment s that query i sees. */
static int64_t sees(const struct attend_item *a, int s, int64_t i)
{
	int64_t n = s < a->n_seg - 1 ? a->seg[s].n : a->seen + (a->causal ? i : 0);
	return n < 0 ? 0 : n > a->seg[s].n ? a->seg[s].n : n;
}

static void attend(const struct attend_item *a, void *scratch)
{
	float *out = scratch;
	for (int64_t i = 0; i < a->queries; i++)
		for (int h = 0; h < a->g; h++) {
			const float *q = a->q + i * a->q_ld + h * a->d;
			float max = -INFINITY, sum = 0;
			for (int s = 0; s < a->n_seg; s++)
				for (int64_t key = 0; key < sees(a, s, i); key++) {
					float logit = key_dot(q, &a->seg[s], key, a->d, a->bf16) * a->scale;
					if (!(logit <= max)) /* takes a NaN too */
						max = logit;
				}
			memset(out, 0, (size_t)a->d * sizeof *out);
			for (int s = 0; s < a->n_seg; s++)
				for (int64_t key = 0; key < sees(a, s, i); key++) {
					float p = expf(key_dot(q, &a->seg[s], key, a->d, a->bf16) * a->scale - max);
					sum += p;
					for (int t = 0; a->out && t < a->d; t++)
						out[t] += p * value_at(&a->seg[s], key, t, a->d, a->bf16);
				}
			for (int t = 0; a->out && t < a->d; t++)
				a->out[i * a->out_ld + h * a->d + t] = out[t] / sum;
			if (a->lse)
				a->lse[i * a->lse_ld + h] = max + logf(sum);
		}
}

static void reduce(const struct reduce_item *a, void *scratch)
{
	(void)scratch;
	for (int64_t c = 0; c < a->keys.n; c++)
		for (int64_t i = 0; i < a->queries; i++) {
			bool seen = c < a->seen + (a->causal ? i : 0);
			float most = 0;
			for (int h = 0; h < a->g; h++) {
				float logit = key_dot(a->q + i * a->q_ld + h * a->d, &a->keys, c, a->d, a->bf16) * a->scale;
				float p = seen ? expf(logit - a->lse[i * a->lse_ld + h]) : 0;
				float *out = a->out + (a->group == GROUP_NONE ? h : 0) * a->out_ld + c;
				if (a->group == GROUP_MAX)
					most = p > most ? p : most;
				else if (a->reduce == REDUCE_MAX)
					*out = p > *out ? p : *out;
				else
					*out += a->group == GROUP_MEAN ? p / (float)a->g : p;
			}
			if (a->group == GROUP_MAX)
				a->out[c] = a->reduce == REDUCE_SUM ? a->out[c] + most : most > a->out[c] ? most : a->out[c];
		}
}

static void rmsnorm(float *out, const float *x, const float *w, int64_t n, float eps)
{
	float sum = 0;
	for (int64_t i = 0; i < n; i++)
		sum += x[i] * x[i];
	float scale = 1 / sqrtf(sum / (float)n + eps);
	for (int64_t i = 0; i < n; i++)
		out[i] = x[i] * scale * w[i];
}

static void rope(float *x, const float *cos, const float *sin, int d)
{
	for (int t = 0; t < d / 2; t++) {
		float a = x[t], b = x[t + d / 2];
		x[t] = a * cos[t] - b * sin[t];
		x[t + d / 2] = b * cos[t] + a * sin[t];
	}
}

static double peak_fma(int64_t n)
{
	volatile float sink;
	float a[8] = {0};
	for (int64_t i = 0; i < n; i++)
		for (int j = 0; j < 8; j++)
			a[j] = a[j] * 0.5f + 1;
	for (int j = 0; j < 8; j++)
		sink = a[j];
	(void)sink;
	return 16.0 * (double)n;
}

static float read_all(const float *x, int64_t n, int streams)
{
	float sum = 0;
	(void)streams;
	for (int64_t i = 0; i < n; i++)
		sum += x[i];
	return sum;
}

static void round_row(uint16_t *out, const float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		out[i] = bf16_from(x[i]);
}

const struct cpu_kernels kernels_reference = {
	.name = "reference",
	.tile_rows = 1,
	.pack_rows = pack_rows,
	.linear_limits = linear_limits,
	.linear = linear,
	.attend_rows = GROUP_HEADS_MAX,
	.attend = attend,
	.reduce_keys = ATTN_BLOCK,
	.reduce_most = ATTN_BLOCK,
	.reduce = reduce,
	.rmsnorm = rmsnorm,
	.rope = rope,
	.round_row = round_row,
	.peak_fma = peak_fma,
	.read = read_all,
};
