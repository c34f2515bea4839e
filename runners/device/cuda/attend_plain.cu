/* attend_plain.cu: attention over fp32 caches (precision fp32, for comparison with the CPU): one warp a row, 32 keys at a time, no tensor cores. */
#include "runners/device/cuda/attend.cuh"
#include "runners/device/cuda/klaunch.cuh"

enum { WARPS = 4, D_MAX = 256 };

static __global__ void __launch_bounds__(WARPS * 32, 1) attend_plain(const struct attend_item *items, struct attend_shape shape)
{
	__shared__ float qs[WARPS][D_MAX], ps[WARPS][32];
	__shared__ int64_t keys[WARPS][32];
	const struct attend_item *a = &items[blockIdx.y];
	int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, d = shape.d;
	int64_t row = blockIdx.x * (int64_t)WARPS + warp, rows = a->queries * shape.g, query = row / shape.g, head = row % shape.g;
	if (row >= rows) /* whole warps leave */
		return;
	for (int c = lane; c < d; c += 32)
		qs[warp][c] = a->q[query * shape.q_ld + head * d + c];
	__syncwarp();
	float most = -INFINITY, sum = 0, o[D_MAX / 32];
#pragma unroll
	for (int i = 0; i < D_MAX / 32; i++)
		o[i] = 0;
	for (int seg = 0; seg < a->n_seg; seg++) {
		int64_t end = segment_end(a, seg, query);
		const float *k = (const float *)a->seg[seg].k, *v = (const float *)a->seg[seg].v;
		const int32_t *index = a->seg[seg].index;
		for (int64_t pos = 0; pos < end; pos += 32) {
			int64_t key = pos + lane, from = key >= end ? 0 : index ? index[key] : key;
			float s = 0;
			for (int c = 0; c < d && key < end; c++)
				s += qs[warp][c] * k[from * d + c];
			s = key < end ? s * shape.scale : -INFINITY;
			float top = fmaxf(most, warp_max(s)), base = top == -INFINITY ? 0 : top, shrink = expf(most - base);
			float p = expf(s - base);
			sum = sum * shrink + warp_sum(p);
			most = top;
			ps[warp][lane] = p;
			keys[warp][lane] = from;
			__syncwarp();
			int n = end - pos < 32 ? (int)(end - pos) : 32;
#pragma unroll
			for (int i = 0; i < D_MAX / 32; i++) {
				int c = i * 32 + lane;
				o[i] *= shrink;
				for (int j = 0; a->out && c < d && j < n; j++)
					o[i] += ps[warp][j] * v[keys[warp][j] * d + c];
			}
			__syncwarp();
		}
	}
#pragma unroll
	for (int i = 0; i < D_MAX / 32; i++)
		if (a->out && i * 32 + lane < d)
			((float *)a->out)[query * shape.out_ld + head * d + i * 32 + lane] = o[i] / sum;
	if (a->lse && lane == 0)
		a->lse[query * shape.lse_ld + head] = (most == -INFINITY ? 0 : most) + logf(sum);
}

extern "C" cudaError_t kernel_attend_plain(
	cudaStream_t s, const struct attend_item *items, int n, int64_t most_rows, struct attend_shape shape)
{
	return klaunch(attend_plain, dim3(blocks_for(most_rows, WARPS), (unsigned)n), WARPS * 32, 0, s, items, shape);
}
