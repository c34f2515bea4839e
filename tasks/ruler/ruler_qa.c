/* ruler_qa.c: questions over documents: those which hold the answer, others of the same article, then any, in shuffled order.
 *
 * Row i asks question i. Where more documents are wanted than there are, the present release repeats them all. The release of
 * 2024 shuffled its own list of documents in place at that point, so that later rows saw another order: not imitated. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/ruler/ruler.h"

static bool holds(const int *list, int n, int document)
{
	for (int i = 0; i < n; i++)
		if (list[i] == document)
			return true;
	return false;
}

/* `wanted` other documents, drawn from all that are neither gold nor of the same article. */
static void others_draw(struct ruler *r, const struct ruler_qa *q, int wanted, int *out)
{
	int n = 0, *from = mem_new((size_t)r->assets.docs.n_docs, sizeof(*from));
	for (int i = 0; i < r->assets.docs.n_docs; i++)
		if (!holds(q->gold, q->n_gold, i) && !holds(q->more, q->n_more, i))
			from[n++] = i;
	wanted = wanted < n ? wanted : n;
	python_sample(&r->random.python, n, wanted, out);
	for (int i = 0; i < wanted; i++)
		out[i] = from[out[i]];
	free(from);
}

/* Fills `size` documents, gold ones first; 1 = upstream stumbles (fewer than the gold ones). */
static int documents_choose(struct ruler *r, const struct ruler_qa *q, int size, int *out)
{
	int n_docs = r->assets.docs.n_docs, rest = size - q->n_gold, n = q->n_gold;
	if (size >= n_docs) {
		for (int i = 0; i < size; i++)
			out[i] = i % n_docs;
		return 0;
	}
	if (rest < 0)
		return 1;
	memcpy(out, q->gold, (size_t)n * sizeof(*out));
	if (rest > q->n_more) {
		if (q->n_more)
			memcpy(out + n, q->more, (size_t)q->n_more * sizeof(*out));
		others_draw(r, q, rest - q->n_more, out + n + q->n_more);
		return 0;
	}
	python_sample(&r->random.python, q->n_more, rest, out + n);
	for (int i = n; i < size; i++)
		out[i] = q->more[out[i]];
	return 0;
}

/* The documents in shuffled order; *gold_at = where the first of them with the answer begins. */
static char *context_write(const struct ruler *r, const struct ruler_qa *q, const int *documents, int n, size_t *gold_at)
{
	struct strbuf b = {0};
	int *order = ruler_shuffled(r, n);
	*gold_at = SIZE_MAX;
	for (int i = 0; i < n; i++) {
		char number[16];
		snprintf(number, sizeof(number), "%d", i + 1);
		const struct ruler_value values[] = {{"i", number}, {"document", r->assets.docs.docs[documents[order[i]]]}};
		strbuf_puts(&b, i ? "\n\n" : "");
		if (*gold_at == SIZE_MAX && holds(q->gold, q->n_gold, documents[order[i]]))
			*gold_at = b.len;
		ruler_fill(&b, r->assets.template.document, values, 2);
	}
	free(order);
	return strbuf_take(&b);
}

static int qa_write(struct ruler *r, struct ruler_draft *d, int index, int64_t size, bool final, char err[ERR_LEN])
{
	const struct ruler_qa *q = &r->assets.docs.qas[index];
	const struct ruler_value values[] = {{"query", q->query}};
	size_t gold_at;
	int *documents = mem_new((size_t)size + (size_t)q->n_gold, sizeof(*documents));
	(void) final, (void)err;
	int rc = documents_choose(r, q, (int)size, documents);
	if (!rc) {
		char *context = context_write(r, q, documents, (int)size, &gold_at);
		ruler_draft_prompt(d, &r->assets.template, context, values, 1);
		d->needle_at = gold_at == SIZE_MAX ? gold_at : d->context_at + gold_at;
		for (int i = 0; i < q->n_answers; i++)
			ruler_draft_answer(d, q->answers[i]);
		free(context);
	}
	free(documents);
	return rc;
}

static int64_t qa_step(const struct ruler *r)
{
	(void)r;
	return 10;
}

static int64_t qa_least(const struct ruler *r)
{
	return r->assets.docs.n_qas ? r->assets.docs.qas[0].n_gold : 1;
}

static int64_t qa_most(const struct ruler *r)
{
	return r->oct2024 ? r->assets.docs.n_docs : INT64_MAX;
}

const struct ruler_family ruler_qa = {
	.key = "qa",
	.unit = "documents",
	.metric = "string_match_part",
	.new_tokens = 32,
	.step = qa_step,
	.least = qa_least,
	.most = qa_most,
	.write = qa_write,
	.counted = ruler_python_list,
	.fit = ruler_fit_upstream,
	.row = ruler_row_upstream,
};
