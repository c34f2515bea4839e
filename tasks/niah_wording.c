/* niah_wording.c: the two wordings (niah_wording.h). Forms are texts in which $ and a letter stand for a drawn word. */
#include <stdlib.h>
#include <string.h>

#include "tasks/niah_wording.h"
#include "tasks/niah_words.h"

/* ---- forms ---- */

/* A word with frequency ~ 1 / (rank + 4), as in the training data of the tiny pair. */
static const char *zipf(const char *const *words, int n, struct rng *r)
{
	double total = 0, u;
	for (int i = 0; i < n; i++)
		total += 1. / (i + 4);
	u = rng_unit(r) * total;
	for (int i = 0; i < n - 1; i++)
		if ((u -= 1. / (i + 4)) < 0)
			return words[i];
	return words[n - 1];
}

/* S starter, n noun, h person, o thing, a adjective, v verb, d adverb, t article, p preposition */
static const char *drawn_word(char letter, struct rng *r)
{
	enum { PLAIN_STARTERS = 8, FIRST_PREPOSITION = 2, PREPOSITIONS = 15 };
	switch (letter) {
	case 'S':
		return words_start[rng_unit(r) < .5 ? 0 : rng_below(r, PLAIN_STARTERS)];
	case 'n':
		return zipf(words_noun, WORDS(words_noun), r);
	case 'h':
		return zipf(words_noun, N_PEOPLE, r);
	case 'o':
		return zipf(words_noun + N_PEOPLE, WORDS(words_noun) - N_PEOPLE, r);
	case 'a':
		return zipf(words_adj, WORDS(words_adj), r);
	case 'v':
		return zipf(words_verb, WORDS(words_verb), r);
	case 'd':
		return zipf(words_adv, WORDS(words_adv), r);
	case 't':
		return words_func[rng_unit(r) < .8 ? 0 : 1];
	default:
		return words_func[FIRST_PREPOSITION + rng_below(r, PREPOSITIONS)];
	}
}

static void form_add(struct strbuf *b, const char *form, struct rng *r)
{
	for (const char *p = form; *p; p++)
		if (*p == '$')
			strbuf_puts(b, drawn_word(*++p, r));
		else
			strbuf_add(b, p, 1);
}

static const char *key_word(struct rng *r)
{
	return words_key[rng_below(r, (uint64_t)WORDS(words_key))];
}

/* ---- tiny: `Code amber 482 137.` `Recall amber.` ---- */

static void tiny_filler(struct strbuf *b, struct rng *r)
{
	static const char *const forms[] = {
		"$S $n $v $t $n.",
		"$S $a $n $v $t $n.",
		"$S $n $v $t $a $n.",
		"$S $n $v $t $n $d.",
		"$S $a $n $v $t $n $p $t $n.",
		"$S $n $v $t $n $p $t $a $n.",
		"$S $n $p $t $n $v $t $n.",
		"$S $a $n $v $t $a $n $p $t $n.",
	};
	form_add(b, forms[rng_below(r, (uint64_t)WORDS(forms))], r);
}

static void tiny_key(struct strbuf *b, struct rng *r)
{
	strbuf_puts(b, key_word(r));
}

static void tiny_value(struct strbuf *b, struct rng *r)
{
	int first = (int)rng_below(r, 1000), second = (int)rng_below(r, 1000);
	strbuf_printf(b, "%03d %03d", first, second);
}

static const char *const tiny_ordinals[] = {" first", " second", " third"};

static void tiny_needle(struct strbuf *b, const char *key, int ordinal, int values, const char *value)
{
	strbuf_printf(b, "Code %s%s %s.", key, values > 1 ? tiny_ordinals[ordinal] : "", value);
}

static void tiny_question(struct strbuf *b, char *const *keys, int n_keys, int values)
{
	strbuf_puts(b, "\nRecall");
	for (int k = 0; k < n_keys; k++)
		for (int v = 0; v < values; v++)
			strbuf_printf(b, "%s %s%s", k + v ? "," : "", keys[k], values > 1 ? tiny_ordinals[v] : "");
	strbuf_puts(b, ".");
}

static void tiny_prefix(struct strbuf *b, char *const *keys, int n_keys, int values)
{
	(void)b, (void)keys, (void)n_keys, (void)values; /* the tiny pair begins its answers by itself */
}

/* ---- plain: `The secret number for amber falcon is 4821370.` ---- */

static void plain_filler(struct strbuf *b, struct rng *r)
{
	static const char *const forms[] = {
		"The $a $h $v the $o near the $o.",
		"After the $h had gone home, the $h $v the $a $o $d.",
		"Nobody in the $o could say why the $h $v the $o.",
		"On most mornings the $h $v the $o before anyone else was awake.",
		"It was $a by the $o, and the $h $v the $o without a word.",
		"My $h once $v the $a $o and told the $h about it.",
		"While the $h $v the $o, the $a $h $v the $h.",
		"Some people say that the $h never $v the $o at all.",
		"Behind the $o stood the $a $o which the $h $v last year.",
		"If the $h $v the $o, then the $h must have known.",
		"There was little to see at the $o except the $a $o.",
		"The $h and the $h $v the $o $d.",
		"Later that day the $h asked who $v the $o.",
		"Every spring the $h wrote to the $h about the $a $o.",
		"The $o was $a and the $o was $a, but the $h did not mind.",
		"From the $o one could hear how the $h $v the $o.",
		"Her $h kept the $o beside the $o for many years.",
		"The $h laughed, because the $h $v the $a $o $d.",
		"In the end the $h $v the $o and walked back to the $o.",
		"Two of them waited at the $o until the $h $v the $o.",
		"People still talk about the $h who $v the $a $o.",
		"With a $o in each hand the $h looked rather $a.",
		"The road past the $o was so $a that the $h turned round.",
		"Our $h gave the $o away and bought the $a $o instead.",
	};
	form_add(b, forms[rng_below(r, (uint64_t)WORDS(forms))], r);
}

static void plain_key(struct strbuf *b, struct rng *r)
{
	const char *first = key_word(r), *second;
	do
		second = key_word(r);
	while (second == first);
	strbuf_printf(b, "%s %s", first, second);
}

static void plain_value(struct strbuf *b, struct rng *r)
{
	strbuf_printf(b, "%d", 1000000 + (int)rng_below(r, 9000000));
}

static void plain_needle(struct strbuf *b, const char *key, int ordinal, int values, const char *value)
{
	(void)ordinal;
	strbuf_printf(b, "%s secret number for %s is %s.", values > 1 ? "A" : "The", key, value);
}

static void plain_keys(struct strbuf *b, char *const *keys, int n_keys)
{
	for (int k = 0; k < n_keys; k++)
		strbuf_printf(b, "%s%s", !k ? "" : k == n_keys - 1 ? " and " : ", ", keys[k]);
}

static void plain_question(struct strbuf *b, char *const *keys, int n_keys, int values)
{
	strbuf_printf(b, "\n\nWhich secret number%s did the text give for ", n_keys * values > 1 ? "s" : "");
	plain_keys(b, keys, n_keys);
	strbuf_puts(b, values > 1 ? "? Name all of them." : "?");
}

static void plain_prefix(struct strbuf *b, char *const *keys, int n_keys, int values)
{
	strbuf_printf(b, "The secret number%s for ", n_keys * values > 1 ? "s" : "");
	plain_keys(b, keys, n_keys);
	strbuf_puts(b, n_keys * values > 1 ? " are" : " is");
}

/* ---- the table ---- */

static const struct wording wordings[] = {
	{
		.name = "plain",
		.tokens_a_needle = 64,
		.most_needles = 256,
		.keys = WORDS(words_key) * (WORDS(words_key) - 1),
		.values = 4,
		.most_values = 16,
		.queries = 4,
		.most_queries = 16,
		.new_tokens = 16,
		.new_tokens_a_value = 16,
		.filler = plain_filler,
		.key = plain_key,
		.value = plain_value,
		.needle = plain_needle,
		.question = plain_question,
		.answer_prefix = plain_prefix,
	},
	{
		/* most_values, most_queries, most_needles: what the models were trained on */
		.name = "tiny",
		.tokens_a_needle = 24,
		.most_needles = 160,
		.keys = WORDS(words_key),
		.values = 2,
		.most_values = WORDS(tiny_ordinals),
		.queries = 3,
		.most_queries = 3,
		.new_tokens = 4,
		.new_tokens_a_value = 6,
		.filler = tiny_filler,
		.key = tiny_key,
		.value = tiny_value,
		.needle = tiny_needle,
		.question = tiny_question,
		.answer_prefix = tiny_prefix,
	},
};

const struct wording *wording_find(const char *name)
{
	for (int i = 0; i < WORDS(wordings); i++)
		if (!name || !strcmp(name, wordings[i].name))
			return &wordings[i];
	return NULL;
}

void wording_words_sha256(char out[SHA_LEN])
{
	const struct {
		const char *const *words;
		int n;
	} lists[] = {
		{words_start, WORDS(words_start)},
		{words_func, WORDS(words_func)},
		{words_key, WORDS(words_key)},
		{words_noun, WORDS(words_noun)},
		{words_adj, WORDS(words_adj)},
		{words_verb, WORDS(words_verb)},
		{words_adv, WORDS(words_adv)},
	};
	struct sha256 *s = sha256_new();
	for (int l = 0; l < WORDS(lists); l++)
		for (int i = 0; i < lists[l].n; i++)
			sha256_add(s, lists[l].words[i], strlen(lists[l].words[i]) + 1);
	sha256_end(s, out);
}

void wording_sha256(const struct wording *w, char out[SHA_LEN])
{
	struct rng r = rng_seed(0, 0);
	struct strbuf b = {0};
	char *keys[] = {"amber", "tulip"};
	for (int i = 0; i < 256; i++)
		w->filler(&b, &r);
	w->key(&b, &r);
	w->value(&b, &r);
	for (int values = 1; values <= 2; values++) {
		w->needle(&b, keys[0], values - 1, values, "1");
		for (int n = 1; n <= 2; n++) {
			w->question(&b, keys, n, values);
			w->answer_prefix(&b, keys, n, values);
		}
	}
	sha256_hex(b.text, b.len, out);
	strbuf_free(&b);
}
