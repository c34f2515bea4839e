/* library.c: functions of NVIDIA's libraries that are found at run time (blas.c, dnn_load.c). */
#include "runners/device/cuda/cuda.h"

#include <dlfcn.h>
#include <stdio.h>

void *library_symbol(void *library, const char *called, const char *name, char why[DEVICE_WHAT])
{
	void *p = dlsym(library, name);
	if (!p && why[0] == 0)
		snprintf(why, DEVICE_WHAT, "%s has no %s", called, name);
	return p;
}
