/* memory.c: how much memory this machine has, and how much of it may still be had. Reads /proc and /sys alone. */
#include "harness/base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "Key:   1234 kB" of /proc/meminfo in bytes; 0 = absent. */
static int64_t meminfo_bytes(const char *key)
{
	FILE *f = fopen("/proc/meminfo", "r");
	char line[256];
	int64_t bytes = 0;
	size_t n = strlen(key);
	while (f && !bytes && fgets(line, sizeof line, f))
		if (!strncmp(line, key, n) && line[n] == ':')
			bytes = strtoll(line + n + 1, NULL, 10) * 1024;
	if (f)
		fclose(f);
	return bytes;
}

static int64_t file_number(const char *path)
{
	FILE *f = fopen(path, "r");
	long long v = -1;
	if (f && fscanf(f, "%lld", &v) != 1)
		v = -1; /* "max": no limit */
	if (f)
		fclose(f);
	return v;
}

int64_t machine_memory(int64_t *available, int64_t *cgroup)
{
	*available = meminfo_bytes("MemAvailable");
	int64_t limit = file_number("/sys/fs/cgroup/memory.max"), used = file_number("/sys/fs/cgroup/memory.current");
	*cgroup = limit < 0 ? -1 : limit - (used < 0 ? 0 : used);
	return meminfo_bytes("MemTotal");
}

int64_t machine_memory_free(void)
{
	int64_t available, cgroup;
	machine_memory(&available, &cgroup);
	return cgroup >= 0 && cgroup < available ? cgroup : available;
}
