/* mapping.h: a mapper's scores, made on the device that holds the column sums; for devices that run lists of steps
 * (device_has_steps): elsewhere the host maps (mapper_forward). Owns nothing between calls: a mapper's parameters are a megabyte
 * or two beside sums of hundreds, so they are brought along with each context, and no device keeps what a mapper's file owns. */
#ifndef KVB_PROXYKV_MAPPING_H
#define KVB_PROXYKV_MAPPING_H

#include "runners/device/device.h"
#include "runners/mapper/mapper.h"

/* Bytes of the matrix between sums and scores: longer contexts are mapped in strips of so many. */
static const int64_t MAPPING_WORK = 128 << 20;
/* sums[l]: raw, of proxy layer l, [heads, n], l < the mapper's layers. Scores [Ll*Hl, n] as mapper_forward's but for rounding, on
 * the queue's device; the caller's. NULL + err. Work is on the queue when it returns. */
struct tensor *mapping_scores(
	struct queue *q, const struct mapper *m, struct tensor *const *sums, int64_t n, int64_t work_bytes, char err[ERR_LEN]);
int64_t mapping_bytes(const struct mapper *m, int64_t n); /* what it takes of the device with MAPPING_WORK, the scores included */

#endif
