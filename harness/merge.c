/* merge.c: `kvbench merge OUT.db A.db B.db ...`: the databases of several machines or shards in one file.
 *
 * Written beside its place and renamed when whole. Contradicting rows (two answers to one prompt) are named on stderr; then
 * nothing is written, unless --keep-older says to keep the older of the two. */
#include "harness/verbs.h"
#include "results/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAMED = 20 }; /* conflicts named one by one */

struct merging {
	const char *source;
	int named;
};

static void name_conflict(void *user, const char *table, const char *row, const char *what)
{
	struct merging *m = user;
	if (m->named++ < NAMED)
		fprintf(stderr, "conflict: %s: %s, %s: differs in %s\n", m->source, table, row, what);
}

static int merge_all(struct store *s, const struct options *o, struct store_merge *sum, char err[ERR_LEN])
{
	struct merging m = {0};
	for (int i = 1; i < o->n_args; i++) {
		m.source = o->args[i];
		if (store_merge_from(s, o->args[i], sum, name_conflict, &m, err))
			return -1;
	}
	if (m.named > NAMED)
		fprintf(stderr, "... and %d conflicts more\n", m.named - NAMED);
	if (sum->conflicts && !option_has(o, "keep-older"))
		return err_set(err,
			"%lld rows contradict each other: nothing was written (--keep-older keeps the older of each two)",
			(long long)sum->conflicts);
	return 0;
}

/* A write that failed may leave SQLite's journal, too. */
static void remove_part(const char *part)
{
	char *journal = text_format("%s-journal", part);
	unlink(part);
	unlink(journal);
	free(journal);
}

static int run_merge(const struct options *o)
{
	char err[ERR_LEN] = "", *part = text_format("%s.part", o->args[0]);
	struct store *s = NULL;
	struct store_merge sum = {0};
	int rc = file_exists(o->args[0]) ? err_set(err, "%s is there already", o->args[0]) : 0;
	remove_part(part);
	rc = rc || store_open(&s, part, err) || merge_all(s, o, &sum, err);
	store_close(s);
	if (!rc && rename(part, o->args[0]))
		rc = err_set(err, "cannot name the result %s: %s", o->args[0], strerror(errno));
	remove_part(part);
	free(part);
	if (rc)
		return fprintf(stderr, "kvbench merge: %s\n", err), EXIT_CELLS_FAILED;
	printf("%s: %lld samples, %lld timings from %d files; %lld rows replaced, %lld conflicts\n", o->args[0],
		(long long)sum.samples, (long long)sum.timings, o->n_args - 1, (long long)sum.replaced, (long long)sum.conflicts);
	return EXIT_DONE;
}

static const struct option_def merge_options[] = {
	{"keep-older", NULL, "of two rows that contradict each other keep the older; they are named all the same"},
};
const struct verb verb_merge = {
	.name = "merge",
	.args = "OUT.db DB DB...",
	.title = "join the databases of shards or machines; the same files in any order give the same result",
	.help = "Of two rows of one sample an answered one stays, of two equal ones the older. Exit code 1, and no file, when "
		"rows\n"
		"contradict each other: the same question of the same cell answered in two ways.",
	.options = merge_options,
	.n_options = sizeof merge_options / sizeof *merge_options,
	.min_args = 3,
	.max_args = 64,
	.run = run_merge,
};
