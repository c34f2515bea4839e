/* synthetic.c: see synthetic.h. */
#include "synthetic.h"

char folder[64], path[128], err[ERR_LEN];

void check(int rc)
{
	if (rc != 0) {
		fprintf(stderr, "%s\n", err);
		abort();
	}
}

int make_folder(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/kvb_report.XXXXXX");
	snprintf(path, sizeof path, "%s/r.db", mkdtemp(folder));
	return 0;
}

int remove_folder(void **state)
{
	(void)state;
	char *command = text_format("rm -rf %s", folder);
	int rc = system(command);
	free(command);
	return rc;
}

void writer_open(struct writer *w, const char *target)
{
	struct store_env env = {.host = "synthetic",
		.os = "none",
		.cpu = "none",
		.isa = "avx2",
		.device = "cpu",
		.version = "0",
		.commit = "0",
		.build_flags = "-O2",
		.libraries = "sqlite 3",
		.threads = 2,
		.ram_bytes = 1 << 30};
	struct store_model model = {.role = "target",
		.name = target,
		.path = "synthetic",
		.arch = "qwen3",
		.dtype = "bf16",
		.layers = LAYERS,
		.kv_heads = HEADS,
		.head_dim = 64,
		.kv_bytes_per_token = 8192,
		.params = 1000000};
	char env_id[SHA_LEN];
	w->rng = rng_seed(3, 0);
	check(store_open(&w->s, path, err));
	check(store_put_env(w->s, &env, env_id, err));
	check(store_put_model(w->s, &model, w->target, err));
	check(store_run_begin(w->s, env_id, "[\"kvbench\",\"run\"]",
		"{\"target\":\"synthetic\",\"retained\":[0.1,0.3,0.5,0.7,1]}", w->run, err));
}

void put_cell(struct writer *w, const struct cell_plan *p, char id[SHA_LEN])
{
	struct store_method method = {.name = p->method, .params = p->params, .version = 1, .origin = "the paper's table 7"};
	struct store_task task = {.name = p->task,
		.metric = p->binary ? "string_match_all" : "string_match_part",
		.version = 1,
		.params = p->task_params,
		.binary_metric = p->binary};
	char method_id[SHA_LEN], task_id[SHA_LEN];
	check(store_put_method(w->s, &method, method_id, err));
	check(store_put_task(w->s, &task, task_id, err));
	struct store_cell cell = {.target_id = w->target,
		.method_id = method_id,
		.task_id = task_id,
		.retained_ppm = p->ppm,
		.context_tokens = p->length,
		.protocol = p->protocol,
		.mode = "single",
		.topology = "cpu",
		.precision = "bf16",
		.measure_version = 1,
		.samples_planned = p->planned};
	check(store_put_cell(w->s, &cell, id, err));
}

/* Sample k of a cell with this score; what is not ok has no score. Heads keep unequal shares for kvzip. */
void put_sample(struct writer *w, const struct cell_plan *p, const char *cell, int k, const char *status, double score,
	const char *answer)
{
	char id[32], context[32];
	int32_t kept[LAYERS * HEADS];
	int64_t total = 0;
	for (int i = 0; i < LAYERS * HEADS; i++) {
		double tilt = strcmp(p->method, "kvzip") == 0 && p->ppm < 1000000 ? (i % 2 ? .6 : 1.4) : 1;
		kept[i] = (int32_t)(p->length * (p->ppm / 1e6) * tilt);
		total += kept[i];
	}
	snprintf(id, sizeof id, "s%03d", k);
	snprintf(context, sizeof context, "c%d", k / 2);
	struct store_sample s = {.cell_id = cell,
		.run_id = w->run,
		.sample_id = id,
		.context_id = context,
		.status = status,
		.message = strcmp(status, "ok") ? "asked for 5 GB, limit 2 GB" : "",
		.prompt_sha256 = "00",
		.answer = answer,
		.gold = "[\"48291\"]",
		.question = "What is the number of the red door?",
		.score = strcmp(status, "ok") ? NAN : score,
		.finish = "stop",
		.context_tokens = p->length,
		.question_tokens = 9,
		.answer_tokens = 3,
		.depth = NAN,
		.kept = kept,
		.n_kept = LAYERS * HEADS,
		.kept_total = total,
		.kv_bytes_full = p->length * 8192,
		.kv_bytes_kept = total * 256};
	check(store_put_sample(w->s, &s, err));
}

void put_times(struct writer *w, const char *cell, double total_ms, double score_share, int repetitions)
{
	static const char *const names[] = {
		"prefill", "score", "select", "compact", "question", "first_token", "ttft", "second_ttft", "decode"};
	const double share[] = {
		.90 - score_share, score_share, score_share > 0 ? .01 : 0, score_share > 0 ? .01 : 0, .06, .02, 1, .08, .5};
	for (int r = 0; r < repetitions; r++)
		for (int i = 0; i < 9; i++) {
			double rest = i == 0 && score_share == 0 ? .02 : 0; /* the parts sum to the whole */
			struct store_timing t = {cell, w->run, names[i], r, false, "host",
				(int64_t)((share[i] + rest) * (total_ms + r) * 1e6), 16, 50000000, 4000000, 1200000};
			check(store_put_timings(w->s, &t, 1, err));
		}
}

/* How well a method finds things: chance of a right answer. */
static double skill(const char *method, double r, bool aware)
{
	static const struct {
		const char *method;
		double blind, aware;
	} skills[] = {{"random", 1.9, 1.9}, {"streaming-llm", 1.5, 1.5}, {"snapkv", 1.3, .1}, {"pyramidkv", 1.2, .12},
		{"h2o", .9, .3}, {"kvzip", .06, .06}, {"knorm", 2.2, 2.2}, {"tova", 1.1, .25}, {"keydiff", .7, .7}};
	for (size_t i = 0; i < sizeof skills / sizeof *skills; i++)
		if (strcmp(skills[i].method, method) == 0)
			return pow(r, aware ? skills[i].aware : skills[i].blind);
	return 1;
}

void fill_cell(struct writer *w, const struct cell_plan *p)
{
	char id[SHA_LEN];
	put_cell(w, p, id);
	double chance = skill(p->method, p->ppm / 1e6, strcmp(p->protocol, "aware") == 0);
	bool trouble = strcmp(p->method, "h2o") == 0 && p->length == 2048 && p->ppm == 100000;
	for (int k = 0; k < p->planned; k++) {
		bool right = rng_unit(&w->rng) < chance;
		double score = right ? 1 : p->binary ? 0 : rng_below(&w->rng, 4) / 4.0;
		if (trouble && k < 4)
			put_sample(w, p, id, k, k < 2 ? "oom" : "ok", 0, "");
		else
			put_sample(w, p, id, k, "ok", score, right ? "48291" : "I do not know which door is meant.");
	}
	if (strcmp(p->protocol, "agnostic") == 0 && p->binary && (p->ppm == 300000 || p->ppm == 1000000)) {
		bool full = strcmp(p->method, "full") == 0;
		double scoring = full ? 0 : strcmp(p->method, "kvzip") == 0 ? .55 : .05;
		put_times(w, id, p->length / 20.0 * (full ? 1 : strcmp(p->method, "kvzip") == 0 ? 2.3 : 1.04), scoring, 9);
	}
}

void fill_like_the_demo(const char *target)
{
	static const char *const methods[] = {
		"full", "random", "streaming-llm", "snapkv", "pyramidkv", "h2o", "kvzip", "knorm", "tova", "keydiff"};
	static const int lengths[] = {512, 1024, 2048}, ratios[] = {100000, 300000, 500000, 700000, 1000000};
	struct writer w;
	writer_open(&w, target);
	check(store_begin(w.s, err));
	for (int task = 0; task < 2; task++)
		for (int aware = 0; aware < 2; aware++)
			for (int l = 0; l < 3; l++)
				for (int m = 0; m < 10; m++)
					for (int r = m == 0 ? 4 : 0; r < 5; r++) {
						struct cell_plan p = {task ? "niah-multivalue" : "niah-multikey", methods[m],
							"{\"compat\":\"none\"}", aware ? "aware" : "agnostic", task == 0,
							lengths[l], ratios[r], 20};
						fill_cell(&w, &p);
					}
	check(store_commit(w.s, err));
	check(store_run_end(w.s, w.run, 1, err));
	store_close(w.s);
}

char *page(const char *title)
{
	struct store *s;
	char *file = text_format("%s/page.html", folder), *text;
	size_t len;
	check(store_open_read(&s, path, err));
	check(report_write(s, title, file, err));
	store_close(s);
	check(file_read(file, &text, &len, err));
	assert_int_equal(strlen(text), len);
	free(file);
	return text;
}

char *export_as(const char *format)
{
	struct store *s;
	struct strbuf b = {0};
	check(store_open_read(&s, path, err));
	check(report_export(s, format, &b, err));
	store_close(s);
	return strbuf_take(&b);
}

int count(const char *text, const char *what)
{
	int n = 0;
	for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
		n++;
	return n;
}

/* A small checker of well-formedness: every tag closed in order (void elements apart), attributes quoted, entities known, no bare
 * < or &. Style and script are raw text. Returns NULL or what is wrong. */
const char *malformed(const char *p)
{
	static const char *const voids[] = {"meta", "input", "br", "!doctype"};
	static char open[64][24], message[160];
	int depth = 0;
	while (*p) {
		if (*p == '&') {
			size_t n = strspn(p + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789#");
			if (n == 0 || p[n + 1] != ';')
				return "a bare &";
		}
		if (*p != '<') {
			p++;
			continue;
		}
		const char *start = p++;
		bool end = *p == '/';
		p += end;
		char name[24] = "";
		for (size_t n = 0; (isalnum((unsigned char)*p) || *p == '!') && n < sizeof name - 1; p++)
			name[n++] = *p;
		if (!*name)
			return "a bare <";
		bool self = false;
		for (; *p && *p != '>'; p++) {
			if (*p == '<') {
				snprintf(message, sizeof message, "< inside a tag: %.60s", start);
				return message;
			}
			if (*p == '=' && p[1] != '"')
				return "an attribute without quotes";
			if (*p == '"' && !(p = strchr(p + 1, '"')))
				return "an open attribute";
			self = *p == '/';
		}
		if (!*p++)
			return "an open tag";
		bool is_void = false;
		for (size_t i = 0; i < sizeof voids / sizeof *voids; i++)
			is_void = is_void || strcmp(name, voids[i]) == 0;
		if (self || is_void)
			continue;
		if (!end) {
			if (depth == 64)
				return "too deep";
			strcpy(open[depth++], name);
			if (strcmp(name, "script") == 0 || strcmp(name, "style") == 0)
				while (*p && *p != '<')
					for (p++; *p && strncmp(p, "</s", 3) != 0; p++)
						;
		} else if (depth == 0 || strcmp(open[--depth], name) != 0) {
			snprintf(message, sizeof message, "</%.20s> closes <%.20s>: %.60s", name, depth >= 0 ? open[depth] : "",
				start);
			return message;
		}
	}
	return depth == 0 ? NULL : "not everything is closed";
}

void expect_well_formed(const char *html)
{
	const char *wrong = malformed(html);
	if (wrong)
		fail_msg("not well formed: %s", wrong);
}
