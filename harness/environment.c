/* environment.c: see environment.h. */
#include "harness/environment.h"

#include "harness/verbs.h"

#include <dirent.h>
#include <gnu/libc-version.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

void environment_read(struct environment *e, const char *device, int threads, const char *isa)
{
	*e = (struct environment){0};
	runner_machine(&e->machine);
	snprintf(e->libraries, sizeof e->libraries, "glibc %s, jansson %s, %s", gnu_get_libc_version(), JANSSON_VERSION,
		OpenSSL_version(OPENSSL_VERSION));
	snprintf(e->commit, sizeof e->commit, "%s", kvbench_version);
	char *dirty = strstr(e->commit, "-dirty");
	if (dirty)
		*dirty = 0;
	runner_device_name(device ? device : "auto", e->device);
	bool gpu = strcmp(e->device, "cpu") && runner_device_usable(device ? device : "auto", e->hardware);
	e->row = (struct store_env){
		.host = e->machine.host,
		.os = e->machine.os,
		.cpu = e->machine.cpu,
		.isa = gpu ? e->hardware : isa ? isa : e->machine.isa,
		.device = e->device,
		.version = kvbench_version,
		.build_flags = kvbench_build_flags,
		.libraries = e->libraries,
		.commit = e->commit,
		.dirty = dirty != NULL,
		.threads = threads ? threads : e->machine.cores,
		.ram_bytes = e->machine.ram_bytes,
	};
}

void environment_add_attention(struct environment *e, const char *attention)
{
	size_t n = strlen(e->libraries);
	if (attention && strcmp(attention, "own"))
		snprintf(e->libraries + n, sizeof e->libraries - n, ", %s", e->machine.cudnn_why);
}

int64_t environment_waited_ns(void)
{
	DIR *tasks = opendir("/proc/self/task");
	int64_t sum = 0;
	bool known = false;
	for (struct dirent *t; tasks && (t = readdir(tasks));) {
		char path[300];
		long long ran, waited;
		snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", t->d_name);
		FILE *f = *t->d_name == '.' ? NULL : fopen(path, "r");
		if (f && fscanf(f, "%lld %lld", &ran, &waited) == 2) {
			sum += waited;
			known = known || ran > 0;
		}
		if (f)
			fclose(f);
	}
	if (tasks)
		closedir(tasks);
	return known ? sum : -1;
}
