/* database.h: opening a database to write to, for the verbs that do. */
#ifndef KVB_DATABASE_H
#define KVB_DATABASE_H

#include "results/store.h"

/* The database and its folder, made where they are not there yet. An exit code: EXIT_TRY_AGAIN while another process writes to
 * it. */
int database_open(struct store **store, const char *path, char err[ERR_LEN]);

#endif
