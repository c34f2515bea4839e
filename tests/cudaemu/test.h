// test.h: what the shim's own tests share: cmocka in C++, and tests of reports that end the process (run in a child, its stderr
// searched).
#pragma once
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
}
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cudaemu/control.h"

#define ok(call) assert_int_equal((int)(call), 0)

// Launch with the shape in one line; the errors of both the launch and the work are checked.
template <class... P, class... A>
inline cudaError_t start(void (*k)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t s, A &&...a)
{
	cudaLaunchConfig_t c = {};
	c.gridDim = grid;
	c.blockDim = block;
	c.dynamicSmemBytes = shared;
	c.stream = s;
	return cudaLaunchKernelEx(&c, k, std::forward<A>(a)...);
}
template <class T> inline T *device_array(size_t n)
{
	T *p = nullptr;
	ok(cudaMalloc((void **)&p, n * sizeof(T)));
	return p;
}
template <class T> inline void to_device(T *d, const T *h, size_t n)
{
	ok(cudaMemcpy(d, h, n * sizeof(T), cudaMemcpyHostToDevice));
}
template <class T> inline void to_host(T *h, const T *d, size_t n)
{
	ok(cudaMemcpy(h, d, n * sizeof(T), cudaMemcpyDeviceToHost));
}

// Runs fn in a child that must abort after saying `report` on stderr.
inline void assert_dies(void (*fn)(void), const char *report)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	(void)fn; // a child of a program under a sanitizer lacks the threads, and faults are the sanitizer's
	(void)report;
	return;
#endif
	int fd[2];
	fflush(stdout);
	assert_int_equal(pipe(fd), 0);
	pid_t child = fork();
	if (child == 0) {
		dup2(fd[1], 2);
		close(fd[0]);
		fn();
		_exit(0);
	}
	close(fd[1]);
	static char text[1 << 16];
	size_t n = 0;
	for (ssize_t r; (r = read(fd[0], text + n, sizeof text - 1 - n)) > 0;)
		n += (size_t)r;
	text[n] = 0;
	close(fd[0]);
	int status;
	waitpid(child, &status, 0);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(text, report)) {
		print_message("wanted a report with \"%s\", status %x, got: %s\n", report, status, text);
		fail();
	}
}
static const char *const ORDERS[] = {"fwd", "rev", "random"};
inline uint32_t next_random(uint32_t *s)
{
	return *s = *s * 1664525u + 1013904223u;
}
inline float next_float(uint32_t *s)
{
	return (float)(next_random(s) >> 8) / 8388608.0f - 1.0f;
}
