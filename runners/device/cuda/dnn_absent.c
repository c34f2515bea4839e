/* dnn_absent.c: stands where cuDNN's attention would, in a CUDA backend built without cuDNN's header. */
#include "runners/device/cuda/cuda.h"

#include <stdio.h>

bool cuda_dnn_usable(char what[DEVICE_WHAT])
{
	snprintf(what, DEVICE_WHAT, "this program was built without cuDNN (no cudnn_graph.h where it was built)");
	return false;
}

struct dnn *cuda_dnn_new(struct queue *q)
{
	device_fail(q->d, "no cuDNN");
	return NULL;
}

void cuda_dnn_free(struct dnn *n)
{
	(void)n;
}

bool cuda_dnn_takes(const struct queue *q, int layer, const struct attn_seq *s, int heads, const struct tensor *out)
{
	(void)q, (void)layer, (void)s, (void)heads, (void)out;
	return false;
}

int cuda_dnn_attention(struct queue *q, int layer, const struct attn_seq *s, const struct kv_view *view, struct tensor *out,
	const struct tensor *x, int64_t qcol, int heads, struct tensor *lse)
{
	(void)layer, (void)s, (void)view, (void)out, (void)x, (void)qcol, (void)heads, (void)lse;
	return device_fail(q->d, "no cuDNN");
}
