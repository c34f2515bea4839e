/* link_cudnn.c: in the emulation cuDNN is linked, not searched for: takes the place of runners/device/cuda/dnn_load.c.
 * cuemu_set_cudnn(0), or CUEMU_CUDNN=0: it is not there. */
#include "runners/device/cuda/dnn.h"

#include <stdio.h>
#include <stdlib.h>

const struct cudnn *cudnn_load(char why[DEVICE_WHAT])
{
	static const struct cudnn table = {cudnnGetVersion, cudnnGetErrorString, cudnnGetLastErrorString, cudnnCreate,
		cudnnDestroy, cudnnSetStream, cudnnBackendCreateDescriptor, cudnnBackendDestroyDescriptor, cudnnBackendFinalize,
		cudnnBackendSetAttribute, cudnnBackendGetAttribute, cudnnBackendExecute};
	const char *there = getenv("CUEMU_CUDNN");
	if (cudnnGetVersion() && (!there || *there != '0'))
		return &table;
	snprintf(why, DEVICE_WHAT, "cuDNN 9 was not found: taken away by the emulation");
	return NULL;
}
