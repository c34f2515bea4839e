/* numbering.c: a hash table from words to numbers (numbering.h). */
#include "tasks/metrics/numbering.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash(const char *word, size_t len)
{
	uint64_t h = 0xcbf29ce484222325; /* FNV-1a */
	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)word[i]) * 0x100000001b3;
	return h;
}

/* The word's slot, or the free one where it would go. */
static int *slot_of(const struct numbering *s, const char *word, size_t len)
{
	size_t mask = (size_t)s->n_slots - 1;
	for (size_t i = hash(word, len) & mask;; i = (i + 1) & mask) {
		const char *held = s->slots[i] ? s->words[s->slots[i] - 1] : NULL;
		if (!held || (!strncmp(held, word, len) && !held[len]))
			return &s->slots[i];
	}
}

static void grow(struct numbering *s)
{
	s->n_slots = s->n_slots ? s->n_slots * 2 : 64;
	free(s->slots);
	s->slots = mem_new((size_t)s->n_slots, sizeof(*s->slots));
	s->words = mem_grow(s->words, (size_t)s->n_slots / 2, sizeof(*s->words));
	for (int i = 0; i < s->n; i++)
		*slot_of(s, s->words[i], strlen(s->words[i])) = i + 1;
}

int numbering_of(struct numbering *s, const char *word, size_t len)
{
	if (s->n * 2 >= s->n_slots)
		grow(s);
	int *slot = slot_of(s, word, len);
	if (!*slot) {
		s->words[s->n] = text_format("%.*s", (int)len, word);
		*slot = ++s->n;
	}
	return *slot - 1;
}

int numbering_find(const struct numbering *s, const char *word, size_t len)
{
	return s->n ? *slot_of(s, word, len) - 1 : -1;
}

void numbering_free(struct numbering *s)
{
	for (int i = 0; i < s->n; i++)
		free(s->words[i]);
	free(s->words);
	free(s->slots);
	*s = (struct numbering){0};
}

void numbers_add(struct numbers *s, int number)
{
	if (s->n == s->cap)
		s->v = mem_grow(s->v, (size_t)(s->cap = s->cap * 2 + 64), sizeof(*s->v));
	s->v[s->n++] = number;
}
