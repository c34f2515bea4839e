/* The NIAH family: texts as promised, at the promised length, with the needle at the promised depth. */
#include "tests/unit/tasks/helpers.h"

#include "tasks/niah_words.h"

static char err[ERR_LEN];

static struct task_request request(const char *name, const char *wording, int64_t length)
{
	return (struct task_request){
		.name = name, .wording = wording, .length_tokens = length, .depth = NAN, .seed = 7, .count_tokens = count_words};
}

static struct task *open_task(const struct task_request *rq)
{
	struct task *t = NULL;
	assert_ok(task_open(&t, rq, err));
	return t;
}

static int known_word(const char *w, const char *const *list, int n)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(w, list[i]))
			return 1;
	return 0;
}

static int filler_word(const char *w)
{
	return known_word(w, words_start, 8) || known_word(w, words_func, 17) || known_word(w, words_noun, WORDS(words_noun)) ||
	       known_word(w, words_adj, WORDS(words_adj)) || known_word(w, words_verb, WORDS(words_verb)) ||
	       known_word(w, words_adv, WORDS(words_adv));
}

/* Walks a tiny text sentence by sentence: every word must be one the dialect has in that place. Returns the needles. */
static int check_dialect(const char *text)
{
	char *copy = text_copy(text), *rest = copy, *sentence;
	int needles = 0;
	assert_int_equal(copy[strlen(copy) - 1], '.');
	copy[strlen(copy) - 1] = '\0';
	assert_null(strchr(copy, '\n'));
	assert_null(strstr(copy, "  "));
	while (rest && (sentence = rest)) {
		char *dot = strstr(sentence, ". ");
		rest = dot ? dot + 2 : NULL;
		if (dot)
			*dot = '\0';
		bool needle = !strncmp(sentence, "Code ", 5);
		needles += needle;
		char *save = NULL;
		int n = 0, numbers = 0;
		for (char *w = strtok_r(sentence, " ", &save); w; w = strtok_r(NULL, " ", &save), n++) {
			if (!needle && !filler_word(w))
				fail_msg("'%s' is no filler word", w);
			if (needle && n == 1)
				assert_true(known_word(w, words_key, WORDS(words_key)));
			if (needle && n > 1 && isdigit((unsigned char)*w)) {
				assert_int_equal(strlen(w), 3);
				numbers++;
			}
		}
		assert_int_equal(numbers, needle ? 2 : 0);
		assert_true(n >= (needle ? 4 : 5) && n <= 10);
	}
	free(copy);
	return needles;
}

static void test_words(void **state)
{
	(void)state;
	assert_string_equal(words_noun[N_PEOPLE - 1], "gardener");
	assert_string_equal(words_key[0], "amber");
	assert_string_equal(words_key[WORDS(words_key) - 1], "cumin");
	for (int i = 0; i < WORDS(words_key); i++) {
		assert_false(filler_word(words_key[i]));
		for (int j = 0; j < i; j++)
			assert_string_not_equal(words_key[i], words_key[j]);
	}
}

static void test_tiny_multikey(void **state)
{
	(void)state;
	struct task_request rq = request("niah-multikey", "tiny", 512);
	struct task *t = open_task(&rq);
	assert_int_equal(task_count(t), 5); /* 5 contexts of 10 questions: 50 a cell */
	for (int i = 0; i < task_count(t); i++) {
		struct task_context c;
		assert_ok(task_context_make(t, i, &c, err));
		assert_int_equal(check_dialect(c.text), 512 / 24);
		assert_true(isupper((unsigned char)c.text[0]) && c.chat && !c.cut_tokens);
		assert_int_equal(c.n_questions, 10);
		for (int q = 0; q < c.n_questions; q++) {
			char key[32], needle[64];
			assert_int_equal(sscanf(c.questions[q].text, "\nRecall %31[a-z].", key), 1);
			snprintf(needle, sizeof(needle), "Code %s %s.", key, c.questions[q].answers[0]);
			const char *at = strstr(c.text, needle);
			assert_non_null(at);
			assert_int_equal(c.questions[q].n_answers, 1);
			assert_near(c.questions[q].depth, (double)(at - c.text) / (double)(strlen(c.text) - strlen(needle)));
			assert_string_equal(c.questions[q].answer_prefix, "");
			assert_string_equal(c.questions[q].metric, "string_match_all");
			for (int other = 0; other < q; other++) {
				assert_string_not_equal(c.questions[q].text, c.questions[other].text);
				assert_string_not_equal(c.questions[q].answers[0], c.questions[other].answers[0]);
			}
		}
		char id[16];
		snprintf(id, sizeof(id), "c%d.q3", i);
		assert_string_equal(c.questions[3].id, id);
		task_context_free(&c);
	}
	task_close(t);
}

static void test_tiny_multivalue(void **state)
{
	(void)state;
	struct task_request rq = request("niah-multivalue", "tiny", 1024);
	rq.values = 3;
	struct task *t = open_task(&rq);
	struct task_context c;
	assert_ok(task_context_make(t, 1, &c, err));
	assert_int_equal(check_dialect(c.text), 1024 / 24);
	assert_int_equal(c.n_questions, 5);
	for (int q = 0; q < c.n_questions; q++) {
		static const char *const ordinal[] = {"first", "second", "third"};
		char key[32], key2[32], key3[32];
		assert_int_equal(
			sscanf(c.questions[q].text, "\nRecall %31s first, %31s second, %31s third.", key, key2, key3), 3);
		assert_string_equal(key, key2);
		assert_string_equal(key, key3);
		assert_int_equal(c.questions[q].n_answers, 3);
		const char *last = c.text;
		for (int v = 0; v < 3; v++) {
			char needle[64];
			snprintf(needle, sizeof(needle), "Code %s %s %s.", key, ordinal[v], c.questions[q].answers[v]);
			last = strstr(last, needle); /* in this order */
			assert_non_null(last);
		}
	}
	task_context_free(&c);
	task_close(t);
}

static void test_tiny_multiquery(void **state)
{
	(void)state;
	struct task_request rq = request("niah-multiquery", "tiny", 1024);
	struct task *t = open_task(&rq);
	struct task_context c;
	assert_ok(task_context_make(t, 0, &c, err));
	for (int q = 0; q < c.n_questions; q++) {
		char key[3][32];
		assert_int_equal(
			sscanf(c.questions[q].text, "\nRecall %31[a-z], %31[a-z], %31[a-z].", key[0], key[1], key[2]), 3);
		assert_int_equal(c.questions[q].n_answers, 3);
		for (int k = 0; k < 3; k++) {
			char needle[64];
			snprintf(needle, sizeof(needle), "Code %s %s.", key[k], c.questions[q].answers[k]);
			assert_non_null(strstr(c.text, needle));
		}
	}
	task_context_free(&c);
	task_close(t);
}

/* Counts like a BPE which sees over the ends of sentences: tokens of sentences do not add up. */
static int64_t count_odd(void *user, const char *text, size_t len)
{
	int64_t n = count_words(user, text, len);
	return len > 120 ? n + n / 9 - 3 : n - n / 5;
}

static void test_length(void **state)
{
	(void)state;
	static const char *const names[] = {"niah-single", "niah-multikey", "niah-multivalue", "niah-multiquery"};
	for (int k = 0; k < 4; k++)
		for (int64_t length = 100; length <= 6000; length = length * 3 / 2)
			for (int how = 0; how < 4; how++) {
				struct task_request rq = request(names[k], how & 1 ? "tiny" : "plain", length);
				rq.count_tokens = how & 2 ? count_odd : count_words;
				rq.contexts = 3;
				rq.questions = k ? 2 : 0;
				struct task_context c;
				struct task *t = NULL;
				if (task_open(&t, &rq, err))
					fail_msg("%s", err);
				if (task_context_make(t, 2, &c, err)) {
					/* four values of two keys take more room than this in the plain wording */
					assert_non_null(strstr(err, "more than the length"));
					assert_true(length < 250 && k > 1 && !(how & 1));
				} else {
					int64_t n = rq.count_tokens(NULL, c.text, strlen(c.text));
					/* the longest sentence of the plain wording has about 17 words */
					assert_true(n <= length && n > length - 24);
					task_context_free(&c);
				}
				task_close(t);
			}
}

static void test_depth(void **state)
{
	(void)state;
	for (int how = 0; how < 2; how++) {
		struct task_request rq = request("niah-single", how ? "tiny" : "plain", 1000);
		struct task *t = open_task(&rq);
		for (int i = 0; i < 10; i++) {
			struct task_context c;
			assert_ok(task_context_make(t, i, &c, err));
			assert_int_equal(c.n_questions, 1);
			assert_true(fabs(c.questions[0].depth - i / 9.) < .02);
			task_context_free(&c);
		}
		task_close(t);
		rq.depth = .25;
		t = open_task(&rq);
		struct task_context c;
		assert_ok(task_context_make(t, 9, &c, err));
		assert_true(fabs(c.questions[0].depth - .25) < .02);
		task_context_free(&c);
		task_close(t);
	}
}

static void test_needles_spread(void **state)
{
	(void)state;
	struct task_request rq = request("niah-multikey", "plain", 4000);
	rq.needles = 20;
	rq.questions = 20;
	struct task *t = open_task(&rq);
	struct task_context c;
	assert_ok(task_context_make(t, 0, &c, err));
	int in_share[20] = {0};
	for (int q = 0; q < 20; q++)
		in_share[(int)fmin(19, c.questions[q].depth * 20)]++;
	for (int s = 0; s < 20; s++)
		assert_in_range(in_share[s], 0, 3);
	task_context_free(&c);
	task_close(t);
}

static void test_plain(void **state)
{
	(void)state;
	struct task_request rq = request("niah-multivalue", "plain", 2000);
	struct task *t = open_task(&rq);
	struct task_context c;
	assert_ok(task_context_make(t, 0, &c, err));
	char key[64], sentence[128];
	assert_int_equal(
		sscanf(c.questions[1].text, "\n\nWhich secret numbers did the text give for %63[a-z ]? Name all of them.", key),
		1);
	snprintf(sentence, sizeof(sentence), "The secret numbers for %s are", key);
	assert_string_equal(c.questions[1].answer_prefix, sentence);
	assert_int_equal(c.questions[1].n_answers, 4);
	for (int v = 0; v < 4; v++) {
		snprintf(sentence, sizeof(sentence), "A secret number for %s is %s.", key, c.questions[1].answers[v]);
		assert_non_null(strstr(c.text, sentence));
		assert_int_equal(strlen(c.questions[1].answers[v]), 7);
	}
	task_context_free(&c);
	task_close(t);
}

/* The same request gives the same text whatever was made before; another seed or context another. */
static void test_same_seed_same_text(void **state)
{
	(void)state;
	struct task_request rq = request("niah-multikey", "tiny", 700);
	struct task *a = open_task(&rq), *b = open_task(&rq);
	struct task_context x, y, z;
	assert_ok(task_context_make(a, 0, &z, err));
	assert_ok(task_context_make(a, 3, &x, err));
	assert_ok(task_context_make(b, 3, &y, err));
	assert_string_equal(x.text, y.text);
	assert_string_equal(x.questions[4].text, y.questions[4].text);
	assert_string_not_equal(x.text, z.text);
	task_context_free(&y);
	task_close(b);
	rq.seed = 8;
	b = open_task(&rq);
	assert_ok(task_context_make(b, 3, &y, err));
	assert_string_not_equal(x.text, y.text);
	task_context_free(&x);
	task_context_free(&y);
	task_context_free(&z);
	task_close(a);
	task_close(b);
}

static void test_identity(void **state)
{
	(void)state;
	struct task_request rq = request("niah-multikey", "tiny", 700);
	struct task_identity tiny, plain;
	struct task *t = open_task(&rq);
	task_identity(t, &tiny);
	task_close(t);
	rq.wording = NULL;
	t = open_task(&rq);
	task_identity(t, &plain);
	task_close(t);
	assert_string_equal(tiny.name, "niah-multikey");
	assert_string_equal(tiny.metric, "string_match_all");
	assert_string_equal(tiny.data_sha256, plain.data_sha256);
	assert_string_not_equal(tiny.template_sha256, plain.template_sha256);
	assert_int_equal(strlen(tiny.template_sha256), 64);
}

static void refused(struct task_request rq, const char *why)
{
	struct task *t = NULL;
	assert_int_equal(task_open(&t, &rq, err), -1);
	if (!strstr(err, why))
		fail_msg("'%s' does not say '%s'", err, why);
}

static void test_refused(void **state)
{
	(void)state;
	struct task_request rq = request("niah-multkey", "tiny", 700);
	refused(rq, "did you mean 'niah-multikey'");
	rq.name = "niah-multikey";
	rq.values = 2;
	refused(rq, "no parameter 'values'");
	rq.values = 0;
	rq.needles = 300;
	refused(rq, "more than the wording 'tiny' has keys");
	rq.needles = 5;
	rq.questions = 6;
	refused(rq, "6 questions need 6 needles");
	rq.needles = -1;
	refused(rq, "-1 is not a number of");
	rq = request("niah-single", "tiny", 700);
	rq.depth = 1.5;
	refused(rq, "depth");
	rq = request("niah-single", "tiny", 0);
	refused(rq, "needs a length");
	refused(request("niah-single", "french", 100), "unknown wording 'french'");
	rq = request("niah-multivalue", "tiny", 700);
	rq.values = 4;
	refused(rq, "allows 3 values");

	rq = request("niah-multikey", "tiny", 20);
	rq.needles = 10;
	struct task *t = open_task(&rq);
	struct task_context c;
	assert_int_equal(task_context_make(t, 0, &c, err), -1);
	assert_non_null(strstr(err, "more than the length of 20"));
	assert_int_equal(task_context_make(t, 99, &c, err), -1);
	task_close(t);
}

/* 170k tokens are made in few counts of the whole text. */
static int64_t counted_bytes;
static int64_t count_and_note(void *user, const char *text, size_t len)
{
	counted_bytes += (int64_t)len;
	return count_words(user, text, len);
}

static void test_long(void **state)
{
	(void)state;
	struct task_request rq = request("niah-multikey", "tiny", 170000);
	rq.count_tokens = count_and_note;
	struct task *t = open_task(&rq);
	struct task_context c;
	assert_ok(task_context_make(t, 0, &c, err));
	int64_t n = count_words(NULL, c.text, strlen(c.text));
	assert_true(n <= 170000 && n > 170000 - 12);
	assert_true(counted_bytes < 4 * (int64_t)strlen(c.text));
	assert_int_equal(check_dialect(c.text), 160);
	task_context_free(&c);
	task_close(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_tiny_multikey),
		cmocka_unit_test(test_tiny_multivalue),
		cmocka_unit_test(test_tiny_multiquery),
		cmocka_unit_test(test_length),
		cmocka_unit_test(test_depth),
		cmocka_unit_test(test_needles_spread),
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_same_seed_same_text),
		cmocka_unit_test(test_identity),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_long),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
