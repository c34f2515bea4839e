/* linear.c: y = x W^T over packed panels: cuts rows and panels into items for the threads.
 *
 * X is packed once for a group of rows (and rounded to bf16 where that is the precision), then items of LINEAR_ROWS rows x
 * LINEAR_PANELS panels run in any order: every element of y is one sum over ascending k inside one item. */
#include "runners/device/cpu/cpu.h"

struct linear_job {
	struct device *d;
	const struct weight *w;
	const float *x, *bias;
	float *out; /* first row of the group, first column */
	int64_t x_ld, out_ld, col0, cols, rows, tile_bytes, block_rows, row_blocks, block_panels;
	bool add;
};

static void pack_tile(void *arg, int64_t tile, int thread)
{
	struct linear_job *j = arg;
	const struct cpu_kernels *kernels = j->d->kernels;
	int64_t row = tile * kernels->tile_rows, rows = j->rows - row < kernels->tile_rows ? j->rows - row : kernels->tile_rows;
	(void)thread;
	kernels->pack_rows((char *)j->d->shared + tile * j->tile_bytes, j->x + row * j->x_ld, j->x_ld, rows, j->w->k, j->d->bf16);
}

static void linear_block(void *arg, int64_t item, int thread)
{
	struct linear_job *j = arg;
	int64_t row = item % j->row_blocks * j->block_rows, panel = item / j->row_blocks * j->block_panels, col = panel * PANEL;
	int64_t rows = j->rows - row < j->block_rows ? j->rows - row : j->block_rows;
	int64_t cols = j->cols - col < j->block_panels * PANEL ? j->cols - col : j->block_panels * PANEL;
	struct linear_item a = {
		.x = (char *)j->d->shared + row / j->d->kernels->tile_rows * j->tile_bytes,
		.rows = rows,
		.k = j->w->k_pad,
		.w = (char *)j->w->w + (j->col0 / PANEL + panel) * j->w->panel_bytes,
		.panel_bytes = j->w->panel_bytes,
		.bias = j->bias ? j->bias + j->col0 + col : NULL,
		.out = j->out + row * j->out_ld + col,
		.out_ld = j->out_ld,
		.cols = cols,
		.bf16 = j->d->bf16,
		.add = j->add,
	};
	j->d->kernels->linear(&a, device_scratch(j->d, thread));
}

static int64_t at_least_one(int64_t n)
{
	return n < 1 ? 1 : n;
}

/* Blocks of equal size, small enough that every thread gets some; sizes never change a result. */
static void choose_blocks(struct linear_job *j, int threads, int tile_rows)
{
	int64_t panels = (j->cols + PANEL - 1) / PANEL;
	j->row_blocks = (j->rows + LINEAR_ROWS - 1) / LINEAR_ROWS;
	j->block_rows = round_up((j->rows + j->row_blocks - 1) / j->row_blocks, tile_rows);
	int64_t most = at_least_one(panels * j->row_blocks / (4 * threads));
	int64_t blocks = (panels + LINEAR_PANELS - 1) / (most < LINEAR_PANELS ? most : LINEAR_PANELS);
	j->block_panels = (panels + at_least_one(blocks) - 1) / at_least_one(blocks);
	if (j->block_panels > LINEAR_PANELS)
		j->block_panels = LINEAR_PANELS;
}

int op_linear(struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *w, const struct tensor *bias,
	int64_t col0, int64_t cols, bool add, int64_t rows)
{
	struct device *d = q->d;
	if (x->cols < w->k || rows > x->rows || rows > out->rows || cols > out->cols || col0 % PANEL || col0 < 0 ||
		col0 + cols > w->n || (bias && bias->cols < w->n))
		return device_fail(d, "op_linear: [%lld, %lld] by columns [%lld, +%lld) of a [%lld, %lld] weight does not fit",
			(long long)rows, (long long)x->cols, (long long)col0, (long long)cols, (long long)w->n, (long long)w->k);
	int tile_rows = d->kernels->tile_rows;
	int64_t packed = round_up(rows < LINEAR_GROUP ? rows : LINEAR_GROUP, tile_rows) * w->k_pad * 4;
	if (packed > d->shared_bytes) {
		device_free(d, d->shared, d->shared_bytes);
		d->shared = device_alloc(d, packed);
		d->shared_bytes = d->shared ? packed : 0;
		if (!d->shared)
			return -1;
	}
	int64_t begin = profile_begin(d);
	for (int64_t row = 0; row < rows; row += LINEAR_GROUP) {
		struct linear_job j = {.d = d,
			.w = w,
			.x = x->x + row * x->cols,
			.bias = bias ? bias->x : NULL,
			.out = out->x + row * out->cols,
			.x_ld = x->cols,
			.out_ld = out->cols,
			.col0 = col0,
			.cols = cols,
			.rows = rows - row < LINEAR_GROUP ? rows - row : LINEAR_GROUP,
			.tile_bytes = tile_rows * w->k_pad * 4,
			.add = add};
		choose_blocks(&j, pool_threads(d->pool), tile_rows);
		int64_t panels = (cols + PANEL - 1) / PANEL;
		pool_run(d->pool, (j.rows + tile_rows - 1) / tile_rows, pack_tile, &j);
		pool_run(d->pool, j.row_blocks * ((panels + j.block_panels - 1) / j.block_panels), linear_block, &j);
	}
	profile_end(d, rows <= LINEAR_FEW ? PROFILE_LINEAR_FEW : PROFILE_LINEAR, begin,
		2.0 * (double)rows * (double)w->k * (double)cols, (double)weight_bytes(d, cols, w->k));
	return 0;
}
