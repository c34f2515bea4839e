/* RULER: random numbers and words against Python's, the own generator at every length, rows read from files, requests refused.
 * With a real tokenizer and published rows: tests/unit/runners/test_ruler_golden.c. */
#include "tests/unit/tasks/ruler_shared.h"

#include <jansson.h>
#include <zip.h>

#include "tasks/ruler/ruler.h"

static char err[ERR_LEN];
static char *folder; /* of upstream's files; NULL = not there */

static int setup(void **state)
{
	(void)state;
	folder = ruler_folder_make();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ruler_folder_free(folder);
	return 0;
}

/* ---- Python's random, numpy's randint (tests/oracle/ruler_random.py) ---- */

static struct twister python(uint32_t seed)
{
	return twister_python(&seed, 1);
}

static void test_random(void **state)
{
	(void)state;
	char text[37];
	struct twister t = python(42);
	assert_int_equal(python_bits(&t, 32), 2746317213u);
	assert_int_equal(python_bits(&t, 32), 478163327u);
	assert_int_equal(python_bits(&t, 32), 107420369u);
	assert_int_equal(python_below(&t, 6175260), 2307113);
	assert_int_equal(python_below(&t, 6175260), 2054301);
	assert_int_equal(python_below(&t, 6175260), 1872427);
	t = python(42);
	python_uuid(&t, text);
	assert_string_equal(text, "bdd640fb-0667-4ad1-9c80-317fa3b1799d");
	python_letters(&t, 'a', 6, text);
	assert_string_equal(text, "hftrxc");
	const uint32_t large[] = {7, 256}; /* 2^40 + 7 */
	t = twister_python(large, 2);
	assert_int_equal(python_bits(&t, 32), 2635837658u);
	t = twister_numpy(42);
	static const uint32_t drawn[] = {25795, 10860, 86820, 64886, 16265, 92386};
	for (int i = 0; i < 6; i++)
		assert_int_equal(10000 + numpy_below(&t, 89999), drawn[i]);
}

static void test_sample(void **state)
{
	(void)state;
	static const struct {
		int n, k, want[6];
	} samples[] = {{40, 4, {7, 1, 17, 15}}, {1000, 6, {654, 114, 25, 759, 281, 250}}, {85, 6, {81, 14, 3, 35, 31, 28}},
		{86, 6, {81, 14, 3, 35, 31, 28}}};
	static const int shuffled[] = {7, 3, 2, 8, 5, 6, 9, 4, 0, 1};
	int v[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
	struct twister t = python(42);
	python_shuffle(&t, v, 10);
	assert_memory_equal(v, shuffled, sizeof(v));
	for (int i = 0; i < 4; i++) {
		t = python(42);
		python_sample(&t, samples[i].n, samples[i].k, v);
		assert_memory_equal(v, samples[i].want, (size_t)samples[i].k * sizeof(*v));
	}
}

/* ---- words ---- */

/* "well" with its hyphen begins "well-known": their pairs interleave, and well + known-fact = well-known + fact. */
static void test_pairs(void **state)
{
	(void)state;
	static const char *const first[] = {"zany", "well-known", "able", "well", "welled"}, *const second[] = {"ant",
												     "known-fact", "zoo", "fact"};
	struct ruler_words a = {0}, b = {0}, all = {0};
	struct ruler_pairs p = {0};
	char *texts[20];
	for (int i = 0; i < 5; i++)
		ruler_words_add(&a, first[i]);
	for (int i = 0; i < 4; i++)
		ruler_words_add(&b, second[i]);
	for (int i = 0; i < 20; i++)
		ruler_words_add(&all, texts[i] = text_format("%s-%s", first[i / 4], second[i % 4]));
	ruler_words_sort(&a);
	ruler_words_sort(&b);
	ruler_words_sort(&all);
	ruler_pairs_make(&p, &a, &b);
	assert_int_equal(all.n, 19);
	assert_int_equal(p.n, all.n);
	for (int i = 0; i < all.n; i++) {
		struct strbuf got = {0};
		ruler_pairs_at(&p, i, &got);
		assert_string_equal(got.text, all.v[i]);
		strbuf_free(&got);
	}
	for (int i = 0; i < 20; i++)
		free(texts[i]);
	ruler_pairs_free(&p);
	ruler_words_free(&a);
	ruler_words_free(&b);
	ruler_words_free(&all);
}

static void test_sentences(void **state)
{
	(void)state;
	static const char text[] =
		"Mr. Smith left  at 5 p.m. today.\nDid he say \"why?\" J. did (really!). Etc. and so it goes... then. The end";
	static const char *const last[] = {"today.", "\"why?\"", "(really!).", "then."};
	struct ruler_essay e = {0};
	struct ruler_sentences got = {0};
	ruler_essay_make(&e, text);
	assert_int_equal(e.n, 22);
	ruler_essay_sentences(&e, e.text, &got);
	assert_int_equal(got.n, 5);
	for (int i = 0; i < 4; i++) {
		size_t len = strlen(last[i]);
		assert_memory_equal(e.text + got.v[i].to - len, last[i], len);
		assert_int_equal(got.v[i + 1].from, got.v[i].to + 1);
	}
	assert_int_equal(got.v[4].to, strlen(e.text));
	free(got.v);
	ruler_essay_free(&e);
}

/* A zip as NLTK's, with a few parameters of ours. */
static char *punkt_zip(void)
{
	static const struct {
		const char *name, *text;
	} files[] = {{"abbrev_types.txt", "mr\ne.g\nst\nvol\n. . \n"}, {"sent_starters.txt", "however\nthey\n"},
		{"collocations.tab", "##number##\tstreet\nj\tbach\n"},
		{"ortho_context.tab", "the\t46\nriver\t4\nthen\t48\nsmith\t4\nwe\t34\nold\t34\n"}};
	char *path = text_copy("/tmp/kvb-punkt-XXXXXX"), name[64];
	int fd = mkstemp(path);
	zip_t *zip = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, NULL);
	assert_true(fd >= 0 && !close(fd) && zip);
	for (size_t i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "punkt_tab/english/%s", files[i].name);
		zip_source_t *source = zip_source_buffer(zip, files[i].text, strlen(files[i].text), 0);
		assert_true(zip_file_add(zip, name, source, ZIP_FL_ENC_UTF_8) >= 0);
	}
	assert_int_equal(zip_close(zip), 0);
	return path;
}

/* Sentences of NLTK 3.9.1 with the same parameters, a | between. */
static void test_punkt(void **state)
{
	(void)state;
	static const struct {
		const char *text, *sentences;
	} cases[] = {
		{"Mr. Smith came. He left", "Mr. Smith came.|He left"},
		{"See vol. However it is. And vol. the end", "See vol.|However it is.|And vol. the end"},
		{"They met on St. They ate. On st. They sang", "They met on St.|They ate.|On st.|They sang"},
		{"At 12 St. Old men sit. At 5. street lamps. By 7. then rain. By 8. Rain",
			"At 12 St.|Old men sit.|At 5. street lamps.|By 7.|then rain.|By 8.|Rain"},
		{"By J. Bach. By J. Smith. By J. the sea. By J. We go. Plan B. Zoo",
			"By J. Bach.|By J. Smith.|By J. the sea.|By J.|We go.|Plan B. Zoo"},
		{"What?! No... Yes. . . . Yes ... the end. . . . The end",
			"What?!|No... Yes.|.|.|.|Yes ... the end.|.|.|.|The end"},
		{"(One.) Two.) \"Three.\" 'Four.' Five.]--six! \"Seven", "(One.)|Two.)|\"Three.\"|'Four.'|Five.]--six!|\"Seven"},
		{"a.b said \"e.g. this.\" He, e.g.the one, won.(So what?) Not.so",
			"a.b said \"e.g.|this.\"|He, e.g.the one, won.|(So what?)|Not.so"},
		{"x-vol. The end--or not. Mr.; the.: é. É. Δ. δ. Wow!", "x-vol. The end--or not.|Mr.; the.|: é. É. Δ. δ. Wow!"},
		{"Wait... The rain. Wait... then sun. 3.5. We", "Wait... The rain.|Wait... then sun.|3.5.|We"},
		{"...", "..."},
		{"One.", "One."},
		{"He said.) -- No.\"", "He said.)|-- No.\""},
		{"1. The 2. the -3,5. We.. No. ##number##. 3", "1.|The 2. the -3,5.|We.. No.|##number##.|3"},
	};
	char sha[SHA_LEN], *zip = punkt_zip();
	struct sha256 *hash = sha256_new();
	struct ruler_punkt *p = ruler_punkt_read(zip, hash, err);
	sha256_end(hash, sha);
	for (size_t i = 0; p && i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ruler_sentences s = {0};
		struct strbuf got = {0};
		ruler_punkt_sentences(p, cases[i].text, &s);
		for (int k = 0; k < s.n; k++)
			strbuf_printf(&got, "%s%.*s", k ? "|" : "", (int)(s.v[k].to - s.v[k].from), cases[i].text + s.v[k].from);
		assert_string_equal(got.text, cases[i].sentences);
		strbuf_free(&got);
		free(s.v);
	}
	assert_non_null(p);
	ruler_punkt_free(p);
	unlink(zip);
	free(zip);
}

/* ---- own ---- */

static struct task_request request(const char *name, int64_t length)
{
	return (struct task_request){.name = name, .length_tokens = length, .depth = NAN, .seed = 5, .count_tokens = count_words};
}

static struct task *open_task(const struct task_request *rq)
{
	struct task *t = NULL;
	if (task_open(&t, rq, err))
		fail_msg("%s at %lld: %s", rq->name, (long long)rq->length_tokens, err);
	return t;
}

static struct task_context context_of(struct task *t, int i)
{
	struct task_context c;
	if (task_context_make(t, i, &c, err))
		fail_msg("%s", err);
	return c;
}

static char *whole(const struct task_context *c)
{
	return text_format("%s%s%s", c->text, c->questions[0].text, c->questions[0].answer_prefix);
}

static bool is_word(const char *text, const char *word)
{
	size_t n = strlen(word);
	for (const char *p = text; (p = strstr(p, word)); p += n)
		if ((p == text || !isalnum((unsigned char)p[-1])) && !isalnum((unsigned char)p[n]))
			return true;
	return false;
}

static void check_row(const struct task_def *def, const struct task_context *c, int64_t length)
{
	const struct task_question *q = &c->questions[0];
	char *all = whole(c);
	int64_t tokens = count_words(NULL, all, strlen(all)) + q->max_new_tokens;
	bool coarse =
		strstr(def->name, "fwe") || strstr(def->name, "qa_") || strstr(def->name, "cwe"); /* rows differ in length */
	if (tokens > length || tokens < (coarse ? length * 8 / 10 - 100 : length * 95 / 100 - 40))
		fail_msg("%s: %lld tokens at %lld", def->name, (long long)tokens, (long long)length);
	assert_int_equal(c->n_questions, 1);
	assert_true(q->n_answers > 0 && c->chat);
	assert_null(strchr(c->text, '{'));
	assert_null(strpbrk(q->text, "{}"));
	assert_null(strpbrk(q->answer_prefix, "{}"));
	for (int i = 0; i < q->n_answers; i++)
		assert_true(is_word(c->text, q->answers[i]));
	assert_true(isnan(q->depth) ? q->needle_token < 0 : q->depth >= 0 && q->depth < 1 && q->needle_token >= 0);
	free(all);
}

static void test_own_lengths(void **state)
{
	(void)state;
	static const int64_t lengths[] = {512, 700, 1500, 4096, 20000};
	for (int k = 0; k < RULER_TASKS; k++)
		for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
			struct task_request rq = request(task_ruler[k].name, lengths[l]);
			struct task *t = open_task(&rq);
			assert_int_equal(task_count(t), RULER_OWN_ROWS);
			for (int i = 0; i < 50; i += 7) {
				struct task_context c = context_of(t, i);
				check_row(&task_ruler[k], &c, lengths[l]);
				task_context_free(&c);
			}
			task_close(t);
		}
}

/* A length at which the prompt is longer than some lines: yet not one line more fits (a line of uuids: 105 bytes). */
static void test_own_short_fits(void **state)
{
	(void)state;
	struct task_request rq = request("ruler-niah_multikey_3", 1000);
	rq.count_tokens = count_bytes;
	struct task *t = open_task(&rq);
	for (int i = 0; i < 5; i++) {
		struct task_context c = context_of(t, i);
		char *all = whole(&c);
		assert_in_range((int64_t)strlen(all) + c.questions[0].max_new_tokens, 1000 - 110, 1000);
		free(all);
		task_context_free(&c);
	}
	task_close(t);
}

static int64_t counted_bytes;
static int64_t count_and_note(void *user, const char *text, size_t len)
{
	counted_bytes += (int64_t)len;
	return count_words(user, text, len);
}

/* The whole text is counted few times. */
static void test_own_long(void **state)
{
	(void)state;
	for (int k = 0; k < RULER_TASKS; k++) {
		struct task_request rq = request(task_ruler[k].name, 170000);
		rq.count_tokens = count_and_note;
		counted_bytes = 0;
		struct task *t = open_task(&rq);
		struct task_context c = context_of(t, 0);
		if (!strstr(rq.name, "cwe")) /* its words come to an end before */
			check_row(&task_ruler[k], &c, 170000);
		if (counted_bytes > 8 * (int64_t)strlen(c.text))
			fail_msg("%s: %lld bytes counted for %zu", rq.name, (long long)counted_bytes, strlen(c.text));
		task_context_free(&c);
		task_close(t);
	}
}

static void same_row(struct task *a, struct task *b, int i, bool same)
{
	struct task_context x = context_of(a, i), y = context_of(b, i);
	char *p = whole(&x), *q = whole(&y);
	assert_int_equal(!strcmp(p, q), same);
	free(p);
	free(q);
	task_context_free(&x);
	task_context_free(&y);
}

/* Row i is the same whatever was made before: own by streams, upstream by going through the rows before it. */
static void check_order(struct task_request rq)
{
	struct task *a = open_task(&rq), *b = open_task(&rq);
	struct task_context c = context_of(b, 0);
	task_context_free(&c);
	same_row(a, b, 6, true);
	same_row(a, b, 2, true);
	same_row(a, b, 6, true);
	task_close(b);
	rq.seed++;
	b = open_task(&rq);
	same_row(a, b, 2, false);
	task_close(a);
	task_close(b);
}

static void test_order(void **state)
{
	(void)state;
	for (int k = 0; k < RULER_TASKS; k++) {
		struct task_request rq = request(task_ruler[k].name, 4096);
		check_order(rq);
		rq.path = folder;
		if (folder)
			check_order(rq);
	}
}

/* What a row says about two of the own tasks, in full. */
static void test_own_wording(void **state)
{
	(void)state;
	struct task_request rq = request("ruler-niah_multivalue", 600);
	struct task *t = open_task(&rq);
	struct task_context c = context_of(t, 1);
	const struct task_question *q = &c.questions[0];
	char key[64], text[160];
	assert_int_equal(sscanf(q->text, "What are all the hidden numbers of %63s in the text?", key), 1);
	snprintf(text, sizeof(text), "The hidden numbers of %s in the text are", key);
	assert_string_equal(q->answer_prefix, text);
	assert_string_equal(q->text + strlen(q->text) - 6, "text? ");
	assert_int_equal(q->n_answers, 4);
	for (int i = 0; i < 4; i++) {
		snprintf(text, sizeof(text), "Among the hidden numbers, %s has %s.", key, q->answers[i]);
		assert_non_null(strstr(c.text, text));
	}
	const char *at = strstr(c.text, q->answers[0]);
	assert_int_equal(q->needle_char, at - c.text);
	assert_int_equal(q->needle_token, count_words(NULL, c.text, (size_t)(at - c.text)));
	assert_near(q->depth, (double)(at - c.text) / (double)strlen(c.text));
	task_context_free(&c);
	task_close(t);

	rq.name = "ruler-qa_2";
	t = open_task(&rq);
	c = context_of(t, 3);
	char who[2][32], employer[2][32], near[2][32];
	q = &c.questions[0];
	assert_string_equal(q->metric, "string_match_part");
	assert_non_null(strstr(q->text, "Question: What does the employer of the "));
	assert_int_equal(sscanf(strstr(q->text, "employer of the"), "employer of the %31s %31s live near?", who[0], who[1]), 2);
	snprintf(text, sizeof(text), "The %s %s lives", who[0], who[1]);
	assert_non_null(strstr(c.text, text));
	snprintf(text, sizeof(text), "The %s %s works for the ", who[0], who[1]);
	assert_int_equal(sscanf(strstr(c.text, text) + strlen(text), "%31s %31[a-z]", employer[0], employer[1]), 2);
	snprintf(text, sizeof(text), "The %s %s lives near the ", employer[0], employer[1]);
	assert_int_equal(sscanf(strstr(c.text, text) + strlen(text), "%31s %31[a-z]", near[0], near[1]), 2);
	snprintf(text, sizeof(text), "%s %s", near[0], near[1]);
	assert_string_equal(q->answers[0], text);
	task_context_free(&c);
	task_close(t);
}

/* cwe: the asked words really come most often; vt: the chain really holds. */
static int times(const char *text, const char *word)
{
	int n = 0;
	char form[64];
	snprintf(form, sizeof(form), ". %s ", word);
	for (const char *p = text; (p = strstr(p, form)); p++)
		n++;
	return n;
}

static int occurrences(const char *text, const char *of)
{
	int n = 0;
	for (const char *p = text; (p = strstr(p, of)); p++)
		n++;
	return n;
}

/* Among thousands of needles whose keys are drawn from 7,316, the one asked for is there once, and so is its value. */
static void test_own_keys(void **state)
{
	(void)state;
	struct task_request rq = request("ruler-niah_multikey_2", 35000);
	struct task *t = open_task(&rq);
	for (int i = 0; i < 20; i++) {
		struct task_context c = context_of(t, i);
		char *end = strstr(c.text, c.questions[0].answers[0]) - strlen(" has "), *key = end;
		while (key[-1] != ' ')
			key--;
		char *form = text_format(" %.*s has ", (int)(end - key), key);
		assert_int_equal(occurrences(c.text, form), 1);
		assert_int_equal(occurrences(c.text, c.questions[0].answers[0]), 1);
		assert_true(occurrences(c.text, " has ") > 2000);
		free(form);
		task_context_free(&c);
	}
	task_close(t);
}

static void test_own_truth(void **state)
{
	(void)state;
	struct task_request rq = request("ruler-cwe", 8000);
	struct task *t = open_task(&rq);
	struct task_context c = context_of(t, 0);
	char form[64], *list = strstr(strstr(c.text, "numbered list") + 1, "numbered list"); /* the first is the example's */
	for (int i = 0; i < 10; i++)
		assert_in_range(times(list, c.questions[0].answers[i]), 29, 30);
	task_context_free(&c);
	task_close(t);
	rq.name = "ruler-vt";
	t = open_task(&rq);
	c = context_of(t, 0);
	char *const *names = c.questions[0].answers;
	const char *at = c.text + c.questions[0].needle_char;
	for (int i = 1; i < 5; i++) {
		snprintf(form, sizeof(form), "VAR %s = VAR %s", names[i], names[i - 1]);
		at = strstr(at, form);
		assert_non_null(at);
	}
	task_context_free(&c);
	task_close(t);
}

/* ---- upstream ---- */

static void test_upstream_words(void **state)
{
	(void)state;
	need_shared(folder);
	struct task_request rq = request("ruler-niah_single_2", 4096);
	rq.path = folder;
	rq.seed = 0;
	struct task *t = open_task(&rq);
	const struct ruler *r = t->state;
	struct task_identity id;
	struct strbuf b = {0};
	assert_int_equal(r->assets.pairs.n, 6175260);
	assert_int_equal(r->assets.essay.n, 525449);
	assert_int_equal(r->seed, 42);
	ruler_pairs_at(&r->assets.pairs, 0, &b);
	assert_int_equal(task_count(t), 500);
	task_identity(t, &id);
	assert_string_equal(id.variant, "upstream current, sentence ends approximated");
	assert_string_equal(id.metric, "string_match_all");
	strbuf_free(&b);
	task_close(t);
}

/* Both releases: within the length, and near it (one step less at most, fwe apart). */
static void test_upstream_lengths(void **state)
{
	(void)state;
	need_shared(folder);
	for (int k = 0; k < RULER_TASKS; k++)
		for (int old = 0; old < 2; old++) {
			struct task_request rq = request(task_ruler[k].name, old ? 4096 : 16384);
			rq.path = folder;
			rq.release = old ? "oct2024" : "current";
			struct task *t = open_task(&rq);
			struct task_context c = context_of(t, 1);
			char *all = whole(&c);
			int64_t tokens = count_words(NULL, all, strlen(all)) + c.questions[0].max_new_tokens;
			int64_t slack = old && strstr(rq.name, "fwe") ? 50 : 0; /* that release left no room for the answer */
			if (tokens > rq.length_tokens + slack || tokens < rq.length_tokens * 6 / 10)
				fail_msg("%s: %lld tokens at %lld", rq.name, (long long)tokens, (long long)rq.length_tokens);
			free(all);
			task_context_free(&c);
			task_close(t);
		}
}

/* SHA-256 of the first three rows (prompt, answers joined by "|", NUL) that upstream's own programs (NVIDIA/RULER @c3f5e3b) write
 * with a tokenizer that counts as count_words: fitting, draws and texts to the byte. */
static void test_upstream_rows(void **state)
{
	(void)state;
	static const struct {
		const char *task, *sha256;
		int64_t length;
		uint64_t seed;
	} rows[] = {
		{"ruler-vt", "00dcebe4ccad8f848174174b4864e0173c243eeb9cd457242ece8dd91ca7bf15", 2048, 42},
		{"ruler-vt", "957271366441d528bc73075ba1386cf1ee393e58a2da6606c09f4f5a211b6b44", 8192, 7},
		{"ruler-cwe", "6ce7b1bf37673c1a6b385e8e90cb6a02d34e1e106f5f8d8b6a38341481a8568f", 8192, 7},
		{"ruler-fwe", "da43663efb11d10135eb927f02a3bc245533cc185277bbb5314058bacab46baa", 8192, 7},
	};
	need_shared(folder);
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		struct task_request rq = request(rows[k].task, rows[k].length);
		rq.path = folder;
		rq.seed = rows[k].seed;
		struct task *t = open_task(&rq);
		struct strbuf b = {0};
		char sha[SHA_LEN];
		for (int i = 0; i < 3; i++) {
			struct task_context c = context_of(t, i);
			char *all = whole(&c);
			strbuf_puts(&b, all);
			for (int a = 0; a < c.questions[0].n_answers; a++)
				strbuf_printf(&b, "%s%s", a ? "|" : "", c.questions[0].answers[a]);
			strbuf_add(&b, "", 1);
			free(all);
			task_context_free(&c);
		}
		sha256_hex(b.text, b.len, sha);
		assert_string_equal(sha, rows[k].sha256);
		strbuf_free(&b);
		task_close(t);
	}
}

/* The essay's sentences stand with one blank between, where upstream's splitter cut without one, too; what made them is said. */
static void test_essay_punkt(void **state)
{
	(void)state;
	static const char essay[] = "{\"text\": \"One is.(Two is.) Three is.\"}";
	need_shared(folder);
	char *place = text_copy("/tmp/kvb-punkt-XXXXXX"), path[128], *zip = punkt_zip();
	assert_non_null(mkdtemp(place));
	for (int i = 0; i < 4; i++) {
		char *from = text_format("%s/%s", folder, i < 3 ? ruler_files[i].name : "");
		snprintf(path, sizeof(path), "%s/%s", place, i < 3 ? ruler_files[i].name : "punkt_tab.zip");
		assert_ok(symlink(i < 3 ? from : zip, path));
		free(from);
	}
	snprintf(path, sizeof(path), "%s/PaulGrahamEssays.json", place);
	FILE *f = fopen(path, "w");
	assert_true(f && fputs(essay, f) >= 0 && !fclose(f));
	struct task_request rq = request("ruler-niah_single_2", 2000);
	rq.path = place;
	struct task *t = open_task(&rq);
	struct task_identity id;
	task_identity(t, &id);
	assert_string_equal(id.variant, "upstream current");
	struct task_context c = context_of(t, 0);
	assert_non_null(strstr(c.text, "One is. (Two is.) Three is. One is. (Two is.)"));
	assert_null(strstr(c.text, "is.("));
	task_context_free(&c);
	task_close(t);
	unlink(path);
	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/%s", place, i < 3 ? ruler_files[i].name : "punkt_tab.zip");
		unlink(path);
	}
	rmdir(place);
	unlink(zip);
	free(zip);
	free(place);
}

/* An essay repeated where the length asks for more than it holds. */
static void test_essay_repeats(void **state)
{
	(void)state;
	need_shared(folder);
	struct task_request rq = request("ruler-niah_single_2", 800000);
	rq.path = folder;
	struct task *t = open_task(&rq);
	struct task_context c = context_of(t, 0);
	assert_true(c.questions[0].n_answers == 1 && is_word(c.text, c.questions[0].answers[0]));
	task_context_free(&c);
	task_close(t);
}

/* ---- rows ---- */

static char *temp_file(const char *text)
{
	char *path = text_copy("/tmp/kvb-rows-XXXXXX");
	int fd = mkstemp(path);
	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && !close(fd));
	return path;
}

/* Upstream's rows written as RULER's files, old and new, are cut at the same places again. */
static void check_read_back(const struct task_def *def, bool old)
{
	struct task_request rq = request(def->name, 4096);
	rq.path = folder;
	struct task *made = open_task(&rq);
	struct strbuf b = {0};
	for (int i = 0; i < 3; i++) {
		struct task_context c = context_of(made, i);
		const struct task_question *q = &c.questions[0];
		char *text = text_format("%s%s", c.text, q->text), *prefix = text_format(" %s", q->answer_prefix);
		text[strlen(text) - 1] = '\0'; /* the blank before the prefix */
		json_t *row =
			old ? json_pack("{s:s+, s:[s]}", "input", text, prefix, "outputs", q->answers[0])
			    : json_pack("{s:s, s:s, s:[s]}", "input", text, "answer_prefix", prefix, "outputs", q->answers[0]);
		char *line = json_dumps(row, JSON_COMPACT);
		strbuf_printf(&b, "%s\n", line);
		json_decref(row);
		free(line);
		free(text);
		free(prefix);
		task_context_free(&c);
	}
	rq.path = temp_file(b.text);
	struct task *read = open_task(&rq);
	assert_int_equal(task_count(read), 3);
	for (int i = 0; i < 3; i++) {
		struct task_context x = context_of(made, i), y = context_of(read, i);
		assert_string_equal(x.text, y.text);
		assert_string_equal(x.questions[0].text, y.questions[0].text);
		assert_string_equal(x.questions[0].answer_prefix, y.questions[0].answer_prefix);
		assert_int_equal(x.questions[0].max_new_tokens, y.questions[0].max_new_tokens);
		if (strstr(def->name, "niah"))
			assert_int_equal(x.questions[0].needle_token, y.questions[0].needle_token);
		task_context_free(&x);
		task_context_free(&y);
	}
	task_close(read);
	task_close(made);
	unlink(rq.path);
	free((char *)rq.path);
	strbuf_free(&b);
}

static void test_read_back(void **state)
{
	(void)state;
	need_shared(folder);
	for (int k = 0; k < RULER_TASKS; k++) {
		check_read_back(&task_ruler[k], true);
		check_read_back(&task_ruler[k], false);
	}
}

static void test_rows_of_ruler(void **state)
{
	(void)state;
	const char *path = shared_path("data/ruler/data/niah_multikey_3.4096.jsonl");
	need_shared(path);
	struct task_request rq = request("ruler-niah_multikey_3", 0);
	rq.path = path;
	struct task *t = open_task(&rq);
	assert_int_equal(task_count(t), 500);
	struct task_context c = context_of(t, 499);
	const struct task_question *q = &c.questions[0];
	assert_true(!strncmp(q->text, "What is ", 8) && !strncmp(q->answer_prefix, "The special magic uuid for ", 27));
	assert_int_equal(q->max_new_tokens, 128);
	assert_non_null(strstr(c.text + q->needle_char, q->answers[0]));
	task_context_free(&c);
	task_close(t);
}

#define KVPRESS_ROW(task, answer)                                                                                                \
	"{\"context\": \"Some text. " answer                                                                                     \
	" is it.\\n\", \"question\": \"What? \", \"answer_prefix\": \"It is\", \"answer\": [\"" answer "\"], \"task\": \"" task  \
	"\", \"max_new_tokens\": 77}"

static void check_kvpress(const char *text)
{
	struct task_request rq = request("ruler-vt", 0);
	rq.path = temp_file(text);
	struct task *t = open_task(&rq);
	struct task_identity id;
	task_identity(t, &id);
	assert_string_equal(id.variant, "rows");
	assert_int_equal(task_count(t), 2);
	struct task_context c = context_of(t, 1);
	const struct task_question *q = &c.questions[0];
	assert_string_equal(c.text, "Some text. DEF is it.\n");
	assert_string_equal(q->text, "What? ");
	assert_string_equal(q->answer_prefix, "It is");
	assert_string_equal(q->answers[0], "DEF");
	assert_int_equal(q->max_new_tokens, 77);
	assert_int_equal(q->needle_char, 11);
	task_context_free(&c);
	task_close(t);
	unlink(rq.path);
	free((char *)rq.path);
}

static void test_rows_of_kvpress(void **state)
{
	(void)state;
	check_kvpress(KVPRESS_ROW("vt", "ABC") "\n" KVPRESS_ROW("cwe", "XYZ") "\n\n" KVPRESS_ROW("vt", "DEF"));
	check_kvpress("{\"features\": [],\n \"rows\": [{\"row_idx\": 0, \"row\": " KVPRESS_ROW(
		"vt", "ABC") ", \"truncated_cells\": []},\n"
			     "{\"row_idx\": 1, \"row\": " KVPRESS_ROW(
				     "fwe", "XYZ") ", \"truncated_cells\": []},\n"
						   "{\"row_idx\": 2, \"row\": " KVPRESS_ROW(
							   "vt", "DEF") ", \"truncated_cells\": []}], \"num_rows_total\": 3}\n");
}

/* ---- refused ---- */

static void refused(struct task_request rq, const char *why)
{
	struct task *t = NULL;
	if (!task_open(&t, &rq, err)) {
		struct task_context c;
		if (!task_context_make(t, 0, &c, err))
			fail_msg("'%s' was not refused", why);
		task_close(t);
	}
	if (!strstr(err, why))
		fail_msg("'%s' does not say '%s'", err, why);
}

static void test_refused(void **state)
{
	(void)state;
	struct task_request rq = request("ruler-vtt", 4096);
	refused(rq, "did you mean 'ruler-vt'");
	rq = request("ruler-vt", 400);
	refused(rq, "512 tokens or more");
	rq = request("ruler-vt", 4096);
	rq.generator = "upstrem";
	refused(rq, "there are own, upstream and rows");
	rq.generator = "upstream";
	refused(rq, "needs the path of the folder");
	rq.path = "/nonexistent";
	refused(rq, "kvbench fetch ruler");
	rq.release = "2025";
	refused(rq, "there are current and oct2024");
	rq.generator = "own";
	refused(rq, "takes neither path nor release");
	rq = request("ruler-vt", 4096);
	rq.needles = 3;
	refused(rq, "no parameter 'needles'");
	rq = request("niah-single", 4096);
	rq.release = "current";
	refused(rq, "no parameter 'release'");
}

/* Lengths that upstream's coarse steps cannot fill: it would draw for ever. */
static void test_upstream_refused(void **state)
{
	(void)state;
	need_shared(folder);
	static const char *const tasks[] = {"ruler-niah_single_2", "ruler-vt", "ruler-qa_1"};
	for (int k = 0; k < 3; k++)
		for (int old = 0; old < 2; old++) {
			struct task_request rq = request(tasks[k], 512);
			rq.path = folder;
			rq.release = old ? "oct2024" : NULL;
			refused(rq, "generator own fits any length");
		}
	struct task_request rq = request("ruler-cwe", 170000);
	rq.path = folder;
	refused(rq, "english_words.json");
}

static void refused_file(const char *task, int64_t length, const char *text, const char *why)
{
	struct task_request rq = request(task, length);
	rq.path = temp_file(text);
	refused(rq, why);
	unlink(rq.path);
	free((char *)rq.path);
}

static void test_rows_refused(void **state)
{
	(void)state;
	refused_file("ruler-vt", 0, "PAR1\x15\x04", "parquet");
	refused_file("ruler-vt", 0, "", "no rows of vt");
	refused_file("ruler-vt", 0, KVPRESS_ROW("cwe", "A"), "no rows of vt");
	refused_file("ruler-vt", 0, "{\"input\": \"a\\nQuestion: b\"}\n{broken\n", ":2: not a JSON object");
	refused_file("ruler-vt", 0, "{\"input\": \"a\\nQuestion: b\"}\n", "no answers");
	refused_file("ruler-vt", 0, "{\"input\": \"no line end\", \"outputs\": [\"a\"]}\n", "template 'base'");
	refused_file("ruler-vt", 0, "{\"input\": \"[INST] a\\nb [/INST]\", \"outputs\": [\"a\"]}\n", "template 'base'");
	refused_file("ruler-vt", 0, "{\"text\": \"a\"}\n", "neither 'input'");
	refused_file("ruler-vt", 80, KVPRESS_ROW("vt", "ABC"), "more than the length of 80");
	refused_file("ruler-vt", 0, "{\"num_rows_total\": 2, \"rows\": [{\"row\": " KVPRESS_ROW("vt", "A") "}]}", "1 of 2 rows");
	refused_file("ruler-vt", 0, "{\"rows\": [{\"row\": " KVPRESS_ROW("vt", "A") ", \"truncated_cells\": [\"context\"]}]}",
		"truncated cells");
	static const char *const rooms[] = {"0", "-3", "4294967297", "1.5", "\"77\""}; /* the third is 1 in 32 bits */
	for (int i = 0; i < 5; i++) {
		char *row = text_format("{\"context\": \"A.\", \"question\": \"B?\", \"answer\": [\"A\"], \"task\": \"vt\", "
					"\"max_new_tokens\": %s}",
			rooms[i]);
		refused_file("ruler-vt", 0, row, "'max_new_tokens' is no number of tokens");
		free(row);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_sample),
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_sentences),
		cmocka_unit_test(test_punkt),
		cmocka_unit_test(test_own_lengths),
		cmocka_unit_test(test_own_short_fits),
		cmocka_unit_test(test_own_long),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_own_wording),
		cmocka_unit_test(test_own_keys),
		cmocka_unit_test(test_own_truth),
		cmocka_unit_test(test_upstream_words),
		cmocka_unit_test(test_upstream_lengths),
		cmocka_unit_test(test_upstream_rows),
		cmocka_unit_test(test_essay_punkt),
		cmocka_unit_test(test_essay_repeats),
		cmocka_unit_test(test_read_back),
		cmocka_unit_test(test_rows_of_ruler),
		cmocka_unit_test(test_rows_of_kvpress),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_upstream_refused),
		cmocka_unit_test(test_rows_refused),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
