/* machine.c: what this machine is: processor, memory, limits, kernel paths. Reads /proc and /etc alone; memory: harness/base. */
#include "runners/runner_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Value after "key" in a /proc file of "key : value" lines; false when absent. */
static bool proc_value(const char *file, const char *key, char *out, size_t size)
{
	FILE *f = fopen(file, "r");
	char line[4096];
	bool found = false;
	while (f && !found && fgets(line, sizeof line, f)) {
		if (strncmp(line, key, strlen(key)))
			continue;
		const char *v = strchr(line, ':');
		v = v ? v + 1 : line + strlen(key);
		snprintf(out, size, "%s", v + strspn(v, " \t\""));
		out[strcspn(out, "\n\"")] = 0;
		found = true;
	}
	if (f)
		fclose(f);
	return found;
}

static bool has_flag(const char *flags, const char *name)
{
	char *word = text_format(" %s ", name);
	bool has = strstr(flags, word) != NULL;
	free(word);
	return has;
}

bool runner_device_usable(const char *device, char what[DEVICE_NAME_LEN])
{
	return device_usable(device, what);
}

void runner_device_name(const char *device, char name[DEVICE_NAME_LEN])
{
	device_resolve(device, name);
}

void runner_machine(struct runner_machine *m)
{
	struct utsname u;
	char flags[4096] = " ", raw[4090], err[ERR_LEN];
	*m = (struct runner_machine){.cores = (int)sysconf(_SC_NPROCESSORS_ONLN)};
	if (!proc_value("/proc/cpuinfo", "model name", m->cpu, sizeof m->cpu))
		snprintf(m->cpu, sizeof m->cpu, "unknown");
	if (!proc_value("/etc/os-release", "PRETTY_NAME=", m->os, sizeof m->os))
		snprintf(m->os, sizeof m->os, "unknown");
	if (!uname(&u))
		snprintf(m->host, sizeof m->host, "%.63s", u.nodename);
	m->ram_bytes = machine_memory(&m->available_bytes, &m->cgroup_limit_bytes);
	if (proc_value("/proc/cpuinfo", "flags", raw, sizeof raw))
		snprintf(flags, sizeof flags, " %s ", raw);
	m->avx2 = has_flag(flags, "avx2");
	m->avx512 = has_flag(flags, "avx512f");
	m->avx512bf16 = has_flag(flags, "avx512_bf16");
	m->amx = has_flag(flags, "amx_tile") && has_flag(flags, "amx_bf16");
	struct device *d = NULL;
	if (device_open(&d, &(struct device_options){.name = "cpu", .precision = "bf16"}, err)) {
		snprintf(m->isa_why, sizeof m->isa_why, "%.127s", err);
	} else {
		snprintf(m->isa, sizeof m->isa, "%s", device_isa(d));
		snprintf(m->isa_why, sizeof m->isa_why, "%s", device_isa_why(d));
	}
	device_close(d);
	m->gpu = device_usable("cuda", m->gpu_why);
	m->cudnn = device_attention_usable("cudnn", m->cudnn_why);
}
