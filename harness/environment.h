/* environment.h: where a run happens and what was built: the env row of the store. A result without it is not a result. */
#ifndef KVB_ENVIRONMENT_H
#define KVB_ENVIRONMENT_H

#include "results/store.h"
#include "runners/runner.h"

struct environment {
	struct runner_machine machine;
	char commit[64], libraries[160], device[DEVICE_NAME_LEN], hardware[DEVICE_NAME_LEN]; /* hardware: of a GPU */
	struct store_env row; /* points into this struct: do not copy */
};
/* How long this process's threads were ready to run and had no core, ns, all together since they began: what other work of the machine
 * took. -1 = the system does not say. */
int64_t environment_waited_ns(void);
/* device, threads (0 = all cores), isa (NULL = the machine's best): as the plan asks. */
void environment_read(struct environment *e, const char *device, int threads, const char *isa);
/* Of a run with that --attention: the version of the library that computes it is one of the libraries. NULL, "own": none. */
void environment_add_attention(struct environment *e, const char *attention);

#endif
