/* models.h: from what a user calls a model to where it lies: a path, an embedded name, or a model of the hub cache. */
#ifndef KVB_MODELS_H
#define KVB_MODELS_H

#include "runners/runner.h"

/* The folder of the embedded models: beside the executable, else below the working directory, as runner_open looks. Caller frees.
 */
char *models_folder(void);

struct model_paths { /* what the hub cache gave; NULL = the name stands as it was */
	char *target, *proxy;
};
/* Points o->target and o->proxy into the hub cache when they are "ORG/NAME", "ORG/NAME@REVISION" or "ORG/NAME/FILE.gguf" and
 * neither a path nor an embedded name. -1: not there either (the message has the command that fetches it). own is freed in any
 * case. */
int models_find(struct runner_options *o, struct model_paths *own, char err[ERR_LEN]);
void models_free(struct model_paths *own);
/* Both, then runner_open. */
int models_open(struct runner **out, const struct runner_options *o, char err[ERR_LEN]);
/* Once a process: why the CPU is used where a GPU could have been ("auto", NULL), on stderr. */
void models_tell_device(const struct runner *r, const char *wish);
/* Both. */
int models_open_told(struct runner **out, const struct runner_options *o, bool quiet, char err[ERR_LEN]);
/* kv_offload needs a GPU whose caches it moves. device NULL = "auto"; proxy_device NULL = no proxy, or the target's device. -1 + err where
 * the CPU alone was asked for by name; where "auto" stands for it, a line on stderr says that nothing is offloaded. */
int models_check_offload(const char *device, const char *proxy_device, char err[ERR_LEN]);
/* What the model is called in tables: given without its revision where it lies in the hub cache, in a folder named by a commit;
 * else the runner's own name. Caller frees. */
char *models_name(const char *given, const struct runner *r);

#endif
