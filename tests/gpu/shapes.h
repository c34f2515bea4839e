/* shapes.h: models that exist as shapes alone: seeded weights of a built-in size, behind the part of model.h that the forward pass uses, so that the GPU bench
 * needs no file and no library. */
#ifndef KVB_GPU_SHAPES_H
#define KVB_GPU_SHAPES_H

#include "runners/model/model.h"

struct model *shape_open(const char *name); /* "llama-8b", "llama-1b", "qwen-7b", "qwen-0.5b", "tiny", "tiny-proxy"; NULL = unknown */
void shape_close(struct model *m);
double shape_linear_params(const struct model_config *c); /* of the layers' linear maps: what a prefill multiplies */

#endif
