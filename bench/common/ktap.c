// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>

#include "common/bench.h"
#include "common/ktap.h"

static int nr_tests, nr_failed;

void ktap_start(void)
{
	/* Keep the order of events, also if stdout is a pipe. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("KTAP version 1\n");
}

void check(bool ok, const char *name)
{
	nr_tests++;
	nr_failed += !ok;
	printf("%sok %d %s\n", ok ? "" : "not ", nr_tests, name);
}

int ktap_end(void)
{
	printf("1..%d\n", nr_tests);
	return nr_failed ? BENCH_FAILED : BENCH_OK;
}
