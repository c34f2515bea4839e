/* fuzz_safetensors.c: any bytes as a .safetensors file: refused, or every tensor can be read to its last element. */
#include <stdlib.h>

#include "runners/model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char err[ERR_LEN];
	struct st_file *f;
	if (st_open_memory(&f, "fuzz", data, len, err))
		return 0;
	for (size_t i = 0; i < st_count(f); i++) {
		const struct st_tensor *t = st_at(f, i);
		if (st_find(f, t->name) != t)
			abort();
		float *out = mem_new((size_t)t->count, sizeof *out);
		st_to_f32(t, 0, t->count, out);
		free(out);
	}
	st_metadata(f, "format");
	st_close(f);
	return 0;
}
