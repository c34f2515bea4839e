/* samples.h: samples as the page's script reads them, and the viewer's frame. Inside report/ only.
 *
 * JSON: p panels [title, protocol]; v methods; t texts; i items (what several rows share): panel, id, question, expected, the answer
 * that stands beside (the full cache's, or the first source's), its score; c cells: panel, method, ppm; r rows: item, cell, answer,
 * score, flags, kept. Texts are indices into t, scores and shares thousandths, -1 = none; i, c and r are flat. */
#ifndef KVB_REPORT_SAMPLES_H
#define KVB_REPORT_SAMPLES_H

#include "report/data.h"

enum { ROW_WORSE = 1, ROW_BETTER = 2, ROW_EMPTY = 4, ROW_CUT = 8, ROW_FAILED = 16 }; /* flags of a row; the script knows them */

struct sample_block {
	struct data *d; /* owner of every text: equal texts are one address (data_keep) */
	struct strbuf panels, methods, items, cells, rows;
	const char **text; /* [n_texts] in order of their numbers */
	struct text_slot *texts;
	struct item_slot *item;
	size_t cap_text, cap_texts, cap_item;
	int n_texts, n_items, n_cells, n_rows;
};
/* One row; pointers owned by the block's data. reference NULL = none. */
struct sample_line {
	int panel, cell; /* cell: a number that sample_block_cell gave */
	const struct sample *sample, *reference;
	int flags;
};
void sample_block_panel(struct sample_block *b, const char *title, const char *protocol);
void sample_block_method(struct sample_block *b, const char *label);
int sample_block_cell(struct sample_block *b, int panel, int method, int ppm);
void sample_block_row(struct sample_block *b, const struct sample_line *line);
/* Writes the script element and frees the block. Texts are cut to so many bytes. names: of the two answers; NULL = full cache, pruned. */
void sample_block_end(struct sample_block *b, struct strbuf *out, size_t most_text, const char *const names[2]);

/* Flags of a sample beside another (NULL = none). */
int sample_flags(const struct sample *s, const struct sample *reference);
/* The right answers, one a line; kept by d. */
const char *sample_gold(struct data *d, const char *gold);
/* Filter, list and detail, empty and hidden: the script fills them. methods: the block's, NULL = not to be chosen. */
void samples_frame(struct strbuf *out, const struct data *d, const char *const *methods, int n_methods);

#endif
