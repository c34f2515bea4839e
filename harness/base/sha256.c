/* sha256.c: SHA-256 (base.h) by libcrypto. A file of its own: what needs no hash links no library. */
#include "harness/base/base.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sha256 {
	EVP_MD_CTX *ctx;
};

struct sha256 *sha256_new(void)
{
	struct sha256 *s = mem_new(1, sizeof *s);
	s->ctx = EVP_MD_CTX_new();
	if (!s->ctx || !EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL))
		die(1, "libcrypto has no SHA-256");
	return s;
}

void sha256_add(struct sha256 *s, const void *data, size_t len)
{
	EVP_DigestUpdate(s->ctx, data, len);
}

void sha256_end(struct sha256 *s, char out[SHA_LEN])
{
	unsigned char md[EVP_MAX_MD_SIZE];
	unsigned int n = 0;
	EVP_DigestFinal_ex(s->ctx, md, &n);
	for (unsigned int i = 0; i < 32; i++)
		snprintf(out + 2 * i, 3, "%02x", md[i]);
	EVP_MD_CTX_free(s->ctx);
	free(s);
}

void sha256_hex(const void *data, size_t len, char out[SHA_LEN])
{
	struct sha256 *s = sha256_new();
	sha256_add(s, data, len);
	sha256_end(s, out);
}

int sha256_file(const char *path, char out[SHA_LEN], char err[ERR_LEN])
{
	FILE *f = fopen(path, "rb");
	if (!f)
		return err_set(err, "cannot open %s: %s", path, strerror(errno));
	struct sha256 *s = sha256_new();
	char block[1 << 16];
	size_t n;
	while ((n = fread(block, 1, sizeof block, f)) > 0)
		sha256_add(s, block, n);
	int bad = ferror(f);
	fclose(f);
	sha256_end(s, out);
	return bad ? err_set(err, "cannot read %s", path) : 0;
}
