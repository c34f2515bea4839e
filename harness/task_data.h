/* task_data.h: where a task's data lies when the plan does not say, and how sure we are that it is upstream's. */
#ifndef KVB_TASK_DATA_H
#define KVB_TASK_DATA_H

#include "harness/base/base.h"

/* The folder `kvbench fetch` fills for the task. NULL = it needs none (texts of our own), or kvbench fetches none. Caller frees.
 */
char *task_data_path(const char *task, const char *generator);
/* Adds to an error of a task in that folder which command brings what is missing there; without effect when all is there. */
void task_data_hint(const char *task, char err[ERR_LEN]);
/* "pinned", "recorded" or "unpinned": the least sure of the files which the task reads below path. "" for path NULL. */
const char *task_data_state(const char *task, const char *path);

#endif
