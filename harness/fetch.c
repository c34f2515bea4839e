/* fetch.c: `kvbench fetch WHAT [NAME]`: models and benchmark data to this machine. stdout: where they lie; stderr: the talk. */
#include "harness/hub_manifest.h"
#include "harness/progress.h"
#include "harness/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct talk {
	bool quiet, terminal;
	int64_t plain_ns; /* when the last progress line went to something that is no terminal */
};

enum { PLAIN_SEC = 30, FILES_MAX = 64 };

static void tell(void *user, const char *line)
{
	const struct talk *t = user;
	if (!t->quiet)
		fprintf(stderr, "%s%s\n", t->terminal ? "\r\033[K" : "", line);
}

static void show(void *user, const struct hub_progress *p)
{
	struct talk *t = user;
	char left[48] = "?", share[24] = "";
	int64_t now = clock_ns();
	if (t->quiet || (!t->terminal && now - t->plain_ns < PLAIN_SEC * (int64_t)1000000000))
		return;
	t->plain_ns = now;
	if (p->left_sec >= 0)
		duration_text(p->left_sec, left, sizeof left);
	if (p->total)
		snprintf(share, sizeof share, "  %3.0f %%", 100 * (double)p->done / (double)p->total);
	fprintf(stderr, "%s%s  %.1f MB%s  %.1f MB/s  %s left%s", t->terminal ? "\r\033[K" : "", p->file, (double)p->done / 1e6,
		share, p->bytes_per_sec / 1e6, left, t->terminal ? "" : "\n");
	fflush(stderr);
}

static int print_list(void)
{
	printf("%-36s %-9s %12s  %s\n", "file", "state", "bytes", "source");
	for (size_t i = 0; i < manifest_count(); i++) {
		const struct manifest_file *f = manifest_at(i);
		printf("%-36s %-9s %12lld  %s%s%s\n", f->name, manifest_state(f), (long long)f->bytes, f->source,
			f->revision ? " @" : "", f->revision ? f->revision : "");
	}
	return EXIT_DONE;
}

/* "a,b" -> its words; text is cut in place. */
static size_t split_files(char *text, const char *files[FILES_MAX])
{
	size_t n = 0;
	for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
		if (n == FILES_MAX)
			die(EXIT_USAGE, "fetch: --files takes at most %d names; a pattern such as '*.jsonl' covers more",
				FILES_MAX);
		files[n++] = word;
	}
	return n;
}

static int fetch_repo(struct hub *h, const struct options *o, enum hub_kind kind, char err[ERR_LEN])
{
	const char *files[FILES_MAX];
	char *names = text_copy(option_text(o, "files", "")), *snapshot = NULL;
	struct hub_request rq = {kind, o->args[1], option_text(o, "revision", NULL), files, split_files(names, files)};
	int rc = hub_fetch(h, &rq, &snapshot, err);
	if (!rc)
		printf("%s\n", snapshot);
	free(snapshot);
	free(names);
	return rc;
}

static int fetch_set(struct hub *h, const struct options *o, const struct manifest_set *s, struct talk *t, char err[ERR_LEN])
{
	if (option_has(o, "revision") || option_has(o, "files"))
		die(EXIT_USAGE, "fetch: %s is pinned: --revision and --files are for `fetch model` and `fetch dataset`", s->name);
	int rc = manifest_fetch(h, s, option_has(o, "offline"), tell, t, err);
	char *folder = manifest_folder();
	if (!rc)
		printf("%s\n", folder);
	free(folder);
	return rc;
}

static const struct manifest_set *find_set(const char *name)
{
	const char *names[16] = {"model", "dataset", "list"};
	size_t n = 3;
	for (size_t i = 0; i < manifest_set_count(); i++) {
		if (!strcmp(names[n++] = manifest_set_at(i)->name, name))
			return manifest_set_at(i);
	}
	const char *near = name_nearest(name, names, n);
	die(EXIT_USAGE, "fetch: what is \"%s\"%s%s%s? see `kvbench fetch --help`", name, near ? "; did you mean \"" : "",
		near ? near : "", near ? "\"" : "");
}

static int run_fetch(const struct options *o)
{
	const char *what = o->args[0];
	bool model = !strcmp(what, "model"), repo = model || !strcmp(what, "dataset");
	if (!strcmp(what, "list"))
		return print_list();
	const struct manifest_set *set = repo ? NULL : find_set(what);
	if (repo != (o->n_args == 2))
		die(EXIT_USAGE, repo ? "fetch %s: ORG/NAME is wanted" : "fetch %s: takes no name", what);
	struct talk t = {.quiet = option_has(o, "quiet"), .terminal = isatty(2), .plain_ns = clock_ns()};
	struct hub_options ho = {.offline = option_has(o, "offline"), .tell = tell, .progress = show, .user = &t};
	struct hub *h = NULL;
	char err[ERR_LEN];
	int rc = hub_open(&h, &ho, err);
	if (!rc)
		rc = repo ? fetch_repo(h, o, model ? HUB_MODEL : HUB_DATASET, err) : fetch_set(h, o, set, &t, err);
	if (t.terminal && !t.quiet)
		fprintf(stderr, "\r\033[K");
	if (rc)
		fprintf(stderr, "kvbench fetch: %s\n", err);
	hub_close(h);
	return rc ? EXIT_CELLS_FAILED : EXIT_DONE;
}

static const struct option_def fetch_options[] = {
	{"revision", "REV", "branch, tag or commit (default main)"},
	{"files", "A,B", "names or patterns (default: what a model needs; every file of a dataset)"},
	{"offline", NULL, "touch no network; say what is missing"},
	{"quiet", NULL, "no talk on stderr (-q)"},
};

const struct verb verb_fetch = {
	.name = "fetch",
	.args = "WHAT [NAME]",
	.title = "models and benchmark data to this machine",
	.help = "WHAT is one of\n"
		"  model ORG/NAME      a model of the Hugging Face hub; then `--target ORG/NAME` finds it\n"
		"  dataset ORG/NAME    a data set of the hub\n"
		"  ruler longbench longbench-v2 scbench squad hotpotqa essays punkt\n"
		"                      what these tasks read, at pinned revisions, checked by SHA-256\n"
		"  list                the files of those sets: pinned, recorded, unpinned or missing here\n\n"
		"The hub cache is the one of huggingface_hub; HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE are "
		"obeyed.\n"
		"Other data: KVBENCH_DATA (default ~/.cache/kvbench); KVBENCH_MIRROR=URL stands in for their web hosts.\n"
		"An interrupted download goes on where it stopped.",
	.options = fetch_options,
	.n_options = sizeof fetch_options / sizeof *fetch_options,
	.min_args = 1,
	.max_args = 2,
	.run = run_fetch,
};
