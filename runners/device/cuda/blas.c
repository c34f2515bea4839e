/* blas.c: finds cuBLAS at run time. The program is built without a link to it, so that it starts on machines that have none. */
#include "runners/device/cuda/cuda.h"

#include <dlfcn.h>
#include <stdio.h>

static void *symbol(void *library, const char *name, char why[DEVICE_WHAT])
{
	void *p = dlsym(library, name);
	if (!p && why[0] == 0)
		snprintf(why, DEVICE_WHAT, "cuBLAS has no %s", name);
	return p;
}

const struct cublas *cublas_load(char why[DEVICE_WHAT])
{
	static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
	static struct cublas table;
	void *library = NULL;
	if (table.gemm)
		return &table;
	for (int i = 0; i < 3 && !library; i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(why, DEVICE_WHAT, "cuBLAS was not found: %.90s", dlerror());
		return NULL;
	}
	why[0] = 0;
	struct cublas t;
	*(void **)&t.create = symbol(library, "cublasCreate_v2", why);
	*(void **)&t.destroy = symbol(library, "cublasDestroy_v2", why);
	*(void **)&t.set_stream = symbol(library, "cublasSetStream_v2", why);
	*(void **)&t.set_workspace = symbol(library, "cublasSetWorkspace_v2", why);
	*(void **)&t.set_math_mode = symbol(library, "cublasSetMathMode", why);
	*(void **)&t.gemm = symbol(library, "cublasGemmEx", why);
	if (why[0])
		return NULL;
	table = t;
	return &table;
}
