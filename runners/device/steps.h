/* steps.h: a small network over positions as a list of steps on one matrix of numbers; op_steps (device.h) runs such a list.
 * Plain numbers, no tensor and no device: runners/mapper, which knows neither, writes the lists.
 *
 * The matrix: a row is a channel, a column is a position; columns before the first and behind the last count as zero. The
 * parameters: one vector. A step is done for `batch` items, none of which reads what another writes: item b's rows and parameters
 * begin b * each further on than the first one's. fp32 throughout; each number is one sum in one fixed order, whatever the number
 * of columns, rows or items. */
#ifndef KVB_DEVICE_STEPS_H
#define KVB_DEVICE_STEPS_H

#include <stdbool.h>
#include <stdint.h>

enum step_kind {
	/* out[r] = (f(in[r] with[0]) - shift[r]) weight[r], r < rows; f by `compress`. out may be in */
	STEP_FEATURE,
	/* out[r] = act((add ? out[r] : 0) + bias[r] + sum over c < channels, k < taps (odd) of weight[r stride + c taps + k]
	 * times in[c apart] at column + k - taps / 2), r < rows; act is GELU (erf form) with `gelu`, else nothing. out is not in
	 */
	STEP_CONV,
	/* Over the channels of each column, x = in + shift: out[c] = (add ? out[c] : 0) + act(weight[c] (x[c] - mean) / deviation
	 * + bias[c]); biased variance + STEP_NORM_EPS. out may be in */
	STEP_NORM,
	/* One head of attention along the columns: q = in[c], k = in[apart + c], v = in[2 apart + c], c < channels; column t sees
	 * the columns s with |s - t| <= window; logit = q k / sqrt(channels) + weight[half + (s - t within +-half)]. out[c] */
	STEP_BAND,
	/* At each column: z[p rows + r] = in, softmax over p < tokens (in is lost); out[r channels + c] = sum over p of z times
	 * with[p channels + c] */
	STEP_MIX,
	STEP_KINDS
};
enum step_compress { STEP_LINEAR, STEP_LOG /* log(x + 1e-6) */, STEP_LOG1P };
#define STEP_NORM_EPS 1e-5f
#define STEP_LOG_EPS 1e-6f
enum { STEP_TAPS_MAX = 15, STEP_BATCH_MAX = 65535 };

struct step_rows {
	int64_t row, each;
};
struct step_params { /* elements of the vector; at < 0: there is none, i.e. zeros */
	int64_t at, each;
};
struct step {
	enum step_kind kind;
	int batch;
	struct step_rows in, with, out;
	struct step_params weight, bias, shift;
	int rows, channels, taps, tokens;
	int64_t stride, apart, window, half;
	bool add, gelu;
	enum step_compress compress;
};

#endif
