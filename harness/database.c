/* database.c: see database.h. */
#include "harness/database.h"
#include "harness/options.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* store.c has one error for it and one return value for all errors; these are its words. */
static bool is_locked(const char *err)
{
	return strstr(err, "another kvbench is writing") || strstr(err, "another process keeps the database locked");
}

int database_open(struct store **store, const char *path, char err[ERR_LEN])
{
	const char *slash = strrchr(path, '/');
	char *folder = slash && slash > path ? text_format("%.*s", (int)(slash - path), path) : text_copy(".");
	mkdir(folder, 0777); /* when it fails, opening says why */
	free(folder);
	int rc = store_open(store, path, err);
	return !rc ? EXIT_DONE : is_locked(err) ? EXIT_TRY_AGAIN : EXIT_CELLS_FAILED;
}
