/* dnn_load.c: finds cuDNN at run time, as blas.c does cuBLAS: the program is built with its header, without a link to it. */
#include "runners/device/cuda/dnn.h"

#include <dlfcn.h>
#include <stdio.h>

static void *symbol(void *library, const char *name, char why[DEVICE_WHAT])
{
	void *p = dlsym(library, name);
	if (!p && why[0] == 0)
		snprintf(why, DEVICE_WHAT, "cuDNN has no %s", name);
	return p;
}

const struct cudnn *cudnn_load(char why[DEVICE_WHAT])
{
	static struct cudnn table;
	if (table.execute)
		return &table;
	void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(why, DEVICE_WHAT, "cuDNN 9 was not found: %.90s", dlerror());
		return NULL;
	}
	why[0] = 0;
	struct cudnn t;
	*(void **)&t.version = symbol(library, "cudnnGetVersion", why);
	*(void **)&t.error_string = symbol(library, "cudnnGetErrorString", why);
	*(void **)&t.last_error = symbol(library, "cudnnGetLastErrorString", why);
	*(void **)&t.create = symbol(library, "cudnnCreate", why);
	*(void **)&t.destroy = symbol(library, "cudnnDestroy", why);
	*(void **)&t.set_stream = symbol(library, "cudnnSetStream", why);
	*(void **)&t.descriptor_new = symbol(library, "cudnnBackendCreateDescriptor", why);
	*(void **)&t.descriptor_free = symbol(library, "cudnnBackendDestroyDescriptor", why);
	*(void **)&t.finalize = symbol(library, "cudnnBackendFinalize", why);
	*(void **)&t.set = symbol(library, "cudnnBackendSetAttribute", why);
	*(void **)&t.get = symbol(library, "cudnnBackendGetAttribute", why);
	*(void **)&t.execute = symbol(library, "cudnnBackendExecute", why);
	if (why[0])
		return NULL;
	table = t;
	return &table;
}
