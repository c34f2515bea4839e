/* progress.c: see progress.h. */
#include "harness/progress.h"

#include "runners/runner.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct progress progress_open(bool quiet, int fd)
{
	bool terminal = isatty(fd);
	return (struct progress){.quiet = quiet, .terminal = terminal, .shown_ns = terminal ? 0 : clock_ns()};
}

enum { TERMINAL_MS = 100, PLAIN_MS = 60000 }; /* least time between two lines that say only what happens at this moment */

void progress_begin(struct progress *p, int cells, int64_t tokens)
{
	progress_end(p);
	p->cells = cells;
	p->cells_done = 0;
	p->total_tokens = tokens;
	p->done_tokens = 0;
	p->started_ns = p->shown_ns = clock_ns();
}

void duration_text(double sec, char *out, size_t size)
{
	long s = sec < 0 ? 0 : (long)(sec + .5);
	if (s < 60)
		snprintf(out, size, "%ld s", s);
	else if (s < 3600)
		snprintf(out, size, "%ld min %02ld s", s / 60, s % 60);
	else
		snprintf(out, size, "%ld h %02ld min", s / 3600, s / 60 % 60);
}

double progress_left_sec(const struct progress *p, int64_t now_ns)
{
	if (p->done_tokens <= 0 || now_ns <= p->started_ns)
		return -1;
	double sec_per_token = (double)(now_ns - p->started_ns) / 1e9 / (double)p->done_tokens;
	return sec_per_token * (double)(p->total_tokens - p->done_tokens);
}

/* Loading and planning know no total yet: then only what happens is shown. */
static void show(struct progress *p, const char *phase)
{
	char left[48] = "?", amount[128] = "";
	int64_t now = clock_ns();
	double sec = progress_left_sec(p, now);
	if (sec >= 0)
		duration_text(sec, left, sizeof left);
	if (p->total_tokens)
		snprintf(amount, sizeof amount, "  cells %d/%d  %.0f %%  %s left", p->cells_done, p->cells,
			100 * (double)p->done_tokens / (double)p->total_tokens, left);
	fprintf(stderr, "%s%s  %s%s%s", p->terminal ? "\r\033[K" : "", p->where, phase, amount, p->terminal ? "" : "\n");
	fflush(stderr);
	p->shown_ns = now;
}

void progress_where(struct progress *p, const char *where)
{
	snprintf(p->where, sizeof p->where, "%s", where);
}

void progress_phase(struct progress *p, const char *phase, int64_t done, int64_t total)
{
	if (p->quiet || clock_ns() - p->shown_ns < (p->terminal ? TERMINAL_MS : PLAIN_MS) * 1000000LL)
		return;
	char text[96];
	snprintf(text, sizeof text, "%s %lld/%lld", phase, (long long)done, (long long)total);
	show(p, text);
}

void progress_add(struct progress *p, int64_t tokens)
{
	p->done_tokens += tokens;
}

void progress_cells(struct progress *p, int cells)
{
	p->cells_done += cells;
	if (!p->quiet && p->total_tokens)
		show(p, "done");
}

void progress_end(struct progress *p)
{
	if (p->terminal && !p->quiet)
		fputs("\r\033[K", stderr);
}

void spent_print(const struct runner_counters *c)
{
	double prefill = (double)c->prefill_ns * 1e-9, score = (double)c->score_ns * 1e-9;
	if (!c->prefills)
		return;
	fprintf(stderr, "  prefill %.2f s, scoring %.2f s (%.1f x prefill), decoding %.2f s\n", prefill, score, score / prefill,
		(double)c->decode_ns * 1e-9);
	for (int i = 0; i < RUNNER_SCORERS && c->scorer[i].name; i++)
		fprintf(stderr, "%s%s %.2f s", i ? ", " : "  scoring: ", c->scorer[i].name, (double)c->scorer[i].ns * 1e-9);
	fputs(c->scorer[0].name ? "\n" : "", stderr);
}
