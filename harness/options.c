/* options.c: see options.h. Long options only, `--name value` or `--name=value`; -o and -q are short for --out and --quiet. */
#include "harness/options.h"

#include "harness/models.h"
#include "harness/plan.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void print_help(const struct verb *v)
{
	printf("kvbench %s %s\n%s\n", v->name, v->args, v->title);
	if (v->n_options)
		printf("\n");
	for (size_t i = 0; i < v->n_options; i++) {
		char left[48];
		snprintf(left, sizeof left, "--%s %s", v->options[i].name, v->options[i].arg ? v->options[i].arg : "");
		printf("  %-26s %s\n", left, v->options[i].help);
	}
	if (v->help)
		printf("\n%s\n", v->help);
	if (v->plan_keys)
		plan_print_keys(stdout, v);
}

bool verb_uses_key(const struct verb *v, const char *key)
{
	for (const char *const *u = v->unused_keys; u && *u; u++) {
		size_t n = strlen(*u);
		if (!strncmp(key, *u, n) && (!key[n] || key[n] == '.'))
			return false;
	}
	return true;
}

/* The plan key that an option sets, as itself or by --set, must be one that the verb does something with. */
static void check_key_used(const struct verb *v, const char *option, const char *value)
{
	bool set = !strcmp(option, "set");
	char *key = set ? text_format("%.*s", (int)strcspn(value, "="), value) : text_copy(option);
	if (v->plan_keys && !verb_uses_key(v, key))
		die(EXIT_USAGE, "%s: the plan's key %s changes nothing here; `kvbench %s --help` lists those that do", v->name,
			key, v->name);
	free(key);
}

/* An option of the verb, or a plan key under its own name with dashes; NULL name = neither. */
static struct option_def option_find(const struct verb *v, const char *name)
{
	for (size_t i = 0; i < v->n_options; i++) {
		if (!strcmp(v->options[i].name, name))
			return v->options[i];
	}
	return v->plan_keys ? plan_key_option(name) : (struct option_def){0};
}

static void die_unknown(const struct verb *v, const char *name)
{
	const char *names[64];
	size_t n = 0;
	for (size_t i = 0; i < v->n_options; i++)
		names[n++] = v->options[i].name;
	if (v->plan_keys)
		n += plan_key_names(names + n, 64 - n, v);
	const char *near = strchr(name, '.') ? NULL : name_nearest(name, names, n);
	if (v->plan_keys && strchr(name, '.'))
		die(EXIT_USAGE, "%s: there is no option --%s; inner keys go by --set %s=VALUE", v->name, name, name);
	if (near)
		die(EXIT_USAGE, "%s: there is no option --%s; did you mean --%s? (see `kvbench %s --help`)", v->name, name, near,
			v->name);
	die(EXIT_USAGE, "%s: there is no option --%s; see `kvbench %s --help`", v->name, name, v->name);
}

/* Takes the option at argv[i] and its value; returns the index of the last word used. */
static int take_option(struct options *o, int argc, char **argv, int i)
{
	char name[64];
	const char *word = argv[i];
	const char *typed = !strcmp(word, "-o") ? "--out" : !strcmp(word, "-q") ? "--quiet" : word;
	if (strncmp(typed, "--", 2))
		die(EXIT_USAGE, "%s: what is \"%s\"? options start with --", o->verb->name, word);
	const char *equals = strchr(typed, '=');
	snprintf(name, sizeof name, "%.*s", (int)(equals ? equals - typed - 2 : (long)strlen(typed) - 2), typed + 2);
	struct option_def d = option_find(o->verb, name);
	if (!d.name)
		die_unknown(o->verb, name);
	const char *value = equals ? equals + 1 : NULL;
	if (!d.arg && value)
		die(EXIT_USAGE, "%s: --%s is a flag and takes no value", o->verb->name, d.name);
	if (d.arg && !value && !(value = ++i < argc ? argv[i] : NULL))
		die(EXIT_USAGE, "%s: --%s needs %s", o->verb->name, d.name, d.arg);
	check_key_used(o->verb, d.name, value ? value : "");
	o->given = mem_grow(o->given, (size_t)o->n_given + 1, sizeof *o->given);
	o->given[o->n_given++] = (struct option_given){d.name, value ? value : "true"};
	return i;
}

void options_parse(struct options *o, const struct verb *v, int argc, char **argv)
{
	*o = (struct options){.verb = v};
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			print_help(v);
			exit(EXIT_DONE);
		}
		if (argv[i][0] == '-' && argv[i][1])
			i = take_option(o, argc, argv, i);
		else if (o->n_args < v->max_args)
			o->args[o->n_args++] = argv[i];
		else
			die(EXIT_USAGE, "%s: \"%s\" is one argument too many; usage: kvbench %s %s", v->name, argv[i], v->name,
				v->args);
	}
	if (o->n_args < v->min_args)
		die(EXIT_USAGE, "%s wants at least %d argument%s, not %d; usage: kvbench %s %s (see `kvbench %s --help`)",
			v->name, v->min_args, v->min_args > 1 ? "s" : "", o->n_args, v->name, v->args, v->name);
}

void options_free(struct options *o)
{
	free(o->given);
	o->given = NULL;
	o->n_given = 0;
}

void option_only(const struct options *o, const char *name, bool counts, const char *with)
{
	if (!counts && option_has(o, name))
		die(EXIT_USAGE, "%s: --%s goes with %s alone", o->verb->name, name, with);
}

static bool same_file(const char *path, const struct stat *s)
{
	struct stat other;
	return stat(path, &other) == 0 && other.st_dev == s->st_dev && other.st_ino == s->st_ino;
}

void options_check_out(const struct options *o)
{
	const char *out = option_text(o, "out", NULL);
	struct stat s;
	if (!out || stat(out, &s))
		return;
	for (int i = 0; i < o->n_args; i++) {
		const char *colon = strrchr(o->args[i], ':');
		char *path = colon ? text_format("%.*s", (int)(colon - o->args[i]), o->args[i]) : text_copy(o->args[i]);
		if (same_file(o->args[i], &s) || same_file(path, &s))
			die(EXIT_USAGE, "%s: --out %s is the file that is read; another name, please", o->verb->name, out);
		free(path);
	}
}

const char *option_text(const struct options *o, const char *name, const char *otherwise)
{
	for (int i = o->n_given; i-- > 0;) {
		if (!strcmp(o->given[i].name, name))
			return o->given[i].value;
	}
	return otherwise;
}

bool option_has(const struct options *o, const char *name)
{
	return option_text(o, name, NULL) != NULL;
}

double option_number(const struct options *o, const char *name, double otherwise)
{
	const char *text = option_text(o, name, NULL);
	if (!text)
		return otherwise;
	char *end;
	double x = strtod(text, &end);
	if (*end || end == text || !isfinite(x) || x < 0)
		die(EXIT_USAGE, "%s: --%s wants a number from 0, not \"%s\"", o->verb->name, name, text);
	return x;
}

double option_alpha(const struct options *o, double otherwise)
{
	double x = option_number(o, "alpha", otherwise);
	if (x <= 0 || x > 1)
		die(EXIT_USAGE, "%s: --alpha wants a probability above 0, not \"%s\"", o->verb->name,
			option_text(o, "alpha", ""));
	return x;
}

int64_t option_count(const struct options *o, const char *name, int64_t otherwise)
{
	const char *text = option_text(o, name, NULL);
	if (!text)
		return otherwise;
	char *end;
	long long x = strtoll(text, &end, 10);
	if (*end || end == text || x < 0)
		die(EXIT_USAGE, "%s: --%s wants a whole number from 0, not \"%s\"", o->verb->name, name, text);
	return x;
}

int option_int(const struct options *o, const char *name, int least, int otherwise)
{
	int64_t x = option_count(o, name, otherwise);
	if (x < least || x > INT_MAX)
		die(EXIT_USAGE, "%s: --%s wants a whole number from %d to %d, not \"%s\"", o->verb->name, name, least, INT_MAX,
			option_text(o, name, ""));
	return (int)x;
}

int64_t bytes_parse(const char *text)
{
	static const char units[] = "KMGT";
	char *end;
	double x = strtod(text, &end);
	if (end == text || !(x >= 0) || x > 1e18)
		return -1;
	const char *unit = *end ? strchr(units, *end) : NULL;
	if (*end && (!unit || end[1]))
		return -1;
	for (const char *u = units; unit && u <= unit; u++)
		x *= 1024;
	return x > 1e18 ? -1 : (int64_t)x;
}

int64_t option_bytes(const struct options *o, const char *name)
{
	const char *text = option_text(o, name, "0");
	int64_t bytes = bytes_parse(text);
	if (bytes < 0)
		die(EXIT_USAGE, "%s: --%s wants a size such as 8G or 512M, not \"%s\"", o->verb->name, name, text);
	return bytes;
}

void options_runner(const struct options *o, struct runner_options *ro)
{
	for (int i = 0; i < 2 && !option_has(o, "proxy"); i++) {
		const char *name = (const char *[]){"proxy-device", "proxy-threads"}[i];
		if (option_has(o, name))
			die(EXIT_USAGE, "%s: --%s needs --proxy MODEL", o->verb->name, name);
	}
	*ro = (struct runner_options){
		.target = option_text(o, "target", "tiny-pair/target"),
		.proxy = option_text(o, "proxy", NULL),
		.models_dir = option_text(o, "models", NULL),
		.device = option_text(o, "device", "auto"),
		.proxy_device = option_text(o, "proxy-device", NULL),
		.kv_offload = option_has(o, "kv-offload"),
		.precision = option_text(o, "precision", NULL),
		.attention = option_text(o, "attention", NULL),
		.isa = option_text(o, "isa", NULL),
		.threads = option_int(o, "threads", 0, 0),
		.memory_bytes = option_bytes(o, "memory"),
		.allow_long = option_has(o, "allow-long"),
		.chat_template = option_text(o, "template", NULL),
		.proxy_threads = option_int(o, "proxy-threads", 0, 0),
	};
	char err[ERR_LEN];
	if (runner_names_check(ro, err) || (ro->kv_offload && models_check_offload(ro->device, ro->proxy_device, err)))
		die(EXIT_USAGE, "%s: %s", o->verb->name, err);
}
