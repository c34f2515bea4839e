/* header_check.c: prints the values and sizes that the shim's headers share with NVIDIA's. test_headers.sh compiles it against both and compares. */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdalign.h>
#include <stdio.h>

#define VALUES(X) \
	X(cudaErrorInvalidValue) X(cudaErrorMemoryAllocation) X(cudaErrorInitializationError) X(cudaErrorInvalidConfiguration) \
	X(cudaErrorInvalidMemcpyDirection) X(cudaErrorInsufficientDriver) X(cudaErrorInvalidDeviceFunction) X(cudaErrorNoDevice) X(cudaErrorInvalidDevice) \
	X(cudaErrorPeerAccessUnsupported) X(cudaErrorECCUncorrectable) X(cudaErrorInvalidResourceHandle) X(cudaErrorNotReady) X(cudaErrorIllegalAddress) \
	X(cudaErrorLaunchOutOfResources) X(cudaErrorLaunchTimeout) X(cudaErrorPeerAccessAlreadyEnabled) X(cudaErrorPeerAccessNotEnabled) X(cudaErrorAssert) \
	X(cudaErrorHostMemoryAlreadyRegistered) X(cudaErrorHostMemoryNotRegistered) X(cudaErrorMisalignedAddress) X(cudaErrorLaunchFailure) \
	X(cudaErrorNotSupported) X(cudaErrorUnknown) \
	X(CUDA_R_32F) X(CUDA_R_64F) X(CUDA_R_16F) X(CUDA_R_8I) X(CUDA_R_16BF) \
	X(cudaMemcpyHostToHost) X(cudaMemcpyHostToDevice) X(cudaMemcpyDeviceToHost) X(cudaMemcpyDeviceToDevice) X(cudaMemcpyDefault) \
	X(cudaMemoryTypeUnregistered) X(cudaMemoryTypeHost) X(cudaMemoryTypeDevice) X(cudaMemoryTypeManaged) \
	X(cudaFuncAttributeMaxDynamicSharedMemorySize) X(cudaFuncAttributePreferredSharedMemoryCarveout) \
	X(cudaDevAttrMaxThreadsPerBlock) X(cudaDevAttrMaxSharedMemoryPerBlock) X(cudaDevAttrWarpSize) X(cudaDevAttrClockRate) \
	X(cudaDevAttrMultiProcessorCount) X(cudaDevAttrMemoryClockRate) X(cudaDevAttrGlobalMemoryBusWidth) X(cudaDevAttrL2CacheSize) \
	X(cudaDevAttrMaxThreadsPerMultiProcessor) X(cudaDevAttrUnifiedAddressing) X(cudaDevAttrComputeCapabilityMajor) \
	X(cudaDevAttrComputeCapabilityMinor) X(cudaDevAttrStreamPrioritiesSupported) X(cudaDevAttrMaxSharedMemoryPerMultiprocessor) \
	X(cudaDevAttrMaxSharedMemoryPerBlockOptin) \
	X(cudaStreamDefault) X(cudaStreamNonBlocking) X(cudaEventDefault) X(cudaEventBlockingSync) X(cudaEventDisableTiming) X(cudaHostAllocDefault) \
	X(cudaHostAllocPortable) X(cudaHostAllocMapped) X(cudaHostAllocWriteCombined) X(cudaHostRegisterDefault) X(cudaHostRegisterPortable) \
	X(cudaHostRegisterReadOnly) X(cudaDeviceScheduleSpin) X(cudaDeviceScheduleYield) X(cudaDeviceScheduleBlockingSync) \
	X(cudaLaunchAttributeClusterDimension) X(cudaLaunchAttributeProgrammaticStreamSerialization) X(cudaLaunchAttributePriority) \
	X(CUBLAS_STATUS_SUCCESS) X(CUBLAS_STATUS_NOT_INITIALIZED) X(CUBLAS_STATUS_ALLOC_FAILED) X(CUBLAS_STATUS_INVALID_VALUE) \
	X(CUBLAS_STATUS_ARCH_MISMATCH) X(CUBLAS_STATUS_MAPPING_ERROR) X(CUBLAS_STATUS_EXECUTION_FAILED) X(CUBLAS_STATUS_INTERNAL_ERROR) \
	X(CUBLAS_STATUS_NOT_SUPPORTED) X(CUBLAS_OP_N) X(CUBLAS_OP_T) X(CUBLAS_OP_C) X(CUBLAS_POINTER_MODE_HOST) X(CUBLAS_POINTER_MODE_DEVICE) \
	X(CUBLAS_DEFAULT_MATH) X(CUBLAS_TENSOR_OP_MATH) X(CUBLAS_PEDANTIC_MATH) X(CUBLAS_TF32_TENSOR_OP_MATH) \
	X(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) X(CUBLAS_GEMM_DEFAULT) X(CUBLAS_GEMM_DEFAULT_TENSOR_OP) X(CUBLAS_COMPUTE_16F) \
	X(CUBLAS_COMPUTE_32F) X(CUBLAS_COMPUTE_32F_PEDANTIC) X(CUBLAS_COMPUTE_32F_FAST_16F) X(CUBLAS_COMPUTE_32F_FAST_16BF) X(CUBLAS_COMPUTE_32F_FAST_TF32)
#define TYPES(X) \
	X(char2) X(char4) X(uchar2) X(uchar4) X(short2) X(short4) X(ushort2) X(ushort4) X(int1) X(int2) X(int3) X(int4) X(uint2) X(uint3) X(uint4) \
	X(longlong2) X(ulonglong2) X(float1) X(float2) X(float3) X(float4) X(double2) X(dim3)

int main(void)
{
#define PRINT_VALUE(v) printf(#v " %d\n", (int)(v));
	VALUES(PRINT_VALUE)
#define PRINT_TYPE(t) printf(#t " %zu %zu\n", sizeof(struct t), alignof(struct t));
	TYPES(PRINT_TYPE)
	return 0;
}
