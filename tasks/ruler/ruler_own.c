/* ruler_own.c: the 13 tasks in our own words: nothing to fetch, any length from 512 tokens, any row made alone.
 *
 * The same families as upstream's over other assets: words, filler and wording of the NIAH tasks, prompts below, and a small
 * world of people for the questions (everyone lives near something and works for someone: qa_1 asks for the one, qa_2 for what
 * the employer lives near). Scores are not to be compared with upstream's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/niah_words.h"
#include "tasks/niah_wording.h"
#include "tasks/ruler/ruler.h"

static const char own_noise[] =
	"Rain falls on the hills. The river runs to the sea. A bird sings at dawn. We walk on. The road goes round.";

static const struct own_template {
	const struct ruler_family *family;
	const char *prompt, *answer_prefix, *needle, *noise, *document;
	int new_tokens;
} templates[] = {
	{&ruler_niah,
		"Some hidden {type_needle_v} stand in the text below. Remember what you read: a question "
		"follows.\n\n{context}\n\n"
		"What are all the hidden {type_needle_v} of {query} in the text?",
		" The hidden {type_needle_v} of {query} in the text are", "Among the hidden {type_needle_v}, {key} has {value}.",
		own_noise, NULL, 128},
	{&ruler_vt,
		"In the text below variables get values, from a number or from one another.\n\n{context}\n\n"
		"Which variables hold the value {query} in the end?",
		" In the end {num_v} variables hold the value {query}:", NULL, own_noise, NULL, 40},
	{&ruler_cwe,
		"Below stands a numbered list of words. {num_cw} words come up far more often than all others.\n\n{context}\n\n"
		"Which {num_cw} words come up most often in the list?",
		" The {num_cw} words that come up most often:", NULL, NULL, NULL, 120},
	{&ruler_fwe,
		"Below stands a text in made-up words; dots between them mean nothing.\n\n{context}\n\n"
		"Which three made-up words come up most often? Name only the words.",
		" The three words that come up most often:", NULL, NULL, NULL, 50},
	{&ruler_qa,
		"Read these notes about people.\n\n{context}\n\n"
		"Answer from the notes, in a few words. Question: {query}",
		" Answer:", NULL, NULL, "Note {i}\n{document}", 32},
};

static void template_take(struct ruler *r)
{
	const struct own_template *t = templates;
	while (t->family != r->config->family)
		t++;
	r->assets.template = (struct ruler_template){text_copy(t->prompt), text_copy(t->answer_prefix), text_copy(t->needle),
		text_copy(t->noise), text_copy(t->document), t->new_tokens};
}

/* ---- words and essay ---- */

static void pairs_take(struct ruler_assets *a)
{
	for (int i = 0; i < WORDS(words_adj); i++)
		ruler_words_add(&a->adjectives, words_adj[i]);
	for (int i = 0; i < WORDS(words_noun); i++)
		ruler_words_add(&a->nouns, words_noun[i]);
	ruler_words_sort(&a->adjectives);
	ruler_words_sort(&a->nouns);
	ruler_pairs_make(&a->pairs, &a->adjectives, &a->nouns);
}

/* Two nouns as one word: some 13,000. */
static void compounds_take(struct ruler_words *w)
{
	struct strbuf b = {0};
	for (int i = 0; i < WORDS(words_noun); i++)
		for (int k = 0; k < WORDS(words_noun); k++) {
			strbuf_puts(&b, words_noun[i]);
			strbuf_add(&b, words_noun[k], strlen(words_noun[k]) + 1);
		}
	w->text = b.text;
	for (const char *p = b.text; p < b.text + b.len; p += strlen(p) + 1)
		ruler_words_add(w, p);
	ruler_words_sort(w);
}

/* Filler sentences, a word more for each token of the length, so that the essay is never repeated. */
static void essay_take(struct ruler *r)
{
	struct strbuf b = {0};
	struct rng rng = rng_seed(r->seed, 0);
	for (int64_t words = 0; words <= r->rq->length_tokens;) {
		size_t from = b.len;
		strbuf_puts(&b, from ? " " : "");
		wording_find("plain")->filler(&b, &rng);
		for (size_t i = from; i < b.len; i++)
			words += b.text[i] == ' ';
	}
	ruler_essay_make(&r->assets.essay, b.text);
	strbuf_free(&b);
}

/* ---- people ---- */

static void person(int i, char name[64])
{
	snprintf(name, 64, "%s %s", words_adj[i % WORDS(words_adj)], words_noun[i / WORDS(words_adj)]);
}

static void thing(struct rng *rng, char name[64])
{
	int n = WORDS(words_noun) - N_PEOPLE;
	snprintf(name, 64, "%s %s", words_adj[rng_below(rng, (uint64_t)WORDS(words_adj))],
		words_noun[N_PEOPLE + rng_below(rng, (uint64_t)n)]);
}

static char *document_write(const char *who, const char *near, const char *employer, struct rng *rng)
{
	const struct wording *w = wording_find("plain");
	struct strbuf b = {0};
	strbuf_printf(&b, "The %s lives near the %s. ", who, near);
	w->filler(&b, rng);
	strbuf_printf(&b, " The %s works for the %s. ", who, employer);
	w->filler(&b, rng);
	return strbuf_take(&b);
}

/* Everyone's employer is the next in a shuffled round. */
static void people_take(struct ruler *r)
{
	enum { PEOPLE = WORDS(words_adj) * N_PEOPLE, TOKENS_A_NOTE = 30 };
	int64_t wanted = 64 + r->rq->length_tokens / TOKENS_A_NOTE;
	int n = wanted < PEOPLE ? (int)wanted : PEOPLE, *round = ruler_shuffled(r, PEOPLE);
	struct ruler_docs *d = &r->assets.docs;
	struct rng rng = rng_seed(r->seed, 0);
	char who[64], employer[64], (*near)[64] = mem_new((size_t)n, sizeof(*near));
	bool two_steps = r->config->documents == DOCUMENTS_HOTPOT;
	d->docs = mem_new((size_t)n, sizeof(*d->docs));
	for (int i = 0; i < n; i++)
		thing(&rng, near[i]);
	for (int i = 0; i < n; i++) {
		int next = (i + 1) % n;
		person(round[i], who);
		person(round[next], employer);
		d->docs[d->n_docs++] = document_write(who, near[i], employer, &rng);
		char *query = text_format("What does %s the %s live near?", two_steps ? "the employer of" : "", who);
		struct ruler_qa *q = ruler_qa_add(d, query);
		ruler_qa_answer(q, near[two_steps ? next : i]);
		ruler_list_add(&q->gold, &q->n_gold, i);
		if (two_steps)
			ruler_list_add(&q->gold, &q->n_gold, next);
		q->query = ruler_replace(q->query, "  ", " ");
		free(query);
	}
	free(round);
	free(near);
}

/* ---- the generator ---- */

static void assets_take(struct ruler *r)
{
	const struct ruler_family *family = r->config->family;
	template_take(r);
	if (family == &ruler_niah)
		pairs_take(&r->assets);
	if (family == &ruler_niah && r->config->haystack == HAYSTACK_ESSAY)
		essay_take(r);
	if (family == &ruler_cwe)
		compounds_take(&r->assets.words);
	if (family == &ruler_qa)
		people_take(r);
}

static int own_open(struct task *t, struct ruler *r, char err[ERR_LEN])
{
	if (t->rq.path || t->rq.release)
		return err_set(err, "%s: generator 'own' takes neither path nor release", r->config->name);
	r->seed = t->rq.seed;
	r->budget -= t->rq.head_tokens + t->rq.tail_tokens;
	assets_take(r);
	wording_words_sha256(t->identity.data_sha256);
	ruler_template_sha256(&r->assets.template, t->identity.template_sha256);
	t->identity.variant = "own";
	t->identity.version = RULER_OWN_VERSION;
	r->new_tokens = t->rq.max_new_tokens ? t->rq.max_new_tokens : r->assets.template.new_tokens;
	const uint32_t seed = (uint32_t)r->seed;
	r->random = (struct ruler_state){twister_python(&seed, 1), twister_numpy(seed)};
	if ((r->config->family->prepare_own && r->config->family->prepare_own(r, err)) || ruler_fit_own(r, err))
		return -1;
	int most = r->assets.docs.n_qas ? r->assets.docs.n_qas : INT32_MAX;
	t->contexts = t->rq.contexts ? t->rq.contexts : RULER_OWN_ROWS;
	t->contexts = t->contexts < most ? t->contexts : most;
	return 0;
}

const struct ruler_generator ruler_generator_own = {"own", "our words, nothing to fetch", own_open, ruler_row_own};
