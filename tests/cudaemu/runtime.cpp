// runtime.cpp: the CUDA runtime API (include/cuda_runtime_api.h) over the queues and the memory. Checks what the real one checks
// and what it leaves to luck: extents, ownership, handles, launch shapes, pointers handed to kernels.
#include <stdio.h>

#include <algorithm>

#include "cuda.h"
#include "state.h"

struct CUevent_st {
	int device;
	unsigned flags;
	std::shared_ptr<cuemu::Record> record; // the newest; NULL: never recorded
};

namespace cuemu
{
static thread_local int device_now;
int current_device()
{
	return device_now;
}

static std::set<cudaEvent_t> &events()
{
	static auto *s = new std::set<cudaEvent_t>;
	return *s;
}
static std::map<const void *, int> &shared_limits()
{
	static auto *m = new std::map<const void *, int>;
	return *m;
}
static int shared_limit(const void *kernel)
{
	auto i = shared_limits().find(kernel);
	return i == shared_limits().end() ? 48 * 1024 : i->second;
}

// ---- launches ----
static cudaError_t check_shape(const cudaLaunchConfig_t &c, const void *kernel)
{
	size_t threads = (size_t)c.blockDim.x * c.blockDim.y * c.blockDim.z;
	if (!threads || threads > THREADS_MAX || c.blockDim.z > 64 || !c.gridDim.x || !c.gridDim.y || !c.gridDim.z ||
		c.gridDim.x > 0x7fffffffu || c.gridDim.y > 65535 || c.gridDim.z > 65535) {
		say("launch: grid %u x %u x %u, block %u x %u x %u", c.gridDim.x, c.gridDim.y, c.gridDim.z, c.blockDim.x,
			c.blockDim.y, c.blockDim.z);
		return cudaErrorInvalidConfiguration;
	}
	if (c.dynamicSmemBytes > (size_t)shared_limit(kernel)) {
		say("launch: %zu bytes of dynamic shared memory, %d allowed for this kernel", c.dynamicSmemBytes,
			shared_limit(kernel));
		return cudaErrorInvalidValue;
	}
	for (unsigned i = 0; i < c.numAttrs; i++)
		if (c.attrs[i].id == cudaLaunchAttributeClusterDimension)
			return cudaErrorNotSupported;
	return cudaSuccess;
}
// A GPU would answer these with an illegal address some time later; here it is said at once which argument it is.
static void check_pointers(const Launch &l, int device)
{
	char b[256];
	for (int i = 0; i < l.pointers; i++) {
		const void *p = l.pointer[i];
		if (!p || memory_covers(p, 0, device))
			continue;
		const Memory *m = memory_find(p);
		snprintf(b, sizeof b, "launch on device %d: argument %d (%p) is %s", device, l.position[i], p,
			m                 ? "memory of another device without peer access"
			: memory_freed(p) ? "memory that was freed"
					  : "neither device nor pinned memory");
		die(b);
	}
}
static void run_kernel(Queue &q, const Launch &l, const cudaLaunchConfig_t &c)
{
	Grid g = {c.gridDim, c.blockDim, c.dynamicSmemBytes, (size_t)c.gridDim.x * c.gridDim.y * c.gridDim.z, &l,
		{nullptr, nullptr}, nullptr};
#ifdef CUEMU_TSAN
	g.acquire[0] = &q.token;
	g.acquire[1] = running->told.get();
	g.release = &q.end; // not the stream's token: the threads of a grid must not order each other through it
	pool_grid(q.blocks(), g);
	as_copier(q, [&] { TSAN_ACQUIRE(&q.end); });
#else
	pool_grid(q.blocks(), g);
#endif
}
cudaError_t launch(const cudaLaunchConfig_t &config, const Launch &l)
{
	std::shared_ptr<Launch> owned(new Launch(l), [](Launch *p) {
		p->drop(p->args);
		delete p;
	});
	Call call("launch");
	if (call.err)
		return call.err;
	auto q = queue_of(config.stream);
	if (!q || q->device != current_device())
		return call.done(cudaErrorInvalidResourceHandle);
	if (cudaError_t e = check_shape(config, l.kernel))
		return call.done(e);
	check_pointers(l, q->device);
	queue_submit(
		q, [owned, config](Queue &self) { run_kernel(self, *owned, config); }, call.poison);
	return call.done(cudaSuccess);
}

// ---- copies ----
struct Copying {
	char *to;
	const char *from;
	size_t to_pitch, from_pitch, width, height;
};
static bool covers(const void *p, size_t pitch, size_t width, size_t height, int device, bool device_side)
{
	if (!device_side)
		return true;
	const Memory *m = memory_find(p);
	return m && m->device >= 0 && memory_covers(p, pitch * (height - 1) + width, device);
}
static cudaError_t check_copy(const Copying &c, cudaMemcpyKind &kind, int device)
{
	if (kind == cudaMemcpyDefault) {
		const Memory *to = memory_find(c.to), *from = memory_find(c.from);
		bool td = to && to->device >= 0, fd = from && from->device >= 0;
		kind = td   ? (fd ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
		       : fd ? cudaMemcpyDeviceToHost
			    : cudaMemcpyHostToHost;
	}
	if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDeviceToDevice)
		return cudaErrorInvalidMemcpyDirection;
	bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
	bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
	const Memory *to = memory_find(c.to), *from = memory_find(c.from);
	if (!covers(c.to, c.to_pitch, c.width, c.height, device, to_device) ||
		!covers(c.from, c.from_pitch, c.width, c.height, device, from_device) ||
		(!to_device && to && to->device >= 0 && (char *)c.to < to->p + to->n) ||
		(!from_device && from && from->device >= 0 && c.from < from->p + from->n)) {
		say("copy of %zu x %zu bytes, kind %d: not inside memory of device %d (or of a peer)", c.height, c.width,
			(int)kind, device);
		return cudaErrorInvalidValue;
	}
	return cudaSuccess;
}
static void move(const Copying &c)
{
	for (size_t i = 0; i < c.height; i++)
		memmove(c.to + i * c.to_pitch, c.from + i * c.from_pitch, c.width);
}
// Pageable sources are read now (the real call stages them), pinned ones when the copy runs: one reused too early shows.
static cudaError_t copy(Call &call, Copying c, cudaMemcpyKind kind, const std::shared_ptr<Queue> &q)
{
	if (!q)
		return call.done(cudaErrorInvalidResourceHandle);
	if (!c.width || !c.height)
		return call.done(cudaSuccess);
	if (cudaError_t e = check_copy(c, kind, q->device))
		return call.done(e);
	std::shared_ptr<std::vector<char>> staged;
	if ((kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost) &&
		!memory_pinned(c.from, c.from_pitch * (c.height - 1) + c.width)) {
		staged = std::make_shared<std::vector<char>>(c.width * c.height);
		Copying in = {staged->data(), c.from, c.width, c.from_pitch, c.width, c.height};
		move(in);
		c.from = staged->data();
		c.from_pitch = c.width;
	}
	queue_submit(
		q, [c, staged](Queue &self) { as_copier(self, [&] { move(c); }); }, call.poison);
	return call.done(cudaSuccess);
}
static cudaError_t copy_wait(Call &call, const Copying &c, cudaMemcpyKind kind)
{
	auto q = queue_of(0);
	cudaError_t e = copy(call, c, kind, q);
	if (e)
		return e;
	drain(q, q->submitted);
	return call.done(cudaSuccess);
}
static cudaError_t copy_peer(
	Call &call, void *to, int to_device, const void *from, int from_device, size_t n, const std::shared_ptr<Queue> &q)
{
	if (!q)
		return call.done(cudaErrorInvalidResourceHandle);
	if (to_device < 0 || from_device < 0 || to_device >= settings.devices || from_device >= settings.devices)
		return call.done(cudaErrorInvalidDevice);
	if (!n)
		return call.done(cudaSuccess);
	const Memory *t = memory_find(to), *f = memory_find(from);
	if (!t || !f || t->device != to_device || f->device != from_device || !memory_covers(to, n, to_device) ||
		!memory_covers(from, n, from_device)) {
		say("peer copy of %zu bytes: the pointers are not memory of devices %d and %d", n, to_device, from_device);
		return call.done(cudaErrorInvalidValue);
	}
	queue_submit(
		q,
		[=](Queue &self) {
			memory_visible_all();
			as_copier(self, [&] { memmove(to, from, n); });
		},
		call.poison);
	return call.done(cudaSuccess);
}
static cudaError_t fill(Call &call, void *p, int value, size_t n, const std::shared_ptr<Queue> &q)
{
	if (!q)
		return call.done(cudaErrorInvalidResourceHandle);
	if (!n)
		return call.done(cudaSuccess);
	const Memory *m = memory_find(p);
	if (!m || m->device < 0 || !memory_covers(p, n, q->device))
		return call.done(cudaErrorInvalidValue);
	queue_submit(
		q, [=](Queue &self) { as_copier(self, [&] { memset(p, value, n); }); }, call.poison);
	return call.done(cudaSuccess);
}
static cudaError_t free_device(void *p)
{
	const Memory *m = memory_find(p);
	if (!m || m->device < 0 || m->p != p)
		return cudaErrorInvalidValue;
	memory_free(p);
	return cudaSuccess;
}
} // namespace cuemu

using namespace cuemu;
#define CALL(name)                                                                                                               \
	Call call(name);                                                                                                         \
	if (call.err)                                                                                                            \
	return call.err

extern "C" {
// ---- errors ----
cudaError_t cudaGetLastError(void)
{
	return last_error(true);
}
cudaError_t cudaPeekAtLastError(void)
{
	return last_error(false);
}
static const struct {
	cudaError_t e;
	const char *name, *text;
} names[] = {
	{cudaSuccess, "cudaSuccess", "no error"},
	{cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
	{cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
	{cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
	{cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
	{cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
	{cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
		"CUDA driver version is insufficient for CUDA runtime version"},
	{cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
	{cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
	{cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
	{cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
	{cudaErrorPeerAccessUnsupported, "cudaErrorPeerAccessUnsupported",
		"peer access is not supported between these two devices"},
	{cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
	{cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
	{cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
	{cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
	{cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
	{cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
	{cudaErrorPeerAccessNotEnabled, "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"},
	{cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
	{cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
		"part or all of the requested memory range is already mapped"},
	{cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
		"pointer does not correspond to a registered memory region"},
	{cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
	{cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
	{cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
	{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};
const char *cudaGetErrorName(cudaError_t e)
{
	for (auto &n : names)
		if (n.e == e)
			return n.name;
	return "unrecognized error code";
}
const char *cudaGetErrorString(cudaError_t e)
{
	for (auto &n : names)
		if (n.e == e)
			return n.text;
	return "unrecognized error code";
}

// ---- devices ----
cudaError_t cudaGetDeviceCount(int *n)
{
	CALL("cudaGetDeviceCount");
	*n = settings.devices;
	return call.done(settings.devices ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int *device)
{
	CALL("cudaGetDevice");
	*device = device_now;
	return cudaSuccess;
}
cudaError_t cudaSetDevice(int device)
{
	CALL("cudaSetDevice");
	if (device < 0 || device >= settings.devices)
		return call.done(cudaErrorInvalidDevice);
	device_now = device;
	return call.done(cudaSuccess);
}
cudaError_t cudaSetDeviceFlags(unsigned)
{
	CALL("cudaSetDeviceFlags");
	return call.done(cudaSuccess);
}
cudaError_t cudaDeviceSynchronize(void)
{
	CALL("cudaDeviceSynchronize");
	drain_device(device_now);
	return call.done(cudaSuccess);
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
	CALL("cudaGetDeviceProperties");
	if (device < 0 || device >= settings.devices)
		return call.done(cudaErrorInvalidDevice);
	memset(p, 0, sizeof *p);
	snprintf(p->name, sizeof p->name, "emulated CUDA device %d (no GPU)", device);
	p->totalGlobalMem = memory_total(device);
	p->sharedMemPerBlock = 48 * 1024;
	p->sharedMemPerBlockOptin = SHARED_MAX;
	p->sharedMemPerMultiprocessor = SHARED_MAX + 1024;
	p->regsPerBlock = p->regsPerMultiprocessor = 65536;
	p->warpSize = 32;
	p->maxThreadsPerBlock = p->maxThreadsPerMultiProcessor = THREADS_MAX;
	p->maxThreadsDim[0] = p->maxThreadsDim[1] = THREADS_MAX;
	p->maxThreadsDim[2] = 64;
	p->maxGridSize[0] = 0x7fffffff;
	p->maxGridSize[1] = p->maxGridSize[2] = 65535;
	p->totalConstMem = 65536;
	p->major = settings.capability / 10; // sm_80: mma.sync and cp.async; sm_90: wgmma too
	p->minor = settings.capability % 10;
	p->multiProcessorCount = settings.threads;
	p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->streamPrioritiesSupported = 1;
	p->asyncEngineCount = 2;
	p->memoryBusWidth = 64;
	p->l2CacheSize = 32 << 20;
	p->maxBlocksPerMultiProcessor = 16;
	p->pciBusID = device;
	return call.done(cudaSuccess);
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
	CALL("cudaDeviceGetAttribute");
	if (device < 0 || device >= settings.devices)
		return call.done(cudaErrorInvalidDevice);
	static const struct {
		cudaDeviceAttr attr;
		int value;
	} table[] = {
		{cudaDevAttrMaxThreadsPerBlock, THREADS_MAX},
		{cudaDevAttrMaxSharedMemoryPerBlock, 48 * 1024},
		{cudaDevAttrWarpSize, 32},
		{cudaDevAttrClockRate, 1000000},
		{cudaDevAttrMemoryClockRate, 1000000},
		{cudaDevAttrGlobalMemoryBusWidth, 64},
		{cudaDevAttrL2CacheSize, 32 << 20},
		{cudaDevAttrMaxThreadsPerMultiProcessor, THREADS_MAX},
		{cudaDevAttrUnifiedAddressing, 1},
		{cudaDevAttrComputeCapabilityMajor, settings.capability / 10},
		{cudaDevAttrComputeCapabilityMinor, settings.capability % 10},
		{cudaDevAttrStreamPrioritiesSupported, 1},
		{cudaDevAttrMaxSharedMemoryPerMultiprocessor, SHARED_MAX + 1024},
		{cudaDevAttrMaxSharedMemoryPerBlockOptin, SHARED_MAX},
	};
	if (attr == cudaDevAttrMultiProcessorCount) {
		*value = settings.threads;
		return call.done(cudaSuccess);
	}
	for (auto &t : table)
		if (t.attr == attr) {
			*value = t.value;
			return call.done(cudaSuccess);
		}
	return call.done(cudaErrorInvalidValue);
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int device)
{
	CALL("cudaDeviceGetPCIBusId");
	if (device < 0 || device >= settings.devices)
		return call.done(cudaErrorInvalidDevice);
	snprintf(id, (size_t)len, "0000:%02x:00.0", device);
	return call.done(cudaSuccess);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	CALL("cudaDeviceGetStreamPriorityRange");
	*least = 0;
	*greatest = -5;
	return call.done(cudaSuccess);
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	CALL("cudaDeviceCanAccessPeer");
	if (device < 0 || peer < 0 || device >= settings.devices || peer >= settings.devices)
		return call.done(cudaErrorInvalidDevice);
	*can = settings.peer && device != peer;
	return call.done(cudaSuccess);
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned)
{
	CALL("cudaDeviceEnablePeerAccess");
	if (peer < 0 || peer >= settings.devices || peer == device_now)
		return call.done(cudaErrorInvalidDevice);
	if (!settings.peer)
		return call.done(cudaErrorPeerAccessUnsupported);
	if (memory_peer(device_now, peer))
		return call.done(cudaErrorPeerAccessAlreadyEnabled);
	memory_set_peer(device_now, peer, true);
	return call.done(cudaSuccess);
}
cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
	CALL("cudaDeviceDisablePeerAccess");
	if (peer < 0 || peer >= settings.devices || peer == device_now)
		return call.done(cudaErrorInvalidDevice);
	if (!memory_peer(device_now, peer))
		return call.done(cudaErrorPeerAccessNotEnabled);
	drain_device(device_now);
	memory_set_peer(device_now, peer, false);
	return call.done(cudaSuccess);
}
cudaError_t cudaRuntimeGetVersion(int *v)
{
	*v = CUDART_VERSION;
	return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v)
{
	*v = CUDART_VERSION;
	return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
	CALL("cudaMemGetInfo");
	*total = memory_total(device_now);
	*free_bytes = *total - std::min(*total, memory_used(device_now));
	return call.done(cudaSuccess);
}

// ---- memory ----
cudaError_t cudaMalloc(void **p, size_t n)
{
	CALL("cudaMalloc");
	*p = nullptr;
	return call.done(n ? memory_new(p, n, device_now) : cudaSuccess);
}
cudaError_t cudaFree(void *p)
{
	CALL("cudaFree");
	if (!p)
		return call.done(cudaSuccess);
	const Memory *m = memory_find(p);
	if (m && m->device >= 0)
		drain_device(m->device);
	return call.done(free_device(p));
}
cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t s)
{
	CALL("cudaMallocAsync");
	*p = nullptr;
	auto q = queue_of(s);
	if (!q)
		return call.done(cudaErrorInvalidResourceHandle);
	return call.done(n ? memory_new(p, n, q->device) : cudaErrorInvalidValue);
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t s)
{
	CALL("cudaFreeAsync");
	auto q = queue_of(s);
	const Memory *m = memory_find(p);
	if (!q)
		return call.done(cudaErrorInvalidResourceHandle);
	if (!m || m->device < 0 || m->p != p)
		return call.done(cudaErrorInvalidValue);
	queue_submit(
		q, [p](Queue &) { free_device(p); }, call.poison);
	return call.done(cudaSuccess);
}
static cudaError_t pinned_new(Call &call, void **p, size_t n)
{
	*p = nullptr;
	return call.done(n ? memory_new(p, n, -1) : cudaSuccess);
}
cudaError_t cudaMallocHost(void **p, size_t n)
{
	CALL("cudaMallocHost");
	return pinned_new(call, p, n);
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned)
{
	CALL("cudaHostAlloc");
	return pinned_new(call, p, n);
}
cudaError_t cudaFreeHost(void *p)
{
	CALL("cudaFreeHost");
	if (!p)
		return call.done(cudaSuccess);
	const Memory *m = memory_find(p);
	if (!m || m->device >= 0 || m->p != p || m->registered)
		return call.done(cudaErrorInvalidValue);
	memory_free(p); // waits for nothing: that the real one does is written nowhere
	return call.done(cudaSuccess);
}
cudaError_t cudaHostRegister(void *p, size_t n, unsigned)
{
	CALL("cudaHostRegister");
	if (!p || !n)
		return call.done(cudaErrorInvalidValue);
	if (memory_pinned(p, 1))
		return call.done(cudaErrorHostMemoryAlreadyRegistered);
	memory_register(p, n);
	return call.done(cudaSuccess);
}
cudaError_t cudaHostUnregister(void *p)
{
	CALL("cudaHostUnregister");
	const Memory *m = memory_find(p);
	if (!m || !m->registered || m->p != p)
		return call.done(cudaErrorHostMemoryNotRegistered);
	drain_all();
	memory_free(p);
	return call.done(cudaSuccess);
}
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned)
{
	CALL("cudaHostGetDevicePointer");
	if (!memory_pinned(host, 1))
		return call.done(cudaErrorInvalidValue);
	*device = host;
	return call.done(cudaSuccess);
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
	CALL("cudaPointerGetAttributes");
	const Memory *m = memory_find(p);
	*a = {cudaMemoryTypeUnregistered, -1, nullptr, nullptr};
	if (m && m->device >= 0)
		*a = {cudaMemoryTypeDevice, m->device, (void *)p, nullptr};
	else if (m)
		*a = {cudaMemoryTypeHost, device_now, (void *)p, (void *)p};
	return call.done(cudaSuccess);
}
cudaError_t cudaMemcpy(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind)
{
	CALL("cudaMemcpy");
	return copy_wait(call, {(char *)dst, (const char *)src, n, n, n, 1}, kind);
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind, cudaStream_t s)
{
	CALL("cudaMemcpyAsync");
	return copy(call, {(char *)dst, (const char *)src, n, n, n, 1}, kind, queue_of(s));
}
cudaError_t cudaMemcpy2D(
	void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height, enum cudaMemcpyKind kind)
{
	CALL("cudaMemcpy2D");
	if (width > dpitch || width > spitch)
		return call.done(cudaErrorInvalidValue);
	return copy_wait(call, {(char *)dst, (const char *)src, dpitch, spitch, width, height}, kind);
}
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
	enum cudaMemcpyKind kind, cudaStream_t s)
{
	CALL("cudaMemcpy2DAsync");
	if (width > dpitch || width > spitch)
		return call.done(cudaErrorInvalidValue);
	return copy(call, {(char *)dst, (const char *)src, dpitch, spitch, width, height}, kind, queue_of(s));
}
cudaError_t cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device, size_t n)
{
	CALL("cudaMemcpyPeer");
	drain_device(dst_device);
	drain_device(src_device);
	auto q = queue_of(0);
	cudaError_t e = copy_peer(call, dst, dst_device, src, src_device, n, q);
	if (e)
		return e;
	drain(q, q->submitted);
	return call.done(cudaSuccess);
}
cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device, size_t n, cudaStream_t s)
{
	CALL("cudaMemcpyPeerAsync");
	return copy_peer(call, dst, dst_device, src, src_device, n, queue_of(s));
}
cudaError_t cudaMemset(void *p, int value, size_t n)
{
	CALL("cudaMemset");
	return fill(call, p, value, n, queue_of(0));
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s)
{
	CALL("cudaMemsetAsync");
	return fill(call, p, value, n, queue_of(s));
}
cudaError_t cuemu_symbol_copy(void *dst, const void *src, size_t n)
{
	CALL("cudaMemcpyToSymbol");
	drain_all();
	memcpy(dst, src, n);
	return call.done(cudaSuccess);
}

// ---- streams ----
cudaError_t cudaStreamCreate(cudaStream_t *s)
{
	CALL("cudaStreamCreate");
	return call.done(queue_new(s, cudaStreamDefault, 0));
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
	CALL("cudaStreamCreateWithFlags");
	return call.done(queue_new(s, flags, 0));
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority)
{
	CALL("cudaStreamCreateWithPriority");
	return call.done(queue_new(s, flags, priority));
}
cudaError_t cudaStreamGetPriority(cudaStream_t s, int *priority)
{
	CALL("cudaStreamGetPriority");
	auto q = queue_of(s);
	if (q)
		*priority = q->priority;
	return call.done(q ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamGetFlags(cudaStream_t s, unsigned *flags)
{
	CALL("cudaStreamGetFlags");
	auto q = queue_of(s);
	if (q)
		*flags = q->flags;
	return call.done(q ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	CALL("cudaStreamDestroy");
	auto q = queue_of(s);
	if (!q || q->legacy)
		return call.done(cudaErrorInvalidResourceHandle);
	queue_delete(s);
	return call.done(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
	CALL("cudaStreamSynchronize");
	auto q = queue_of(s);
	if (!q)
		return call.done(cudaErrorInvalidResourceHandle);
	drain(q, q->submitted);
	return call.done(cudaSuccess);
}
cudaError_t cudaStreamQuery(cudaStream_t s)
{ // one more operation runs with each question, so that polling ends
	CALL("cudaStreamQuery");
	auto q = queue_of(s);
	if (!q)
		return call.done(cudaErrorInvalidResourceHandle);
	step();
	if (q->done < q->submitted) {
		memory_visible(-1);
		return cudaErrorNotReady;
	}
	drain(q, q->submitted);
	return call.done(cudaSuccess);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
	CALL("cudaStreamWaitEvent");
	auto q = queue_of(s);
	if (!q || !events().count(e))
		return call.done(cudaErrorInvalidResourceHandle);
	if (e->record)
		queue_after(q, e->record);
	return call.done(cudaSuccess);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *user)
{
	CALL("cudaLaunchHostFunc");
	auto q = queue_of(s);
	if (!q)
		return call.done(cudaErrorInvalidResourceHandle);
	queue_submit(
		q,
		[=](Queue &self) {
			memory_visible(-1);
			as_copier(self, [&] { fn(user); });
		},
		call.poison);
	return call.done(cudaSuccess);
}

// ---- events ----
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
	CALL("cudaEventCreate");
	*e = new CUevent_st{device_now, flags, nullptr};
	events().insert(*e);
	count_event(1);
	return call.done(cudaSuccess);
}
cudaError_t cudaEventCreate(cudaEvent_t *e)
{
	return cudaEventCreateWithFlags(e, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
	CALL("cudaEventDestroy");
	if (!events().erase(e))
		return call.done(cudaErrorInvalidResourceHandle);
	delete e;
	count_event(-1);
	return call.done(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
	CALL("cudaEventRecord");
	auto q = queue_of(s);
	if (!q || !events().count(e) || q->device != e->device)
		return call.done(cudaErrorInvalidResourceHandle);
	e->record = queue_record(q);
	return call.done(cudaSuccess);
}
static bool reached(cudaEvent_t e)
{
	return !e->record || e->record->queue->done >= e->record->number;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
	CALL("cudaEventSynchronize");
	if (!events().count(e))
		return call.done(cudaErrorInvalidResourceHandle);
	if (e->record) {
		drain_quietly(e->record->queue, e->record->number);
		TSAN_ACQUIRE(&e->record->token);
	}
	return call.done(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t e)
{
	CALL("cudaEventQuery");
	if (!events().count(e))
		return call.done(cudaErrorInvalidResourceHandle);
	if (!reached(e))
		step();
	memory_visible(-1);
	if (!reached(e))
		return cudaErrorNotReady;
	if (e->record)
		TSAN_ACQUIRE(&e->record->token);
	return call.done(cudaSuccess);
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
	CALL("cudaEventElapsedTime");
	for (cudaEvent_t e : {start, end})
		if (!events().count(e) || !e->record || (e->flags & cudaEventDisableTiming))
			return call.done(cudaErrorInvalidResourceHandle);
	if (!reached(start) || !reached(end))
		return call.done(cudaErrorNotReady);
	*ms = (float)(end->record->ms - start->record->ms);
	return call.done(cudaSuccess);
}

// ---- the driver ----
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version, unsigned long long flags,
	enum cudaDriverEntryPointQueryResult *result)
{
	CALL("cudaGetDriverEntryPointByVersion");
	if (!symbol || !function || version < 12000 || flags != cudaEnableDefault)
		return call.done(cudaErrorInvalidValue);
	bool there = settings.tma && !strcmp(symbol, "cuTensorMapEncodeTiled");
	*function = there ? (void *)cuTensorMapEncodeTiled : nullptr;
	if (result)
		*result = there ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
	return call.done(cudaSuccess);
}

// ---- kernels ----
cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attr, int value)
{
	CALL("cudaFuncSetAttribute");
	if (attr == cudaFuncAttributeMaxDynamicSharedMemorySize) {
		if (value < 0 || (size_t)value > SHARED_MAX)
			return call.done(cudaErrorInvalidValue);
		shared_limits()[kernel] = value;
	}
	return call.done(cudaSuccess);
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *kernel)
{
	CALL("cudaFuncGetAttributes");
	*a = {0, 0, 0, THREADS_MAX, 32, shared_limit(kernel)};
	return call.done(cudaSuccess);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int block_size, size_t dynamic_smem)
{
	CALL("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
	if (block_size < 1 || block_size > THREADS_MAX || dynamic_smem > SHARED_MAX)
		return call.done(cudaErrorInvalidValue);
	*blocks = std::min(THREADS_MAX / block_size, (int)(SHARED_MAX / std::max(dynamic_smem, (size_t)1024)));
	return call.done(cudaSuccess);
}
}
