/* control.h: how a test steers the emulation, in C. The environment sets the same at the start (README.md). */
#ifndef CUEMU_CONTROL_H
#define CUEMU_CONTROL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Injected errors, "CALL:N[:CODE][:sticky]", "alloc_bytes:N", "once=PATH", commas between them. N counts from this call on. NULL:
 * none any more, and a sticky error is forgotten (a test goes on in the same process; a program cannot). Returns -1 on a bad
 * spec. */
int cuemu_fail(const char *spec);
uint64_t cuemu_calls(
	const char *call);          /* times this API function (or "launch", "any") was called since cuemu_fail or the start */
void cuemu_set_seed(uint64_t seed); /* order of streams */
void cuemu_set_order(const char *order); /* "fwd", "rev", "random": of threads and blocks */
void cuemu_set_eager(bool on);
void cuemu_set_protect(bool on);
void cuemu_set_memory(int device, size_t bytes);
void cuemu_set_peer(bool allowed);
void cuemu_set_capability(int capability); /* of all devices: 80, 90 */
void cuemu_set_tma(bool there); /* whether the driver makes tensor maps */
void cuemu_set_cudnn(size_t version); /* what cudnnGetVersion says (91900); 0: the library is not there */
size_t cuemu_pending(void); /* operations submitted and not yet run */
struct cuemu_live {
	size_t device_allocations, pinned_allocations, streams, events, cublas_handles; /* the last: cuDNN's handles and descriptors too */
	size_t device_bytes;
};
void cuemu_live(struct cuemu_live *l); /* what was made and not destroyed */
#ifdef __cplusplus
}
#endif
#endif
