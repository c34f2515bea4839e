/* Formatted texts: what C cannot format ends the process with a word, it neither comes back empty nor spoils a buffer. */
#include "harness/base/base.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>
#include <cmocka.h>

/* More than INT_MAX bytes fail in C as a character does that no text holds, which is quicker to ask for. */
static void unformattable(bool in_buffer)
{
	static const wchar_t none[] = {0x110000, 0};
	int said[2], status;
	char text[256] = "";
	assert_int_equal(pipe(said), 0);
	pid_t child = fork();
	if (!child) {
		struct strbuf b = {0};
		dup2(said[1], STDERR_FILENO);
		if (in_buffer)
			strbuf_printf(&b, "%ls", none);
		else
			text_format("%ls", none);
		_exit(0);
	}
	close(said[1]);
	for (ssize_t n, at = 0; (n = read(said[0], text + at, sizeof text - 1 - (size_t)at)) > 0;)
		at += n;
	close(said[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	assert_non_null(strstr(text, "cannot be formatted"));
}

static void failing_is_told(void **state)
{
	(void)state;
	unformattable(false);
	unformattable(true);
}

static void buffers_grow(void **state)
{
	(void)state;
	struct strbuf b = {0};
	for (int i = 0; i < 1000; i++)
		strbuf_printf(&b, "%d,", i);
	assert_int_equal(b.len, 10 * 2 + 90 * 3 + 900 * 4);
	assert_string_equal(b.text + b.len - 8, "998,999,");
	strbuf_printf(&b, "%s", "");
	assert_int_equal(strlen(b.text), b.len);
	strbuf_free(&b);
	char *s = text_format("%s", "");
	assert_string_equal(s, "");
	free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(failing_is_told), cmocka_unit_test(buffers_grow)};
	return cmocka_run_group_tests_name("texts", tests, NULL, NULL);
}
