/* test_files.c: a written file is whole or the one that was there: nothing half-written, no link, pipe or folder displaced. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/kvbench-files-XXXXXX";

static char *in_folder(const char *name)
{
	return text_format("%s/%s", folder, name);
}

static void assert_text(const char *path, const char *text)
{
	char err[ERR_LEN] = "", *data;
	size_t len;
	assert_int_equal(file_read(path, &data, &len, err), 0);
	assert_string_equal(data, text);
	free(data);
}

static void write_text(const char *path, const char *text)
{
	char err[ERR_LEN] = "";
	struct strbuf b = {0};
	strbuf_puts(&b, text);
	assert_int_equal(file_write(path, &b, err), 0);
	strbuf_free(&b);
}

static void a_new_file_and_an_old_one(void **state)
{
	(void)state;
	char *path = in_folder("a"), *part = in_folder("a.part");
	write_text(path, "first");
	assert_text(path, "first");
	write_text(path, "");
	assert_text(path, "");
	assert_false(file_exists(part));
	unlink(path), free(path), free(part);
}

/* A limit on a file's size stands for a disk without room: the write fails when some of it is there. */
static void no_room_leaves_the_old_file(void **state)
{
	(void)state;
	char err[ERR_LEN] = "", *path = in_folder("a"), *part = in_folder("a.part");
	struct rlimit before, little;
	struct strbuf big = {0};
	for (int i = 0; i < 20000; i++)
		strbuf_puts(&big, "0123456789");
	write_text(path, "old");
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	little = (struct rlimit){65536, before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
	int rc = file_write(path, &big, err);
	setrlimit(RLIMIT_FSIZE, &before);
	assert_int_equal(rc, -1);
	assert_non_null(strstr(err, path));
	assert_non_null(strstr(err, "File too large"));
	assert_text(path, "old");
	assert_false(file_exists(part));
	unlink(path), free(path), free(part);
	strbuf_free(&big);
}

static void a_link_stays_a_link(void **state)
{
	(void)state;
	char *path = in_folder("a"), *link = in_folder("link");
	struct stat s;
	write_text(path, "old");
	assert_int_equal(symlink("a", link), 0);
	write_text(link, "new");
	assert_text(path, "new");
	assert_int_equal(lstat(link, &s), 0);
	assert_true(S_ISLNK(s.st_mode));
	unlink(link), unlink(path), free(path), free(link);
}

static void what_is_no_plain_file_is_written_into(void **state)
{
	(void)state;
	char err[ERR_LEN] = "", got[8] = "", *pipe = in_folder("pipe"), *part = in_folder("pipe.part");
	struct stat s;
	assert_int_equal(mkfifo(pipe, 0600), 0);
	int fd = open(pipe, O_RDWR | O_NONBLOCK);
	assert_true(fd >= 0);
	write_text(pipe, "through");
	assert_int_equal(read(fd, got, sizeof got), 7);
	assert_memory_equal(got, "through", 7);
	assert_false(file_exists(part));
	assert_true(stat(pipe, &s) == 0 && S_ISFIFO(s.st_mode));
	assert_int_equal(file_write(folder, &(struct strbuf){0}, err), -1);
	assert_non_null(strstr(err, "Is a directory"));
	close(fd), unlink(pipe), free(pipe), free(part);
}

static void no_folder(void **state)
{
	(void)state;
	char err[ERR_LEN] = "", *path = in_folder("no/such");
	assert_int_equal(file_write(path, &(struct strbuf){0}, err), -1);
	char *wanted = text_format("cannot write %s: No such file or directory", path);
	assert_string_equal(err, wanted);
	free(path), free(wanted);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_new_file_and_an_old_one),
		cmocka_unit_test(no_room_leaves_the_old_file),
		cmocka_unit_test(a_link_stays_a_link),
		cmocka_unit_test(what_is_no_plain_file_is_written_into),
		cmocka_unit_test(no_folder),
	};
	if (!mkdtemp(folder))
		return 1;
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(folder);
	return failed;
}
