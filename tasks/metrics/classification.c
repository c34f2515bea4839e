/* classification.c: LongBench's score of its few-shot classes (metrics.py: classification_score): of the classes named in the
 * answer's first line the right one, divided by how many there are.
 *
 * gold[0] is the right class, gold[1..] are all classes in the data's order (none = the right one alone). Upstream drops named
 * classes which are part of the right one's name, but from the list it is walking over, so that each time one is dropped the next
 * one is left unlooked at: kept. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/metrics/metrics.h"

double classification(const char *answer, char *const *gold, int n_gold)
{
	if (!n_gold)
		return NAN;
	const char *right = gold[0];
	char *line = text_first_line(answer);
	const char **named = mem_new((size_t)n_gold, sizeof(*named));
	int n = 0, has_right = 0;
	for (int i = n_gold > 1; i < n_gold; i++)
		if (strstr(line, gold[i]))
			named[n++] = gold[i];
	for (int i = 0; i < n; i++)
		if (strcmp(named[i], right) && strstr(right, named[i]))
			memmove(named + i, named + i + 1, (size_t)(--n - i) * sizeof(*named));
	for (int i = 0; i < n; i++)
		has_right |= !strcmp(named[i], right);
	free(named);
	free(line);
	return has_right ? 1. / n : 0;
}
