/* bench_peer.c: other programs beside ours, in the same run: llama-bench (one process a measurement) and a Python with torch and
 * transformers (one process that answers on a pipe and sleeps in between, since its imports take longer than the measurements).
 *
 * Peers are run, never vendored. Times are the peers' own: loading and warming up lie outside. */
#include "runners/bench_impl.h"

#include <fcntl.h>
#include <jansson.h>
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char TORCH_SCRIPT[] = "tests/oracle/bench_torch.py";

struct peer {
	const char *name;
	int (*seconds)(struct peer *p, const struct figure *f, double *seconds, char err[ERR_LEN]);
	char *program, *model; /* model: a .gguf file, or a config.json */
	char threads[16];
	pid_t pid;             /* torch: the process that answers; 0 = none yet */
	int to;                /* a socket: writing to a process that has ended is an error, not a signal */
	FILE *from;
};

const char *peer_name(const struct peer *p)
{
	return p->name;
}

int peer_seconds(struct peer *p, const struct figure *f, double *seconds, char err[ERR_LEN])
{
	return p->seconds(p, f, seconds, err);
}

/* Starts argv with its output on *from and, where `to` is wanted, its input from *to. */
static int start(char *const argv[], pid_t *pid, int *to, FILE **from, char err[ERR_LEN])
{
	int out[2] = {-1, -1}, in[2] = {-1, -1}, rc = -1;
	posix_spawn_file_actions_t act;
	posix_spawn_file_actions_init(&act);
	if (!pipe2(out, O_CLOEXEC) && (!to || !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in))) {
		posix_spawn_file_actions_adddup2(&act, out[1], 1);
		if (to)
			posix_spawn_file_actions_adddup2(&act, in[0], 0);
		rc = posix_spawnp(pid, argv[0], &act, NULL, argv, environ);
	}
	posix_spawn_file_actions_destroy(&act);
	if (out[1] >= 0)
		close(out[1]);
	if (in[0] >= 0)
		close(in[0]);
	if (rc) {
		if (out[0] >= 0)
			close(out[0]);
		if (in[1] >= 0)
			close(in[1]);
		return err_set(err, "bench: cannot start %s: %s", argv[0], rc > 0 ? strerror(rc) : "no pipe");
	}
	if (to)
		*to = in[1];
	if (!(*from = fdopen(out[0], "r"))) {
		close(out[0]);
		if (to)
			close(*to);
		waitpid(*pid, NULL, 0); /* nobody reads its output: it ends */
		*pid = 0;
		return err_set(err, "bench: cannot read from %s: %s", argv[0], strerror(errno));
	}
	return 0;
}

/* ---- llama-bench ---- */

/* Its JSON: a list of one test; avg_ts is in tokens/s. */
static int llama_parse(const char *text, double tokens, double *seconds, char err[ERR_LEN])
{
	json_error_t why;
	json_t *list = json_loads(text, 0, &why);
	double speed = json_number_value(json_object_get(json_array_get(list, 0), "avg_ts"));
	json_decref(list);
	if (!(speed > 0))
		return err_set(err, "bench: llama-bench printed no speed: %.200s", text);
	*seconds = tokens / speed;
	return 0;
}

static int llama_seconds(struct peer *p, const struct figure *f, double *seconds, char err[ERR_LEN])
{
	char prompt[24], gen[24], depth[24], buf[4096];
	snprintf(prompt, sizeof prompt, "%lld", (long long)f->prompt);
	snprintf(gen, sizeof gen, "%d", f->prompt ? 0 : BENCH_DECODE);
	snprintf(depth, sizeof depth, "%lld", (long long)f->depth);
	char *argv[] = {p->program, "-m", p->model, "-p", prompt, "-n", gen, "-d", depth, "-t", p->threads, "-r", "1", "-o", "json", NULL};
	struct strbuf text = {0};
	FILE *from;
	pid_t pid;
	int status;
	if (start(argv, &pid, NULL, &from, err))
		return -1;
	for (size_t n; (n = fread(buf, 1, sizeof buf, from)) > 0;)
		strbuf_add(&text, buf, n);
	fclose(from);
	waitpid(pid, &status, 0);
	int rc = llama_parse(text.text ? text.text : "", f->prompt ? (double)f->prompt : BENCH_DECODE, seconds, err);
	strbuf_free(&text);
	return rc;
}

/* ---- torch ---- */

static int torch_seconds(struct peer *p, const struct figure *f, double *seconds, char err[ERR_LEN])
{
	char line[256] = "", request[64];
	/* without the two variables every large output is fresh memory from the system: the peer shall be at its best */
	char *argv[] = {"env", "MALLOC_MMAP_THRESHOLD_=4294967296", "MALLOC_TRIM_THRESHOLD_=17179869184", p->program, (char *)TORCH_SCRIPT, p->model,
		p->threads, NULL};
	if (!p->pid && start(argv, &p->pid, &p->to, &p->from, err))
		return -1;
	if (f->prompt)
		snprintf(request, sizeof request, "prefill %lld\n", (long long)f->prompt);
	else
		snprintf(request, sizeof request, "decode %lld %d\n", (long long)f->depth, BENCH_DECODE);
	if (send(p->to, request, strlen(request), MSG_NOSIGNAL) < 0 || !fgets(line, sizeof line, p->from) || sscanf(line, "seconds %lf", seconds) != 1)
		return err_set(err, "bench: %s %s gave no figure: %.200s", p->program, TORCH_SCRIPT, line);
	return 0;
}

/* ---- both ---- */

static struct peer *peer_new(struct bench *b, const char *name, const char *program, char *model)
{
	struct peer *p = mem_new(1, sizeof *p);
	p->name = name;
	p->program = text_copy(program);
	p->model = model;
	snprintf(p->threads, sizeof p->threads, "%d", device_threads(b->device));
	b->peer[b->peers++] = p;
	return p;
}

/* The config.json of a target; NULL = it has none. Caller frees. */
static char *config_of(const char *path)
{
	if (strncmp(path, "random:", 7)) {
		char *file = text_format("%s/config.json", path);
		if (file_exists(file))
			return file;
		free(file);
		return NULL;
	}
	char *file = text_copy(path + 7), *seed = strstr(file, ".json:");
	if (seed)
		seed[5] = 0;
	return file;
}

int peers_open(struct bench *b, const char *path, char err[ERR_LEN])
{
	size_t n = strlen(path);
	if (b->options->peer_llama) {
		if (n < 5 || strcmp(path + n - 5, ".gguf"))
			return err_set(err, "bench: llama-bench needs a .gguf target, not %s", path);
		peer_new(b, "llama.cpp", b->options->peer_llama, text_copy(path))->seconds = llama_seconds;
	}
	if (b->options->peer_torch) {
		char *config = config_of(path);
		if (!config)
			return err_set(err, "bench: torch needs a target with a config.json (a folder or random:), not %s", path);
		peer_new(b, "torch", b->options->peer_torch, config)->seconds = torch_seconds;
		if (!file_exists(TORCH_SCRIPT))
			return err_set(err, "bench: %s is not below the working folder", TORCH_SCRIPT);
	}
	return 0;
}

void peers_close(struct bench *b)
{
	for (int i = 0; i < b->peers; i++) {
		struct peer *p = b->peer[i];
		if (p->pid) {
			int status;
			close(p->to); /* the end of its input ends it */
			fclose(p->from);
			waitpid(p->pid, &status, 0);
		}
		free(p->program);
		free(p->model);
		free(p);
	}
	b->peers = 0;
}
