/* The pages' own work: what is lost to the full cache and which method is picked, tables against their SQL, samples and their
 * second file, public pages, comparisons, nights, trainings. */
#include "synthetic.h"

#include "report/loss.h"
#include "report/text.h"

#include <sqlite3.h>

/* ---- losses ---- */

struct cells_of {
	const char *method;
	int ppm, right; /* of 50 questions, two on a context */
};

static void fill_losses(const struct cells_of *cells, int n, const char *task)
{
	struct writer w;
	char id[SHA_LEN];
	writer_open(&w, "tiny");
	check(store_begin(w.s, err));
	for (int i = 0; i < n; i++) {
		struct cell_plan p = {task, cells[i].method, "{}", "agnostic", true, 1000, cells[i].ppm, 50};
		put_cell(&w, &p, id);
		for (int k = 0; k < 50; k++)
			put_sample(&w, &p, id, k, "ok", k < cells[i].right, k < cells[i].right ? "48291" : "no");
	}
	check(store_commit(w.s, err));
	store_close(w.s);
}

static void load(struct data *d)
{
	struct store *s;
	check(store_open_read(&s, path, err));
	check(data_load(d, s, NULL, err));
	store_close(s);
}

static int find_variant(const struct data *d, const char *name)
{
	int v = 0;
	while (v < d->n_variants && strcmp(d->variants[v].name, name) != 0)
		v++;
	assert_true(v < d->n_variants);
	return v;
}

/* a loses 1 of 50 at .3 and nothing at .5, b 10 of 50 at .3; random far more. */
static void the_smallest_ratio_that_holds(void **state)
{
	(void)state;
	const struct cells_of cells[] = {{"full", 1000000, 50}, {"random", 300000, 5}, {"a", 300000, 49}, {"a", 500000, 50},
		{"b", 300000, 40}, {"b", 500000, 50}, {"a", 100000, 20}};
	struct data d;
	struct losses l;
	struct pick p;
	fill_losses(cells, 7, "niah");
	load(&d);
	losses_make(&l, &d);
	const struct loss *a = loss_at(&l, 0, find_variant(&d, "a"), 1), *b = loss_at(&l, 0, find_variant(&d, "b"), 1);
	assert_int_equal(d.ppm[1], 300000);
	assert_true(fabs(a->change.mean + .02) < 1e-12 && a->worse == 1 && a->better == 0 && a->samples == 50);
	assert_true(fabs(b->change.mean + .2) < 1e-12 && b->class == LOSES);
	/* no difference in 50 answers about 25 contexts: 1 - .025^(1/n), n from 25 (as good as one a context) to 50 */
	const struct loss *same = loss_at(&l, 0, find_variant(&d, "a"), 2);
	/* who lost one is no surer than who lost none, and does not hold where that one does not */
	assert_true(fabs(a->change.lo - (-.02 + same->change.lo)) < 1e-12 && fabs(a->change.hi - (-.02 + same->change.hi)) < 1e-12);
	assert_true(a->class == UNDECIDED && b->change.lo < a->change.lo && b->change.hi < 0);
	assert_true(same->change.hi <= 1 - pow(.025, 1 / 25.0) && same->change.hi >= 1 - pow(.025, 1 / 50.0));
	assert_true(same->change.lo == -same->change.hi && same->class == UNDECIDED);
	assert_false(loss_pick(&l, &d, 0, false, &p)); /* nothing surely within five points: too few answers */
	assert_true(loss_nearest(&l, &d, 0, &p) && p.loss->change.mean == 0);
	losses_free(&l);
	data_free(&d);
}

/* Nor is it certain of who lost all, and no interval leaves the scale. */
static void all_lost(void **state)
{
	(void)state;
	const struct cells_of cells[] = {{"full", 1000000, 50}, {"a", 300000, 0}};
	struct data d;
	struct losses l;
	fill_losses(cells, 2, "niah");
	load(&d);
	losses_make(&l, &d);
	const struct loss *a = loss_at(&l, 0, find_variant(&d, "a"), 0);
	assert_true(a->change.mean == -1 && a->change.lo == -1 && fabs(a->change.hi - (-1 + .13714)) < 1e-4 && a->class == LOSES);
	losses_free(&l);
	data_free(&d);
}

/* Where no cell shows how alike the answers about one context are, a context counts once: 25, so 1 - .025^(1/25). */
static void nothing_changed_anywhere(void **state)
{
	(void)state;
	const struct cells_of cells[] = {{"full", 1000000, 50}, {"a", 300000, 50}};
	struct data d;
	struct losses l;
	fill_losses(cells, 2, "niah");
	load(&d);
	losses_make(&l, &d);
	assert_true(fabs(loss_at(&l, 0, find_variant(&d, "a"), 0)->change.hi - .13714) < 1e-4);
	losses_free(&l);
	data_free(&d);
}

/* Many contexts tell; a method that lacks a task is never picked. */
static void only_whole_methods_are_picked(void **state)
{
	(void)state;
	struct writer w;
	char id[SHA_LEN];
	struct data d;
	struct losses l;
	struct pick p;
	writer_open(&w, "tiny");
	check(store_begin(w.s, err));
	for (int task = 0; task < 2; task++)
		for (int m = 0; m < 3; m++) {
			struct cell_plan plan = {task ? "two" : "one",
				m == 0   ? "full"
				: m == 1 ? "part"
					 : "whole",
				"{}", "agnostic", true, 1000, m == 0 ? 1000000 : 300000, 400};
			if (m == 1 && task == 1)
				continue;
			put_cell(&w, &plan, id);
			for (int k = 0; k < 400; k++)
				put_sample(&w, &plan, id, k, "ok", !(m == 2 && k < 4), "x");
		}
	check(store_commit(w.s, err));
	store_close(w.s);
	load(&d);
	losses_make(&l, &d);
	assert_true(loss_pick(&l, &d, 0, false, &p));
	assert_int_equal(p.variant, find_variant(&d, "whole"));
	assert_true(fabs(p.loss->change.mean + .01) < 1e-12 && p.loss->panels == 2 && p.loss->whole);
	assert_false(loss_pick(&l, &d, 0, true, &p)); /* nothing was timed */
	losses_free(&l);
	data_free(&d);
	char *html = page("t");
	assert_non_null(strstr(html, "<p class=\"big\"><b>whole</b> at <b>r = 0.3</b></p>"));
	assert_non_null(strstr(html, "a part: 1 tasks"));
	free(html);
}

/* ---- tables and their SQL ---- */

static char *table_as(const char *id, const char *format)
{
	struct store *s;
	struct strbuf b = {0};
	check(store_open_read(&s, path, err));
	const struct report_source source = {.store = s};
	const struct report_request q = {.title = "t", .sources = &source, .n_sources = 1};
	check(report_export_table(&q, id, format, &b, err));
	store_close(s);
	return strbuf_take(&b);
}

/* The text of the <pre> after `from`, entities undone; caller frees. */
static char *sql_after(const char *from)
{
	const char *start = strstr(from, "<pre>") + 5, *end = strstr(start, "</pre>");
	static const char *const entity[][2] = {{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}};
	struct strbuf b = {0};
	while (start < end) {
		bool found = false;
		for (int i = 0; i < 5 && !found; i++)
			if (strncmp(start, entity[i][0], strlen(entity[i][0])) == 0) {
				strbuf_puts(&b, entity[i][1]);
				start += strlen(entity[i][0]);
				found = true;
			}
		if (!found)
			strbuf_add(&b, start++, 1);
	}
	return strbuf_take(&b);
}

/* Numbers of the query's columns from `first` on, row by row; -1000 for NULL. Fails on a bad query. */
static double *numbers_of(const char *sql, int first, int *n)
{
	sqlite3 *db;
	sqlite3_stmt *st;
	double *x = NULL;
	*n = 0;
	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	for (const char *tail = sql; *tail && strspn(tail, " \n") < strlen(tail);) {
		if (sqlite3_prepare_v2(db, tail, -1, &st, &tail) != SQLITE_OK)
			fail_msg("%s\n%s", sqlite3_errmsg(db), sql);
		while (sqlite3_step(st) == SQLITE_ROW)
			for (int i = first; i < sqlite3_column_count(st); i++) {
				if ((*n & (*n - 1)) == 0) /* by doubling: a sanitizer's realloc copies each time */
					x = mem_grow(x, *n ? 2 * (size_t)*n : 1, sizeof *x);
				x[(*n)++] = sqlite3_column_type(st, i) == SQLITE_NULL ? -1000 : sqlite3_column_double(st, i);
			}
		sqlite3_finalize(st);
	}
	sqlite3_close(db);
	return x;
}

/* The CSV's fields from column 1 to columns, row by row. */
static double *fields_of(const char *csv, int columns, int *n)
{
	double *x = NULL;
	*n = 0;
	for (const char *line = strchr(csv, '\n') + 1; *line; line = strchr(line, '\n') + 1) {
		const char *p = strchr(line, ',');
		for (int i = 0; i < columns; i++, p = strpbrk(p + 1, ",\n")) {
			x = mem_grow(x, (size_t)*n + 1, sizeof *x);
			x[(*n)++] = p[1] == ',' || p[1] == '\n' || strncmp(p + 1, "–", 3) == 0 ? -1000 : strtod(p + 1, NULL);
		}
	}
	return x;
}

static void same_numbers(const char *html, const char *id, int columns, double scale)
{
	char *at = text_format("id=\"t-%s\"", id), *csv = table_as(id, "csv"), *sql = sql_after(strstr(html, at));
	int n, m;
	double *x = fields_of(csv, columns, &n), *y = numbers_of(sql, 3, &m);
	assert_int_equal(n, m);
	assert_true(n >= 40);
	for (int i = 0; i < n; i++)
		assert_true(fabs(x[i] - (y[i] == -1000 ? y[i] : scale * y[i])) < 1e-6);
	free(x);
	free(y);
	free(at);
	free(csv);
	free(sql);
}

static void tables_equal_their_sql(void **state)
{
	(void)state;
	fill_like_the_demo("tiny-pair/target");
	char *html = page("t");
	assert_null(strstr(html, "t-device-times")); /* a CPU has no clock of its own */
	same_numbers(html, "accuracy-0", 5, 1);
	same_numbers(html, "accuracy-11", 5, 1);
	same_numbers(html, "tasks-0-300", 6, 1);
	same_numbers(html, "loss-0", 5, 100);
	same_numbers(html, "loss-1", 5, 100);
	int n_tables = 0, n;
	for (const char *p = html; (p = strstr(p, "<pre>")); p += 5, n_tables++) { /* every other one runs and finds something */
		char *sql = sql_after(p);
		double *x = numbers_of(sql, 0, &n);
		bool may_be_empty = strstr(sql, "FROM training") || strstr(sql, "depth IS NOT NULL");
		assert_true(n > 0 || may_be_empty);
		free(x);
		free(sql);
	}
	assert_true(n_tables > 30);
	char *times = table_as("times", "json"), *latex = table_as("times", "latex"), *md = table_as("loss-0", "md");
	json_t *json = json_loads(times, 0, NULL);
	assert_int_equal(json_array_size(json), 3 * 10 + 3 * 9); /* r = .3 and 1, three lengths; the full cache at 1 only */
	assert_non_null(strstr(latex, "\\begin{tabular}{ll"));
	assert_non_null(strstr(md, "| method | r = 0.1 |"));
	json_decref(json);
	free(times);
	free(latex);
	free(md);
	free(html);
}

/* Times by the device's clock have a table where there are any; it gives what its SQL gives. */
static void times_by_the_devices_clock(void **state)
{
	(void)state;
	static const char *const parts[] = {"prefill", "score", "select", "compact", "question", "first_token", "ttft"},
				 *const keys[] = {"retained", "device_ns", "host_ns", "prefill_ns", "score_ns", "select_ns",
					 "compact_ns", "question_ns", "first_token_ns"};
	enum { KEYS = 9, ROWS = 2 };
	struct writer w;
	char id[SHA_LEN];
	writer_open(&w, "tiny-pair/target");
	for (int i = 0; i < 3; i++) { /* the last one has none */
		struct cell_plan p = {"niah-single", (const char *[]){"full", "kvzip", "snapkv"}[i], "{}", "agnostic", true, 512,
			i ? 300000 : 1000000, 1};
		put_cell(&w, &p, id);
		put_sample(&w, &p, id, 0, "ok", 1, "48291");
		put_times(&w, id, 1000, .3, 9);
		for (int k = 0; k < 7 * 10 && i < 2; k++) /* warm-up is left out */
			check(store_put_timings(w.s,
				&(struct store_timing){id, w.run, parts[k % 7], k / 7, k / 7 == 9, "cuda_event",
					(i + 1) * 1000000 * (k % 7 + 1) + k, 16, 1, 1, 1},
				1, err));
	}
	store_close(w.s);
	int n;
	char *html = page("t"), *sql = sql_after(strstr(html, "id=\"t-device-times\"")), *text = table_as("device-times", "json");
	double *x = numbers_of(sql, 6, &n);
	json_t *rows = json_loads(text, 0, NULL);
	expect_well_formed(html);
	assert_int_equal(json_array_size(rows), ROWS);
	assert_int_equal(n, ROWS * KEYS);
	for (int i = 0; i < n; i++)
		assert_true(fabs(json_number_value(json_object_get(json_array_get(rows, (size_t)(i / KEYS)), keys[i % KEYS])) -
				    x[i]) < 1e-6);
	assert_true(x[1] == 7000000 + 4 * 7 + 6 && x[3] == 1000000 + 4 * 7); /* the fifth of nine repetitions */
	assert_true(x[2] > 1e9);
	json_decref(rows);
	free(x), free(html), free(sql), free(text);
}

/* KVzip's pass over its floor, and what a KVzip at its floor would leave to be gained; files without floors say nothing of it. */
static void kvzip_beside_its_floor(void **state)
{
	(void)state;
	struct writer w;
	char id[SHA_LEN];
	writer_open(&w, "tiny-pair/target");
	for (int i = 0; i < 3; i++) {
		struct cell_plan p = {"niah-single", (const char *[]){"full", "kvzip", "snapkv"}[i], "{}", "agnostic", true, 512,
			i ? 300000 : 1000000, 12};
		put_cell(&w, &p, id);
		for (int k = 0; k < p.planned; k++)
			put_sample(&w, &p, id, k, "ok", 1, "48291");
		put_times(&w, id, i == 1 ? 2300 : 1000, i ? .3 : 0, 9);
		for (int r = 0; r < 9 && i == 1; r++)
			check(store_put_timings(w.s,
				&(struct store_timing){id, w.run, "second_pass", r, false, "host", 600000000, 16, 1, 1, 1}, 1, err));
	}
	store_close(w.s);
	char *html = page("t"), *csv = table_as("cost", "csv");
	assert_null(strstr(html, "its floor, the prefill"));
	assert_null(strstr(csv, "floor"));
	free(html);
	free(csv);
	writer_open(&w, "tiny-pair/target");
	struct cell_plan kvzip = {"niah-single", "kvzip", "{}", "agnostic", true, 512, 300000, 12};
	put_cell(&w, &kvzip, id);
	put_times(&w, id, 2300, .3, 9);
	for (int r = 0; r < 9; r++)
		check(store_put_timings(w.s,
			&(struct store_timing){id, w.run, "second_pass", r, false, "host", 600000000, 16, 1, 1, 1}, 1, err));
	check(store_put_fact(w.s, &(struct store_fact){id, w.run, "prefill_floor_ns", 200000000}, err));
	check(store_put_fact(w.s, &(struct store_fact){id, w.run, "second_pass_floor_ns", 300000000}, err));
	struct cell_plan full = {"niah-single", "full", "{}", "agnostic", true, 512, 1000000, 12};
	put_cell(&w, &full, id);
	put_times(&w, id, 1000, 0, 9);
	store_close(w.s);
	html = page("t"), csv = table_as("cost", "csv");
	expect_well_formed(html);
	assert_non_null(strstr(html, "KVzip’s second pass took 2.0 times its floor, the prefill 6.9 times its own")); /* .6 of 2304 ms / 200 */
	assert_non_null(strstr(html, "no method could be more than 2.50 times faster than KVzip"));
	assert_non_null(strstr(csv, "prefill_over_floor,second_pass_over_floor"));
	assert_non_null(strstr(html, "AS second_pass_floor_ns"));
	free(html);
	free(csv);
}

static void unknown_tables_are_told(void **state)
{
	(void)state;
	struct store *s;
	struct strbuf b = {0};
	fill_like_the_demo("t");
	check(store_open_read(&s, path, err));
	const struct report_source source = {.store = s};
	const struct report_request q = {.title = "t", .sources = &source, .n_sources = 1};
	assert_int_equal(report_export_table(&q, "nonsense", "csv", &b, err), -1);
	assert_non_null(strstr(err, "nonsense"));
	assert_non_null(strstr(err, "loss-0"));
	check(report_export_table(&q, "help", "csv", &b, err)); /* a list for people, a table a line */
	assert_non_null(strstr(b.text, "loss-0           Points lost to the full cache"));
	assert_int_equal(count(b.text, "\nloss-1 "), 1);
	b.len = 0;
	check(report_export_table(&q, "loss-0", "latex", &b, err)); /* an interval is kept apart from its mean */
	assert_non_null(strstr(b.text, " [$-$"));
	store_close(s);
	strbuf_free(&b);
}

/* ---- samples ---- */

/* The page's samples as JSON; the page stays the caller's. */
static json_t *samples_of(const char *html)
{
	const char *start = strstr(html, "id=\"sample-data\">") + 17, *end = strstr(start, "</script>");
	json_error_t e;
	json_t *json = json_loadb(start, (size_t)(end - start), 0, &e);
	if (!json)
		fail_msg("samples: %s", e.text);
	return json;
}

static int rows_of(const json_t *samples)
{
	return (int)json_array_size(json_object_get(samples, "r")) / 6;
}

static int number_at(const json_t *samples, const char *list, int i)
{
	return (int)json_integer_value(json_array_get(json_object_get(samples, list), (size_t)i));
}

static void every_sample_is_there_and_the_worst_first(void **state)
{
	(void)state;
	fill_like_the_demo("t");
	char *html = page("t");
	json_t *samples = samples_of(html);
	assert_int_equal(rows_of(samples), 540 * 20); /* all but the full cache's own */
	int last = -1, failed = 0;
	for (int i = 0; i < rows_of(samples); i++) {
		int flags = number_at(samples, "r", 6 * i + 4);
		int level = flags & 16 ? 0 : flags & 4 ? 1 : flags & 1 ? 2 : flags & 2 ? 3 : 4;
		assert_true(level >= last);
		last = level;
		failed += level == 0;
	}
	assert_int_equal(failed, 2 * 2 * 2); /* h2o at .1, 2048 tokens: two of each task and protocol */
	json_decref(samples);
	free(html);
}

/* 90 cells of 500 samples with answers of 400 bytes: the page stays below 5 MB, the second file has all. */
static void a_grid_of_90_cells(void **state)
{
	(void)state;
	struct writer w;
	char id[SHA_LEN], answer[401], name[16], task[32];
	writer_open(&w, "tiny");
	check(store_begin(w.s, err));
	for (int m = 0; m < 10; m++)
		for (int r = 1; r < 10; r++) {
			snprintf(name, sizeof name, m ? "m%d" : "full", m);
			snprintf(task, sizeof task, m ? "longbench-qasper" : "longbench-t%d",
				r); /* the full cache: nine tasks, once each */
			struct cell_plan p = {task, name, "{}", "agnostic", false, 4096, m ? r * 100000 : 1000000, 500};
			put_cell(&w, &p, id);
			for (int k = 0; k < 500; k++) {
				for (int i = 0; i < 400; i++)
					answer[i] = (char)('a' + rng_below(&w.rng, 26));
				answer[400] = 0;
				put_sample(&w, &p, id, k, "ok", rng_unit(&w.rng), answer);
			}
		}
	check(store_commit(w.s, err));
	store_close(w.s);
	char *html = page("grid"), *file = text_format("%s/page.samples.html", folder), *second;
	size_t len;
	assert_true(strlen(html) < 5000000);
	assert_non_null(strstr(html, "<a href=\"page.samples.html\">"));
	check(file_read(file, &second, &len, err));
	expect_well_formed(second);
	json_t *few = samples_of(html), *all = samples_of(second);
	assert_int_equal(rows_of(all), 81 * 500);
	assert_true(rows_of(few) > 2000 && rows_of(few) < 81 * 500);
	print_message("page %zu bytes with %d samples, second file %zu bytes\n", strlen(html), rows_of(few), len);
	json_decref(few);
	json_decref(all);
	free(second);
	free(file);
	free(html);
}

/* An answer of a megabyte, controls that turn the writing, a script's end, a comment's begin: harmless in page and second file.
 */
static void hostile_answers(void **state)
{
	(void)state;
	struct writer w;
	char id[SHA_LEN], *large = mem_new(1 << 20, 1);
	memset(large, 'x', (1 << 20) - 1);
	writer_open(&w, "tiny");
	struct cell_plan full = {"niah", "full", "{}", "agnostic", true, 512, 1000000, 3},
			 p = {"niah", "\xe2\x80\xaesnapkv", "{}", "agnostic", true, 512, 300000, 3};
	put_cell(&w, &full, id);
	put_sample(&w, &full, id, 0, "ok", 1, "<!--<script>alert(1)</script>");
	put_cell(&w, &p, id);
	put_sample(&w, &p, id, 0, "ok", 0, large);
	put_sample(&w, &p, id, 1, "ok", 0,
		"a \xe2\x80\xae"
		"desrever\xe2\x81\xa6 \"q\" \\ \x02");
	put_sample(&w, &p, id, 2, "ok", 0, "</script><script>alert(2)</script>");
	store_close(w.s);
	char *html = page("t"), *file = text_format("%s/page.samples.html", folder), *second;
	size_t len;
	check(file_read(file, &second, &len, err));
	const char *const pages[] = {html, second};
	for (int i = 0; i < 2; i++) {
		expect_well_formed(pages[i]);
		assert_int_equal(count(pages[i], "<script"), 2);
		assert_int_equal(count(pages[i], "</script>"), 2);
		assert_null(strstr(pages[i], "<!--"));
		assert_null(strstr(pages[i], "\xe2\x80\xae"));
		assert_non_null(strstr(pages[i], "[U+202E]desrever[U+2066]"));
		json_decref(samples_of(pages[i]));
	}
	assert_true(strlen(html) < 200000 && len > 1000000);
	free(second);
	free(file);
	free(html);
	free(large);
}

/* ---- public ---- */

static char *page_of(const struct report_request *q)
{
	char *file = text_format("%s/page.html", folder), *text;
	size_t len;
	check(report_make(q, file, NULL, err));
	check(file_read(file, &text, &len, err));
	free(file);
	return text;
}

static void public_pages_tell_no_place(void **state)
{
	(void)state;
	struct writer w;
	char id[SHA_LEN], env_id[SHA_LEN];
	struct store *s;
	struct store_env env = {.host = "secrethost", .cpu = "Xeon", .commit = "c0ffee", .version = "1"};
	writer_open(&w, "tiny");
	check(store_put_env(w.s, &env, env_id, err));
	check(store_run_begin(w.s, env_id, "[\"/home/secretuser/kvbench\",\"run\",\"/data/secretfolder/plan.json\"]",
		"{\"db\":\"/data/secretfolder/a.db\",\"title\":\"on secrethost\"}", w.run, err));
	struct cell_plan p = {
		"jsonl", "full", "{\"weights\":\"/home/secretuser/w.safetensors\"}", "agnostic", true, 512, 1000000, 2};
	put_cell(&w, &p, id);
	put_sample(&w, &p, id, 0, "ok", 1, "see /usr/bin/env");
	struct store_sample failed = {.cell_id = id,
		.run_id = w.run,
		.sample_id = "s9",
		.context_id = "c",
		.status = "failed",
		.message = "cannot read /home/secretuser/w.safetensors: no such file",
		.score = NAN,
		.depth = NAN};
	check(store_put_sample(w.s, &failed, err));
	store_close(w.s);
	check(store_open_read(&s, path, err));
	const struct report_source source = {.store = s};
	struct report_request q = {.title = "t", .sources = &source, .n_sources = 1};
	char *open = page_of(&q);
	q.public_ = true;
	char *closed = page_of(&q);
	store_close(s);
	assert_true(count(open, "secret") > 5);
	assert_int_equal(count(closed, "secret"), 0);
	assert_non_null(strstr(closed, "cannot read w.safetensors: no such file"));
	assert_non_null(strstr(closed, "see /usr/bin/env")); /* the model's words stay */
	expect_well_formed(closed);
	free(open);
	free(closed);
}

static void expect_public(const char *in, const char *out)
{
	char *text = text_public(in, "box");
	assert_string_equal(text, out);
	free(text);
}

static void paths_are_cut(void **state)
{
	(void)state;
	expect_public("/a/b/c.json", "c.json");
	expect_public("{\"p\":\"/a/b/\",\"q\":[\"~/x/y\"]}", "{\"p\":\"b\",\"q\":[\"y\"]}");
	expect_public("https://a.b/c and 1/2 and a/b", "https://a.b/c and 1/2 and a/b");
	expect_public("on box, boxes, box.", "on host, boxes, host.");
	expect_public("--db=/x/y.db:/z/w", "--db=y.db:w");
	expect_public("", "");
}

static void fields_and_strings_are_quoted(void **state)
{
	(void)state;
	struct strbuf b = {0};
	csv_text(&b, "=cmd()");
	csv_text(&b, "a\"b,c");
	csv_text(&b, "-12.5");
	csv_text(&b, "=1+1");
	csv_text(&b, "-1+cmd()");
	csv_text(&b, "+1e-3");
	assert_string_equal(b.text, "\"'=cmd()\"\"a\"\"b,c\"-12.5\"'=1+1\"\"'-1+cmd()\"+1e-3");
	strbuf_free(&b);
	json_text(&b, "<a>\"\\\n\x01\xff", SIZE_MAX);
	assert_string_equal(b.text, "\"\\u003ca>\\\"\\\\\\n\xef\xbf\xbd\xef\xbf\xbd\"");
	strbuf_free(&b);
	latex_text(&b, "a_b 50 % × ~");
	assert_string_equal(b.text, "a\\_b 50 \\% $\\times$ \\textasciitilde{}");
	strbuf_free(&b);
	latex_text(&b, "[\\x^|<y>\"] &$#{}");
	assert_string_equal(b.text, "{}[\\textbackslash{}x\\textasciicircum{}\\textbar{}\\textless{}y\\textgreater{}\\symbol{34}] "
				    "\\&\\$\\#\\{\\}");
	strbuf_free(&b);
	markdown_text(&b, "&lt; ~~a~~ [b](c) | *d*");
	assert_string_equal(b.text, "\\&lt; \\~\\~a\\~\\~ \\[b\\](c) \\| \\*d\\*");
	strbuf_free(&b);
}

/* ---- two databases ---- */

static char *compare(const char *a, const char *b)
{
	struct store *s[2];
	check(store_open_read(&s[0], a, err));
	check(store_open_read(&s[1], b, err));
	const struct report_source source[] = {
		{.store = s[0], .spec = a, .label = "before"}, {.store = s[1], .spec = b, .label = "after"}};
	const struct report_request q = {.title = "two", .sources = source, .n_sources = 2};
	char *html = page_of(&q);
	store_close(s[0]);
	store_close(s[1]);
	expect_well_formed(html);
	return html;
}

static void comparisons(void **state)
{
	(void)state;
	const struct cells_of before[] = {{"full", 1000000, 50}, {"random", 300000, 10}, {"a", 300000, 49}},
			      after[] = {{"full", 1000000, 50}, {"random", 300000, 10}, {"a", 300000, 19}};
	char first[160];
	fill_losses(before, 3, "niah");
	char *same = compare(path, path);
	assert_non_null(strstr(same, "No accuracy changed beyond error"));
	assert_non_null(strstr(same, "3 cells without any changed score"));
	json_t *none = samples_of(same);
	assert_int_equal(rows_of(none), 0);
	json_decref(none);
	free(same);
	strcpy(first, path);
	snprintf(path, sizeof path, "%s/second.db", folder);
	fill_losses(after, 3, "niah");
	char *html = compare(first, path);
	assert_null(strstr(html, "No accuracy changed beyond error"));
	assert_non_null(strstr(html, "1 cell worse, 0 better"));
	assert_non_null(strstr(html, ">−60.0<small>"));
	json_t *flips = samples_of(html);
	assert_int_equal(rows_of(flips), 30);
	for (int i = 0; i < 30; i++)
		assert_int_equal(number_at(flips, "r", 6 * i + 4), 1); /* worse */
	json_decref(flips);
	assert_null(strstr(html, "http:"));
	assert_int_equal(count(html, "class=\"page\""), 4); /* nothing was timed */
	free(html);
}

/* ---- nights ---- */

/* The page of the database with a history beside it. Caller frees. */
static char *page_with(const char *history)
{
	struct store *s, *h;
	check(store_open_read(&s, path, err));
	check(store_open_read(&h, history, err));
	const struct report_source source = {.store = s};
	const struct report_request q = {.title = "t", .sources = &source, .n_sources = 1, .history = h};
	char *html = page_of(&q);
	store_close(s);
	store_close(h);
	expect_well_formed(html);
	return html;
}

static void nights_with_a_step(void **state)
{
	(void)state;
	struct store *h;
	char history[160];
	const struct cells_of cells[] = {{"full", 1000000, 50}, {"random", 300000, 10}};
	fill_losses(cells, 2, "niah");
	snprintf(history, sizeof history, "%s/history.db", folder);
	check(store_open(&h, history, err));
	store_close(h);
	char *html = page_with(history); /* no night yet */
	assert_null(strstr(html, "Night of"));
	free(html);
	check(store_open(&h, history, err));
	for (int i = 0; i < 12; i++) {
		char *id = text_format("%032d", i);
		struct night_row night = {
			id, "n.db", "c0ffee", "box, Xeon", "main", 1, i == 11 ? 3 : 0, 1764400000000 + i * 86400000ll};
		struct figure_row figures[] = {
			{"c1", "score", "niah a", i < 6 ? .9 : .8, 50}, {"c1", "ttft_of_full", "niah a", 1.1, 9}};
		struct alert_row alert = {"regression", "accuracy", "c1", "niah a", "fell </li>", .9, .8, -.15, -.05, 50};
		check(store_put_night(h, &night, figures, 2, &alert, i == 11, err));
		free(id);
	}
	store_close(h);
	html = page_with(history);
	assert_non_null(strstr(html, "Series (1 of 2 with a step)"));
	assert_non_null(strstr(html, "-0.100 since 2025-12-05")); /* the seventh night */
	assert_non_null(strstr(html, "fell &lt;/li&gt;"));
	assert_int_equal(count(html, "level bad"), 1);
	assert_non_null(strstr(html, "<article class=\"card night bad\"><h3>Night of 2025-12-10 07:06: regression</h3>"));
	assert_non_null(strstr(html, "1 alert, 0 notices"));
	assert_non_null(strstr(html, "<li>accuracy: niah a: fell &lt;/li&gt;</li>"));
	char *csv = table_as("loss-0", "csv");
	assert_non_null(strstr(csv, "loss_points_0.3,ttft_of_full")); /* at r = 1 the full cache alone was measured: no column */
	free(csv);
	free(html);
}

/* ---- trainings ---- */

static void trainings_with_their_floor(void **state)
{
	(void)state;
	struct writer w;
	char id[33];
	writer_open(&w, "tiny");
	struct store_training t = {.kind = "proxykv", .name = "<flat>", .config = "{\"lr\":0.002}", .contexts = "[\"a\",\"b\"]"};
	check(store_training_begin(w.s, &t, id, err));
	for (int i = 0; i < 50; i++) {
		check(store_training_step(w.s, id, i, "loss", i == 10 ? NAN : 2.0 / (i + 1), err));
		check(store_training_step(w.s, id, i, "recall@0.1", .5 + i / 200.0, err));
		check(store_training_step(w.s, id, i, "flat", i % 2 ? .1 : nextafter(.1, 1), err)); /* a chart of neighbours */
	}
	check(store_training_step(w.s, id, 0, "prior@0.1", .49, err));
	check(store_training_end(w.s, id, "/x/w.safetensors", "00", err));
	store_close(w.s);
	char *csv = table_as("recall", "csv"), *html = page("t");
	assert_string_equal(csv, "training,what,r_0.1,r_0.2,r_0.3,r_0.5,r_0.7\n"
				 "proxykv <flat>,\"recall, held-out contexts\",0.745,–,–,–,–\n"
				 "proxykv <flat>,floor: head prior,0.49,–,–,–,–\n");
	expect_well_formed(html);
	assert_null(strstr(html, "nan"));
	assert_non_null(strstr(html, "recall@0.1: last 0.745 at step 49"));
	free(csv);
	free(html);
}

/* Two files, one of them timed at two lengths beside the full cache, and a third that nothing was timed with. */
static void recall_against_time(void **state)
{
	(void)state;
	struct writer w;
	const struct {
		const char *name, *sha256, *params;
		double recall;
	} files[] = {{"all", "aaaa00001111", "{\"files\":{\"proxykv-flat\":\"aaaa0000\"}}", .83},
		{"first six", "bbbb00001111", "{\"files\":{\"proxykv-flat-l6\":\"bbbb0000\"},\"layers\":6}", .81},
		{"never timed", "cccc00001111", "{\"files\":{\"proxykv-flat-l2\":\"\"}}", .75}};
	const double times[2][3] = {{1, 1.5, 1.25}, {1, 1.4, 1.1}}; /* [length][full, all, first six] */
	writer_open(&w, "tiny");
	for (int i = 0; i < 4; i++) { /* the second file is trained twice, to the same weights */
		char id[33];
		int f = i < 3 ? i : 1;
		struct store_training t = {.kind = "proxykv", .name = files[f].name, .config = "{}", .contexts = "[]"};
		check(store_training_begin(w.s, &t, id, err));
		check(store_training_step(w.s, id, 1, "recall@0.1", files[f].recall, err));
		check(store_training_end(w.s, id, "/x", files[f].sha256, err));
	}
	for (int l = 0; l < 2; l++)
		for (int m = 0; m < 4; m++) {
			char cell[SHA_LEN];
			const struct cell_plan p = {"niah", m ? "proxykv" : "full", m ? files[m - 1].params : "{}", "agnostic", true,
				l ? 4096 : 1024, m ? 300000 : 1000000, 1};
			put_cell(&w, &p, cell);
			put_sample(&w, &p, cell, 0, "ok", 1, "48291");
			if (m < 3)
				put_times(&w, cell, 1000 * times[l][m], m ? .05 : 0, 1);
		}
	store_close(w.s);
	char *html = page("t");
	expect_well_formed(html);
	assert_int_equal(count(html, "× the full cache&#39;s time"), 2);
	assert_non_null(strstr(html, "all: 0.830 at 1.4× the full cache"));
	assert_non_null(strstr(html, "first six: 0.810 at 1.1× the full cache"));
	free(html);
}

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(the_smallest_ratio_that_holds), TEST(nothing_changed_anywhere), TEST(all_lost),
		TEST(only_whole_methods_are_picked), TEST(tables_equal_their_sql), TEST(times_by_the_devices_clock),
		TEST(kvzip_beside_its_floor), TEST(unknown_tables_are_told), TEST(every_sample_is_there_and_the_worst_first),
		TEST(a_grid_of_90_cells), TEST(hostile_answers), TEST(public_pages_tell_no_place),
		cmocka_unit_test(paths_are_cut), cmocka_unit_test(fields_and_strings_are_quoted), TEST(comparisons),
		TEST(nights_with_a_step), TEST(trainings_with_their_floor), TEST(recall_against_time)};
	return cmocka_run_group_tests_name("pages", tests, NULL, NULL);
}
