/* needles.c: the functions RepoQA's answers are compared with: those which the file's rows ask for, by repository. */
#include <stdlib.h>
#include <string.h>

#include "tasks/scbench/scbench.h"

static bool has(const struct needles *s, const char *repo, const char *name, const char *text)
{
	for (int i = 0; i < s->n; i++)
		if (!strcmp(s->v[i].repo, repo) && !strcmp(s->v[i].name, name) && !strcmp(s->v[i].text, text))
			return true;
	return false;
}

void needles_add(struct needles *s, const json_t *row, int n_turns)
{
	const char *repo = json_string_value(json_object_get(row, "repo"));
	const json_t *turns = json_object_get(row, "multi_turns");
	for (int i = 0; repo && i < n_turns; i++) {
		const json_t *turn = json_array_get(turns, (size_t)i);
		const char *name = json_string_value(json_object_get(turn, "name"));
		const char *text = json_string_value(json_object_get(turn, "answer"));
		const char *task = json_string_value(json_object_get(turn, "task"));
		if (!name || !text || (task && strcmp(task, "scbench_repoqa")) || has(s, repo, name, text))
			continue;
		s->v = mem_grow(s->v, (size_t)s->n + 1, sizeof(*s->v));
		s->v[s->n++] = (struct needle){text_copy(repo), text_copy(name), text_copy(text)};
	}
}

void needles_free(struct needles *s)
{
	for (int i = 0; i < s->n; i++) {
		free(s->v[i].repo);
		free(s->v[i].name);
		free(s->v[i].text);
	}
	free(s->v);
	*s = (struct needles){0};
}
