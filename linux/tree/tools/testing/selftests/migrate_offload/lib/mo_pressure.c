// SPDX-License-Identifier: GPL-2.0-only
/* Memory that is short, as in pressure.c, or scattered. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mo_area.h"
#include "mo_pressure.h"
#include "mo_util.h"

bool mo_pressure(bool on)
{
	int ret;

	if (!getenv(MO_PRESSURE))
		return false;
	/* A write allocates memory, which fails while failures are on. */
	do
		ret = mo_try_write("/proc/thread-self/make-it-fail",
				   on ? "1" : "0");
	while (!on && ret == -ENOMEM);
	if (ret)
		mo_die("cannot switch failures %s: %s", on ? "on" : "off",
		       strerror(-ret));
	return true;
}

const char *mo_map_with_patience(struct mo_area *area, enum mo_type type,
				 size_t bytes, size_t folio_bytes)
{
	const char *why_not;
	int tries;

	for (tries = 0; tries < 3; tries++) {
		why_not = mo_map(area, type, bytes, folio_bytes);
		if (!why_not)
			break;
		mo_unmap(area);
		printf("# try %d: %s\n", tries, why_not);
		/* Defragment memory, and return pages of other CPUs' lists. */
		if (mo_exists(PATH_COMPACT))
			mo_write(PATH_COMPACT, "1");
		sleep(1);
	}
	return why_not;
}
