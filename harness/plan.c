/* plan.c: see plan.h. One table of keys a scope; values go straight from JSON into the struct at the key's offset. */
#include "harness/plan.h"

#include "harness/models.h"
#include "runners/runner.h"
#include "tasks/task.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the keys ---- */

enum kind { TEXT, COUNT, SHARE, FLAG, BYTES, TEXTS, SHARES, COUNTS, PAIRS, TASKS, METHODS, TIMING, OPTIONS };
static const char *const kind_wants[] = {
	[TEXT] = "text",
	[COUNT] = "a whole number from 0",
	[SHARE] = "a number from 0 to 1",
	[FLAG] = "true or false",
	[BYTES] = "bytes, or text such as \"8G\"",
	[TEXTS] = "text or a list of texts",
	[SHARES] = "a number above 0 (0.000001 at least) up to 1, or a list of them",
	[COUNTS] = "a whole number up to 134217728 or a list of them",
	[PAIRS] = "a list of {target, proxy}",
	[TASKS] = "a list of names or {name, ...}",
	[METHODS] = "a list of names or {method, options}",
	[TIMING] = "an object",
	[OPTIONS] = "an object",
};

struct key {
	const char *name;
	size_t at; /* offset in the scope's struct */
	enum kind kind;
	const char *doc;
};
#define KEY(type, member) #member, offsetof(struct type, member)
#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static const struct key plan_keys[] = {
	{KEY(plan, title), TEXT, "heading of the report (default: the plan's file name)"},
	{KEY(plan, targets), TEXTS,
		"models: folder, .gguf, random:CONFIG.json, an embedded name such as tiny-pair/target, or ORG/NAME of the hub "
		"cache"},
	{KEY(plan, pairs), PAIRS, "instead of targets: [{target, proxy}]"},
	{"precision", offsetof(struct plan, precisions), TEXTS, "bf16 and/or fp32 (default bf16)"},
	{KEY(plan, tasks), TASKS, "what is asked: names, or objects with the keys below"},
	{KEY(plan, methods), METHODS, "names (snapkv, scorer@allocator) or {method, options}; full and random are always added"},
	{KEY(plan, retained), SHARES, "shares of the context's entries to keep (default .1 .3 .5 .7)"},
	{KEY(plan, protocols), TEXTS, "agnostic (pruned before the question is seen) and/or aware (default agnostic)"},
	{KEY(plan, seed), COUNT, "of generated texts (default 1; RULER's upstream generator: 42, as upstream)"},
	{KEY(plan, max_new_tokens), COUNT, "longest answer (default: the task's own)"},
	{KEY(plan, timing), TIMING, "the timing pass, with the keys below"},
	{KEY(plan, training), OPTIONS, "for `collect` and `train`: seed, contexts, eval, shards, out, features, runs"},
	{KEY(plan, chat_template), TEXT, "a template's name, or raw (default: the model's own)"},
	{KEY(plan, allow_long), FLAG, "contexts beyond the model's trained positions (default false; flagged in the row)"},
	{KEY(plan, threads), COUNT, "default: all cores"},
	{KEY(plan, proxy_threads), COUNT, "of them for the proxy, beside the target's prefill (default 0: in turn, each on all)"},
	{"memory", offsetof(struct plan, memory_bytes), BYTES, "limit (default: what is free)"},
	{KEY(plan, device), TEXT, "auto (default: a GPU if one is usable, else the CPU), cpu, cuda or cuda:N"},
	{KEY(plan, proxy_device), TEXT, "the proxy's (default: the target's)"},
	{KEY(plan, kv_offload), FLAG, "GPU: caches in the host's memory, streamed by layer (default false)"},
	{KEY(plan, attention), TEXT,
		"own (default), or cudnn: GPU, bf16: prefill attention by cuDNN, all other attention by our kernels"},
	{KEY(plan, isa), TEXT, "kernel path (default: the best this CPU has)"},
	{KEY(plan, models), TEXT, "folder where model names are looked up (default: runners/model beside the executable)"},
	{KEY(plan, db), TEXT, "database (default results/PLAN.db)"},
	{KEY(plan, report), TEXT, "HTML report written after the run (default: none)"},
};
static const struct key pair_keys[] = {
	{KEY(plan_pair, target), TEXT, "the model that answers"},
	{KEY(plan_pair, proxy), TEXT, "the smaller model that scores for it"},
};
static const struct key task_keys[] = {
	{KEY(plan_task, name), TEXT, "see `kvbench list tasks`"},
	{KEY(plan_task, lengths), COUNTS,
		"context lengths in the model's own tokens; for data, where the middle is cut (default 0: the data's own)"},
	{KEY(plan_task, contexts), COUNT, "how many contexts (default: the task's, or all rows)"},
	{KEY(plan_task, questions), COUNT, "questions a context"},
	{KEY(plan_task, wording), TEXT, "NIAH: plain or tiny (default: tiny for the tiny pair's template, else plain)"},
	{KEY(plan_task, path), TEXT, "data file or folder, from where kvbench is started (default: where `kvbench fetch` puts it)"},
	{KEY(plan_task, templates), TEXT, "LongBench, SCBench: folder of upstream's prompt texts (default: beside the data)"},
	{KEY(plan_task, truncate), TEXT,
		"LongBench: official (default: the prompt's middle as text) or ids (the context's middle tokens)"},
	{KEY(plan_task, mode), TEXT, "SCBench: multi-turn (default) or multi-request"},
	{KEY(plan_task, generator), TEXT, "RULER: own (default: our words), upstream (NVIDIA's files) or rows (a file in path)"},
	{KEY(plan_task, release), TEXT, "RULER upstream: current (default) or oct2024, which made the published sets"},
	{KEY(plan_task, depth), SHARE, "where a single needle lies (default: spread evenly)"},
	{KEY(plan_task, needles), COUNT, "NIAH: needles in a context"},
	{KEY(plan_task, values), COUNT, "NIAH: values of a key"},
	{KEY(plan_task, queries), COUNT, "NIAH: keys asked at once"},
	{KEY(plan_task, max_new_tokens), COUNT, "longest answer, for this task"},
};
static const struct key method_keys[] = {
	{"method", offsetof(struct plan_method, name), TEXT, "see `kvbench list methods`"},
	{KEY(plan_method, options), OPTIONS, "its parameters; a list as a value makes one method of each item"},
};
static const struct key timing_keys[] = {
	{KEY(plan_timing, enabled), FLAG, "default true"},
	{KEY(plan_timing, repetitions), COUNT, "interleaved repetitions, at least 9 (default 9)"},
	{KEY(plan_timing, warmup), COUNT, "rounds before them, stored as warm-up (default 1)"},
	{KEY(plan_timing, decode_tokens), COUNT, "tokens decoded after the first, end tokens ignored (default 16)"},
	{KEY(plan_timing, tasks), TEXTS, "names from tasks (default: the first)"},
	{KEY(plan_timing, lengths), COUNTS, "from the task's lengths (default: its longest)"},
	{KEY(plan_timing, retained), SHARES, "from retained (default: all)"},
	{KEY(plan_timing, protocols), TEXTS, "from protocols (default: all)"},
};

struct scope {
	const char *name; /* as messages and --help call it */
	const struct key *keys;
	size_t n;
};
static const struct scope plan_scope = {"the plan", plan_keys, COUNT_OF(plan_keys)};
static const struct scope pair_scope = {"pairs", pair_keys, COUNT_OF(pair_keys)};
static const struct scope task_scope = {"tasks", task_keys, COUNT_OF(task_keys)};
static const struct scope method_scope = {"methods", method_keys, COUNT_OF(method_keys)};
static const struct scope timing_scope = {"timing", timing_keys, COUNT_OF(timing_keys)};

void plan_print_keys(FILE *to, const struct verb *v)
{
	const struct scope *scopes[] = {&plan_scope, &pair_scope, &task_scope, &method_scope, &timing_scope};
	for (size_t i = 0; i < COUNT_OF(scopes); i++) {
		const struct scope *s = scopes[i];
		if (i && v && !verb_uses_key(v, s->name))
			continue;
		fprintf(to, "\nKeys of %s%s:\n", s->name, i ? "" : " (each is an option too: --retained .1,.3)");
		for (size_t k = 0; k < s->n; k++) {
			char *full = i ? text_format("%s.%s", s->name, s->keys[k].name) : text_copy(s->keys[k].name);
			if (!v || verb_uses_key(v, full))
				fprintf(to, "  %-16s %s\n", s->keys[k].name, s->keys[k].doc);
			free(full);
		}
	}
}

static const struct key *key_find(const struct scope *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++) {
		if (!strcmp(s->keys[i].name, name))
			return &s->keys[i];
	}
	return NULL;
}

struct option_def plan_key_option(const char *option)
{
	char name[64];
	snprintf(name, sizeof name, "%s", option);
	for (char *c = name; *c; c++)
		*c = *c == '-' ? '_' : *c;
	const struct key *k = key_find(&plan_scope, name);
	return k ? (struct option_def){k->name, k->kind == FLAG ? NULL : "VALUE", k->doc} : (struct option_def){0};
}

size_t plan_key_names(const char **names, size_t max, const struct verb *v)
{
	size_t n = 0;
	for (size_t i = 0; i < plan_scope.n && n < max; i++) {
		if (verb_uses_key(v, plan_keys[i].name))
			names[n++] = plan_keys[i].name;
	}
	return n;
}

/* ---- JSON into structs ---- */

static int take_keys(const struct scope *s, json_t *object, void *into, char err[ERR_LEN]);

/* " did you mean "X"?" as text the caller frees; "" when nothing is near. */
static char *did_you_mean(const char *typed, const char *const *names, size_t n)
{
	const char *near = name_nearest(typed, names, n);
	return near ? text_format("; did you mean \"%s\"?", near) : text_copy("");
}

static int unknown_name(const char *what, const char *typed, const char *const *names, size_t n, char err[ERR_LEN])
{
	char *hint = did_you_mean(typed, names, n);
	err_set(err, "%s \"%s\" is not known%s", what, typed, hint);
	free(hint);
	return -1;
}

static int unknown_key(const struct scope *s, const char *typed, char err[ERR_LEN])
{
	const char *names[32];
	for (size_t i = 0; i < s->n; i++)
		names[i] = s->keys[i].name;
	char *what = text_format("%s: key", s->name);
	unknown_name(what, typed, names, s->n, err);
	free(what);
	return -1;
}

static bool as_count(json_t *v, int64_t *n)
{
	double x = json_number_value(v);
	if (!json_is_number(v) || !(x >= 0 && x < 1e15) || x != floor(x))
		return false;
	*n = (int64_t)x;
	return true;
}

enum { PPM = 1000000 }; /* what a retained share is rounded to where it names a cell */

static bool as_share(json_t *v, double *x)
{
	*x = json_number_value(v);
	return json_is_number(v) && lround(*x * PPM) >= 1 && *x <= 1;
}

static void texts_free(struct texts *t)
{
	for (int i = 0; i < t->n; i++)
		free(t->v[i]);
	free(t->v);
	*t = (struct texts){0};
}

/* A list, or one value that stands for a list of one. Borrowed items. */
static size_t list_size(json_t *v)
{
	return json_is_array(v) ? json_array_size(v) : 1;
}
static json_t *list_at(json_t *v, size_t i)
{
	return json_is_array(v) ? json_array_get(v, i) : v;
}

static bool take_texts(json_t *v, struct texts *out)
{
	texts_free(out);
	for (size_t i = 0; i < list_size(v); i++) {
		if (!json_is_string(list_at(v, i)))
			return false;
		out->v = mem_grow(out->v, (size_t)out->n + 1, sizeof *out->v);
		out->v[out->n++] = text_copy(json_string_value(list_at(v, i)));
	}
	return true;
}

enum { LENGTH_MAX = 1 << 27 }; /* tokens; a slip of the hand must not fill the memory with text */

static bool take_numbers(json_t *v, bool share, struct numbers *out)
{
	out->n = 0;
	for (size_t i = 0; i < list_size(v); i++) {
		double x;
		int64_t n = 0;
		if (share ? !as_share(list_at(v, i), &x) : !as_count(list_at(v, i), &n) || n > LENGTH_MAX)
			return false;
		out->v = mem_grow(out->v, (size_t)out->n + 1, sizeof *out->v);
		out->v[out->n++] = share ? x : (double)n;
	}
	return true;
}

static bool take_text(json_t *v, char **out)
{
	free(*out);
	*out = text_copy(json_string_value(v));
	return *out != NULL;
}

static bool take_bytes(json_t *v, int64_t *out)
{
	if (json_is_string(v))
		*out = bytes_parse(json_string_value(v));
	return json_is_string(v) ? *out >= 0 : as_count(v, out);
}

static int take_pairs(struct plan *p, json_t *list, char err[ERR_LEN])
{
	for (size_t i = 0; i < list_size(list); i++) {
		p->pairs = mem_grow(p->pairs, (size_t)p->n_pairs + 1, sizeof *p->pairs);
		struct plan_pair *pair = &p->pairs[p->n_pairs++];
		*pair = (struct plan_pair){0};
		if (take_keys(&pair_scope, list_at(list, i), pair, err))
			return -1;
		if (!pair->target)
			return err_set(err, "pairs: item %zu has no target", i);
	}
	return 0;
}

static int take_tasks(struct plan *p, json_t *list, char err[ERR_LEN])
{
	for (size_t i = 0; i < list_size(list); i++) {
		json_t *item = list_at(list, i);
		p->tasks = mem_grow(p->tasks, (size_t)p->n_tasks + 1, sizeof *p->tasks);
		struct plan_task *t = &p->tasks[p->n_tasks++];
		*t = (struct plan_task){.depth = NAN};
		if (json_is_string(item))
			take_text(item, &t->name);
		else if (take_keys(&task_scope, item, t, err))
			return -1;
		if (!t->name)
			return err_set(err, "tasks: item %zu has no name", i);
	}
	return 0;
}

static void add_method(struct plan *p, const char *name, json_t *options)
{
	p->methods = mem_grow(p->methods, (size_t)p->n_methods + 1, sizeof *p->methods);
	p->methods[p->n_methods++] = (struct plan_method){
		.name = text_copy(name),
		.options = json_object_size(options) ? json_dumps(options, JSON_COMPACT | JSON_SORT_KEYS) : NULL,
	};
}

/* One method for each combination of the items of list-valued options. */
static void add_methods(struct plan *p, const char *name, json_t *options)
{
	const char *key;
	json_t *value, *item;
	size_t i;
	json_object_foreach(options, key, value)
	{
		if (!json_is_array(value))
			continue;
		json_array_foreach(value, i, item)
		{
			json_t *one = json_copy(options);
			json_object_set(one, key, item);
			add_methods(p, name, one);
			json_decref(one);
		}
		return;
	}
	add_method(p, name, options);
}

/* An empty list would make no method of its kind, and nobody would miss it in the table. */
static int check_lists(const char *name, json_t *options, char err[ERR_LEN])
{
	const char *key;
	json_t *value, *item;
	size_t i;
	json_object_foreach(options, key, value)
	{
		if (json_is_array(value) && !json_array_size(value))
			return err_set(err, "methods: %s: option \"%s\" is an empty list", name, key);
		json_array_foreach(value, i, item)
		{
			if (json_is_array(item))
				return err_set(err, "methods: %s: option \"%s\" has a list in its list", name, key);
		}
	}
	return 0;
}

static int take_methods(struct plan *p, json_t *list, char err[ERR_LEN])
{
	for (size_t i = 0; i < list_size(list); i++) {
		json_t *item = list_at(list, i);
		if (json_is_string(item)) {
			add_method(p, json_string_value(item), NULL);
			continue;
		}
		struct plan_method m = {0};
		int rc = take_keys(&method_scope, item, &m, err);
		if (!rc && !m.name)
			rc = err_set(err, "methods: item %zu has no \"method\"", i);
		if (!rc)
			rc = check_lists(m.name, json_object_get(item, "options"), err);
		if (!rc)
			add_methods(p, m.name, json_object_get(item, "options"));
		free(m.name);
		free(m.options);
		if (rc)
			return -1;
	}
	return 0;
}

/* 0 taken, 1 the value is not of the key's kind, -1 an error inside it (err is set). */
static int take_value(const struct key *k, json_t *v, void *into, char err[ERR_LEN])
{
	void *at = (char *)into + k->at;
	int64_t n;
	switch (k->kind) {
	case TEXT:
		return !take_text(v, at);
	case COUNT:
		if (!as_count(v, &n) || n > INT32_MAX)
			return 1;
		*(int *)at = (int)n;
		return 0;
	case SHARE:
		*(double *)at = json_number_value(v);
		return !json_is_number(v) || *(double *)at < 0 || *(double *)at > 1;
	case FLAG:
		*(bool *)at = json_is_true(v);
		return !json_is_boolean(v);
	case BYTES:
		return !take_bytes(v, at);
	case TEXTS:
		return !take_texts(v, at);
	case SHARES:
		return !take_numbers(v, true, at);
	case COUNTS:
		return !take_numbers(v, false, at);
	case PAIRS:
		return take_pairs(into, v, err);
	case TASKS:
		return take_tasks(into, v, err);
	case METHODS:
		return take_methods(into, v, err);
	case TIMING:
		return take_keys(&timing_scope, v, at, err);
	case OPTIONS:
		return !json_is_object(v);
	}
	return 1;
}

static int take_keys(const struct scope *s, json_t *object, void *into, char err[ERR_LEN])
{
	if (!json_is_object(object))
		return err_set(err, "%s: an object of keys is expected", s->name);
	const char *name;
	json_t *value;
	json_object_foreach(object, name, value)
	{
		const struct key *k = key_find(s, name);
		if (!k)
			return unknown_key(s, name, err);
		int rc = take_value(k, value, into, err);
		if (rc > 0)
			return err_set(err, "%s: key \"%s\" wants %s", s->name, name, kind_wants[k->kind]);
		if (rc)
			return -1;
	}
	return 0;
}

/* ---- overrides ---- */

/* JSON, a comma list, a number such as .3, or plain text. NULL = broken JSON. */
static json_t *value_of(const char *text)
{
	json_t *v = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
	if (v || *text == '[' || *text == '{')
		return v;
	if (strchr(text, ',')) {
		char *copy = text_copy(text), *rest = copy, *item;
		v = json_array();
		while ((item = strsep(&rest, ",")))
			json_array_append_new(v, value_of(item));
		free(copy);
		return v;
	}
	char *end;
	double x = strtod(text, &end);
	return *text && !*end && isfinite(x) ? json_real(x) : json_string(text);
}

/* whole: the key as it was given, of which `path` is what is left at this node. */
static int set_path(json_t *node, const char *whole, const char *path, json_t *value, char err[ERR_LEN])
{
	if (json_is_array(node)) {
		size_t i;
		json_t *item;
		json_array_foreach(node, i, item)
		{
			if (set_path(item, whole, path, value, err))
				return -1;
		}
		return 0;
	}
	if (!json_is_object(node))
		return err_set(err, "--set %s: the plan has no object for it", whole);
	const char *dot = strchr(path, '.');
	if (!dot)
		return json_object_set(node, path, value);
	char *head = text_format("%.*s", (int)(dot - path), path);
	json_t *child = json_object_get(node, head);
	if (!child)
		json_object_set_new(node, head, child = json_object());
	free(head);
	return set_path(child, whole, dot + 1, value, err);
}

static int apply_override(json_t *root, const char *override, char err[ERR_LEN])
{
	const char *equals = strchr(override, '=');
	if (!equals || equals == override)
		return err_set(err, "--set wants key=value, not \"%s\"", override);
	char *path = text_format("%.*s", (int)(equals - override), override);
	const struct key *k = key_find(&plan_scope, path);
	json_t *value = k && k->kind == TEXT ? json_string(equals + 1) : value_of(equals + 1);
	int rc = value ? set_path(root, path, path, value, err) : err_set(err, "--set %s: the value is not JSON", override);
	if (k && !strcmp(path, "targets"))
		json_object_del(root, "pairs");
	json_decref(value);
	free(path);
	return rc;
}

/* Names become objects, so that tasks.contexts=3 reaches all of them. */
static void spell_out(json_t *root, const char *name, const char *key)
{
	if (json_is_string(json_object_get(root, name)))
		json_object_set_new(root, name, json_pack("[{s:O}]", key, json_object_get(root, name)));
	json_t *list = json_object_get(root, name);
	for (size_t i = 0; i < json_array_size(list); i++) {
		json_t *item = json_array_get(list, i);
		if (json_is_string(item))
			json_array_set_new(list, i, json_pack("{s:O}", key, item));
	}
}

/* Two of the same words are the same cells, which would be counted and answered twice. */
static int check_tasks_differ(json_t *list, char err[ERR_LEN])
{
	for (size_t i = 0; i < json_array_size(list); i++)
		for (size_t k = 0; k < i; k++)
			if (json_equal(json_array_get(list, i), json_array_get(list, k)))
				return err_set(err, "tasks: items %zu and %zu are the same", k, i);
	return 0;
}

/* ---- the plan as a whole ---- */

static void add_text_default(struct texts *t, const char *s)
{
	if (t->n)
		return;
	t->v = mem_new(1, sizeof *t->v);
	t->v[t->n++] = text_copy(s);
}

static void add_control(struct plan *p, const char *name)
{
	for (int i = 0; i < p->n_methods; i++) {
		if (!strcmp(p->methods[i].name, name))
			return;
	}
	add_method(p, name, NULL);
}

static void fill_defaults(struct plan *p, const char *path)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
	char *stem = text_format("%.*s", (int)(dot ? dot - base : (long)strlen(base)), base);
	p->title = p->title ? p->title : text_copy(stem);
	p->db = p->db ? p->db : text_format("results/%s.db", stem);
	free(stem);
	add_text_default(&p->precisions, "bf16");
	add_text_default(&p->protocols, "agnostic");
	if (!p->retained.n) {
		p->retained.v = mem_new(4, sizeof(double));
		for (int i = 0; i < 4; i++)
			p->retained.v[p->retained.n++] = (double[]){.1, .3, .5, .7}[i];
	}
	for (int i = 0; i < p->n_tasks; i++) {
		if (!p->tasks[i].lengths.n) {
			p->tasks[i].lengths.v = mem_new(1, sizeof(double));
			p->tasks[i].lengths.n = 1;
		}
	}
	if (!p->n_pairs && p->targets.n)
		p->pairs = mem_new((size_t)p->targets.n, sizeof *p->pairs);
	while (p->n_pairs < p->targets.n)
		p->pairs[p->n_pairs].target = text_copy(p->targets.v[p->n_pairs]), p->n_pairs++;
	add_control(p, "full");
	add_control(p, "random");
	for (int i = 0; i < p->n_methods; i++) {
		if (!runner_method_trained(p->methods[i].name))
			continue;
		add_control(p, "head-prior"); /* what is known of the heads without the context */
		break;
	}
}

static int check_names(const char *what, const struct texts *given, const char *const *known, size_t n, char err[ERR_LEN])
{
	for (int i = 0; i < given->n; i++) {
		bool found = false;
		for (size_t k = 0; k < n && !found; k++)
			found = !strcmp(given->v[i], known[k]);
		if (!found)
			return unknown_name(what, given->v[i], known, n, err);
	}
	return 0;
}

/* Words a task takes from a list; whether it takes them at all, the task says. */
static int check_choices(const struct plan_task *t, char err[ERR_LEN])
{
	const struct {
		const char *what;
		char *given;
		const char *known[3];
		size_t n;
	} choices[] = {{"tasks: wording", t->wording, {"plain", "tiny"}, 2},
		{"tasks: mode", t->mode, {"multi-turn", "multi-request"}, 2},
		{"tasks: truncate", t->truncate, {"official", "ids"}, 2},
		{"tasks: generator", t->generator, {"own", "upstream", "rows"}, 3},
		{"tasks: release", t->release, {"current", "oct2024"}, 2}};
	for (size_t i = 0; i < COUNT_OF(choices); i++) {
		char *given = choices[i].given;
		if (given && check_names(choices[i].what, &(struct texts){&given, 1}, choices[i].known, choices[i].n, err))
			return -1;
	}
	return 0;
}

static int check_tasks(const struct plan *p, char err[ERR_LEN])
{
	size_t n = task_def_count();
	const char **known = mem_new(n, sizeof *known);
	for (size_t i = 0; i < n; i++)
		known[i] = task_def_at(i)->name;
	int rc = 0;
	for (int i = 0; i < p->n_tasks && !rc; i++)
		rc = check_names("task", &(struct texts){&p->tasks[i].name, 1}, known, n, err);
	free(known);
	for (int i = 0; i < p->n_tasks && !rc; i++)
		rc = check_choices(&p->tasks[i], err);
	return rc;
}

static int resolve_methods(struct plan *p, char err[ERR_LEN])
{
	for (int i = 0; i < p->n_methods; i++) {
		struct plan_method *m = &p->methods[i];
		if (runner_method_resolve(m->name, m->options, &m->params, err))
			return -1;
		for (int j = 0; j < i; j++) {
			if (!strcmp(m->name, p->methods[j].name) && !strcmp(m->params, p->methods[j].params))
				return err_set(err, "methods: %s with %s is there twice", m->name, m->params);
		}
	}
	return 0;
}

static bool among(double x, struct numbers list)
{
	for (int i = 0; i < list.n; i++) {
		if (fabs(list.v[i] - x) < 5e-7)
			return true;
	}
	return false;
}

static int check_timing(const struct plan *p, char err[ERR_LEN])
{
	const struct plan_timing *t = &p->timing;
	if (!t->enabled)
		return 0;
	if (t->repetitions < 9)
		return err_set(err, "timing: repetitions is %d; fewer than 9 cannot be ranked", t->repetitions);
	for (int i = 0; i < t->retained.n; i++) {
		if (!among(t->retained.v[i], p->retained))
			return err_set(err, "timing: retained %g is not among the plan's retained", t->retained.v[i]);
	}
	for (int i = 0; i < t->tasks.n; i++) {
		bool found = false;
		for (int k = 0; k < p->n_tasks; k++)
			found = found || !strcmp(p->tasks[k].name, t->tasks.v[i]);
		if (!found)
			return err_set(err, "timing: task \"%s\" is not among the plan's tasks", t->tasks.v[i]);
	}
	for (int i = 0; i < t->lengths.n; i++) {
		bool found = false;
		for (int k = 0; k < p->n_tasks; k++)
			found = found || among(t->lengths.v[i], p->tasks[k].lengths);
		if (!found)
			return err_set(err, "timing: length %.0f is not among the tasks' lengths", t->lengths.v[i]);
	}
	return check_names("timing: protocol", &t->protocols, (const char *const *)p->protocols.v, (size_t)p->protocols.n, err);
}

/* What is said of a proxy needs one. */
static int check_proxy(const struct plan *p, char err[ERR_LEN])
{
	const char *key = p->proxy_device ? "proxy_device" : p->proxy_threads ? "proxy_threads" : NULL;
	for (int i = 0; i < p->n_pairs; i++) {
		if (p->pairs[i].proxy)
			return 0;
	}
	return key ? err_set(err, "%s: the plan has no proxy; \"pairs\": [{\"target\": ..., \"proxy\": ...}] names one", key) : 0;
}

static int check_texts_differ(const char *what, const struct texts *t, char err[ERR_LEN])
{
	for (int i = 0; i < t->n; i++)
		for (int k = 0; k < i; k++)
			if (!strcmp(t->v[i], t->v[k]))
				return err_set(err, "%s: \"%s\" is there twice", what, t->v[i]);
	return 0;
}

static int check_numbers_differ(const char *what, const struct numbers *n, double scale, char err[ERR_LEN])
{
	for (int i = 0; i < n->n; i++)
		for (int k = 0; k < i; k++)
			if (llround(n->v[i] * scale) == llround(n->v[k] * scale))
				return err_set(err, "%s: %g is there twice", what, n->v[i]);
	return 0;
}

static bool same_pair(const struct plan_pair *a, const struct plan_pair *b)
{
	return !strcmp(a->target, b->target) && !strcmp(a->proxy ? a->proxy : "", b->proxy ? b->proxy : "");
}

/* Of every list that expands to cells. */
static int check_all_differ(const struct plan *p, char err[ERR_LEN])
{
	for (int i = 0; i < p->n_pairs; i++)
		for (int k = 0; k < i; k++)
			if (same_pair(&p->pairs[i], &p->pairs[k]))
				return err_set(err, "pairs, targets: %s is there twice", p->pairs[i].target);
	for (int i = 0; i < p->n_tasks; i++)
		if (check_numbers_differ("tasks: lengths", &p->tasks[i].lengths, 1, err))
			return -1;
	return check_texts_differ("precision", &p->precisions, err) || check_texts_differ("protocols", &p->protocols, err) ||
			       check_numbers_differ("retained", &p->retained, PPM, err)
		       ? -1
		       : 0;
}

static int check_place(const struct plan *p, char err[ERR_LEN])
{
	struct runner_options o = {.device = p->device, .proxy_device = p->proxy_device, .isa = p->isa, .threads = p->threads,
		.attention = p->attention, .chat_template = p->chat_template};
	if (runner_names_check(&o, err))
		return -1;
	return p->kv_offload ? models_check_offload(p->device, p->proxy_device, err) : 0;
}

static int check_plan(struct plan *p, char err[ERR_LEN])
{
	static const char *const protocols[] = {"agnostic", "aware"}, *const precisions[] = {"bf16", "fp32"};
	if (!p->n_pairs)
		return err_set(err, "the plan names no targets");
	if (!p->n_tasks)
		return err_set(err, "the plan names no tasks");
	if (!*p->db || (p->report && !*p->report))
		return err_set(err, "%s: an empty name of a file", *p->db ? "report" : "db");
	if (p->report && !strcmp(p->report, p->db))
		return err_set(err, "db and report are one file: %s", p->db);
	if (check_names("protocol", &p->protocols, protocols, 2, err) ||
		check_names("precision", &p->precisions, precisions, 2, err) || check_proxy(p, err) ||
		check_place(p, err) || check_tasks(p, err) ||
		resolve_methods(p, err))
		return -1;
	return check_all_differ(p, err) ? -1 : check_timing(p, err);
}

/* methods x retained; the full cache is one variant, at r = 1, and comes first: the others are compared with it. */
static void expand_variants(struct plan *p)
{
	p->variants = mem_new((size_t)(p->n_methods * p->retained.n + 1), sizeof *p->variants);
	for (int m = 0; m < p->n_methods; m++) {
		if (!strcmp(p->methods[m].name, "full"))
			p->variants[p->n_variants++] = (struct plan_variant){m, 1, PPM};
	}
	for (int m = 0; m < p->n_methods; m++) {
		for (int r = 0; r < p->retained.n && strcmp(p->methods[m].name, "full"); r++)
			p->variants[p->n_variants++] =
				(struct plan_variant){m, p->retained.v[r], (int)lround(p->retained.v[r] * PPM)};
	}
}

int plan_read(struct plan *p, const char *path, const char *const *overrides, int n_overrides, char err[ERR_LEN])
{
	char *text, why[ERR_LEN];
	size_t len;
	*p = (struct plan){0};
	if (file_read(path, &text, &len, why))
		return err_set(err, "plan: %s", why);
	int rc = strlen(text) == len ? plan_read_text(p, text, path, overrides, n_overrides, err)
				     : err_set(err, "plan %s: holds a byte 0: no text", path);
	free(text);
	return rc;
}

int plan_read_text(struct plan *p, const char *text, const char *path, const char *const *overrides, int n_overrides, char err[ERR_LEN])
{
	*p = (struct plan){.seed = 1, .timing = {.enabled = true, .repetitions = 9, .warmup = 1, .decode_tokens = 16}};
	json_error_t why;
	json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
	if (!root)
		return err_set(err, "plan %s, line %d: %s", path, why.line, why.text);
	int rc = 0;
	for (int i = 0; i <= n_overrides && !rc; i++) {
		spell_out(root, "tasks", "name"); /* anew: an override may have named others */
		spell_out(root, "methods", "method");
		rc = i < n_overrides ? apply_override(root, overrides[i], err) : 0;
	}
	if (!rc)
		rc = check_tasks_differ(json_object_get(root, "tasks"), err);
	if (!rc)
		rc = take_keys(&plan_scope, root, p, err);
	if (!rc && p->n_pairs && p->targets.n)
		rc = err_set(err, "the plan names targets and pairs: one of them, please");
	if (!rc) {
		p->json = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
		p->seed_given = json_object_get(root, "seed") != NULL;
		if (json_object_get(root, "training"))
			p->training = json_dumps(json_object_get(root, "training"), JSON_COMPACT);
		fill_defaults(p, path);
		rc = check_plan(p, err);
	}
	if (!rc)
		expand_variants(p);
	json_decref(root);
	return rc;
}

int plan_check_single(const struct plan *p, bool pairs, char err[ERR_LEN])
{
	if (p->precisions.n > 1)
		return err_set(err, "the plan has %d precisions, one is taken here: --precision %s", p->precisions.n,
			p->precisions.v[0]);
	if (!pairs && p->n_pairs > 1)
		return err_set(err, "the plan has %d targets, one is taken here: --targets %s", p->n_pairs, p->pairs[0].target);
	return 0;
}

int plan_check_methods(const struct plan *p, char err[ERR_LEN])
{
	bool proxy = true;
	for (int i = 0; i < p->n_pairs; i++)
		proxy = proxy && p->pairs[i].proxy;
	for (int i = 0; i < p->n_methods; i++)
		if (runner_method_check(p->methods[i].name, p->methods[i].options, proxy, err))
			return -1;
	return 0;
}

static void free_keys(const struct scope *s, void *into)
{
	for (size_t i = 0; i < s->n; i++) {
		void *at = (char *)into + s->keys[i].at;
		switch (s->keys[i].kind) {
		case TEXT:
		case OPTIONS:
			free(*(char **)at);
			break;
		case TEXTS:
			texts_free(at);
			break;
		case SHARES:
		case COUNTS:
			free(((struct numbers *)at)->v);
			break;
		case TIMING:
			free_keys(&timing_scope, at);
			break;
		default:
			break;
		}
	}
}

void plan_free(struct plan *p)
{
	for (int i = 0; i < p->n_pairs; i++)
		free_keys(&pair_scope, &p->pairs[i]);
	for (int i = 0; i < p->n_tasks; i++)
		free_keys(&task_scope, &p->tasks[i]);
	for (int i = 0; i < p->n_methods; i++) {
		free_keys(&method_scope, &p->methods[i]);
		free(p->methods[i].params);
	}
	free_keys(&plan_scope, p);
	free(p->pairs);
	free(p->tasks);
	free(p->methods);
	free(p->variants);
	free(p->json);
	*p = (struct plan){0};
}
