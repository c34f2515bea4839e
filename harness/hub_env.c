/* hub_env.c: the environment variables of the hub client, with the meaning huggingface_hub gives them. */
#include "harness/hub_impl.h"

#include <ctype.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { DEFAULT_SEC = 10 }; /* both time-outs of huggingface_hub */

static const char *set_text(const char *name)
{
	const char *v = getenv(name);
	return v && *v ? v : NULL;
}

static const char *first_set(const char *a, const char *b)
{
	const char *v = set_text(a);
	return v ? v : set_text(b);
}

static bool is_true(const char *name)
{
	static const char *const yes[] = {"1", "ON", "YES", "TRUE"};
	const char *v = getenv(name);
	for (size_t i = 0; v && i < sizeof yes / sizeof *yes; i++) {
		if (!strcasecmp(v, yes[i]))
			return true;
	}
	return false;
}

static const char *home(void)
{
	const char *h = set_text("HOME");
	struct passwd *p = h ? NULL : getpwuid(getuid());
	return h ? h : p && p->pw_dir ? p->pw_dir : "/";
}

/* Appends the value of $NAME or ${NAME} at s; returns what follows. An unset name stays as it is written. */
static const char *expand_name(struct strbuf *b, const char *s)
{
	char name[128];
	bool brace = s[1] == '{';
	const char *from = s + 1 + brace, *to = from;
	while (isalnum((unsigned char)*to) || *to == '_')
		to++;
	size_t n = (size_t)(to - from);
	if (!n || n >= sizeof name || (brace && *to != '}')) {
		strbuf_add(b, s, 1);
		return s + 1;
	}
	memcpy(name, from, n);
	name[n] = 0;
	to += brace;
	const char *value = getenv(name);
	strbuf_add(b, value ? value : s, value ? strlen(value) : (size_t)(to - s));
	return to;
}

char *hub_expand(const char *text)
{
	struct strbuf b = {0};
	if (text[0] == '~' && (!text[1] || text[1] == '/')) {
		strbuf_puts(&b, home());
		text++;
	}
	while (*text) {
		if (*text == '$')
			text = expand_name(&b, text);
		else
			strbuf_add(&b, text++, 1);
	}
	return strbuf_take(&b);
}

static char *path_under(const char *folder, const char *name)
{
	return text_format("%s/%s", folder, name);
}

static char *hf_home(void)
{
	const char *set = set_text("HF_HOME"), *xdg = set_text("XDG_CACHE_HOME");
	char *cache = hub_expand(xdg ? xdg : "~/.cache");
	char *path = set ? hub_expand(set) : path_under(cache, "huggingface");
	free(cache);
	return path;
}

/* White space around goes, line ends inside too: a header must stay one line. NULL when nothing is left. */
static char *token_clean(const char *text)
{
	while (text && isspace((unsigned char)*text))
		text++;
	if (!text || !*text)
		return NULL;
	char *token = text_copy(text), *to = token;
	for (const char *from = token; *from; from++) {
		if (*from != '\r' && *from != '\n')
			*to++ = *from;
	}
	while (to > token && isspace((unsigned char)to[-1]))
		to--;
	*to = 0;
	return token;
}

static char *token_read(const char *hf)
{
	if (is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN"))
		return NULL;
	char *token = token_clean(first_set("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"));
	if (token)
		return token;
	const char *set = set_text("HF_TOKEN_PATH");
	char *path = set ? hub_expand(set) : path_under(hf, "token"), *text = NULL;
	size_t len;
	if (!file_read(path, &text, &len, NULL))
		token = token_clean(text);
	free(text);
	free(path);
	return token;
}

static long seconds(const char *name)
{
	const char *v = set_text(name);
	long sec = v ? strtol(v, NULL, 10) : 0;
	return sec > 0 ? sec : DEFAULT_SEC;
}

int hub_env_read(struct hub_env *e, char err[ERR_LEN])
{
	char *hf = hf_home();
	const char *cache = first_set("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"), *endpoint = set_text("HF_ENDPOINT");
	*e = (struct hub_env){
		.endpoint = text_copy(endpoint ? endpoint : "https://huggingface.co"),
		.cache = cache ? hub_expand(cache) : path_under(hf, "hub"),
		.token = token_read(hf),
		.offline = is_true("HF_HUB_OFFLINE") || is_true("TRANSFORMERS_OFFLINE"),
		.meta_sec = seconds("HF_HUB_ETAG_TIMEOUT"),
		.idle_sec = seconds("HF_HUB_DOWNLOAD_TIMEOUT"),
	};
	free(hf);
	for (size_t n = strlen(e->endpoint); n && e->endpoint[n - 1] == '/';)
		e->endpoint[--n] = 0;
	int rc = 0;
	if (strncmp(e->endpoint, "https://", 8) && strncmp(e->endpoint, "http://", 7))
		rc = err_set(err, "HF_ENDPOINT is \"%s\"; it must start with https:// or http://", e->endpoint);
	for (const char *t = e->token; !rc && t && *t; t++) {
		if ((unsigned char)*t <= ' ' || (unsigned char)*t > '~')
			rc = err_set(err,
				"the hub token holds a character which no token has (white space or a control character inside)");
	}
	if (rc)
		hub_env_free(e);
	return rc;
}

void hub_env_free(struct hub_env *e)
{
	free(e->endpoint);
	free(e->cache);
	free(e->token);
	*e = (struct hub_env){0};
}
