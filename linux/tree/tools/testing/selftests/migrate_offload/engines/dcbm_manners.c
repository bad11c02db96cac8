// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm on simulated devices whose drivers have the manners of real ones.  The
 * test program is dcbm.c.
 */
#include <stdio.h>
#include <unistd.h>

#include "mo_area.h"
#include "mo_dcbm.h"
#include "mo_util.h"

/*
 * The driver calls back, and then submit returns an error.  The CPU copies each
 * such folio, and the channel works on.
 */
void test_rejected(void)
{
	load("bandwidth_mbps=0", "max_failures=1000000 timeout_ms=20000");
	fault_everywhere("reject_every", 5);
	expect(move_all() == 0);
	fault_everywhere("reject_every", 0);
	expect(dcbm_number("folios_failures") > 0);
	expect(dcbm_number("folios_migrated") > 0);
	expect(dcbm_number("held_folios") == 0);
	expect(chan_number(0, "errors") > 0);
	expect(chan_is(0, "idle"));
	unload();
}
