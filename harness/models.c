/* models.c: see models.h. */
#include "harness/models.h"
#include "harness/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *models_folder(void)
{
	char exe[1024] = "";
	ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
	exe[n > 0 ? n : 0] = 0;
	char *slash = strrchr(exe, '/');
	char *beside = text_format("%.*s/runners/model", (int)(slash ? slash - exe : 0), exe);
	if (file_exists(beside))
		return beside;
	free(beside);
	return text_copy("runners/model");
}

static bool is_embedded(const char *name, const char *models_dir)
{
	char *folder = models_dir ? text_copy(models_dir) : models_folder();
	char *given = text_format("%s/%s", folder, name), *below = text_format("runners/model/%s", name);
	bool is = file_exists(given) || file_exists(below);
	free(folder);
	free(given);
	free(below);
	return is;
}

/* Could the hub have it? "ORG/NAME" and longer, and nothing that is a path here. */
static bool is_hub_name(const char *name, const char *models_dir)
{
	return strchr(name, '/') && !strchr("/.~", *name) && strncmp(name, "random:", 7) && !file_exists(name) &&
	       !is_embedded(name, models_dir);
}

/* *name gets the place in the cache, which *own holds. */
static int find(const char **name, const char *models_dir, char **own, char err[ERR_LEN])
{
	char why[ERR_LEN];
	if (!*name || !is_hub_name(*name, models_dir))
		return 0;
	if (hub_model_path(*name, own, why))
		return err_set(err, "%s is no file and no embedded model (`kvbench list models`); %.400s", *name, why);
	*name = *own;
	return 0;
}

int models_find(struct runner_options *o, struct model_paths *own, char err[ERR_LEN])
{
	*own = (struct model_paths){0};
	return find(&o->target, o->models_dir, &own->target, err) || find(&o->proxy, o->models_dir, &own->proxy, err) ? -1 : 0;
}

void models_free(struct model_paths *own)
{
	free(own->target);
	free(own->proxy);
	*own = (struct model_paths){0};
}

int models_open(struct runner **out, const struct runner_options *o, char err[ERR_LEN])
{
	struct runner_options found = *o;
	struct model_paths own;
	int rc = models_find(&found, &own, err) ? -1 : runner_open(out, &found, err);
	models_free(&own);
	return rc;
}

void models_tell_device(const struct runner *r, const char *wish)
{
	static bool told;
	char why[DEVICE_NAME_LEN];
	if (told || (wish && strcmp(wish, "auto")) || strcmp(runner_info(r)->device, "cpu") || runner_device_usable("cuda", why))
		return;
	told = true;
	fprintf(stderr, "device cpu: %s\n", why);
}

int models_open_told(struct runner **out, const struct runner_options *o, bool quiet, char err[ERR_LEN])
{
	if (models_open(out, o, err))
		return -1;
	if (!quiet)
		models_tell_device(*out, o->device);
	return 0;
}

int models_check_offload(const char *device, const char *proxy_device, char err[ERR_LEN])
{
	const char *wish[] = {device ? device : "auto", proxy_device};
	bool automatic = false;
	for (int i = 0; i < 2 && wish[i]; i++) {
		char name[DEVICE_NAME_LEN];
		runner_device_name(wish[i], name);
		if (strcmp(name, "cpu"))
			return 0;
		automatic = automatic || !strcmp(wish[i], "auto");
	}
	if (!automatic)
		return err_set(err, "kv_offload moves a GPU's caches to the host's memory; device \"cpu\" has them there");
	fprintf(stderr, "kv_offload: nothing is offloaded: device \"auto\" is the CPU here\n");
	return 0;
}

char *models_name(const char *given, const struct runner *r)
{
	const struct runner_info *i = runner_info(r);
	bool hub = strstr(i->path, "/snapshots/") && !strstr(given, "/snapshots/");
	return hub ? text_format("%.*s", (int)strcspn(given, "@"), given) : text_copy(i->name);
}
