/* queries.c: see queries.h. Values are written as SQL literals with their quotes doubled: the texts are to be read and pasted by
 * people, not bound. */
#include "results/queries.h"

#include <stdlib.h>
#include <string.h>

static void literal(struct strbuf *b, const char *s)
{
	strbuf_puts(b, "'");
	for (; s && *s; s++)
		strbuf_puts(b, *s == '\'' ? "''" : (char[]){*s, 0});
	strbuf_puts(b, "'");
}

/* A column's name in double quotes. */
static void name(struct strbuf *b, const char *s)
{
	strbuf_puts(b, "\"");
	for (; *s; s++)
		strbuf_puts(b, *s == '"' ? "\"\"" : (char[]){*s, 0});
	strbuf_puts(b, "\"");
}

static void equals(struct strbuf *b, const char *column, const char *value)
{
	strbuf_printf(b, " AND %s = ", column);
	literal(b, value);
}

static const char from_cells[] = "FROM cell c\n"
				 "  JOIN model target ON target.model_id = c.target_id\n"
				 "  LEFT JOIN model proxy ON proxy.model_id = c.proxy_id\n"
				 "  JOIN method USING (method_id) JOIN task USING (task_id)\n";

/* Conditions that hold of one task's rows. */
static void where_task(struct strbuf *b, const struct cell_row *r)
{
	equals(b, "task.name", r->task);
	equals(b, "task.variant", r->task_variant);
	equals(b, "task.metric", r->metric);
	equals(b, "task.params", r->task_params);
}

static void where_scope(struct strbuf *b, const struct query_scope *s)
{
	const struct cell_row *r = s->row;
	strbuf_puts(b, "WHERE true");
	if (r) {
		equals(b, "target.name", r->target);
		equals(b, "target.dtype", r->dtype);
		equals(b, "c.protocol", r->protocol);
		equals(b, "c.mode", r->mode);
		equals(b, "c.topology", r->topology);
		equals(b, "c.precision", r->precision);
		strbuf_printf(b, " AND c.seed = %lld AND c.measure_version = %d", (long long)r->seed, r->measure_version);
	}
	if (r && (s->panel || s->figure))
		where_task(b, r);
	if (r && s->panel)
		strbuf_printf(b, " AND c.context_tokens = %lld", (long long)r->context_tokens);
}

static void where_run(struct strbuf *b, const struct query_scope *s, const char *column)
{
	if (s->run)
		equals(b, column, s->run);
}

static const char method_columns[] = "method.name AS method, method.params AS params, coalesce(proxy.name, '') AS proxy";

/* "max(value) FILTER (WHERE retained_ppm = 300000) AS "0.3"" for each ratio. */
static void pivot_ratios(struct strbuf *b, const char *value, const int *ppm, int n)
{
	for (int k = 0; k < n; k++)
		strbuf_printf(b, ",\n  %s FILTER (WHERE retained_ppm = %d) AS \"%g\"", value, ppm[k], ppm[k] / 1e6);
}

char *query_scores(struct query_scope s, const int *ppm, int n_ppm)
{
	struct strbuf b = {0};
	strbuf_printf(&b, "SELECT %s", method_columns);
	pivot_ratios(&b, "avg(score)", ppm, n_ppm);
	strbuf_printf(&b, "\n%s  JOIN sample USING (cell_id)\n", from_cells);
	where_scope(&b, &s);
	where_run(&b, &s, "run_id");
	strbuf_puts(&b, " AND status = 'ok'\nGROUP BY method_id, proxy_id ORDER BY min(position);");
	return strbuf_take(&b);
}

char *query_tasks(struct query_scope s, int ppm, const struct cell_row *const *panels, int n_panels)
{
	struct strbuf b = {0};
	strbuf_printf(&b, "SELECT %s", method_columns);
	for (int p = 0; p < n_panels; p++) {
		char *column = text_format("%s %lld", panels[p]->task, (long long)panels[p]->context_tokens);
		strbuf_puts(&b, ",\n  avg(score) FILTER (WHERE true");
		where_task(&b, panels[p]);
		strbuf_printf(&b, " AND c.context_tokens = %lld) AS ", (long long)panels[p]->context_tokens);
		name(&b, column);
		free(column);
	}
	strbuf_printf(&b, "\n%s  JOIN sample USING (cell_id)\n", from_cells);
	where_scope(&b, &s);
	where_run(&b, &s, "run_id");
	strbuf_printf(&b,
		" AND status = 'ok' AND (retained_ppm = %d OR method.name = 'full')\n"
		"GROUP BY method_id, proxy_id ORDER BY min(position);",
		ppm);
	return strbuf_take(&b);
}

char *query_losses(struct query_scope s, const int *ppm, int n_ppm)
{
	struct strbuf b = {0};
	strbuf_printf(&b, "WITH answered AS (SELECT c.*, sample_id, score, %s\n%s  JOIN sample USING (cell_id)\n", method_columns,
		from_cells);
	where_scope(&b, &s);
	where_run(&b, &s, "run_id");
	strbuf_puts(&b, " AND status = 'ok'),\n"
			"per_task AS (SELECT p.method, p.params, p.proxy, p.retained_ppm, avg(p.score - f.score) AS loss, "
			"min(p.position) AS at\n"
			"  FROM answered p JOIN answered f USING (task_id, context_tokens, target_id, sample_id)\n"
			"  WHERE f.method = 'full' AND p.method <> 'full'\n"
			"  GROUP BY p.method, p.params, p.proxy, p.retained_ppm, task_id, context_tokens)\n"
			"SELECT method, params, proxy");
	pivot_ratios(&b, "avg(loss)", ppm, n_ppm);
	strbuf_puts(&b, "\nFROM per_task GROUP BY method, params, proxy ORDER BY min(at);");
	return strbuf_take(&b);
}

/* The scope, and of each cell's `ranked` times those of the run with the most rounds; of several the latest. */
static void where_most_rounds(struct strbuf *b, const struct query_scope *s)
{
	where_scope(b, s);
	strbuf_puts(b, "\n  AND run_id = (SELECT run_id FROM ranked JOIN run USING (run_id) WHERE ranked.cell_id = c.cell_id "
		       "AND phase = 'ttft' AND clock = 'host'\n"
		       "    GROUP BY run_id ORDER BY count(*) DESC, started_unix_ms DESC, run_id LIMIT 1)\n");
}

char *query_times(struct query_scope s)
{
	static const char *const phases[] = {"ttft", "prefill", "score", "select", "compact", "question", "first_token",
		"second_ttft", "decode", "second_pass", "proxy_prefill", "mapper", "wait", "allocate", "gather"};
	static const char *const floors[] = {"prefill_floor_ns", "second_pass_floor_ns"};
	struct strbuf b = {0};
	strbuf_puts(&b,
		"WITH ranked AS (SELECT *, row_number() OVER (PARTITION BY cell_id, run_id, phase ORDER BY duration_ns) AS k,\n"
		"  count(*) OVER (PARTITION BY cell_id, run_id, phase) AS n FROM timing WHERE warmup = 0 AND clock = 'host'");
	where_run(&b, &s, "run_id");
	strbuf_printf(&b, ")\nSELECT task.name AS task, c.context_tokens, c.protocol, %s, c.retained_ppm / 1e6 AS retained",
		method_columns);
	for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
		strbuf_printf(&b, ",\n  avg(duration_ns) FILTER (WHERE phase = '%s' AND k IN ((n + 1) / 2, n / 2 + 1)) AS %s_ns",
			phases[i], phases[i]);
	for (size_t i = 0; i < sizeof floors / sizeof *floors; i++)
		strbuf_printf(&b,
			",\n  (SELECT value FROM timing_fact f WHERE f.cell_id = c.cell_id AND f.run_id = r.run_id AND f.name = '%s') AS %s",
			floors[i], floors[i]);
	strbuf_printf(&b,
		",\n  max(peak_bytes) AS peak_bytes, max(kv_bytes_before) AS kv_bytes_before, max(kv_bytes_after) AS "
		"kv_bytes_after,"
		"\n  count(*) FILTER (WHERE phase = 'ttft') AS repetitions\n%s  JOIN ranked r USING (cell_id)\n",
		from_cells);
	where_most_rounds(&b, &s);
	strbuf_puts(&b, "GROUP BY c.cell_id ORDER BY position;");
	return strbuf_take(&b);
}

char *query_device_times(struct query_scope s)
{
	static const struct {
		const char *clock, *phase, *column;
	} medians[] = {{"cuda_event", "ttft", "device_ns"}, {"host", "ttft", "host_ns"}, {"cuda_event", "prefill", "prefill_ns"},
		{"cuda_event", "score", "score_ns"}, {"cuda_event", "select", "select_ns"},
		{"cuda_event", "compact", "compact_ns"}, {"cuda_event", "question", "question_ns"},
		{"cuda_event", "first_token", "first_token_ns"}};
	struct strbuf b = {0};
	strbuf_puts(&b, "WITH ranked AS (SELECT *, row_number() OVER (PARTITION BY cell_id, run_id, phase, clock ORDER BY "
			"duration_ns) AS k,\n"
			"  count(*) OVER (PARTITION BY cell_id, run_id, phase, clock) AS n FROM timing WHERE warmup = 0");
	where_run(&b, &s, "run_id");
	strbuf_printf(&b, ")\nSELECT task.name AS task, c.context_tokens, c.protocol, %s, c.retained_ppm / 1e6 AS retained",
		method_columns);
	for (size_t i = 0; i < sizeof medians / sizeof *medians; i++)
		strbuf_printf(&b,
			",\n  avg(duration_ns) FILTER (WHERE clock = '%s' AND phase = '%s' AND k IN ((n + 1) / 2, n / 2 + 1)) AS "
			"%s",
			medians[i].clock, medians[i].phase, medians[i].column);
	strbuf_printf(&b, "\n%s  JOIN ranked r USING (cell_id)\n", from_cells);
	where_most_rounds(&b, &s);
	strbuf_puts(&b, "GROUP BY c.cell_id HAVING count(*) FILTER (WHERE clock = 'cuda_event' AND phase = 'ttft') > 0 ORDER BY "
			"position;");
	return strbuf_take(&b);
}

char *query_memory(struct query_scope s)
{
	struct strbuf b = {0};
	strbuf_printf(&b,
		"SELECT task.name AS task, c.context_tokens, %s, c.retained_ppm / 1e6 AS retained, device, part, max(peak_bytes) "
		"AS "
		"peak_bytes\n%s  JOIN memory USING (cell_id)\n",
		method_columns, from_cells);
	where_scope(&b, &s);
	where_run(&b, &s, "run_id");
	strbuf_puts(&b, "\nGROUP BY c.cell_id, device, part ORDER BY position, device, part;");
	return strbuf_take(&b);
}

char *query_depths(struct query_scope s)
{
	struct strbuf b = {0};
	strbuf_printf(&b,
		"SELECT %s, c.retained_ppm / 1e6 AS retained, c.context_tokens, min(9, CAST(depth * 10 AS INTEGER)) AS tenth,\n"
		"  avg(score) AS score, count(*) AS n\n%s  JOIN sample USING (cell_id)\n",
		method_columns, from_cells);
	where_scope(&b, &s);
	where_run(&b, &s, "run_id");
	strbuf_puts(&b, " AND status = 'ok' AND depth IS NOT NULL\nGROUP BY c.cell_id, tenth ORDER BY position, tenth;");
	return strbuf_take(&b);
}

char *query_kept(struct query_scope s)
{
	struct strbuf b = {0};
	strbuf_printf(&b,
		"SELECT task.name AS task, c.context_tokens AS length, %s, c.retained_ppm / 1e6 AS retained,\n"
		"  kept.key / target.kv_heads AS layer, kept.key %% target.kv_heads AS head, avg(1.0 * kept.value / "
		"sample.context_tokens) "
		"AS share\n%s  JOIN sample USING (cell_id), json_each(sample.kept) kept\n",
		method_columns, from_cells);
	where_scope(&b, &s);
	where_run(&b, &s, "sample.run_id");
	strbuf_puts(&b,
		" AND status = 'ok' AND sample.context_tokens > 0\nGROUP BY c.cell_id, kept.key ORDER BY position, kept.key;");
	return strbuf_take(&b);
}

char *query_samples(struct query_scope s)
{
	struct strbuf b = {0};
	strbuf_printf(&b,
		"SELECT task.name AS task, c.context_tokens, c.protocol, %s, c.retained_ppm / 1e6 AS retained, sample.*\n%s"
		"  JOIN sample USING (cell_id)\n",
		method_columns, from_cells);
	where_scope(&b, &s);
	where_run(&b, &s, "sample.run_id");
	strbuf_puts(&b, "\nORDER BY position, sample_id;");
	return strbuf_take(&b);
}

char *query_series(const char *cell_id, const char *figure)
{
	struct strbuf b = {0};
	strbuf_puts(&b, "SELECT datetime(started_unix_ms / 1000, 'unixepoch') AS night, \"commit\", machine, value, n\n"
			"FROM night_figure JOIN night USING (night_id)\nWHERE true");
	equals(&b, "cell_id", cell_id);
	equals(&b, "figure", figure);
	strbuf_puts(&b, "\nORDER BY started_unix_ms, night_id;");
	return strbuf_take(&b);
}

char *query_nights(void)
{
	return text_copy(
		"SELECT datetime(started_unix_ms / 1000, 'unixepoch') AS night, \"commit\", machine, baseline, "
		"baseline_version,\n"
		"  exit_code, (SELECT count(*) FROM alert WHERE alert.night_id = night.night_id AND level = 'regression') AS "
		"regressions\nFROM night ORDER BY started_unix_ms DESC, night_id;");
}

char *query_trainings(void)
{
	return text_copy(
		"SELECT training.*, (SELECT max(step) FROM training_step t WHERE t.training_id = training.training_id) AS steps\n"
		"FROM training ORDER BY started_unix_ms, training_id;");
}

char *query_methods(void)
{
	return text_copy(
		"SELECT method.name, method.params, method.origin, coalesce(proxy.name, '') AS proxy, count(*) AS cells\n"
		"FROM cell c JOIN method USING (method_id) LEFT JOIN model proxy ON proxy.model_id = c.proxy_id\n"
		"GROUP BY method_id, proxy_id ORDER BY min(position);");
}

char *query_task_data(void)
{
	return text_copy("SELECT name, version, metric, variant, data_state, data_sha256, template_sha256, params FROM task ORDER BY name;");
}

char *query_settings(void)
{
	return text_copy("SELECT * FROM run JOIN env USING (env_id) ORDER BY started_unix_ms DESC, run_id LIMIT 1;\n"
			 "SELECT * FROM model ORDER BY role DESC, name, model_id;");
}
