/* mapped.c: see mapped.h. */
#include "runners/model/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int map_file(struct mapped *m, const char *path, char err[ERR_LEN])
{
	struct stat s;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &s) < 0) {
		err_set(err, "cannot open %s: %s", path, strerror(errno));
		goto fail;
	}
	if (!S_ISREG(s.st_mode) || s.st_size == 0) {
		err_set(err, "%s is %s", path, S_ISREG(s.st_mode) ? "empty" : "not a file");
		goto fail;
	}
	void *p = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED) {
		err_set(err, "cannot map %s: %s", path, strerror(errno));
		goto fail;
	}
	close(fd);
	*m = (struct mapped){text_copy(path), p, (size_t)s.st_size, true};
	return 0;
fail:
	if (fd >= 0)
		close(fd);
	return -1;
}

void map_memory(struct mapped *m, const char *name, const void *data, size_t len)
{
	*m = (struct mapped){text_copy(name), data, len, false};
}

void map_unread(const struct mapped *m)
{
	if (m->owned)
		madvise((void *)m->data, m->len, MADV_DONTNEED); /* a private mapping nobody writes: the file's pages */
}

void map_close(struct mapped *m)
{
	if (m->owned)
		munmap((void *)m->data, m->len);
	free(m->name);
	*m = (struct mapped){0};
}
