/* blas.c: finds cuBLAS at run time. The program is built without a link to it, so that it starts on machines that have none. */
#include "runners/device/cuda/cuda.h"

#include <dlfcn.h>
#include <stdio.h>

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
	*(void **)&t.create = library_symbol(library, "cuBLAS", "cublasCreate_v2", why);
	*(void **)&t.destroy = library_symbol(library, "cuBLAS", "cublasDestroy_v2", why);
	*(void **)&t.set_stream = library_symbol(library, "cuBLAS", "cublasSetStream_v2", why);
	*(void **)&t.set_workspace = library_symbol(library, "cuBLAS", "cublasSetWorkspace_v2", why);
	*(void **)&t.set_math_mode = library_symbol(library, "cuBLAS", "cublasSetMathMode", why);
	*(void **)&t.gemm = library_symbol(library, "cuBLAS", "cublasGemmEx", why);
	if (why[0])
		return NULL;
	table = t;
	return &table;
}
