/* spans.c: the parts of a timed pipeline by the device's own clock: two marks in the target's queue around each piece of work.
 *
 * Beside the host's clock, never in its place: a mark costs the host microseconds and the device nothing, and nobody waits for one before
 * the sums are asked for. Marks are kept from one repetition to the next. A device without a clock of its own (the CPU) has no spans. */
#include "runners/runner_impl.h"

#include <stdlib.h>
#include <string.h>

struct spans {
	struct event **event; /* [2 * made] begin and end of each */
	enum part *part;      /* [made] */
	int n, made;          /* of this repetition; that have events */
	bool on, failed;      /* between start and stop; a mark could not be made: no sums */
};

void spans_start(struct runner *r)
{
	if (!strcmp(device_name(r->device), "cpu"))
		return;
	if (!r->spans)
		r->spans = mem_new(1, sizeof *r->spans);
	r->spans->n = 0;
	r->spans->failed = false;
	r->spans->on = true;
}

void spans_stop(struct runner *r)
{
	if (r->spans)
		r->spans->on = false;
}

void spans_free(struct runner *r)
{
	for (int i = 0; r->spans && i < 2 * r->spans->made; i++)
		event_free(r->spans->event[i]);
	if (r->spans) {
		free(r->spans->event);
		free(r->spans->part);
	}
	free(r->spans);
	r->spans = NULL;
}

static void mark(struct runner *r, int i)
{
	struct event **e = &r->spans->event[i];
	if (!*e)
		*e = event_new(r->device);
	if (!*e || queue_event_record(forward_queue(r->forward), *e))
		r->spans->failed = true;
}

int span_begin(struct runner *r, enum part part)
{
	struct spans *s = r->spans;
	if (!s || !s->on)
		return -1;
	int i = s->n++;
	if (i == s->made) {
		s->event = mem_grow(s->event, 2 * (size_t)(i + 1), sizeof *s->event);
		s->part = mem_grow(s->part, (size_t)i + 1, sizeof *s->part);
		s->event[2 * i] = s->event[2 * i + 1] = NULL;
		s->made++;
	}
	s->part[i] = part;
	mark(r, 2 * i);
	return i;
}

void span_end(struct runner *r, int span)
{
	if (span >= 0)
		mark(r, 2 * span + 1);
}

int64_t spans_ns(struct runner *r, enum part part)
{
	int64_t sum = 0, ns;
	struct spans *s = r->spans;
	for (int i = 0; s && i < s->n && !s->failed; i++) {
		if (s->part[i] != part)
			continue;
		if (event_elapsed(s->event[2 * i], s->event[2 * i + 1], &ns))
			s->failed = true;
		else
			sum += ns;
	}
	return s && s->failed ? 0 : sum;
}
