// calls.cpp: what happens at the border of every API function: settings, the lock, counting, injected and sticky errors; and
// control.h.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "control.h"
#include "state.h"

namespace cuemu
{
static bool env_on(const char *name)
{
	const char *e = getenv(name);
	return e && *e && *e != '0';
}
static size_t env_bytes(const char *name, size_t otherwise)
{
	const char *e = getenv(name);
	if (!e || !*e)
		return otherwise;
	char *end;
	double v = strtod(e, &end);
	return (size_t)(v * (*end == 'K' ? 1 << 10 : *end == 'M' ? 1 << 20 : *end == 'G' ? 1 << 30 : 1));
}
static Order order_named(const char *e)
{
	return e && !strcmp(e, "rev") ? Order::reverse : e && !strcmp(e, "random") ? Order::random : Order::forward;
}
static Settings from_environment()
{
	Settings s;
	s.order = order_named(getenv("CUEMU_ORDER"));
	s.seed = env_bytes("CUEMU_SEED", 1);
	s.eager = env_on("CUEMU_EAGER");
	s.protect = env_on("CUEMU_PROTECT");
	s.peer = !getenv("CUEMU_PEER") || env_on("CUEMU_PEER");
	s.memory = env_bytes("CUEMU_MEM", (size_t)1 << 30);
	s.devices = std::min((int)env_bytes("CUEMU_DEVICES", 2), DEVICES_MAX);
	s.capability = (int)env_bytes("CUEMU_CC", 80);
	s.tma = !getenv("CUEMU_TMA") || env_on("CUEMU_TMA");
	s.threads = std::max(1, (int)env_bytes("CUEMU_THREADS", std::thread::hardware_concurrency()));
	return s;
}
Settings settings = from_environment();

static std::recursive_mutex &lock()
{
	static auto *m = new std::recursive_mutex;
	return *m;
}
static cudaError_t stuck;             // a sticky error: every later call gives it
static thread_local cudaError_t last; // of this host thread, until cudaGetLastError
static int events_live, handles_live;
cudaError_t sticky()
{
	return stuck;
}
void set_sticky(cudaError_t e)
{
	if (!stuck)
		stuck = e;
}
void count_event(int by)
{
	events_live += by;
}
void count_handle(int by)
{
	handles_live += by;
}
void say(const char *format, ...)
{
	if (!env_on("CUEMU_SAY"))
		return;
	va_list a;
	va_start(a, format);
	fprintf(stderr, "cudaemu: ");
	vfprintf(stderr, format, a);
	fprintf(stderr, "\n");
	va_end(a);
}

// ---- injected errors ----
struct Fault {
	std::string call;
	uint64_t nth;
	int code;
	bool sticky;
};
static struct Faults {
	std::vector<Fault> list;
	std::string once;
	size_t alloc_bytes = 0;
	std::map<std::string, uint64_t> calls;
	uint64_t any = 0;
} faults;

static int default_code(const std::string &call, bool sticky)
{
	if (sticky)
		return cudaErrorIllegalAddress;
	if (call.compare(0, 6, "cublas") == 0)
		return call == "cublasCreate" ? 3 : 13;
	if (call.compare(0, 5, "cudnn") == 0)
		return 4000;
	if (call.find("Malloc") != std::string::npos || call == "cudaHostAlloc")
		return cudaErrorMemoryAllocation;
	return call == "launch" ? cudaErrorLaunchOutOfResources : cudaErrorUnknown;
}
static bool parse_one(const std::string &s)
{
	if (s.compare(0, 5, "once=") == 0) {
		faults.once = s.substr(5);
		return true;
	}
	std::vector<std::string> part;
	for (size_t at = 0; at <= s.size();) {
		size_t end = std::min(s.find(':', at), s.size());
		part.push_back(s.substr(at, end - at));
		at = end + 1;
	}
	if (part.size() < 2 || part[0].empty())
		return false;
	char *rest;
	uint64_t n = strtoull(part[1].c_str(), &rest, 10);
	if (*rest || !n)
		return false;
	if (part[0] == "alloc_bytes") {
		faults.alloc_bytes = n;
		return part.size() == 2;
	}
	Fault f = {part[0], n, 0, part.back() == "sticky"};
	f.code = part.size() > 2 && part[2] != "sticky" ? atoi(part[2].c_str()) : default_code(f.call, f.sticky);
	if (!f.code)
		return false;
	faults.list.push_back(f);
	return true;
}
static int parse(const char *spec)
{
	faults = Faults();
	if (!spec)
		return 0;
	std::string s = spec;
	for (size_t at = 0; at < s.size();) {
		size_t end = std::min(s.find(',', at), s.size());
		if (!parse_one(s.substr(at, end - at)))
			return -1;
		at = end + 1;
	}
	return 0;
}
static bool may_fire()
{ // and marks that it did
	if (faults.once.empty())
		return true;
	if (access(faults.once.c_str(), F_OK) == 0)
		return false;
	FILE *f = fopen(faults.once.c_str(), "w");
	if (f)
		fclose(f);
	return true;
}
bool alloc_limit(size_t after)
{
	return faults.alloc_bytes && after > faults.alloc_bytes && may_fire();
}

Call::Call(const char *name) : err(cudaSuccess)
{
	lock().lock();
	static bool read;
	if (!read) {
		read = true;
		if (getenv("CUEMU_FAIL") && parse(getenv("CUEMU_FAIL")))
			die("CUEMU_FAIL: CALL:N[:CODE][:sticky], alloc_bytes:N, once=PATH");
	}
	uint64_t n = ++faults.calls[name], any = ++faults.any;
	if (stuck) {
		err = stuck;
		return;
	}
	for (Fault &f : faults.list) {
		if (!(f.call == "any" ? f.nth == any : f.call == name && f.nth == n) || !may_fire())
			continue;
		bool later = f.sticky && (!strcmp(name, "launch") || strstr(name, "Async") || !strncmp(name, "cublasGemm", 10) ||
						 !strcmp(name, "cudnnBackendExecute"));
		if (later)
			poison = (cudaError_t)f.code;
		else {
			if (f.sticky)
				set_sticky((cudaError_t)f.code);
			err = (cudaError_t)f.code;
			if (strncmp(name, "cudnn", 5) && strncmp(name, "cuTensor", 8)) // cuDNN and the driver have errors of their own
				last = err;
		}
		return;
	}
}
Call::~Call()
{
	lock().unlock();
}
cudaError_t Call::done(cudaError_t e)
{
	if (stuck)
		e = stuck; // what ran during this call may have failed
	if (e)
		last = e;
	return e;
}
cudaError_t last_error(bool forget)
{
	cudaError_t e = stuck ? stuck : last;
	if (forget)
		last = cudaSuccess;
	return e;
}
} // namespace cuemu

using namespace cuemu;
extern "C" {
int cuemu_fail(const char *spec)
{
	std::lock_guard<std::recursive_mutex> l(lock());
	if (!spec)
		stuck = last = cudaSuccess;
	return parse(spec);
}
uint64_t cuemu_calls(const char *call)
{
	std::lock_guard<std::recursive_mutex> l(lock());
	return !strcmp(call, "any") ? faults.any : faults.calls[call];
}
void cuemu_set_seed(uint64_t seed)
{
	settings.seed = seed;
}
void cuemu_set_order(const char *order)
{
	settings.order = order_named(order);
}
void cuemu_set_eager(bool on)
{
	settings.eager = on;
}
void cuemu_set_protect(bool on)
{
	std::lock_guard<std::recursive_mutex> l(lock());
	settings.protect = on;
	memory_visible(-1);
}
void cuemu_set_memory(int device, size_t bytes)
{
	std::lock_guard<std::recursive_mutex> l(lock());
	memory_set_total(device, bytes);
}
void cuemu_set_peer(bool allowed)
{
	settings.peer = allowed;
}
void cuemu_set_capability(int capability)
{
	settings.capability = capability;
}
void cuemu_set_tma(bool there)
{
	settings.tma = there;
}
size_t cuemu_pending(void)
{
	std::lock_guard<std::recursive_mutex> l(lock());
	return operations_pending();
}
void cuemu_live(struct cuemu_live *l)
{
	std::lock_guard<std::recursive_mutex> g(lock());
	*l = {memory_live(false), memory_live(true), streams_live(), (size_t)events_live, (size_t)handles_live, 0};
	for (int d = 0; d < settings.devices; d++)
		l->device_bytes += memory_used(d);
}
}
