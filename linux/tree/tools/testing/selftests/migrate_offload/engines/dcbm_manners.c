// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm on simulated devices whose drivers have the manners of real ones.  The
 * test program is dcbm.c.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "mo_area.h"
#include "mo_dcbm.h"
#include "mo_util.h"

/* Longer than dcbm waits for a channel, and an administrator for dcbm. */
#define LATE_MS 30000
/* Shorter than dcbm waits, and long enough for programs to write meanwhile. */
#define SOON_MS 1000

/*
 * The driver calls back, and then submit returns an error.  The CPU copies each
 * such folio, and the channel works on.
 */
void test_rejected(void)
{
	load("bandwidth_mbps=0", "max_failures=1000000");
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

void wait_for_held(unsigned int ms)
{
	long long until = now_ms() + ms;

	while (dcbm_number("held_folios_now") && now_ms() < until)
		usleep(10000);
	expect(dcbm_number("held_folios_now") == 0);
}

void reset_stopped(unsigned int chan)
{
	mo_write(chan_file(chan, "terminate_stops"), "1");
	mo_write(chan_file(chan, "reset"), "1");
	expect(chan_is(chan, "idle"));
	wait_for_held(0);
}

/*
 * The driver reports errors as success.  dcbm sees that the end of the piece is
 * not there, and holds the folio, until the channel has completed another piece.
 */
void test_hidden_errors(void)
{
	load("bandwidth_mbps=0", "max_failures=1000000");
	/* Adjacent folios share a piece, so channels copy only a few pieces. */
	fault_everywhere("hide_error_every", 2);
	mo_move_once(&small, mo_nodes[1]);
	expect(mo_content_ok(&small));
	fault_everywhere("hide_error_every", 0);
	expect(sim_number(0, "hidden") > 0);
	expect(dcbm_number("folios_failures") > 0);
	expect(dcbm_number("folios_migrated") > 0);
	expect(dcbm_number("held_folios") > 0);
	expect(chan_number(0, "errors") > 0);
	/* This occupies all channels. */
	expect(move_area(&large) == 0);
	wait_for_held(0);
	expect(chan_number(0, "in_doubt") == 0);
	expect(move_all() == 0);
	unload();
}

/*
 * The last transfer of a channel was reported, but is not there.  dcbm keeps the
 * channel and the module, until an administrator says that the device stops.
 */
void test_kept_at_the_end(void)
{
	const char *const rmmod[] = { "rmmod", "dcbm", NULL };
	int tries;

	load("bandwidth_mbps=0", "max_failures=1000000");
	fault(0, "hide_error_every", 1);
	mo_move_once(&large, mo_nodes[1]);
	expect(mo_content_ok(&large));
	fault(0, "hide_error_every", 0);
	expect(dcbm_number("held_folios_now") > 0);
	/* The module stays, also where dcbm still has the channel. */
	mo_select("none");
	expect(mo_run(rmmod));
	mo_write(PATH_DCBM "offloading", "0");
	expect(mo_run(rmmod));
	expect(chan_is(0, "leaving"));
	expect(!chan_exists(1));
	mo_write(chan_file(0, "terminate_stops"), "1");
	for (tries = 0; tries < 100 && chan_exists(0); tries++)
		usleep(100000);
	expect(!chan_exists(0));
	wait_for_held(0);
	unload();
}

/*
 * An administrator says that the driver reports each error.  dcbm then looks for
 * no word, and takes no silence for success.
 */
void test_believed(void)
{
	load("bandwidth_mbps=0", "trust_errors=dmasim max_failures=1000000");
	fault_everywhere("fail_every", 3);
	expect(move_all() == 0);
	fault_everywhere("fail_every", 0);
	expect(dcbm_number("folios_failures") > 0);
	expect(dcbm_number("folios_migrated") > 0);
	expect(dcbm_number("held_folios") == 0);
	fault(1, "lose_irq_every", 1);
	move_with_timeout(&large);
	expect(mo_content_ok(&large));
	fault(1, "lose_irq_every", 0);
	expect(dcbm_number("held_folios_now") > 0);
	expect(chan_is(1, "retired"));
	reset_stopped(1);
	expect(move_all() == 0);
	unload();
}

/*
 * The channel never interrupts, and none of its pieces is there, but its driver
 * counts them as complete.
 */
void test_hidden_and_silent(void)
{
	load("bandwidth_mbps=0", "");
	fault(1, "hide_error_every", 1);
	fault(1, "lose_irq_every", 1);
	move_with_timeout(&large);
	expect(mo_content_ok(&large));
	fault(1, "hide_error_every", 0);
	fault(1, "lose_irq_every", 0);
	expect(dcbm_number("held_folios_now") > 0);
	expect(chan_is(1, "retired"));
	reset_stopped(1);
	expect(move_all() == 0);
	unload();
}

/*
 * The driver reports a transfer as aborted, and the device writes later.  No
 * program may use that page before.
 */
void test_aborted(void)
{
	load("bandwidth_mbps=0", "");
	fault(0, "late_ms", SOON_MS);
	fault(0, "abort_nth", 1);
	expect(move_all() == 0);
	expect(sim_number(0, "unheard") == 1);
	expect(dcbm_number("held_folios") > 0);
	wait_for_held(0);
	expect(chan_is(0, "idle"));
	unload();
}

/*
 * A transfer is late while an administrator switches dcbm off and on.  dcbm must
 * neither have the driver forget it, nor give the channel to any client.
 */
void test_off_and_on(void)
{
	int tries;

	load("bandwidth_mbps=0", "");
	fault(2, "late_ms", LATE_MS);
	fault(2, "late_nth", 1);
	sim_write(2, "terminate", "early");
	/* To switch dcbm off takes this long: less than the transfer. */
	set_timeout_ms(TIMEOUT_MS);
	mo_move_once(&large, mo_nodes[1]);
	expect(dcbm_number("held_folios_now") > 0);
	mo_write(PATH_DCBM "offloading", "0");
	mo_write(PATH_DCBM "offloading", "1");
	set_timeout_ms(PATIENT_MS);
	expect(chan_is(2, "leaving"));
	expect(chan_is(3, "idle"));
	expect(move_area(&small) == 0);
	expect(mo_content_ok(&large));
	expect(sim_number(2, "terminated") == 0);
	expect(sim_number(2, "early") == 0);
	wait_for_held(2 * LATE_MS);
	/* dcbm releases the channel a moment later, and can then have it again. */
	for (tries = 0; tries < 100 && chan_exists(2); tries++)
		usleep(100000);
	mo_write_number(PATH_DCBM "nr_dma_chan", NR_CHANS);
	expect(chan_is(2, "idle"));
	expect(move_all() == 0);
	unload();
}

void test_unbind(void)
{
	pthread_t mover;

	load("bandwidth_mbps=0", "");
	mover = start_moving();
	usleep(50000);
	mo_write("/sys/bus/platform/drivers/dmasim/unbind", "dmasim.0");
	expect(!chan_exists(0));
	end_moving(mover);
	mo_write("/sys/bus/platform/drivers/dmasim/bind", "dmasim.0");
	unload();
}

/* The device unregisters its channels, while its driver stays bound. */
void test_vanish(void)
{
	pthread_t mover;

	load("bandwidth_mbps=0", "");
	mover = start_moving();
	usleep(50000);
	mo_write(PATH_SIM "vanish", "1");
	expect(!chan_exists(0));
	end_moving(mover);
	expect(dcbm_number("held_folios") == 0);
	unload();
}

/* The device unregisters one channel, and keeps all others. */
void test_left(void)
{
	pthread_t mover;

	load("bandwidth_mbps=0", "");
	mover = start_moving();
	usleep(50000);
	/* The write fails if dcbm still has the channel. */
	expect(!mo_try_write(PATH_SIM "chan2/leave", "1"));
	expect(!chan_exists(2));
	expect(chan_exists(3));
	end_moving(mover);
	expect(dcbm_number("held_folios") == 0);
	unload();
}

/* dcbm takes only channels of the drivers that an administrator has named. */
void test_not_named(void)
{
	const char *const sim[] = { "modprobe", "dmasim", NULL };
	const char *const dcbm[] = { "modprobe", "dcbm", "devices=idxd,dma", NULL };

	expect(!mo_run(sim) && !mo_run(dcbm));
	expect(mo_try_write(PATH_DCBM "offloading", "1") == -ENODEV);
	expect(!chan_exists(0));
	unload();
}

/*
 * When its queue is full, the driver waits in prep.  dcbm lets it wait at most
 * once, and not at all while a channel has stalled.
 */
void test_prep_waits(void)
{
	long long start;
	unsigned int i;

	/* So slow, and in such short pieces, that the queues fill. */
	load("descriptors=16 prep_waits=1 latency_us=100000 max_seg_bytes=4096",
	     "cpu_share=0");
	expect(move_area(&small) == 0);
	expect(dcbm_number("folios_failures") == 0);
	for (i = 0; i < NR_CHANS; i++)
		expect(chan_number(i, "max_transfers") < 16);
	fault_everywhere("latency_us", 0);
	fault(1, "stall_nth", 1);
	start = now_ms();
	move_with_timeout(&small);
	expect(now_ms() - start < 2 * TIMEOUT_MS);
	expect(mo_content_ok(&small));
	expect(dcbm_number("held_folios_now") > 0);
	expect(chan_number(1, "in_doubt") <= chan_number(1, "max_transfers"));
	reset_stopped(1);
	expect(move_all() == 0);
	unload();
}

/* The driver refuses long pieces, of which it has not said anything. */
void test_refused_length(void)
{
	load("channels=1 max_copy_bytes=131072", "cpu_share=0");
	expect(move_area(&large) == 0);
	expect(dcbm_number("folios_failures") == 0);
	/* Longer pieces than those that any driver takes. */
	expect(sim_number(0, "bytes") > 100000 * sim_number(0, "descriptors"));
	unload();
}
