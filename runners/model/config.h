/* config.h: hyper-parameters out of config.json or GGUF metadata, and the one table of architectures. Private to
 * runners/model. Leaves out: rope_freqs.weight and every other tensor (model.c). */
#ifndef KVB_CONFIG_H
#define KVB_CONFIG_H

#include "runners/model/gguf.h"
#include "runners/model/model.h"

struct arch {
	const char *name;     /* model_type of config.json, general.architecture of GGUF */
	const char *hf_class; /* architectures[0] of config.json */
	bool qkv_bias, qk_norm;
	bool gguf_permuted; /* GGUF keeps the rows of Q and K in adjacent-pair order */
	int head_dim;       /* where config.json names none; 0 = hidden / heads */
};
const struct arch *arch_find(const char *name); /* by either name; NULL when unknown */

/* Fill *c from the text of config.json. `file` is used in messages. */
int config_from_json(struct model_config *c, const char *file, const char *text, size_t len, char err[ERR_LEN]);
/* Adds the EOS ids of generation_config.json, and its BOS id where config.json had none. */
int config_join_generation(struct model_config *c, const char *file, const char *text, size_t len, char err[ERR_LEN]);
/* Fill *c from metadata; vocab and tied from the tensor directory. */
int config_from_gguf(struct model_config *c, const struct gguf *g, char err[ERR_LEN]);

/* The YaRN paper's attention temperature for a scaling factor (rope.c). */
double yarn_mscale(double factor, double mscale);

#endif
