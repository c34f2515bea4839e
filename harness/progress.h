/* progress.h: one line of talk on stderr: phase, cells, share done, time left. A terminal sees it rewritten in place; a log file
 * sees a plain line whenever a group of cells is done, and once a minute. Time left comes from tokens of work, not from samples.
 */
#ifndef KVB_PROGRESS_H
#define KVB_PROGRESS_H

#include "harness/base/base.h"

struct progress {
	bool quiet, terminal;
	int64_t total_tokens, done_tokens, started_ns, shown_ns;
	int cells, cells_done;
	char where[160]; /* "niah-multikey 1024 agnostic" */
};

/* fd decides whether it is a terminal (2 = stderr, where the talk goes). */
struct progress progress_open(bool quiet, int fd);
/* Begins a stretch of work of that many tokens. */
void progress_begin(struct progress *p, int cells, int64_t tokens);
void progress_where(struct progress *p, const char *where);
/* What happens at this moment, with its own count (tokens): shown at most ten times a second on a terminal, once a minute
 * elsewhere. */
void progress_phase(struct progress *p, const char *phase, int64_t done, int64_t total);
void progress_add(struct progress *p, int64_t tokens);
/* That many cells are complete: a plain line where there is no terminal. */
void progress_cells(struct progress *p, int cells);
void progress_end(struct progress *p); /* clears the terminal's line */
/* Seconds of work left, from the speed so far; negative while nothing is known. */
double progress_left_sec(const struct progress *p, int64_t now_ns);
/* On stderr: where the time of answering went, scoring in prefills too, and each scorer's part of it. */
struct runner_counters;
void spent_print(const struct runner_counters *c);
/* "45 s", "3 min 20 s", "2 h 05 min". */
void duration_text(double sec, char *out, size_t size);

#endif
