/* ruler_fit.c: how many units a row gets so that prompt and answer fill the length, and rows that came out too long.
 *
 * Upstream fits once, on rows that are thrown away, and goes on drawing: the number of probes decides every later row. Present
 * release: binary search between one step and a generous bound. Release of 2024: one step more until it is too much. Rows: while
 * one is too long it gets a step less and is drawn again; where upstream would go on for ever, this ends in an error.
 * Own: row i draws from a stream of its own, so any row can be made alone; the size is found on row 0, to about one unit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/ruler/ruler.h"

int64_t ruler_no_limit(const struct ruler *r)
{
	(void)r;
	return INT64_MAX;
}

int ruler_no_room(const struct ruler *r, int64_t size, int64_t tokens, char err[ERR_LEN])
{
	return err_set(err, "%s: a row of %lld %s takes %lld tokens with its answer, the length is %lld%s", r->config->name,
		(long long)size, r->config->family->unit, (long long)tokens + r->new_tokens, (long long)r->budget,
		ruler_is_own(r) ? "" : " (upstream's steps are coarse: generator own fits any length)");
}

/* One row of this size, and its tokens without an answer. -1 = error, 1 = upstream stumbles. */
static int probe(struct ruler *r, struct ruler_draft *d, int index, int64_t size, bool final, int64_t *tokens, char err[ERR_LEN])
{
	const struct ruler_family *f = r->config->family;
	if (size < f->least(r))
		return ruler_no_room(r, f->least(r), *tokens, err);
	ruler_draft_clear(d);
	int rc = f->write(r, d, index, size, final, err);
	if (rc)
		return rc;
	*tokens = ruler_draft_tokens(r, d, err);
	return *tokens < 0 ? -1 : 0;
}

/* A probe whose row nobody gets. counted: with the answers behind it, as the release of 2024 counts. */
static int64_t probe_tokens(struct ruler *r, int64_t size, bool counted, char err[ERR_LEN])
{
	struct ruler_draft d = {.needle_at = SIZE_MAX};
	int64_t tokens = 0;
	int rc = probe(r, &d, 0, size, false, &tokens, err);
	if (!rc && counted) {
		r->config->family->counted(&d, &d.text);
		tokens = ruler_draft_tokens(r, &d, err);
	}
	ruler_draft_free(&d);
	if (rc > 0)
		err_set(err, "%s: upstream's generator fails at this length and seed", r->config->name);
	return rc ? -1 : tokens;
}

/* Python's a // b of floats */
static double floor_divide(double a, double b)
{
	return round((a - fmod(a, b)) / b);
}

/* Largest size that binary search would look at: three times, cwe twice, what one probe lets expect. */
static int64_t upper_bound(const struct ruler *r, int64_t tokens, int64_t size)
{
	double a_unit = (double)tokens / (double)size, budget = (double)r->budget;
	int64_t bound =
		r->config->family->first_probe ? (int64_t)floor_divide(budget, a_unit) * 2 : (int64_t)(budget / a_unit * 3);
	return bound > 2 * r->step ? bound : 2 * r->step;
}

/* Where a list is missing that upstream has, larger probes are left out: other draws, so other rows; a row that would need it
 * fails. */
static int64_t bound_cut(struct ruler *r, int64_t high)
{
	int64_t most = r->config->family->most(r);
	r->cut = high > most;
	return r->cut ? most : high;
}

static int fit_current(struct ruler *r, char err[ERR_LEN])
{
	int64_t first = r->config->family->first_probe ? r->config->family->first_probe : r->step;
	int64_t tokens = probe_tokens(r, first, false, err), low = r->step, high;
	high = tokens < 0 ? -1 : bound_cut(r, upper_bound(r, tokens - r->example_tokens, first));
	r->size = r->step;
	while (tokens >= 0 && low <= high) {
		int64_t mid = (low + high) / 2;
		tokens = probe_tokens(r, mid, false, err);
		if (tokens + r->new_tokens <= r->budget) {
			r->size = mid;
			low = mid + 1;
		} else {
			high = mid - 1;
		}
	}
	if (tokens >= 0 && r->cut && r->size == r->config->family->most(r))
		return err_set(err,
			"%s: this length takes more than %lld %s: upstream's long list (english_words.json) is not there",
			r->config->name, (long long)r->size, r->config->family->unit);
	return tokens < 0 ? -1 : 0;
}

static int fit_oct2024(struct ruler *r, char err[ERR_LEN])
{
	int64_t most = r->config->family->most(r), total = r->new_tokens + r->example_tokens;
	for (r->size = r->step; total < r->budget; r->size += r->step) {
		int64_t tokens = probe_tokens(r, r->size, true, err);
		if (tokens < 0)
			return -1;
		total = tokens + r->new_tokens;
		if (total > r->budget) {
			r->size -= r->step;
			break;
		}
		if (r->size + r->step > most) {
			r->size = most;
			break;
		}
	}
	return 0;
}

int ruler_fit_upstream(struct ruler *r, char err[ERR_LEN])
{
	r->step = r->config->family->step(r);
	return r->oct2024 ? fit_oct2024(r, err) : fit_current(r, err);
}

int ruler_row_upstream(struct ruler *r, struct ruler_draft *d, int index, char err[ERR_LEN])
{
	int64_t size = r->size, tokens = 0;
	for (int i = 0; i < RULER_REDRAWS; i++) {
		int rc = probe(r, d, index, size, true, &tokens, err);
		if (rc < 0 || (!rc && tokens + r->new_tokens <= r->budget))
			return rc;
		if (size > r->step)
			size -= r->step;
	}
	return ruler_no_room(r, size, tokens, err);
}

/* ---- own ---- */

static void own_stream(struct ruler *r, int index)
{
	const uint32_t words[] = {(uint32_t)r->seed, (uint32_t)(r->seed >> 32), (uint32_t)index + 1};
	r->random.python = twister_python(words, 3);
	r->random.numpy = r->random.python;
	python_bits(&r->random.python, 32); /* two streams which are not the same */
}

/* Tokens of row `index` with this size and its answer; negative = error. Draws again where draws stumble. */
static int64_t own_tokens(struct ruler *r, struct ruler_draft *d, int index, int64_t size, char err[ERR_LEN])
{
	int64_t tokens = 0;
	own_stream(r, index);
	for (int rc = 1, i = 0; rc && i < RULER_REDRAWS; i++)
		if ((rc = probe(r, d, index, size, true, &tokens, err)) < 0)
			return -1;
	return tokens + r->new_tokens;
}

struct own_bracket {
	int64_t fits, fits_tokens; /* the largest size known to fit */
	int64_t over, over_tokens; /* the smallest known not to; 0 tokens = never tried */
	double a_unit;             /* tokens of a unit, as far as seen */
};

/* The size where a straight line through what is known meets the length. */
static int64_t own_guess(const struct ruler *r, struct own_bracket *b)
{
	if (b->over_tokens > b->fits_tokens)
		b->a_unit = (double)(b->over_tokens - b->fits_tokens) / (double)(b->over - b->fits);
	int64_t guess = b->fits + (int64_t)((double)(r->budget - b->fits_tokens) / b->a_unit);
	return guess <= b->fits ? b->fits + 1 : guess >= b->over ? b->over - 1 : guess;
}

static int own_try(struct ruler *r, struct own_bracket *b, struct ruler_draft *d, char err[ERR_LEN])
{
	int64_t size = own_guess(r, b), tokens = own_tokens(r, d, 0, size, err);
	if (tokens > r->budget) {
		b->over = size;
		b->over_tokens = tokens;
		return 0;
	}
	if (tokens > b->fits_tokens)
		b->a_unit = (double)(tokens - b->fits_tokens) / (double)(size - b->fits);
	b->fits = size;
	b->fits_tokens = tokens;
	return tokens < 0 ? -1 : 0;
}

int ruler_fit_own(struct ruler *r, char err[ERR_LEN])
{
	enum { TRIES = 12 }; /* texts are counted whole: near enough is good */
	struct ruler_draft d = {.needle_at = SIZE_MAX};
	int64_t least = r->config->family->least(r), most = r->config->family->most(r), tokens = own_tokens(r, &d, 0, least, err);
	int failed = tokens < 0 ? -1 : tokens > r->budget ? ruler_no_room(r, least, tokens - r->new_tokens, err) : 0;
	struct own_bracket b = {least, tokens, most == INT64_MAX ? most : most + 1, 0, (double)tokens / (double)least};
	/* a_unit of the least size alone holds the prompt and the answer, too: it does not say that no unit more fits */
	for (int i = 0; i < TRIES && !failed && b.over - b.fits > 1 && (!i || (double)(r->budget - b.fits_tokens) >= b.a_unit);
		i++)
		failed = own_try(r, &b, &d, err);
	r->size = b.fits;
	ruler_draft_free(&d);
	return failed;
}

/* Too long by how much says how many units go. */
int ruler_row_own(struct ruler *r, struct ruler_draft *d, int index, char err[ERR_LEN])
{
	int64_t size = r->size, tokens;
	while ((tokens = own_tokens(r, d, index, size, err)) > r->budget) {
		int64_t over = (tokens - r->budget) * size / tokens + 1, least = r->config->family->least(r);
		if (size == least)
			return ruler_no_room(r, size, tokens - r->new_tokens, err);
		size = size - over > least ? size - over : least;
	}
	return tokens < 0 ? -1 : 0;
}
