/* profile.c: calls, time, arithmetic and bytes of each operation, counted while somebody asks for them. */
#include "runners/device/backend.h"

static const char *const names[PROFILE_OPS] = {
	[PROFILE_EMBED] = "embedding",
	[PROFILE_NORM] = "norm",
	[PROFILE_LINEAR] = "linear, many rows",
	[PROFILE_LINEAR_FEW] = "linear, few rows",
	[PROFILE_ROPE_TABLE] = "rope table",
	[PROFILE_COPY] = "copy of rows",
	[PROFILE_ARGMAX] = "argmax",
	[PROFILE_TOPK] = "selection",
	[PROFILE_POOL] = "pooling",
	[PROFILE_KV_APPEND] = "append to cache",
	[PROFILE_KV_GATHER] = "compaction",
	[PROFILE_ATTENTION] = "attention, blocks",
	[PROFILE_ATTENTION_ONE] = "attention, one token",
	[PROFILE_ATTN_LSE] = "log-sum-exp",
	[PROFILE_ATTN_REDUCE] = "column sums",
	[PROFILE_MOMENTS] = "moments",
	[PROFILE_UTILITIES] = "utilities of entries",
	[PROFILE_STEPS] = "steps of a mapper",
};

void device_profile_start(struct device *d)
{
	memset(d->profile, 0, sizeof d->profile);
	d->profiling = true;
}

void device_profile_stop(struct device *d)
{
	d->profiling = false;
}

void device_profile(const struct device *d, void (*row)(void *user, const struct device_profile_row *), void *user)
{
	for (int i = 0; i < PROFILE_OPS; i++) {
		const struct profile_count *c = &d->profile[i];
		if (c->calls)
			row(user, &(struct device_profile_row){names[i], c->calls, c->ns, c->flops, c->bytes});
	}
}
