/* unit.h: the unit of products that a set of kernels is compiled for: amx.h or dot.h. Either gives
 *
 * - unit_begin(), unit_end(): around a kernel's products, in the thread that makes them;
 * - KEYS: keys of a softmax block;
 * - logits_block(): logits [rows][stride] of one row block against 32 keys;
 * - values_block(): out [d_blocks][4 tiles] (+)= p x values of one row block over KEYS keys; fresh: out holds nothing yet;
 * - UNIT_OVERLAPS, where its products run beside vector instructions; then also product_groups(), LOGITS_GROUP and VALUES_GROUP.
 *
 * many: the block may have more than 16 rows (a constant where the function is inlined). Rows behind `rows` may be left
 * uncomputed. Keys and values as packed by pack.c. */
#ifdef __AMX_TILE__
#include "runners/device/cpu/blocks/amx.h"
#else
#include "runners/device/cpu/blocks/dot.h"
#endif
