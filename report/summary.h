/* summary.h: what the numbers say, in sentences computed from them. Plain text; the page and the terminal show the same. */
#ifndef KVB_REPORT_SUMMARY_H
#define KVB_REPORT_SUMMARY_H

#include "report/data.h"

struct notes {
	char **text;
	int n;
};
void notes_free(struct notes *n);

/* Accuracy against random and full, aware against agnostic, time to first token: at the reference ratio, for the longest context
 * of each task; `more` takes the same for the other lengths. */
void summary_findings(const struct data *d, struct notes *main, struct notes *more);
/* What must not be overlooked: failures, gaps, broken controls, methods no better than chance, timings that do not add up. */
void summary_flags(const struct data *d, struct notes *flags);

struct totals {
	int cells, complete; /* complete: as many ok or not-applicable samples as planned */
	int ok, failed, oom, not_applicable, empty, length_finish;
	long long planned, missing; /* a plan's numbers are whatever the database says, not rows that are there */
};
struct totals summary_totals(const struct data *d);

/* 1000000 -> "1", 300000 -> "0.3"; 0.98 -> "0.98" or "–" for NAN; with its interval "0.98 [0.90, 1.00]". Into buf (>= 64). */
const char *format_ratio(char *buf, int ppm);
const char *format_score(char *buf, double v);
const char *format_interval(char *buf, struct interval i);
/* A difference of scores as points of 100 with its sign: "+0.4", "−12.0", "0.0"; NAN "–". */
const char *format_points(char *buf, double v);
/* Seconds as "45 s", "12 min 30 s", "3 h 05 min". */
const char *format_duration(char *buf, double seconds);
/* Nanoseconds as "830 µs", "12.3 ms", "1.24 s"; bytes as "1.5 MB". "–" for NAN or 0 bytes. */
const char *format_time(char *buf, double ns);
const char *format_bytes(char *buf, int64_t bytes);

#endif
