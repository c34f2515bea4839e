/* text.h: any text of the database made harmless for a page: HTML, JSON inside a page. Inside report/ only. Fields of
 * other tables: harness/base.
 *
 * One rule for all of them: bytes that are not UTF-8 and characters XML does not allow become U+FFFD; the controls that turn the
 * direction of writing (U+202A..202E, U+2066..2069) are written out as [U+202E], since an answer could else make its neighbours
 * read backwards. NULL writes nothing. */
#ifndef KVB_REPORT_TEXT_H
#define KVB_REPORT_TEXT_H

#include "harness/base/base.h"

/* HTML/XML text or attribute value: the five special characters as entities. html_cut stops after max bytes (at a character) and
 * says how many are left. */
void html_text(struct strbuf *out, const char *s);
void html_cut(struct strbuf *out, const char *s, size_t max);
/* A JSON string with its quotes; "<" as an escape, so that no text ends the script element it stands in. Cut as html_cut. */
void json_text(struct strbuf *out, const char *s, size_t max);
/* A copy without what tells where it was made: every path is cut to its last part, the host's name is "host". Caller frees. */
char *text_public(const char *s, const char *host);

#endif
