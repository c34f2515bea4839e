/* catalogue.c: the tables of methods, architectures and templates as plain text for the harness. */
#include "runners/runner_impl.h"

#include <stdlib.h>
#include <string.h>

int runner_method_resolve(const char *method, const char *options, char **canonical, char err[ERR_LEN])
{
	struct plan_method m;
	if (method_resolve(&m, method, options, err))
		return -1;
	*canonical = method_canonical(&m);
	method_free(&m);
	return 0;
}

int runner_method_check(const char *method, const char *options, bool proxy, char err[ERR_LEN])
{
	struct plan_method m;
	if (method_resolve(&m, method, options, err))
		return -1;
	int rc = method_check(&m, proxy, err);
	method_free(&m);
	return rc;
}

size_t runner_method_count(void)
{
	return method_count() + scorer_count() + allocator_count();
}

/* Parameter texts are made at the first look and kept for the life of the process. */
static const char *describe(size_t i, const struct param_def *a, const struct param_def *b)
{
	static char **text;
	if (!text)
		text = mem_new(runner_method_count(), sizeof *text);
	if (!text[i])
		text[i] = params_describe(a, b);
	return text[i];
}

static struct runner_method_info named_method(size_t i)
{
	const struct method *m = method_at(i);
	const struct param_def *scorer = NULL, *allocator = NULL;
	for (size_t k = 0; m->scorer && k < scorer_count(); k++)
		if (!strcmp(scorer_at(k)->name, m->scorer))
			scorer = scorer_at(k)->params;
	for (size_t k = 0; m->allocator && k < allocator_count(); k++)
		if (!strcmp(allocator_at(k)->name, m->allocator))
			allocator = allocator_at(k)->params;
	return (struct runner_method_info){"method", m->name, m->title, m->origin, describe(i, scorer, allocator)};
}

struct runner_method_info runner_method_at(size_t i)
{
	size_t methods = method_count(), scorers = scorer_count();
	if (i < methods)
		return named_method(i);
	if (i < methods + scorers) {
		const struct scorer *s = scorer_at(i - methods);
		return (struct runner_method_info){"scorer", s->name, s->title, s->origin, describe(i, s->params, NULL)};
	}
	const struct allocator *a = allocator_at(i - methods - scorers);
	return (struct runner_method_info){"allocator", a->name, a->title, a->origin, describe(i, NULL, a->params)};
}

size_t runner_template_count(void)
{
	return chat_count();
}

const char *runner_template_at(size_t i)
{
	return chat_name(chat_at(i));
}

size_t runner_arch_count(void)
{
	return model_arch_count();
}

const char *runner_arch_at(size_t i)
{
	return model_arch_at(i);
}

bool runner_method_trained(const char *method)
{
	struct plan_method m;
	char err[ERR_LEN];
	if (method_resolve(&m, method, NULL, err))
		return false;
	bool trained = (m.scorer && m.scorer->trained) || (m.allocator && m.allocator->trained);
	method_free(&m);
	return trained;
}
