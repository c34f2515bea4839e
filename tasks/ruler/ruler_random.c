/* ruler_random.c: Mersenne Twister 19937 and the draws of CPython's random module and numpy's RandomState (ruler_random.h).
 * Sources: CPython Modules/_randommodule.c and Lib/random.py; numpy's legacy bounded integers (masked rejection). */
#include <stdio.h>
#include <stdlib.h>

#include "harness/base/base.h"
#include "tasks/ruler/ruler_random.h"

enum { N = 624, M = 397 };

static struct twister seed_one(uint32_t seed)
{
	struct twister t = {.at = N};
	t.v[0] = seed;
	for (uint32_t i = 1; i < N; i++)
		t.v[i] = 1812433253u * (t.v[i - 1] ^ (t.v[i - 1] >> 30)) + i;
	return t;
}

struct twister twister_numpy(uint32_t seed)
{
	return seed_one(seed);
}

struct twister twister_python(const uint32_t *words, int n)
{
	struct twister t = seed_one(19650218u);
	int i = 1, j = 0;
	for (int k = n > N ? n : N; k; k--) {
		t.v[i] = (t.v[i] ^ ((t.v[i - 1] ^ (t.v[i - 1] >> 30)) * 1664525u)) + words[j] + (uint32_t)j;
		if (++i == N)
			t.v[0] = t.v[N - 1], i = 1;
		if (++j == n)
			j = 0;
	}
	for (int k = N - 1; k; k--) {
		t.v[i] = (t.v[i] ^ ((t.v[i - 1] ^ (t.v[i - 1] >> 30)) * 1566083941u)) - (uint32_t)i;
		if (++i == N)
			t.v[0] = t.v[N - 1], i = 1;
	}
	t.v[0] = 0x80000000u;
	return t;
}

static void refill(struct twister *t)
{
	for (int i = 0; i < N; i++) {
		uint32_t y = (t->v[i] & 0x80000000u) | (t->v[(i + 1) % N] & 0x7fffffffu);
		t->v[i] = t->v[(i + M) % N] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
	}
	t->at = 0;
}

static uint32_t next(struct twister *t)
{
	if (t->at == N)
		refill(t);
	uint32_t y = t->v[t->at++];
	y ^= y >> 11;
	y ^= (y << 7) & 0x9d2c5680u;
	y ^= (y << 15) & 0xefc60000u;
	return y ^ (y >> 18);
}

uint32_t python_bits(struct twister *t, int bits)
{
	return next(t) >> (32 - bits);
}

static int bit_length(uint32_t n)
{
	int bits = 0;
	for (; n; n >>= 1)
		bits++;
	return bits;
}

uint32_t python_below(struct twister *t, uint32_t n)
{
	uint32_t r;
	int bits = bit_length(n);
	do
		r = python_bits(t, bits);
	while (r >= n);
	return r;
}

static double python_unit(struct twister *t)
{
	uint32_t a = next(t) >> 5, b = next(t) >> 6;
	return (a * 67108864. + b) / 9007199254740992.;
}

void python_letters(struct twister *t, char first, int k, char *out)
{
	for (int i = 0; i < k; i++)
		out[i] = (char)(first + (int)(python_unit(t) * 26));
	out[k] = '\0';
}

void python_uuid(struct twister *t, char out[37])
{
	uint32_t w[4]; /* the lowest first */
	for (int i = 0; i < 4; i++)
		w[i] = next(t);
	w[1] = (w[1] & 0x3fffffffu) | 0x80000000u; /* variant */
	w[2] = (w[2] & ~0xf000u) | 0x4000u;        /* version 4 */
	snprintf(out, 37, "%08x-%04x-%04x-%04x-%04x%08x", w[3], w[2] >> 16, w[2] & 0xffff, w[1] >> 16, w[1] & 0xffff, w[0]);
}

void python_shuffle(struct twister *t, int *v, int n)
{
	for (int i = n - 1; i > 0; i--) {
		int j = (int)python_below(t, (uint32_t)i + 1), x = v[i];
		v[i] = v[j];
		v[j] = x;
	}
}

/* Lib/random.py keeps a pool where that is smaller than the set of the numbers drawn so far. */
static bool sample_by_pool(int n, int k)
{
	int64_t set = 21;
	if (k > 5) {
		int64_t power = 4;
		while (power < 3 * (int64_t)k)
			power *= 4;
		set += power;
	}
	return n <= set;
}

void python_sample(struct twister *t, int n, int k, int *out)
{
	if (sample_by_pool(n, k)) {
		int *pool = mem_new((size_t)n + 1, sizeof(*pool));
		for (int i = 0; i < n; i++)
			pool[i] = i;
		for (int i = 0; i < k; i++) {
			int j = (int)python_below(t, (uint32_t)(n - i));
			out[i] = pool[j];
			pool[j] = pool[n - i - 1];
		}
		free(pool);
		return;
	}
	bool *taken = mem_new((size_t)n, sizeof(*taken));
	for (int i = 0; i < k; i++) {
		do
			out[i] = (int)python_below(t, (uint32_t)n);
		while (taken[out[i]]);
		taken[out[i]] = true;
	}
	free(taken);
}

uint32_t numpy_below(struct twister *t, uint32_t n)
{
	uint32_t mask = (uint32_t)((UINT64_C(1) << bit_length(n - 1)) - 1), r;
	do
		r = next(t) & mask;
	while (r > n - 1);
	return r;
}
