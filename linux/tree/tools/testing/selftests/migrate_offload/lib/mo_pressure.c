// SPDX-License-Identifier: GPL-2.0-only
/* Threads that move pages while memory is short: see pressure.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
