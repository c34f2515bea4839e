/* ruler_upstream.c: NVIDIA's texts from a folder of fetched files (`kvbench fetch ruler`), the same to the bit.
 *
 * The folder holds, under upstream's names (each only needed by some tasks):
 *   templates.json            the prompts, read out of upstream's Python files
 *   nounlist.txt adjectivelist.txt verblist.txt       wonderwords 2.2.0
 *   english_words.json        cwe beyond 8,169 words
 *   PaulGrahamEssays.json     {"text"}     squad.json, hotpotqa.json
 *   punkt_tab.zip             NLTK's sentence splitter; without it sentence ends of the essay are approximated
 * Every file read goes into the identity. Rows come one after another out of one random stream: the state before each row is
 * kept, so that a row already passed is made again at once and a later one costs those before it. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/ruler/ruler.h"

#define PUNKT "punkt_tab.zip"

struct folder {
	const char *path;
	struct sha256 *hash;
};

/* ---- files ---- */

static bool folder_has(const struct folder *f, const char *name)
{
	char *path = text_format("%s/%s", f->path, name);
	bool there = file_exists(path);
	free(path);
	return there;
}

/* The whole file; the caller frees it. NULL = error set. */
static char *folder_read(const struct folder *f, const char *name, char err[ERR_LEN])
{
	char *path = text_format("%s/%s", f->path, name), *data = NULL, why[ERR_LEN];
	size_t len;
	if (file_read(path, &data, &len, why))
		err_set(err, "RULER's generator 'upstream' needs %s (`kvbench fetch ruler` gets it): %.300s", name, why);
	else
		sha256_add(f->hash, data, len);
	free(path);
	return data;
}

static json_t *folder_json(const struct folder *f, const char *name, char err[ERR_LEN])
{
	json_error_t why;
	char *data = folder_read(f, name, err);
	json_t *j = data ? json_loads(data, 0, &why) : NULL;
	if (data && !j)
		err_set(err, "%s/%s: %s (line %d)", f->path, name, why.text, why.line);
	free(data);
	return j;
}

/* Lines, right-stripped. The list keeps the file's text. */
static int lines_read(const struct folder *f, const char *name, struct ruler_words *w, char err[ERR_LEN])
{
	char *rest = w->text = folder_read(f, name, err), *line;
	while (rest && *rest) {
		line = strsep(&rest, "\n");
		size_t n = strlen(line);
		while (n && strchr(" \t\r\v\f", line[n - 1]))
			n--;
		line[n] = '\0';
		ruler_words_add(w, line);
	}
	return w->text ? 0 : -1;
}

/* ---- assets ---- */

static int template_text(const json_t *o, const char *family, const char *key, char **out, char err[ERR_LEN])
{
	const char *s = json_string_value(json_object_get(o, key));
	if (!s)
		return err_set(err, "templates.json: '%s' of '%s' is missing or not a text", key, family);
	*out = text_copy(s);
	return 0;
}

/* The release of 2024 wrote "assgined" in vt's answer prefix; the templates at hand may be those of the present one. */
static void spell_as_2024(struct ruler_template *t)
{
	t->answer_prefix = ruler_replace(t->answer_prefix, "assigned", "assgined");
}

static int template_load(const struct folder *f, struct ruler *r, char err[ERR_LEN])
{
	const struct ruler_family *family = r->config->family;
	struct ruler_template *t = &r->assets.template;
	json_t *all = folder_json(f, "templates.json", err);
	if (!all)
		return -1;
	const json_t *o = json_object_get(all, family->key), *niah = json_object_get(all, "niah");
	int failed = template_text(o, family->key, "template", &t->prompt, err) ||
		     template_text(o, family->key, "answer_prefix", &t->answer_prefix, err) ||
		     (family == &ruler_niah && template_text(niah, "niah", "needle", &t->needle, err)) ||
		     (r->config->haystack == HAYSTACK_NOISE && template_text(niah, "niah", "noise", &t->noise, err)) ||
		     (family == &ruler_qa && template_text(o, family->key, "document", &t->document, err));
	if (!failed && !task_new_tokens(json_object_get(o, "tokens_to_generate"), &t->new_tokens))
		failed = err_set(
			err, "templates.json: 'tokens_to_generate' of '%s' is missing or no number of tokens", family->key);
	if (!failed && !strstr(t->prompt, "{context}"))
		failed = err_set(err, "templates.json: the template of '%s' has no {context}", family->key);
	if (!failed && family == &ruler_vt && r->oct2024)
		spell_as_2024(t);
	json_decref(all);
	return failed ? -1 : 0;
}

static int pairs_load(const struct folder *f, struct ruler_assets *a, char err[ERR_LEN])
{
	if (lines_read(f, "nounlist.txt", &a->nouns, err) || lines_read(f, "adjectivelist.txt", &a->adjectives, err))
		return -1;
	ruler_words_sort(&a->nouns);
	ruler_words_sort(&a->adjectives);
	ruler_pairs_make(&a->pairs, &a->adjectives, &a->nouns);
	return a->pairs.n ? 0 : err_set(err, "%s: the word lists are empty", f->path);
}

static int essay_load(const struct folder *f, struct ruler_assets *a, char err[ERR_LEN])
{
	json_t *j = folder_json(f, "PaulGrahamEssays.json", err);
	const char *text = json_string_value(json_object_get(j, "text"));
	int failed = text ? 0 : j ? err_set(err, "%s/PaulGrahamEssays.json has no 'text'", f->path) : -1;
	if (!failed)
		ruler_essay_make(&a->essay, text);
	json_decref(j);
	if (failed || !folder_has(f, PUNKT))
		return failed;
	char *zip = text_format("%s/%s", f->path, PUNKT);
	a->essay.punkt = ruler_punkt_read(zip, f->hash, err);
	free(zip);
	return a->essay.punkt ? 0 : -1;
}

static int niah_load(const struct folder *f, struct ruler *r, char err[ERR_LEN])
{
	if (r->config->key == KIND_WORDS && pairs_load(f, &r->assets, err))
		return -1;
	return r->config->haystack == HAYSTACK_ESSAY ? essay_load(f, &r->assets, err) : 0;
}

/* The values of english_words.json in its order, doubles kept. */
static int long_words_load(const struct folder *f, struct ruler_words *w, char err[ERR_LEN])
{
	json_t *j = folder_json(f, "english_words.json", err);
	struct strbuf b = {0};
	const char *key;
	json_t *value;
	json_object_foreach(j, key, value)
	{
		strbuf_puts(&b, json_string_value(value) ? json_string_value(value) : "");
		strbuf_add(&b, "", 1);
	}
	w->text = strbuf_take(&b);
	for (size_t i = 0, n = json_object_size(j), at = 0; i < n; i++, at += strlen(w->text + at) + 1)
		ruler_words_add(w, w->text + at);
	json_decref(j);
	return j ? 0 : -1;
}

/* Nouns, adjectives and verbs: sorted, no doubles, shuffled. */
static int cwe_load(const struct folder *f, struct ruler *r, char err[ERR_LEN])
{
	static const char *const names[] = {"nounlist.txt", "adjectivelist.txt", "verblist.txt"};
	struct strbuf all = {0};
	struct ruler_words sorted = {0}, *w = &r->assets.words;
	int failed = 0;
	for (int i = 0; i < 3 && !failed; i++) {
		struct ruler_words part = {0};
		failed = lines_read(f, names[i], &part, err);
		for (int k = 0; k < part.n; k++)
			strbuf_add(&all, part.v[k], strlen(part.v[k]) + 1);
		ruler_words_free(&part);
	}
	w->text = strbuf_take(&all);
	for (const char *p = w->text; !failed && *p; p += strlen(p) + 1)
		ruler_words_add(&sorted, p);
	ruler_words_sort(&sorted);
	int *order = ruler_shuffled(r, sorted.n);
	for (int i = 0; i < sorted.n; i++)
		ruler_words_add(w, sorted.v[order[i]]);
	free(order);
	free(sorted.v);
	if (!failed && !r->oct2024 && folder_has(f, "english_words.json"))
		failed = long_words_load(f, &r->assets.long_words, err);
	return failed;
}

/* ---- documents ---- */

static int compare_texts(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void docs_add(struct ruler_docs *d, char *text)
{
	if ((d->n_docs & (d->n_docs - 1)) == 0)
		d->docs = mem_grow(d->docs, (size_t)d->n_docs * 2 + 1, sizeof(*d->docs));
	d->docs[d->n_docs++] = text;
}

static void docs_sort(struct ruler_docs *d)
{
	int kept = 0;
	if (d->n_docs)
		qsort(d->docs, (size_t)d->n_docs, sizeof(*d->docs), compare_texts);
	for (int i = 0; i < d->n_docs; i++)
		if (kept && !strcmp(d->docs[kept - 1], d->docs[i]))
			free(d->docs[i]);
		else
			d->docs[kept++] = d->docs[i];
	d->n_docs = kept;
}

static int docs_find(const struct ruler_docs *d, const char *text)
{
	char **at = bsearch(&text, d->docs, (size_t)d->n_docs, sizeof(*d->docs), compare_texts);
	return at ? (int)(at - d->docs) : -1;
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s ? s : "";
}

/* The answerable questions of one paragraph. */
static void squad_questions(struct ruler_docs *d, const json_t *paragraph, const int *article, int n_article)
{
	int own = docs_find(d, text_of(paragraph, "context"));
	size_t i, k;
	json_t *qa, *answer;
	json_array_foreach(json_object_get(paragraph, "qas"), i, qa)
	{
		if (json_is_true(json_object_get(qa, "is_impossible")))
			continue;
		struct ruler_qa *q = ruler_qa_add(d, text_of(qa, "question"));
		ruler_list_add(&q->gold, &q->n_gold, own);
		for (int m = 0; m < n_article; m++)
			if (article[m] != own)
				ruler_list_add(&q->more, &q->n_more, article[m]);
		json_array_foreach(json_object_get(qa, "answers"), k, answer) ruler_qa_answer(q, text_of(answer, "text"));
	}
}

static void squad_make(struct ruler_docs *d, const json_t *data)
{
	size_t i, k;
	json_t *article, *paragraph;
	json_array_foreach(data, i, article) json_array_foreach(json_object_get(article, "paragraphs"), k, paragraph)
		docs_add(d, text_copy(text_of(paragraph, "context")));
	docs_sort(d);
	json_array_foreach(data, i, article)
	{
		int *list = NULL, n = 0;
		const json_t *paragraphs = json_object_get(article, "paragraphs");
		json_array_foreach(paragraphs, k, paragraph)
			ruler_list_add(&list, &n, docs_find(d, text_of(paragraph, "context")));
		json_array_foreach(paragraphs, k, paragraph) squad_questions(d, paragraph, list, n);
		free(list);
	}
}

/* Number of documents in a question's context. Both layouts: [[title, [sentence, ...]], ...] as in the official file, and
 * {"title": [...], "sentences": [[...], ...]} as on the hub. */
static size_t hotpot_size(const json_t *context)
{
	return json_array_size(json_is_object(context) ? json_object_get(context, "title") : context);
}

/* `title \n sentences`, joined without a separator; the caller frees it. */
static char *hotpot_document(const json_t *context, size_t i)
{
	bool hub = json_is_object(context);
	const json_t *pair = json_array_get(context, i);
	const json_t *title = hub ? json_array_get(json_object_get(context, "title"), i) : json_array_get(pair, 0);
	const json_t *sentences = hub ? json_array_get(json_object_get(context, "sentences"), i) : json_array_get(pair, 1);
	struct strbuf b = {0};
	size_t k;
	json_t *s;
	strbuf_printf(&b, "%s\n", json_string_value(title) ? json_string_value(title) : "");
	json_array_foreach(sentences, k, s) strbuf_puts(&b, json_string_value(s) ? json_string_value(s) : "");
	return strbuf_take(&b);
}

static void hotpot_make(struct ruler_docs *d, const json_t *data)
{
	size_t i;
	json_t *row;
	json_array_foreach(data, i, row) for (size_t k = 0; k < hotpot_size(json_object_get(row, "context")); k++)
		docs_add(d, hotpot_document(json_object_get(row, "context"), k));
	docs_sort(d);
	json_array_foreach(data, i, row)
	{
		const json_t *context = json_object_get(row, "context");
		struct ruler_qa *q = ruler_qa_add(d, text_of(row, "question"));
		ruler_qa_answer(q, text_of(row, "answer"));
		for (size_t k = 0; k < hotpot_size(context); k++) {
			char *document = hotpot_document(context, k);
			ruler_list_add(&q->gold, &q->n_gold, docs_find(d, document));
			free(document);
		}
	}
}

static int qa_load(const struct folder *f, struct ruler *r, char err[ERR_LEN])
{
	bool squad = r->config->documents == DOCUMENTS_SQUAD;
	const char *name = squad ? "squad.json" : "hotpotqa.json";
	struct ruler_docs *d = &r->assets.docs;
	json_t *j = folder_json(f, name, err);
	if (!j)
		return -1;
	if (squad)
		squad_make(d, json_object_get(j, "data"));
	else
		hotpot_make(d, j);
	json_decref(j);
	return d->n_qas && d->n_docs ? 0 : err_set(err, "%s/%s holds no questions", f->path, name);
}

/* ---- the generator ---- */

static int assets_load(const struct folder *f, struct ruler *r, char err[ERR_LEN])
{
	const struct ruler_family *family = r->config->family;
	if (template_load(f, r, err))
		return -1;
	return family == &ruler_niah  ? niah_load(f, r, err)
	       : family == &ruler_cwe ? cwe_load(f, r, err)
	       : family == &ruler_qa  ? qa_load(f, r, err)
				      : 0;
}

static const char *variant_of(const struct ruler *r)
{
	if (r->config->haystack == HAYSTACK_ESSAY && !r->assets.essay.punkt)
		return r->oct2024 ? "upstream oct2024, sentence ends approximated"
				  : "upstream current, sentence ends approximated";
	if (r->cut)
		return "upstream current, without the long word list";
	return r->oct2024 ? "upstream oct2024" : "upstream current";
}

static int request_check(const struct task_request *rq, const struct ruler *r, char err[ERR_LEN])
{
	if (!rq->path)
		return err_set(err, "%s: generator 'upstream' needs the path of the folder with RULER's files", r->config->name);
	if (rq->release && strcmp(rq->release, "current") && strcmp(rq->release, "oct2024"))
		return err_set(err, "%s: unknown release '%s' (there are current and oct2024)", r->config->name, rq->release);
	if (rq->seed > UINT32_MAX)
		return err_set(err, "%s: generator 'upstream' takes seeds below 2^32", r->config->name);
	return 0;
}

/* Seeds both streams and reads the files. */
static int upstream_load(struct task *t, struct ruler *r, char err[ERR_LEN])
{
	struct folder f = {t->rq.path, sha256_new()};
	const uint32_t seed = (uint32_t)r->seed;
	r->random = (struct ruler_state){twister_python(&seed, 1), twister_numpy(seed)};
	int failed = assets_load(&f, r, err);
	sha256_end(f.hash, t->identity.data_sha256);
	ruler_template_sha256(&r->assets.template, t->identity.template_sha256);
	return failed;
}

static int upstream_open(struct task *t, struct ruler *r, char err[ERR_LEN])
{
	const struct task_request *rq = &t->rq;
	if (request_check(rq, r, err))
		return -1;
	r->oct2024 = rq->release && !strcmp(rq->release, "oct2024");
	r->budget -= r->oct2024 ? 0 : rq->head_tokens + rq->tail_tokens; /* the published sets know no chat template */
	r->seed = rq->seed ? rq->seed : RULER_UPSTREAM_SEED;
	if (upstream_load(t, r, err))
		return -1;
	r->new_tokens = rq->max_new_tokens ? rq->max_new_tokens : r->assets.template.new_tokens;
	if (r->config->family->fit(r, err))
		return -1;
	t->identity.variant = variant_of(r);
	if (r->config->family == &ruler_vt && !r->oct2024)
		t->identity.version = RULER_VT_VERSION;
	r->before = mem_new(1, sizeof(*r->before));
	r->before[0] = r->random;
	r->n_before = 1;
	int most = r->assets.docs.n_qas ? r->assets.docs.n_qas : INT32_MAX,
	    wanted = rq->contexts ? rq->contexts : RULER_UPSTREAM_ROWS;
	t->contexts = wanted < most ? wanted : most;
	return 0;
}

static int upstream_row(struct ruler *r, struct ruler_draft *d, int index, char err[ERR_LEN])
{
	int i = index < r->n_before ? index : r->n_before - 1;
	r->random = r->before[i];
	for (; i <= index; i++) {
		ruler_draft_clear(d);
		if (r->config->family->row(r, d, i, err))
			return -1;
		if (i + 1 == r->n_before) {
			r->before = mem_grow(r->before, (size_t)r->n_before + 1, sizeof(*r->before));
			r->before[r->n_before++] = r->random;
		}
	}
	return 0;
}

const struct ruler_generator ruler_generator_upstream = {
	"upstream", "NVIDIA's own rows, from fetched files", upstream_open, upstream_row};
