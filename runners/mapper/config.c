/* config.c: a mapper's configuration: one table of options that parses command lines, plans and file headers alike, and writes
 * them. */
#include "runners/mapper/layout.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const double mapper_ratios[MAPPER_RATIOS] = {.1, .2, .3, .5, .7};
const char *const mapper_terms[MAPPER_TERMS] = {"bin", "mse", "fine", "global", "cos"};

enum option_kind { OPTION_CHOICE, OPTION_INT, OPTION_REAL, OPTION_SEED, OPTION_QUERIES };
struct option {
	const char *name;
	enum option_kind kind;
	size_t at;           /* of the field */
	const char *choices; /* CHOICE: "a|b", their places are the values; INT: the word for MAPPER_ALL, or NULL */
	double min, max;     /* INT, REAL */
};
#define AT(field) offsetof(struct mapper_config, field)
static const struct option options[] = {
	{"mapper", OPTION_CHOICE, AT(kind), "flat|linear|axial", 0, 0},
	{"layers", OPTION_INT, AT(proxy_layers), NULL, 0, 1024},
	{"proxy_heads", OPTION_INT, AT(proxy_heads), NULL, 0, 1024},
	{"target_layers", OPTION_INT, AT(layers), NULL, 0, 1024},
	{"target_kv_heads", OPTION_INT, AT(kv_heads), NULL, 0, 1024},
	{"source", OPTION_CHOICE, AT(source), "model|self", 0, 0},
	{"heads", OPTION_CHOICE, AT(heads), "query|kv", 0, 0},
	{"queries", OPTION_QUERIES, AT(queries), NULL, 0, 0},
	{"normalize", OPTION_CHOICE, AT(normalize), "visible|sum", 0, 0},
	{"compress", OPTION_CHOICE, AT(compress), "log|log1p|none", 0, 0},
	{"channels", OPTION_INT, AT(channels), NULL, 0, 4096},
	{"taps", OPTION_INT, AT(taps), NULL, 1, 15},
	{"norm", OPTION_CHOICE, AT(norm), "layer|batch", 0, 0},
	{"encoder", OPTION_CHOICE, AT(encoder), "off|on", 0, 0},
	{"window", OPTION_INT, AT(window), "full", 0, 4096},
	{"neighbours", OPTION_INT, AT(neighbours), "all", 0, 1024},
	{"embeddings", OPTION_CHOICE, AT(embeddings), "full|shared", 0, 0},
	{"target", OPTION_CHOICE, AT(target), "log|logit", 0, 0},
	{"scope", OPTION_CHOICE, AT(scope), "global|layer|head", 0, 0},
	{"w_bin", OPTION_REAL, AT(weight[0]), NULL, 0, 1e6},
	{"w_mse", OPTION_REAL, AT(weight[1]), NULL, 0, 1e6},
	{"w_fine", OPTION_REAL, AT(weight[2]), NULL, 0, 1e6},
	{"w_global", OPTION_REAL, AT(weight[3]), NULL, 0, 1e6},
	{"w_cos", OPTION_REAL, AT(weight[4]), NULL, 0, 1e6},
	{"lambda", OPTION_REAL, AT(lambda), NULL, 0, 1e9},
	{"lr", OPTION_REAL, AT(lr), NULL, 0, 10},
	{"weight_decay", OPTION_REAL, AT(weight_decay), NULL, 0, 10},
	{"warmup", OPTION_REAL, AT(warmup), NULL, 0, 1},
	{"clip", OPTION_REAL, AT(clip), NULL, 0, 1e9},
	{"steps", OPTION_INT, AT(steps), NULL, 0, 100000000},
	{"crop", OPTION_INT, AT(crop), NULL, 1, 1 << 20},
	{"pairs", OPTION_INT, AT(pairs), NULL, 0, 1 << 24},
	{"eval_every", OPTION_INT, AT(eval_every), NULL, 1, 100000000},
	{"patience", OPTION_INT, AT(patience), NULL, 0, 100000000},
	{"seed", OPTION_SEED, AT(seed), NULL, 0, 0},
};
enum { OPTIONS = sizeof options / sizeof *options };

void mapper_defaults(struct mapper_config *c)
{
	*c = (struct mapper_config){.kind = MAPPER_FLAT,
		.taps = 3,
		.encoder = 1,
		.weight = {1, 1, 1, 1, 1},
		.lambda = .02,
		.lr = 2e-3,
		.weight_decay = .01,
		.warmup = .05,
		.clip = 1,
		.steps = 1200,
		.crop = 384,
		.pairs = 4096,
		.eval_every = 100,
		.patience = 5};
}

/* Place of `value` in "a|b|c", or -1. */
static int choice_index(const char *choices, const char *value)
{
	size_t len = strlen(value);
	for (int i = 0;; i++) {
		const char *end = strchrnul(choices, '|');
		if ((size_t)(end - choices) == len && memcmp(choices, value, len) == 0)
			return i;
		if (!*end)
			return -1;
		choices = end + 1;
	}
}

static char *choice_at(const char *choices, int i)
{
	while (i--)
		choices = strchr(choices, '|') + 1;
	return text_format("%.*s", (int)(strchrnul(choices, '|') - choices), choices);
}

static bool parse_int(const char *text, double min, double max, int *out)
{
	char *end;
	errno = 0;
	long v = strtol(text, &end, 10);
	if (errno || end == text || *end || (double)v < min || (double)v > max)
		return false;
	*out = (int)v;
	return true;
}

static bool parse_queries(struct mapper_config *c, const char *value)
{
	static const char *const names[] = {"all", "stride:", "last:"};
	if (strcmp(value, names[0]) == 0) {
		c->queries = MAPPER_QUERIES_ALL;
		c->query_n = 0;
		return true;
	}
	for (int i = 1; i < 3; i++) {
		size_t len = strlen(names[i]);
		if (strncmp(value, names[i], len) == 0 && parse_int(value + len, 1, 1 << 24, &c->query_n)) {
			c->queries = i;
			return true;
		}
	}
	return false;
}

static bool set_option(struct mapper_config *c, const struct option *o, const char *value)
{
	void *field = (char *)c + o->at;
	int *whole = field;
	double *real = field;
	uint64_t *seed = field;
	char *end;
	errno = 0;
	switch (o->kind) {
	case OPTION_CHOICE:
		*whole = choice_index(o->choices, value);
		return *whole >= 0;
	case OPTION_INT:
		if (o->choices && strcmp(value, o->choices) == 0) {
			*whole = MAPPER_ALL;
			return true;
		}
		return parse_int(value, o->min, o->max, whole);
	case OPTION_REAL:
		*real = strtod(value, &end);
		return end != value && !*end && *real >= o->min && *real <= o->max;
	case OPTION_SEED:
		*seed = strtoull(value, &end, 10);
		return end != value && !*end && !errno && *value != '-';
	case OPTION_QUERIES:
		return parse_queries(c, value);
	}
	return false;
}

static char *legal_values(const struct option *o)
{
	switch (o->kind) {
	case OPTION_CHOICE:
		return text_copy(o->choices);
	case OPTION_INT:
		return text_format("%.0f to %.0f%s%s", o->min, o->max, o->choices ? " or " : "", o->choices ? o->choices : "");
	case OPTION_REAL:
		return text_format("%g to %g", o->min, o->max);
	case OPTION_SEED:
		return text_copy("a whole number");
	case OPTION_QUERIES:
		return text_copy("all|stride:K|last:W");
	}
	return NULL;
}

static int unknown_option(const char *name, char err[ERR_LEN])
{
	const char *names[OPTIONS];
	for (int i = 0; i < OPTIONS; i++)
		names[i] = options[i].name;
	const char *nearest = name_nearest(name, names, OPTIONS);
	return err_set(err, "a mapper has no option \"%s\"%s%s%s", name, nearest ? "; did you mean \"" : "",
		nearest ? nearest : "", nearest ? "\"?" : "");
}

int mapper_option(struct mapper_config *c, const char *name, const char *value, char err[ERR_LEN])
{
	for (int i = 0; i < OPTIONS; i++) {
		if (strcmp(options[i].name, name) != 0)
			continue;
		struct mapper_config changed = *c;
		if (set_option(&changed, &options[i], value)) {
			*c = changed;
			return 0;
		}
		char *legal = legal_values(&options[i]);
		err_set(err, "mapper option %s cannot be \"%s\"; it is one of: %s", name, value, legal);
		free(legal);
		return -1;
	}
	return unknown_option(name, err);
}

/* ---- JSON ---- */
static json_t *option_json(const struct mapper_config *c, const struct option *o)
{
	const void *field = (const char *)c + o->at;
	char *text = NULL;
	json_t *value;
	switch (o->kind) {
	case OPTION_INT:
		if (o->choices && *(const int *)field == MAPPER_ALL)
			return json_string(o->choices);
		return json_integer(*(const int *)field);
	case OPTION_REAL:
		return json_real(*(const double *)field);
	case OPTION_CHOICE:
		text = choice_at(o->choices, *(const int *)field);
		break;
	case OPTION_SEED:
		text = text_format("%llu", (unsigned long long)*(const uint64_t *)field); /* beyond JSON's integers */
		break;
	case OPTION_QUERIES:
		text = c->queries == MAPPER_QUERIES_ALL
			       ? text_copy("all")
			       : text_format("%s:%d", c->queries == MAPPER_QUERIES_STRIDE ? "stride" : "last", c->query_n);
		break;
	}
	value = json_string(text);
	free(text);
	return value;
}

char *mapper_config_json(const struct mapper_config *c)
{
	json_t *root = json_object();
	for (int i = 0; i < OPTIONS; i++)
		json_object_set_new(root, options[i].name, option_json(c, &options[i]));
	char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17));
	json_decref(root);
	char *copy = text_copy(text);
	free(text);
	return copy;
}

int mapper_config_parse(struct mapper_config *c, const char *json, char err[ERR_LEN])
{
	json_error_t e;
	json_t *root = json_loads(json, 0, &e), *value;
	const char *name;
	int rc = 0;
	if (!json_is_object(root)) {
		json_decref(root);
		return err_set(err, "a mapper's options are no JSON object: %s", root ? "another kind of value" : e.text);
	}
	mapper_defaults(c);
	json_object_foreach(root, name, value)
	{
		char *text = json_is_string(value) ? text_copy(json_string_value(value))
						   : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
		rc = rc ? rc : mapper_option(c, name, text ? text : "", err);
		free(text);
	}
	json_decref(root);
	return rc;
}
