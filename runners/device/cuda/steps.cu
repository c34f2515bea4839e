/* steps.cu: the steps of a small network over positions (runners/device/steps.h): convolution, norm over channels, attention along a band, softmax mix of tokens.
 *
 * Neighbouring positions stand in neighbouring lanes, so that rows are read and written whole lines at a time. But for the convolution a thread makes its column
 * alone, from memory; a convolution's block takes 32 rows by 128 columns through 16 channels at a time, which stand in shared memory. Each number is one sum in
 * ascending order of channels (and taps, keys, tokens). fp32 on plain cores. */
#include "runners/device/cuda/kernels.h"
#include "runners/device/cuda/klaunch.cuh"

#include <math.h>

enum {
	THREADS = 128,
	ROWS = 32, COLS = 128, CHANNELS = 16, /* of a convolution's block */
	EACH_ROW = 8, EACH_COL = 4,           /* of a thread; its columns lie 32 apart */
	W_LD = ROWS + 4,                      /* rows of 16 bytes; neighbouring weights fall into other banks */
	CHUNK = 8                             /* channels of a column that a thread makes at a time */
};

static __device__ __forceinline__ float *rows_of(const struct step_job &j, struct step_rows r, int64_t item)
{
	return j.x + (r.row + item * r.each) * j.ld;
}
static __device__ __forceinline__ const float *params_of(const struct step_job &j, struct step_params p, int64_t item)
{
	return p.at < 0 ? NULL : j.params + p.at + item * p.each;
}

static __device__ __forceinline__ float gelu(float x)
{
	return 0.5f * x * erfcf(x * -0.707106781f);
}

static __global__ void __launch_bounds__(THREADS) feature(struct step_job j)
{
	int64_t t = blockIdx.x * (int64_t)THREADS + threadIdx.x, item = blockIdx.z;
	if (t >= j.cols)
		return;
	int64_t at = blockIdx.y * j.ld + t;
	const float *shift = params_of(j, j.step.shift, item);
	float x = rows_of(j, j.step.in, item)[at] * rows_of(j, j.step.with, item)[t];
	if (j.step.compress == STEP_LOG)
		x = logf(x + STEP_LOG_EPS);
	else if (j.step.compress == STEP_LOG1P)
		x = log1pf(x);
	rows_of(j, j.step.out, item)[at] = (x - (shift ? shift[blockIdx.y] : 0)) * params_of(j, j.step.weight, item)[blockIdx.y];
}

/* ---- convolution ---- */

/* The next `count` channels of the block's columns to x [count][COLS + taps - 1], and of its rows' weights to w [count * taps][W_LD]; zeros outside. */
static __device__ void conv_load(const struct step_job &j, const float *in, const float *weight, int row0, int64_t col0, int count, float *w, float *x)
{
	int width = COLS + j.step.taps - 1, deep = count * j.step.taps;
	for (int c = 0; c < count; c++)
		for (int i = threadIdx.x; i < width; i += THREADS) {
			int64_t t = col0 + i - j.step.taps / 2;
			x[c * width + i] = t >= 0 && t < j.cols ? in[c * j.step.apart * j.ld + t] : 0;
		}
	for (int r = threadIdx.x / 32; r < ROWS; r += THREADS / 32)
		for (int k = threadIdx.x % 32; k < deep; k += 32)
			w[k * W_LD + r] = row0 + r < j.step.rows ? weight[(row0 + r) * j.step.stride + k] : 0;
}

/* What a thread's sums gain from one weight of each of its rows. */
static __device__ __forceinline__ void conv_add(const float *w, const float *x, float (&sum)[EACH_ROW][EACH_COL])
{
	const float4 low = *(const float4 *)w, high = *(const float4 *)(w + 4);
	const float weight[EACH_ROW] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
	for (int b = 0; b < EACH_COL; b++) {
		float column = x[32 * b];
#pragma unroll
		for (int a = 0; a < EACH_ROW; a++)
			sum[a][b] += weight[a] * column;
	}
}

/* Six blocks a multiprocessor leave room for the sums in registers. */
static __global__ void __launch_bounds__(THREADS, 6) conv(struct step_job j)
{
	extern __shared__ __align__(16) unsigned char smem_raw[];
	const int taps = j.step.taps, width = COLS + taps - 1, lane = threadIdx.x % 32;
	float *w = (float *)smem_raw, *x = w + CHANNELS * taps * W_LD, sum[EACH_ROW][EACH_COL] = {};
	int64_t item = blockIdx.z, col0 = (int64_t)blockIdx.x * COLS, step = j.step.apart * j.ld;
	int row0 = blockIdx.y * ROWS, row = threadIdx.x / 32 * EACH_ROW;
	const float *in = rows_of(j, j.step.in, item), *weight = params_of(j, j.step.weight, item), *bias = params_of(j, j.step.bias, item);
	for (int c0 = 0; c0 < j.step.channels; c0 += CHANNELS) {
		int count = min((int)CHANNELS, j.step.channels - c0);
		__syncthreads(); /* the last channels have been read */
		conv_load(j, in + c0 * step, weight + c0 * taps, row0, col0, count, w, x);
		__syncthreads();
		for (int c = 0; c < count; c++)
			for (int k = 0; k < taps; k++)
				conv_add(w + (c * taps + k) * W_LD + row, x + c * width + k + lane, sum);
	}
	for (int a = 0; a < EACH_ROW && row0 + row + a < j.step.rows; a++)
		for (int b = 0; b < EACH_COL; b++) {
			int64_t t = col0 + lane + 32 * b;
			if (t >= j.cols)
				continue;
			float *out = rows_of(j, j.step.out, item) + (row0 + row + a) * j.ld + t;
			float y = (j.step.add ? *out : 0) + ((bias ? bias[row0 + row + a] : 0) + sum[a][b]);
			*out = j.step.gelu ? gelu(y) : y;
		}
}

/* ---- one column a thread ---- */

static __global__ void __launch_bounds__(THREADS) norm(struct step_job j)
{
	int64_t t = blockIdx.x * (int64_t)THREADS + threadIdx.x, item = blockIdx.z;
	if (t >= j.cols)
		return;
	const float *in = rows_of(j, j.step.in, item) + t, *shift = params_of(j, j.step.shift, item);
	const float *gain = params_of(j, j.step.weight, item), *bias = params_of(j, j.step.bias, item);
	float *out = rows_of(j, j.step.out, item) + t, mean = 0, factor = 0;
	int n = j.step.channels;
	for (int c = 0; c < n; c++)
		mean += in[c * j.ld] + (shift ? shift[c] : 0);
	mean /= (float)n;
	for (int c = 0; c < n; c++) {
		float x = in[c * j.ld] + (shift ? shift[c] : 0) - mean;
		factor += x * x;
	}
	factor = 1 / sqrtf(factor / (float)n + STEP_NORM_EPS);
	for (int c = 0; c < n; c++) {
		float y = (in[c * j.ld] + (shift ? shift[c] : 0) - mean) * factor * gain[c] + (bias ? bias[c] : 0);
		y = j.step.gelu ? gelu(y) : y;
		out[c * j.ld] = j.step.add ? out[c * j.ld] + y : y;
	}
}

/* What column t's query gives key s. q, k: rows of column 0. */
static __device__ float band_logit(const struct step_job &j, const float *q, const float *k, const float *bias, float scale, int64_t t, int64_t s)
{
	int64_t half = j.step.half, far = s - t < -half ? -half : s - t > half ? half : s - t;
	float dot = 0;
	for (int c = 0; c < j.step.channels; c++)
		dot += q[c * j.ld + t] * k[c * j.ld + s];
	return dot * scale + bias[half + far];
}

/* Logits are made again for every CHUNK channels of the output: a head has 8 of them where nobody asks for more. */
static __global__ void __launch_bounds__(THREADS) band(struct step_job j)
{
	int64_t t = blockIdx.x * (int64_t)THREADS + threadIdx.x, item = blockIdx.z;
	if (t >= j.cols)
		return;
	const float *q = rows_of(j, j.step.in, item), *k = q + j.step.apart * j.ld, *v = k + j.step.apart * j.ld, *bias = params_of(j, j.step.weight, item);
	float *out = rows_of(j, j.step.out, item), scale = 1 / sqrtf((float)j.step.channels), high = -INFINITY;
	int64_t first = t > j.step.window ? t - j.step.window : 0, end = j.cols - 1 - t > j.step.window ? t + j.step.window + 1 : j.cols;
	for (int64_t s = first; s < end; s++)
		high = fmaxf(high, band_logit(j, q, k, bias, scale, t, s));
	for (int c0 = 0; c0 < j.step.channels; c0 += CHUNK) {
		float sum = 0, mixed[CHUNK] = {};
		for (int64_t s = first; s < end; s++) {
			float e = expf(band_logit(j, q, k, bias, scale, t, s) - high);
			sum += e;
#pragma unroll
			for (int c = 0; c < CHUNK; c++)
				mixed[c] += c0 + c < j.step.channels ? e * v[(c0 + c) * j.ld + s] : 0;
		}
#pragma unroll
		for (int c = 0; c < CHUNK; c++)
			if (c0 + c < j.step.channels)
				out[(c0 + c) * j.ld + t] = mixed[c] / sum;
	}
}

/* z [tokens], `step` apart, becomes its softmax. */
static __device__ void mix_softmax(float *z, int tokens, int64_t step)
{
	float high = z[0], sum = 0;
	for (int p = 1; p < tokens; p++)
		high = fmaxf(high, z[p * step]);
	for (int p = 0; p < tokens; p++) {
		float e = expf(z[p * step] - high);
		z[p * step] = e;
		sum += e;
	}
	for (int p = 0; p < tokens; p++)
		z[p * step] /= sum;
}

/* A thread: one row of weights at one column. */
static __global__ void __launch_bounds__(THREADS) mix(struct step_job j)
{
	int64_t t = blockIdx.x * (int64_t)THREADS + threadIdx.x, item = blockIdx.z, row = blockIdx.y;
	if (t >= j.cols)
		return;
	int n = j.step.channels;
	float *z = rows_of(j, j.step.in, item) + row * j.ld + t, *out = rows_of(j, j.step.out, item) + row * n * j.ld + t;
	const float *x = rows_of(j, j.step.with, item) + t;
	mix_softmax(z, j.step.tokens, j.step.rows * j.ld);
	for (int c0 = 0; c0 < n; c0 += CHUNK) {
		float sum[CHUNK] = {};
		for (int p = 0; p < j.step.tokens; p++) {
			float weight = z[p * j.step.rows * j.ld];
#pragma unroll
			for (int c = 0; c < CHUNK; c++)
				sum[c] += c0 + c < n ? weight * x[((int64_t)p * n + c0 + c) * j.ld] : 0;
		}
#pragma unroll
		for (int c = 0; c < CHUNK; c++)
			if (c0 + c < n)
				out[(c0 + c) * j.ld] = sum[c];
	}
}

extern "C" cudaError_t kernel_step(cudaStream_t s, struct step_job job)
{
	unsigned across = blocks_for(job.cols, THREADS), batch = (unsigned)job.step.batch, rows = (unsigned)job.step.rows;
	size_t shared = (size_t)CHANNELS * (size_t)(job.step.taps * W_LD + COLS + job.step.taps - 1) * sizeof(float);
	switch (job.step.kind) {
	case STEP_FEATURE:
		return klaunch(feature, dim3(across, rows, batch), THREADS, 0, s, job);
	case STEP_CONV:
		return klaunch(conv, dim3(blocks_for(job.cols, COLS), blocks_for(job.step.rows, ROWS), batch), THREADS, shared, s, job);
	case STEP_NORM:
		return klaunch(norm, dim3(across, 1, batch), THREADS, 0, s, job);
	case STEP_BAND:
		return klaunch(band, dim3(across, 1, batch), THREADS, 0, s, job);
	case STEP_MIX:
		return klaunch(mix, dim3(across, rows, batch), THREADS, 0, s, job);
	default:
		return cudaErrorInvalidValue;
	}
}
