/* cudnn_check.c: does the real cuDNN accept our graph of attention? Without a GPU: properties of four of them are given as text,
 * the library chooses engines for them and compiles their kernels. Run by test_cudnn.sh beside the toolkit's stub of the driver,
 * which can do everything but load a kernel: that is where a plan then ends. Prints `ok - ` lines. */
#include "runners/device/cuda/dnn.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	int capability, processors, shared;
} GPUS[] = {{"H200", 900, 132, 232448}, {"A100", 800, 108, 166912}, {"L40S", 890, 142, 101376}, {"B200", 1000, 148, 232448}};
enum { N_GPUS = sizeof GPUS / sizeof *GPUS };

static cudnnBackendDescriptor_t properties(const struct cudnn *f, int i)
{
	char text[1024];
	cudnnBackendDescriptor_t d = NULL;
	int n = snprintf(text, sizeof text,
		"{\"version\":1,\"deviceVer\":%d,\"deviceName\":\"%s\",\"multiProcessorCount\":%d,\"maxGridSize\":[2147483647,"
		"65535,65535],"
		"\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,"
		"\"l2CacheSize\":62914560,"
		"\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
		"\"reservedSharedMemoryPerBlock\":1024,"
		"\"maxRegistersPerSM\":65536,\"pciDeviceId\":0,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"
		"\"maxThreadsPerSM\":2048,\"isTccDriver\":0,"
		"\"supportCoopLaunch\":1,\"driverVer\":13000,\"cudaDeviceId\":0,\"totalGlobalMem\":80000000000}",
		GPUS[i].capability, GPUS[i].name, GPUS[i].processors, GPUS[i].shared);
	if (f->descriptor_new(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d) ||
		f->set(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, n, text) || f->finalize(d)) {
		f->last_error(text, sizeof text);
		printf("not ok - properties of %s: %s\n", GPUS[i].name, text);
		return NULL;
	}
	return d;
}

/* An engine took the graph: its kernel was compiled and was to be loaded. */
static void check(const struct cudnn *f, cudnnBackendDescriptor_t device, const char *gpu, struct dnn_shape s, bool accepted)
{
	char err[ERR_LEN];
	struct dnn_plan p = {.shape = s};
	cudnnBackendDescriptor_t kernels = NULL;
	bool took = !dnn_plan_make(&p, f, device, &kernels, err) || strstr(err, "cuLibraryLoadData");
	printf("%s - cuDNN, %s: %lld/%lld heads of %lld, %lld queries, %lld keys%s %s%s%s\n", took == accepted ? "ok" : "not ok",
		gpu, (long long)s.heads, (long long)s.kv_heads, (long long)s.d, (long long)s.rows, (long long)s.keys,
		s.lse_ld ? ", lse" : "", accepted ? "compiled" : "refused", took == accepted ? "" : ": ",
		took == accepted ? "" : err);
	dnn_plan_free(&p, f);
	if (kernels)
		f->descriptor_free(kernels);
}

int main(void)
{
	char why[DEVICE_WHAT];
	const struct cudnn *f = cudnn_load(why);
	if (!f) {
		printf("skip - cuDNN accepts our graph of attention: %s\n", why);
		return 0;
	}
	for (int i = 0; i < N_GPUS; i++) {
		cudnnBackendDescriptor_t d = properties(f, i);
		if (!d)
			continue;
		check(f, d, GPUS[i].name, (struct dnn_shape){28, 4, 128, 4096, 8192, 128, 9000, 28 * 128, i % 2 ? 0 : 28}, true);
		if (i < 2)
			check(f, d, GPUS[i].name, (struct dnn_shape){14, 2, 64, 13, 77, 64, 100, 14 * 64, i % 2 ? 14 : 0}, true);
		if (i == 0)
			check(f, d, GPUS[i].name, (struct dnn_shape){2, 1, 20, 64, 64, 32, 64, 40, 0}, false);
		f->descriptor_free(d);
	}
	return 0;
}
