/* niah_wording.h: how the NIAH tasks speak: filler, keys, values, needles, questions, as one table of wordings.
 *
 * "tiny" is the dialect of the embedded tiny pair, to the letter (runners/model/tiny-pair/README.md); "plain" is English for real
 * models. Both are ours. All randomness comes from the caller's stream. */
#ifndef KVB_NIAH_WORDING_H
#define KVB_NIAH_WORDING_H

#include "harness/base/base.h"

struct wording {
	const char *name;
	int tokens_a_needle, most_needles;  /* default number of needles: length / tokens_a_needle, at most most_needles */
	int keys;                           /* how many different keys there are */
	int values, most_values;            /* of one key (multi-value): default and limit */
	int queries, most_queries;          /* keys asked at once (multi-query): default and limit */
	int new_tokens, new_tokens_a_value; /* room for the answer */
	/* Each appends to b: one sentence without a space around it, one key, one value. */
	void (*filler)(struct strbuf *b, struct rng *r);
	void (*key)(struct strbuf *b, struct rng *r);
	void (*value)(struct strbuf *b, struct rng *r);
	/* The sentence which ties the value to the key; ordinal counts from 0 the values of a key which has several. */
	void (*needle)(struct strbuf *b, const char *key, int ordinal, int values, const char *value);
	/* The question for all values of all keys, with its separator; and what the answer is made to begin with. */
	void (*question)(struct strbuf *b, char *const *keys, int n_keys, int values);
	void (*answer_prefix)(struct strbuf *b, char *const *keys, int n_keys, int values);
};

/* NULL name = "plain"; unknown = NULL. */
const struct wording *wording_find(const char *name);
/* Of the word lists, and of what the wording says with a fixed seed (so that a change of any form or of its code shows). */
void wording_words_sha256(char out[SHA_LEN]);
void wording_sha256(const struct wording *w, char out[SHA_LEN]);

#endif
