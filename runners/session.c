/* session.c: one context prefilled once, scored once by each distinct scorer; then every variant is a choice of entries.
 *
 * Owns the full cache and the scores for the life of a session. State is new for every context: nothing of one sample can reach
 * the next. Time inside a scorer's observer is counted as scoring, not as prefill. */
#include "runners/runner_impl.h"

#include <stdlib.h>
#include <string.h>

/* One scorer's observer, with the clock beside it. */
struct watched {
	struct session *s;
	int scoring;
};

struct shortage failure_oom(const struct runner *r, const char *message)
{
	const struct device *d[2] = {r->device, r->proxy ? r->proxy->device : NULL};
	struct shortage lack = {0, -1};
	for (int i = 0; i < 2 && !lack.bytes; i++)
		if (d[i] && strstr(message, device_error(d[i])) && device_oom(d[i], &lack.bytes))
			lack.free_bytes = device_oom_free(d[i]);
	return lack;
}

/* A scorer's failure: its sentence, and what was asked for when a device ran out of memory. */
static void scoring_failed(struct session *s, int i, const char *what)
{
	if (!s->scoring_error[i][0])
		err_set(s->scoring_error[i], "%s could not %s", s->scorer[i]->name, what);
	s->scoring_oom[i] = failure_oom(s->r, s->scoring_error[i]);
}

/* Time that went into scorer i. */
static void add_scoring(struct session *s, int i, int64_t ns)
{
	s->score_ns += ns;
	s->scoring_ns[i] += ns;
}

static int watched_layer(void *user, const struct layer_rows *rows, char err[ERR_LEN])
{
	struct watched *w = user;
	struct session *s = w->s;
	if (s->scoring_error[w->scoring][0])
		return 0; /* it failed on an earlier layer; the other scorers go on */
	int64_t start = clock_ns();
	int span = span_begin(s->r, PART_SCORE);
	if (s->scorer[w->scoring]->observe(&s->scoring[w->scoring], rows, s->scoring_error[w->scoring]))
		scoring_failed(s, w->scoring, "observe the prefill");
	span_end(s->r, span);
	add_scoring(s, w->scoring, clock_ns() - start);
	(void)err;
	return 0;
}

static void methods_resolve(struct session *s, const struct runner_job *job)
{
	s->n_methods = job->n_variants;
	s->method = mem_new((size_t)s->n_methods, sizeof *s->method);
	s->scoring_of = mem_new((size_t)s->n_methods, sizeof *s->scoring_of);
	s->scoring = mem_new((size_t)s->n_methods, sizeof *s->scoring);
	s->scorer = mem_new((size_t)s->n_methods, sizeof *s->scorer);
	s->scoring_ns = mem_new((size_t)s->n_methods, sizeof *s->scoring_ns);
	s->scoring_error = mem_new((size_t)s->n_methods, sizeof *s->scoring_error);
	s->scoring_oom = mem_new((size_t)s->n_methods, sizeof *s->scoring_oom);
}

/* Gives variant v its scoring: an earlier one with the same scorer and parameters, or a new one. */
static void scoring_share(struct session *s, const struct runner_job *job, int v, const struct prompt *p)
{
	const struct plan_method *m = &s->method[v];
	if (!m->scorer) {
		s->scoring_of[v] = -1;
		return;
	}
	for (int u = 0; u < v; u++)
		if (s->scoring_of[u] >= 0 && method_same_scores(&s->method[u], m)) {
			s->scoring_of[v] = s->scoring_of[u];
			return;
		}
	struct scoring *g = &s->scoring[s->n_scoring];
	struct runner *r = s->r;
	*g = (struct scoring){.forward = r->forward, .kv = s->kv, .ids = p->ids.v, .repeat = &s->repeat, .params = m->params,
		.model_sha256 = r->info.model_sha256, .proxy_sha256 = r->info.proxy_sha256, .context_sha256 = s->context_sha256,
		.calibration_folder = r->calibration_folder, .weights = r->weights, .rank_there = true, .stop = job->stop,
		.stop_user = job->user, .layers = r->info.layers, .kv_heads = r->info.kv_heads};
	prompt_shape_for(m, p->prefix, p->context, p->after, &g->shape);
	char hex[SHA_LEN];
	sha256_hex(p->ids.v, p->ids.n * sizeof *p->ids.v, hex);
	hex[16] = 0;
	g->seed = strtoull(hex, NULL, 16); /* random scores differ by sample, never by run */
	if (m->scorer->needs_proxy && r->proxy && !s->pass)
		s->pass = proxy_pass_new(r->proxy, p->ids.v, p->prefix + p->context, p->prefix, p->context);
	g->proxy = s->pass;
	s->scorer[s->n_scoring] = m->scorer;
	s->scoring_of[v] = s->n_scoring++;
}

static int64_t cache_rows(const struct runner *r, int64_t tokens)
{
	return tokens * r->info.layers * r->info.kv_heads;
}

struct kv *cache_uniform(struct device *d, int layers, int kv_heads, int head_dim, int64_t tokens)
{
	int n = layers * kv_heads;
	int64_t *cap = mem_new((size_t)n, sizeof *cap);
	for (int i = 0; i < n; i++)
		cap[i] = tokens;
	struct kv *kv = kv_new(d, layers, kv_heads, head_dim, cap);
	free(cap);
	return kv;
}

struct kv *cache_new(const struct runner *r, int64_t tokens)
{
	return cache_uniform(r->device, r->info.layers, r->info.kv_heads, r->info.head_dim, tokens);
}

static int scores_begin(struct session *s, char err[ERR_LEN])
{
	for (int i = 0; i < s->n_scoring; i++) {
		struct scoring *g = &s->scoring[i];
		size_t n = (size_t)cache_rows(s->r, g->shape.count);
		g->kv = s->kv;
		if (!(g->scores = calloc(n ? n : 1, sizeof(float)))) {
			s->oom = (struct shortage){(int64_t)(n * sizeof(float)), machine_memory_free()};
			return err_set(err, "out of memory: asked for %lld bytes of scores on the host, %lld free there", (long long)s->oom.bytes,
				(long long)s->oom.free_bytes);
		}
		if (s->scorer[i]->begin && s->scorer[i]->begin(g, s->scoring_error[i]))
			scoring_failed(s, i, "begin");
	}
	return 0;
}

/* Between two chunks of a prefill: says how far it is, asks whether to stop. */
struct poll {
	const struct runner_job *job;
	int64_t done, total, chunk;
};

static bool prefill_poll(void *user)
{
	struct poll *p = user;
	if (p->job->progress)
		p->job->progress(p->job->user, "prefill", p->done, p->total);
	p->done += p->chunk;
	return p->job->stop && p->job->stop(p->job->user);
}

static int session_prefill(struct session *s, const struct runner_job *job, char err[ERR_LEN])
{
	struct observer *obs = mem_new((size_t)s->n_scoring + 1, sizeof *obs);
	struct watched *watched = mem_new((size_t)s->n_scoring + 1, sizeof *watched);
	int n = 0;
	for (int i = 0; i < s->n_scoring; i++) {
		const struct scorer *sc = s->scorer[i];
		watched[i] = (struct watched){s, i};
		if (sc->observe && !s->scoring_error[i][0])
			obs[n++] = (struct observer){sc->observes, sc->first_pos ? sc->first_pos(&s->scoring[i]) : 0, watched_layer, &watched[i],
				sc->layers ? sc->layers(&s->scoring[i]) : 0};
	}
	struct poll poll = {job, 0, (int64_t)s->prompt->ids.n, forward_max_rows(s->r->forward)};
	int64_t start = clock_ns(), scored = s->score_ns;
	int rc = forward_prefill(s->r->forward, s->prompt->ids.v, poll.total, s->kv, obs, n, NULL, NULL, prefill_poll, &poll, err);
	s->prefill_ns = clock_ns() - start - (s->score_ns - scored);
	s->r->counters.prefills++;
	s->r->counters.prefill_tokens += (int64_t)s->prompt->ids.n;
	s->r->counters.prefill_ns += s->prefill_ns;
	free(obs);
	free(watched);
	return rc;
}

/* Beside the target's prefill the proxy has threads of its own; in turn it runs in proxy_end. */
static int proxy_begin(struct session *s, char err[ERR_LEN])
{
	const struct proxy *p = s->r->proxy;
	if (!s->pass || !proxy_pass_wanted(s->pass))
		return 0;
	if (p->overlapped)
		device_use_threads(s->r->device, device_threads(s->r->device) - p->threads);
	return proxy_pass_start(s->pass, err);
}

/* 1 = stopped. What went wrong in the proxy is told by the scorers that need it. */
static int proxy_end(struct session *s, const struct runner_job *job)
{
	char err[ERR_LEN];
	if (!s->pass || !proxy_pass_wanted(s->pass))
		return 0;
	int64_t start = clock_ns();
	if (job->progress)
		job->progress(job->user, "proxy", 0, 1);
	int rc = proxy_pass_finish(s->pass, job->stop, job->user, err);
	device_use_threads(s->r->device, 0);
	s->r->counters.proxy_passes++;
	s->proxy_ns = clock_ns() - start;
	s->score_ns += s->proxy_ns;
	return rc == 1;
}

/* 1 = stopped; a scorer that fails leaves its sentence and the others go on. */
static int session_score(struct session *s, const struct runner_job *job)
{
	int span = span_begin(s->r, PART_SCORE);
	if (proxy_end(s, job))
		return 1;
	for (int i = 0; i < s->n_scoring; i++) {
		int64_t start = clock_ns();
		if (job->progress)
			job->progress(job->user, s->scorer[i]->name, i, s->n_scoring);
		int rc = !s->scoring_error[i][0] && s->scorer[i]->finish ? s->scorer[i]->finish(&s->scoring[i], s->scoring_error[i]) : 0;
		if (rc == 1)
			return 1;
		if (rc)
			scoring_failed(s, i, "finish");
		s->r->counters.scorer_passes++;
		int64_t took = clock_ns() - start;
		add_scoring(s, i, took);
		s->second_pass_ns += s->scorer[i]->flops ? took : 0;
	}
	span_end(s->r, span);
	return 0;
}

/* Cache, scores and views of the prompt, the target's. */
static int64_t session_bytes(const struct session *s)
{
	const struct runner_info *i = &s->r->info;
	int64_t tokens = (int64_t)s->prompt->ids.n, bytes = kv_device_bytes_for(s->r->device, i->layers, i->kv_heads, i->head_dim, tokens);
	for (int g = 0; g < s->n_scoring; g++)
		bytes += scorer_bytes(s->scorer[g], &s->scoring[g]);
	return bytes + cache_rows(s->r, tokens) * (int64_t)sizeof(int32_t) * s->n_methods;
}

/* Whether what the session needs fits beside what there was. */
static int session_check(struct session *s, char err[ERR_LEN])
{
	if (s->need <= s->left)
		return 0;
	s->oom = (struct shortage){s->need, s->left > 0 ? s->left : 0};
	return err_set(err, "a context of %zu tokens needs %lld bytes for cache, scores and views; %lld are free", s->prompt->ids.n, (long long)s->need,
		(long long)s->oom.free_bytes);
}

/* The device keeps a block for what the target needs. */
static int session_fits(struct session *s, char err[ERR_LEN])
{
	s->need = session_bytes(s);
	s->left = s->r->info.memory_limit_bytes - runner_bytes(s->r);
	device_reserve(s->r->device, s->need + s->need / 8); /* an eighth for what lives beside it: tails, lists */
	return session_check(s, err);
}

/* The proxy's part, once its scorers have said what they want of it. */
static int proxy_fits(struct session *s, char err[ERR_LEN])
{
	s->need += s->pass ? proxy_pass_bytes(s->pass) : 0;
	return session_check(s, err);
}

int session_open(struct session *s, struct runner *r, const struct runner_job *job, const struct prompt *p, const bool *needed, char err[ERR_LEN])
{
	*s = (struct session){.r = r, .prompt = p};
	prompt_context_sha256(p, s->context_sha256);
	methods_resolve(s, job);
	for (int v = 0; v < s->n_methods; v++)
		if (method_resolve(&s->method[v], job->variants[v].method, job->variants[v].options, err))
			return -1;
	if (prompt_repeat(r, job->chat || job->user_turn, &s->repeat_store, &s->repeat, err))
		return -1;
	for (int v = 0; v < s->n_methods; v++)
		if (needed && !needed[v])
			s->scoring_of[v] = -1;
		else
			scoring_share(s, job, v, p);
	int rc = session_fits(s, err);
	if (!rc && !(s->kv = cache_new(r, (int64_t)p->ids.n)))
		rc = err_set(err, "the cache of a context of %zu tokens: %s", p->ids.n, device_error(r->device));
	rc = rc ? rc : scores_begin(s, err);
	rc = rc ? rc : proxy_fits(s, err);
	rc = rc ? rc : proxy_begin(s, err);
	rc = rc ? rc : session_prefill(s, job, err);
	if (rc < 0 && !s->oom.bytes)
		s->oom = failure_oom(r, err);
	return rc ? rc : session_score(s, job);
}

static void count_scorer(struct runner_counters *c, const char *name, int64_t ns)
{
	int i = 0;
	while (i < RUNNER_SCORERS - 1 && c->scorer[i].name && strcmp(c->scorer[i].name, name))
		i++;
	c->scorer[i].name = name;
	c->scorer[i].ns += ns;
}

static void count_scoring(struct session *s)
{
	s->r->counters.score_ns += s->score_ns;
	for (int i = 0; i < s->n_scoring; i++)
		count_scorer(&s->r->counters, s->scorer[i]->name, s->scoring_ns[i]);
	if (s->pass)
		count_scorer(&s->r->counters, "proxy", s->proxy_ns);
}

void session_close(struct session *s)
{
	if (s->r)
		count_scoring(s);
	proxy_pass_free(s->pass); /* first: a run that was given up still looks at the scorers */
	if (s->pass)
		device_use_threads(s->r->device, 0);
	for (int i = 0; i < s->n_scoring; i++) {
		if (s->scorer[i]->end)
			s->scorer[i]->end(&s->scoring[i]);
		scores_drop(&s->scoring[i]);
		free(s->scoring[i].scores);
	}
	for (int v = 0; v < s->n_methods; v++)
		method_free(&s->method[v]);
	kv_free(s->kv);
	repeat_ids_free(&s->repeat_store);
	free(s->method);
	free(s->scoring_of);
	free(s->scoring);
	free(s->scorer);
	free(s->scoring_ns);
	free(s->scoring_error);
	free(s->scoring_oom);
	*s = (struct session){0};
}

/* ---- views ---- */

/* Rows of one (layer, head): everything before the evictable part, the chosen entries, everything after. */
static int32_t *rows_join(const struct prompt_shape *shape, const int32_t *chosen, int32_t n_chosen, int32_t *len)
{
	int64_t total = shape->prefix + shape->context + shape->after, after = total - shape->first - shape->count, n = 0;
	int32_t *rows = mem_new((size_t)(shape->first + n_chosen + after), sizeof *rows);
	for (int64_t i = 0; i < shape->first; i++)
		rows[n++] = (int32_t)i;
	memcpy(rows + n, chosen, (size_t)n_chosen * sizeof *rows);
	n += n_chosen;
	for (int64_t i = 0; i < after; i++)
		rows[n++] = (int32_t)(shape->first + shape->count + i);
	*len = (int32_t)n;
	return rows;
}

static void view_count(struct view *v, const struct session *s)
{
	const struct runner_info *info = &s->r->info;
	int n = info->layers * info->kv_heads;
	v->kept_context = mem_new((size_t)n, sizeof *v->kept_context);
	for (int i = 0; i < n; i++) {
		v->kept_context[i] = s->prompt->context;
		v->kept_total += s->prompt->context;
	}
	v->rows = cache_rows(s->r, (int64_t)s->prompt->ids.n);
}

static int view_check(const struct session *s, int variant, double retained, const struct selection *sel, int *flags, char err[ERR_LEN])
{
	const struct plan_method *m = &s->method[variant];
	const struct prompt_shape *shape = &s->scoring[s->scoring_of[variant]].shape;
	if (sel->nan_scores) {
		*flags |= FLAG_NAN;
		return err_set(err, "%s: %lld scores are not a number", m->name, (long long)sel->nan_scores);
	}
	int64_t planned = cache_rows(s->r, keep_count(shape->count, retained, param_compat(m->params)));
	if (m->allocator->exact && !strcmp(param_compat(m->params), "none") && sel->total != planned && !(sel->flags & SELECT_ALL_KEPT))
		return err_set(err, "%s keeps %lld entries where %lld were planned", m->name, (long long)sel->total, (long long)planned);
	return 0;
}

int view_make(struct view *out, const struct session *s, int variant, double retained, int *flags, char err[ERR_LEN])
{
	*out = (struct view){0};
	int g = s->scoring_of[variant];
	if (g < 0) {
		view_count(out, s);
		return 0;
	}
	if (s->scoring_error[g][0])
		return err_set(err, "%s", s->scoring_error[g]);
	const struct runner_info *info = &s->r->info;
	const struct prompt_shape *shape = &s->scoring[g].shape;
	int n = info->layers * info->kv_heads, rc = -1;
	struct selection sel = {0};
	int32_t *len = mem_new((size_t)n, sizeof *len), **rows = mem_new((size_t)n, sizeof *rows);
	if (method_select(&sel, &s->method[variant], &s->scoring[g], retained, err) || view_check(s, variant, retained, &sel, flags, err))
		goto done;
	*flags |= (sel.flags & SELECT_ALL_KEPT ? FLAG_ALL_KEPT : 0) | (sel.flags & SELECT_WINDOW_CUT ? FLAG_WINDOW_CUT : 0);
	out->kept_context = mem_new((size_t)n, sizeof *out->kept_context);
	for (int i = 0; i < n; i++) {
		rows[i] = rows_join(shape, sel.index[i], sel.len[i], &len[i]);
		for (int32_t j = 0; j < len[i]; j++)
			out->kept_context[i] += rows[i][j] >= shape->prefix && rows[i][j] < shape->prefix + shape->context;
		out->kept_total += out->kept_context[i];
		out->rows += len[i];
	}
	if (!(out->kept = kept_new(s->r->device, info->layers, info->kv_heads, len, (const int32_t *const *)rows))) {
		err_set(err, "%s: index lists: %s", s->method[variant].name, device_error(s->r->device));
		goto done;
	}
	rc = 0;
done:
	for (int i = 0; i < n; i++)
		free(rows[i]);
	free(rows);
	free(len);
	selection_free(&sel);
	if (rc)
		view_free(out);
	return rc;
}

void view_free(struct view *v)
{
	kept_free(v->kept);
	free(v->kept_context);
	*v = (struct view){0};
}
