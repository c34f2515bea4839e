/* table.c: the tables of scorers, allocators and method names, and how a name becomes a method. A scorer, an allocator or a name
 * adds itself by one line here; help text, `kvbench list`, the plan's check and the tests over all methods read these tables. */
#include "runners/methods/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct scorer *const scorers[] = {&scorer_random, &scorer_streaming_llm, &scorer_knorm, &scorer_snapkv, &scorer_h2o,
	&scorer_tova, &scorer_keydiff, &scorer_lagkv, &scorer_expected_attention, &scorer_kvzip, &scorer_kvzip_head,
	&scorer_proxykv, &scorer_selfkv, &scorer_head_prior, &scorer_scores, &scorer_iam, &scorer_lkv_t, &scorer_lkv_global, &scorer_kvmlp};
static const struct allocator *const allocators[] = {
	&allocator_uniform, &allocator_pyramid, &allocator_ada, &allocator_global, &allocator_layer, &allocator_head, &allocator_head_prior, &allocator_lkv_h};
static const struct method methods[] = {
	{"full", "the whole cache: the control every other row is compared with", "no pruning", NULL, NULL, NULL},
	{"random", "random entries: the lower control", "ours", "random", "uniform", NULL},
	{"streaming-llm", "attention sinks and the most recent entries", "arXiv 2309.17453", "streaming-llm",
		"uniform", NULL},
	{"knorm", "keys of small norm", "arXiv 2406.11430", "knorm", "uniform", NULL},
	{"snapkv", "attention of the last tokens, pooled", "arXiv 2404.14469", "snapkv", "uniform", NULL},
	{"pyramidkv", "SnapKV's scores, lower layers keep more", "arXiv 2406.02069", "snapkv", "pyramid", NULL},
	{"ada-snapkv", "SnapKV's scores, a layer's budget shared among its heads", "arXiv 2407.11550", "snapkv",
		"ada", NULL},
	{"h2o", "attention summed over the whole prompt, and the most recent entries", "arXiv 2306.14048", "h2o",
		"uniform", NULL},
	{"tova", "attention of the last token", "arXiv 2401.06104", "tova", "uniform", NULL},
	{"keydiff", "keys unlike the mean key", "arXiv 2504.15364", "keydiff", "uniform", NULL},
	{"lagkv", "spread of keys and values against the next partition", "arXiv 2504.04704", "lagkv", "uniform",
		NULL},
	{"expected-attention", "attention expected from future queries", "arXiv 2510.00636", "expected-attention",
		"uniform", NULL},
	{"kvzip", "attention while the model repeats the context", "arXiv 2505.23416", "kvzip", "global", NULL},
	{"kvzip@uniform", "KVzip, the same number in every head (pair-uniform)", "arXiv 2505.23416", "kvzip",
		"uniform", NULL},
	{"kvzip@head", "KVzip, whole heads by the model's static table", "arXiv 2505.23416", "kvzip-head", "head",
		NULL},
	{"kvzip+iam", "the proxy's KVzip scores through a rigid head map (a reconstruction)", "ours", "iam", "global", NULL},
	{"proxykv", "a proxy's attention, mapped to KVzip's scores (trained)", "arXiv 2605.16360", "proxykv", "global",
		NULL},
	{"selfkv", "the target's own attention, mapped to KVzip's scores (trained)", "ours", "selfkv", "global", NULL},
	{"lkv", "learned budgets of heads, utilities from each entry's key and value (trained end to end)",
		"arXiv 2605.06676", "lkv-t", "lkv-h", NULL},
	{"lkv-global", "LKV's utilities under one threshold for the whole model (trained end to end)", "ours",
		"lkv-global", "global", NULL},
	{"kvmlp", "LKV's network, distilled from KVzip's scores (trained)", "ours", "kvmlp", "global", NULL},
	{"head-prior", "trained level of each head, random positions: the control of trained methods", "ours",
		"head-prior", "global", NULL},
};
enum {
	SCORERS = sizeof(scorers) / sizeof(*scorers),
	ALLOCATORS = sizeof(allocators) / sizeof(*allocators),
	METHODS = sizeof(methods) / sizeof(*methods)
};

size_t method_count(void)
{
	return METHODS;
}

const struct method *method_at(size_t i)
{
	return &methods[i];
}

size_t scorer_count(void)
{
	return SCORERS;
}

const struct scorer *scorer_at(size_t i)
{
	return scorers[i];
}

size_t allocator_count(void)
{
	return ALLOCATORS;
}

const struct allocator *allocator_at(size_t i)
{
	return allocators[i];
}

static const struct scorer *scorer_find(const char *name, size_t len)
{
	for (size_t i = 0; i < SCORERS; i++)
		if (strlen(scorers[i]->name) == len && memcmp(scorers[i]->name, name, len) == 0)
			return scorers[i];
	return NULL;
}

static const struct allocator *allocator_find(const char *name)
{
	for (size_t i = 0; i < ALLOCATORS; i++)
		if (strcmp(allocators[i]->name, name) == 0)
			return allocators[i];
	return NULL;
}

static int unknown(const char *kind, const char *typed, const char *const *names, size_t n, char err[ERR_LEN])
{
	struct strbuf list = {0};
	const char *near = name_nearest(typed, names, n);
	for (size_t i = 0; i < n; i++)
		strbuf_printf(&list, "%s%s", i ? " " : "", names[i]);
	if (near)
		err_set(err, "unknown %s \"%s\"; did you mean %s?", kind, typed, near);
	else
		err_set(err, "unknown %s \"%s\"; known: %s", kind, typed, list.text);
	strbuf_free(&list);
	return -1;
}

/* Scorer, allocator and default options of a name. */
static int look_up(const char *name, const struct scorer **scorer, const struct allocator **allocator, const char **options,
	char err[ERR_LEN])
{
	const char *names[METHODS + SCORERS + ALLOCATORS], *at = strchr(name, '@');
	size_t n = 0;
	for (size_t i = 0; i < METHODS; i++) {
		if (strcmp(methods[i].name, name) == 0) {
			*scorer = methods[i].scorer ? scorer_find(methods[i].scorer, strlen(methods[i].scorer)) : NULL;
			*allocator = methods[i].allocator ? allocator_find(methods[i].allocator) : NULL;
			*options = methods[i].options;
			return 0;
		}
		names[n++] = methods[i].name;
	}
	if (!at)
		return unknown("method", name, names, n, err);
	*scorer = scorer_find(name, (size_t)(at - name));
	*allocator = allocator_find(at + 1);
	*options = NULL;
	n = 0;
	if (!*scorer) {
		char typed[64];
		snprintf(typed, sizeof(typed), "%.*s", (int)(at - name), name);
		for (size_t i = 0; i < SCORERS; i++)
			names[n++] = scorers[i]->name;
		return unknown("scorer", typed, names, n, err);
	}
	if (!*allocator) {
		for (size_t i = 0; i < ALLOCATORS; i++)
			names[n++] = allocators[i]->name;
		return unknown("allocator", at + 1, names, n, err);
	}
	return 0;
}

/* "scores:FILE" or "scores:FILE@ALLOCATOR": the file is an option, as JSON in *options (the caller's to free). */
static bool look_up_scores(const char *name, const struct scorer **scorer, const struct allocator **allocator, char **options)
{
	if (strncmp(name, "scores:", 7))
		return false;
	const char *file = name + 7, *at = strrchr(file, '@');
	*scorer = &scorer_scores;
	*allocator = at ? allocator_find(at + 1) : NULL;
	json_t *o = json_pack("{s:s%}", "file", file, *allocator ? (size_t)(at - file) : strlen(file));
	*allocator = *allocator ? *allocator : &allocator_global;
	*options = o ? json_dumps(o, JSON_COMPACT) : text_copy("{}");
	json_decref(o);
	return true;
}

static const struct compat_mode no_modes[] = {{NULL, NULL}};

/* "none|kvpress|...": what the scorer or the allocator can reproduce; the full cache has nothing to. */
static void compat_list(const struct plan_method *m, char out[64])
{
	const struct compat_mode *lists[2] = {m->scorer && m->scorer->compat ? m->scorer->compat : no_modes,
		m->allocator && m->allocator->compat ? m->allocator->compat : no_modes};
	snprintf(out, 64, m->scorer && !m->scorer->context_alone ? "none|kvpress" : "none");
	for (int i = 0; i < 2; i++)
		for (const struct compat_mode *c = lists[i]; c->mode; c++)
			if (!strstr(out, c->mode) && strlen(out) + strlen(c->mode) + 2 < 64)
				strcat(strcat(out, "|"), c->mode);
}

/* Options of the scorer's compat mode; NULL = none. */
static const char *compat_options(const struct plan_method *m)
{
	const struct compat_mode *c = m->scorer && m->scorer->compat ? m->scorer->compat : no_modes;
	while (c->mode && strcmp(c->mode, param_compat(m->params)) != 0)
		c++;
	return c->options;
}

/* The user's options over what is usual: the name's defaults, and above them those of the compat mode that the user's options name. */
static int take_options(struct plan_method *m, const char *defaults, const char *options_json, char err[ERR_LEN])
{
	const struct param_def *own = m->scorer ? m->scorer->params : NULL,
			       *theirs = m->allocator ? m->allocator->params : NULL;
	struct params *usual = params_new(own, theirs);
	const char *mode = NULL;
	char compats[64];
	compat_list(m, compats);
	m->params = params_new(own, theirs);
	int rc = params_set(usual, defaults, compats, m->name, err) || params_set(m->params, defaults, compats, m->name, err) ||
		 params_set(m->params, options_json, compats, m->name, err);
	if (!rc && (mode = compat_options(m)))
		rc = params_set(usual, mode, compats, m->name, err) || params_set(m->params, mode, compats, m->name, err) ||
		     params_set(m->params, options_json, compats, m->name, err);
	rc = rc || params_check_fit(m, usual, err);
	params_free(usual);
	return rc ? -1 : 0;
}

int method_resolve(struct plan_method *out, const char *name, const char *options_json, char err[ERR_LEN])
{
	const char *defaults = NULL;
	char *file = NULL;
	*out = (struct plan_method){0};
	if (look_up_scores(name, &out->scorer, &out->allocator, &file))
		defaults = file;
	else if (strlen(name) >= sizeof(out->name))
		return err_set(err, "method name \"%.40s...\" is too long", name);
	else if (look_up(name, &out->scorer, &out->allocator, &defaults, err))
		return -1;
	snprintf(out->name, sizeof(out->name), "%s", name);
	int rc = take_options(out, defaults, options_json, err);
	free(file);
	if (rc)
		method_free(out);
	return rc;
}

char *method_canonical(const struct plan_method *m)
{
	json_t *o = params_json(m->params);
	json_object_set_new(o, "scorer", json_string(m->scorer ? m->scorer->name : "full"));
	if (m->allocator)
		json_object_set_new(o, "allocator", json_string(m->allocator->name));
	char *json = json_dumps(o, JSON_SORT_KEYS | JSON_COMPACT | JSON_REAL_PRECISION(15));
	char *text = text_copy(json);
	free(json);
	json_decref(o);
	return text;
}

static int check_file(const struct plan_method *m, void (*file)(const struct params *p, struct trained_request *q),
	int (*named)(const struct params *p, const char *path, char err[ERR_LEN]), char err[ERR_LEN])
{
	struct trained_request q = {0};
	char why[ERR_LEN];
	file(m->params, &q);
	int rc = trained_check_named(&q, why) || (named && q.weights && *q.weights && named(m->params, q.weights, why));
	return rc ? err_set(err, "%s: %.450s", m->name, why) : 0;
}

int method_check(const struct plan_method *m, bool proxy, char err[ERR_LEN])
{
	if (m->scorer && m->scorer->needs_proxy && !proxy)
		return err_set(err, "%s needs a proxy beside every target: a pair in the plan, or --proxy MODEL", m->name);
	if (m->scorer && m->scorer->file && check_file(m, m->scorer->file, m->scorer->named, err))
		return -1;
	return m->allocator && m->allocator->file ? check_file(m, m->allocator->file, NULL, err) : 0;
}

bool method_same_scores(const struct plan_method *a, const struct plan_method *b)
{
	return a->scorer == b->scorer && params_equal(a->params, b->params, a->scorer ? a->scorer->params : NULL);
}

void method_free(struct plan_method *m)
{
	params_free(m->params);
	m->params = NULL;
}
