/* tiles.h: AMX's tiles in plain memory (emulated.c). Tiles and configuration belong to the thread. What the CPU would refuse, and
 * what our kernels agreed on (each one loads its configuration and releases it), ends the process with a message. */
#ifndef KVB_TESTS_TILES_H
#define KVB_TESTS_TILES_H

#include <stdbool.h>

void tiles_grant(void); /* as the system does, for the process; before that a configuration cannot be loaded */
void tiles_loadconfig(const void *config);
void tiles_release(void);
void tiles_load(int tile, const void *base, long stride);
void tiles_store(int tile, void *base, long stride);
void tiles_zero(int tile);
void tiles_dpbf16ps(int sum, int left, int right);
bool tiles_were_used(void); /* a product was made, in any thread */

#endif
