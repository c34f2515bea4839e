/* plant DB SQL: changes rows of a database behind kvbench's back, for tests that plant a fault and want it named. Prints how many
 * rows changed, or of a SELECT the first value. */
#include <sqlite3.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *st = NULL;
	int rc = 1;
	if (argc == 3 && sqlite3_open_v2(argv[1], &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK &&
		sqlite3_prepare_v2(db, argv[2], -1, &st, NULL) == SQLITE_OK) {
		int step = sqlite3_step(st);
		if (step == SQLITE_ROW)
			rc = printf("%s\n", (const char *)sqlite3_column_text(st, 0)) < 0;
		else if (step == SQLITE_DONE)
			rc = printf("%d\n", sqlite3_changes(db)) < 0;
	}
	if (rc)
		fprintf(stderr, "plant: %s\n", db ? sqlite3_errmsg(db) : "usage: plant DB SQL");
	sqlite3_finalize(st);
	sqlite3_close(db);
	return rc;
}
