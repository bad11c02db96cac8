// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm on simulated devices that stall, or that write after dcbm has given them
 * up.  The test program is dcbm.c.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

#include "mo_area.h"
#include "mo_dcbm.h"
#include "mo_util.h"

/* Longer than dcbm waits for a channel. */
#define LATE_MS 12000

/* A device writes after dcbm has given up its descriptor. */
void test_late(void)
{
	int tries;

	load("bandwidth_mbps=0", "");
	fault(2, "late_ms", LATE_MS);
	fault(2, "late_nth", 1);
	move_with_timeout(&large);
	expect(mo_content_ok(&large));
	expect(dcbm_number("held_folios") > 0);
	expect(chan_is(2, "retired"));
	/* The call did not wait for the device, which still has to write. */
	expect(chan_number(2, "in_doubt") > 0);
	/* The other channels work.  Held folios move on a later attempt. */
	expect(move_area(&small) == 0);
	/*
	 * The channel stays in doubt until dcbm has released all of its folios.
	 */
	for (tries = 0; tries < 300 && chan_number(2, "in_doubt"); tries++)
		usleep(100000);
	expect(!dcbm_number("held_folios_now") && !chan_number(2, "in_doubt"));
	expect(chan_is(2, "retired"));
	mo_write(chan_file(2, "reset"), "1");
	expect(chan_is(2, "idle"));
	expect(move_all() == 0);
	unload();
}

/*
 * All transfers of a channel were reported before their time, and the next one is
 * late.  When its callback comes, the device has ended the older ones, too.
 */
void test_kept_then_late(void)
{
	int tries;

	load("bandwidth_mbps=0", "max_failures=1000000");
	fault(2, "hide_error_every", 1);
	mo_move_once(&large, mo_nodes[1]);
	fault(2, "hide_error_every", 0);
	expect(dcbm_number("held_folios_now") > 0);
	expect(chan_is(2, "idle"));
	fault(2, "late_ms", LATE_MS);
	fault(2, "late_nth", 1);
	move_with_timeout(&small);
	expect(chan_is(2, "retired"));
	expect(mo_content_ok(&small) && mo_content_ok(&large));
	wait_for_held(2 * LATE_MS);
	/* dcbm counts these a moment later. */
	for (tries = 0; tries < 300 && chan_number(2, "in_doubt"); tries++)
		usleep(100000);
	expect(chan_number(2, "in_doubt") == 0);
	mo_write(chan_file(2, "reset"), "1");
	expect(move_all() == 0);
	unload();
}

/* dcbm can stop this channel.  Then the CPU copies, and no folio is held. */
void test_stall_stopped(void)
{
	load("bandwidth_mbps=0", "trust_terminate=dmasim");
	fault(3, "stall_nth", 1);
	move_with_timeout(&large);
	expect(dcbm_number("folios_failures") > 0);
	expect(dcbm_number("held_folios") == 0);
	expect(chan_number(3, "timeouts") == 1);
	expect(chan_is(3, "idle"));
	expect(mo_content_ok(&large));
	expect(move_all() == 0);
	unload();
}

/*
 * dcbm cannot stop this channel until an administrator resets it.  Only folios
 * of that channel are held.  A fast caller may lose folios of two windows.
 */
void test_stall_held(void)
{
	long long held;

	load("bandwidth_mbps=0", "");
	fault(3, "stall_nth", 1);
	move_with_timeout(&large);
	expect(mo_content_ok(&large));
	held = dcbm_number("held_folios_now");
	printf("# %lld folios held, %lld transfers in doubt\n", held,
	       chan_number(3, "in_doubt"));
	expect(held > 0 && held <= chan_number(3, "in_doubt"));
	expect(chan_is(3, "retired"));
	expect(mo_try_write(chan_file(3, "reset"), "1") < 0);
	mo_write(chan_file(3, "terminate_stops"), "1");
	mo_write(chan_file(3, "reset"), "1");
	expect(dcbm_number("held_folios_now") == 0);
	expect(chan_is(3, "idle"));
	expect(move_all() == 0);
	unload();
}

/*
 * All channels stall while "streaming" is off.  A pipe refers to one folio, so
 * the core cannot move this folio and tries again.  Without streaming, the core
 * retries only after the engine has copied all folios in flight.  Until then
 * the core must let dcbm wait: a caller that only polls never sees the channels
 * time out.
 */
void test_stall_posted(void)
{
	struct iovec page = { .iov_base = large.mem, .iov_len = SZ_4K };
	long long max_batch_pages;
	long long start;
	int fds[2];

	load("bandwidth_mbps=0", "trust_terminate=dmasim");
	max_batch_pages = mo_read_number(PATH_DEBUG "max_batch_pages");
	mo_set_limit("streaming", 0);
	/* One folio per window: channels copy while another folio waits. */
	mo_set_limit("max_batch_pages", SZ_2M / SZ_4K);
	fault_everywhere("stall_nth", 1);
	if (pipe(fds) || vmsplice(fds[1], &page, 1, 0) != SZ_4K)
		mo_die("cannot splice a page: %m");
	start = now_ms();
	move_with_timeout(&large);
	expect(now_ms() - start < 2 * NR_CHANS * TIMEOUT_MS);
	expect(dcbm_number("folios_failures") > 0);
	expect(mo_content_ok(&large));
	close(fds[0]);
	close(fds[1]);
	expect(move_all() == 0);
	mo_set_limit("streaming", 1);
	mo_set_limit("max_batch_pages", max_batch_pages);
	unload();
}
