// SPDX-License-Identifier: GPL-2.0-only
/*
 * Engines that misbehave.  The data must be right, and folios that an error
 * does not concern must move.  Needs the module migrate_offload_test.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../../kselftest_harness.h"
#include "mo_area.h"
#include "mo_util.h"

/* Emulated machines and debug kernels are slow. */
#define TIMEOUT 600

#define EXPECT_MOVES(node) do {						\
	EXPECT_EQ(mo_move(&self->area, node), 0);			\
	EXPECT_TRUE(mo_content_ok(&self->area));			\
} while (0)

/* One test engine of each kind. */
FIXTURE(fallback)
{
	struct mo_area area;
};

FIXTURE_VARIANT(fallback)
{
	enum mo_test_mode mode;
};

FIXTURE_VARIANT_ADD(fallback, per_folio)
{
	.mode = MO_TEST_PLAIN,
};

FIXTURE_VARIANT_ADD(fallback, posted)
{
	.mode = MO_TEST_POSTED,
};

FIXTURE_VARIANT_ADD(fallback, stream)
{
	.mode = MO_TEST_STREAM,
};

FIXTURE_SETUP(fallback)
{
	const char *why_not = mo_cannot_run();

	if (why_not)
		SKIP(return, "%s", why_not);
	if (!mo_load_test_engine(variant->mode))
		SKIP(return, "cannot load the module migrate_offload_test");
	if (variant->mode != MO_TEST_POSTED) {
		mo_reset();
		mo_select("test");
	}
	/*
	 * With a time limit, the core would make small windows, or leave out a
	 * slow engine.
	 */
	mo_set_limit("max_unmapped_us", 0);
	ASSERT_EQ(mo_map(&self->area, MO_ANON, SZ_2M, SZ_4K), NULL);
}

FIXTURE_TEARDOWN(fallback)
{
	mo_unmap(&self->area);
	if (mo_exists(PATH_TEST "decline"))
		mo_load_test_engine(MO_TEST_PLAIN);
	mo_reset();
}

TEST_F_TIMEOUT(fallback, copies, TIMEOUT)
{
	long long copied = mo_counter("engine_folios");

	EXPECT_MOVES(mo_nodes[1]);
	EXPECT_GE(mo_counter("engine_folios") - copied, 500);
}

TEST_F_TIMEOUT(fallback, declines, TIMEOUT)
{
	long long copied = mo_counter("engine_folios");
	long long declined = mo_counter("declined_folios");

	mo_write(PATH_TEST "decline", "1");
	EXPECT_MOVES(mo_nodes[1]);
	EXPECT_EQ(mo_counter("engine_folios"), copied);
	EXPECT_GT(mo_counter("declined_folios"), declined);
}

/*
 * The CPU copies only the failed folio.  If the engine has one result for a
 * batch, the CPU copies the batch.
 */
TEST_F_TIMEOUT(fallback, fails_one, TIMEOUT)
{
	long long copied = mo_counter("engine_folios");
	long long failed = mo_counter("failed_folios");

	mo_write(PATH_TEST "fail_nth", "100");
	EXPECT_MOVES(mo_nodes[1]);
	copied = mo_counter("engine_folios") - copied;
	failed = mo_counter("failed_folios") - failed;
	if (variant->mode == MO_TEST_POSTED) {
		EXPECT_GE(failed, 100);
	} else {
		EXPECT_EQ(failed, 1);
		EXPECT_GE(copied, 500);
	}
}

TEST_F_TIMEOUT(fallback, is_slow, TIMEOUT)
{
	long long copied = mo_counter("engine_folios");

	mo_write(PATH_TEST "delay_us", "50000");
	EXPECT_MOVES(mo_nodes[1]);
	EXPECT_GT(mo_counter("engine_folios"), copied);
}

TEST_F_TIMEOUT(fallback, lies_but_is_verified, TIMEOUT)
{
	long long wrong = mo_counter("mismatched_folios");

	mo_set_limit("verify", 1);
	mo_write(PATH_TEST "lie_nth", "100");
	EXPECT_MOVES(mo_nodes[1]);
	EXPECT_EQ(mo_counter("mismatched_folios") - wrong, 1);
}

/* Proves that the tests above notice a folio that was not copied. */
TEST_F_TIMEOUT(fallback, lies, TIMEOUT)
{
	size_t i, wrong = 0;

	mo_write(PATH_TEST "lie_nth", "100");
	EXPECT_EQ(mo_move(&self->area, mo_nodes[1]), 0);
	for (i = 0; i < self->area.bytes / SZ_4K; i++)
		wrong += !mo_page_ok(&self->area, i);
	EXPECT_EQ(wrong, 1);
}

/* A struct migrator excludes other engines, until it unregisters. */
TEST_F_TIMEOUT(fallback, is_alone, TIMEOUT)
{
	const char *const unload[] = { "modprobe", "-r", "migrate_offload_test",
				       NULL };
	const char *const load_posted[] = { "modprobe", "migrate_offload_test",
					    "posted=1", NULL };
	char engine[64];

	if (variant->mode != MO_TEST_POSTED) {
		EXPECT_EQ(mo_try_write(PATH_OFFLOAD "engine", "cpu"), 0);
		return;
	}
	EXPECT_EQ(mo_try_write(PATH_OFFLOAD "engine", "cpu"), -EBUSY);
	mo_read(PATH_OFFLOAD "engine", engine, sizeof(engine));
	EXPECT_STREQ(engine, "test\n");
	ASSERT_TRUE(mo_load_test_engine(MO_TEST_PLAIN));
	mo_select("cpu");
	/* Another engine is active now. */
	EXPECT_EQ(mo_run(unload), 0);
	EXPECT_NE(mo_run(load_posted), 0);
}

/* An engine that streams. */
FIXTURE(streams)
{
	struct mo_area area;
};

FIXTURE_SETUP(streams)
{
	const char *why_not = mo_cannot_run();

	if (why_not)
		SKIP(return, "%s", why_not);
	if (!mo_exists(PATH_DEBUG "max_windows"))
		SKIP(return, "this kernel has no windows");
	if (!mo_load_test_engine(MO_TEST_STREAM))
		SKIP(return, "cannot load the module migrate_offload_test");
	mo_reset();
	mo_set_limit("max_unmapped_us", 0);
	mo_select("test");
	ASSERT_EQ(mo_map(&self->area, MO_ANON, SZ_2M, SZ_4K), NULL);
}

FIXTURE_TEARDOWN(streams)
{
	mo_unmap(&self->area);
	if (mo_exists(PATH_TEST "decline"))
		mo_load_test_engine(MO_TEST_PLAIN);
	mo_reset();
}

/* Set the pages of a window, and the number of windows in flight. */
static void set_windows(unsigned int pages, unsigned int windows)
{
	mo_set_limit("max_batch_pages", pages);
	mo_set_limit("max_windows", windows);
}

TEST_F_TIMEOUT(streams, are_done_in_any_order, TIMEOUT)
{
	static const char *const orders[] = { "fifo", "reverse", "random" };
	long long copied;
	unsigned int i;

	set_windows(32, 4);
	for (i = 0; i < 2 * ARRAY_SIZE(orders); i++) {
		copied = mo_counter("engine_folios");
		mo_write(PATH_TEST "order", orders[i / 2]);
		EXPECT_MOVES(mo_nodes[!(i % 2)]);
		EXPECT_GE(mo_counter("engine_folios") - copied, 500);
	}
}

TEST_F_TIMEOUT(streams, have_windows_side_by_side, TIMEOUT)
{
	unsigned int i, nr_windows[] = { 1, 2, 4, 16 };

	/* Longer than a debug kernel takes to unmap a window. */
	mo_write(PATH_TEST "delay_us", "50000");
	for (i = 0; i < ARRAY_SIZE(nr_windows); i++) {
		set_windows(8, nr_windows[i]);
		mo_write(PATH_TEST "max_in_flight", "0");
		EXPECT_MOVES(mo_nodes[!(i % 2)]);
		/*
		 * The limit holds, and windows overlap.  The exact number
		 * depends on the CPU.
		 */
		EXPECT_LE(mo_read_number(PATH_TEST "max_in_flight"),
			  nr_windows[i]);
		EXPECT_GE(mo_read_number(PATH_TEST "max_in_flight"),
			  nr_windows[i] > 1 ? 2 : 1);
	}
}

/* Declining a batch affects this batch alone. */
TEST_F_TIMEOUT(streams, decline_a_batch, TIMEOUT)
{
	long long copied = mo_counter("engine_folios");
	long long declined = mo_counter("declined_folios");

	set_windows(32, 4);
	mo_write(PATH_TEST "decline_nth", "3");
	EXPECT_MOVES(mo_nodes[1]);
	EXPECT_EQ(mo_counter("declined_folios") - declined, 32);
	EXPECT_GE(mo_counter("engine_folios") - copied, 460);

	copied = mo_counter("engine_folios");
	mo_write(PATH_TEST "decline_submit", "1");
	EXPECT_MOVES(mo_nodes[0]);
	EXPECT_EQ(mo_counter("engine_folios"), copied);
}

/*
 * No folio of these windows is eligible, while the engine copies other windows.
 * The core must not keep their resources until the engine is done.
 */
TEST_F_TIMEOUT(streams, pass_over_a_window, TIMEOUT)
{
	long long copied = mo_counter("engine_folios");
	long long left = mo_counter("not_eligible_folios");
	struct iovec pinned = { self->area.mem + 128 * SZ_4K, 64 * SZ_4K };
	int fds[2];

	ASSERT_EQ(pipe(fds), 0);
	ASSERT_GE(fcntl(fds[1], F_SETPIPE_SZ, (int)pinned.iov_len), 0);
	ASSERT_EQ(vmsplice(fds[1], &pinned, 1, 0), pinned.iov_len);
	set_windows(32, 4);
	mo_write(PATH_TEST "delay_us", "5000");
	EXPECT_GE(mo_move_once(&self->area, mo_nodes[1]), 0);
	EXPECT_EQ(mo_elsewhere(&self->area, mo_nodes[1]), 64);
	/* Once in the window, and once in the retry of each folio. */
	EXPECT_EQ(mo_counter("not_eligible_folios") - left, 2 * 64);
	EXPECT_EQ(mo_counter("engine_folios") - copied, 512 - 64);
	EXPECT_TRUE(mo_content_ok(&self->area));
	close(fds[0]);
	close(fds[1]);
	EXPECT_MOVES(mo_nodes[1]);
}

/*
 * Move 8 lists with an engine that is late, and of which the core knows nothing
 * yet.  Returns false if the engine got more than a few windows.
 */
static bool gets_a_few_windows(struct mo_area *area)
{
	long long offered, too_slow;
	int i;

	mo_load_test_engine(MO_TEST_PLAIN);
	if (!mo_load_test_engine(MO_TEST_STREAM))
		mo_die("cannot load the test engine again");
	mo_select("test");
	mo_set_limit("engine_always", 0);
	mo_set_limit("max_unmapped_us", 20000);
	mo_write(PATH_TEST "delay_us", "60000");
	offered = mo_counter("offered_folios");
	too_slow = mo_counter("too_slow_folios");
	for (i = 0; i < 8; i++)
		if (mo_move(area, mo_nodes[(i + 1) % 2]))
			mo_die("some pages did not move");
	offered = mo_counter("offered_folios") - offered;
	too_slow = mo_counter("too_slow_folios") - too_slow;
	printf("# %lld folios offered, %lld too slow\n", offered, too_slow);
	return offered > 0 && offered <= 8 * 32 && too_slow >= 8 * (512 - 32);
}

/*
 * An engine that needs more than the limit for one folio gets only some windows
 * of a list.  If it got all, each would have one folio, and take 60 ms.  If the
 * host stops the guest in the first window, the CPU looks even slower for the
 * whole list.  So try a few times.
 */
TEST_F_TIMEOUT(streams, leave_a_late_engine_out, TIMEOUT)
{
	bool few = false;
	long long offered;
	int i;

	for (i = 0; i < 3 && !few; i++) {
		few = gets_a_few_windows(&self->area);
		EXPECT_TRUE(mo_content_ok(&self->area));
	}
	EXPECT_TRUE(few);
	/* With engine_always, the engine gets all, whatever its earlier times. */
	mo_write(PATH_TEST "delay_us", "0");
	mo_set_limit("engine_always", 1);
	offered = mo_counter("offered_folios");
	EXPECT_MOVES(mo_nodes[1]);
	EXPECT_GE(mo_counter("offered_folios") - offered, 500);
}

/* A failure in one window costs one folio, and affects no other window. */
TEST_F_TIMEOUT(streams, fail_in_one_window, TIMEOUT)
{
	long long copied = mo_counter("engine_folios");
	long long failed = mo_counter("failed_folios");

	set_windows(32, 4);
	mo_write(PATH_TEST "order", "random");
	mo_write(PATH_TEST "fail_nth", "100");
	EXPECT_MOVES(mo_nodes[1]);
	EXPECT_EQ(mo_counter("failed_folios") - failed, 1);
	EXPECT_GE(mo_counter("engine_folios") - copied, 500);
}

/* A held folio stays in place, and all others move. */
TEST_F_TIMEOUT(streams, hold_in_one_window, TIMEOUT)
{
	long long held = mo_counter("held_folios");
	long long writes = mo_read_number(PATH_TEST "late_writes");

	set_windows(32, 4);
	mo_write(PATH_TEST "order", "random");
	mo_write(PATH_TEST "late_ms", "3600000");
	mo_write(PATH_TEST "hold_nth", "100");
	EXPECT_GE(mo_move_once(&self->area, mo_nodes[1]), 0);
	EXPECT_EQ(mo_counter("held_folios") - held, 1);
	EXPECT_EQ(mo_elsewhere(&self->area, mo_nodes[1]), 1);
	EXPECT_TRUE(mo_content_ok(&self->area));
	mo_write(PATH_TEST "late_now", "1");
	while (mo_read_number(PATH_TEST "late_writes") == writes)
		usleep(1000);
	EXPECT_MOVES(mo_nodes[1]);
}

/* A batch reported during submit does not wait for other batches. */
TEST_F_TIMEOUT(streams, report_while_given_more, TIMEOUT)
{
	long long waits = mo_read_number(PATH_TEST "unneeded_waits");
	long long copied = mo_counter("engine_folios");

	set_windows(32, 2);
	mo_write(PATH_TEST "delay_us", "2000");
	mo_write(PATH_TEST "report_early", "1");
	EXPECT_MOVES(mo_nodes[1]);
	EXPECT_GE(mo_counter("engine_folios") - copied, 500);
	EXPECT_EQ(mo_read_number(PATH_TEST "unneeded_waits"), waits);
}

/*
 * The core must not wait for an engine that has reported all batches: the wait
 * might never end.
 */
TEST_F_TIMEOUT(streams, are_not_waited_for_with_nothing_in_flight, TIMEOUT)
{
	long long waits = mo_read_number(PATH_TEST "unneeded_waits");
	long long copied = mo_counter("engine_folios");
	int i;

	for (i = 0; i < 2; i++) {
		mo_set_limit("streaming", i);
		set_windows(32, 1 + i);
		mo_write(PATH_TEST "report_now", "1");
		EXPECT_MOVES(mo_nodes[!i]);
	}
	EXPECT_GE(mo_counter("engine_folios") - copied, 1000);
	EXPECT_EQ(mo_read_number(PATH_TEST "unneeded_waits"), waits);
}

/* Two pages, of which one arrives first. */
struct race {
	void *pages[2];
	atomic_bool stop;
	int winner;	/* -1: both arrived at once, or neither */
};

static void *watch_race(void *arg)
{
	struct race *race = arg;
	int nodes[2];

	race->winner = -1;
	while (!race->stop) {
		mo_query(race->pages, 2, nodes);
		if (nodes[0] != mo_nodes[1] && nodes[1] != mo_nodes[1])
			continue;
		if (nodes[0] != mo_nodes[1] || nodes[1] != mo_nodes[1])
			race->winner = nodes[1] == mo_nodes[1];
		break;
	}
	return NULL;
}

/* The page that was copied first becomes accessible first. */
TEST_F_TIMEOUT(streams, give_back_what_is_done, TIMEOUT)
{
	static const char *const orders[] = { "fifo", "reverse" };
	unsigned int i, tries;
	pthread_t watcher;

	set_windows(64, 1);
	for (i = 0; i < ARRAY_SIZE(orders); i++) {
		struct race race = {
			.pages = { self->area.mem, self->area.mem + 63 * SZ_4K },
			.winner = -1,
		};

		mo_write(PATH_TEST "order", orders[i]);
		/* The host may stop the watcher until both are there. */
		for (tries = 0; tries < 10 && race.winner < 0; tries++) {
			race.stop = false;
			mo_write(PATH_TEST "pair_delay_us", "2000");
			ASSERT_EQ(pthread_create(&watcher, NULL, watch_race,
						 &race), 0);
			EXPECT_MOVES(mo_nodes[1]);
			race.stop = true;
			pthread_join(watcher, NULL);
			mo_write(PATH_TEST "pair_delay_us", "0");
			EXPECT_MOVES(mo_nodes[0]);
		}
		EXPECT_EQ(race.winner, i);
	}
}

TEST_HARNESS_MAIN
