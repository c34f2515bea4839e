/* archive.c: see archive.h. */
#include "tasks/archive.h"

#include <stdlib.h>
#include <zip.h>

static int entry_read(zip_t *zip, zip_int64_t index, const char *path, char **data, size_t *len, char err[ERR_LEN])
{
	zip_stat_t st;
	zip_file_t *f = zip_stat_index(zip, (zip_uint64_t)index, 0, &st) ? NULL : zip_fopen_index(zip, (zip_uint64_t)index, 0);
	if (!f)
		return err_set(err, "%s: %s", path, zip_strerror(zip));
	if (st.size > (zip_uint64_t)1 << 32)
		return zip_fclose(f), err_set(err, "%s: %s would unpack to %.1f GB", path, st.name, (double)st.size / 1e9);
	*data = malloc(st.size + 1);
	size_t got = 0;
	zip_int64_t n = 0;
	while (*data && got < st.size && (n = zip_fread(f, *data + got, st.size - got)) > 0)
		got += (size_t)n;
	zip_fclose(f);
	if (!*data || got < st.size)
		return err_set(err, "%s: cannot unpack %s (%zu of %zu bytes)", path, st.name, got, (size_t)st.size);
	(*data)[ *len = got] = '\0';
	return 0;
}

int archive_read(const char *path, const char *name, const char *other, char **data, size_t *len, char err[ERR_LEN])
{
	int code;
	zip_t *zip = zip_open(path, ZIP_RDONLY, &code);
	if (!zip) {
		zip_error_t e;
		zip_error_init_with_code(&e, code);
		err_set(err, "%s: cannot open: %s", path, zip_error_strerror(&e));
		zip_error_fini(&e);
		return -1;
	}
	zip_int64_t index = zip_name_locate(zip, name, 0);
	if (index < 0 && other)
		index = zip_name_locate(zip, other, 0);
	int failed = index < 0 ? err_set(err, "%s: no %s in it", path, name) : entry_read(zip, index, path, data, len, err);
	zip_discard(zip);
	return failed;
}
