/* bytemap.c: open addressing with linear probing. */
#include "runners/model/bytemap.h"

#include <stdlib.h>
#include <string.h>

static uint64_t load8(const unsigned char *p, size_t n)
{
	uint64_t v = 0;
	memcpy(&v, p, n);
	return v;
}

/* Eight bytes a round, multiply and fold. Not against an adversary: a bad case costs time, never a wrong answer. */
static uint32_t hash_bytes(const void *key, size_t len)
{
	const unsigned char *p = key;
	uint64_t h = 0x9E3779B97F4A7C15u ^ len;
	for (; len >= 8; p += 8, len -= 8) {
		h = (h ^ load8(p, 8)) * 0xD6E8FEB86659FD93u;
		h ^= h >> 32;
	}
	h = (h ^ load8(p, len)) * 0xD6E8FEB86659FD93u;
	h ^= h >> 32;
	h *= 0xD6E8FEB86659FD93u;
	return (uint32_t)(h >> 32) | 1;
}

/* The key's slot, or the free one where it belongs. */
static struct bytemap_slot *find(const struct bytemap *m, const void *key, size_t len, uint32_t hash)
{
	for (size_t i = hash >> 1;; i++) { /* the lowest bit is always set */
		struct bytemap_slot *s = &m->slots[i & (m->n_slots - 1)];
		if (s->hash == 0 || (s->hash == hash && s->len == len && memcmp(m->keys.text + s->at, key, len) == 0))
			return s;
	}
}

const int64_t *bytemap_get(const struct bytemap *m, const void *key, size_t len)
{
	if (m->count == 0)
		return NULL;
	const struct bytemap_slot *s = find(m, key, len, hash_bytes(key, len));
	return s->hash ? &s->value : NULL;
}

static void grow(struct bytemap *m)
{
	struct bytemap_slot *old = m->slots;
	size_t n_old = m->n_slots;
	m->n_slots = n_old ? 2 * n_old : 64;
	m->slots = mem_new(m->n_slots, sizeof *m->slots);
	for (size_t i = 0; i < n_old; i++)
		if (old[i].hash)
			*find(m, m->keys.text + old[i].at, old[i].len, old[i].hash) = old[i];
	free(old);
}

void bytemap_put(struct bytemap *m, const void *key, size_t len, int64_t value)
{
	if (2 * (m->count + 1) > m->n_slots)
		grow(m);
	uint32_t hash = hash_bytes(key, len);
	struct bytemap_slot *s = find(m, key, len, hash);
	if (s->hash == 0) {
		*s = (struct bytemap_slot){m->keys.len, (uint32_t)len, hash, 0};
		strbuf_add(&m->keys, key, len);
		m->count++;
	}
	s->value = value;
}

void bytemap_clear(struct bytemap *m)
{
	if (m->slots)
		memset(m->slots, 0, m->n_slots * sizeof *m->slots);
	m->count = 0;
	m->keys.len = 0;
}

void bytemap_free(struct bytemap *m)
{
	free(m->slots);
	strbuf_free(&m->keys);
	*m = (struct bytemap){0};
}
