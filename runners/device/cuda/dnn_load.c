/* dnn_load.c: finds cuDNN at run time, as blas.c does cuBLAS: the program is built with its header, without a link to it. */
#include "runners/device/cuda/dnn.h"

#include <dlfcn.h>
#include <stdio.h>

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
	*(void **)&t.version = library_symbol(library, "cuDNN", "cudnnGetVersion", why);
	*(void **)&t.error_string = library_symbol(library, "cuDNN", "cudnnGetErrorString", why);
	*(void **)&t.last_error = library_symbol(library, "cuDNN", "cudnnGetLastErrorString", why);
	*(void **)&t.create = library_symbol(library, "cuDNN", "cudnnCreate", why);
	*(void **)&t.destroy = library_symbol(library, "cuDNN", "cudnnDestroy", why);
	*(void **)&t.set_stream = library_symbol(library, "cuDNN", "cudnnSetStream", why);
	*(void **)&t.descriptor_new = library_symbol(library, "cuDNN", "cudnnBackendCreateDescriptor", why);
	*(void **)&t.descriptor_free = library_symbol(library, "cuDNN", "cudnnBackendDestroyDescriptor", why);
	*(void **)&t.finalize = library_symbol(library, "cuDNN", "cudnnBackendFinalize", why);
	*(void **)&t.set = library_symbol(library, "cuDNN", "cudnnBackendSetAttribute", why);
	*(void **)&t.get = library_symbol(library, "cuDNN", "cudnnBackendGetAttribute", why);
	*(void **)&t.execute = library_symbol(library, "cuDNN", "cudnnBackendExecute", why);
	if (why[0])
		return NULL;
	table = t;
	return &table;
}
