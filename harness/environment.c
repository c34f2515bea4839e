/* environment.c: see environment.h. */
#include "harness/environment.h"

#include "harness/verbs.h"

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
