/* gate_bench.c: `kvbench bench --gate`: what the gate is worth, on simulated nights: false alarms of nights without a change, and
 * how often a planted loss is seen. */
#include "harness/gate_bench.h"

#include "results/simulate.h"

#include <stdio.h>

/* One line of the table: a setting, and how often it alarmed. 0, or -1 + err. */
static int line(const char *what, const struct simulation *m, int nights, char err[ERR_LEN])
{
	struct simulated s;
	if (simulate_nights(m, nights, &gate_rules, &s, err))
		return -1;
	struct interval w = stats_wilson(s.alarms, s.nights);
	printf("%-66s %4d of %-4d %6.1f %% [%.1f, %.1f]  %8d %10d %6d\n", what, s.alarms, s.nights, 100 * w.mean, 100 * w.lo,
		100 * w.hi, s.accuracy, s.ratio, s.time);
	fflush(stdout);
	return 0;
}

static int losses(int nights, char err[ERR_LEN])
{
	static const int contexts[] = {10, 20, 40, 80};
	char what[120];
	int rc = 0;
	for (int one = 0; one < 2; one++) {
		for (int i = 0; i < 4 && !rc; i++) {
			struct simulation m = simulation_quiet;
			m.contexts = contexts[i];
			m.one_cell = one;
			m.lost = .03;
			snprintf(what, sizeof what, "3 points lost by %s, %d samples a cell",
				one ? "one cell" : "one method (6 cells)", m.contexts * m.questions);
			rc = line(what, &m, nights, err);
		}
	}
	return rc;
}

static int slowdowns(int nights, char err[ERR_LEN])
{
	static const struct {
		int rounds;
		double noise;
	} settings[] = {{9, .02}, {9, .04}, {15, .04}, {9, .08}, {60, .08}};
	char what[120];
	int rc = 0;
	for (int i = 0; i < 5 && !rc; i++) {
		struct simulation m = simulation_quiet;
		m.rounds = settings[i].rounds;
		m.round_noise = settings[i].noise;
		m.slower = .10;
		snprintf(what, sizeof what, "10 %% slower in one method, %d rounds that deviate by %g %%", m.rounds,
			100 * m.round_noise);
		rc = line(what, &m, nights, err);
	}
	return rc;
}

int gate_bench(int nights, char err[ERR_LEN])
{
	const struct simulation *q = &simulation_quiet;
	struct simulation busy = *q;
	busy.round_noise = .08;
	printf("26 cells (2 tasks, full and 4 methods x 3 ratios), %d samples a cell in %d contexts, %g %% of them answer anew "
	       "each night;\n"
	       "13 cells timed by %d rounds that deviate by %g %%, processes by %g %%; alpha %g, margins %g points, %g %%, %g "
	       "%%\n\n",
		q->contexts * q->questions, q->contexts, 100 * q->undecided, q->rounds, 100 * q->round_noise,
		100 * q->process_noise, gate_rules.alpha, 100 * gate_rules.score, 100 * gate_rules.ratio, 100 * gate_rules.time);
	printf("%-66s %12s %8s %18s %10s %6s\n", "nights", "alarms", "[95 %]", "accuracy", "ttft/full", "ttft");
	return line("no change", q, nights, err) || line("no change, rounds that deviate by 8 %", &busy, nights, err) ||
			       losses(nights / 2, err) || slowdowns(nights / 2, err)
		       ? -1
		       : 0;
}
