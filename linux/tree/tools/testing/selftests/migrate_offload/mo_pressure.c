// SPDX-License-Identifier: GPL-2.0-only
/* Threads that move pages while memory is short: see pressure.c. */
#include <stdlib.h>
#include <string.h>

#include "mo_pressure.h"
#include "mo_util.h"

bool mo_pressure(bool on)
{
	if (!getenv(MO_PRESSURE))
		return false;
	mo_write("/proc/thread-self/make-it-fail", on ? "1" : "0");
	return true;
}
