/* page.h: the parts of the HTML page, each appended to a text. Inside report/ only. */
#ifndef KVB_REPORT_PAGE_H
#define KVB_REPORT_PAGE_H

#include "report/data.h"

extern const char page_css[], page_js[];

void page_tables(struct strbuf *out, const struct data *d, int panel); /* methods x ratios of one panel */
void page_averages(struct strbuf *out, const struct data *d);          /* of whole suites; nothing where none is whole */
void page_times(struct strbuf *out, const struct data *d);             /* every timed cell */
/* Answers of the full cache beside those of a pruned one, a few of each cell. */
void page_samples(struct strbuf *out, const struct data *d);

#endif
