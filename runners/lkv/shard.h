/* shard.h: one context to train LKV on, as token ids: [prefix | context] and tails (a question and the answer that the model
 * itself gives on the full cache; or a text's last tokens). Ids alone: training prefills the context again, so a shard is a few
 * KB and fits any precision. File: safetensors, int32 "ids", "tails" (one behind the other), "tail_len", "tail_answer". */
#ifndef KVB_LKV_SHARD_H
#define KVB_LKV_SHARD_H

#include "runners/lkv/train.h"

struct lkv_shard {
	int prefix, n; /* ids: prefix and context */
	int32_t *ids;
	struct lkv_tail *tail;
	int n_tails;
	char id[128], split[16], target_sha256[SHA_LEN], tokenizer_sha256[SHA_LEN], context_sha256[SHA_LEN];
};
void lkv_shard_free(struct lkv_shard *s);
/* Appends a tail: ids a, then b, of which b is to be predicted. */
void lkv_shard_tail(struct lkv_shard *s, const int32_t *a, int n_a, const int32_t *b, int n_b);
int lkv_shard_write(const struct lkv_shard *s, const char *path, char err[ERR_LEN]);
/* vocab: ids beyond it are refused. */
int lkv_shard_read(struct lkv_shard *out, const char *path, int vocab, char err[ERR_LEN]);
/* Every shard of a folder for this model, by file name; those of another model are an error. Caller frees each and *out. */
int lkv_shards_read(struct lkv_shard **out, int *n, const char *folder, const char *target_sha256, int vocab, char err[ERR_LEN]);

#endif
