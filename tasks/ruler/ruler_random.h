/* ruler_random.h: the random numbers of Python that RULER's texts are made of, to the bit: CPython's `random` and numpy's old
 * randint.
 *
 * Both are the Mersenne Twister; they differ in seeding and in how a draw below n is made. A state is a plain value: copying it
 * copies the stream, so a row is made again by putting back the state before it. */
#ifndef KVB_RULER_RANDOM_H
#define KVB_RULER_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct twister {
	uint32_t v[624];
	int at; /* next of v; 624 = all used */
};
/* random.Random(seed): n 32-bit words, the lowest first (one word for a seed below 2^32). */
struct twister twister_python(const uint32_t *words, int n);
/* numpy.random.seed(seed) */
struct twister twister_numpy(uint32_t seed);

uint32_t python_bits(struct twister *t, int bits);    /* getrandbits, 1..32 bits */
uint32_t python_below(struct twister *t, uint32_t n); /* randrange(n), and the index of choice(); n > 0 */
/* choices(letters, k) appended as a word: out gets k letters from `first` on, and NUL. */
void python_letters(struct twister *t, char first, int k, char *out);
void python_uuid(struct twister *t, char out[37]);             /* str(uuid.UUID(int=getrandbits(128), version=4)) */
void python_shuffle(struct twister *t, int *v, int n);         /* shuffle */
void python_sample(struct twister *t, int n, int k, int *out); /* sample(range(n), k); k <= n */
uint32_t numpy_below(struct twister *t, uint32_t n);           /* legacy randint(0, n) */

#endif
