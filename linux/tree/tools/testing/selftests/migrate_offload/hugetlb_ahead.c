// SPDX-License-Identifier: GPL-2.0-only
/*
 * The core unmaps the next hugetlb folio while an engine copies one.  Tests
 * when it does so, when not, and that no content is lost.  Needs the module
 * migrate_offload_test, whose engine counts the folios in flight.
 */
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "../kselftest_harness.h"
#include "mo_area.h"
#include "mo_promote.h"
#include "mo_util.h"

#define NR_FOLIOS 4
/* Emulated machines and debug kernels are slow. */
#define TIMEOUT 600
/* The engine takes this long for each folio: longer than an unmap. */
#define DELAY_US 20000
/* For limits between one and two folios' time, and above both. */
#define LONG_DELAY_US 200000
#define ONE_US 390000
#define TWO_US 10000000
/* How often the engine goes away in the middle of a list. */
#define NR_ENDS 8

FIXTURE(ahead)
{
	struct mo_area area;
	char cgroups[MO_SETTING_BYTES];	/* empty: the root cgroup */
};

FIXTURE_VARIANT(ahead)
{
	enum mo_type type;
	long long in_flight;		/* where the core unmaps ahead */
};

FIXTURE_VARIANT_ADD(ahead, private)
{
	.type = MO_HUGETLB,
	.in_flight = 2,
};

FIXTURE_VARIANT_ADD(ahead, shared)
{
	.type = MO_HUGETLB_SHARED,
	.in_flight = 1,
};

FIXTURE_SETUP(ahead)
{
	const char *why_not = mo_cannot_run();

	if (why_not)
		SKIP(return, "%s", why_not);
	if (!mo_load_test_engine(MO_TEST_STREAM))
		SKIP(return, "cannot load the module migrate_offload_test");
	mo_reset();
	mo_set_limit("max_unmapped_us", 0);
	why_not = mo_map(&self->area, variant->type, NR_FOLIOS * SZ_2M, SZ_2M);
	if (why_not) {
		mo_unmap(&self->area);
		SKIP(return, "%s", why_not);
	}
	mo_write_number(PATH_TEST "delay_us", DELAY_US);
	mo_select("test");
}

FIXTURE_TEARDOWN(ahead)
{
	if (self->cgroups[0])
		mo_cgroup_leave(self->cgroups);
	mo_unmap(&self->area);
	if (mo_exists(PATH_TEST "decline"))
		mo_load_test_engine(MO_TEST_PLAIN);
	mo_reset();
}

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* All folios move, and the engine had at most this many in flight. */
#define EXPECT_MOVES(node, nr_in_flight) do {				\
	int to = node;							\
									\
	mo_write_number(PATH_TEST "max_in_flight", 0);			\
	EXPECT_EQ(mo_move_once(&self->area, to), 0);			\
	EXPECT_EQ(mo_elsewhere(&self->area, to), 0);			\
	EXPECT_TRUE(mo_content_ok(&self->area));			\
	EXPECT_EQ(mo_read_number(PATH_TEST "max_in_flight"),		\
		  nr_in_flight);					\
} while (0)

/* Each folio is one batch, and counts once. */
TEST_F_TIMEOUT(ahead, moves, TIMEOUT)
{
	long long copied = mo_counter("engine_folios");
	long long batches = mo_counter("batches");
	long long unmapped = mo_counter("unmapped_folios");
	long long left = mo_counter("cpu_folios");

	EXPECT_MOVES(mo_nodes[1], variant->in_flight);
	EXPECT_MOVES(mo_nodes[0], variant->in_flight);
	EXPECT_EQ(mo_counter("engine_folios") - copied, 2 * NR_FOLIOS);
	EXPECT_EQ(mo_counter("batches") - batches, 2 * NR_FOLIOS);
	EXPECT_EQ(mo_counter("unmapped_folios") - unmapped, 2 * NR_FOLIOS);
	EXPECT_EQ(mo_counter("cpu_folios"), left);
}

/* The engine's time counts once, though two folios are in flight. */
TEST_F_TIMEOUT(ahead, takes_time_once, TIMEOUT)
{
	long long before = mo_counter("engine_ns"), spent, begin, took;

	begin = now_ns();
	EXPECT_MOVES(mo_nodes[1], variant->in_flight);
	took = now_ns() - begin;
	spent = mo_counter("engine_ns") - before;
	EXPECT_GT(spent, 0);
	EXPECT_LE(spent, took);
}

/* The folio that was unmapped ahead completes first. */
TEST_F_TIMEOUT(ahead, comes_in_any_order, TIMEOUT)
{
	static const char *const orders[] = { "reverse", "random" };
	unsigned int i;

	for (i = 0; i < 2; i++) {
		mo_write(PATH_TEST "order", orders[i]);
		EXPECT_MOVES(mo_nodes[!i], variant->in_flight);
	}
}

/* In its turn, the CPU copies a folio that the engine failed to copy. */
TEST_F_TIMEOUT(ahead, may_fail, TIMEOUT)
{
	static const char *const switches[] = { "fail_nth", "decline_nth" };
	static const char *const counters[] = {
		"failed_folios", "declined_folios",
	};
	long long before, left;
	char path[64];
	int i, nth;

	for (i = 0; i < 2; i++) {
		for (nth = 1; nth <= 2; nth++) {
			before = mo_counter(counters[i]);
			left = mo_counter("cpu_folios");
			snprintf(path, sizeof(path), PATH_TEST "%s", switches[i]);
			mo_write_number(path, nth);
			EXPECT_MOVES(mo_nodes[nth % 2], variant->in_flight);
			EXPECT_EQ(mo_counter(counters[i]) - before, 1);
			EXPECT_EQ(mo_counter("cpu_folios") - left, 1);
		}
	}
}

/*
 * Not where two folios would exceed the limit on unmapped time.  The core knows
 * this after the first folio.
 */
TEST_F_TIMEOUT(ahead, keeps_the_limit, TIMEOUT)
{
	mo_write_number(PATH_TEST "delay_us", LONG_DELAY_US);
	mo_set_limit("max_unmapped_us", ONE_US);
	EXPECT_MOVES(mo_nodes[1], 1);
	EXPECT_MOVES(mo_nodes[0], 1);
	mo_set_limit("max_unmapped_us", TWO_US);
	EXPECT_MOVES(mo_nodes[1], variant->in_flight);
}

/* Not where windows must not overlap, or without streaming. */
TEST_F_TIMEOUT(ahead, not_where_nothing_overlaps, TIMEOUT)
{
	mo_set_limit("max_windows", 1);
	EXPECT_MOVES(mo_nodes[1], 1);
	mo_set_limit("max_windows", 2);
	mo_set_limit("streaming", 0);
	EXPECT_MOVES(mo_nodes[0], 1);
	mo_set_limit("streaming", 1);
	EXPECT_MOVES(mo_nodes[1], variant->in_flight);
}

/* Not where the cgroup may be throttled for the time of helpers. */
TEST_F_TIMEOUT(ahead, not_under_cpu_max, TIMEOUT)
{
	const char *why_not = mo_cgroup_enter(self->cgroups, "+cpu", "cpu.max",
					      "80000 100000");

	if (why_not)
		SKIP(return, "%s", why_not);
	EXPECT_MOVES(mo_nodes[1], 1);
}

static void set_pool(int node, long long nr)
{
	char path[128];

	snprintf(path, sizeof(path),
		 "/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/nr_hugepages",
		 node);
	mo_write_number(path, nr);
}

/*
 * Not where the destination has to be allocated first.  Then the pool of its
 * node grows by one, and the pool of the source's node shrinks by one.
 */
TEST_F_TIMEOUT(ahead, not_without_a_pool, TIMEOUT)
{
	long long had[2], free;
	int i;

	for (i = 0; i < 2; i++)
		had[i] = mo_huge_pages(mo_nodes[i], SZ_2M, "nr_hugepages");
	free = mo_huge_pages(mo_nodes[1], SZ_2M, "free_hugepages");
	set_pool(mo_nodes[1], had[1] - free + 1);
	EXPECT_MOVES(mo_nodes[1], 1);
	for (i = 0; i < 2; i++)
		set_pool(mo_nodes[i], had[i]);
	EXPECT_MOVES(mo_nodes[0], variant->in_flight);
}

static void *switch_off(void *unused)
{
	usleep(LONG_DELAY_US / 2);
	mo_select("none");
	return NULL;
}

/*
 * The engine copies the folios that it already has.  At least once it must not
 * get the rest of the list.  In the other rounds the thread may come too late.
 */
TEST_F_TIMEOUT(ahead, ends_with_its_engine, TIMEOUT)
{
	long long copied = mo_counter("engine_folios");
	pthread_t thread;
	int i;

	mo_write_number(PATH_TEST "delay_us", LONG_DELAY_US);
	for (i = 0; i < NR_ENDS; i++) {
		mo_select("test");
		ASSERT_EQ(pthread_create(&thread, NULL, switch_off, NULL), 0);
		EXPECT_EQ(mo_move_once(&self->area, mo_nodes[!(i % 2)]), 0);
		pthread_join(thread, NULL);
		EXPECT_EQ(mo_elsewhere(&self->area, mo_nodes[!(i % 2)]), 0);
		EXPECT_TRUE(mo_content_ok(&self->area));
	}
	EXPECT_LT(mo_counter("engine_folios") - copied, NR_ENDS * NR_FOLIOS);
}

TEST_HARNESS_MAIN
