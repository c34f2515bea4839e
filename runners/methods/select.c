/* select.c: from scores and a ratio to index lists: the count, the protected entries, the allocator, the top-k.
 *
 * Rules (spec/methods.md 1.5-1.8, decisions 1 and 3): protected entries are taken out of the ranking, never given a large score;
 * every exact allocator's sum is asserted; a budget below the protected part keeps its last entries and says so; rows that are
 * not more than the protected part are all kept and say so. */
#include "runners/methods/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double evicted_share(double retained)
{
	enum { PPM = 1000000 };
	double exact = 1 - retained, written = rint(exact * PPM) / PPM;
	return fabs(written - exact) < 1e-12 ? written : exact;
}

int64_t keep_count(int64_t n, double retained, const char *compat)
{
	if (retained >= 1)
		return n;
	double keep;
	if (strcmp(compat, "kvpress") == 0)
		keep = fmax(1, trunc((double)n * (1 - evicted_share(retained))));
	else if (strcmp(compat, "kvzip") == 0)
		keep = trunc((double)n * retained);
	else if (strcmp(compat, "factory") == 0)
		keep = rint((double)n * retained); /* Python's round: halves to even */
	else
		keep = fmax(1, floor((double)n * retained + 1e-9));
	return keep < n ? (int64_t)keep : n;
}

void prompt_shape_for(const struct plan_method *m, int64_t prefix, int64_t context, int64_t after, struct prompt_shape *out)
{
	bool all = strcmp(param_compat(m->params), "kvpress") == 0; /* a press sees one prompt, template head included */
	*out = (struct prompt_shape){.prefix = prefix,
		.context = context,
		.after = after,
		.first = all ? 0 : prefix,
		.count = all ? prefix + context + after : context};
}

int method_budgets(int64_t *budget, const struct plan_method *m, const struct scoring *s, double retained,
	struct protection *protect, int *flags, char err[ERR_LEN])
{
	const char *compat = param_compat(m->params);
	int heads = s->layers * s->kv_heads;
	int64_t n = s->shape.count, keep = keep_count(n, retained, compat);
	*flags = 0;
	*protect = m->scorer && m->scorer->protect ? m->scorer->protect(s, keep) : (struct protection){0};
	int64_t held = protect->first + protect->last;
	bool shared = strcmp(compat, "kvpress") == 0 && retained < 1; /* of one row a ranking over heads evicts some all the same */
	if (!m->scorer || held >= n || (keep >= n && !shared)) {
		for (int i = 0; i < heads; i++)
			budget[i] = n;
		*flags = m->scorer && retained < 1 ? SELECT_ALL_KEPT : 0;
		return 0;
	}
	if (keep < held && !m->allocator->any_keep) {
		for (int i = 0; i < heads; i++)
			budget[i] = keep;
		return 0;
	}
	struct allocation a = {.layers = s->layers,
		.kv_heads = s->kv_heads,
		.n = n,
		.keep = keep,
		.scores = s->scores,
		.protect = *protect,
		.params = m->params,
		.retained = retained,
		.device = s->forward ? forward_device(s->forward) : NULL,
		.scoring = s,
		.budget = budget};
	if (m->allocator->allocate(&a, err))
		return -1;
	int64_t sum = 0;
	for (int i = 0; i < heads; i++) {
		if (budget[i] < 0 || budget[i] > n)
			return err_set(err, "allocator %s: head %d has a budget of %lld of %lld entries", m->allocator->name, i,
				(long long)budget[i], (long long)n);
		sum += budget[i];
	}
	if (m->allocator->exact && strcmp(compat, "none") == 0 && sum != keep * heads)
		return err_set(err, "allocator %s: budgets add up to %lld, not %lld", m->allocator->name, (long long)sum,
			(long long)(keep * heads));
	*flags = sum == n * heads ? SELECT_ALL_KEPT : 0;
	return 0;
}

struct select_task {
	const struct scoring *s;
	struct selection *out;
	struct protection protect;
	int64_t *nan; /* [heads] */
	bool ranked;  /* the device has written what is free of each list, counted from the first free entry */
};

/* Entries of a head's list that its scores decide; none when it keeps all or cannot even hold what is protected. */
static int64_t free_of(const struct select_task *t, int64_t head)
{
	int64_t budget = t->out->len[head], rest = budget - t->protect.first - t->protect.last;
	return budget == t->s->shape.count || rest < 0 ? 0 : rest;
}

/* On the device, a layer at a time: what is read back stays small. */
static int rank_resident(struct select_task *t, const struct tensor *scores, char err[ERR_LEN])
{
	const struct scoring *s = t->s;
	int64_t first = t->protect.first, len = s->shape.count - first - t->protect.last;
	int64_t *k = mem_new((size_t)s->kv_heads, sizeof(*k));
	int32_t **out = mem_new((size_t)s->kv_heads, sizeof(*out));
	int rc = 0;
	for (int l = 0; l < s->layers && rc == 0; l++) {
		int64_t head0 = (int64_t)l * s->kv_heads;
		for (int h = 0; h < s->kv_heads; h++) {
			k[h] = free_of(t, head0 + h);
			out[h] = t->out->index[head0 + h] + (k[h] ? first : 0);
		}
		if (op_topk(forward_queue(s->forward), scores, head0, s->kv_heads, first, len, k, out, t->nan + head0))
			rc = err_set(err, "ranking scores, layer %d: %s", l, device_error(forward_device(s->forward)));
	}
	t->ranked = true;
	free(k);
	free(out);
	return rc;
}

static void select_head(void *arg, int64_t i)
{
	struct select_task *t = arg;
	int64_t n = t->s->shape.count, first = t->protect.first, last = t->protect.last, budget = t->out->len[i];
	int32_t *index = t->out->index[i];
	const float *scores = t->s->scores ? t->s->scores + i * n : NULL;
	int64_t free_rows = budget - first - last;
	if (budget == n) {
		t->nan[i] = 0;
		for (int64_t j = 0; j < n; j++) {
			index[j] = (int32_t)j;
			t->nan[i] += scores && scores[j] != scores[j];
		}
	} else if (free_rows < 0) {
		t->nan[i] = 0;
		last = last < budget ? last : budget;
		first = budget - last;
		for (int64_t j = 0; j < first; j++)
			index[j] = (int32_t)j;
		for (int64_t j = 0; j < last; j++)
			index[first + j] = (int32_t)(n - last + j);
	} else {
		for (int64_t j = 0; j < first; j++)
			index[j] = (int32_t)j;
		if (!t->ranked)
			t->nan[i] = top_k(scores + first, n - first - last, free_rows, index + first);
		for (int64_t j = first; j < first + free_rows; j++)
			index[j] += (int32_t)first;
		for (int64_t j = 0; j < last; j++)
			index[first + free_rows + j] = (int32_t)(n - last + j);
	}
	for (int64_t j = 0; j < budget; j++)
		index[j] += (int32_t)t->s->shape.first;
}

int selection_make(struct selection *out, const struct scoring *s, const int64_t *budget, struct protection protect, char err[ERR_LEN])
{
	int heads = s->layers * s->kv_heads;
	int64_t *nan = mem_new((size_t)heads + 1, sizeof(*nan));
	struct select_task task = {.s = s, .out = out, .protect = protect, .nan = nan};
	*out = (struct selection){.layers = s->layers, .kv_heads = s->kv_heads};
	for (int i = 0; i < heads; i++) {
		out->total += budget[i];
		if (budget[i] < s->shape.count && budget[i] < protect.first + protect.last)
			out->flags |= SELECT_WINDOW_CUT;
	}
	int32_t *block = malloc(((size_t)out->total + 1) * sizeof(*block));
	if (!block) {
		free(nan);
		return err_set(err, "out of memory: index lists of %lld entries", (long long)out->total);
	}
	out->len = mem_new((size_t)heads + 1, sizeof(*out->len));
	out->index = mem_new((size_t)heads + 1, sizeof(*out->index));
	for (int i = 0; i < heads; i++) {
		out->index[i] = block;
		out->len[i] = (int32_t)budget[i];
		block += budget[i];
	}
	const struct tensor *resident = scores_resident(s);
	int rc = resident && protect.first + protect.last <= s->shape.count ? rank_resident(&task, resident, err) : 0;
	if (rc == 0)
		each(s, heads, select_head, &task);
	for (int i = 0; i < heads; i++)
		out->nan_scores += nan[i];
	free(nan);
	return rc;
}

int method_select(struct selection *out, const struct plan_method *m, const struct scoring *s, double retained, char err[ERR_LEN])
{
	int64_t *budget = mem_new((size_t)(s->layers * s->kv_heads) + 1, sizeof(*budget));
	struct protection protect;
	int flags = 0, rc = -1;
	*out = (struct selection){.layers = s->layers, .kv_heads = s->kv_heads};
	if (!(retained > 0 && retained <= 1))
		err_set(err, "a retained share of %g is not in (0, 1]", retained);
	else if (!method_budgets(budget, m, s, retained, &protect, &flags, err))
		rc = selection_make(out, s, budget, protect, err);
	out->flags |= flags;
	free(budget);
	return rc;
}

void selection_free(struct selection *s)
{
	if (s->index)
		free(s->index[0]);
	free(s->index);
	free(s->len);
	*s = (struct selection){0};
}
