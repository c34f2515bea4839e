/* instructions.h: one use of each instruction, by the CPU (only where it has it) and by what stands in for it (emulated.h). */
#ifndef KVB_TESTS_TILES_INSTRUCTIONS_H
#define KVB_TESTS_TILES_INSTRUCTIONS_H

#include <stdint.h>

/* sum [rows][columns] += left [rows][pairs][2] right [pairs][columns][2], of at most 16 each */
struct tile_product {
	int rows, columns, pairs;
	float sum[16 * 16];
	uint16_t left[16 * 32], right[16 * 32];
};
struct dot_product { /* 16 lanes */
	float sum[16];
	uint16_t left[32], right[32];
};
struct narrowing { /* low and high to bf16, low's first; one: low alone */
	float low[16], high[16];
	uint16_t both[32], one[16];
};
struct bytes { /* out[i] = byte index[i] % 128 of both tables */
	uint8_t table[128], index[64], out[64];
};

void real_tile_product(struct tile_product *p), emulated_tile_product(struct tile_product *p);
void real_dot_product(struct dot_product *p), emulated_dot_product(struct dot_product *p);
void real_narrowing(struct narrowing *p), emulated_narrowing(struct narrowing *p);
void real_bytes(struct bytes *p), emulated_bytes(struct bytes *p);

#endif
