/* loss.c: see loss.h. */
#include "report/loss.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RESAMPLES = 1000 };

/* The differences of one panel, summed by context. */
struct clusters {
	double *sum; /* [n] */
	int *count, n;
	double mean;
};

static void clusters_free(struct clusters *c)
{
	free(c->sum);
	free(c->count);
}

/* What is added up over the panels of one setting for one variant and ratio. */
struct tally {
	struct clusters *panel;
	int n_panels, contexts;
	bool complete;
	double effect; /* of the setting; NAN = not known */
};

static void add_panel(struct tally *t, struct loss *v, const struct cell *c, const struct cell *full)
{
	struct clusters k = {mem_new((size_t)c->n_samples, sizeof *k.sum), mem_new((size_t)c->n_samples, sizeof *k.count), 0, 0};
	int *context = cell_contexts(c), n = 0;
	for (int i = 0; i < c->n_samples; i++) {
		const struct sample *s = &c->samples[i], *f = cell_sample(full, s->id);
		if (!s->ok || !f || !f->ok)
			continue;
		double change = s->score - f->score;
		k.sum[context[i]] += change;
		k.count[context[i]]++;
		k.mean += change;
		v->better += change > .005;
		v->worse += change < -.005;
		n++;
	}
	int used = 0; /* contexts with a pair */
	for (int i = 0; i < c->n_samples; i++)
		if (k.count[i]) {
			k.sum[used] = k.sum[i];
			k.count[used++] = k.count[i];
		}
	free(context);
	if (n == 0) {
		clusters_free(&k);
		return;
	}
	k.n = used;
	k.mean /= n;
	t->panel = mem_grow(t->panel, (size_t)t->n_panels + 1, sizeof *t->panel);
	t->panel[t->n_panels++] = k;
	t->contexts += used;
	t->complete = t->complete && n == c->row.planned;
	v->samples += n;
	v->score += c->score.mean;
	v->kept += c->row.retained_mean;
}

static double resampled_mean(const struct tally *t, struct rng *rng)
{
	double all = 0;
	for (int p = 0; p < t->n_panels; p++) {
		const struct clusters *k = &t->panel[p];
		double sum = 0;
		int count = 0;
		for (int i = 0; i < k->n; i++) {
			int pick = (int)rng_below(rng, (uint64_t)k->n);
			sum += k->sum[pick];
			count += k->count[pick];
		}
		all += sum / count;
	}
	return all / t->n_panels;
}

/* What n answers without a difference still allow. */
static double unseen(const struct tally *t, const struct loss *v)
{
	double n = isnan(t->effect) ? t->contexts : fmax(t->contexts, v->samples / t->effect);
	return 1 - pow(.025, 1 / n);
}

static struct interval loss_interval(const struct tally *t, const struct loss *v)
{
	struct interval r = {0, NAN, NAN, v->samples};
	double x[RESAMPLES], least = unseen(t, v);
	struct rng rng = rng_seed(1, 0);
	for (int p = 0; p < t->n_panels; p++)
		r.mean += t->panel[p].mean / t->n_panels;
	if (t->contexts < 2)
		return r;
	for (int i = 0; i < RESAMPLES; i++)
		x[i] = resampled_mean(t, &rng);
	r.lo = fmax(fmin(stats_quantile(x, RESAMPLES, .025), r.mean - least), -1);
	r.hi = fmin(fmax(stats_quantile(x, RESAMPLES, .975), r.mean + least), 1);
	return r;
}

static enum loss_class classify(const struct interval *change)
{
	const double margin = LOSS_MARGIN / 100.0;
	if (isnan(change->lo))
		return UNDECIDED;
	return change->lo >= -margin                                                ? HOLDS
	       : change->hi < -margin || (change->hi < 0 && change->mean < -margin) ? LOSES
										    : UNDECIDED;
}

static double median_ratio(const struct data *d, int setting, int variant, int ppm)
{
	double *x = mem_new((size_t)d->n_panels, sizeof *x), median;
	int n = 0;
	for (int p = 0; p < d->n_panels; p++) {
		const struct cell *c = d->panels[p].setting == setting ? data_cell(d, p, variant, ppm) : NULL;
		double ratio = c ? data_ttft_ratio(d, c) : NAN;
		if (!isnan(ratio))
			x[n++] = ratio;
	}
	median = stats_quantile(x, n, .5);
	free(x);
	return median;
}

/* Squared ratio of the clustered to the plain standard error of a cell's changes; NAN = nothing changed, or one context. */
static double cell_effect(const struct cell *c, const struct cell *full)
{
	double *x = mem_new((size_t)c->n_samples, sizeof *x), ratio;
	int *context = cell_contexts(c), n = 0;
	for (int i = 0; i < c->n_samples; i++) {
		const struct sample *f = cell_sample(full, c->samples[i].id);
		if (!f || !f->ok || !c->samples[i].ok)
			continue;
		context[n] = context[i];
		x[n++] = c->samples[i].score - f->score;
	}
	ratio = stats_standard_error_clusters(x, context, n) / stats_standard_error(x, n);
	free(x);
	free(context);
	return isfinite(ratio) && ratio > 0 ? ratio * ratio : NAN;
}

/* The mean over a setting's cells, at least 1: answers about one context are never better than independent ones. */
static double design_effect(const struct data *d, int setting)
{
	double sum = 0;
	int n = 0;
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i], *full = data_full(d, c->panel);
		bool counts = d->panels[c->panel].setting == setting && full && !d->variants[c->variant].full &&
			      c->row.retained_ppm < 1000000;
		double effect = counts ? cell_effect(c, full) : NAN;
		if (!isnan(effect)) {
			sum += effect;
			n++;
		}
	}
	return n ? fmax(sum / n, 1) : NAN;
}

static void make_one(struct loss *v, const struct data *d, int setting, int variant, int ppm, int panels, double effect)
{
	struct tally t = {.complete = true, .effect = effect};
	*v = (struct loss){
		.change = {NAN, NAN, NAN, 0}, .score = 0, .ttft = median_ratio(d, setting, variant, ppm), .ttft_ppm = ppm};
	for (int p = 0; p < d->n_panels; p++) {
		const struct cell *c = d->panels[p].setting == setting ? data_cell(d, p, variant, ppm) : NULL;
		const struct cell *full = c ? data_full(d, p) : NULL;
		if (full && full->score.n > 0 && c->score.n > 0)
			add_panel(&t, v, c, full);
	}
	v->panels = t.n_panels;
	v->whole = t.n_panels == panels && t.complete;
	if (t.n_panels > 0) {
		v->score /= t.n_panels;
		v->kept /= t.n_panels;
		v->change = loss_interval(&t, v);
		v->class = classify(&v->change);
	}
	for (int p = 0; p < t.n_panels; p++)
		clusters_free(&t.panel[p]);
	free(t.panel);
}

/* Where a ratio was not timed, the nearest that was stands in, and says so: a first token's time hangs on the method far more
 * than on the ratio. */
static void borrow_times(struct loss *row, const struct data *d)
{
	double *own = mem_new((size_t)d->n_ppm, sizeof *own);
	for (int k = 0; k < d->n_ppm; k++)
		own[k] = row[k].ttft;
	for (int k = 0; k < d->n_ppm; k++) {
		int best = -1;
		for (int j = 0; j < d->n_ppm && isnan(own[k]); j++)
			if (!isnan(own[j]) && (best < 0 || abs(d->ppm[j] - d->ppm[k]) < abs(d->ppm[best] - d->ppm[k])))
				best = j;
		if (best >= 0) {
			row[k].ttft = own[best];
			row[k].ttft_ppm = d->ppm[best];
		}
	}
	free(own);
}

void losses_make(struct losses *out, const struct data *d)
{
	*out = (struct losses){.n_variants = d->n_variants, .n_ppm = d->n_ppm};
	out->v = mem_new((size_t)d->n_settings * d->n_variants * d->n_ppm, sizeof *out->v);
	out->panels = mem_new((size_t)d->n_settings, sizeof *out->panels);
	for (int p = 0; p < d->n_panels; p++) {
		const struct cell *full = data_full(d, p);
		out->panels[d->panels[p].setting] += full && full->score.n > 0;
	}
	struct loss *v = out->v;
	for (int s = 0; s < d->n_settings; s++) {
		double effect = design_effect(d, s);
		for (int i = 0; i < d->n_variants; i++) {
			for (int k = 0; k < d->n_ppm; k++)
				make_one(&v[k], d, s, i, d->ppm[k], out->panels[s], effect);
			borrow_times(v, d);
			v += d->n_ppm;
		}
	}
}

void losses_free(struct losses *v)
{
	free(v->v);
	free(v->panels);
	*v = (struct losses){0};
}

const struct loss *loss_at(const struct losses *v, int setting, int variant, int ratio)
{
	return &v->v[((size_t)setting * v->n_variants + variant) * v->n_ppm + ratio];
}

static bool fast_enough(const struct loss *v)
{
	return !isnan(v->ttft) && 100 * v->ttft <= LOSS_SLOW;
}

bool loss_pick(const struct losses *v, const struct data *d, int setting, bool fast, struct pick *out)
{
	for (int k = 0; k < d->n_ppm && d->ppm[k] < 1000000; k++) {
		*out = (struct pick){-1, k, NULL};
		for (int i = 0; i < d->n_variants; i++) {
			const struct loss *x = loss_at(v, setting, i, k);
			if (d->variants[i].control || x->class != HOLDS || !x->whole || (fast && !fast_enough(x)))
				continue;
			if (!out->loss || x->change.mean > out->loss->change.mean ||
				(x->change.mean == out->loss->change.mean && x->ttft < out->loss->ttft))
				*out = (struct pick){i, k, x};
		}
		if (out->loss)
			return true;
	}
	return false;
}

bool loss_nearest(const struct losses *v, const struct data *d, int setting, struct pick *out)
{
	*out = (struct pick){-1, -1, NULL};
	for (int k = 0; k < d->n_ppm && d->ppm[k] < 1000000; k++)
		for (int i = 0; i < d->n_variants; i++) {
			const struct loss *x = loss_at(v, setting, i, k);
			if (d->variants[i].control || !x->whole || isnan(x->change.mean))
				continue;
			if (!out->loss || x->change.mean > out->loss->change.mean)
				*out = (struct pick){i, k, x};
		}
	return out->loss;
}
