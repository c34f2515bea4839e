/* jieba.c: see jieba.h. In three steps: blocks of Chinese and Latin characters; in a block the best path through the words of the
 * dictionary, right to left, by log frequency; what that path leaves as single characters goes to a hidden Markov model over the
 * places Begin, Middle, End, Single. Where scores tie, Python compares the tuples' second part: the larger end or letter wins. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/metrics/jieba.h"
#include "tasks/metrics/metrics.h"

enum { HAN_FIRST = 0x4e00, HAN_LAST = 0x9fd5, HAN = HAN_LAST - HAN_FIRST + 1, SLOTS = 1 << 20 };
enum state { BEGIN, END, MIDDLE, SINGLE, STATES }; /* in the order of their letters: B E M S */
static const double MISSING = -3.14e100;

/* A word or the beginning of one (freq 0); len 0 = free. */
struct slot {
	uint32_t at; /* in dict */
	uint16_t len;
	int32_t freq;
};

static struct {
	char *dict; /* the file's bytes */
	struct slot *slots;
	int used;
	double log_total;
	double start[STATES], trans[STATES][STATES], emit[STATES][HAN];
	char err[ERR_LEN]; /* "" = loaded */
} model;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- the prefix dictionary ---- */

static uint64_t hash_add(uint64_t h, const char *s, size_t len) /* FNV-1a: the hash of a prefix is a step to the word's */
{
	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)s[i]) * 0x100000001b3u;
	return h;
}
static const uint64_t HASH_EMPTY = 0xcbf29ce484222325u;

/* The slot of this text, or the free one where it would go. */
static struct slot *slot_find(uint64_t h, const char *s, size_t len)
{
	for (size_t i = (h ^ h >> 32) & (SLOTS - 1);; i = (i + 1) & (SLOTS - 1)) {
		struct slot *t = &model.slots[i];
		if (!t->len || (t->len == len && !memcmp(model.dict + t->at, s, len)))
			return t;
	}
}

static size_t character_bytes(const char *s, size_t left)
{
	size_t n = 1;
	while (n < left && ((unsigned char)s[n] & 0xc0) == 0x80)
		n++;
	return n;
}

/* Every beginning of the word gets a slot, the whole word its frequency. */
static int word_add(const char *word, size_t len, int32_t freq)
{
	uint64_t h = HASH_EMPTY;
	for (size_t n = 0; n < len;) {
		size_t step = character_bytes(word + n, len - n);
		h = hash_add(h, word + n, step);
		n += step;
		struct slot *t = slot_find(h, word, n);
		if (!t->len) {
			if (++model.used > SLOTS * 3 / 4 || n > UINT16_MAX)
				return -1;
			*t = (struct slot){(uint32_t)(word - model.dict), (uint16_t)n, 0};
		}
		if (n == len)
			t->freq = freq;
	}
	return 0;
}

/* Lines "word frequency tag". */
static int dictionary_read(const char *path)
{
	size_t size;
	int64_t total = 0;
	if (file_read(path, &model.dict, &size, model.err))
		return -1;
	model.slots = mem_new(SLOTS, sizeof(*model.slots));
	for (const char *line = model.dict; *line;) {
		const char *end = line + strcspn(line, "\n"), *blank = memchr(line, ' ', (size_t)(end - line));
		char *after;
		long freq = blank ? strtol(blank + 1, &after, 10) : 0;
		if (!blank || blank == line || after == blank + 1 || freq < 0 || freq > INT32_MAX ||
			word_add(line, (size_t)(blank - line), (int32_t)freq))
			return err_set(model.err, "%s: not jieba's dictionary: %.40s", path, line);
		total += freq;
		line = end + (*end != '\0');
	}
	model.log_total = log((double)total);
	return total > 0 ? 0 : err_set(model.err, "%s: an empty dictionary", path);
}

/* ---- the HMM's tables: Python source, P={'B': -0.26, ..} or P={'B': {'x': -3.6, ..}, ..} ---- */

static int state_of(int32_t key)
{
	const char *letters = "BEMS", *at = key < 128 && key > 0 ? strchr(letters, key) : NULL;
	return at ? (int)(at - letters) : -1;
}

/* A quoted key of one character, perhaps as \uXXXX; *p moves behind the colon. 0 = no such. */
static int32_t key_read(const char **p)
{
	const char *s = *p + 1, *end = strchr(s, '\'');
	int32_t key = strncmp(s, "\\u", 2) ? text_next(&s) : (int32_t)strtol(s + 2, NULL, 16);
	if (!end || strncmp(end, "': ", 3))
		return 0;
	*p = end + 3;
	return key;
}

typedef int table_put(int outer, int32_t key, double value);

static int put_start(int outer, int32_t key, double value)
{
	int s = state_of(key);
	if (outer >= 0 || s < 0)
		return -1;
	model.start[s] = value;
	return 0;
}

static int put_trans(int outer, int32_t key, double value)
{
	int s = state_of(key);
	if (outer < 0 || s < 0)
		return -1;
	model.trans[outer][s] = value;
	return 0;
}

static int put_emit(int outer, int32_t key, double value)
{
	if (outer < 0)
		return -1;
	if (key >= HAN_FIRST && key <= HAN_LAST) /* the model sees no others */
		model.emit[outer][key - HAN_FIRST] = value;
	return 0;
}

static int table_read(const char *path, table_put *put)
{
	char *text;
	size_t len;
	int outer = -1, values = 0;
	if (file_read(path, &text, &len, model.err))
		return -1;
	int failed = 0;
	for (const char *p = text; !failed && (p = strpbrk(p, "'}"));) {
		if (*p == '}') {
			outer = -1;
			p++;
			continue;
		}
		int32_t key = key_read(&p);
		char *end = (char *)p;
		if (key && *p == '{') {
			failed = (outer = state_of(key)) < 0;
			continue;
		}
		double value = key ? strtod(p, &end) : 0;
		failed = end == p || put(outer, key, value);
		values++;
		p = end;
	}
	free(text);
	return failed || !values ? err_set(model.err, "%s: not a table of jieba's model", path) : 0;
}

static void tables_clear(void)
{
	for (int s = 0; s < STATES; s++) {
		model.start[s] = MISSING;
		for (int i = 0; i < STATES; i++)
			model.trans[s][i] = MISSING;
		for (int i = 0; i < HAN; i++)
			model.emit[s][i] = MISSING;
	}
}

static void load(void)
{
	static const struct {
		const char *name;
		table_put *put;
	} tables[] = {{"prob_start.py", put_start}, {"prob_trans.py", put_trans}, {"prob_emit.py", put_emit}};
	const char *folder = getenv("KVB_JIEBA");
	if (!folder)
		folder = "/usr/lib/python3/dist-packages/jieba";
	char *dict = text_format("%s/dict.txt", folder);
	tables_clear();
	int failed =
		!file_exists(dict)
			? err_set(model.err,
				  "Chinese tasks need jieba's dictionary: install the Debian package python3-jieba (no %s)", dict)
			: dictionary_read(dict);
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]) && !failed; i++) {
		char *path = text_format("%s/finalseg/%s", folder, tables[i].name);
		failed = table_read(path, tables[i].put);
		free(path);
	}
	free(dict);
}

int jieba_load(char err[ERR_LEN])
{
	pthread_once(&once, load);
	return *model.err ? err_set(err, "%s", model.err) : 0;
}

/* ---- cutting ---- */

struct cutter {
	const char *text;
	struct codes c;
	void (*token)(void *user, const char *token, size_t len);
	void *user;
};

static void give(struct cutter *k, int from, int to)
{
	k->token(k->user, k->text + k->c.at[from], k->c.at[to] - k->c.at[from]);
}

static bool is_han(int32_t c)
{
	return c >= HAN_FIRST && c <= HAN_LAST;
}

static bool is_latin(int32_t c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool in_block(int32_t c)
{
	return is_han(c) || is_latin(c) || (c && c < 128 && strchr("+#&._%-", c));
}

/* The end of the run of characters that are (or are not) of a kind. */
static int run_end(const struct codes *c, int from, int to, bool (*kind)(int32_t), bool want)
{
	while (from < to && kind(c->v[from]) == want)
		from++;
	return from;
}

struct hop {
	double score[STATES];
	char from[STATES]; /* the state before */
};

/* The most likely states of c[from, to), written to states. */
static void viterbi(const struct codes *c, int from, int to, char *states)
{
	static const char before[STATES][2] = {{END, SINGLE}, {BEGIN, MIDDLE}, {BEGIN, MIDDLE}, {END, SINGLE}};
	int n = to - from;
	struct hop *hops = mem_new((size_t)n, sizeof(*hops));
	for (int s = 0; s < STATES; s++)
		hops[0].score[s] = model.start[s] + model.emit[s][c->v[from] - HAN_FIRST];
	for (int i = 1; i < n; i++)
		for (int s = 0; s < STATES; s++) {
			double emit = model.emit[s][c->v[from + i] - HAN_FIRST];
			int low = before[s][0], high = before[s][1];
			double a = hops[i - 1].score[low] + model.trans[low][s] + emit;
			double b = hops[i - 1].score[high] + model.trans[high][s] + emit;
			hops[i].score[s] = b >= a ? b : a;
			hops[i].from[s] = (char)(b >= a ? high : low);
		}
	int s = hops[n - 1].score[SINGLE] >= hops[n - 1].score[END] ? SINGLE : END;
	for (int i = n - 1; i >= 0; i--) {
		states[i] = (char)s;
		s = hops[i].from[s];
	}
	free(hops);
}

static void cut_han(struct cutter *k, int from, int to)
{
	char *states = mem_new((size_t)(to - from), 1);
	viterbi(&k->c, from, to, states);
	int begin = from, next = from;
	for (int i = from; i < to; i++) {
		char s = states[i - from];
		if (s == BEGIN)
			begin = i;
		if (s == END || s == SINGLE) {
			give(k, s == END ? begin : i, i + 1);
			next = i + 1;
		}
	}
	if (next < to)
		give(k, next, to);
	free(states);
}

/* The end of [a-zA-Z0-9]+(\.\d+)?%? */
static int latin_end(const struct codes *c, int from, int to)
{
	int i = run_end(c, from, to, is_latin, true);
	if (i + 1 < to && c->v[i] == '.' && c->v[i + 1] >= '0' && c->v[i + 1] <= '9')
		for (i++; i < to && c->v[i] >= '0' && c->v[i] <= '9';)
			i++;
	return i < to && c->v[i] == '%' ? i + 1 : i;
}

/* Characters which no word of the dictionary took. */
static void cut_unknown(struct cutter *k, int from, int to)
{
	while (from < to) {
		bool han = is_han(k->c.v[from]);
		int end = run_end(&k->c, from, to, is_han, han);
		if (han)
			cut_han(k, from, end);
		for (int i = from, next; !han && i < end; i = next) {
			next = is_latin(k->c.v[i]) ? latin_end(&k->c, i, end) : run_end(&k->c, i, end, is_latin, false);
			give(k, i, next);
		}
		from = end;
	}
}

static int32_t frequency(const struct cutter *k, int from, int to)
{
	const char *s = k->text + k->c.at[from];
	size_t len = k->c.at[to] - k->c.at[from];
	const struct slot *t = slot_find(hash_add(HASH_EMPTY, s, len), s, len);
	return t->len ? t->freq : 0;
}

static void cut_single(struct cutter *k, int from, int to)
{
	if (to - from > 1 && !frequency(k, from, to))
		return cut_unknown(k, from, to);
	for (; from < to; from++)
		give(k, from, from + 1);
}

/* Where the best word from each character ends, in ends[0, to-from). */
static void best_path(const struct cutter *k, int from, int to, int *ends)
{
	double *score = mem_new((size_t)(to - from) + 1, sizeof(*score));
	for (int i = to - 1; i >= from; i--) {
		const char *s = k->text + k->c.at[i];
		uint64_t h = HASH_EMPTY;
		double best = -INFINITY;
		for (int j = i; j < to; j++) {
			h = hash_add(h, k->text + k->c.at[j], k->c.at[j + 1] - k->c.at[j]);
			const struct slot *t = slot_find(h, s, k->c.at[j + 1] - k->c.at[i]);
			if (!t->len)
				break;
			double here = t->freq ? log(t->freq) - model.log_total + score[j + 1 - from] : -INFINITY;
			if (t->freq && here >= best) {
				best = here;
				ends[i - from] = j + 1;
			}
		}
		if (!ends[i - from]) { /* no word begins here: the character alone, as if its frequency were 1 */
			best = -model.log_total + score[i + 1 - from];
			ends[i - from] = i + 1;
		}
		score[i - from] = best;
	}
	free(score);
}

static void cut_block(struct cutter *k, int from, int to)
{
	int *ends = mem_new((size_t)(to - from), sizeof(*ends));
	best_path(k, from, to, ends);
	int single = from; /* the first of the single characters waiting */
	for (int i = from, end; i < to; i = end) {
		end = ends[i - from];
		if (end - i == 1)
			continue;
		cut_single(k, single, i);
		give(k, i, end);
		single = end;
	}
	cut_single(k, single, to);
	free(ends);
}

void jieba_cut(const char *text, void (*token)(void *user, const char *token, size_t len), void *user)
{
	struct cutter k = {.text = text, .c = text_codes(text), .token = token, .user = user};
	for (int i = 0, end; i < k.c.n; i = end) {
		if (in_block(k.c.v[i])) {
			end = run_end(&k.c, i, k.c.n, in_block, true);
			cut_block(&k, i, end);
		} else {
			end = i + 1 + (k.c.v[i] == '\r' && i + 1 < k.c.n && k.c.v[i + 1] == '\n');
			give(&k, i, end);
		}
	}
	codes_free(&k.c);
}
