/* random.h: weights of a `random:` model, made when asked for. Private to runners/model. */
#ifndef KVB_RANDOM_H
#define KVB_RANDOM_H

#include <stdint.h>

/* One row of cols values, roughly normal with mean 0 and the given standard deviation. A value depends on (seed, tensor,
 * row, column) alone, so any range of rows, on any thread, gives the same weights. */
void random_row(uint64_t seed, uint64_t tensor, int64_t row, int64_t cols, float std, float *out);

#endif
