/* The dialect of the tiny pair: vocabulary and sample generator, used by tinypair.c only.
 *
 * The words are those of the NIAH task's "tiny" wording (tasks/niah_words.h), which must stay what the models were trained on.
 * A sample is a conversation of token ids; texts look like
 *   <|begin|><|user|>The old man saw the lake. Code amber 482 137. Code otter falcon 120 007. ...
 *   Recall amber, otter falcon.<|end|><|assistant|> amber 482 137, otter falcon 120 007.<|end|>
 * Key words never occur in filler sentences.  Nothing is stored: every sample is drawn afresh. */
#include "tasks/niah_words.h"

#define MAXT 4096

/* ---------------------------------------------------------------- random numbers */
static unsigned long long rng = 88172645463325252ull;
static unsigned r32(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (unsigned)(rng >> 32);
}

static float ru(void)
{
	return (float)(r32() >> 8) * (1.f / 16777216);
}

static int ri(int n)
{
	return n > 0 ? (int)(r32() % (unsigned)n) : 0;
}

static float rn(void)
{
	float s = 0;
	for (int i = 0; i < 12; i++)
		s += ru();
	return s - 6;
}

static void shuffle(int *a, int n)
{
	for (int i = n - 1; i > 0; i--) {
		int j = ri(i + 1), t = a[i];
		a[i] = a[j];
		a[j] = t;
	}
}

/* ---------------------------------------------------------------- vocabulary */
enum { PAD, BEGIN, END, USER, ASST, SYS, BYTE0 = 16, NUM0 = 272, START0 = NUM0 + 1000 };
enum {
	SP0 = START0 + WORDS(words_start),
	FUNC0 = SP0 + WORDS(words_start),
	KEY0 = FUNC0 + WORDS(words_func),
	NOUN0 = KEY0 + WORDS(words_key),
	ADJ0 = NOUN0 + WORDS(words_noun),
	VERB0 = ADJ0 + WORDS(words_adj),
	ADV0 = VERB0 + WORDS(words_verb),
	VUSED = ADV0 + WORDS(words_adv),
	V = (VUSED + 31) / 32 * 32,
	NKEY = WORDS(words_key)
};
enum { DOT = BYTE0 + '.', COMMA = BYTE0 + ',', NL = BYTE0 + '\n' };
enum { S_THE, S_ONE, S_EVERY, S_SOME, S_MY, S_OUR, S_HER, S_HIS, S_CODE, S_RECALL, S_REPEAT };
enum { F_THE, F_A, F_OF, F_IN, F_FROM = 13, F_FIRST = 22, F_TEXT = 25 };

static void print_vocab(void)
{
	static const char *const special[] = {"pad", "begin", "end", "user", "assistant", "system"};
	for (int i = 0; i < BYTE0; i++)
		if (i < WORDS(special))
			printf("\"<|%s|>\"\n", special[i]);
		else
			printf("\"<|reserved_%d|>\"\n", i);
	for (int i = 0; i < 256; i++)
		printf("%d\n", i); /* a bare number: a byte */
	for (int i = 0; i < 1000; i++)
		printf("\" %03d\"\n", i);
	for (int i = 0; i < WORDS(words_start); i++)
		printf("\"%s\"\n", words_start[i]);
	for (int i = 0; i < WORDS(words_start); i++)
		printf("\" %s\"\n", words_start[i]);
	const char *const *const list[] = {words_func, words_key, words_noun, words_adj, words_verb, words_adv};
	const int n[] = {
		WORDS(words_func), WORDS(words_key), WORDS(words_noun), WORDS(words_adj), WORDS(words_verb), WORDS(words_adv)};
	for (int l = 0; l < WORDS(n); l++)
		for (int i = 0; i < n[l]; i++)
			printf("\" %s\"\n", list[l][i]);
	for (int i = VUSED; i < V; i++)
		printf("\"<|reserved_%d|>\"\n", i);
}

/* ---------------------------------------------------------------- data */
/* lab[i] describes the prediction of x[i+1]: 0 none, VAL part of a value, REST another token of an
 * answer, COPY a token of a repeated segment. */
enum { NONE, VAL, REST, COPY };
/* pos: RoPE positions; cut: starts of the sentences and questions */
typedef struct {
	int n, x[MAXT + 64], lab[MAXT + 64], pos[MAXT + 64], cut[MAXT / 4], ncut;
} Sample;
typedef struct {
	int k[2], nk, v[2], link;
} Needle; /* link: 0, or 1 + index of the needle which holds the value */
static float zipf_noun[WORDS(words_noun)];
static int narrow = 0; /* first stage: mostly 200 numbers and 100 keys */

static void put(Sample *s, int tok)
{
	if (s->n < MAXT + 60)
		s->x[s->n++] = tok;
}

static void say(Sample *s, int tok, int kind)
{
	s->lab[s->n - 1] = kind;
	put(s, tok);
}

static int zipf(int base, int n)
{ /* frequency ~ 1/(rank+4) */
	float u = ru() * zipf_noun[n - 1];
	int a = 0, b = n - 1;
	while (a < b) {
		int m = (a + b) / 2;
		if (zipf_noun[m] < u)
			a = m + 1;
		else
			b = m;
	}
	return base + a;
}

static int number(void)
{
	return NUM0 + (narrow && ru() < .8f ? ri(200) : ri(1000));
}

/* one filler sentence; templates: S starter, n noun, a adjective, v verb, d adverb, t "the", p preposition */
static int filler(int *o)
{
	static const char *const form[] = {
		"Snvtn", "Sanvtn", "Snvtan", "Snvtnd", "Sanvtnptn", "Snvtnptan", "Snptnvtn", "Sanvtanptn"};
	int n = 0;
	for (const char *f = form[ri(WORDS(form))]; *f; f++)
		switch (*f) {
		case 'S':
			o[n++] = SP0 + (ru() < .5f ? S_THE : ri(8));
			break;
		case 'n':
			o[n++] = zipf(NOUN0, WORDS(words_noun));
			break;
		case 'a':
			o[n++] = zipf(ADJ0, WORDS(words_adj));
			break;
		case 'v':
			o[n++] = zipf(VERB0, WORDS(words_verb));
			break;
		case 'd':
			o[n++] = zipf(ADV0, WORDS(words_adv));
			break;
		case 't':
			o[n++] = FUNC0 + (ru() < .8f ? F_THE : F_A);
			break;
		default:
			o[n++] = FUNC0 + F_OF + ri(15);
			break;
		}
	o[n++] = DOT;
	return n;
}

static void put_needle(Sample *s, const Needle *all, const Needle *d)
{
	put(s, SP0 + S_CODE);
	for (int i = 0; i < d->nk; i++)
		put(s, d->k[i]);
	if (d->link)
		put(s, FUNC0 + F_FROM), put(s, all[d->link - 1].k[0]);
	else
		put(s, d->v[0]), put(s, d->v[1]);
	put(s, DOT);
}

static void put_question(Sample *s, const Needle *d, const int *which, int n)
{
	put(s, NL);
	put(s, START0 + S_RECALL);
	for (int i = 0; i < n; i++) {
		for (int j = 0; j < d[which[i]].nk; j++)
			put(s, d[which[i]].k[j]);
		put(s, i + 1 < n ? COMMA : DOT);
	}
	put(s, END);
	put(s, ASST);
	for (int i = 0; i < n; i++) {
		const Needle *q = &d[which[i]];
		for (int j = 0; j < q->nk; j++)
			say(s, q->k[j], REST);
		for (; q->link; q = &d[q->link - 1])
			say(s, FUNC0 + F_FROM, REST), say(s, d[q->link - 1].k[0], VAL);
		say(s, q->v[0], VAL);
		say(s, q->v[1], VAL);
		say(s, i + 1 < n ? COMMA : DOT, REST);
	}
	say(s, END, REST);
}

/* raw repetition: a random segment of random length, again and again */
static void copy_sample(Sample *s, int T)
{
	int per = ru() < .5f && T > 48 ? 8 + ri(16) : 8 + ri((T - 1) / 2 - 7), seg[MAXT];
	for (int i = 0; i < per; i++)
		seg[i] = ru() < .4f ? number() : narrow && ru() < .8f ? KEY0 + ri(100) : KEY0 + ri(VUSED - KEY0);
	put(s, BEGIN);
	for (int i = 1; i < T; i++)
		if (i > per)
			say(s, seg[(i - 1) % per], COPY);
		else
			put(s, seg[(i - 1) % per]);
}

/* Needles: single keys, groups of two-word keys with a common first word, ordinal groups (the multi-value task).
 * kind: 0 training mix, 1 single needle, 2 multi-key, 3 multi-value, 4 multi-query, 5 two-word keys, 6 chains. */
enum { MIX, SINGLE, MULTIKEY, MULTIVALUE, MULTIQUERY, TWOWORD, CHAIN, KINDS };
static const char *const kind_name[] = {"mix", "needle", "multikey", "multivalue", "multiquery", "twoword", "chain"};
static int make_needles(Needle *d, int *group, int want, int kind)
{
	int perm[NKEY], n = 0, a = 0, b = NKEY, g = 0, pool = narrow && ru() < .8f ? 100 : NKEY;
	float pg = 0; /* share of groups among the keys */
	if (kind == TWOWORD)
		pg = 1;
	else if (kind == MULTIVALUE || kind == MULTIQUERY)
		pg = .1f;
	else if (kind == MIX)
		pg = ru() < .5f ? 0.f : ru() * .7f;
	float po = kind == MULTIVALUE ? 1.f : kind == TWOWORD ? 0.f : .4f;
	for (int i = 0; i < pool; i++)
		perm[i] = KEY0 + i;
	shuffle(perm, pool);
	b = pool;
	int second = 4 + ri(13); /* second words are shared between the groups */
	b -= second;
	while (n < want && a < b) {
		int k = perm[a++], ordinal = ru() < po, m = 1;
		if ((kind == MULTIVALUE && n == 0) || ru() < pg) {
			m = ordinal ? 2 + ri(2) : 1 + ri(4); /* a group */
			int w[24];
			for (int i = 0; i < second; i++)
				w[i] = perm[b + i];
			shuffle(w, second);
			for (int i = 0; i < m; i++, n++) {
				d[n] = (Needle){{k, ordinal ? FUNC0 + F_FIRST + i : w[i]}, 2, {0, 0}, 0};
				group[n] = ordinal ? g : -1;
			}
		} else {
			d[n] = (Needle){{k, 0}, 1, {0, 0}, 0};
			group[n++] = -1;
		}
		g++;
	}
	/* links to another needle, 2 hops at most */
	float pl = kind == CHAIN ? .6f : kind != MIX || narrow || ru() < .5f ? 0.f : ru() * .6f;
	for (int i = 0; i < n; i++) {
		d[i].v[0] = number();
		d[i].v[1] = number();
		int j = ri(i);
		if (i && ru() < pl && d[i].nk == 1 && d[j].nk == 1 && !(d[j].link && d[d[j].link - 1].link))
			d[i].link = j + 1;
	}
	return n;
}

/* A context of needles and filler, then questions at the end, or (training) questions in between.
 * With repeat set, the context is followed by a request to repeat it. */
static void needle_sample(Sample *s, int T, int kind, int want, int maxq, int inter, int repeat)
{
	static Needle d[512];
	static int group[512], q[512][3], qn[512], ev[4096], fs[MAXT / 4][16], fn[MAXT / 4];
	int n = make_needles(d, group, want, kind), nq = 0, used = 2 + (repeat ? 0 : 1), order[512], nev = 0, nf = 0;
	int room = repeat ? (T - 8) / 2 : T;
	for (int i = 0; i < n; i++) { /* drop the needles which do not fit */
		int l = 4 + d[i].nk;
		if (used + l > room - 14) {
			n = i;
			break;
		}
		used += l;
	}
	if (n < 1) {
		n = 1;
		used += 5;
		d[0].nk = 1;
		d[0].link = 0;
		d[0].k[0] = KEY0 + ri(NKEY);
		group[0] = -1;
	}
	if (n > 1 && group[n - 1] >= 0 && group[n - 2] != group[n - 1])
		group[n - 1] = -1;
	for (int i = 0; i < n; i++)
		order[i] = i;
	for (int round = 0; round < (inter && n < 8 ? 3 : 1) && !repeat; round++) { /* questions */
		shuffle(order, n);
		for (int i = 0; i < n && nq < maxq && nq < 400;) {
			int o = order[i], m = 1, *w = q[nq];
			w[0] = o;
			i++;
			if (group[o] >= 0 && (kind == MULTIVALUE || ru() < .6f)) { /* the whole ordinal group, in order */
				m = 0;
				for (int j = 0; j < n && m < 3; j++)
					if (group[j] == group[o])
						w[m++] = j;
			} else if (d[o].nk == 1 && !d[o].link &&
				   (kind == MULTIQUERY || (kind == MIX && ru() < (narrow ? .15f : .35f)))) {
				int upto = 2 + ri(2);
				while (m < upto && i < n && d[order[i]].nk == 1 && !d[order[i]].link)
					w[m++] = order[i++];
				if (kind == MULTIQUERY && m < 2)
					continue;
			} else if (kind == MULTIVALUE || kind == MULTIQUERY)
				continue;
			else if ((kind == TWOWORD && d[o].nk < 2) || (kind == CHAIN && !d[o].link))
				continue;
			int l = 6;
			for (int j = 0; j < m; j++)
				l += 2 * d[w[j]].nk + 4;
			for (int j = o; d[j].link; j = d[j].link - 1)
				l += 2;
			if (used + l > T)
				break;
			used += l;
			qn[nq++] = m;
		}
	}
	for (int left = room - used; nf < MAXT / 4;) { /* filler sentences */
		int l = fn[nf] = filler(fs[nf]);
		if (l > left)
			break;
		left -= l;
		nf++;
	}
	for (int i = 0; i < n; i++)
		ev[nev++] = i;
	for (int i = 0; i < nf; i++)
		ev[nev++] = 1000 + i;
	shuffle(ev, nev);
	for (int i = 0; i < n; i++)
		for (int j = i + 1; j < n && group[i] >= 0; j++) { /* ordinals in order */
			int a = 0, b = 0;
			if (group[j] != group[i])
				continue;
			for (int e = 0; e < nev; e++) {
				if (ev[e] == i)
					a = e;
				if (ev[e] == j)
					b = e;
			}
			if (a > b)
				ev[a] = j, ev[b] = i;
		}
	for (int i = 0; i < nq; i++) { /* events: needle < 1000 <= filler < 3000 <= question */
		int at = nev;
		if (inter) { /* anywhere after the needles which it needs */
			int last = 0;
			for (int e = 0; e < nev; e++)
				for (int j = 0; j < qn[i]; j++)
					for (int o = q[i][j] + 1; o; o = d[o - 1].link)
						if (ev[e] == o - 1)
							last = e;
			at = last + 1 + ri(nev - last);
		}
		memmove(ev + at + 1, ev + at, (size_t)(nev - at) * sizeof(int));
		ev[at] = 3000 + i;
		nev++;
	}
	put(s, BEGIN);
	put(s, USER);
	int fresh = 1; /* at the start of a user turn: the starter has no leading space */
	for (int e = 0; e < nev; e++) {
		s->cut[s->ncut++] = s->n;
		int at = s->n;
		if (ev[e] < 1000)
			put_needle(s, d, &d[ev[e]]);
		else if (ev[e] < 3000)
			for (int i = 0; i < fn[ev[e] - 1000]; i++)
				put(s, fs[ev[e] - 1000][i]);
		else
			put_question(s, d, q[ev[e] - 3000], qn[ev[e] - 3000]);
		if (ev[e] < 3000) {
			if (fresh)
				s->x[at] += START0 - SP0;
			fresh = 0;
		} else {
			fresh = 1;
			if (e + 1 < nev)
				put(s, USER);
		}
	}
	if (repeat) {
		int end = s->n;
		const int ask[] = {NL, START0 + S_REPEAT, FUNC0 + F_THE, FUNC0 + F_TEXT, DOT, END, ASST};
		for (int i = 0; i < WORDS(ask); i++)
			put(s, ask[i]);
		int from = ru() < .6f ? 2 : s->cut[ri(s->ncut)]; /* the whole text, or from some sentence on */
		for (int i = from; i < end; i++)
			say(s, s->x[i], i == from && from > 2 ? NONE : COPY);
		say(s, END, REST);
	}
}

/* one training sample of T tokens; first: the stage of 64 tokens, where half of the samples are raw repetition */
static void sample(Sample *s, int T, int first)
{
	memset(s->lab, 0, sizeof s->lab);
	s->n = s->ncut = 0;
	float u = ru();
	int most = T / 20 < 2 ? 2 : T / 20 > 160 ? 160 : T / 20;
	int want = ru() < .2f ? 1 + ri(3) : 1 + ri(most);
	if (u < (first ? .5f : .08f))
		copy_sample(s, T);
	else if (u < (first ? .5f : .16f))
		needle_sample(s, T, MIX, want, 0, 0, 1);
	else
		needle_sample(s, T, MIX, want, ru() < .7f ? 4 + T / 24 : 1 + ri(4 + T / 24), ru() < .35f, 0);
	int len = s->n < T ? s->n : T;
	for (int i = 0; i < T; i++)
		s->pos[i] = i;
	if (!first && s->ncut > 2 && T < MAXT && ru() < .25f) { /* gaps between sentences: cheap long distances */
		for (int j = 1 + ri(6), room = MAXT + 512 - T; j > 0; j--) {
			int c = s->cut[1 + ri(s->ncut - 1)], g = ri(room / 2);
			room -= g;
			for (int i = c; i < T; i++)
				s->pos[i] += g;
		}
	}
	for (int i = len; i < T; i++)
		s->x[i] = PAD, s->lab[i] = 0;
	if (s->n > T)
		s->n = T;
	for (int i = s->n - 1; i < T; i++)
		s->lab[i] = 0;
}
