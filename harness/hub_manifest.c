/* hub_manifest.c: see hub_manifest.h. The tables come first.
 *
 * KVBENCH_MIRROR=http://host/path replaces "https:/" in front of every plain web address
 * ("MIRROR/raw.githubusercontent.com/..."), for machines without a way out; hub data sets follow HF_ENDPOINT. */
#include "harness/hub_manifest.h"
#include "harness/hub_impl.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tasks/pyliteral.h"

#define GITHUB "https://raw.githubusercontent.com/"
#define RULER_AT "NVIDIA/RULER/c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a/"
#define LONGBENCH_AT "THUDM/LongBench/2e00731f8d0bff23dc4325161044d0ed8af94c1e/"
#define WORDS_AT "mrmaxguns/wonderwordsmodule/a32588706ff43bb2e50833011fa4609f29342226/wonderwords/assets/" /* v2.2.0 */
#define SCBENCH_REVISION "283310bb8c5ba6909dd9a6b1be087d2937f76f6d"
#define SCBENCH(task, bytes, sha)                                                                                                \
	{                                                                                                                        \
		"scbench", "scbench/scbench_" task ".jsonl", "microsoft/SCBench", SCBENCH_REVISION,                              \
			"data/scbench_" task ".jsonl", bytes, sha                                                                \
	}

/* A second row with the same name is upstream's own second address for the file: taken when the first cannot be had. */
static const struct manifest_file files[] = {
	{"ruler", "ruler/constants.py", GITHUB RULER_AT "scripts/data/synthetic/constants.py", NULL, NULL, 3052,
		"6296e901d495ec6200dc3f68993ea13d8282e3c0dbe1a8c47967f111105d1fde"},
	{"ruler", "ruler/template.py", GITHUB RULER_AT "scripts/data/template.py", NULL, NULL, 1921,
		"2e82d85152212136fffcd5624b158a2c75fd5036ec1c537f4b21eeb78fd18069"},
	{"ruler", "ruler/metrics.py", GITHUB RULER_AT "scripts/eval/synthetic/constants.py", NULL, NULL, 1531,
		"6740467c17b8dc06b6b30f4f97e54ce8de81db0dd879f1538d0b6b5727f4bd5f"},
	{"ruler", "ruler/niah.py", GITHUB RULER_AT "scripts/data/synthetic/niah.py", NULL, NULL, 12733,
		"e9cada0a7660d274fe73a1338a90a7087e17b630169f1aaf14a8d3221c6805b5"},
	{"ruler", "ruler/qa.py", GITHUB RULER_AT "scripts/data/synthetic/qa.py", NULL, NULL, 9833,
		"f00c0b59cf8698e90831bbf461c2c4f40f2a30f2469534c27455808c717281d0"},
	{"ruler", "ruler/synthetic.yaml", GITHUB RULER_AT "scripts/synthetic.yaml", NULL, NULL, 2356,
		"34bc71dcacdc41a829a170f04b528fbf48d62c616338005ab4991680fbf8cb0b"},
	{"ruler", "ruler/english_words.json",
		"https://media.githubusercontent.com/media/" RULER_AT "scripts/data/synthetic/json/english_words.json", NULL,
		NULL, 8564991, "affcd6d45fdf3cc843d585c99c97ad615094e760e6c4756b654bab6c73bc2eca"},
	{"ruler", "ruler/adjectivelist.txt", GITHUB WORDS_AT "adjectivelist.txt", NULL, NULL, 7403,
		"66814d46b7e292c83e839d12fe2fa083c8f66779b14b294e1be4e1342c5d4131"},
	{"ruler", "ruler/nounlist.txt", GITHUB WORDS_AT "nounlist.txt", NULL, NULL, 54781,
		"0778f51872f2aa89e0745c0cc37471a13e3d2161a79fcfdc03b6390b10604a55"},
	{"ruler", "ruler/verblist.txt", GITHUB WORDS_AT "verblist.txt", NULL, NULL, 6967,
		"9fbf5e4e69b8869aebd88e6d545312ff9f878a747327ede5f6dbbba5c27b08ad"},
	{"squad", "ruler/squad.json", "https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v2.0.json", NULL, NULL, 4370528,
		"80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8"},
	{"hotpotqa", "ruler/hotpotqa.json", "https://curtis.ml.cmu.edu/datasets/hotpot/hotpot_dev_distractor_v1.json", NULL, NULL,
		46320117, "4e9ecb5c8d3b719f624d66b60f8d56bf227f03914f5f0753d6fa1b359d7104ea"},
	{"hotpotqa", "ruler/hotpotqa.json", "namlh2004/hotpotqa", "7e54db4656209750ff487f6fdf8e39a66dba136b",
		"hotpot_dev_distractor_v1.json", 61065698, "e3da074df24e8369009918aa5cdbdd254dadcde4c63f7569d36afd6f2268caa8"},
	{"essays", "ruler/PaulGrahamEssays.json",
		GITHUB
		"Zefan-Cai/RULER/2ed9bd9573f2bd8184d1b9ebaa7bd88502d6b32a/scripts/data/synthetic/json/PaulGrahamEssays.json",
		NULL, NULL, 3108597, "d4cd6848b412d74df12b2830fc2855c3c4fdb7d94ce2b460bdd1a5e5a0bec81b"},
	{"punkt", "ruler/punkt_tab.zip",
		GITHUB "nltk/nltk_data/4f15a3d89eefe9748ec1c05be495d91289197155/packages/tokenizers/punkt_tab.zip", NULL, NULL,
		4319076, "e57f64187974277726a3417ca6f181ec5403676c717672eef6a748a7b20e0106"},
	{"longbench", "longbench/data.zip", "THUDM/LongBench", "5e628be450b7e67fb7ae6e201bd6d8f7056f7672", "data.zip", 113932529,
		"cb45b11a4133c6bc1d6a44b0f8e701335ff1e543195db1103472e575857f7f64"},
	{"longbench", "longbench/dataset2prompt.json", GITHUB LONGBENCH_AT "LongBench/config/dataset2prompt.json", NULL, NULL,
		5437, "56d22ad4f382169c2b8a11ff4c982a4a1bea096c8152b0f0b85b64686b157c30"},
	{"longbench", "longbench/dataset2maxlen.json", GITHUB LONGBENCH_AT "LongBench/config/dataset2maxlen.json", NULL, NULL,
		459, "72966b3c0933e214591637fb085798c5e687ebff4ddaab5d99bbc31120532022"},
	{"longbench-v2", "longbench-v2/data.json", "THUDM/LongBench-v2", "2b48e494f2c7a2f0af81aae178e05c7e1dde0fe9", "data.json",
		465490535, "15d61c22d92c96900b3c4948b6aeea218d3214b676a65df48e7b8555604c7fe2"},
	{"longbench-v2", "longbench-v2/0shot.txt", GITHUB LONGBENCH_AT "prompts/0shot.txt", NULL, NULL, 262,
		"68a162252bc9ff71d5d7abca3d69bb31aac3c35f832d657a2866f2018b8a6950"},
	{"longbench-v2", "longbench-v2/0shot_cot.txt", GITHUB LONGBENCH_AT "prompts/0shot_cot.txt", NULL, NULL, 212,
		"6cc33d92fd8f611662b756c1f10f302c541ca005b58c46d5f3188ac3a939bfe8"},
	{"longbench-v2", "longbench-v2/0shot_cot_ans.txt", GITHUB LONGBENCH_AT "prompts/0shot_cot_ans.txt", NULL, NULL, 383,
		"85ec59df4ac0e27aabbc619a7ca5cf3ae1787dd5a76cf51a18944eb52c91955f"},
	{"longbench-v2", "longbench-v2/0shot_no_context.txt", GITHUB LONGBENCH_AT "prompts/0shot_no_context.txt", NULL, NULL, 224,
		"125fb44183af01ffc623df19392b80a287db62af3e2a2805e5b2ff9c7b2bee30"},
	{"scbench", "scbench/eval_utils.py",
		GITHUB "microsoft/MInference/fb56c917f618e8645f1cfc37535afd7424d78f0d/scbench/eval_utils.py", NULL, NULL, 66678,
		"d777e36d0dd20faaef0c421b3f1bd4ddfdc8cbbb76fff74194c063183f5ec3fc"},
	SCBENCH("qa_eng", 59504656, "127ddb3cef2fcfc63c02e662466dead7ced84e20de6a3924df6926891394e01c"),
	SCBENCH("choice_eng", 47592729, "646aee28b3808ad19e66010be650dc13c454732e541d632862243549e41c2947"),
	SCBENCH("qa_chn", 0, NULL),
	SCBENCH("kv", 0, NULL),
	SCBENCH("mf", 0, NULL),
	SCBENCH("repoqa", 0, NULL),
	SCBENCH("summary", 0, NULL),
	SCBENCH("vt", 0, NULL),
	SCBENCH("many_shot", 0, NULL),
	SCBENCH("summary_with_needles", 0, NULL),
	SCBENCH("repoqa_and_kv", 0, NULL),
	SCBENCH("prefix_suffix", 0, NULL),
};
enum { FILES = sizeof files / sizeof *files };

static const struct manifest_set sets[] = {
	{"ruler", "RULER's prompts, word lists, SQuAD, HotpotQA, essays and their sentences", " squad hotpotqa essays punkt "},
	{"longbench", "LongBench: data.zip, prompts, lengths", ""},
	{"longbench-v2", "LongBench v2: data.json, prompts", ""},
	{"scbench", "SCBench: 12 jsonl files, prompts", ""},
	{"squad", "SQuAD 2.0 dev (RULER qa_1)", ""},
	{"hotpotqa", "HotpotQA dev distractor (RULER qa_2)", ""},
	{"essays", "the essays of RULER's haystack", ""},
	{"punkt", "NLTK's sentence splitter (RULER's essays)", ""},
};
enum { SETS = sizeof sets / sizeof *sets };

/* What is read out of upstream's Python into a JSON of ours: a constant, and where its value goes. */
static const struct piece {
	const char *set, *json, *python;
	const char *name;       /* of the constant */
	bool inner;             /* the first text assigned to that name inside a branch or function */
	const char *into, *key; /* json[into][key]; into NULL: json[key]; both NULL: merged into json */
} pieces[] = {
	{"ruler", "ruler/templates.json", "ruler/constants.py", "TASKS"},
	{"ruler", "ruler/templates.json", "ruler/metrics.py", "TASKS"},
	{"ruler", "ruler/templates.json", "ruler/template.py", "Templates", .key = "Templates"},
	{"ruler", "ruler/templates.json", "ruler/niah.py", "needle", .into = "niah", .key = "needle"},
	{"ruler", "ruler/templates.json", "ruler/niah.py", "haystack", true, "niah", "noise"},
	{"ruler", "ruler/templates.json", "ruler/qa.py", "DOCUMENT_PROMPT", .into = "qa", .key = "document"},
#define SCBENCH_PIECE(name)                                                                                                      \
	{                                                                                                                        \
		"scbench", "scbench/prompts.json", "scbench/eval_utils.py", name, .key = name                                    \
	}
	SCBENCH_PIECE("DATA_NAME_TO_MAX_NEW_TOKENS"),
	SCBENCH_PIECE("multiturn_templates"),
	SCBENCH_PIECE("multiturn_templates_scdq"),
	SCBENCH_PIECE("multiturn_follow_up_templates"),
	SCBENCH_PIECE("multiturn_follow_up_templates_in_chat_tempate"),
};
enum { PIECES = sizeof pieces / sizeof *pieces };

size_t manifest_count(void)
{
	return FILES;
}

const struct manifest_file *manifest_at(size_t i)
{
	return &files[i];
}

size_t manifest_set_count(void)
{
	return SETS;
}

const struct manifest_set *manifest_set_at(size_t i)
{
	return &sets[i];
}

bool manifest_in_set(const struct manifest_file *f, const struct manifest_set *s)
{
	char word[64];
	snprintf(word, sizeof word, " %s ", f->set);
	return !strcmp(f->set, s->name) || strstr(s->also, word);
}

/* ---- where things lie ---- */

char *manifest_folder(void)
{
	const char *set = getenv("KVBENCH_DATA"), *xdg = getenv("XDG_CACHE_HOME");
	if (set && *set)
		return hub_expand(set);
	char *cache = hub_expand(xdg && *xdg ? xdg : "~/.cache"), *path = text_format("%s/kvbench", cache);
	free(cache);
	return path;
}

static char *below_folder(const char *name)
{
	char *folder = manifest_folder(), *path = text_format("%s/%s", folder, name);
	free(folder);
	return path;
}

char *manifest_path(const struct manifest_file *f)
{
	return below_folder(f->name);
}

/* ---- what was recorded ---- */

/* The record, or an empty object. */
static json_t *record_read(void)
{
	char *path = below_folder("manifest.json");
	json_t *j = json_load_file(path, 0, NULL);
	free(path);
	return json_is_object(j) ? j : (json_decref(j), json_object());
}

/* A record counts for the address and revision it was made from. */
static bool record_sha256(const struct manifest_file *f, char sha[SHA_LEN])
{
	json_t *all = record_read(), *row = json_object_get(all, f->name);
	const char *text = json_string_value(json_object_get(row, "sha256")),
		   *source = json_string_value(json_object_get(row, "source"));
	const char *revision = json_string_value(json_object_get(row, "revision"));
	bool ok = text && hub_is_hex(text, 64) && source && !strcmp(source, f->source) &&
		  (!f->revision || (revision && !strcmp(revision, f->revision)));
	if (ok)
		memcpy(sha, text, SHA_LEN);
	json_decref(all);
	return ok;
}

bool manifest_sha256(const struct manifest_file *f, char sha[SHA_LEN])
{
	if (f->sha256)
		memcpy(sha, f->sha256, SHA_LEN);
	return f->sha256 || record_sha256(f, sha);
}

const char *manifest_state(const struct manifest_file *f)
{
	char sha[SHA_LEN], *path = manifest_path(f);
	bool there = file_exists(path);
	free(path);
	return !there ? "missing" : f->sha256 ? "pinned" : record_sha256(f, sha) ? "recorded" : "unpinned";
}

const char *manifest_state_of_path(const char *path)
{
	const char *state = "unpinned";
	for (int i = 0; i < FILES; i++) {
		char *own = manifest_path(&files[i]);
		if (!strcmp(own, path))
			state = manifest_state(&files[i]);
		free(own);
	}
	return state;
}

int manifest_record(const struct manifest_file *f, const char *sha, char err[ERR_LEN])
{
	json_t *all = record_read();
	json_t *row = json_pack("{s:s, s:s, s:I}", "sha256", sha, "source", f->source, "unix_ms", (json_int_t)unix_ms());
	if (f->revision)
		json_object_set_new(row, "revision", json_string(f->revision));
	json_object_set_new(all, f->name, row);
	char *text = json_dumps(all, JSON_INDENT(1) | JSON_SORT_KEYS), *path = below_folder("manifest.json");
	int rc = file_replace(path, text, strlen(text), err);
	free(text);
	free(path);
	json_decref(all);
	return rc;
}

/* ---- fetching ---- */

static char *mirrored(const char *url)
{
	const char *mirror = getenv("KVBENCH_MIRROR");
	return mirror && *mirror ? text_format("%s/%s", mirror, url + strlen("https://")) : text_copy(url);
}

/* path -> target, whatever was at path. */
static int link_to(const char *target, const char *path, char err[ERR_LEN])
{
	char *temporary = text_format("%s.%ld.tmp", path, (long)getpid());
	unlink(temporary);
	int rc = make_folders(path, err);
	if (!rc && (symlink(target, temporary) || rename(temporary, path)))
		rc = err_set(err, "cannot link %s", path);
	free(temporary);
	return rc;
}

/* From a hub data set into the hub cache, and a link to it. The hub's own hash was checked there; got is what lies there. */
static int fetch_from_hub(
	struct hub *h, const struct manifest_file *f, const char *path, const char *want, char got[SHA_LEN], char err[ERR_LEN])
{
	char *snapshot = NULL;
	struct hub_request rq = {HUB_DATASET, f->source, f->revision, &f->path, 1};
	if (hub_fetch(h, &rq, &snapshot, err))
		return -1;
	char *file = text_format("%s/%s", snapshot, f->path);
	int rc = sha256_file(file, got, err);
	if (!rc && want && strcmp(got, want))
		rc = err_set(err, "%s: SHA-256 is %s, but the %s one is %s", file, got, f->sha256 ? "pinned" : "recorded", want);
	if (!rc)
		rc = link_to(file, path, err);
	free(file);
	free(snapshot);
	return rc;
}

static int fetch_from_web(
	struct hub *h, const struct manifest_file *f, const char *path, const char *want, char got[SHA_LEN], char err[ERR_LEN])
{
	char *url = mirrored(f->source);
	int rc = hub_download(h, url, path, want, f->bytes, got, err);
	free(url);
	return rc;
}

/* Is the file there, as one of its addresses has it? got: its hash. */
static bool have_file(const struct manifest_file *f, const char *path, char got[SHA_LEN])
{
	char want[SHA_LEN];
	if (!file_exists(path) || sha256_file(path, got, NULL))
		return false;
	for (int i = 0; i < FILES; i++) {
		if (!strcmp(files[i].name, f->name) && manifest_sha256(&files[i], want) && !strcmp(got, want))
			return true;
	}
	return false;
}

int manifest_fetch_file(struct hub *h, const struct manifest_file *f, char err[ERR_LEN])
{
	char want[SHA_LEN] = "", got[SHA_LEN] = "", *path = manifest_path(f);
	bool known = manifest_sha256(f, want), there = have_file(f, path, got);
	int rc = 0;
	if (!there)
		rc = f->revision ? fetch_from_hub(h, f, path, known ? want : NULL, got, err)
				 : fetch_from_web(h, f, path, known ? want : NULL, got, err);
	if (!rc && !known)
		rc = manifest_record(f, got, err);
	free(path);
	return rc;
}

/* ---- prompts ---- */

static json_t *first_text(const json_t *list)
{
	json_t *v;
	size_t i;
	json_array_foreach(list, i, v)
	{
		if (json_is_string(v))
			return v;
	}
	return NULL;
}

static int put_piece(const struct piece *p, json_t *whole, json_t *value, char err[ERR_LEN])
{
	json_t *place = p->into ? json_object_get(whole, p->into) : whole;
	if (p->inner)
		value = first_text(value);
	int rc = !place || !value ? -1
		 : p->key         ? json_object_set(place, p->key, value)
				  : json_object_update_recursive(place, value);
	return rc ? err_set(err, "%s: %s is not what it was", p->python, p->name) : 0;
}

static int read_piece(const struct piece *p, json_t *whole, char err[ERR_LEN])
{
	char *path = below_folder(p->python), *text = NULL, *json = NULL, why[ERR_LEN];
	size_t len;
	int rc = file_read(path, &text, &len, err);
	if (!rc && (rc = p->inner ? pyliteral_inner(text, len, p->name, &json, why)
				  : pyliteral_read(text, len, &p->name, 1, &json, why)))
		err_set(err, "%s: %.300s", path, why);
	json_t *made = rc ? NULL : json_loads(json, JSON_ALLOW_NUL, NULL);
	if (!rc)
		rc = put_piece(p, whole, p->inner ? made : json_object_get(made, p->name), err);
	json_decref(made);
	free(json);
	free(text);
	free(path);
	return rc;
}

int manifest_prompts(const struct manifest_set *s, char err[ERR_LEN])
{
	json_t *whole = json_object();
	const char *name = NULL;
	int rc = 0;
	for (int i = 0; i < PIECES && !rc; i++) {
		if (strcmp(pieces[i].set, s->name))
			continue;
		name = pieces[i].json;
		rc = read_piece(&pieces[i], whole, err);
	}
	if (!rc && name) {
		char *text = json_dumps(whole, JSON_INDENT(1)), *path = below_folder(name);
		rc = file_replace(path, text, strlen(text), err);
		free(text);
		free(path);
	}
	json_decref(whole);
	return rc;
}

/* Offline: every file the set lacks, and what gets them. */
static int check_offline(const struct manifest_set *s, char err[ERR_LEN])
{
	struct strbuf missing = {0};
	for (int i = 0; i < FILES; i++) {
		if (manifest_in_set(&files[i], s) && !strcmp(manifest_state(&files[i]), "missing"))
			strbuf_printf(&missing, "%s%s", missing.len ? ", " : "", files[i].name);
	}
	char *folder = manifest_folder();
	int rc = missing.len ? err_set(err, "offline: %s lacks %.300s; `kvbench fetch %s` gets it", folder, missing.text, s->name)
			     : 0;
	free(folder);
	strbuf_free(&missing);
	return rc;
}

static void tell_file(const struct manifest_file *f, int rc, const char *err, void (*tell)(void *, const char *), void *user)
{
	char line[ERR_LEN];
	snprintf(line, sizeof line, "%s: %.300s", f->name, rc ? err : manifest_state(f));
	tell(user, line);
}

int manifest_fetch(struct hub *h, const struct manifest_set *s, bool offline, void (*tell)(void *user, const char *line),
	void *user, char err[ERR_LEN])
{
	int rc = offline ? check_offline(s, err) : 0;
	for (int i = 0; i < FILES && !rc; i++) {
		const struct manifest_file *f = &files[i];
		bool second = i && !strcmp(f->name, files[i - 1].name),
		     has_second = i + 1 < FILES && !strcmp(f->name, files[i + 1].name);
		char *path = manifest_path(f), got[SHA_LEN];
		bool wanted = manifest_in_set(f, s) && !(second && have_file(f, path, got));
		free(path);
		if (!wanted)
			continue;
		rc = manifest_fetch_file(h, f, err);
		if (!rc || has_second)
			tell_file(f, rc, err, tell, user);
		if (rc && has_second)
			rc = 0; /* the next row is another address of the same file */
	}
	return rc ? rc : manifest_prompts(s, err);
}
