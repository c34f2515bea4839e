/* store_history.c: baselines and nights (store.h). Tables baseline, night, night_figure, alert. */
#include "results/store_impl.h"

int store_put_baseline(struct store *s, const struct baseline_row *b, char err[ERR_LEN])
{
	struct field f[] = {TEXT("name", b->name), INTEGER("version", b->version), TEXT("database", b->database),
		TEXT("run_id", b->run_id), TEXT("digest", b->digest), TEXT("commit", b->commit), TEXT("why", b->why),
		INTEGER("set_unix_ms", unix_ms())};
	return store_put_row(s, BASELINE, f, COUNT(f), err);
}

struct reading {
	int (*baseline)(void *user, const struct baseline_row *b);
	int (*night)(void *user, const struct night_row *n);
	int (*figure)(void *user, const struct night_row *n, const struct figure_row *f);
	int (*alert)(void *user, const struct alert_row *a);
	void *user;
};

static int baseline_each(sqlite3_stmt *st, void *with)
{
	struct reading *r = with;
	struct columns c = {st, 0};
	struct baseline_row row = {0};
	const char **texts[] = {&row.name, &row.database, &row.run_id, &row.digest, &row.commit, &row.why};
	for (int i = 0; i < COUNT(texts); i++)
		*texts[i] = next_text(&c);
	row.version = next_int(&c);
	row.set_unix_ms = next_int64(&c);
	return r->baseline(r->user, &row);
}

int store_baselines(struct store *s, int (*row)(void *user, const struct baseline_row *b), void *user, char err[ERR_LEN])
{
	struct reading r = {.baseline = row, .user = user};
	return store_read_rows(s,
		"SELECT name, \"database\", run_id, digest, \"commit\", why, version, set_unix_ms FROM baseline"
		" ORDER BY name, version",
		NULL, baseline_each, &r, err);
}

/* ---- nights ---- */

static int put_night(struct store *s, const struct night_row *n, char err[ERR_LEN])
{
	struct field f[] = {TEXT("night_id", n->night_id), TEXT("database", n->database), TEXT("commit", n->commit),
		TEXT("machine", n->machine), TEXT("baseline", n->baseline), INTEGER("baseline_version", n->baseline_version),
		INTEGER("exit_code", n->exit_code), INTEGER("started_unix_ms", n->started_unix_ms)};
	char *sql = sqlite3_mprintf(
		"DELETE FROM alert WHERE night_id = %Q; DELETE FROM night_figure WHERE night_id = %Q", n->night_id, n->night_id);
	int rc = store_execute(s, sql, "replacing a night", err);
	sqlite3_free(sql);
	return rc ? rc : store_put_row(s, NIGHT, f, COUNT(f), err);
}

static int put_figure(struct store *s, const char *night_id, const struct figure_row *x, char err[ERR_LEN])
{
	struct field f[] = {TEXT("night_id", night_id), TEXT("cell_id", x->cell_id), TEXT("figure", x->figure),
		TEXT("label", x->label), REAL("value", x->value), INTEGER("n", x->n)};
	return store_put_row(s, NIGHT_FIGURE, f, COUNT(f), err);
}

static int put_alert(struct store *s, const char *night_id, int position, const struct alert_row *a, char err[ERR_LEN])
{
	struct field f[] = {TEXT("night_id", night_id), INTEGER("position", position), TEXT("level", a->level),
		TEXT("kind", a->kind), TEXT("cell_id", a->cell_id), TEXT("label", a->label), REAL("old", a->old),
		REAL("new", a->new_), REAL("lo", a->lo), REAL("hi", a->hi), INTEGER("n", a->n), TEXT("message", a->message)};
	return store_put_row(s, ALERT, f, COUNT(f), err);
}

int store_put_night(struct store *s, const struct night_row *n, const struct figure_row *figures, int n_figures,
	const struct alert_row *alerts, int n_alerts, char err[ERR_LEN])
{
	if (store_begin(s, err) != 0)
		return -1;
	int rc = put_night(s, n, err);
	for (int i = 0; i < n_figures && rc == 0; i++)
		rc = put_figure(s, n->night_id, &figures[i], err);
	for (int i = 0; i < n_alerts && rc == 0; i++)
		rc = put_alert(s, n->night_id, i, &alerts[i], err);
	if (rc == 0)
		return store_commit(s, err);
	store_execute(s, "ROLLBACK", "giving up a night", NULL);
	s->batch = false;
	return -1;
}

static void take_night(struct columns *c, struct night_row *row)
{
	const char **texts[] = {&row->night_id, &row->database, &row->commit, &row->machine, &row->baseline};
	for (int i = 0; i < COUNT(texts); i++)
		*texts[i] = next_text(c);
	row->baseline_version = next_int(c);
	row->exit_code = next_int(c);
	row->started_unix_ms = next_int64(c);
}
#define NIGHT_COLUMNS "night.night_id, \"database\", \"commit\", machine, baseline, baseline_version, exit_code, started_unix_ms"

static int night_each(sqlite3_stmt *st, void *with)
{
	struct reading *r = with;
	struct columns c = {st, 0};
	struct night_row row;
	take_night(&c, &row);
	return r->night(r->user, &row);
}

int store_nights(struct store *s, int (*row)(void *user, const struct night_row *n), void *user, char err[ERR_LEN])
{
	struct reading r = {.night = row, .user = user};
	return store_read_rows(
		s, "SELECT " NIGHT_COLUMNS " FROM night ORDER BY started_unix_ms, night_id", NULL, night_each, &r, err);
}

static int figure_each(sqlite3_stmt *st, void *with)
{
	struct reading *r = with;
	struct columns c = {st, 0};
	struct night_row night;
	take_night(&c, &night);
	struct figure_row row = {0};
	const char **texts[] = {&row.cell_id, &row.figure, &row.label};
	for (int i = 0; i < COUNT(texts); i++)
		*texts[i] = next_text(&c);
	row.value = next_real(&c);
	row.n = next_int(&c);
	return r->figure(r->user, &night, &row);
}

int store_night_figures(struct store *s, int (*row)(void *user, const struct night_row *n, const struct figure_row *f),
	void *user, char err[ERR_LEN])
{
	struct reading r = {.figure = row, .user = user};
	return store_read_rows(s,
		"SELECT " NIGHT_COLUMNS ", cell_id, figure, label, value, n FROM night_figure JOIN night USING (night_id)"
		" ORDER BY label, cell_id, figure, started_unix_ms, night.night_id",
		NULL, figure_each, &r, err);
}

static int alert_each(sqlite3_stmt *st, void *with)
{
	struct reading *r = with;
	struct columns c = {st, 0};
	struct alert_row row = {0};
	const char **texts[] = {&row.level, &row.kind, &row.cell_id, &row.label, &row.message};
	for (int i = 0; i < COUNT(texts); i++)
		*texts[i] = next_text(&c);
	double *numbers[] = {&row.old, &row.new_, &row.lo, &row.hi};
	for (int i = 0; i < COUNT(numbers); i++)
		*numbers[i] = next_real(&c);
	row.n = next_int(&c);
	return r->alert(r->user, &row);
}

int store_alerts(
	struct store *s, const char *night_id, int (*row)(void *user, const struct alert_row *a), void *user, char err[ERR_LEN])
{
	struct reading r = {.alert = row, .user = user};
	return store_read_rows(s,
		"SELECT level, kind, cell_id, label, message, old, new, lo, hi, n FROM alert WHERE night_id = ?1"
		" ORDER BY position",
		night_id, alert_each, &r, err);
}
