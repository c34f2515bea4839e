/* tinypair - trains the two tiny default models of kvbench ("proxy" and "target").
 *
 * One thread, fp32, manual backward pass, no dependencies.  Qwen3-style decoder: RMSNorm, half-split
 * RoPE, grouped-query attention with per-head QK RMSNorm, SwiGLU, tied embeddings, no biases.
 * Attention is computed in 32-row blocks and recomputed in the backward pass, so that memory does not
 * grow with the square of the length.  Data are generated on the fly, see dialect.h.
 *
 * build, in the root of the repository:
 *         cc -std=gnu11 -O3 -march=native -ffast-math -I. -o build/tinypair tests/oracle/tinypair/tinypair.c tasks/niah_words.c
 * -lm run:    ./tinypair vocab > vocab.txt                  the vocabulary, one JSON string a line
 *         ./tinypair dump 1000 SEED > samples.txt       token ids of generated samples
 *         ./tinypair cases KIND LENGTH N SEED NEEDLES QUESTIONS    token ids of evaluation samples
 *         ./tinypair logits init=MODEL.bin < IDS > LOGITS    for comparison with other implementations
 *         ./tinypair eval init=MODEL.bin first=64 last=4096 questions=40 [only=KIND]    quick accuracy table
 *         ./tinypair check                              finite-difference test of the gradients
 *         ./tinypair train key=value...                 train; keys and defaults at `opt`
 *   e.g.  ./tinypair train d=64 layers=3 heads=4 kv=2 hd=32 ff=160 lr=4e-3 minutes=9 seed=1 prev=1 out=a.bin
 *         ./tinypair train init=a.bin first=4096 lr=3e-3 decay=.9 minutes=3 seed=2 out=b.bin
 * Times are process CPU time.  The checkpoint is saved every minute and may be copied while training goes on.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dialect.h"

#define MAXTOK 8192
#define MAXPOS 8192
#define ROWS 32   /* attention row block */
#define CHUNK 256 /* attention column block */

static double cpu(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *mem(size_t n)
{
	void *p = aligned_alloc(64, (n + 127) / 64 * 64);
	if (!p) {
		perror("memory");
		exit(1);
	}
	return memset(p, 0, n);
}

static float *fmem(long n)
{
	return mem((size_t)n * 4);
}

/* ---------------------------------------------------------------- kernels */
typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int v16i __attribute__((vector_size(64), aligned(4), may_alias));
#define LD(p) (*(const v16 *)(p))
#define ST(p) (*(v16 *)(p))

static inline __attribute__((always_inline)) void tile(
	const int R, const int N, int K, const float *a, long ai, long ak, const float *b, long ldb, float *c, long ldc, int acc)
{
	v16 s[8][2];
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
#pragma GCC unroll 2
		for (int j = 0; j < N; j++)
			s[r][j] = acc ? LD(c + r * ldc + 16 * j) : (v16){0};
	for (int k = 0; k < K; k++, a += ak, b += ldb) {
		v16 b0 = LD(b), b1 = N > 1 ? LD(b + 16) : b0;
#pragma GCC unroll 8
		for (int r = 0; r < R; r++) {
			float t = a[r * ai];
			s[r][0] += t * b0;
			if (N > 1)
				s[r][1] += t * b1;
		}
	}
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
#pragma GCC unroll 2
		for (int j = 0; j < N; j++)
			ST(c + r * ldc + 16 * j) = s[r][j];
}

/* C[M,N] = (or +=) A B, A(i,k) = a[i*ai + k*ak], B and C row-major, N a multiple of 16 */
static void gemm(int M, int N, int K, const float *a, long ai, long ak, const float *b, long ldb, float *c, long ldc, int acc)
{
	for (int k0 = 0; k0 < K; k0 += 256) {
		int kn = K - k0 < 256 ? K - k0 : 256, ac = acc || k0;
		const float *A = a + k0 * ak, *B = b + k0 * ldb;
		for (int j = 0; j < N;) {
			int two = j + 32 <= N, i = 0;
			for (; i + 8 <= M; i += 8)
				if (two)
					tile(8, 2, kn, A + i * ai, ai, ak, B + j, ldb, c + i * ldc + j, ldc, ac);
				else
					tile(8, 1, kn, A + i * ai, ai, ak, B + j, ldb, c + i * ldc + j, ldc, ac);
			for (; i < M; i++)
				if (two)
					tile(1, 2, kn, A + i * ai, ai, ak, B + j, ldb, c + i * ldc + j, ldc, ac);
				else
					tile(1, 1, kn, A + i * ai, ai, ak, B + j, ldb, c + i * ldc + j, ldc, ac);
			j += two ? 32 : 16;
		}
	}
}

static inline v16 vmaxv(v16 a, v16 b)
{
	v16i m = a > b;
	return (v16)((m & (v16i)a) | (~m & (v16i)b));
}

static inline v16 vminv(v16 a, v16 b)
{
	v16i m = a < b;
	return (v16)((m & (v16i)a) | (~m & (v16i)b));
}

static inline v16 vexp(v16 x)
{ /* relative error < 3e-6 */
	v16 zero = {0}, t = vminv(vmaxv(x * 1.44269504f, zero - 126.f), zero + 126.f);
	v16i n = __builtin_convertvector(t, v16i);
	v16 f = (t - __builtin_convertvector(n, v16)) * .693147181f;
	v16 p = f * (1.f / 5040) + 1.f / 720;
	p = p * f + 1.f / 120;
	p = p * f + 1.f / 24;
	p = p * f + 1.f / 6;
	p = p * f + .5f;
	p = p * f + 1.f;
	p = p * f + 1.f;
	n = (n + 127) << 23;
	return p * (v16)n;
}

static inline float vsum(v16 x)
{
	float s = 0;
	for (int i = 0; i < 16; i++)
		s += x[i];
	return s;
}

static inline float vmax(v16 x)
{
	float s = x[0];
	for (int i = 1; i < 16; i++)
		s = x[i] > s ? x[i] : s;
	return s;
}

/* ---------------------------------------------------------------- model */
typedef struct {
	int n, in, out, decay;
	float *w, *g, *m, *v, *t;
} Param; /* w [in,out]; t its transpose */
typedef struct {
	Param *n1, *qkv, *o, *n2, *gu, *dn, *qg, *kg;
} Layer;
typedef struct {
	float *raw, *qi, *x, *h1, *i1, *qkv, *lse, *at, *x2, *h2, *i2, *gu, *ac;
} Act;
static int D = 64, L = 3, H = 4, KV = 2, HD = 32, FF = 160, T = 64, B = 16, W;
static Param params[256];
static int nparam;
static Layer layer[16];
static Act act[16];
static Param *emb, *nf;
static float *xf, *hf, *inv_f, *cosv, *sinv;
static int *X, *Lab, *Pos;

static Param *param(int in, int out, float std, int decay)
{
	Param *p = &params[nparam++];
	int n = in * out;
	*p = (Param){n, in, out, decay, fmem(n), fmem(n), fmem(n), fmem(n), in > 1 ? fmem(n) : NULL};
	for (int i = 0; i < p->n; i++)
		p->w[i] = std > 0 ? rn() * std : 1;
	return p;
}

static void transpose(int M, int N, const float *a, float *r)
{
	for (int i = 0; i < M; i++)
		for (int j = 0; j < N; j++)
			r[(long)j * M + i] = a[(long)i * N + j];
}

static void refresh(void)
{ /* the transposes, after a change of the weights */
	for (int i = 0; i < nparam; i++)
		if (params[i].t)
			transpose(params[i].in, params[i].out, params[i].w, params[i].t);
}

static void build(void)
{
	long M = MAXTOK;
	W = (H + 2 * KV) * HD;
	float so = 1 / sqrtf((float)D), sp = .5f / sqrtf(2.f * (float)L);
	emb = param(V, D, .05f, 0);
	nf = param(1, D, 0, 0);
	for (int l = 0; l < L; l++) {
		layer[l] = (Layer){param(1, D, 0, 0), param(D, W, so, 1), param(H * HD, D, sp / sqrtf((float)(H * HD)), 1),
			param(1, D, 0, 0), param(D, 2 * FF, so, 1), param(FF, D, sp / sqrtf((float)FF), 1), param(1, HD, 0, 0),
			param(1, HD, 0, 0)};
		act[l] = (Act){fmem(M * W), fmem(M * (H + KV)), fmem(M * D), fmem(M * D), fmem(M), fmem(M * W), fmem(M * H),
			fmem(M * H * HD), fmem(M * D), fmem(M * D), fmem(M), fmem(M * 2 * FF), fmem(M * FF)};
	}
	xf = fmem(M * D);
	hf = fmem(M * D);
	inv_f = fmem(M);
	X = mem((size_t)M * 4 + 64);
	Lab = mem((size_t)M * 4 + 64);
	Pos = mem((size_t)M * 4 + 64);
	cosv = fmem((long)MAXPOS * HD / 2);
	sinv = fmem((long)MAXPOS * HD / 2);
	for (int t = 0; t < MAXPOS; t++)
		for (int i = 0; i < HD / 2; i++) {
			double w = t * pow(500000., -2. * i / HD);
			cosv[t * (HD / 2) + i] = (float)cos(w);
			sinv[t * (HD / 2) + i] = (float)sin(w);
		}
	float z = 0;
	for (int i = 0; i < WORDS(words_noun); i++)
		z += 1.f / (float)(i + 4), zipf_noun[i] = z;
	refresh();
}

/* Optional start (prev=1): every embedding gets a constant component, from which heads 0 and 1 of layer 0 make
 * constant queries and keys that look 1 and 2 tokens back.  This shortens the plateau before induction. */
static void init_previous(void)
{
	Param *w = layer[0].qkv;
	for (int i = 0; i < V; i++)
		emb->w[(long)i * D] = .2f;
	for (int i = 0; i < 4; i++) {
		double th = pow(500000., -2. * i / HD);
		for (int h = 0; h < 2 && h < H / KV; h++) {
			w->w[h * HD + i] = 2 * (float)cos(th * (h + 1));
			w->w[h * HD + i + HD / 2] = -2 * (float)sin(th * (h + 1));
		}
		w->w[H * HD + i] = 2;
		w->w[H * HD + i + HD / 2] = 0;
		layer[0].qg->w[i] = layer[0].qg->w[i + HD / 2] = layer[0].kg->w[i] = layer[0].kg->w[i + HD / 2] = 2;
	}
	refresh();
}

static void rms(int M, const float *x, const float *g, float *y, float *inv)
{
	for (int i = 0; i < M; i++, x += D, y += D) {
		float s = 0;
		for (int j = 0; j < D; j++)
			s += x[j] * x[j];
		float r = inv[i] = 1 / sqrtf(s / (float)D + 1e-6f);
		for (int j = 0; j < D; j++)
			y[j] = x[j] * r * g[j];
	}
}

static void rms_back(int M, const float *x, const float *g, const float *inv, const float *dy, float *dx, float *dg)
{
	for (int i = 0; i < M; i++, x += D, dy += D, dx += D) {
		float r = inv[i], s = 0;
		for (int j = 0; j < D; j++) {
			float t = dy[j] * x[j];
			dg[j] += t * r;
			s += t * g[j];
		}
		s *= r * r * r / (float)D;
		for (int j = 0; j < D; j++)
			dx[j] += dy[j] * g[j] * r - x[j] * s;
	}
}

static void lin(int M, const float *x, const Param *p, float *y, int acc)
{
	gemm(M, p->out, p->in, x, p->in, 1, p->w, p->out, y, p->out, acc);
}

static void lin_back(int M, const float *x, Param *p, const float *dy, float *dx, int acc)
{
	gemm(p->in, p->out, M, x, 1, p->in, dy, p->out, p->g, p->out, 1);
	gemm(M, p->in, p->out, dy, p->out, 1, p->t, p->in, dx, p->in, acc);
}

static void rope(float *q, int t, float sign)
{
	const float *c = cosv + t * (HD / 2), *s = sinv + t * (HD / 2);
	for (int i = 0; i < HD / 2; i++) {
		float a = q[i], b = q[i + HD / 2], si = s[i] * sign;
		q[i] = a * c[i] - b * si;
		q[i + HD / 2] = b * c[i] + a * si;
	}
}

/* packs column block c of rows b*T.. of a [.., W] matrix, as [T,HD] and/or [HD,T] */
static void pack(const float *src, int c, float *rows, float *cols)
{
	for (int j = 0; j < T; j++)
		for (int d = 0; d < HD; d++) {
			float x = src[(long)j * W + c * HD + d];
			if (rows)
				rows[j * HD + d] = x;
			if (cols)
				cols[d * T + j] = x;
		}
}

/* scores of rows i0..i0+ROWS of one head -> probabilities; lse given (backward) or made (forward) */
static void probs(const float *q, const float *kt, int i0, float *p, float *lse, int have)
{
	int n = i0 + ROWS;
	float sc = 1 / sqrtf((float)HD);
	gemm(ROWS, n, HD, q, W, 1, kt, T, p, T, 0);
	for (int r = 0; r < ROWS; r++) {
		float *x = p + (long)r * T;
		for (int j = i0 + r + 1; j < n; j++)
			x[j] = -1e30f;
		if (!have) {
			v16 m = LD(x);
			for (int j = 16; j < n; j += 16)
				m = vmaxv(LD(x + j), m);
			float mx = vmax(m) * sc;
			v16 s = {0};
			for (int j = 0; j < n; j += 16) {
				v16 e = vexp(LD(x + j) * sc - mx);
				ST(x + j) = e;
				s += e;
			}
			float t = vsum(s);
			lse[r] = mx + logf(t);
			t = 1 / t;
			for (int j = 0; j < n; j += 16)
				ST(x + j) = LD(x + j) * t;
		} else
			for (int j = 0; j < n; j += 16)
				ST(x + j) = vexp(LD(x + j) * sc - lse[r]);
		for (int j = i0 + r + 1; j < n; j++)
			x[j] = 0;
	}
}

/* Blocks of CHUNK columns whose probabilities are all negligible are skipped: sharp heads get cheap. */
static int skip(const float *p, int n)
{
	v16 m = {0};
	for (int r = 0; r < ROWS; r++)
		for (int j = 0; j < n; j += 16)
			m = vmaxv(LD(p + (long)r * T + j), m);
	return vmax(m) < 1e-6f;
}

static void attention(Act *a)
{
	static float kt[64 * MAXT], vr[64 * MAXT], p[ROWS * MAXT];
	int G = H / KV;
	for (int b = 0; b < B; b++)
		for (int g = 0; g < KV; g++) {
			const float *base = a->qkv + (long)b * T * W;
			pack(base, H + g, NULL, kt);
			pack(base, H + KV + g, vr, NULL);
			for (int h = g * G; h < (g + 1) * G; h++)
				for (int i0 = 0; i0 < T; i0 += ROWS) {
					probs(base + (long)i0 * W + h * HD, kt, i0, p, a->lse + ((long)b * H + h) * T + i0, 0);
					float *o = a->at + ((long)b * T + i0) * H * HD + h * HD;
					int n = i0 + ROWS, c = 0;
					for (int j = 0; j < n; j += CHUNK) {
						int w = n - j < CHUNK ? n - j : CHUNK;
						if (w < n && j + w < n && skip(p + j, w))
							continue; /* never the last block: it fills o */
						gemm(ROWS, HD, w, p + j, T, 1, vr + j * HD, HD, o, H * HD, c);
						c = 1;
					}
				}
		}
}

static void attention_back(Act *a, const float *dat, float *dq)
{
	static float kt[64 * MAXT], kr[64 * MAXT], vt[64 * MAXT], dk[64 * MAXT], dv[64 * MAXT], p[ROWS * MAXT], dp[ROWS * CHUNK];
	int G = H / KV;
	float sc = 1 / sqrtf((float)HD);
	for (int b = 0; b < B; b++)
		for (int g = 0; g < KV; g++) {
			const float *base = a->qkv + (long)b * T * W;
			float *dbase = dq + (long)b * T * W;
			pack(base, H + g, kr, kt);
			pack(base, H + KV + g, NULL, vt);
			memset(dk, 0, sizeof(float) * (size_t)(T * HD));
			memset(dv, 0, sizeof(float) * (size_t)(T * HD));
			for (int h = g * G; h < (g + 1) * G; h++)
				for (int i0 = 0; i0 < T; i0 += ROWS) {
					int n = i0 + ROWS;
					const float *q = base + (long)i0 * W + h * HD;
					const float *o = a->at + ((long)b * T + i0) * H * HD + h * HD,
						    *go = dat + ((long)b * T + i0) * H * HD + h * HD;
					probs(q, kt, i0, p, a->lse + ((long)b * H + h) * T + i0, 1);
					float dot[ROWS], *gq = dbase + (long)i0 * W + h * HD;
					int c = 0;
					for (int r = 0; r < ROWS; r++) {
						const float *a1 = o + (long)r * H * HD, *a2 = go + (long)r * H * HD;
						dot[r] = 0;
						for (int d = 0; d < HD; d++)
							dot[r] += a1[d] * a2[d];
					}
					for (int j = 0; j < n; j += CHUNK) {
						int w = n - j < CHUNK ? n - j : CHUNK;
						float *pj = p + j;
						if (j + w < n && skip(pj, w))
							continue;
						gemm(ROWS, w, HD, go, H * HD, 1, vt + j, T, dp, CHUNK, 0);
						gemm(w, HD, ROWS, pj, 1, T, go, H * HD, dv + j * HD, HD, 1);
						for (int r = 0; r < ROWS; r++) {
							float *y = dp + r * CHUNK;
							const float *x = pj + (long)r * T;
							for (int k = 0; k < w; k += 16)
								ST(y + k) = LD(x + k) * (LD(y + k) - dot[r]) * sc;
						}
						gemm(ROWS, HD, w, dp, CHUNK, 1, kr + j * HD, HD, gq, W, c);
						c = 1;
						gemm(w, HD, ROWS, dp, 1, CHUNK, q, W, dk + j * HD, HD, 1);
					}
				}
			for (int j = 0; j < T; j++) {
				memcpy(dbase + (long)j * W + (H + g) * HD, dk + j * HD, sizeof(float) * (size_t)HD);
				memcpy(dbase + (long)j * W + (H + KV + g) * HD, dv + j * HD, sizeof(float) * (size_t)HD);
			}
		}
}

static void forward(void)
{
	int M = B * T;
	for (int i = 0; i < M; i++)
		memcpy(act[0].x + (long)i * D, emb->w + (long)X[i] * D, sizeof(float) * (size_t)D);
	for (int l = 0; l < L; l++) {
		Act *a = &act[l];
		Layer *y = &layer[l];
		rms(M, a->x, y->n1->w, a->h1, a->i1);
		lin(M, a->h1, y->qkv, a->raw, 0);
		memcpy(a->qkv, a->raw, sizeof(float) * (size_t)M * (size_t)W);
		for (int i = 0; i < M; i++)
			for (int h = 0; h < H + KV; h++) {
				float *q = a->qkv + (long)i * W + h * HD, s = 0;
				const float *g = h < H ? y->qg->w : y->kg->w;
				for (int d = 0; d < HD; d++)
					s += q[d] * q[d];
				float r = a->qi[(long)i * (H + KV) + h] = 1 / sqrtf(s / (float)HD + 1e-6f);
				for (int d = 0; d < HD; d++)
					q[d] *= r * g[d];
				rope(q, Pos[i], 1);
			}
		attention(a);
		memcpy(a->x2, a->x, sizeof(float) * (size_t)M * (size_t)D);
		lin(M, a->at, y->o, a->x2, 1);
		rms(M, a->x2, y->n2->w, a->h2, a->i2);
		lin(M, a->h2, y->gu, a->gu, 0);
		for (int i = 0; i < M; i++) {
			float *g = a->gu + (long)i * 2 * FF, *c = a->ac + (long)i * FF;
			for (int j = 0; j < FF; j += 16) {
				v16 z = LD(g + j);
				ST(c + j) = z / (1.f + vexp(-z)) * LD(g + FF + j);
			}
		}
		float *nx = l + 1 < L ? act[l + 1].x : xf;
		memcpy(nx, a->x2, sizeof(float) * (size_t)M * (size_t)D);
		lin(M, a->ac, y->dn, nx, 1);
	}
	rms(M, xf, nf->w, hf, inv_f);
}

typedef struct {
	double loss;
	int ok[4], tot[4];
	char *hit;
} Result; /* counts by label kind */

/* forward, loss on the labelled positions and (train) gradients */
static Result pass(int train)
{
	int M = B * T, n = 0;
	Result res = {0};
	static int *idx;
	static float *hs, *lg, *dh, *dx, *dt, *dq, *dat, *dgu, *dac;
	static char *hit;
	if (!idx) {
		long m = MAXTOK;
		idx = mem((size_t)m * 4);
		hit = mem((size_t)m);
		hs = fmem(m * D);
		lg = fmem(m * V);
		dh = fmem(m * D);
		dx = fmem(m * D);
		dt = fmem(m * D);
		dq = fmem(m * W);
		dat = fmem(m * H * HD);
		dgu = fmem(m * 2 * FF);
		dac = fmem(m * FF);
	}
	res.hit = hit;
	memset(hit, 0, (size_t)M);
	forward();
	for (int i = 0; i < M; i++)
		if (Lab[i])
			idx[n++] = i;
	if (!n)
		return res;
	int n8 = (n + 7) / 8 * 8;
	for (int k = 0; k < n; k++)
		memcpy(hs + (long)k * D, hf + (long)idx[k] * D, sizeof(float) * (size_t)D);
	memset(hs + (long)n * D, 0, sizeof(float) * (size_t)((n8 - n) * D));
	gemm(n8, V, D, hs, D, 1, emb->t, V, lg, V, 0);
	for (int k = 0; k < n; k++) {
		float *r = lg + (long)k * V, mx = -1e30f;
		int y = X[idx[k] + 1], am = 0, kind = Lab[idx[k]];
		for (int j = 0; j < V; j++)
			if (r[j] > mx)
				mx = r[j], am = j;
		float ly = r[y];
		v16 s = {0};
		for (int j = 0; j < V; j += 16) {
			v16 e = vexp(LD(r + j) - mx);
			ST(r + j) = e;
			s += e;
		}
		float t = vsum(s), f = 1 / (t * (float)n);
		res.loss += (log(t) - (ly - mx)) / n;
		res.tot[kind]++;
		res.ok[kind] += am == y;
		hit[idx[k]] = am == y;
		for (int j = 0; j < V; j += 16)
			ST(r + j) = LD(r + j) * f;
		r[y] -= 1.f / (float)n;
	}
	if (!train)
		return res;
	memset(lg + (long)n * V, 0, sizeof(float) * (size_t)(n8 - n) * (size_t)V);
	gemm(n8, D, V, lg, V, 1, emb->w, D, dh, D, 0);
	gemm(V, D, n8, lg, 1, V, hs, D, emb->g, D, 1);
	size_t md = sizeof(float) * (size_t)M * (size_t)D;
	memset(dt, 0, md);
	memset(dx, 0, md);
	for (int k = 0; k < n; k++)
		memcpy(dt + (long)idx[k] * D, dh + (long)k * D, sizeof(float) * (size_t)D);
	rms_back(M, xf, nf->w, inv_f, dt, dx, nf->g);
	for (int l = L - 1; l >= 0; l--) {
		Act *a = &act[l];
		Layer *y = &layer[l];
		lin_back(M, a->ac, y->dn, dx, dac, 0);
		for (int i = 0; i < M; i++) {
			const float *g = a->gu + (long)i * 2 * FF, *dc = dac + (long)i * FF;
			float *dg = dgu + (long)i * 2 * FF;
			for (int j = 0; j < FF; j += 16) {
				v16 z = LD(g + j), s = 1.f / (1.f + vexp(-z)), u = LD(g + FF + j), d = LD(dc + j);
				ST(dg + j) = d * u * s * (1.f + z * (1.f - s));
				ST(dg + FF + j) = d * z * s;
			}
		}
		lin_back(M, a->h2, y->gu, dgu, dt, 0);
		rms_back(M, a->x2, y->n2->w, a->i2, dt, dx, y->n2->g);
		lin_back(M, a->at, y->o, dx, dat, 0);
		attention_back(a, dat, dq);
		for (int i = 0; i < M; i++)
			for (int h = 0; h < H + KV; h++) {
				float *q = dq + (long)i * W + h * HD, s = 0, r = a->qi[(long)i * (H + KV) + h];
				const float *w = a->raw + (long)i * W + h * HD;
				Param *gp = h < H ? y->qg : y->kg;
				rope(q, Pos[i], -1);
				for (int d = 0; d < HD; d++) {
					float t = q[d] * w[d];
					gp->g[d] += t * r;
					s += t * gp->w[d];
				}
				s *= r * r * r / (float)HD;
				for (int d = 0; d < HD; d++)
					q[d] = q[d] * gp->w[d] * r - w[d] * s;
			}
		lin_back(M, a->h1, y->qkv, dq, dt, 0);
		rms_back(M, a->x, y->n1->w, a->i1, dt, dx, y->n1->g);
	}
	for (int i = 0; i < M; i++) {
		float *g = emb->g + (long)X[i] * D;
		for (int j = 0; j < D; j++)
			g[j] += dx[(long)i * D + j];
	}
	return res;
}

static void adamw(float lr, int it)
{
	double gn = 0;
	for (int i = 0; i < nparam; i++) {
		float s = 0;
		for (int j = 0; j < params[i].n; j++)
			s += params[i].g[j] * params[i].g[j];
		gn += s;
	}
	gn = sqrt(gn);
	float cl = gn > 1 ? (float)(1 / gn) : 1, b1 = .9f, b2 = .98f;
	float c1 = 1 / (1 - powf(b1, (float)it)), c2 = 1 / (1 - powf(b2, (float)it));
	for (int i = 0; i < nparam; i++) {
		Param *p = &params[i];
		float wd = p->decay ? .05f : 0, *w = p->w, *g = p->g, *m = p->m, *v = p->v;
		for (int j = 0; j < p->n; j++) {
			float x = g[j] * cl;
			m[j] = b1 * m[j] + (1 - b1) * x;
			v[j] = b2 * v[j] + (1 - b2) * x * x;
			w[j] -= lr * (m[j] * c1 / (sqrtf(v[j] * c2) + 1e-9f) + wd * w[j]);
			g[j] = 0;
		}
	}
	refresh();
}

static void batch(int first)
{
	static Sample s;
	for (int b = 0; b < B; b++) {
		sample(&s, T, first);
		size_t n = sizeof(int) * (size_t)T;
		memcpy(X + b * T, s.x, n);
		memcpy(Lab + b * T, s.lab, n);
		memcpy(Pos + b * T, s.pos, n);
		Lab[b * T + T - 1] = 0;
	}
}

/* exact match of whole answers, teacher forced (the same as greedy decoding), several questions a context */
static double exact(int kind, int len, int questions)
{
	static Sample s;
	int ok = 0, n = 0;
	T = len;
	B = 1;
	narrow = 0;
	while (n < questions) {
		memset(s.lab, 0, sizeof s.lab);
		s.n = s.ncut = 0;
		needle_sample(&s, T, kind, kind == SINGLE ? 1 : T / 24 < 4 ? 4 : T / 24 > 100 ? 100 : T / 24, 6, 0, 0);
		for (int i = 0; i < T; i++) {
			X[i] = i < s.n ? s.x[i] : PAD;
			Lab[i] = i < s.n - 1 ? s.lab[i] : 0;
			Pos[i] = i;
		}
		Result r = pass(0);
		for (int i = 0, good = 1; i < T; i++)
			if (Lab[i]) {
				good &= r.hit[i];
				if (X[i + 1] == END) {
					ok += good;
					n++;
					good = 1;
				}
			}
	}
	return (double)ok / n;
}

static void report(int from, int upto, int questions, const char *only)
{
	for (int t = from; t <= upto; t *= 2) {
		printf("EVAL %4d", t);
		for (int k = SINGLE; k < KINDS; k++)
			if (!only || !strcmp(only, kind_name[k]))
				printf("  %s %.3f", kind_name[k], exact(k, t, questions));
		printf("\n");
		fflush(stdout);
	}
}

static void save(const char *file)
{
	FILE *f = fopen(file, "wb");
	int h[8] = {0x31525054, D, L, H, KV, HD, FF, V};
	if (!f) {
		perror(file);
		return;
	}
	fwrite(h, 4, 8, f);
	for (int i = 0; i < nparam; i++)
		fwrite(params[i].w, 4, (size_t)params[i].n, f);
	fclose(f);
}

static int check(void)
{ /* finite differences; fp32, so only about two digits agree */
	D = 32;
	L = 2;
	H = 4;
	KV = 2;
	HD = 16;
	FF = 64;
	build();
	T = 96;
	B = 2;
	batch(0);
	for (int i = 0; i < nparam; i++)
		for (int j = 0; j < params[i].n; j++)
			params[i].w[j] += .3f * rn() * (params[i].in > 1 ? .05f : 1);
	refresh();
	pass(1);
	double num = 0, den = 0;
	for (int i = 0; i < nparam; i++)
		for (int k = 0; k < 6; k++) {
			Param *p = &params[i];
			int j = ri(p->n);
			float w = p->w[j], e = 5e-3f;
			if (p == emb)
				j = X[ri(B * T)] * D + ri(D), w = p->w[j];
			p->w[j] = w + e;
			refresh();
			double a = pass(0).loss;
			p->w[j] = w - e;
			refresh();
			double b = pass(0).loss;
			p->w[j] = w;
			refresh();
			double fd = (a - b) / (2 * e);
			num += (fd - p->g[j]) * (fd - p->g[j]);
			den += fd * fd;
			if (k < 2)
				printf("param %2d [%6d]  fd % .6f  grad % .6f\n", i, j, fd, (double)p->g[j]);
		}
	double difference = sqrt(num / den);
	printf("relative difference %.4f\n", difference);
	return !(difference < 1e-3);
}

/* ---------------------------------------------------------------- program */
static struct { /* options of train and eval, as key=value */
	float lr, minutes, pass,
		decay;        /* pass: share of right value tokens at which the length doubles; decay: last share of the time */
	int tok, first, last; /* tokens a step, length at the start and at the end */
	int seed, every, prev, questions;
	const char *out, *init, *only;
} opt = {5e-3f, 5, .9f, .3f, 1024, 64, 4096, 1, 500, 0, 40, "model.bin", NULL, NULL};

static int option(const char *arg)
{
	const struct {
		const char *name;
		int *i;
		float *f;
		const char **s;
	} keys[] = {
		{"d", &D, NULL, NULL},
		{"layers", &L, NULL, NULL},
		{"heads", &H, NULL, NULL},
		{"kv", &KV, NULL, NULL},
		{"hd", &HD, NULL, NULL},
		{"ff", &FF, NULL, NULL},
		{"lr", NULL, &opt.lr, NULL},
		{"minutes", NULL, &opt.minutes, NULL},
		{"pass", NULL, &opt.pass, NULL},
		{"decay", NULL, &opt.decay, NULL},
		{"tok", &opt.tok, NULL, NULL},
		{"first", &opt.first, NULL, NULL},
		{"last", &opt.last, NULL, NULL},
		{"seed", &opt.seed, NULL, NULL},
		{"every", &opt.every, NULL, NULL},
		{"prev", &opt.prev, NULL, NULL},
		{"questions", &opt.questions, NULL, NULL},
		{"only", NULL, NULL, &opt.only},
		{"out", NULL, NULL, &opt.out},
		{"init", NULL, NULL, &opt.init},
	};
	const char *v = strchr(arg, '=') + 1;
	size_t n = (size_t)(v - arg) - 1;
	for (int k = 0; k < WORDS(keys); k++)
		if (n == strlen(keys[k].name) && !strncmp(arg, keys[k].name, n)) {
			if (keys[k].i)
				*keys[k].i = atoi(v);
			if (keys[k].f)
				*keys[k].f = (float)atof(v);
			if (keys[k].s)
				*keys[k].s = v;
			return 0;
		}
	return fprintf(stderr, "unknown option %s\n", arg), 2;
}

/* Reads the sizes of a checkpoint (before build), then its weights (after it). */
static int load_sizes(FILE *f)
{
	int h[8];
	if (!f || fread(h, 4, 8, f) != 8 || h[7] != V)
		return fprintf(stderr, "cannot read %s\n", opt.init), 1;
	D = h[1];
	L = h[2];
	H = h[3];
	KV = h[4];
	HD = h[5];
	FF = h[6];
	return 0;
}

static int load_weights(FILE *f)
{
	for (int i = 0; i < nparam; i++)
		if (fread(params[i].w, 4, (size_t)params[i].n, f) != (size_t)params[i].n)
			return fprintf(stderr, "short file\n"), 1;
	refresh();
	return 0;
}

static void print_sample(const Sample *s)
{
	for (int j = 0; j < s->n; j++)
		printf("%d%c", s->x[j], j + 1 < s->n ? ' ' : '\n');
}

static int dump(int n)
{
	static Sample s;
	static const int len[] = {64, 128, 256, 512, 1024};
	for (int i = 0; i < n; i++) {
		sample(&s, len[i % 5], i % 7 == 0);
		print_sample(&s);
	}
	return 0;
}

static int cases(const char *name, int len, int n, int want, int questions)
{
	static Sample s;
	int kind = SINGLE;
	while (kind < KINDS - 1 && strcmp(name, kind_name[kind]))
		kind++;
	if (!want)
		want = kind == SINGLE ? 1 : len / 24 < 4 ? 4 : len / 24 > 160 ? 160 : len / 24;
	for (int i = 0; i < n; i++) {
		s.n = s.ncut = 0;
		needle_sample(&s, len, kind, want, questions, 0, 0);
		print_sample(&s);
	}
	return 0;
}

/* ids on standard input, n x V floats on standard output */
static int logits(void)
{
	int n = 0;
	while (n < MAXT - 32 && scanf("%d", &X[n]) == 1)
		Pos[n] = n, n++;
	T = (n + 31) / 32 * 32;
	B = 1;
	forward();
	float *lg = fmem((long)T * V);
	gemm(T, V, D, hf, D, 1, emb->t, V, lg, V, 0);
	return fwrite(lg, sizeof(float) * V, (size_t)n, stdout) != (size_t)n;
}

/* the stage's length, or (often) one of the shorter lengths for practice */
static int draw_length(int stage)
{
	int n = 0;
	if (ru() <= (stage == opt.last ? .5f : .7f))
		return stage;
	for (int t = 64; t < stage; t *= 2)
		n++;
	return 64 << ri(n + 1);
}

/* warm-up of 200 steps, then constant, then a linear decay in the last share of the time */
static float rate(int it, double done)
{
	float fall = done < 1 - opt.decay ? 1 : fmaxf(.05f, (float)(1 - done) / opt.decay);
	return opt.lr * fminf(1, (float)(it + 1) / 200.f) * fall;
}

static int train(void)
{
	long np = 0;
	for (int i = 0; i < nparam; i++)
		np += params[i].n;
	printf("params %ld d %d layers %d heads %d/%d x %d ff %d vocab %d seed %d\n", np, D, L, H, KV, HD, FF, V, opt.seed);
	fflush(stdout);
	int stage = opt.first, it = 0, since = 0;
	double t0 = cpu(), saved = t0, ema = 0, ecopy = 0, tokens = 0, loss = 0;
	while (cpu() - t0 < opt.minutes * 60) {
		float now = rate(it, (cpu() - t0) / (opt.minutes * 60));
		T = draw_length(stage);
		B = (stage > 64 ? 2 : 1) * opt.tok / T;
		if (B < 1)
			B = 1;
		narrow = stage == 64;
		batch(stage == 64);
		Result r = pass(1);
		it++;
		since++;
		tokens += B * T;
		adamw(now, it);
		loss = .98 * loss + .02 * r.loss;
		if (T == stage && r.tot[VAL])
			ema = .98 * ema + .02 * r.ok[VAL] / r.tot[VAL];
		if (r.tot[COPY])
			ecopy = .98 * ecopy + .02 * r.ok[COPY] / r.tot[COPY];
		if (it % opt.every == 0) {
			printf("it %d t %.0f tok %.2fM T %d loss %.3f ema %.3f copy %.3f tok/s %.0f\n", it, cpu() - t0,
				tokens / 1e6, stage, loss, ema, ecopy, tokens / (cpu() - t0));
			fflush(stdout);
		}
		if (ema > opt.pass && since > 150 && stage < opt.last) {
			printf("-- T %d done: it %d t %.0f tok %.2fM\n", stage, it, cpu() - t0, tokens / 1e6);
			fflush(stdout);
			stage *= 2;
			since = 0;
			ema = .5;
		}
		if (cpu() - saved > 60) {
			save(opt.out);
			saved = cpu();
		}
	}
	save(opt.out);
	printf("end: it %d t %.0f tok %.2fM stage %d ema %.3f\n", it, cpu() - t0, tokens / 1e6, stage, ema);
	fflush(stdout);
	report(64, opt.last, opt.questions, opt.only);
	return 0;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";
	int is_dump = !strcmp(verb, "dump") && argc > 3, is_cases = !strcmp(verb, "cases") && argc > 7, failed = 0;
	if (!strcmp(verb, "vocab"))
		return print_vocab(), 0;
	if (!strcmp(verb, "check"))
		return check();
	if (!is_dump && !is_cases && strcmp(verb, "logits") && strcmp(verb, "eval") && strcmp(verb, "train"))
		return fprintf(stderr,
			       "usage: tinypair vocab | dump | cases | logits | eval | check | train ..., see the source\n"),
		       2;
	for (int i = 2; i < argc && strchr(argv[i], '='); i++)
		if (option(argv[i]))
			return 2;
	FILE *f = opt.init ? fopen(opt.init, "rb") : NULL;
	if (opt.init && load_sizes(f))
		return 1;
	int seed = is_dump ? atoi(argv[3]) : is_cases ? atoi(argv[5]) : opt.seed;
	rng ^= (unsigned long long)seed * 0x9e3779b97f4a7c15ull;
	for (int i = 0; i < 10; i++)
		r32();
	build();
	if (f) {
		failed = load_weights(f);
		fclose(f);
	} else if (opt.prev)
		init_previous();
	if (failed)
		return 1;
	if (is_dump)
		return dump(atoi(argv[2]));
	if (is_cases)
		return cases(argv[2], atoi(argv[3]), atoi(argv[4]), atoi(argv[6]), atoi(argv[7]));
	if (!strcmp(verb, "logits"))
		return logits();
	if (!strcmp(verb, "eval"))
		return report(opt.first, opt.last, opt.questions, opt.only), 0;
	return train();
}
