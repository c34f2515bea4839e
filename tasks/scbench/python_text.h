/* python_text.h: JSON values as Python's str() writes them: upstream formats lists of numbers and answers this way. */
#ifndef KVB_PYTHON_TEXT_H
#define KVB_PYTHON_TEXT_H

#include <jansson.h>

#include "harness/base/base.h"

/* A text is itself; in a list it is quoted ("['a', 'b']"). Appends to b. -1: an object is not written. */
int python_str(struct strbuf *b, const json_t *v);

#endif
