/* mapping.c: see mapping.h. Strips overlap by what convolutions and attention reach, so that no score depends on their width. */
#include "runners/proxykv/mapping.h"

#include "runners/mapper/program.h"

#include <stdlib.h>

enum {
	LINE = 32,  /* positions of a line of memory */
	LEAST = 256 /* positions that a strip gives at least */
};

static int64_t strip_cols(const struct mapper_program *p, int64_t n, int64_t work_bytes)
{
	int64_t cols = work_bytes / (p->rows * 4), least = 4 * p->halo + LEAST;
	cols = cols < least ? least : cols;
	return p->whole || cols > n ? n : cols;
}

static int64_t padded(int64_t cols)
{
	return (cols + LINE - 1) / LINE * LINE;
}

int64_t mapping_bytes(const struct mapper *m, int64_t n)
{
	struct mapper_program *p = mapper_program_new(m);
	int64_t bytes = tensor_bytes(p->rows, padded(strip_cols(p, n, MAPPING_WORK))) + tensor_bytes(1, p->n_params) +
			tensor_bytes(1, n) + tensor_bytes(p->targets, n);
	mapper_program_free(p);
	return bytes;
}

/* What one context needs on the device; freed with it, but for the scores. */
struct mapping {
	struct queue *q;
	const struct mapper *m;
	const struct mapper_program *p;
	struct tensor *const *sums;
	int64_t n, cols;
	struct tensor *matrix, *params, *scale, *scores;
};

static int mapping_begin(struct mapping *a)
{
	struct device *d = queue_device(a->q);
	float *scale = mem_new((size_t)a->n, sizeof *scale);
	int rc = -1;
	a->matrix = tensor_new(d, a->p->rows, padded(a->cols));
	a->params = tensor_new(d, 1, a->p->n_params);
	a->scale = tensor_new(d, 1, a->n);
	a->scores = tensor_new(d, a->p->targets, a->n);
	mapper_scale(a->m, a->n, scale);
	if (a->matrix && a->params && a->scale && a->scores)
		rc = tensor_write(a->q, a->params, 0, 1, a->p->params) || tensor_write(a->q, a->scale, 0, 1, scale) ? -1 : 0;
	free(scale);
	return rc;
}

/* Scores of positions [from, to), from the strip [first, first + cols). */
static int map_strip(struct mapping *a, int64_t first, int64_t cols, int64_t from, int64_t to)
{
	const struct mapper_program *p = a->p;
	for (int l = 0; l < p->proxy_layers; l++)
		if (op_copy(a->q, a->matrix, p->x + (int64_t)l * p->proxy_heads, 0, a->sums[l], 0, first, p->proxy_heads, cols))
			return -1;
	return op_copy(a->q, a->matrix, p->scale, 0, a->scale, 0, first, 1, cols) ||
			       op_steps(a->q, a->matrix, cols, a->params, p->step, p->steps) ||
			       op_copy(a->q, a->scores, 0, from, a->matrix, p->score, from - first, p->targets, to - from)
		       ? -1
		       : 0;
}

static int map_all(struct mapping *a)
{
	for (int64_t from = 0, to; from < a->n; from = to) {
		int64_t first = from > a->p->halo ? from - a->p->halo : 0, cols = a->n - first < a->cols ? a->n - first : a->cols;
		to = first + cols < a->n ? first + cols - a->p->halo : a->n;
		if (map_strip(a, first, cols, from, to))
			return -1;
	}
	return 0;
}

struct tensor *mapping_scores(
	struct queue *q, const struct mapper *m, struct tensor *const *sums, int64_t n, int64_t work_bytes, char err[ERR_LEN])
{
	if (mapper_refuses(m, n, err))
		return NULL;
	struct mapper_program *p = mapper_program_new(m);
	struct mapping a = {.q = q, .m = m, .p = p, .sums = sums, .n = n, .cols = strip_cols(p, n, work_bytes)};
	if (mapping_begin(&a) || map_all(&a)) {
		err_set(err, "the mapper, over %lld positions: %s", (long long)n, device_error(queue_device(q)));
		tensor_free(a.scores);
		a.scores = NULL;
	}
	tensor_free(a.matrix);
	tensor_free(a.params);
	tensor_free(a.scale);
	mapper_program_free(p);
	return a.scores;
}
