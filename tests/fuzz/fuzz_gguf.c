/* fuzz_gguf.c: any bytes as a GGUF file: refused, or every tensor dequantises, and its hyper-parameters are refused or give
 * finite rotary frequencies. */
#include <math.h>
#include <stdlib.h>

#include "runners/model/config.h"

static void read_tensors(const struct gguf *g)
{
	for (size_t i = 0; i < gguf_tensors(g); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(g, i);
		const int64_t n = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
		float *out = mem_new((size_t)n, sizeof *out);
		dequantise(t->type, t->data, n, out);
		free(out);
	}
}

static void read_config(const struct gguf *g)
{
	char err[ERR_LEN];
	struct model_config c;
	double mscale;
	if (config_from_gguf(&c, g, err))
		return;
	double *inv_freq = mem_new((size_t)c.head_dim, sizeof *inv_freq);
	model_rope(&c, inv_freq, &mscale);
	if (isnan(inv_freq[0]) || isnan(mscale))
		abort();
	free(inv_freq);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char err[ERR_LEN];
	struct gguf *g;
	if (gguf_open_memory(&g, "fuzz", data, len, err))
		return 0;
	read_tensors(g);
	read_config(g);
	gguf_close(g);
	return 0;
}
