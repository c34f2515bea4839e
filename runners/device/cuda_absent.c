/* cuda_absent.c: stands where the CUDA backend would, in a program built without nvcc. */
#include "runners/device/backend.h"

#include <stdio.h>

static const char WHY[] = "this program was built without CUDA (no nvcc where it was built)";

static bool absent_usable(int index, char what[DEVICE_WHAT])
{
	(void)index;
	snprintf(what, DEVICE_WHAT, "%s", WHY);
	return false;
}

static bool absent_cudnn_usable(char what[DEVICE_WHAT])
{
	return absent_usable(0, what);
}

static struct device *absent_open(const struct device_options *o, int index, struct pool *pool, char err[ERR_LEN])
{
	(void)index;
	(void)pool;
	err_set(err, "device \"%s\": %s", o->name, WHY);
	return NULL;
}

const struct backend backend_cuda = {.name = "cuda", .usable = absent_usable, .cudnn_usable = absent_cudnn_usable, .open = absent_open};
