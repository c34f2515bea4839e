/* program.h: a mapper as a list of steps (runners/device/steps.h), for who owns a device that runs such lists
 * (proxykv/mapping.c).
 *
 * One run of the list makes the scores of a strip of positions on a matrix of `rows` rows: put raw column sums into rows
 * [x, x + Ls*Hs) and mapper_scale() into row `scale`, run, take rows [score, score + Ll*Hl). A strip's end that is not the
 * context's loses `halo` columns: they saw zeros where there are positions. */
#ifndef KVB_MAPPER_PROGRAM_H
#define KVB_MAPPER_PROGRAM_H

#include "runners/device/steps.h"
#include "runners/mapper/mapper.h"

struct mapper_program {
	struct step *step;
	int steps;
	float *params; /* what the steps count in */
	int64_t n_params;
	int64_t rows, x, scale, score;
	int proxy_layers, proxy_heads, targets; /* Ls, Hs, Ll*Hl */
	int64_t halo;
	bool whole; /* the context must be one strip: window = full */
};
struct mapper_program *mapper_program_new(const struct mapper *m);
void mapper_program_free(struct mapper_program *p);                 /* NULL is fine */
void mapper_scale(const struct mapper *m, int64_t n, float *scale); /* [n]: 1 / queries that see the key, or ones */

#endif
