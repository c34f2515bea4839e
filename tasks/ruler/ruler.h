/* ruler.h: what the files of RULER share: the 13 tasks as data, families that write a row, generators that fit and draw rows.
 *
 *   config (13)     which family, haystack, kinds of key and value, how many: one line a task in ruler.c
 *   family (5)      writes a row of a given size from the assets and the present random state (ruler_niah.c, _vt, _cwe, _fwe,
 * _qa) generator (3)   upstream (NVIDIA's texts, to the bit), own (our words, nothing to fetch), rows (files made elsewhere)
 *   draft           one row: the whole prompt, where question and answer prefix begin in it, the gold answers
 *
 * upstream and own are the same families over other assets: words, wording, essay, documents. They differ in how the size of a
 * row is fitted to the length (ruler_fit.c). A size counts the family's units: words of the essay, lines, words, documents. */
#ifndef KVB_RULER_H
#define KVB_RULER_H

#include "tasks/ruler/ruler_random.h"
#include "tasks/task_impl.h"

/* ---- the 13 tasks ---- */

enum ruler_haystack { HAYSTACK_NONE, HAYSTACK_NOISE, HAYSTACK_ESSAY, HAYSTACK_NEEDLES };
enum ruler_kind { KIND_WORDS, KIND_NUMBERS, KIND_UUIDS };
enum ruler_documents { DOCUMENTS_NONE, DOCUMENTS_SQUAD, DOCUMENTS_HOTPOT };

struct ruler_family;
struct ruler_config {
	const char *name; /* upstream's: "niah_single_1" */
	const struct ruler_family *family;
	enum ruler_haystack haystack;
	enum ruler_kind key, value;
	int keys, values, queries; /* niah: keys hidden, values of each, keys asked for */
	enum ruler_documents documents;
};

/* ---- assets: what rows are made of ---- */

struct ruler_words { /* a list of words; text holds them */
	char *text;
	const char **v;
	int n;
};
void ruler_words_add(struct ruler_words *w, const char *word); /* borrowed: word must outlive w */
void ruler_words_sort(struct ruler_words *w);                  /* by code points; doubles go */
void ruler_words_free(struct ruler_words *w);

/* sorted(set(first + "-" + second)) over two lists, without writing out the millions: only runs where one first word with its
 * hyphen begins another one are held as text. */
struct ruler_pairs {
	const struct ruler_words *second;
	struct pair_run {
		int64_t begin; /* number of its first pair */
		const char *first;
		struct ruler_words whole; /* the pairs themselves; n = 0: first + every second word */
	} * runs;
	int n_runs;
	int64_t n;
};
void ruler_pairs_make(struct ruler_pairs *p, struct ruler_words *first, const struct ruler_words *second); /* both sorted */
void ruler_pairs_at(const struct ruler_pairs *p, int64_t i, struct strbuf *out);                           /* appends */
void ruler_pairs_free(struct ruler_pairs *p);

/* NLTK's sentence splitter with its English parameters, from its punkt_tab.zip; what was read goes into the hash. NULL = error
 * set. */
struct ruler_punkt;
struct ruler_punkt *ruler_punkt_read(const char *zip, struct sha256 *hash, char err[ERR_LEN]);
void ruler_punkt_free(struct ruler_punkt *p);

struct ruler_sentences { /* of one text */
	struct ruler_sentence {
		size_t from, to; /* bytes */
	} * v;
	int n;
};
void ruler_sentence_add(struct ruler_sentences *s, size_t from); /* its end is still to be set */
/* text: words with one blank between, none at its ends. Appends to empty s; the caller frees s->v. */
void ruler_punkt_sentences(const struct ruler_punkt *p, const char *text, struct ruler_sentences *s);

struct ruler_essay {
	char *text;                /* words, one blank between */
	size_t *word_end;          /* [n]: offset behind each word */
	int n;                     /* words */
	struct ruler_punkt *punkt; /* NULL = sentence ends are approximated */
};
void ruler_essay_make(struct ruler_essay *e, const char *text); /* white space collapsed first */
void ruler_essay_free(struct ruler_essay *e);
/* Of a text made of the essay's words, as ruler_punkt_sentences. */
void ruler_essay_sentences(const struct ruler_essay *e, const char *text, struct ruler_sentences *s);

struct ruler_template { /* the texts of one family; {name} stands for what is filled in */
	char *prompt, *answer_prefix;
	char *needle, *noise, *document; /* niah: needle, noise; vt: noise; qa: document; else NULL */
	int new_tokens;
};
void ruler_template_sha256(const struct ruler_template *t, char out[SHA_LEN]);
void ruler_template_free(struct ruler_template *t);

struct ruler_docs {
	char **docs; /* sorted, no doubles */
	int n_docs;
	struct ruler_qa {
		char *query;
		char **answers;
		int n_answers;
		int *gold, n_gold; /* documents which hold the answer */
		int *more, n_more; /* documents of the same article */
	} * qas;
	int n_qas;
};
struct ruler_qa *ruler_qa_add(struct ruler_docs *d, const char *query); /* valid until the next call */
void ruler_qa_answer(struct ruler_qa *q, const char *answer);
void ruler_list_add(int **list, int *n, int document);
void ruler_docs_free(struct ruler_docs *d);

struct ruler_assets {
	struct ruler_template template;
	struct ruler_words adjectives, nouns, words; /* words: cwe's, shuffled */
	struct ruler_words long_words;               /* cwe beyond `words`; may be empty */
	struct ruler_pairs pairs;                    /* keys of niah */
	struct ruler_essay essay;
	struct ruler_docs docs;
};
void ruler_assets_free(struct ruler_assets *a);

/* ---- a row in the making ---- */

struct ruler_draft {
	struct strbuf text; /* the whole prompt, the answer prefix included */
	size_t context_at;  /* where {context} was filled in; before it stand the instruction and a worked example */
	size_t question_at; /* context | question */
	size_t prefix_at;   /* question | answer prefix */
	size_t needle_at;   /* where the asked needle lies; SIZE_MAX = look for the first answer, if the family has one place */
	size_t uncounted; /* bytes at the front left out of the count: their tokens were counted apart, in ruler.example_tokens */
	bool example_apart; /* those tokens come on top: the example is left out of the count, or of the text */
	char **answers;
	int n_answers;
	int new_tokens;
};
void ruler_draft_clear(struct ruler_draft *d); /* empty again; zero-initialised is not enough: needle_at */
void ruler_draft_free(struct ruler_draft *d);
void ruler_draft_answer(struct ruler_draft *d, const char *answer);

struct ruler_value {
	const char *name, *text; /* {name} */
};
/* Appends template and answer prefix, filled in, and sets question_at and prefix_at: the question begins behind {context} and the
 * white space after it; a blank at the front of the answer prefix stays with the question (as kvpress cuts RULER). */
void ruler_draft_prompt(struct ruler_draft *d, const struct ruler_template *t, const char *context,
	const struct ruler_value *values, size_t n_values);
/* Appends `form` with its {name}s filled in; an unknown name stays as it is. */
void ruler_fill(struct strbuf *b, const char *form, const struct ruler_value *values, size_t n_values);
/* str.replace on a text of the heap: frees it, gives the new one. */
char *ruler_replace(char *text, const char *from, const char *to);

/* ---- state of an open task ---- */

enum { RULER_UPSTREAM_SEED = 42, RULER_UPSTREAM_ROWS = 500, RULER_OWN_ROWS = 50, RULER_REDRAWS = 200 };
/* Raised when the same request gives another text. OWN: of the own generator; VT: of upstream's present variable tracking. */
enum { RULER_VERSION = 1, RULER_OWN_VERSION = 2, RULER_VT_VERSION = 2 };

struct ruler_state { /* the two random streams of upstream */
	struct twister python, numpy;
};

struct ruler {
	const struct ruler_config *config;
	const struct ruler_generator *generator;
	const struct task_request *rq;
	bool oct2024; /* upstream's release of October 2024; else the present one */
	uint64_t seed;
	int new_tokens; /* room for the answer */
	int64_t budget; /* tokens of prompt and answer together */
	struct ruler_assets assets;
	struct ruler_state random;
	int64_t size, step; /* of a row, in units of the family; fitted */
	bool cut;           /* upstream: probes were left out for want of a word list */
	char *example;      /* vt: the worked example in front, its answers at the end */
	int64_t example_tokens;
	struct ruler_words vocabulary; /* fwe: of the present row */
	struct ruler_state *before; /* upstream: random state before row i, for the n_before rows known so far (one at least) */
	int n_before;
	struct ruler_rows *rows; /* generator rows */
};

/* Python's Random(seed) of the task's seed, fresh: what upstream shuffles with. */
struct twister ruler_fresh(const struct ruler *r);
/* range(n) shuffled by a fresh Random(seed); the caller frees it. */
int *ruler_shuffled(const struct ruler *r, int n);
bool ruler_short(const struct ruler *r); /* below 4096 tokens upstream takes smaller steps and lists */
bool ruler_is_own(const struct ruler *r);
/* Tokens of len bytes; negative = error set. */
int64_t ruler_count(const struct ruler *r, const char *text, size_t len, char err[ERR_LEN]);
/* Tokens of the prompt in d, an example counted apart included. */
int64_t ruler_draft_tokens(const struct ruler *r, const struct ruler_draft *d, char err[ERR_LEN]);

/* ---- families ---- */

struct ruler_family {
	const char *key;  /* in upstream's table of templates */
	const char *unit; /* of a size, for messages */
	const char *metric;
	int new_tokens;      /* room for the answer where no template says */
	bool one_place;      /* the first answer, wherever it first stands in the context, is the asked needle */
	int64_t first_probe; /* size of upstream's first probe; 0 = a step */
	int64_t (*step)(const struct ruler *r);  /* upstream's */
	int64_t (*least)(const struct ruler *r); /* smallest size that can be written */
	int64_t (*most)(const struct ruler *r);  /* largest, INT64_MAX = no limit */
	/* Writes row `index` with `size` units, drawing from r->random. final: as it is handed out, not only to be counted.
	 * -1 = error; 1 = upstream's program stumbles over these draws, and draws again where it makes rows. */
	int (*write)(struct ruler *r, struct ruler_draft *d, int index, int64_t size, bool final, char err[ERR_LEN]);
	/* What the release of 2024 counted behind a probe: the answers in some form. */
	void (*counted)(const struct ruler_draft *d, struct strbuf *b);
	/* Upstream's fitting and drawing: ruler_fit_upstream and ruler_row_upstream, or around them, or another way. */
	int (*fit)(struct ruler *r, char err[ERR_LEN]);
	int (*row)(struct ruler *r, struct ruler_draft *d, int index, char err[ERR_LEN]);
	/* own: what must be made before the first row; NULL = nothing. */
	int (*prepare_own)(struct ruler *r, char err[ERR_LEN]);
};
extern const struct ruler_family ruler_niah, ruler_vt, ruler_cwe, ruler_fwe, ruler_qa;

int64_t ruler_no_limit(const struct ruler *r);
/* ['a', "it's"] as Python prints a list of texts. */
void ruler_python_list(const struct ruler_draft *d, struct strbuf *b);
int ruler_no_room(const struct ruler *r, int64_t size, int64_t tokens, char err[ERR_LEN]); /* the error that says so */

/* ---- fitting (ruler_fit.c) ---- */

int ruler_fit_upstream(struct ruler *r, char err[ERR_LEN]);
int ruler_row_upstream(struct ruler *r, struct ruler_draft *d, int index, char err[ERR_LEN]);
int ruler_fit_own(struct ruler *r, char err[ERR_LEN]);
int ruler_row_own(struct ruler *r, struct ruler_draft *d, int index, char err[ERR_LEN]);

/* ---- generators ---- */

struct ruler_generator {
	const char *name, *title;
	/* Makes the assets ready, fits the size, sets t->contexts and t->identity (but for its metric). */
	int (*open)(struct task *t, struct ruler *r, char err[ERR_LEN]);
	int (*row)(struct ruler *r, struct ruler_draft *d, int index, char err[ERR_LEN]);
};
extern const struct ruler_generator ruler_generator_own, ruler_generator_upstream, ruler_generator_rows;
void ruler_rows_close(struct ruler_rows *rows);

#endif
