/* test_lkv_figures.c: the shipped LKV files of the embedded target on needles: 20 unseen contexts of about 385 tokens, 200
 * questions after pruning. Bounds of spec/proxykv-lkv.md 2.6, each with what was measured. */
#include "runners/runner.h"
#include "tasks/task.h"
#include "tests/unit/test.h"

enum { CONTEXTS = 20, QUESTIONS = 10, VARIANTS = 6 };

static const struct runner_variant variants[VARIANTS] = {{"lkv-global", .1, NULL}, {"lkv-global", .05, NULL}, {"lkv", .1, NULL},
	{"kvmlp", .05, NULL}, {"random@lkv-h", .15, NULL}, {"full", 1, NULL}};

struct tally {
	const struct task_context *context;
	int right[VARIANTS], all;
};

static int64_t count_tokens(void *r, const char *text, size_t len)
{
	return runner_count_tokens(r, text, len);
}
static size_t cut_tokens(void *r, const char *text, size_t len, int64_t n)
{
	return runner_cut_tokens(r, text, len, n);
}

static void take(void *user, const struct runner_answer *a)
{
	struct tally *t = user;
	const struct task_question *q = &t->context->questions[a->question];
	if (a->status != ANSWER_OK)
		fail_msg("%s: %s", variants[a->variant].method, a->message);
	t->right[a->variant] += metric_find(q->metric)->score(a->text, q->answers, q->n_answers) == 1;
	t->all += a->variant == 0;
}

static void test_needles(void **state)
{
	char err[ERR_LEN] = "";
	struct runner *r = NULL;
	struct task *task = NULL;
	struct tally t = {0};
	const struct runner_options o = {.target = "runners/model/tiny-pair/target", .threads = 2, .weights_dir = "/nonexistent"};
	if (runner_open(&r, &o, err))
		fail_msg("%s", err);
	const struct task_request rq = {.name = "niah-multikey",
		.contexts = CONTEXTS,
		.questions = QUESTIONS,
		.needles = 15,
		.depth = NAN,
		.seed = 7777,
		.length_tokens = 385,
		.count_tokens = count_tokens,
		.cut_tokens = cut_tokens,
		.user = r,
		.wording = "tiny"};
	if (task_open(&task, &rq, err))
		fail_msg("%s", err);
	for (int i = 0; i < CONTEXTS; i++) {
		struct task_context c;
		struct runner_question q[QUESTIONS];
		if (task_context_make(task, i, &c, err))
			fail_msg("%s", err);
		for (int k = 0; k < c.n_questions; k++)
			q[k] = (struct runner_question){.text = c.questions[k].text,
				.answer_prefix = c.questions[k].answer_prefix,
				.max_new_tokens = c.questions[k].max_new_tokens};
		t.context = &c;
		const struct runner_job job = {.context = c.text,
			.chat = true,
			.questions = q,
			.n_questions = c.n_questions,
			.variants = variants,
			.n_variants = VARIANTS,
			.user = &t,
			.done = take};
		if (runner_answer(r, &job, err))
			fail_msg("%s", err);
		task_context_free(&c);
	}
	task_close(task);
	runner_close(r);
	assert_int_equal(t.all, CONTEXTS * QUESTIONS);
	const double share[VARIANTS] = {t.right[0] / 200.0, t.right[1] / 200.0, t.right[2] / 200.0, t.right[3] / 200.0,
		t.right[4] / 200.0, t.right[5] / 200.0};
	print_message("lkv-global %.3f at .1, %.3f at .05; lkv %.3f at .1; kvmlp %.3f at .05; random under lkv-h %.3f at .15; "
		      "full %.3f\n",
		share[0], share[1], share[2], share[3], share[4], share[5]);
	assert_true(share[5] >= .98);
	assert_true(share[0] >= .95);     /* .98 */
	assert_true(share[1] >= .75);     /* .86 */
	assert_true(share[2] >= .93);     /* .99 */
	assert_true(share[1] > share[3]); /* training end to end beats distilling: .86 and .53 */
	assert_true(share[4] <= .70);     /* budgets of heads alone do not answer: .55 */
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_needles)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
