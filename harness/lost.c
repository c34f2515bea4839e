/* lost.c: see lost.h. */
#include "harness/lost.h"

#include "harness/sweep.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOST_ENV "KVBENCH_LOST"
enum { METHOD_LOSSES = 2 };

/* ---- from process to process ---- */

/* What the next process goes on counting. */
static const struct {
	const char *name;
	size_t at;
} counted[] = {
	{"ok", offsetof(struct sweep_summary, ok)},
	{"failed", offsetof(struct sweep_summary, failed)},
	{"oom", offsetof(struct sweep_summary, oom)},
	{"not_applicable", offsetof(struct sweep_summary, not_applicable)},
	{"empty", offsetof(struct sweep_summary, empty)},
	{"loads_failed", offsetof(struct sweep_summary, loads_failed)},
	{"timings_failed", offsetof(struct sweep_summary, timings_failed)},
};
enum { COUNTED = sizeof counted / sizeof *counted };

static const char *text_of(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));
	return text ? text : "";
}

static void read_unloaded(struct lost *l, struct sweep_summary *sum, const json_t *list)
{
	l->n_unloaded = (int)json_array_size(list);
	l->unloaded = mem_new((size_t)l->n_unloaded + 1, sizeof *l->unloaded);
	for (int i = 0; i < l->n_unloaded; i++) {
		struct lost_load *u = &l->unloaded[i];
		json_unpack(json_array_get(list, (size_t)i), "[i, i, i]", &u->load, &u->cells, &u->samples);
		sum->cells += u->cells; /* this process does not plan it */
		sum->samples += u->samples;
	}
}

static void read_state(struct lost *l, struct sweep_summary *sum, const json_t *o)
{
	const json_t *of_method = json_object_get(o, "of_method"), *untimed = json_object_get(o, "untimed");
	snprintf(l->run_id, sizeof l->run_id, "%s", text_of(o, "run"));
	snprintf(l->device, sizeof l->device, "%s", text_of(o, "device"));
	snprintf(l->kind, sizeof l->kind, "%s", text_of(o, "kind"));
	l->unanswered = json_is_true(json_object_get(o, "unanswered"));
	snprintf(l->by, sizeof l->by, "%s", text_of(o, "by"));
	l->apart = *text_of(o, "apart") ? text_copy(text_of(o, "apart")) : NULL;
	for (int i = 0; i < l->n_methods; i++)
		l->of_method[i] = (int)json_integer_value(json_array_get(of_method, (size_t)i));
	l->n_untimed = (int)json_array_size(untimed);
	l->untimed = mem_new((size_t)l->n_untimed + 1, sizeof *l->untimed);
	for (int i = 0; i < l->n_untimed; i++)
		snprintf(l->untimed[i], SHA_LEN, "%s", json_string_value(json_array_get(untimed, (size_t)i)));
	read_unloaded(l, sum, json_object_get(o, "unloaded"));
	for (int i = 0; i < COUNTED; i++)
		*(int *)((char *)sum + counted[i].at) = (int)json_integer_value(json_object_get(o, counted[i].name));
	sum->missing = sum->ok + sum->failed + sum->oom + sum->not_applicable; /* were missing when the run began */
}

void lost_open(struct lost *l, const struct plan *p, struct sweep_summary *sum)
{
	*l = (struct lost){.n_methods = p->n_methods, .of_method = mem_new((size_t)p->n_methods + 1, sizeof *l->of_method)};
	const char *text = getenv(LOST_ENV);
	json_t *o = text ? json_loads(text, 0, NULL) : NULL;
	if (o)
		read_state(l, sum, o);
	json_decref(o);
	unsetenv(LOST_ENV);
}

void lost_free(struct lost *l)
{
	free(l->of_method);
	free(l->apart);
	free(l->untimed);
	free(l->unloaded);
	*l = (struct lost){0};
}

void lost_hand_over(const struct lost *l, const char *run_id, const struct sweep_summary *sum)
{
	json_t *o = json_pack("{s:s, s:s, s:s, s:b, s:s, s:s, s:[], s:[], s:[]}", "run", run_id, "device", l->device, "kind",
		l->kind, "unanswered", l->unanswered, "by", l->by, "apart", l->apart ? l->apart : "", "of_method", "untimed",
		"unloaded");
	for (int i = 0; i < l->n_methods; i++)
		json_array_append_new(json_object_get(o, "of_method"), json_integer(l->of_method[i]));
	for (int i = 0; i < l->n_untimed; i++)
		json_array_append_new(json_object_get(o, "untimed"), json_string(l->untimed[i]));
	for (int i = 0; i < l->n_unloaded; i++)
		json_array_append_new(json_object_get(o, "unloaded"),
			json_pack("[i, i, i]", l->unloaded[i].load, l->unloaded[i].cells, l->unloaded[i].samples));
	for (int i = 0; i < COUNTED; i++)
		json_object_set_new(o, counted[i].name, json_integer(*(const int *)((const char *)sum + counted[i].at)));
	char *text = json_dumps(o, JSON_COMPACT);
	setenv(LOST_ENV, text, 1);
	free(text);
	json_decref(o);
}

int lost_restart(const struct lost *l, const char *run_id, const struct sweep_summary *sum, char err[ERR_LEN])
{
	char *line = NULL, **argv = NULL;
	size_t len = 0, n = 0;
	if (file_read("/proc/self/cmdline", &line, &len, err))
		return -1;
	for (size_t at = 0; at < len; at += strlen(line + at) + 1) {
		argv = mem_grow(argv, n + 2, sizeof *argv);
		argv[n++] = line + at;
		argv[n] = NULL;
	}
	lost_hand_over(l, run_id, sum);
	fflush(NULL);
	if (n)
		execv("/proc/self/exe", argv);
	err_set(err, "this program could not be started anew: %s", strerror(errno));
	unsetenv(LOST_ENV);
	free(argv);
	free(line);
	return -1;
}

/* ---- what is so ---- */

bool lost_set_aside(const struct lost *l, int method)
{
	return method < l->n_methods && l->of_method[method] >= METHOD_LOSSES;
}

static char *context_key(const char *cell_id, const char *context_id)
{
	return text_format("%s, %s", cell_id, context_id);
}

bool lost_apart(const struct lost *l, const char *cell_id, const char *context_id)
{
	char *key = context_key(cell_id, context_id);
	bool apart = l->apart && !strcmp(l->apart, key);
	free(key);
	return apart;
}

bool lost_untimed(const struct lost *l, const char *cell_id)
{
	for (int i = 0; i < l->n_untimed; i++)
		if (!strcmp(l->untimed[i], cell_id))
			return true;
	return false;
}

bool lost_unloaded(const struct lost *l, int load)
{
	for (int i = 0; i < l->n_unloaded; i++)
		if (l->unloaded[i].load == load)
			return true;
	return false;
}

/* ---- what happened ---- */

void lost_answered(struct lost *l, int method)
{
	if (method < l->n_methods)
		l->of_method[method] = 0;
	l->unanswered = false;
}

void lost_together(struct lost *l, const char *cell_id, const char *context_id)
{
	free(l->apart);
	l->apart = context_key(cell_id, context_id);
}

static void charge(struct lost *l, const char *by, const char *kind)
{
	if (l->unanswered && strcmp(l->by, by) && !strcmp(l->kind, kind))
		err_set(l->why,
			"the device was lost twice in a row by the same error (%s): by %s, then by %s, with no answer in between",
			kind, l->by, by);
	l->unanswered = true;
	snprintf(l->by, sizeof l->by, "%s", by);
	snprintf(l->kind, sizeof l->kind, "%s", kind);
}

void lost_alone(struct lost *l, const struct plan *p, int method, const char *kind, const char *timed_cell)
{
	if (method < l->n_methods)
		l->of_method[method]++;
	if (timed_cell) {
		l->untimed = mem_grow(l->untimed, (size_t)l->n_untimed + 1, sizeof *l->untimed);
		snprintf(l->untimed[l->n_untimed++], SHA_LEN, "%s", timed_cell);
	}
	charge(l, p->methods[method].name, kind);
}

void lost_loading(struct lost *l, const struct lost_load *load, const char *name, const char *kind)
{
	l->unloaded = mem_grow(l->unloaded, (size_t)l->n_unloaded + 1, sizeof *l->unloaded);
	l->unloaded[l->n_unloaded++] = *load;
	charge(l, name, kind);
}
