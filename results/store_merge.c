/* store_merge.c: whole files: the rows of one database added to another, and identities checked. See store.h.
 *
 * Dimensions are named by the hash of what they say, runs and trainings by random ids, so rows of several hosts meet without
 * rewriting. What two files may hold twice is settled by rules that do not ask which came first: an answered sample beats one
 * that failed, then the older stays; columns outside the identity take the larger (or lesser) value. Owns: the rules. Does not:
 * open. */
#include "results/store_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rules ---- */

/* clang-format off */

/* A sample's place in the order of what is worth keeping: an answer, a verdict, a failure; then the older. */
#define WORTH(of) \
	"(CASE " of ".status WHEN 'ok' THEN 0 WHEN 'not-applicable' THEN 1 WHEN 'oom' THEN 2 ELSE 3 END," \
	" " of ".stored_unix_ms, " of ".run_id, -" of ".scorer_version, coalesce(" of ".score, 0), " of ".answer, " of ".message)"
/* Scores by different scorers are no contradiction. */
#define SAMPLES_CONTRADICT \
	"a.status = b.status AND a.status IN ('ok', 'not-applicable')" \
	" AND ((a.prompt_sha256, a.answer_ids, a.answer, a.kept_total, a.gold)" \
	" IS NOT (b.prompt_sha256, b.answer_ids, b.answer, b.kept_total, b.gold)" \
	" OR (a.scorer_version = b.scorer_version AND a.score IS NOT b.score))"
#define SAMPLE_LABEL \
	"(SELECT task.name || ' ' || context_tokens || ' ' || protocol || ', ' || method.name || ' r ' || (retained_ppm / 1e6)" \
	" FROM main.cell JOIN main.task USING (task_id) JOIN main.method USING (method_id) WHERE cell_id = b.cell_id)" \
	" || ', sample ' || b.sample_id"
#define SAMPLES_DIFFER \
	"CASE WHEN a.prompt_sha256 <> b.prompt_sha256 THEN 'prompt ' ELSE '' END" \
	" || CASE WHEN a.answer_ids <> b.answer_ids OR a.answer <> b.answer THEN 'answer ' ELSE '' END" \
	" || CASE WHEN a.score IS NOT b.score THEN 'score ' ELSE '' END" \
	" || CASE WHEN a.kept_total <> b.kept_total THEN 'kept entries ' ELSE '' END" \
	" || CASE WHEN a.gold <> b.gold THEN 'gold ' ELSE '' END"

/* a: the row that is there; b: the one that comes. Parents stand before children. */
static const struct rule {
	const char *table;
	const char *key;      /* joins a and b */
	const char *settle;   /* SET part that brings a up to b where columns outside the identity differ; NULL = there are none */
	const char *better;   /* b replaces a; NULL = never */
	const char *conflict; /* a and b contradict each other; NULL = cannot */
	const char *label;    /* of b, in words */
	const char *what;     /* which of it differs */
} rules[] = {
	{"env", "a.env_id = b.env_id"},
	{"model", "a.model_id = b.model_id", .settle = "path = min(a.path, b.path)"},
	{"method", "a.method_id = b.method_id", .settle = "origin = max(a.origin, b.origin)"},
	{"task", "a.task_id = b.task_id", /* the least sure state holds */
		.settle = "data_state = CASE WHEN 'unpinned' IN (a.data_state, b.data_state) THEN 'unpinned'"
			" ELSE max(a.data_state, b.data_state) END"},
	{"cell", "a.cell_id = b.cell_id",
		.settle = "samples_planned = max(a.samples_planned, b.samples_planned), position = min(a.position, b.position)"},
	{"run", "a.run_id = b.run_id", .better = "a.ended_unix_ms IS NULL AND b.ended_unix_ms IS NOT NULL",
		.conflict = "(a.env_id, a.argv, a.plan, a.started_unix_ms) IS NOT (b.env_id, b.argv, b.plan, b.started_unix_ms)",
		.label = "b.run_id", .what = "'its command or plan'"},
	{"sample", "a.cell_id = b.cell_id AND a.sample_id = b.sample_id", .better = WORTH("b") " < " WORTH("a"),
		.conflict = SAMPLES_CONTRADICT, .label = SAMPLE_LABEL, .what = SAMPLES_DIFFER},
	{"timing", "a.cell_id = b.cell_id AND a.run_id = b.run_id AND a.phase = b.phase AND a.warmup = b.warmup"
		" AND a.repetition = b.repetition AND a.clock = b.clock",
		.better = "b.duration_ns < a.duration_ns", .conflict = "a.duration_ns <> b.duration_ns",
		.label = "b.phase || ' ' || b.repetition || ' of run ' || b.run_id", .what = "'duration'"},
	{"memory", "a.cell_id = b.cell_id AND a.run_id = b.run_id AND a.device = b.device AND a.part = b.part",
		.settle = "peak_bytes = max(a.peak_bytes, b.peak_bytes)"},
	{"timing_fact", "a.cell_id = b.cell_id AND a.run_id = b.run_id AND a.name = b.name",
		.settle = "value = min(a.value, b.value)"},
	{"training", "a.training_id = b.training_id", .better = "a.ended_unix_ms IS NULL AND b.ended_unix_ms IS NOT NULL",
		.conflict = "(a.kind, a.name, a.config, a.seed) IS NOT (b.kind, b.name, b.config, b.seed)",
		.label = "b.training_id", .what = "'its settings'"},
	{"training_step", "a.training_id = b.training_id AND a.term = b.term AND a.step = b.step",
		.better = "coalesce(b.value, -1e300) < coalesce(a.value, -1e300)", .conflict = "a.value IS NOT b.value",
		.label = "b.term || ' at step ' || b.step || ' of training ' || b.training_id", .what = "'value'"},
	{"baseline", "a.name = b.name AND a.version = b.version", .better = "(b.set_unix_ms, b.digest) < (a.set_unix_ms, a.digest)",
		.conflict = "(a.\"database\", a.run_id, a.digest) IS NOT (b.\"database\", b.run_id, b.digest)",
		.label = "b.name || ' version ' || b.version", .what = "'what it names'"},
	{"night", "a.night_id = b.night_id", .better = "b.exit_code < a.exit_code", .conflict = "a.exit_code <> b.exit_code",
		.label = "b.night_id", .what = "'exit code'"},
	{"night_figure", "a.night_id = b.night_id AND a.cell_id = b.cell_id AND a.figure = b.figure",
		.better = "b.value < a.value", .conflict = "a.value <> b.value",
		.label = "b.figure || ' of ' || b.label || ' in night ' || b.night_id", .what = "'value'"},
	{"alert", "a.night_id = b.night_id AND a.position = b.position",
		.better = "b.message < a.message", .conflict = "a.message <> b.message",
		.label = "'alert ' || b.position || ' of night ' || b.night_id", .what = "'message'"},
};
/* clang-format on */

/* ---- one source ---- */

/* Every table is in the rules: a later schema's would be left behind without a word. */
static int check_tables(struct store *s, char err[ERR_LEN])
{
	struct strbuf sql = {0};
	strbuf_puts(&sql, "SELECT count(*) FROM main.sqlite_master WHERE type = 'table' AND name NOT IN (''");
	for (int i = 0; i < COUNT(rules); i++)
		strbuf_printf(&sql, ", '%s'", rules[i].table);
	strbuf_puts(&sql, ")");
	int64_t unknown = store_query_int(s, sql.text, -1);
	strbuf_free(&sql);
	return unknown == 0 ? 0 : err_set(err, "%s: has tables that merging does not know", s->path);
}

/* "env_id", "host", ...: both files have these columns, perhaps in another order. Caller frees. */
static char *columns_of(struct store *s, const char *table)
{
	sqlite3_stmt *st = NULL;
	char *list = NULL;
	if (sqlite3_prepare_v2(s->db, "SELECT group_concat('\"' || name || '\"', ', ') FROM pragma_table_info(?1)", -1, &st,
		    NULL) == SQLITE_OK) {
		sqlite3_bind_text(st, 1, table, -1, SQLITE_STATIC);
		if (sqlite3_step(st) == SQLITE_ROW)
			list = text_copy((const char *)sqlite3_column_text(st, 0));
	}
	sqlite3_finalize(st);
	return list ? list : text_copy("");
}

struct naming {
	const char *table;
	void (*conflict)(void *user, const char *table, const char *row, const char *what);
	void *user;
	int64_t n;
};

static int conflict_each(sqlite3_stmt *st, void *with)
{
	struct naming *k = with;
	const char *row = (const char *)sqlite3_column_text(st, 0), *what = (const char *)sqlite3_column_text(st, 1);
	k->n++;
	k->conflict(k->user, k->table, row ? row : "", what ? what : "");
	return 0;
}

static int name_conflicts(struct store *s, const struct rule *r, struct naming *k, char err[ERR_LEN])
{
	if (!r->conflict)
		return 0;
	k->table = r->table;
	char *sql = text_format("SELECT %s, %s FROM main.%s a JOIN source.%s b ON %s WHERE %s ORDER BY 1", r->label, r->what,
		r->table, r->table, r->key, r->conflict);
	int rc = store_read_rows(s, sql, NULL, conflict_each, k, err);
	free(sql);
	return rc;
}

/* Runs a statement whose rows count; -1 + err. */
static int64_t change(struct store *s, char *sql, const char *table, char err[ERR_LEN])
{
	char doing[64];
	snprintf(doing, sizeof doing, "merging rows of %s", table);
	int rc = store_execute(s, sql, doing, err);
	free(sql);
	return rc ? -1 : sqlite3_changes64(s->db);
}

static int merge_table(struct store *s, const struct rule *r, struct store_merge *sum, char err[ERR_LEN])
{
	int64_t gone = 0, came;
	const char *t = r->table;
	if (r->settle && change(s, text_format("UPDATE main.%s AS a SET %s FROM source.%s b WHERE %s", t, r->settle, t, r->key),
				 t, err) < 0)
		return -1;
	if (r->better)
		gone = change(s,
			text_format("DELETE FROM main.%s AS a WHERE EXISTS (SELECT 1 FROM source.%s b WHERE %s AND %s)", t, t,
				r->key, r->better),
			t, err);
	char *columns = columns_of(s, t);
	came = gone < 0 ? -1
			: change(s,
				  text_format("INSERT INTO main.%s (%s) SELECT %s FROM source.%s b WHERE NOT EXISTS (SELECT 1 "
					      "FROM main.%s a "
					      "WHERE %s)",
					  t, columns, columns, t, t, r->key),
				  t, err);
	free(columns);
	if (came < 0)
		return -1;
	sum->samples += strcmp(t, "sample") ? 0 : came - gone;
	sum->replaced += strcmp(t, "sample") ? 0 : gone;
	sum->timings += strcmp(t, "timing") ? 0 : came - gone;
	return 0;
}

/* A run that is replaced by its ended copy is a parent of rows: keys are looked at when all is in. */
static int merge_tables(struct store *s, struct store_merge *sum, struct naming *k, char err[ERR_LEN])
{
	if (store_execute(s, "BEGIN IMMEDIATE; PRAGMA defer_foreign_keys=ON", "beginning to merge", err))
		return -1;
	int rc = 0;
	for (int i = 0; i < COUNT(rules) && !rc; i++)
		rc = name_conflicts(s, &rules[i], k, err) || merge_table(s, &rules[i], sum, err) ? -1 : 0;
	if (!rc && !store_execute(s, "COMMIT", "committing the merge", err))
		return 0;
	sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
	return -1;
}

int store_merge_from(struct store *s, const char *path, struct store_merge *sum,
	void (*conflict)(void *user, const char *table, const char *row, const char *what), void *user, char err[ERR_LEN])
{
	struct store *source = NULL;
	struct naming k = {.conflict = conflict, .user = user};
	if (check_tables(s, err) || store_open_read(&source, path, err)) /* its version, its health */
		return -1;
	store_close(source);
	char *attach = sqlite3_mprintf("ATTACH %Q AS source", path);
	int rc = store_execute(s, attach, "opening what is to be merged", err);
	sqlite3_free(attach);
	if (rc)
		return -1;
	rc = merge_tables(s, sum, &k, err);
	sum->conflicts += k.n;
	sqlite3_exec(s->db, "DETACH source", NULL, NULL, NULL);
	return rc;
}

/* ---- identities ---- */

static const struct identity {
	const char *table, *id;
	const char *outside[2]; /* columns that are not part of it */
} identities[] = {
	{"env", "env_id", {""}},
	{"model", "model_id", {"path"}},
	{"method", "method_id", {"origin"}},
	{"task", "task_id", {"data_state"}},
	{"cell", "cell_id", {"samples_planned", "position"}},
};

struct checking {
	const struct identity *of;
	int (*bad)(void *user, const char *table, const char *id);
	void *user;
};

static bool is_outside(const struct identity *k, const char *column)
{
	if (!strcmp(column, k->id))
		return true;
	for (int i = 0; i < COUNT(k->outside); i++) {
		if (k->outside[i] && !strcmp(column, k->outside[i]))
			return true;
	}
	return false;
}

static int identity_each(sqlite3_stmt *st, void *with)
{
	struct checking *k = with;
	struct field f[32];
	int n = 0;
	char id[SHA_LEN];
	const char *given = "";
	for (int i = 0; i < sqlite3_column_count(st); i++) {
		const char *name = sqlite3_column_name(st, i);
		int type = sqlite3_column_type(st, i);
		if (!strcmp(name, k->of->id))
			given = (const char *)sqlite3_column_text(st, i);
		if (is_outside(k->of, name) || n == COUNT(f))
			continue;
		f[n++] = (struct field){name,
			type == SQLITE_INTEGER ? 'i'
			: type == SQLITE_NULL  ? 'n'
					       : 't',
			.text = (const char *)sqlite3_column_text(st, i), .integer = sqlite3_column_int64(st, i)};
	}
	store_identify(f, n, id);
	return strcmp(id, given) ? k->bad(k->user, k->of->table, given) : 0;
}

int store_check_identities(
	struct store *s, int (*bad)(void *user, const char *table, const char *id), void *user, char err[ERR_LEN])
{
	int rc = 0;
	for (int i = 0; i < COUNT(identities) && !rc; i++) {
		struct checking k = {&identities[i], bad, user};
		char *sql = text_format("SELECT * FROM %s", identities[i].table);
		rc = store_read_rows(s, sql, NULL, identity_each, &k, err);
		free(sql);
	}
	return rc;
}
