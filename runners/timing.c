/* timing.c: time to first token of one variant: its true pipeline from an empty cache, sharing nothing with answers.
 *
 * Measured window: from token ids on the host to the first new token id on the host: prefill, scoring (a second pass included),
 * selection, physical compaction, the question's own prefill on the pruned cache, LM head of the first token. Outside: tokenising, the
 * answer's own cache, the release of the full one, later tokens. On a device with a clock of its own the parts are measured by that one too. Asking for the full cache's memory belongs to
 * prefill. Scoring that happens inside the prefill's layers counts as scoring. */
#include "runners/runner_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* compact(): the chosen rows in a cache of their own. NULL = out of memory. */
static struct kv *compact(struct runner *r, const struct kv *full, const struct kept *kept)
{
	const struct runner_info *info = &r->info;
	int n = info->layers * info->kv_heads;
	int64_t *cap = mem_new((size_t)n, sizeof *cap);
	for (int l = 0; l < info->layers; l++)
		for (int h = 0; h < info->kv_heads; h++)
			cap[l * info->kv_heads + h] = kept_len(kept, l, h);
	struct kv *kv = kv_new(r->device, info->layers, info->kv_heads, info->head_dim, cap);
	free(cap);
	for (int l = 0; kv && l < info->layers; l++)
		if (kv_gather(forward_queue(r->forward), kv, full, kept, l)) {
			kv_free(kv);
			return NULL;
		}
	queue_sync(forward_queue(r->forward));
	return kv;
}

/* The same parts by the device's clock: what lies inside the prefill is taken off it, the first token off the question. */
static void device_parts(struct runner *r, bool by_layer, struct runner_device_time *t)
{
	int64_t prefill = spans_ns(r, PART_PREFILL), question = spans_ns(r, PART_QUESTION);
	t->score_ns = spans_ns(r, PART_SCORE);
	t->select_ns = spans_ns(r, PART_SELECT);
	t->compact_ns = spans_ns(r, PART_COMPACT);
	t->first_token_ns = r->spans ? forward_head_device_ns(r->forward) : 0;
	int64_t inside = t->score_ns + (by_layer ? t->select_ns + t->compact_ns : 0);
	t->prefill_ns = prefill > inside ? prefill - inside : 0; /* a clock of half a microsecond */
	t->question_ns = question > t->first_token_ns ? question - t->first_token_ns : 0;
	t->ttft_ns = spans_ns(r, PART_WHOLE);
	if (!t->ttft_ns)
		*t = (struct runner_device_time){0}; /* no clock, or a mark that could not be made */
}

/* The time since `mark` into *ns; returns now. Parts are laps of one clock, so that nothing falls between two of them. */
static int64_t lap(int64_t mark, int64_t *ns)
{
	int64_t now = clock_ns();
	*ns = now - mark;
	return now;
}

static int question_run(struct runner *r, const struct kv *context, struct kv *tail, const struct ids *fed, int64_t pos0, int32_t *next, char err[ERR_LEN])
{
	struct forward_seq s = {fed->v, (int)fed->n, pos0, context, NULL, tail};
	return forward_run(r->forward, &s, 1, NULL, 0, next, NULL, err);
}

static int decode_run(struct runner *r, const struct kv *context, struct kv *tail, int64_t pos0, int32_t id, int n, char err[ERR_LEN])
{
	for (int i = 0; i < n; i++) {
		struct forward_seq s = {&id, 1, pos0 + i, context, NULL, tail};
		if (forward_run(r->forward, &s, 1, NULL, 0, &id, NULL, err))
			return -1;
	}
	return 0;
}

int runner_time(struct runner *r, const struct runner_job *job, int v, int decode_tokens, struct runner_timing *out, char err[ERR_LEN])
{
	struct prompt prompt = {0};
	struct prompt_question pq = {0};
	struct runner_job one = *job;
	struct session s = {0};
	struct view view = {0};
	struct kv *pruned = NULL, *tail = NULL;
	struct evicted early = {0};
	int64_t start, mark;
	int32_t next = -1;
	int flags = 0, rc = -1;
	one.variants = &job->variants[v];
	one.n_variants = 1;
	*out = (struct runner_timing){.decode_tokens = decode_tokens};
	if (prompt_make(r, &one, 0, &prompt, &pq, err))
		goto done;
	r->peak_bytes = runner_peak_bytes(r);
	device_peak_reset(r->device);
	if (r->proxy)
		device_peak_reset(r->proxy->device);
	if (!(tail = cache_new(r, (int64_t)pq.fed.n + decode_tokens + 1))) {
		err_set(err, "the answer's own cache: %s", device_error(r->device));
		goto done;
	}
	bool by_layer = evict_applies(&one);
	spans_start(r);
	start = clock_ns();
	int whole = span_begin(r, PART_WHOLE), span = span_begin(r, PART_PREFILL);
	if (by_layer ? evict_prefill(&early, r, &one, &prompt, err) : session_open(&s, r, &one, &prompt, NULL, err))
		goto done;
	span_end(r, span);
	mark = lap(start, &out->prefill_ns);
	out->score_ns = s.score_ns;
	for (int i = 0; i < s.n_scoring; i++)
		out->mapper_ns += s.scoring[i].mapper_ns;
	if (s.pass) {
		out->proxy_prefill_ns = proxy_pass_ns(s.pass);
		out->wait_ns = proxy_pass_wait_ns(s.pass);
	}
	out->prefill_ns -= s.score_ns;
	if (by_layer) {
		out->score_ns = early.score_ns;
		out->select_ns = early.select_ns;
		out->compact_ns = early.compact_ns;
		out->prefill_ns -= early.score_ns + early.select_ns + early.compact_ns;
	} else {
		span = span_begin(r, PART_SELECT);
		if (view_make(&view, &s, 0, one.variants->retained, &flags, err))
			goto done;
		span_end(r, span);
		mark = lap(mark, &out->select_ns);
	}
	if (view.kept) {
		span = span_begin(r, PART_COMPACT);
		if (!(pruned = compact(r, s.kv, view.kept))) {
			err_set(err, "compaction: %s", device_error(r->device));
			goto done;
		}
		span_end(r, span);
		mark = lap(mark, &out->compact_ns);
	}
	span = span_begin(r, PART_QUESTION);
	const struct kv *context = by_layer ? early.kv : pruned ? pruned : s.kv;
	int64_t pos0 = (int64_t)prompt.ids.n;
	if (question_run(r, context, tail, &pq.fed, pos0, &next, err))
		goto done;
	span_end(r, span);
	span_end(r, whole);
	mark = lap(mark, &out->question_ns);
	out->first_token_ns = forward_head_ns(r->forward);
	out->question_ns -= out->first_token_ns;
	out->ttft_ns = mark - start;
	device_parts(r, by_layer, &out->device);
	out->proxy_peak_bytes = s.pass ? device_peak_bytes(r->proxy->device) : 0;
	out->proxy_after_bytes = s.pass ? device_bytes(r->proxy->device) : 0;
	out->peak_bytes = device_peak_bytes(r->device) + out->proxy_peak_bytes;
	out->kv_bytes_before = kv_bytes_for(r->device, r->info.head_dim, (int64_t)prompt.ids.n * r->info.layers * r->info.kv_heads);
	out->kv_bytes_after = kv_bytes(context);
	out->kept_total = by_layer ? early.kept_total : view.kept_total;
	out->context_tokens = prompt.context;
	out->prefill_flops = model_prefill_flops(forward_config(r->forward), (double)prompt.ids.n);
	out->second_pass_ns = s.second_pass_ns;
	for (int i = 0; i < s.n_scoring; i++)
		out->second_pass_flops += s.scorer[i]->flops ? s.scorer[i]->flops(&s.scoring[i]) : 0;
	kv_truncate(tail, 0);
	mark = clock_ns();
	if (question_run(r, context, tail, &pq.fed, pos0, &next, err))
		goto done;
	mark = lap(mark, &out->second_ttft_ns);
	if (decode_run(r, context, tail, pos0 + (int64_t)pq.fed.n, next, decode_tokens, err))
		goto done;
	lap(mark, &out->decode_ns);
	rc = 0;
done:
	spans_stop(r);
	kv_free(tail);
	kv_free(pruned);
	view_free(&view);
	evict_free(&early);
	session_close(&s);
	prompt_question_free(&pq);
	prompt_free(&prompt);
	return rc;
}

double peak_flops(const struct device *d, const struct device_peaks *p)
{
	return device_is_bf16(d) && p->dot_bf16 > p->fma_f32 ? p->dot_bf16 : p->fma_f32;
}

struct device_peaks peaks_best(struct device *d)
{
	enum { ROUNDS = 3 };
	struct device_peaks best = {0}, p;
	for (int i = 0; i < ROUNDS; i++) {
		device_peaks(d, &p);
		best.fma_f32 = fmax(best.fma_f32, p.fma_f32);
		best.dot_bf16 = fmax(best.dot_bf16, p.dot_bf16);
		best.read_bytes = fmax(best.read_bytes, p.read_bytes);
	}
	return best;
}

double runner_peak_flops(struct runner *r)
{
	if (!strncmp(r->info.topology, "emulated", 8))
		return 0; /* there are hours in one product of its size */
	struct device_peaks p = peaks_best(r->device);
	return peak_flops(r->device, &p);
}
