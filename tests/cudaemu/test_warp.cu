// test_warp.cu: shuffles, votes, matches and reductions against plain loops over the lanes; full and partial masks, all widths,
// every order of threads.
#include "tests/cudaemu/test.h"

enum { LANES = 32, WARPS = 3, N = LANES * WARPS };

__global__ void shuffles(unsigned *o, int kind, int arg, int width)
{
	unsigned t = threadIdx.x, v = t * t + 7, r = 0;
	if (kind == 0)
		r = __shfl_sync(~0u, v, arg, width);
	if (kind == 1)
		r = __shfl_up_sync(~0u, v, arg, width);
	if (kind == 2)
		r = __shfl_down_sync(~0u, v, arg, width);
	if (kind == 3)
		r = __shfl_xor_sync(~0u, v, arg, width);
	o[t] = r;
}
static unsigned plain_shuffle(unsigned t, int kind, int arg, int width)
{
	int lane = t % LANES, first = lane / width * width, src = lane;
	if (kind == 0)
		src = first + ((arg % width) + width) % width;
	if (kind == 1)
		src = lane - arg >= first ? lane - arg : lane;
	if (kind == 2)
		src = lane + arg < first + width ? lane + arg : lane;
	if (kind == 3)
		src = (lane ^ arg) < first + width ? lane ^ arg : lane;
	unsigned s = t / LANES * LANES + src;
	return s * s + 7;
}
static void test_shuffles(void **)
{
	unsigned *d = device_array<unsigned>(N), h[N];
	for (int kind = 0; kind < 4; kind++)
		for (int width = 1; width <= 32; width *= 2)
			for (int arg = 0; arg < 32; arg += kind == 3 ? 1 : 3) {
				ok(start(shuffles, 1, N, 0, 0, d, kind, arg, width));
				to_host(h, d, N);
				for (unsigned t = 0; t < N; t++)
					assert_int_equal(h[t], plain_shuffle(t, kind, arg, width));
			}
	ok(cudaFree(d));
}

struct Pair {
	float a, b;
};
__global__ void wide(double *o, Pair *p)
{
	unsigned t = threadIdx.x;
	o[t] = __shfl_xor_sync(~0u, (double)t + 0.25, 5);
	Pair v = {(float)t, -(float)t};
	p[t] = __shfl_sync(~0u, v, 31 - (int)t);
}
static void test_wide_types(void **)
{
	double *d = device_array<double>(32), h[32];
	Pair *p = device_array<Pair>(32), q[32];
	ok(start(wide, 1, 32, 0, 0, d, p));
	to_host(h, d, 32);
	to_host(q, p, 32);
	for (unsigned t = 0; t < 32; t++) {
		assert_true(h[t] == (t ^ 5) + 0.25);
		assert_true(q[t].a == 31 - (float)t && q[t].b == (float)t - 31);
	}
	ok(cudaFree(d));
	ok(cudaFree(p));
}

__global__ void votes(unsigned *o, const int *in, unsigned mask)
{
	unsigned t = threadIdx.x, *r = o + t * 12;
	int v = in[t];
	if (!(mask >> (t & 31) & 1))
		return; // those lanes leave; the others go on without them
	r[0] = __ballot_sync(mask, v & 1);
	r[1] = __any_sync(mask, v > 90);
	r[2] = __all_sync(mask, v >= -100);
	r[3] = __match_any_sync(mask, v % 5);
	r[4] = (unsigned)__reduce_add_sync(mask, v);
	r[5] = (unsigned)__reduce_min_sync(mask, v);
	r[6] = (unsigned)__reduce_max_sync(mask, v);
	r[7] = __reduce_min_sync(mask, (unsigned)v);
	r[8] = __reduce_max_sync(mask, (unsigned)v);
	r[9] = __reduce_and_sync(mask, (unsigned)v);
	r[10] = __reduce_or_sync(mask, (unsigned)v);
	r[11] = __reduce_xor_sync(mask, (unsigned)v);
}
static void plain_votes(unsigned r[12], const int *v, unsigned mask, int lane)
{
	int add = 0, min = 1 << 30, max = -(1 << 30);
	unsigned umin = ~0u, umax = 0, land = ~0u, lor = 0, lxor = 0, ballot = 0, match = 0, any = 0, all = 1;
	for (int l = 0; l < 32; l++) {
		if (!(mask >> l & 1))
			continue;
		unsigned u = (unsigned)v[l];
		ballot |= (u & 1) << l;
		any |= v[l] > 90;
		all &= v[l] >= -100;
		match |= (unsigned)(v[l] % 5 == v[lane] % 5) << l;
		add += v[l];
		min = v[l] < min ? v[l] : min;
		max = v[l] > max ? v[l] : max;
		umin = u < umin ? u : umin;
		umax = u > umax ? u : umax;
		land &= u, lor |= u, lxor ^= u;
	}
	unsigned w[12] = {ballot, any, all, match, (unsigned)add, (unsigned)min, (unsigned)max, umin, umax, land, lor, lxor};
	memcpy(r, w, sizeof w);
}
static void test_votes_and_reductions(void **)
{
	static unsigned h[N * 12];
	unsigned *d = device_array<unsigned>(N * 12), seed = 5;
	int *in = device_array<int>(N), v[N];
	const unsigned masks[] = {~0u, 0xffffu, 0xf0f0f0f0u, 1u, 0x80000001u};
	for (unsigned mask : masks)
		for (const char *order : ORDERS) {
			cuemu_set_order(order);
			for (int &x : v)
				x = (int)(next_random(&seed) >> 8) % 200 - 99;
			to_device(in, v, N);
			ok(start(votes, 1, N, 0, 0, d, in, mask));
			to_host(h, d, N * 12);
			for (int t = 0; t < N; t++) {
				if (!(mask >> (t & 31) & 1))
					continue;
				unsigned want[12];
				plain_votes(want, v + t / 32 * 32, mask, t & 31);
				assert_memory_equal(h + t * 12, want, sizeof want);
			}
		}
	cuemu_set_order("fwd");
	ok(cudaFree(d));
	ok(cudaFree(in));
}

// Two halves of a warp work apart, each with its own mask, then all together: masks come and go, more than there are places for.
__global__ void parts(int *o)
{
	int t = (int)threadIdx.x, sum = 0;
	for (int size = 1; size <= 32; size *= 2) {
		unsigned mask = size == 32 ? ~0u : ((1u << size) - 1) << (t / size * size);
		sum += __reduce_add_sync(mask, t);
	}
	for (int i = 1; i < 12; i++) { // lanes 0..i against the rest
		unsigned low = (2u << i) - 1;
		if (t <= i)
			sum += __reduce_add_sync(low, t);
		else
			sum += __reduce_add_sync(~low, t);
	}
	o[t] = sum;
}
static void test_changing_masks(void **)
{
	int *d = device_array<int>(32), h[32];
	for (const char *order : ORDERS) {
		cuemu_set_order(order);
		ok(start(parts, 1, 32, 0, 0, d));
		to_host(h, d, 32);
		for (int t = 0; t < 32; t++) {
			int want = 0;
			for (int size = 1; size <= 32; size *= 2)
				for (int l = t / size * size; l < t / size * size + size; l++)
					want += l;
			for (int i = 1; i < 12; i++)
				for (int l = 0; l < 32; l++)
					if ((l <= i) == (t <= i))
						want += l;
			assert_int_equal(h[t], want);
		}
	}
	cuemu_set_order("fwd");
	ok(cudaFree(d));
}

__global__ void absent_lane(int *o)
{
	if (threadIdx.x < 16)
		o[threadIdx.x] = __shfl_sync(0xffffu, (int)threadIdx.x, 20);
}
__global__ void not_in_mask(int *o)
{
	o[threadIdx.x] = __shfl_sync(0xffu, (int)threadIdx.x, 0);
}
__global__ void two_places(int *o)
{
	if (threadIdx.x & 1)
		o[threadIdx.x] = __shfl_sync(~0u, 1, 0);
	else
		o[threadIdx.x] = __shfl_xor_sync(~0u, 1, 1);
}
template <void (*K)(int *)> static void run_bad()
{
	int *d;
	cudaMalloc(&d, 256);
	start(K, 1, 32, 0, 0, d);
	cudaDeviceSynchronize();
}
static void test_reports(void **)
{
	assert_dies(run_bad<absent_lane>, "a shuffle reads a lane that is not in the mask");
	assert_dies(run_bad<not_in_mask>, "the calling lane is not in its own mask");
	assert_dies(run_bad<two_places>, "lanes of one warp meet in different places");
}

int main()
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_shuffles), cmocka_unit_test(test_wide_types),
		cmocka_unit_test(test_votes_and_reductions), cmocka_unit_test(test_changing_masks),
		cmocka_unit_test(test_reports)};
	return cmocka_run_group_tests(tests, nullptr, nullptr);
}
