/* store_training.c: trainings and their curves (store.h). Tables training, training_step. */
#include "results/store_impl.h"

int store_training_begin(struct store *s, const struct store_training *t, char training_id[33], char err[ERR_LEN])
{
	if (store_random_id(training_id, err) != 0)
		return -1;
	struct field f[] = {TEXT("training_id", training_id), TEXT("kind", t->kind), TEXT("name", t->name),
		TEXT("config", t->config ? t->config : "{}"), INTEGER("seed", t->seed), TEXT_OR_NULL("env_id", t->env_id),
		TEXT("target_sha256", t->target_sha256), TEXT("proxy_sha256", t->proxy_sha256),
		TEXT("contexts", t->contexts ? t->contexts : "[]"), TEXT("weights_path", ""), TEXT("weights_sha256", ""),
		INTEGER("started_unix_ms", unix_ms())};
	return store_put_row(s, TRAINING, f, COUNT(f), err);
}

int store_training_step(struct store *s, const char *training_id, int64_t step, const char *term, double value, char err[ERR_LEN])
{
	struct field f[] = {TEXT("training_id", training_id), INTEGER("step", step), TEXT("term", term), REAL("value", value)};
	return store_put_row(s, TRAINING_STEP, f, COUNT(f), err);
}

int store_training_end(
	struct store *s, const char *training_id, const char *weights_path, const char *weights_sha256, char err[ERR_LEN])
{
	char *sql = sqlite3_mprintf(
		"UPDATE training SET ended_unix_ms = %lld, weights_path = %Q, weights_sha256 = %Q WHERE training_id = %Q",
		(long long)unix_ms(), weights_path ? weights_path : "", weights_sha256 ? weights_sha256 : "", training_id);
	int rc = store_execute(s, sql, "ending a training", err);
	sqlite3_free(sql);
	if (rc == 0 && sqlite3_changes(s->db) != 1)
		rc = err_set(err, "ending a training: there is none with id %s", training_id);
	return rc;
}

struct reading {
	int (*training)(void *user, const struct training_row *t);
	int (*step)(void *user, const char *term, int64_t step, double value);
	void *user;
};

static int training_each(sqlite3_stmt *st, void *with)
{
	struct reading *r = with;
	struct columns c = {st, 0};
	struct training_row row = {0};
	const char **texts[] = {&row.training_id, &row.kind, &row.name, &row.config, &row.target_sha256, &row.proxy_sha256,
		&row.contexts, &row.weights_path, &row.weights_sha256};
	for (int i = 0; i < COUNT(texts); i++)
		*texts[i] = next_text(&c);
	row.seed = (uint64_t)next_int64(&c);
	row.started_unix_ms = next_int64(&c);
	row.ended_unix_ms = next_int64(&c);
	row.steps = next_int64(&c);
	return r->training(r->user, &row);
}

int store_trainings(struct store *s, int (*row)(void *user, const struct training_row *t), void *user, char err[ERR_LEN])
{
	struct reading r = {.training = row, .user = user};
	return store_read_rows(s,
		"SELECT training_id, kind, name, config, target_sha256, proxy_sha256, contexts, weights_path, weights_sha256,"
		" seed, started_unix_ms, coalesce(ended_unix_ms, 0),"
		" (SELECT coalesce(max(step), -1) FROM training_step t WHERE t.training_id = training.training_id)"
		" FROM training ORDER BY started_unix_ms, training_id",
		NULL, training_each, &r, err);
}

static int step_each(sqlite3_stmt *st, void *with)
{
	struct reading *r = with;
	struct columns c = {st, 0};
	const char *term = next_text(&c);
	int64_t step = next_int64(&c);
	return r->step(r->user, term, step, next_real(&c));
}

int store_training_steps(struct store *s, const char *training_id,
	int (*row)(void *user, const char *term, int64_t step, double value), void *user, char err[ERR_LEN])
{
	struct reading r = {.step = row, .user = user};
	return store_read_rows(s, "SELECT term, step, value FROM training_step WHERE training_id = ?1 ORDER BY term, step",
		training_id, step_each, &r, err);
}
