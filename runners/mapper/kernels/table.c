/* table.c: this element type's and instruction set's row of kernels. */
#include "runners/mapper/kernels/vec.h"

const struct kernels KERNEL(kernels) = {
	.name = TEXT(KVB_ISA),
	.conv = KERNEL(conv),
	.conv_grad = KERNEL(conv_grad),
	.norm = KERNEL(norm),
	.norm_grad = KERNEL(norm_grad),
	.norm_back_layer = KERNEL(norm_back_layer),
	.norm_back_batch = KERNEL(norm_back_batch),
	.gelu = KERNEL(gelu),
	.gelu_back = KERNEL(gelu_back),
	.band = KERNEL(band),
	.band_back = KERNEL(band_back),
	.mix = KERNEL(mix),
	.mix_back = KERNEL(mix_back),
	.feature = KERNEL(feature),
	.binary = KERNEL(binary),
};
