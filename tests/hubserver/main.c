/* main.c: the hub of hubserver.h as a program: prints its address and answers until it is killed. For tests/e2e/fetch.sh and
 * tests/oracle/hub_layout.py. */
#include "tests/hubserver/hubserver.h"

#include <stdio.h>
#include <unistd.h>

int main(void)
{
	struct hubserver *s = hubserver_start();
	if (!s)
		return 1;
	printf("http://127.0.0.1:%d\n", hubserver_port(s));
	fflush(stdout);
	for (;;)
		pause();
}
