/* fault.c: real faults in a real process, for tests that want to see a night go wrong. Linked with the program's own objects into
 * BUILD/kvbench-faulty (--wrap of the two functions below); nothing of it is in kvbench.
 *
 *   KVB_FAULT_SLOW=METHOD:SHARE   every prefill for this method alone (a timing) takes SHARE longer: the core works on, for nothing
 *   KVB_FAULT_LOST=METHOD:SHARE   this method never scores the last SHARE of a context: those entries are the first to go
 *
 * Read from the environment at each call; unset: the program as it is. */
#include "runners/runner_impl.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

/* Of the very types they stand for: the linker would not notice another. */
__typeof__(session_open) __real_session_open, __wrap_session_open;
__typeof__(method_select) __real_method_select, __wrap_method_select;

/* Is the fault planted for this method? Then its number into *value. */
static bool planted(const char *variable, const char *method, double *value)
{
	const char *text = getenv(variable), *colon = text ? strrchr(text, ':') : NULL;
	if (!colon || strlen(method) != (size_t)(colon - text) || strncmp(text, method, (size_t)(colon - text)))
		return false;
	*value = strtod(colon + 1, NULL);
	return true;
}

int __wrap_session_open(struct session *s, struct runner *r, const struct runner_job *job, const struct prompt *p, const bool *needed,
	char err[ERR_LEN])
{
	int64_t start = clock_ns(), end;
	double share;
	int rc = __real_session_open(s, r, job, p, needed, err);
	if (!rc && job->n_variants == 1 && planted("KVB_FAULT_SLOW", job->variants[0].method, &share)) {
		end = clock_ns();
		end += (int64_t)(share * (double)(end - start));
		while (clock_ns() < end)
			;
	}
	return rc;
}

int __wrap_method_select(struct selection *out, const struct plan_method *m, const struct scoring *s, double retained, char err[ERR_LEN])
{
	int64_t n = s->shape.count;
	double share;
	if (s->scores && planted("KVB_FAULT_LOST", m->name, &share)) {
		for (int64_t head = 0; head < (int64_t)s->layers * s->kv_heads; head++)
			for (int64_t i = n - (int64_t)(share * (double)n); i < n; i++)
				s->scores[head * n + i] = -FLT_MAX;
	}
	return __real_method_select(out, m, s, retained, err);
}
