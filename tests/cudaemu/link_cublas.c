/* link_cublas.c: in the emulation cuBLAS is linked, not searched for: takes the place of runners/device/cuda/blas.c. */
#include "runners/device/cuda/cuda.h"

const struct cublas *cublas_load(char why[DEVICE_WHAT])
{
	static const struct cublas table = {cublasCreate, cublasDestroy, cublasSetStream, cublasSetWorkspace, cublasSetMathMode, cublasGemmEx};
	(void)why;
	return &table;
}
