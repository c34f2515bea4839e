/* peak.c: loops that do nothing but use one unit of the CPU to the full. */
#include "runners/device/cpu/kernels/simd.h"

enum { CHAINS = 12 }; /* independent sums: latency x units of every core met so far */

double ISA(peak_fma)(int64_t n)
{
	vf s[CHAINS], a = vf_set(0.5f), b = vf_set(1.25f);
#pragma GCC unroll 12
	for (int i = 0; i < CHAINS; i++)
		s[i] = vf_set((float)i);
	for (int64_t r = 0; r < n; r++) {
#pragma GCC unroll 12
		for (int i = 0; i < CHAINS; i++) {
			s[i] = vf_fma(s[i], a, b);
			__asm__ volatile("" : "+v"(s[i])); /* the loop must happen */
		}
	}
	return 2.0 * VL * CHAINS * (double)n;
}

/* Prefetched 2 KB ahead into L2. */
float ISA(read_all)(const float *x, int64_t n, int streams)
{
	vf s[4] = {{0}};
	int64_t each = n / streams;
	for (int64_t i = 0; i < each; i += 4 * VL)
		for (const float *p = x + i, *end = x + n; p < end; p += each) {
#pragma GCC unroll 4
			for (int j = 0; j < 4 * VL; j += 16)
				_mm_prefetch((const char *)(p + j + 512), _MM_HINT_T1);
#pragma GCC unroll 4
			for (int j = 0; j < 4; j++)
				s[j] += vf_load(p + j * VL);
		}
	return vf_sum(s[0] + s[1] + s[2] + s[3]);
}
