/* params.c: effective parameters of a method: defaults of its scorer and allocator, compat modes and the user's options laid over
 * them, each checked. Origins of defaults stand in the tables; what is stored in a database is params_json. */
#include "runners/methods/parts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 64 };

static const struct param_def compat_def = {.name = "compat",
	.kind = PARAM_TEXT,
	.text = "none",
	.origin = "ours; another value reproduces that reference's own arithmetic"};

struct param {
	const struct param_def *def;
	double number;
	char *text;
};
struct params {
	size_t n;
	struct param list[];
};

static size_t count(const struct param_def *d)
{
	size_t n = 0;
	while (d && d[n].name)
		n++;
	return n;
}

static void add(struct params *p, const struct param_def *d)
{
	p->list[p->n++] = (struct param){d, d->number, d->kind == PARAM_TEXT ? text_copy(d->text) : NULL};
}

struct params *params_new(const struct param_def *scorer, const struct param_def *allocator)
{
	struct params *p = mem_new(1, sizeof(*p) + (1 + count(scorer) + count(allocator)) * sizeof(struct param));
	add(p, &compat_def);
	for (; scorer && scorer->name; scorer++)
		add(p, scorer);
	for (; allocator && allocator->name; allocator++)
		add(p, allocator);
	return p;
}

void params_free(struct params *p)
{
	for (size_t i = 0; p && i < p->n; i++)
		free(p->list[i].text);
	free(p);
}

static struct param *find(const struct params *p, const char *name)
{
	for (size_t i = 0; i < p->n; i++)
		if (strcmp(p->list[i].def->name, name) == 0)
			return (struct param *)&p->list[i];
	return NULL;
}

static const struct param *get(const struct params *p, const char *name)
{
	const struct param *found = find(p, name);
	assert(found); /* a scorer asks for its own parameters only */
	return found;
}

int64_t param_int(const struct params *p, const char *name)
{
	return (int64_t)get(p, name)->number;
}

double param_real(const struct params *p, const char *name)
{
	return get(p, name)->number;
}

const char *param_text(const struct params *p, const char *name)
{
	return get(p, name)->text;
}

bool param_bool(const struct params *p, const char *name)
{
	return get(p, name)->number != 0;
}

const char *param_compat(const struct params *p)
{
	return get(p, "compat")->text;
}

/* Is text one of "a|b|c"? */
static bool listed(const char *choices, const char *text)
{
	size_t len = strlen(text);
	for (const char *c = choices; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL)
		if (strcspn(c, "|") == len && memcmp(c, text, len) == 0 && len > 0)
			return true;
	return false;
}

static int set_one(struct param *p, const json_t *value, const char *compats, const char *what, char err[ERR_LEN])
{
	const struct param_def *d = p->def;
	switch (d->kind) {
	case PARAM_TEXT: {
		const char *choices = d == &compat_def ? compats : d->choices, *text = json_string_value(value);
		if (!text)
			return err_set(err, "%s: option %s must be a text", what, d->name);
		if (d->legal ? !d->legal(text) : choices && !listed(choices, text))
			return err_set(err, "%s: option %s = \"%s\" is not one of %s", what, d->name, text, choices);
		free(p->text);
		p->text = text_copy(text);
		return 0;
	}
	case PARAM_BOOL:
		if (!json_is_boolean(value))
			return err_set(err, "%s: option %s must be true or false", what, d->name);
		p->number = json_is_true(value);
		return 0;
	case PARAM_INT:
		if (!json_is_integer(value))
			return err_set(err, "%s: option %s must be an integer", what, d->name);
		break;
	case PARAM_REAL:
		if (!json_is_number(value))
			return err_set(err, "%s: option %s must be a number", what, d->name);
		break;
	}
	double number = json_number_value(value);
	if ((d->min != 0 || d->max != 0) && !(number >= d->min && number <= d->max))
		return err_set(err, "%s: option %s = %g is outside %g .. %g", what, d->name, number, d->min, d->max);
	if (d->odd && (int64_t)number % 2 == 0)
		return err_set(err, "%s: option %s = %g must be odd", what, d->name, number);
	p->number = number;
	return 0;
}

int params_set(struct params *p, const char *options_json, const char *compats, const char *what, char err[ERR_LEN])
{
	json_error_t bad;
	const char *key;
	json_t *value,
		*options = options_json && *options_json ? json_loads(options_json, JSON_REJECT_DUPLICATES, &bad) : json_object();
	int rc = -1;
	if (!options)
		return err_set(err, "%s: options are not JSON: %s", what, bad.text);
	if (!json_is_object(options)) {
		err_set(err, "%s: options must be a JSON object", what);
		goto cleanup;
	}
	json_object_foreach(options, key, value)
	{
		struct param *one = find(p, key);
		if (!one) {
			const char *names[MAX_NAMES];
			size_t n = 0;
			for (; n < p->n && n < MAX_NAMES; n++)
				names[n] = p->list[n].def->name;
			const char *near = name_nearest(key, names, n);
			err_set(err, near ? "%s: unknown option %s; did you mean %s?" : "%s: unknown option %s", what, key, near);
			goto cleanup;
		}
		if (set_one(one, value, compats, what, err))
			goto cleanup;
	}
	rc = 0;
cleanup:
	json_decref(options);
	return rc;
}

static bool same(const struct params *a, const struct params *b, const char *name)
{
	const struct param *x = find(a, name), *y = find(b, name);
	return x && y && x->number == y->number && (!x->text) == (!y->text) && (!x->text || strcmp(x->text, y->text) == 0);
}

bool params_equal(const struct params *a, const struct params *b, const struct param_def *of)
{
	if (!same(a, b, "compat"))
		return false;
	for (; of && of->name; of++)
		if (!same(a, b, of->name))
			return false;
	return true;
}

int params_check_fit(const struct plan_method *m, const struct params *usual, char err[ERR_LEN])
{
	for (size_t i = 0; i < m->params->n; i++) {
		const struct param_def *d = m->params->list[i].def;
		const char *why = d->unfit && !same(m->params, usual, d->name) ? d->unfit(m) : NULL;
		if (why)
			return err_set(err, "%s: option %s %s", m->name, d->name, why);
	}
	return 0;
}

json_t *params_json(const struct params *p)
{
	json_t *o = json_object();
	for (size_t i = 0; i < p->n; i++) {
		const struct param *x = &p->list[i];
		json_t *value = NULL;
		switch (x->def->kind) {
		case PARAM_INT:
			value = json_integer((json_int_t)x->number);
			break;
		case PARAM_REAL:
			value = json_real(x->number);
			break;
		case PARAM_TEXT:
			value = json_string(x->text);
			break;
		case PARAM_BOOL:
			value = json_boolean(x->number != 0);
			break;
		}
		json_object_set_new(o, x->def->name, value);
	}
	return o;
}

static void describe(struct strbuf *b, const struct param_def *d)
{
	for (; d && d->name; d++) {
		if (b->len)
			strbuf_puts(b, ", ");
		if (d->kind == PARAM_TEXT)
			strbuf_printf(b, "%s=%s", d->name, d->text);
		else if (d->kind == PARAM_BOOL)
			strbuf_printf(b, "%s=%s", d->name, d->number != 0 ? "true" : "false");
		else
			strbuf_printf(b, "%s=%g", d->name, d->number);
		strbuf_printf(b, " (%s)", d->origin);
	}
}

char *params_describe(const struct param_def *a, const struct param_def *b)
{
	struct strbuf text = {0};
	describe(&text, a);
	describe(&text, b);
	return strbuf_take(&text);
}
