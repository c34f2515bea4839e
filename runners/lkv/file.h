/* file.h: trained networks and checkpoints on disk: safetensors, one fp32 tensor for each of net.h's.
 *
 * Metadata of a trained file: those of runners/trained.h, the shape, and a training record (JSON) that the program prints.
 * Reading checks every tensor's shape and that its numbers are finite. */
#ifndef KVB_LKV_FILE_H
#define KVB_LKV_FILE_H

#include "runners/lkv/train.h"
#include "runners/trained.h"

struct lkv_origin { /* what the file says of itself */
	const char *target_sha256, *tokenizer_sha256, *trained_on, *record, *made_by;
};
int lkv_file_write(const char *path, const struct lkv_net *net, const struct lkv_origin *o, char err[ERR_LEN]);
/* The network of an open file that must fit a model of these sizes. name: for messages. */
int lkv_file_read(
	struct lkv_net **out, const struct st_file *f, const char *name, int layers, int kv_heads, int d, char err[ERR_LEN]);

struct lkv_checkpoint {
	const char *phase; /* "distil" | "train" */
	int done, updates; /* steps of the phase; of the optimiser */
	struct lkv_net *net;
	float *m, *v; /* [net->trained] */
};
int lkv_checkpoint_write(const char *path, const struct lkv_checkpoint *c, const struct lkv_recipe *r, char err[ERR_LEN]);
/* Fills the checkpoint's buffers; a file of another recipe is refused. phase points to a constant. */
int lkv_checkpoint_read(const char *path, struct lkv_checkpoint *c, const struct lkv_recipe *r, char err[ERR_LEN]);
/* The recipe in words, as records and checkpoints hold it (JSON, sorted keys); caller frees. */
char *lkv_recipe_json(const struct lkv_recipe *r);

#endif
