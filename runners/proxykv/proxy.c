/* proxy.c: see proxy.h. The state of a run belongs to one thread at a time: to the caller until it starts and again once it is
 * joined; only `cancel` crosses. */
#include "runners/proxykv/proxy.h"

#include "runners/proxykv/mapping.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct want {
	struct feature_spec spec;
	struct features *features; /* on the device while the run lasts */
	float *sums;               /* host, afterwards; NULL where the device maps */
	bool mapped;
};
struct map { /* scores that a mapper makes of a want's sums */
	int want, rc;
	const struct mapper *mapper;
	float *out;
	struct tensor *scores; /* the same, on the proxy's device; NULL when they were handed over */
	int64_t ns;
	char err[ERR_LEN];
};

struct proxy_pass {
	struct proxy *proxy;
	const int32_t *ids;
	int64_t n, first, count;
	struct want *want;
	int n_wants;
	struct map *map;
	int n_maps;
	struct {
		proxy_look look;
		void *user;
	} * look;
	int n_looks;
	pthread_t thread;
	bool threaded, done; /* a thread is out; the result is there */
	_Atomic bool cancel;
	bool (*stop)(void *user);
	void *stop_user;
	int rc;
	char err[ERR_LEN];
	int64_t ns, wait_ns, map_ns;
};

/* ---- the model ---- */

int proxy_open(
	struct proxy **out, struct model *m, const struct device_options *d, bool overlapped, int max_rows, char err[ERR_LEN])
{
	struct proxy *p = mem_new(1, sizeof *p);
	*p = (struct proxy){.model = m, .overlapped = overlapped};
	*out = p;
	const struct model_config *c = model_config(m);
	if (device_open(&p->device, d, err))
		return -1;
	p->resident = forward_weight_bytes(c, p->device) + forward_scratch_bytes(c, p->device, max_rows);
	device_reserve(p->device, p->resident);
	if (forward_open(&p->forward, m, p->device, max_rows, err))
		return -1;
	p->threads = device_threads(p->device);
	return 0;
}

void proxy_close(struct proxy *p)
{
	if (!p)
		return;
	forward_close(p->forward);
	device_close(p->device);
	model_close(p->model);
	free(p);
}

/* ---- what is asked ---- */

struct proxy_pass *proxy_pass_new(struct proxy *p, const int32_t *ids, int64_t n, int64_t first, int64_t count)
{
	struct proxy_pass *r = mem_new(1, sizeof *r);
	r->proxy = p;
	r->ids = ids;
	r->n = n;
	r->first = first;
	r->count = count;
	return r;
}

const struct model_config *proxy_pass_config(const struct proxy_pass *r)
{
	return forward_config(r->proxy->forward);
}

static int length_check(const struct proxy_pass *r, char err[ERR_LEN])
{
	if (!r->proxy->max_tokens || r->n <= r->proxy->max_tokens)
		return 0;
	return err_set(err, "the proxy was made for %lld tokens, the context has %lld: --allow-long runs it all the same",
		(long long)r->proxy->max_tokens, (long long)r->n);
}

int proxy_pass_want(struct proxy_pass *r, const struct feature_spec *s, char err[ERR_LEN])
{
	const struct model_config *c = forward_config(r->proxy->forward);
	if (length_check(r, err))
		return -1;
	if (s->layers > c->layers)
		return err_set(err, "features of the first %d layers: the proxy has %d", s->layers, c->layers);
	for (int i = 0; i < r->n_wants; i++)
		if (feature_spec_equal(&r->want[i].spec, s))
			return i;
	r->want = mem_grow(r->want, (size_t)r->n_wants + 1, sizeof *r->want);
	r->want[r->n_wants] = (struct want){.spec = *s};
	return r->n_wants++;
}

bool proxy_pass_maps(const struct proxy_pass *r)
{
	return device_has_steps(r->proxy->device);
}

int proxy_pass_map(struct proxy_pass *r, int want, const struct mapper *m, float *out)
{
	r->map = mem_grow(r->map, (size_t)r->n_maps + 1, sizeof *r->map);
	r->map[r->n_maps] = (struct map){.want = want, .mapper = m, .out = out};
	return r->n_maps++;
}

int proxy_pass_look(struct proxy_pass *r, proxy_look look, void *user, char err[ERR_LEN])
{
	if (length_check(r, err))
		return -1;
	r->look = mem_grow(r->look, (size_t)r->n_looks + 1, sizeof *r->look);
	r->look[r->n_looks].look = look;
	r->look[r->n_looks++].user = user;
	return 0;
}

bool proxy_pass_wanted(const struct proxy_pass *r)
{
	return r->n_wants || r->n_looks;
}

/* ---- the run ---- */

static bool stopped(void *user)
{
	struct proxy_pass *r = user;
	return r->cancel || (r->stop && r->stop(r->stop_user));
}

static int layers_needed(const struct proxy_pass *r)
{
	const struct model_config *c = forward_config(r->proxy->forward);
	int most = r->n_looks ? c->layers : 0;
	for (int i = 0; i < r->n_wants; i++)
		most = feature_layers(&r->want[i].spec, c) > most ? feature_layers(&r->want[i].spec, c) : most;
	return most;
}

static struct kv *cache_of(const struct proxy_pass *r, int layers)
{
	const struct model_config *c = forward_config(r->proxy->forward);
	int64_t *cap = mem_new((size_t)(layers * c->kv_heads), sizeof *cap);
	for (int i = 0; i < layers * c->kv_heads; i++)
		cap[i] = r->n;
	struct kv *kv = kv_new(r->proxy->device, layers, c->kv_heads, c->head_dim, cap);
	free(cap);
	return kv;
}

static int features_begin(struct proxy_pass *r, struct observer *obs)
{
	for (int i = 0; i < r->n_wants; i++) {
		struct want *w = &r->want[i];
		if (!(w->features = features_new(r->proxy->forward, &w->spec, r->first, r->count, r->err)))
			return -1;
		obs[i] = features_observer(w->features);
	}
	return 0;
}

/* One mapper's failure is its own: the others, and the run, go on. */
static void map_sums(struct proxy_pass *r, struct map *m)
{
	int64_t start = clock_ns();
	struct tensor *t = m->scores = features_map(r->want[m->want].features, m->mapper, m->err);
	m->rc = t ? 0 : -1;
	if (t && tensor_read(forward_queue(r->proxy->forward), t, 0, tensor_rows(t), m->out))
		m->rc = err_set(m->err, "reading scores: %s", device_error(r->proxy->device));
	m->ns = clock_ns() - start;
	r->map_ns += m->ns;
}

/* Sums that are mapped here are not taken to the host. */
static int features_end(struct proxy_pass *r)
{
	for (int i = 0; i < r->n_maps; i++) {
		r->want[r->map[i].want].mapped = true;
		map_sums(r, &r->map[i]);
	}
	for (int i = 0; i < r->n_wants; i++) {
		struct want *w = &r->want[i];
		size_t n = (size_t)features_floats(w->features);
		if (w->mapped)
			continue;
		if (!(w->sums = malloc((n + 1) * sizeof *w->sums)))
			return err_set(r->err, "out of memory: %zu feature sums", n);
		if (features_take(w->features, w->sums, r->err))
			return -1;
	}
	return 0;
}

static int look_all(struct proxy_pass *r, const struct kv *kv)
{
	struct proxy_view v = {r->proxy, kv, r->ids, r->n, r->first, r->count, stopped, r};
	int rc = 0;
	for (int i = 0; i < r->n_looks && !rc; i++)
		rc = r->look[i].look(r->look[i].user, &v, r->err);
	return rc;
}

/* Mappers run one after the other; their scores stay until they are taken. */
static int64_t maps_bytes(const struct proxy_pass *r)
{
	int64_t most = 0, scores = 0;
	for (int i = 0; i < r->n_maps; i++) {
		const struct mapper_config *c = mapper_config_of(r->map[i].mapper);
		int64_t bytes = mapping_bytes(r->map[i].mapper, r->count);
		most = bytes > most ? bytes : most;
		scores += (int64_t)c->layers * c->kv_heads * r->count * (int64_t)sizeof(float);
	}
	return most + scores;
}

int64_t proxy_pass_bytes(const struct proxy_pass *r)
{
	const struct model_config *c = forward_config(r->proxy->forward);
	int64_t sums = 0, look = (int64_t)c->layers * c->kv_heads * r->count * (int64_t)sizeof(float);
	for (int i = 0; i < r->n_wants; i++)
		sums += features_bytes(r->proxy->forward, &r->want[i].spec, r->count);
	if (!proxy_pass_wanted(r))
		return 0;
	return kv_device_bytes_for(r->proxy->device, layers_needed(r), c->kv_heads, c->head_dim, r->n) + sums + maps_bytes(r) +
	       (r->n_looks ? look : 0);
}

static void run(struct proxy_pass *r)
{
	struct device *d = r->proxy->device;
	struct observer *obs = mem_new((size_t)r->n_wants + 1, sizeof *obs);
	int64_t start = clock_ns();
	int layers = layers_needed(r);
	device_reserve(d, proxy_pass_bytes(r));
	struct kv *kv = cache_of(r, layers);
	r->rc = kv ? features_begin(r, obs)
		   : err_set(r->err, "the proxy's cache of %lld tokens: %s", (long long)r->n, device_error(d));
	if (!r->rc)
		r->rc = forward_prefill_layers(r->proxy->forward, layers, r->ids, r->n, kv, obs, r->n_wants, stopped, r, r->err);
	if (!r->rc)
		r->rc = features_end(r);
	if (!r->rc)
		r->rc = look_all(r, kv);
	for (int i = 0; i < r->n_wants; i++) {
		features_free(r->want[i].features);
		r->want[i].features = NULL;
	}
	kv_free(kv);
	free(obs);
	if (!r->rc && device_bytes(d) > r->proxy->resident)
		r->rc = err_set(
			r->err, "the proxy keeps %lld bytes after scoring", (long long)(device_bytes(d) - r->proxy->resident));
	r->ns = clock_ns() - start - r->map_ns;
}

static void *thread_main(void *arg)
{
	run(arg);
	return NULL;
}

int proxy_pass_start(struct proxy_pass *r, char err[ERR_LEN])
{
	if (!r->proxy->overlapped)
		return 0;
	if (pthread_create(&r->thread, NULL, thread_main, r))
		return err_set(err, "the proxy's thread could not be started");
	r->threaded = true;
	return 0;
}

int proxy_pass_finish(struct proxy_pass *r, bool (*stop)(void *user), void *user, char err[ERR_LEN])
{
	int64_t start = clock_ns();
	if (r->threaded)
		pthread_join(r->thread, NULL);
	else if (!r->done) {
		r->stop = stop;
		r->stop_user = user;
		run(r);
	}
	r->wait_ns += r->done ? 0 : clock_ns() - start;
	r->threaded = false;
	r->done = true;
	if (r->rc < 0)
		err_set(err, "proxy: %.400s", r->err);
	return r->rc;
}

void proxy_pass_free(struct proxy_pass *r)
{
	if (!r)
		return;
	r->cancel = true;
	if (r->threaded)
		pthread_join(r->thread, NULL);
	for (int i = 0; i < r->n_wants; i++)
		free(r->want[i].sums);
	for (int i = 0; i < r->n_maps; i++)
		tensor_free(r->map[i].scores);
	free(r->want);
	free(r->map);
	free(r->look);
	free(r);
}

const float *proxy_pass_sums(const struct proxy_pass *r, int want)
{
	return r->want[want].sums;
}

int proxy_pass_mapped(struct proxy_pass *r, int map, struct tensor **scores, int64_t *ns, char err[ERR_LEN])
{
	struct map *m = &r->map[map];
	*ns = m->ns;
	if (m->rc)
		return err_set(err, "%s", m->err);
	*scores = m->scores;
	m->scores = NULL;
	return 0;
}

int64_t proxy_pass_ns(const struct proxy_pass *r)
{
	return r->ns;
}

int64_t proxy_pass_wait_ns(const struct proxy_pass *r)
{
	return r->wait_ns;
}
