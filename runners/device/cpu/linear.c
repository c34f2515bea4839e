/* linear.c: y = x W^T over packed panels: cuts rows and panels into items for the threads. An item of q and k holds whole heads and finishes them.
 *
 * Plain X is packed once for a group of rows (and rounded to bf16 where that is the precision); an operand of blocks is packed
 * already. Items of some rows x some panels run in any order: every element of y is one sum over ascending k inside one item. */
#include "runners/device/cpu/cpu.h"

struct linear_job {
	struct cpu_device *d;
	const struct cpu_weight *w;
	const float *x;     /* plain rows of the group, to be packed */
	const char *packed; /* tiles of tile_bytes */
	struct tensor *out;
	const float *bias;
	int64_t x_ld, row0, col0, cols, rows, tile_bytes; /* row0: of the group, in x and out */
	int64_t block_rows, row_blocks, block_panels, panel_blocks;
	bool add, swiglu;
	const struct head_epilogue *heads; /* NULL = none */
};

static void pack_tile(void *arg, int64_t tile, int thread)
{
	struct linear_job *j = arg;
	const struct cpu_kernels *kernels = j->d->kernels;
	int64_t row = tile * kernels->tile_rows, rows = j->rows - row < kernels->tile_rows ? j->rows - row : kernels->tile_rows;
	(void)thread;
	kernels->pack_rows((char *)j->packed + tile * j->tile_bytes, j->x + row * j->x_ld, j->x_ld, rows, j->w->head.k, j->d->head.bf16);
}

/* Panels whose multiples end between heads; 0 = heads and panels do not fit, so that heads wait for all columns. */
static int64_t head_panels(const struct head_epilogue *e)
{
	return e->d % PANEL == 0 && e->col % e->d == 0 ? e->d / PANEL : 0;
}

/* The heads in columns [col, col + cols). */
static void finish_heads(const struct linear_job *j, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
	const struct head_epilogue *e = j->heads;
	int64_t first = col > e->col ? (col - e->col) / e->d : 0, end = (col + cols - e->col) / e->d, n = e->q_heads + e->k_heads;
	end = end < n ? end : n;
	if (first < end)
		cpu_heads_finish(j->d->kernels, e, j->out, j->row0 + row, rows, first, end - first);
}

enum { HEAD_ROWS = 16 };
static void late_heads(void *arg, int64_t item, int thread)
{
	struct linear_job *j = arg;
	int64_t row = item * HEAD_ROWS;
	(void)thread;
	finish_heads(j, row, j->rows - row < HEAD_ROWS ? j->rows - row : HEAD_ROWS, 0, j->cols);
}

static void linear_block(void *arg, int64_t item, int thread)
{
	struct linear_job *j = arg;
	struct tensor *out = j->out;
	int64_t row = item / j->panel_blocks * j->block_rows, panel = item % j->panel_blocks * j->block_panels, col = panel * PANEL;
	struct linear_item a = {
		.x = j->packed + row / j->d->kernels->tile_rows * j->tile_bytes,
		.rows = j->rows - row < j->block_rows ? j->rows - row : j->block_rows,
		.k = j->w->k_pad,
		.w = (char *)j->w->w + (j->col0 / PANEL + panel) * j->w->panel_bytes,
		.panel_bytes = j->w->panel_bytes,
		.bias = j->bias ? j->bias + j->col0 + col : NULL,
		.out_ld = out->cols,
		.cols = j->cols - col < j->block_panels * PANEL ? j->cols - col : j->block_panels * PANEL,
		.bf16 = j->d->head.bf16,
		.add = j->add,
		.swiglu = j->swiglu,
	};
	if (out->operand && cpu_has_blocks(&j->d->head)) {
		a.operand = operand_row(out, j->row0 + row);
		a.operand_blocks = operand_blocks(out);
		a.panel0 = panel;
	} else
		a.out = out->x + (j->row0 + row) * out->cols + (j->swiglu ? col / 2 : col);
	j->d->kernels->linear(&a, cpu_scratch(&j->d->head, thread));
	if (j->heads && head_panels(j->heads))
		finish_heads(j, row, a.rows, col, a.cols);
}

static int64_t parts(int64_t n, int64_t size)
{
	return (n + size - 1) / size;
}

/* Blocks of equal size, small enough that every thread gets some; sizes never change a result. For few rows W is all there is to read:
 * one piece a thread, so that it streams. */
static void choose_blocks(struct linear_job *j)
{
	int64_t rows, least, most, panels = parts(j->cols, PANEL), threads = pool_threads(j->d->head.pool);
	j->d->kernels->linear_limits(j->w->k_pad, &rows, &least, &most);
	int64_t own = j->d->kernels->own_rows ? j->rows / j->d->kernels->own_rows : 0; /* so many threads may have rows of their own */
	own = own < threads ? own : threads;
	j->row_blocks = parts(j->rows, rows);
	j->row_blocks = j->row_blocks < own ? own : j->row_blocks;
	j->block_rows = round_up(parts(j->rows, j->row_blocks), j->d->kernels->tile_rows);
	j->row_blocks = parts(j->rows, j->block_rows);
	int64_t share = panels * j->row_blocks / ((j->rows <= FEW_ROWS ? 1 : 4) * threads);
	share = share < least ? least : share > most ? most : share;
	j->block_panels = parts(panels, parts(panels, share));
	int64_t whole = j->heads ? head_panels(j->heads) : 0;
	if (whole) {
		j->block_panels = round_up(j->block_panels, whole);
		j->block_panels = j->block_panels > most ? most / whole * whole : j->block_panels;
	}
	j->panel_blocks = parts(panels, j->block_panels);
}

static int packed_room(struct cpu_device *d, int64_t bytes)
{
	if (bytes <= d->shared_bytes)
		return 0;
	device_free(&d->head, d->shared, d->shared_bytes);
	d->shared = device_alloc(&d->head, bytes);
	d->shared_bytes = d->shared ? bytes : 0;
	return d->shared ? 0 : -1;
}

/* Rows of x whose packed form is there. */
static void run_group(struct linear_job *j)
{
	choose_blocks(j);
	pool_run_near(j->d->head.pool, j->row_blocks * j->panel_blocks, linear_block, j);
	if (j->heads && !head_panels(j->heads))
		pool_run_near(j->d->head.pool, parts(j->rows, HEAD_ROWS), late_heads, j);
}

static int run(struct queue *q, struct linear_job j, const struct tensor *x, const struct weight *weight, int64_t rows)
{
	struct cpu_device *d = cpu_device(q->d);
	bool blocks = cpu_has_blocks(q->d);
	j.d = d;
	j.w = cpu_weight(weight);
	j.tile_bytes = d->kernels->tile_rows * j.w->k_pad * (blocks ? 2 : 4);
	if (x->operand && blocks) {
		if (operand_blocks(x) * OPERAND_BLOCK != j.w->k_pad)
			return device_fail(q->d, "op_linear: an operand of %lld columns by a weight of %lld", (long long)x->cols, (long long)weight->k);
		j.packed = (const char *)x->x;
		j.rows = rows;
		run_group(&j);
		return 0;
	}
	if (packed_room(d, parts(rows < LINEAR_GROUP ? rows : LINEAR_GROUP, d->kernels->tile_rows) * j.tile_bytes))
		return -1;
	j.packed = d->shared;
	j.x_ld = x->cols;
	for (int64_t row = 0; row < rows; row += LINEAR_GROUP) {
		j.row0 = row;
		j.x = x->x + row * x->cols;
		j.rows = rows - row < LINEAR_GROUP ? rows - row : LINEAR_GROUP;
		pool_run_near(q->d->pool, parts(j.rows, d->kernels->tile_rows), pack_tile, &j);
		run_group(&j);
	}
	return 0;
}

int cpu_linear(struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *w, const struct tensor *bias,
	int64_t col0, int64_t cols, bool add, const struct head_epilogue *heads, int64_t rows)
{
	struct linear_job j = {.out = out, .bias = bias ? bias->x : NULL, .col0 = col0, .cols = cols, .add = add, .heads = heads};
	return run(q, j, x, w, rows);
}

int cpu_linear_swiglu(struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *w, int64_t rows)
{
	return run(q, (struct linear_job){.out = out, .cols = w->n, .swiglu = true}, x, w, rows);
}
