/* hub_cache.c: the folders of the hub cache, as huggingface_hub lays them out:
 *
 *   CACHE/models--ORG--NAME/refs/REVISION                40 hex digits, no line end
 *                          /blobs/ETAG                   the bytes
 *                          /snapshots/COMMIT/PATH        relative link to the blob
 *                          /.no_exist/COMMIT/PATH        empty: the hub said that there is no such file
 *   CACHE/.locks/models--ORG--NAME/ETAG.lock             flock
 *
 * Every file appears under its name by rename, whole or not at all. Leaves out: trees/ (hub_tree.c), the network. */
#include "harness/hub_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- names that come from outside ---- */

bool hub_is_hex(const char *s, size_t n)
{
	return strspn(s, "0123456789abcdef") == n && !s[n];
}

bool hub_path_ok(const char *path)
{
	if (!*path || *path == '/' || strlen(path) > 1000)
		return false;
	for (const char *c = path; *c; c++) {
		if ((unsigned char)*c < ' ' || *c == '\\' || *c == 127)
			return false;
	}
	for (const char *part = path; part;) {
		size_t n = strcspn(part, "/");
		if (!n || n > 255 || (n == 1 && part[0] == '.') || (n == 2 && !strncmp(part, "..", 2)))
			return false;
		part = part[n] ? part + n + 1 : NULL;
	}
	return true;
}

/* "ORG/NAME" or the old single "NAME": letters, digits, - _ . ; no "--" (it separates the parts of the folder's name). */
static bool repo_ok(const char *repo)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./";
	const char *slash = strchr(repo, '/');
	return hub_path_ok(repo) && strlen(repo) <= 200 && strspn(repo, allowed) == strlen(repo) &&
	       (!slash || !strchr(slash + 1, '/')) && !strstr(repo, "--") && !strstr(repo, "..");
}

int cache_folder(const struct hub_env *e, enum hub_kind kind, const char *repo, char **folder, char err[ERR_LEN])
{
	if (!repo_ok(repo))
		return err_set(err, "\"%s\" is no name of a repository: ORG/NAME is wanted", repo);
	const char *slash = strchr(repo, '/'), *what = kind == HUB_DATASET ? "datasets" : "models";
	*folder = slash ? text_format("%s/%s--%.*s--%s", e->cache, what, (int)(slash - repo), repo, slash + 1)
			: text_format("%s/%s--%s", e->cache, what, repo);
	return 0;
}

char *cache_snapshot(const char *folder, const char *commit, const char *path)
{
	return text_format("%s/snapshots/%s%s%s", folder, commit, *path ? "/" : "", path);
}

/* ---- reading ---- */

bool cache_commit(const char *folder, const char *revision, char commit[41])
{
	if (hub_is_hex(revision, 40)) {
		memcpy(commit, revision, 41);
		return true;
	}
	char *path = text_format("%s/refs/%s", folder, revision), *text = NULL;
	size_t len = 0;
	bool ok = hub_path_ok(revision) && !file_read(path, &text, &len, NULL);
	if (ok)
		text[strcspn(text, "\r\n ")] = 0;
	ok = ok && hub_is_hex(text, 40);
	if (ok)
		memcpy(commit, text, 41);
	free(path);
	free(text);
	return ok;
}

/* A blob cut short by a crash counts as absent. */
bool cache_has(const char *snapshot, const struct tree_file *f)
{
	struct stat st;
	char *path = text_format("%s/%s", snapshot, f->path);
	bool has = !stat(path, &st) && S_ISREG(st.st_mode) && (f->size < 0 || st.st_size == f->size);
	free(path);
	return has;
}

int64_t space_free(const char *path)
{
	struct statvfs v;
	char *at = text_copy(path);
	int rc = -1;
	while ((rc = statvfs(at, &v)) && errno == ENOENT) {
		char *slash = strrchr(at, '/');
		if (!slash)
			break;
		slash[slash == at] = 0; /* "/" stays */
	}
	free(at);
	return rc ? -1 : (int64_t)v.f_bavail * (int64_t)v.f_frsize;
}

/* ---- writing ---- */

int make_folders(const char *file, char err[ERR_LEN])
{
	char *at = text_copy(file);
	int rc = 0;
	for (char *slash = at; !rc && (slash = strchr(slash + 1, '/'));) {
		*slash = 0;
		if (mkdir(at, 0777) && errno != EEXIST)
			rc = err_set(err, "cannot make the folder %s: %s", at, strerror(errno));
		*slash = '/';
	}
	free(at);
	return rc;
}

static int write_all(int fd, const char *data, size_t len)
{
	while (len) {
		ssize_t n = write(fd, data, len);
		if (n < 0)
			return -1;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

int file_replace(const char *path, const char *data, size_t len, char err[ERR_LEN])
{
	if (make_folders(path, err))
		return -1;
	char *temporary = text_format("%s.%ld.tmp", path, (long)getpid());
	int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), rc = fd < 0;
	if (!rc) {
		rc = write_all(fd, data, len) || fsync(fd);
		rc |= close(fd);
		rc = rc || rename(temporary, path);
	}
	if (rc) {
		rc = err_set(err, "cannot write %s: %s", path, strerror(errno));
		unlink(temporary);
	}
	free(temporary);
	return rc;
}

int cache_ref_write(const char *folder, const char *revision, const char *commit, char err[ERR_LEN])
{
	char known[41] = "";
	if (cache_commit(folder, revision, known) && !strcmp(known, commit))
		return 0;
	char *path = text_format("%s/refs/%s", folder, revision);
	int rc = file_replace(path, commit, strlen(commit), err);
	free(path);
	return rc;
}

void cache_no_exist(const char *folder, const char *commit, const char *path)
{
	char *marker = text_format("%s/.no_exist/%s/%s", folder, commit, path);
	if (!file_exists(marker))
		file_replace(marker, "", 0, NULL);
	free(marker);
}

void cache_tag(const char *cache)
{
	static const char text[] = "Signature: 8a477f597d28d172789f06886806bc55\n"
				   "# A cache directory tag of kvbench; see https://bford.info/cachedir/\n";
	char *path = text_format("%s/CACHEDIR.TAG", cache);
	if (!file_exists(path))
		file_replace(path, text, sizeof text - 1, NULL);
	free(path);
}

/* ../../blobs/ETAG, one ../ more for each folder in path. */
int cache_link(const char *folder, const char *commit, const char *path, const char *etag, char err[ERR_LEN])
{
	struct strbuf target = {0};
	strbuf_puts(&target, "../../");
	for (const char *c = path; *c; c++) {
		if (*c == '/')
			strbuf_puts(&target, "../");
	}
	strbuf_printf(&target, "blobs/%s", etag);
	char *link = cache_snapshot(folder, commit, path), *temporary = text_format("%s.%ld.tmp", link, (long)getpid());
	int rc = make_folders(link, err);
	if (!rc) {
		unlink(temporary);
		if (symlink(target.text, temporary) || rename(temporary, link)) {
			rc = err_set(err, "cannot link %s: %s", link, strerror(errno));
			unlink(temporary);
		}
	}
	free(link);
	free(temporary);
	strbuf_free(&target);
	return rc;
}

int cache_lock(const char *path, int *fd, bool *unsafe, void (*waiting)(void *), void *user, char err[ERR_LEN])
{
	*unsafe = false;
	if (make_folders(path, err))
		return -1;
	*fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0664);
	if (*fd < 0)
		return err_set(err, "cannot open the lock %s: %s", path, strerror(errno));
	int rc = flock(*fd, LOCK_EX | LOCK_NB);
	if (rc && errno == EWOULDBLOCK) {
		waiting(user);
		while ((rc = flock(*fd, LOCK_EX)) && errno == EINTR)
			;
	}
	*unsafe = rc != 0;
	return 0;
}

/* ---- hashes ---- */

/* git's name of a blob: SHA-1 over "blob LENGTH\0" and the bytes. 40 hex digits + NUL. */
static int git_sha1(const char *path, char out[41], char err[ERR_LEN])
{
	struct stat st;
	unsigned char buf[1 << 16], md[EVP_MAX_MD_SIZE];
	unsigned n_md = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st)) {
		if (fd >= 0)
			close(fd);
		return err_set(err, "cannot read %s: %s", path, strerror(errno));
	}
	EVP_MD_CTX *c = EVP_MD_CTX_new();
	int head = snprintf((char *)buf, sizeof buf, "blob %lld", (long long)st.st_size) + 1;
	EVP_DigestInit_ex(c, EVP_sha1(), NULL);
	EVP_DigestUpdate(c, buf, (size_t)head);
	ssize_t n;
	while ((n = read(fd, buf, sizeof buf)) > 0)
		EVP_DigestUpdate(c, buf, (size_t)n);
	EVP_DigestFinal_ex(c, md, &n_md);
	EVP_MD_CTX_free(c);
	close(fd);
	for (unsigned i = 0; i < 20; i++)
		snprintf(out + 2 * i, 3, "%02x", md[i]);
	return n < 0 ? err_set(err, "cannot read %s: %s", path, strerror(errno)) : 0;
}

bool hash_matches(const char *path, const char *etag, char err[ERR_LEN])
{
	char got[SHA_LEN] = "";
	bool sha256 = hub_is_hex(etag, 64), sha1 = hub_is_hex(etag, 40);
	if (!sha256 && !sha1)
		return true;
	if (sha256 ? sha256_file(path, got, err) : git_sha1(path, got, err))
		return false;
	if (strcmp(got, etag))
		err_set(err, "the bytes are not those the hub names: %s %s, wanted %s", sha256 ? "SHA-256" : "git SHA-1", got,
			etag);
	return !strcmp(got, etag);
}
