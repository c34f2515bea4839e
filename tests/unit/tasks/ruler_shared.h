/* ruler_shared.h: for tests of RULER: the shared files laid out as the generator's folder, and kvpress's published predictions.
 */
#ifndef KVB_TEST_RULER_SHARED_H
#define KVB_TEST_RULER_SHARED_H

#include "tests/unit/tasks/helpers.h"

#define RULER_PREDICTIONS "data/ruler/results/kvpress_llama31_8b_4096_centrality_0.25/predictions.csv"

static const struct {
	const char *name, *below;
} ruler_files[] = {
	{"templates.json", "data/ruler/templates.upstream.json"},
	{"nounlist.txt", "data/ruler/source/wonderwords/nounlist.txt"},
	{"adjectivelist.txt", "data/ruler/source/wonderwords/adjectivelist.txt"},
	{"verblist.txt", "data/ruler/source/wonderwords/verblist.txt"},
	{"PaulGrahamEssays.json", "data/ruler/source/PaulGrahamEssays.json"},
	{"squad.json", "data/ruler/source/squad_dev_v2_half.json"},
	{"hotpotqa.json", "data/ruler/source/hotpot_dev_distractor_100.json"},
};
enum { RULER_FILES = sizeof(ruler_files) / sizeof(ruler_files[0]) };

/* A fresh folder of links to the shared files, under upstream's names; NULL when they are not there. */
static inline char *ruler_folder_make(void)
{
	char link[600], *folder = text_copy("/tmp/kvb-ruler-XXXXXX");
	if (!shared_path(ruler_files[0].below) || !mkdtemp(folder)) {
		free(folder);
		return NULL;
	}
	for (int i = 0; i < RULER_FILES; i++) {
		const char *path = shared_path(ruler_files[i].below);
		char *whole = path ? realpath(path, NULL) : NULL;
		snprintf(link, sizeof(link), "%s/%s", folder, ruler_files[i].name);
		assert_true(whole && !symlink(whole, link));
		free(whole);
	}
	return folder;
}

static inline void ruler_folder_free(char *folder)
{
	char link[600];
	for (int i = 0; folder && i < RULER_FILES; i++) {
		snprintf(link, sizeof(link), "%s/%s", folder, ruler_files[i].name);
		unlink(link);
	}
	if (folder)
		rmdir(folder);
	free(folder);
}

/* One field of a CSV file into b; returns what ended it: ',', '\n' or EOF. */
static inline int csv_field(FILE *f, struct strbuf *b)
{
	int c = getc(f), quoted = c == '"';
	b->len = 0;
	strbuf_puts(b, "");
	if (quoted)
		c = getc(f);
	for (;; c = getc(f)) {
		if (quoted && c == '"') {
			c = getc(f);
			quoted = c == '"';
		}
		if (c == EOF || (!quoted && (c == ',' || c == '\n')))
			return c;
		if (quoted || c != '\r')
			strbuf_add(b, &(char){(char)c}, 1);
	}
}

/* The answers as numpy prints an array of strings: ['a' "it's"\n 'b']. Fills gold with copies. */
static inline int numpy_strings(const char *s, char *gold[64])
{
	int n = 0;
	while (*s && n < 64) {
		char quote = *s++;
		if (quote != '\'' && quote != '"')
			continue;
		struct strbuf b = {0};
		for (; *s && *s != quote; s++) {
			s += *s == '\\' && s[1];
			strbuf_add(&b, s, 1);
		}
		s += *s == quote;
		gold[n++] = strbuf_take(&b);
	}
	return n;
}

struct prediction {
	char *question, *answer_prefix, *gold[64];
	int n_gold;
};

static inline void predictions_free(struct prediction *p, int n)
{
	for (int i = 0; i < n; i++) {
		free(p[i].question);
		free(p[i].answer_prefix);
		while (p[i].n_gold)
			free(p[i].gold[--p[i].n_gold]);
	}
	free(p);
}

/* The published rows of one task, in order. */
static inline struct prediction *predictions_read(const char *task, int *n)
{
	enum { TASK = 1, ANSWER = 3, QUESTION = 5, PREFIX = 6, COLUMNS = 7 };
	FILE *f = fopen(shared_path(RULER_PREDICTIONS), "rb");
	struct strbuf field[COLUMNS] = {{0}};
	struct prediction *out = NULL;
	assert_non_null(f);
	*n = 0;
	for (int end = '\n'; end != EOF;) {
		int k = 0;
		do
			end = csv_field(f, &field[k++]);
		while (end == ',' && k < COLUMNS);
		if (k < COLUMNS || strcmp(field[TASK].text, task))
			continue;
		out = mem_grow(out, (size_t)*n + 1, sizeof(*out));
		struct prediction *p = &out[(*n)++];
		p->question = text_copy(field[QUESTION].text);
		p->answer_prefix = text_copy(field[PREFIX].text);
		p->n_gold = numpy_strings(field[ANSWER].text, p->gold);
	}
	for (int i = 0; i < COLUMNS; i++)
		strbuf_free(&field[i]);
	fclose(f);
	return out;
}

#endif
