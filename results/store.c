/* store.c: see store.h. With store_training.c and store_history.c (what they share: store_impl.h) the only file that knows SQL.
 *
 * Three parts: opening (lock, integrity, schema version), writing (a row is an array of named fields, from which its identity
 * and its INSERT are both made), reading (one SELECT a function). journal_mode=DELETE and synchronous=FULL: WAL needs shared
 * memory, which network file systems of clusters do not give, and a commit is small beside the work it records.
 * Does not: compute statistics, know what a method or a task is. */
#include "results/store_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

extern const char results_schema_sql[], results_migrate_2_sql[], results_migrate_3_sql[], results_migrate_4_sql[];

enum { APPLICATION_ID = 0x4B56424E }; /* 'KVBN', as in schema.sql */

/* on_conflict follows "ON CONFLICT (key)"; NULL = replace all columns. */
static const struct {
	const char *name, *key, *on_conflict;
} tables[N_TABLES] = {
	[ENV] = {"env", "env_id", "DO NOTHING"},
	[MODEL] = {"model", "model_id", "DO NOTHING"},
	[METHOD] = {"method", "method_id", "DO NOTHING"},
	[TASK] = {"task", "task_id", "DO UPDATE SET data_state = excluded.data_state"},
	[CELL] = {"cell", "cell_id", "DO UPDATE SET samples_planned = max(samples_planned, excluded.samples_planned)"},
	[RUN] = {"run", "run_id", "DO NOTHING"},
	[SAMPLE] = {"sample", "cell_id, sample_id", NULL},
	[TIMING] = {"timing", "cell_id, run_id, phase, warmup, repetition, clock", NULL},
	[MEMORY] = {"memory", "cell_id, run_id, device, part", "DO UPDATE SET peak_bytes = max(peak_bytes, excluded.peak_bytes)"},
	[TIMING_FACT] = {"timing_fact", "cell_id, run_id, name", "DO UPDATE SET value = min(value, excluded.value)"},
	[TRAINING] = {"training", "training_id", "DO NOTHING"},
	[TRAINING_STEP] = {"training_step", "training_id, term, step", NULL},
	[BASELINE] = {"baseline", "name, version", "DO NOTHING"},
	[NIGHT] = {"night", "night_id", NULL},
	[NIGHT_FIGURE] = {"night_figure", "night_id, cell_id, figure", NULL},
	[ALERT] = {"alert", "night_id, position", NULL},
};
/* What may be replaced at all. */
static const char *const replace_only_if[N_TABLES] = {[SAMPLE] = " WHERE sample.status <> 'ok'"};

/* ---- errors ---- */

/* The reason of the last failure, in the words of somebody who can do something about it. */
static const char *reason(struct store *s)
{
	int code = sqlite3_errcode(s->db), os = sqlite3_system_errno(s->db);
	if (code == SQLITE_FULL)
		return "disk full; committed rows are safe: free space and run the same command again";
	if (sqlite3_extended_errcode(s->db) == SQLITE_IOERR_WRITE)
		return "a write was refused (quota, file-size limit or a broken disk); committed rows are safe";
	if (code == SQLITE_NOTADB)
		return "not a database";
	if (code == SQLITE_CORRUPT)
		return "the database is damaged";
	if (code == SQLITE_BUSY)
		return "another process keeps the database locked";
	if (code == SQLITE_READONLY)
		return "the file or its folder is read-only";
	return os && (code == SQLITE_IOERR || code == SQLITE_CANTOPEN) ? strerror(os) : sqlite3_errmsg(s->db);
}

int store_fail(struct store *s, const char *doing, char err[ERR_LEN])
{
	return err_set(err, "%s: %s: %s", s->path, doing, reason(s));
}

int store_execute(struct store *s, const char *sql, const char *doing, char err[ERR_LEN])
{
	return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : store_fail(s, doing, err);
}

/* The single number a query gives; `none` when it gives none or fails. */
int64_t store_query_int(struct store *s, const char *sql, int64_t none)
{
	sqlite3_stmt *st = NULL;
	int64_t value = none;
	if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
		value = sqlite3_column_int64(st, 0);
	return sqlite3_finalize(st) == SQLITE_OK ? value : none;
}

/* ---- the writer's lock: flock on PATH.lock, which also names the holder; dies with its process ---- */

static int lock_refused(struct store *s, int fd, char err[ERR_LEN])
{
	char holder[128] = "";
	ssize_t n = pread(fd, holder, sizeof holder - 1, 0);
	holder[n > 0 ? n : 0] = 0;
	close(fd);
	return err_set(err, "%s: another kvbench is writing to it (%s); one writer a file", s->path,
		*holder ? holder : "unknown process");
}

static void lock_sign(int fd)
{
	char host[64] = "", text[128];
	gethostname(host, sizeof host - 1);
	int n = snprintf(text, sizeof text, "pid %ld on %s", (long)getpid(), host);
	if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n)
		return; /* only a courtesy: the lock holds without it */
}

static int lock_take(struct store *s, char err[ERR_LEN])
{
	for (;;) {
		int fd = open(s->lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
		if (fd < 0)
			return err_set(err, "%s: cannot write beside it (%s): %s", s->path, s->lock_path, strerror(errno));
		if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
			if (errno == EWOULDBLOCK)
				return lock_refused(s, fd, err);
			close(fd);
			return err_set(err, "%s: cannot lock: %s", s->lock_path, strerror(errno));
		}
		struct stat ours, named;
		s->lock_fd = fd;
		if (fstat(fd, &ours) == 0 && stat(s->lock_path, &named) == 0 && ours.st_ino == named.st_ino) {
			lock_sign(fd);
			return 0;
		}
		close(fd); /* its last owner removed it between our open and our lock */
		s->lock_fd = -1;
	}
}

/* ---- opening ---- */

static struct store *store_new(const char *path)
{
	struct store *s = mem_new(1, sizeof *s);
	s->path = text_copy(path);
	s->lock_path = text_format("%s.lock", path);
	s->lock_fd = -1;
	return s;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	for (int t = 0; t < N_TABLES; t++)
		sqlite3_finalize(s->insert[t]);
	sqlite3_finalize(s->has_sample);
	sqlite3_finalize(s->count_timings);
	sqlite3_finalize(s->put_score);
	sqlite3_close(s->db); /* rolls an open batch back */
	if (s->lock_fd >= 0) {
		unlink(s->lock_path);
		close(s->lock_fd);
	}
	free(s->lock_path);
	free(s->path);
	free(s);
}

static int connect(struct store *s, int flags, char err[ERR_LEN])
{
	if (sqlite3_open_v2(s->path, &s->db, SQLITE_OPEN_READWRITE | flags, NULL) != SQLITE_OK)
		return store_fail(s, "cannot open", err);
	sqlite3_extended_result_codes(s->db, 0);
	/* trusted_schema stays on: the schema's CHECKs use json_valid, which 3.40 does not count as harmless */
	return store_execute(s, "PRAGMA busy_timeout=20000; PRAGMA foreign_keys=ON; PRAGMA cell_size_check=ON", "opening", err);
}

/* An empty file, or one of ours not newer than we know. *version: 0 = empty. */
static int check_version(struct store *s, int newest, int *version, char err[ERR_LEN])
{
	int64_t objects = store_query_int(s, "SELECT count(*) FROM sqlite_master", -1);
	if (objects < 0)
		return store_fail(s, "cannot read", err);
	*version = (int)store_query_int(s, "PRAGMA user_version", 0);
	if (objects == 0 && *version == 0)
		return 0;
	if (store_query_int(s, "PRAGMA application_id", 0) != APPLICATION_ID)
		return err_set(err, "%s: a SQLite database, but not one of kvbench", s->path);
	if (*version > newest)
		return err_set(err, "%s: has schema version %d, this kvbench knows up to %d: use the newer program", s->path,
			*version, newest);
	return *version >= 1 ? 0 : err_set(err, "%s: has no schema version", s->path);
}

/* A whole copy as PATH.vN; an older copy of that name is replaced only when the new one is complete. */
static int copy_before(struct store *s, int version, char err[ERR_LEN])
{
	char *copy = text_format("%s.v%d", s->path, version), *part = text_format("%s.v%d.part", s->path, version);
	char *sql = sqlite3_mprintf("VACUUM INTO %Q", part);
	unlink(part);
	int rc = store_execute(s, sql, "copying before the migration", err);
	if (rc == 0 && rename(part, copy) != 0)
		rc = err_set(err, "%s: cannot name the copy %s: %s", s->path, copy, strerror(errno));
	sqlite3_free(sql);
	free(part);
	free(copy);
	return rc;
}

static int migrate_steps(struct store *s, const struct store_schema *schema, int version, char err[ERR_LEN])
{
	char doing[64];
	if (version == 0)
		return store_execute(s, schema->create, "creating the tables", err);
	for (; version < schema->version; version++) {
		snprintf(doing, sizeof doing, "migrating from version %d to %d", version, version + 1);
		if (store_execute(s, schema->steps[version - 1], doing, err) != 0)
			return -1;
	}
	return 0;
}

/* From any known version to the newest in one transaction, the version last: all or nothing. */
static int migrate(struct store *s, const struct store_schema *schema, int version, char err[ERR_LEN])
{
	if (version == schema->version)
		return 0;
	if (version > 0 && copy_before(s, version, err) != 0)
		return -1;
	char set_version[64];
	snprintf(set_version, sizeof set_version, "PRAGMA user_version=%d", schema->version);
	if (store_execute(s, "BEGIN IMMEDIATE", "beginning the migration", err) == 0 && migrate_steps(s, schema, version, err) == 0 &&
		store_execute(s, set_version, "setting the version", err) == 0 &&
		store_execute(s, "COMMIT", "committing the migration", err) == 0)
		return 0;
	sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
	return -1;
}

int store_open_schema(struct store **out, const char *path, const struct store_schema *schema, char err[ERR_LEN])
{
	struct store *s = store_new(path);
	int version;
	*out = NULL;
	if (lock_take(s, err) != 0 || connect(s, SQLITE_OPEN_CREATE, err) != 0 ||
		check_version(s, schema->version, &version, err) != 0)
		goto cleanup;
	if (sqlite3_db_readonly(s->db, "main") == 1) {
		err_set(err, "%s: the file is read-only", path);
		goto cleanup;
	}
	if (store_execute(s, "PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL", "opening", err) != 0 ||
		migrate(s, schema, version, err) != 0)
		goto cleanup;
	*out = s;
	return 0;
cleanup:
	store_close(s);
	return -1;
}

int store_open(struct store **out, const char *path, char err[ERR_LEN])
{
	static const char *const steps[] = {results_migrate_2_sql, results_migrate_3_sql, results_migrate_4_sql};
	static const struct store_schema newest = {STORE_VERSION, results_schema_sql, steps};
	return store_open_schema(out, path, &newest, err);
}

static int check_integrity(struct store *s, char err[ERR_LEN])
{
	sqlite3_stmt *st = NULL;
	int rc = -1;
	if (sqlite3_prepare_v2(s->db, "PRAGMA quick_check(1)", -1, &st, NULL) != SQLITE_OK || sqlite3_step(st) != SQLITE_ROW)
		store_fail(s, "checking its integrity", err);
	else if (strcmp((const char *)sqlite3_column_text(st, 0), "ok") != 0)
		err_set(err, "%s: the database is damaged: %s", s->path, (const char *)sqlite3_column_text(st, 0));
	else
		rc = 0;
	sqlite3_finalize(st);
	return rc;
}

/* An older version is brought up to date on the way, as a writer would; a file that cannot be written stays as it is. */
static int upgrade(const char *path, int version, char err[ERR_LEN])
{
	struct store *s = NULL;
	char why[ERR_LEN];
	int rc = store_open(&s, path, why);
	store_close(s);
	return rc == 0 ? 0
		       : err_set(err, "%s: has schema version %d and cannot be brought to %d here: %.300s", path, version,
				 STORE_VERSION, why);
}

/* Opened for writing where allowed, since only so a killed writer's journal can be rolled back. */
static int connect_read(struct store *s, int *version, char err[ERR_LEN])
{
	if (connect(s, 0, err) != 0 || check_version(s, STORE_VERSION, version, err) != 0 || check_integrity(s, err) != 0)
		return -1;
	return *version ? 0 : err_set(err, "%s: holds no results yet", s->path);
}

int store_open_read(struct store **out, const char *path, char err[ERR_LEN])
{
	struct store *s = store_new(path);
	int version;
	*out = NULL;
	if (!file_exists(path)) {
		err_set(err, "%s: no such database", path);
		goto cleanup;
	}
	if (connect_read(s, &version, err) != 0)
		goto cleanup;
	if (version < STORE_VERSION) {
		store_close(s);
		s = NULL;
		if (upgrade(path, version, err) != 0)
			return -1;
		s = store_new(path);
		if (connect_read(s, &version, err) != 0)
			goto cleanup;
	}
	if (store_execute(s, "PRAGMA query_only=ON", "opening", err) != 0)
		goto cleanup;
	*out = s;
	return 0;
cleanup:
	store_close(s);
	return -1;
}

int store_begin(struct store *s, char err[ERR_LEN])
{
	if (store_execute(s, "BEGIN IMMEDIATE", "beginning a batch", err) != 0)
		return -1;
	s->batch = true;
	return 0;
}

int store_commit(struct store *s, char err[ERR_LEN])
{
	bool lost = s->batch && sqlite3_get_autocommit(s->db);
	s->batch = false;
	if (lost)
		return err_set(err, "%s: the batch was rolled back by an earlier failure: its rows are not stored", s->path);
	if (store_execute(s, "COMMIT", "committing a batch", err) == 0)
		return 0;
	sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
	return -1;
}

/* ---- writing ---- */

static void json_string(struct strbuf *b, const char *s)
{
	strbuf_puts(b, "\"");
	for (; *s; s++) {
		if ((unsigned char)*s < 0x20)
			strbuf_printf(b, "\\u%04x", *s);
		else
			strbuf_printf(b, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
	}
	strbuf_puts(b, "\"");
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct field *const *)a)->name, (*(const struct field *const *)b)->name);
}

/* SHA-256 of {"column":value,...}, columns sorted, no spaces. */
void store_identify(const struct field *f, int n, char id[SHA_LEN])
{
	const struct field *sorted[32];
	for (int i = 0; i < n; i++)
		sorted[i] = &f[i];
	qsort(sorted, (size_t)n, sizeof *sorted, by_name);
	struct strbuf b = {0};
	for (int i = 0; i < n; i++) {
		strbuf_printf(&b, "%c\"%s\":", i ? ',' : '{', sorted[i]->name);
		if (sorted[i]->type == 'i')
			strbuf_printf(&b, "%lld", (long long)sorted[i]->integer);
		else if (sorted[i]->type == 'n' && !sorted[i]->text)
			strbuf_puts(&b, "null");
		else
			json_string(&b, sorted[i]->text ? sorted[i]->text : "");
	}
	strbuf_puts(&b, "}");
	sha256_hex(b.text, b.len, id);
	strbuf_free(&b);
}

/* INSERT INTO t ("a", "b") VALUES (?, ?) ON CONFLICT (key) ... : made from the columns' names, which are all constants here. */
static sqlite3_stmt *insert_statement(struct store *s, enum table t, const struct field *f, int n)
{
	if (s->insert[t])
		return s->insert[t];
	struct strbuf b = {0};
	strbuf_printf(&b, "INSERT INTO %s (", tables[t].name);
	for (int i = 0; i < n; i++)
		strbuf_printf(&b, "%s\"%s\"", i ? ", " : "", f[i].name);
	strbuf_puts(&b, ") VALUES (");
	for (int i = 0; i < n; i++)
		strbuf_puts(&b, i ? ", ?" : "?");
	strbuf_printf(
		&b, ") ON CONFLICT (%s) %s", tables[t].key, tables[t].on_conflict ? tables[t].on_conflict : "DO UPDATE SET ");
	for (int i = 0; i < n && !tables[t].on_conflict; i++)
		strbuf_printf(&b, "%s\"%s\" = excluded.\"%s\"", i ? ", " : "", f[i].name, f[i].name);
	strbuf_puts(&b, replace_only_if[t] ? replace_only_if[t] : "");
	if (sqlite3_prepare_v3(s->db, b.text, -1, SQLITE_PREPARE_PERSISTENT, &s->insert[t], NULL) != SQLITE_OK)
		s->insert[t] = NULL;
	strbuf_free(&b);
	return s->insert[t];
}

static void bind_field(sqlite3_stmt *st, int at, const struct field *f)
{
	if (f->type == 'i' || (f->type == 'c' && f->integer >= 0))
		sqlite3_bind_int64(st, at, f->integer);
	else if (f->type == 'd')
		sqlite3_bind_double(st, at, f->real); /* NAN becomes NULL */
	else if (f->text)
		sqlite3_bind_text(st, at, f->text, -1, SQLITE_STATIC);
	else if (f->type == 't')
		sqlite3_bind_text(st, at, "", 0, SQLITE_STATIC);
	else
		sqlite3_bind_null(st, at);
}

int store_put_row(struct store *s, enum table t, const struct field *f, int n, char err[ERR_LEN])
{
	char doing[64];
	snprintf(doing, sizeof doing, "storing a row of %s", tables[t].name);
	sqlite3_stmt *st = insert_statement(s, t, f, n);
	if (!st)
		return store_fail(s, doing, err);
	for (int i = 0; i < n; i++)
		bind_field(st, i + 1, &f[i]);
	int rc = sqlite3_step(st) == SQLITE_DONE ? 0 : store_fail(s, doing, err);
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	return rc;
}

/* f[0] is the id column, filled in here from the n_identity fields that follow it. */
static int put_identified(
	struct store *s, enum table t, struct field *f, int n, int n_identity, char id[SHA_LEN], char err[ERR_LEN])
{
	store_identify(f + 1, n_identity, id);
	f[0].text = id;
	return store_put_row(s, t, f, n, err);
}

int store_put_env(struct store *s, const struct store_env *e, char id[SHA_LEN], char err[ERR_LEN])
{
	struct field f[] = {TEXT("env_id", NULL), TEXT("host", e->host), TEXT("os", e->os), TEXT("cpu", e->cpu),
		TEXT("isa", e->isa), TEXT("device", e->device), INTEGER("threads", e->threads),
		INTEGER("ram_bytes", e->ram_bytes), TEXT("version", e->version), TEXT("commit", e->commit),
		INTEGER("dirty", e->dirty), TEXT("build_flags", e->build_flags), TEXT("libraries", e->libraries)};
	return put_identified(s, ENV, f, COUNT(f), COUNT(f) - 1, id, err);
}

int store_put_model(struct store *s, const struct store_model *m, char id[SHA_LEN], char err[ERR_LEN])
{
	struct field f[] = {TEXT("model_id", NULL), TEXT("role", m->role), TEXT("name", m->name), TEXT("arch", m->arch),
		TEXT("dtype", m->dtype), TEXT("sha256", m->sha256), TEXT("tokenizer_sha256", m->tokenizer_sha256),
		TEXT("chat_template", m->chat_template), TEXT("template_sha256", m->template_sha256),
		INTEGER("params", m->params), INTEGER("layers", m->layers), INTEGER("kv_heads", m->kv_heads),
		INTEGER("head_dim", m->head_dim), INTEGER("kv_bytes_per_token", m->kv_bytes_per_token), TEXT("path", m->path)};
	return put_identified(s, MODEL, f, COUNT(f), COUNT(f) - 2, id, err);
}

int store_put_method(struct store *s, const struct store_method *m, char id[SHA_LEN], char err[ERR_LEN])
{
	struct field f[] = {TEXT("method_id", NULL), TEXT("name", m->name), INTEGER("version", m->version),
		TEXT("params", m->params ? m->params : "{}"), TEXT("origin", m->origin)};
	return put_identified(s, METHOD, f, COUNT(f), COUNT(f) - 2, id, err);
}

int store_put_task(struct store *s, const struct store_task *t, char id[SHA_LEN], char err[ERR_LEN])
{
	struct field f[] = {TEXT("task_id", NULL), TEXT("name", t->name), INTEGER("version", t->version),
		TEXT("metric", t->metric), INTEGER("binary_metric", t->binary_metric), TEXT("data_sha256", t->data_sha256),
		TEXT("template_sha256", t->template_sha256), TEXT("params", t->params ? t->params : "{}"),
		TEXT("variant", t->variant), TEXT("data_state", t->data_state)};
	return put_identified(s, TASK, f, COUNT(f), COUNT(f) - 2, id, err);
}

int store_put_cell(struct store *s, const struct store_cell *c, char id[SHA_LEN], char err[ERR_LEN])
{
	int64_t position = store_query_int(s, "SELECT coalesce(max(position) + 1, 0) FROM cell", -1);
	if (position < 0)
		return store_fail(s, "counting cells", err);
	struct field f[] = {TEXT("cell_id", NULL), TEXT("target_id", c->target_id), TEXT_OR_NULL("proxy_id", c->proxy_id),
		TEXT("task_id", c->task_id), TEXT("method_id", c->method_id), INTEGER("retained_ppm", c->retained_ppm),
		INTEGER("context_tokens", c->context_tokens), TEXT("protocol", c->protocol), TEXT("mode", c->mode),
		TEXT("topology", c->topology), TEXT("precision", c->precision), INTEGER("seed", c->seed),
		INTEGER("measure_version", c->measure_version), INTEGER("samples_planned", c->samples_planned),
		INTEGER("position", position)};
	return put_identified(s, CELL, f, COUNT(f), COUNT(f) - 3, id, err);
}

int store_random_id(char id[33], char err[ERR_LEN])
{
	unsigned char random[16];
	if (getrandom(random, sizeof random, 0) != sizeof random)
		return err_set(err, "no random bytes for an id: %s", strerror(errno));
	for (int i = 0; i < 16; i++)
		snprintf(id + 2 * i, 3, "%02x", random[i]);
	return 0;
}

int store_run_begin(
	struct store *s, const char *env_id, const char *argv_json, const char *plan_json, char run_id[33], char err[ERR_LEN])
{
	if (store_random_id(run_id, err) != 0)
		return -1;
	struct field f[] = {TEXT("run_id", run_id), TEXT("env_id", env_id), TEXT("argv", argv_json ? argv_json : "[]"),
		TEXT("plan", plan_json ? plan_json : "{}"), INTEGER("started_unix_ms", unix_ms())};
	return store_put_row(s, RUN, f, COUNT(f), err);
}

int store_run_end(struct store *s, const char *run_id, int exit_code, char err[ERR_LEN])
{
	char *sql = sqlite3_mprintf(
		"UPDATE run SET ended_unix_ms = %lld, exit_code = %d WHERE run_id = %Q", (long long)unix_ms(), exit_code, run_id);
	int rc = store_execute(s, sql, "ending the run", err);
	sqlite3_free(sql);
	return rc;
}

/* [1,2,3]; NULL for no counts. Caller frees. */
static char *counts_to_json(const int32_t *x, int n)
{
	if (!x)
		return NULL;
	struct strbuf b = {0};
	for (int i = 0; i < n; i++)
		strbuf_printf(&b, "%c%d", i ? ',' : '[', (int)x[i]);
	strbuf_puts(&b, n > 0 ? "]" : "[]");
	return strbuf_take(&b);
}

int store_put_sample(struct store *s, const struct store_sample *p, char err[ERR_LEN])
{
	char *kept = counts_to_json(p->kept, p->n_kept);
	struct field f[] = {TEXT("cell_id", p->cell_id), TEXT("sample_id", p->sample_id), TEXT("context_id", p->context_id),
		TEXT("run_id", p->run_id), TEXT("status", p->status), TEXT("message", p->message), TEXT("metric", p->metric),
		REAL("score", p->score), TEXT("also_metric", p->also_metric),
		REAL("also_score", p->also_metric && *p->also_metric ? p->also_score : NAN),
		INTEGER("scorer_version", p->scorer_version), TEXT("question", p->question),
		TEXT("gold", p->gold ? p->gold : "[]"), TEXT("answer", p->answer),
		TEXT("answer_ids", p->answer_ids ? p->answer_ids : "[]"), TEXT("finish", p->finish ? p->finish : "none"),
		TEXT("prompt_sha256", p->prompt_sha256), INTEGER("flags", p->flags), INTEGER("prefix_tokens", p->prefix_tokens),
		INTEGER("context_tokens", p->context_tokens), INTEGER("question_tokens", p->question_tokens),
		INTEGER("answer_tokens", p->answer_tokens), TEXT("group", p->group),
		TEXT("truncation", p->truncation ? p->truncation : "none"), INTEGER("cut_tokens", p->cut_tokens),
		REAL("depth", p->depth), COUNT_OR_NULL("needle_token", p->needle_token),
		COUNT_OR_NULL("needle_char", p->needle_char), TEXT_OR_NULL("kept", kept), INTEGER("kept_total", p->kept_total),
		INTEGER("kv_bytes_full", p->kv_bytes_full), INTEGER("kv_bytes_kept", p->kv_bytes_kept),
		INTEGER("oom_bytes", p->oom_bytes), INTEGER("stored_unix_ms", unix_ms()),
		COUNT_OR_NULL("oom_free_bytes", p->oom_bytes ? p->oom_free_bytes : -1)};
	int rc = store_put_row(s, SAMPLE, f, COUNT(f), err);
	free(kept);
	return rc;
}

int store_put_score(struct store *s, const char *cell_id, const char *sample_id, double score, double also_score,
	int scorer_version, char err[ERR_LEN])
{
	static const char sql[] = "UPDATE sample SET score = ?1, also_score = ?2, scorer_version = ?3"
				  " WHERE cell_id = ?4 AND sample_id = ?5 AND status = 'ok'";
	const struct field f[] = {REAL("score", score), REAL("also_score", also_score), INTEGER("scorer_version", scorer_version),
		TEXT("cell_id", cell_id), TEXT("sample_id", sample_id)};
	if (!s->put_score && sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &s->put_score, NULL) != SQLITE_OK)
		return store_fail(s, "changing a score", err);
	for (int i = 0; i < COUNT(f); i++)
		bind_field(s->put_score, i + 1, &f[i]);
	int rc = sqlite3_step(s->put_score) == SQLITE_DONE ? 0 : store_fail(s, "changing a score", err);
	sqlite3_reset(s->put_score);
	sqlite3_clear_bindings(s->put_score);
	return rc;
}

static int put_timing(struct store *s, const struct store_timing *t, char err[ERR_LEN])
{
	struct field f[] = {TEXT("cell_id", t->cell_id), TEXT("run_id", t->run_id), TEXT("phase", t->phase),
		INTEGER("warmup", t->warmup), INTEGER("repetition", t->repetition), TEXT("clock", t->clock ? t->clock : "host"),
		INTEGER("duration_ns", t->duration_ns), INTEGER("tokens", t->tokens), INTEGER("peak_bytes", t->peak_bytes),
		INTEGER("kv_bytes_before", t->kv_bytes_before), INTEGER("kv_bytes_after", t->kv_bytes_after)};
	return store_put_row(s, TIMING, f, COUNT(f), err);
}

int store_put_timings(struct store *s, const struct store_timing *t, size_t n, char err[ERR_LEN])
{
	bool own = !s->batch;
	if (own && store_begin(s, err) != 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (put_timing(s, &t[i], err) == 0)
			continue;
		if (own) {
			sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
			s->batch = false;
		}
		return -1;
	}
	return own ? store_commit(s, err) : 0;
}

int store_put_memory(struct store *s, const struct store_memory *m, char err[ERR_LEN])
{
	struct field f[] = {TEXT("cell_id", m->cell_id), TEXT("run_id", m->run_id), INTEGER("device", m->device),
		TEXT("part", m->part), INTEGER("peak_bytes", m->peak_bytes)};
	return store_put_row(s, MEMORY, f, COUNT(f), err);
}

int store_put_fact(struct store *s, const struct store_fact *p, char err[ERR_LEN])
{
	struct field f[] = {TEXT("cell_id", p->cell_id), TEXT("run_id", p->run_id), TEXT("name", p->name),
		INTEGER("value", p->value)};
	return store_put_row(s, TIMING_FACT, f, COUNT(f), err);
}

/* ---- reading ---- */

/* First column of the first row of a query with up to three text parameters; the statement is kept in *st. 0 when there is none. */
static int ask(struct store *s, sqlite3_stmt **st, const char *sql, const char *first, const char *second, const char *third)
{
	if (!*st && sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, st, NULL) != SQLITE_OK)
		return 0;
	sqlite3_bind_text(*st, 1, first, -1, SQLITE_STATIC);
	if (second)
		sqlite3_bind_text(*st, 2, second, -1, SQLITE_STATIC);
	if (third)
		sqlite3_bind_text(*st, 3, third, -1, SQLITE_STATIC);
	int value = sqlite3_step(*st) == SQLITE_ROW ? sqlite3_column_int(*st, 0) : 0;
	sqlite3_reset(*st);
	return value;
}

bool store_has_sample(struct store *s, const char *cell_id, const char *sample_id, const char *run_id)
{
	return ask(s, &s->has_sample,
		"SELECT 1 FROM sample WHERE cell_id = ?1 AND sample_id = ?2 AND (status IN ('ok', 'not-applicable') OR run_id = ?3)",
		cell_id, sample_id, run_id ? run_id : "");
}

/* An expression: repetitions of the run that has most of them. */
#define MOST_REPETITIONS(cell)                                                                                                   \
	"(SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM timing t WHERE t.cell_id = " cell                           \
	" AND phase = 'ttft' AND warmup = 0 AND clock = 'host' GROUP BY run_id))"

int store_count_timings(struct store *s, const char *cell_id)
{
	return ask(s, &s->count_timings, "SELECT " MOST_REPETITIONS("?1"), cell_id, NULL, NULL);
}

/* store_read_rows with a second text parameter; a NULL one is NULL in SQL. */
static int read_rows_of(struct store *s, const char *sql, const char *first, const char *second,
	int (*each)(sqlite3_stmt *, void *), void *with, char err[ERR_LEN])
{
	sqlite3_stmt *st = NULL;
	if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) != SQLITE_OK)
		return store_fail(s, "reading", err);
	if (first)
		sqlite3_bind_text(st, 1, first, -1, SQLITE_STATIC);
	if (second)
		sqlite3_bind_text(st, 2, second, -1, SQLITE_STATIC);
	int rc, answer = 0;
	while ((rc = sqlite3_step(st)) == SQLITE_ROW && (answer = each(st, with)) == 0)
		;
	if (answer == 0 && rc != SQLITE_DONE)
		answer = store_fail(s, "reading", err);
	sqlite3_finalize(st);
	return answer;
}

int store_read_rows(struct store *s, const char *sql, const char *parameter, int (*each)(sqlite3_stmt *, void *), void *with,
	char err[ERR_LEN])
{
	return read_rows_of(s, sql, parameter, NULL, each, with, err);
}

struct reading {
	int (*cell)(void *user, const struct cell_row *c);
	int (*sample)(void *user, const struct score_row *r);
	int (*timing)(void *user, const struct timing_row *r);
	int (*run)(void *user, const struct run_row *r);
	int (*memory)(void *user, int device, const char *part, int64_t peak_bytes);
	int (*fact)(void *user, const char *name, int64_t value);
	int (*setting)(void *user, const char *group, const char *name, const char *value);
	const char *group;
	void *user;
};

/* "Empty" is the text's own: an ok answer of white space only. */
static const char cells_sql[] =
	"WITH counts AS (SELECT s.cell_id,"
	"  sum(s.status = 'ok') AS ok, sum(s.status = 'failed') AS failed, sum(s.status = 'oom') AS oom,"
	"  sum(s.status = 'not-applicable') AS not_applicable,"
	"  sum(s.status = 'ok' AND trim(s.answer, ' ' || char(9, 10, 11, 12, 13)) = '') AS empty,"
	"  sum(s.status = 'ok' AND s.finish = 'length') AS length_finish,"
	"  avg(s.score) FILTER (WHERE s.status = 'ok') AS score_mean,"
	"  max(nullif(s.also_metric, '')) AS also_metric, avg(s.also_score) AS also_mean, count(s.also_score) AS also_n,"
	"  sum(s.status = 'ok' AND s.cut_tokens > 0) AS cut,"
	"  min(s.scorer_version) AS scorer_oldest, max(s.scorer_version) AS scorer_newest,"
	"  avg(1.0 * s.kept_total / (s.context_tokens * m.layers * m.kv_heads))"
	"    FILTER (WHERE s.status = 'ok' AND s.context_tokens > 0) AS retained_mean,"
	"  avg(s.kv_bytes_full) FILTER (WHERE s.status = 'ok') AS bytes_full, avg(s.kv_bytes_kept) FILTER (WHERE s.status = "
	"'ok') AS bytes_kept"
	"  FROM sample s JOIN cell USING (cell_id) JOIN model m ON m.model_id = target_id GROUP BY s.cell_id)"
	" SELECT c.cell_id, target.name, proxy.name, method.name, method.params, method.origin, task.name, task.params, "
	"task.variant, task.data_state, task.metric,"
	"  c.protocol, c.mode, c.topology, c.precision, target.dtype, c.retained_ppm, c.context_tokens, task.binary_metric, "
	"c.samples_planned,"
	"  ok, failed, oom, not_applicable, empty, length_finish, score_mean, also_metric, also_mean, also_n, cut,"
	"  retained_mean, bytes_full, bytes_kept,"
	"  target.layers, target.kv_heads, c.measure_version, scorer_oldest, scorer_newest, c.seed,"
	"  target.sha256, coalesce(proxy.sha256, ''), task.version, task.data_sha256, task.template_sha256,"
	"  " MOST_REPETITIONS("c.cell_id") " FROM cell c JOIN model target ON target.model_id = c.target_id LEFT JOIN model "
					   "proxy ON proxy.model_id = c.proxy_id"
					   " JOIN method USING (method_id) JOIN task USING (task_id) LEFT JOIN counts USING "
					   "(cell_id) ORDER BY c.position, c.cell_id";

static int cell_each(sqlite3_stmt *st, void *with)
{
	struct reading *r = with;
	struct columns c = {st, 0};
	struct cell_row row = {next_text(&c)};
	const char **texts[] = {&row.target, &row.proxy, &row.method, &row.method_params, &row.method_origin, &row.task,
		&row.task_params, &row.task_variant, &row.data_state, &row.metric, &row.protocol, &row.mode, &row.topology,
		&row.precision, &row.dtype};
	for (int i = 0; i < COUNT(texts); i++)
		*texts[i] = next_text(&c);
	row.retained_ppm = next_int(&c);
	row.context_tokens = next_int64(&c);
	row.binary_metric = next_int64(&c);
	int *counts[] = {&row.planned, &row.ok, &row.failed, &row.oom, &row.not_applicable, &row.empty, &row.length_finish};
	for (int i = 0; i < COUNT(counts); i++)
		*counts[i] = next_int(&c);
	row.score_mean = next_real(&c);
	row.also_metric = next_text(&c);
	row.also_mean = next_real(&c);
	row.also_n = next_int(&c);
	row.cut = next_int(&c);
	row.retained_mean = next_real(&c);
	row.kv_bytes_full = next_int64(&c);
	row.kv_bytes_kept = next_int64(&c);
	row.layers = next_int(&c);
	row.kv_heads = next_int(&c);
	row.measure_version = next_int(&c);
	row.scorer_oldest = next_int(&c);
	row.scorer_version = next_int(&c);
	row.seed = (uint64_t)next_int64(&c);
	row.target_sha256 = next_text(&c);
	row.proxy_sha256 = next_text(&c);
	row.task_version = next_int(&c);
	row.data_sha256 = next_text(&c);
	row.template_sha256 = next_text(&c);
	row.timing_repetitions = next_int(&c);
	return r->cell(r->user, &row);
}

int store_cells(struct store *s, int (*row)(void *user, const struct cell_row *c), void *user, char err[ERR_LEN])
{
	struct reading r = {.cell = row, .user = user};
	return store_read_rows(s, cells_sql, NULL, cell_each, &r, err);
}

/* The numbers of a JSON array of integers as stored by counts_to_json, as far as it is one; caller frees. NULL for NULL. */
static int32_t *counts_from_json(const char *json, int *n)
{
	*n = 0;
	if (!json)
		return NULL;
	size_t most = 1; /* one behind the bracket and one behind each comma */
	for (const char *p = json; *p; p++)
		most += *p == ',';
	int32_t *x = mem_new(most, sizeof *x);
	const char *p = json;
	for (char before = '['; *p == before; before = ',') {
		char *end;
		long value = strtol(p + 1, &end, 10);
		if (end == p + 1)
			break;
		x[(*n)++] = int_nearest(value);
		p = end;
	}
	return x;
}

static int sample_each(sqlite3_stmt *st, void *with)
{
	struct reading *r = with;
	struct columns c = {st, 0};
	struct score_row row = {0};
	const char **texts[] = {&row.sample_id, &row.context_id, &row.answer, &row.gold, &row.question, &row.status, &row.message,
		&row.finish, &row.metric, &row.also_metric, &row.group, &row.truncation};
	for (int i = 0; i < COUNT(texts); i++)
		*texts[i] = next_text(&c);
	row.score = next_real(&c);
	row.also_score = next_real(&c);
	row.depth = next_real(&c);
	row.retained = next_real(&c);
	row.flags = next_int(&c);
	row.context_tokens = next_int(&c);
	row.answer_tokens = next_int(&c);
	row.scorer_version = next_int(&c);
	row.cut_tokens = next_int64(&c);
	row.needle_token = next_int64(&c);
	row.needle_char = next_int64(&c);
	int32_t *kept = counts_from_json(next_text(&c), &row.n_kept);
	row.run_id = next_text(&c);
	row.prompt_sha256 = next_text(&c);
	row.answer_ids = next_text(&c);
	row.kept = kept;
	int answer = r->sample(r->user, &row);
	free(kept);
	return answer;
}

int store_samples(
	struct store *s, const char *cell_id, int (*row)(void *user, const struct score_row *r), void *user, char err[ERR_LEN])
{
	struct reading r = {.sample = row, .user = user};
	return store_read_rows(s,
		"SELECT sample_id, context_id, answer, gold, question, status, message, finish,"
		" metric, also_metric, \"group\", truncation,"
		" CASE status WHEN 'ok' THEN score END, CASE status WHEN 'ok' THEN also_score END, depth, 1.0 * kept_total / "
		"nullif(s.context_tokens * layers * kv_heads, "
		"0),"
		" flags, s.context_tokens, answer_tokens, scorer_version, cut_tokens, coalesce(needle_token, -1), "
		"coalesce(needle_char, -1), kept, run_id, prompt_sha256, answer_ids"
		" FROM sample s JOIN cell USING (cell_id) JOIN model ON model_id = target_id WHERE cell_id = ?1 ORDER BY "
		"sample_id",
		cell_id, sample_each, &r, err);
}

static int timing_each(sqlite3_stmt *st, void *with)
{
	struct reading *r = with;
	struct columns c = {st, 0};
	struct timing_row row = {next_text(&c), next_text(&c)};
	row.repetition = next_int(&c);
	row.warmup = next_int64(&c);
	int64_t *numbers[] = {&row.duration_ns, &row.tokens, &row.peak_bytes, &row.kv_bytes_before, &row.kv_bytes_after};
	for (int i = 0; i < COUNT(numbers); i++)
		*numbers[i] = next_int64(&c);
	return r->timing(r->user, &row);
}

/* An expression: the run whose repetitions stand for cell ?1: ?2, or the one with most (the newest among equals). */
#define TIMED_RUN                                                                                                                \
	"coalesce(?2, (SELECT run_id FROM timing JOIN run USING (run_id) WHERE cell_id = ?1 AND phase = 'ttft' AND warmup = 0 AND clock = 'host'" \
	" GROUP BY run_id ORDER BY count(*) DESC, started_unix_ms DESC, run_id LIMIT 1))"

#define TIMINGS_BY(clock)                                                                                                        \
	"SELECT run_id, phase, repetition, warmup, duration_ns, tokens, peak_bytes, kv_bytes_before, kv_bytes_after"             \
	" FROM timing WHERE cell_id = ?1 AND run_id = " TIMED_RUN " AND clock = '" clock "' ORDER BY warmup DESC, repetition, phase"

int store_timings_of(struct store *s, const char *cell_id, const char *run_id, int (*row)(void *user, const struct timing_row *r),
	void *user, char err[ERR_LEN])
{
	struct reading r = {.timing = row, .user = user};
	return read_rows_of(s, TIMINGS_BY("host"), cell_id, run_id, timing_each, &r, err);
}

int store_device_timings_of(struct store *s, const char *cell_id, const char *run_id,
	int (*row)(void *user, const struct timing_row *r), void *user, char err[ERR_LEN])
{
	struct reading r = {.timing = row, .user = user};
	return read_rows_of(s, TIMINGS_BY("cuda_event"), cell_id, run_id, timing_each, &r, err);
}

int store_timings(
	struct store *s, const char *cell_id, int (*row)(void *user, const struct timing_row *r), void *user, char err[ERR_LEN])
{
	return store_timings_of(s, cell_id, NULL, row, user, err);
}

static int fact_each(sqlite3_stmt *st, void *with)
{
	struct reading *r = with;
	struct columns c = {st, 0};
	const char *name = next_text(&c);
	return r->fact(r->user, name, next_int64(&c));
}

int store_facts_of(struct store *s, const char *cell_id, const char *run_id, int (*row)(void *user, const char *name, int64_t value),
	void *user, char err[ERR_LEN])
{
	struct reading r = {.fact = row, .user = user};
	return read_rows_of(s, "SELECT name, value FROM timing_fact WHERE cell_id = ?1 AND run_id = " TIMED_RUN " ORDER BY name", cell_id,
		run_id, fact_each, &r, err);
}

static int memory_each(sqlite3_stmt *st, void *with)
{
	struct reading *r = with;
	struct columns c = {st, 0};
	int device = next_int(&c);
	const char *part = next_text(&c);
	return r->memory(r->user, device, part, next_int64(&c));
}

int store_memory(struct store *s, const char *cell_id, int (*row)(void *user, int device, const char *part, int64_t peak_bytes),
	void *user, char err[ERR_LEN])
{
	struct reading r = {.memory = row, .user = user};
	return read_rows_of(s,
		"SELECT device, part, peak_bytes FROM memory WHERE cell_id = ?1 AND run_id = " TIMED_RUN
		" ORDER BY device, part",
		cell_id, NULL, memory_each, &r, err);
}

/* Every column of the row is a setting: its name and its value as text. */
static int setting_each(sqlite3_stmt *st, void *with)
{
	struct reading *r = with;
	int answer = 0;
	for (int i = 0; i < sqlite3_column_count(st) && answer == 0; i++) {
		const char *value = (const char *)sqlite3_column_text(st, i);
		answer = r->setting(r->user, r->group, sqlite3_column_name(st, i), value ? value : "");
	}
	return answer;
}

/* Two columns, name and value. What is no object or list has no name. */
static int pair_each(sqlite3_stmt *st, void *with)
{
	struct reading *r = with;
	const char *name = (const char *)sqlite3_column_text(st, 0), *value = (const char *)sqlite3_column_text(st, 1);
	return r->setting(r->user, r->group, name ? name : "", value ? value : "");
}

#define NEWEST_RUN "(SELECT run_id FROM run ORDER BY started_unix_ms DESC, run_id LIMIT 1)"

int store_settings(struct store *s, int (*row)(void *user, const char *group, const char *name, const char *value), void *user,
	char err[ERR_LEN])
{
	static const struct {
		const char *group, *sql;
		int (*each)(sqlite3_stmt *, void *);
	} parts[] = {
		{"run",
			"SELECT run_id AS run, datetime(started_unix_ms / 1000, 'unixepoch') || ' UTC' AS started,"
			" coalesce(datetime(ended_unix_ms / 1000, 'unixepoch') || ' UTC', 'not yet: killed, or still running') AS ended,"
			" coalesce(exit_code, 'none') AS exit_code, argv, (SELECT count(*) FROM run) AS runs_in_this_file FROM "
			"run WHERE run_id = " NEWEST_RUN,
			setting_each},
		{"environment", "SELECT env.* FROM env JOIN run USING (env_id) WHERE run_id = " NEWEST_RUN, setting_each},
		{"target", "SELECT * FROM model WHERE role = 'target' ORDER BY name, model_id", setting_each},
		{"proxy", "SELECT * FROM model WHERE role = 'proxy' ORDER BY name, model_id", setting_each},
		{"plan", "SELECT key, value FROM run, json_each(plan) WHERE run_id = " NEWEST_RUN " ORDER BY json_each.id",
			pair_each},
	};
	int rc = 0;
	for (int i = 0; i < COUNT(parts) && rc == 0; i++) {
		struct reading r = {.setting = row, .group = parts[i].group, .user = user};
		rc = store_read_rows(s, parts[i].sql, NULL, parts[i].each, &r, err);
	}
	return rc;
}

static int run_each(sqlite3_stmt *st, void *with)
{
	struct reading *r = with;
	struct columns c = {st, 0};
	struct run_row row = {next_text(&c), next_text(&c)};
	const char **texts[] = {&row.commit, &row.argv, &row.plan, &row.machine};
	for (int i = 0; i < COUNT(texts); i++)
		*texts[i] = next_text(&c);
	row.dirty = next_int64(&c);
	row.started_unix_ms = next_int64(&c);
	row.ended_unix_ms = next_int64(&c);
	row.exit_code = next_int(&c);
	return r->run(r->user, &row);
}

int store_runs(struct store *s, int (*row)(void *user, const struct run_row *r), void *user, char err[ERR_LEN])
{
	struct reading r = {.run = row, .user = user};
	return store_read_rows(s,
		"SELECT run_id, version, \"commit\", argv, plan, host || ', ' || cpu || ', ' || os || ', ' || isa || ', ' ||"
		" device || ', ' || threads || ' threads, ' || (ram_bytes / 1073741824) || ' GiB', dirty, started_unix_ms,"
		" coalesce(ended_unix_ms, 0), coalesce(exit_code, -1) FROM run JOIN env USING (env_id)"
		" ORDER BY started_unix_ms, run_id",
		NULL, run_each, &r, err);
}

/* All columns of a row as text, each with an end mark. */
static int digest_each(sqlite3_stmt *st, void *with)
{
	for (int i = 0; i < sqlite3_column_count(st); i++) {
		const char *text = (const char *)sqlite3_column_text(st, i);
		sha256_add(with, text ? text : "", text ? strlen(text) + 1 : 1);
	}
	return 0;
}

int store_digest(struct store *s, char digest[SHA_LEN], char err[ERR_LEN])
{
	static const char *const parts[] = {
		"SELECT cell_id, sample_id, run_id, status, printf('%!.17g', score), scorer_version, prompt_sha256, answer_ids"
		" FROM sample ORDER BY cell_id, sample_id",
		"SELECT cell_id, run_id, repetition, duration_ns FROM timing WHERE phase = 'ttft' AND warmup = 0"
		" ORDER BY cell_id, run_id, repetition, clock"};
	struct sha256 *sha = sha256_new();
	int rc = 0;
	for (int i = 0; i < COUNT(parts) && rc == 0; i++)
		rc = store_read_rows(s, parts[i], NULL, digest_each, sha, err);
	sha256_end(sha, digest);
	return rc;
}
