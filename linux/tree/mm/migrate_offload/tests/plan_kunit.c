// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of predictions from measured times. mm/migrate_offload/plan.c
 * includes this file, which gives access to static functions.
 */

#include <kunit/test.h>

/* The times of a window's parts add up, in any order. */
static void mo_test_times(struct kunit *test)
{
	const struct migrate_times none = {}, parts[] = {
		{ 512, 512, 1000, 5000, 300, 6000 },
		{ 100, 100, 1010, 7000, 3990, 5500 },
		{ 7, 0, 1020, 1020, 0, 9000 },
	};
	int i;

	for (i = 0; i < 2; i++) {
		struct migrate_times all = {};

		migrate_times_merge(&all, &none);
		migrate_times_merge(&all, &parts[i]);
		migrate_times_merge(&all, &none);
		migrate_times_merge(&all, &parts[!i]);
		KUNIT_EXPECT_EQ(test, all.nr, 612);
		KUNIT_EXPECT_EQ(test, all.nr_by_engine, 612);
		KUNIT_EXPECT_EQ(test, all.launched_ns, 1000);
		KUNIT_EXPECT_EQ(test, all.backlog_ns, 300);
		KUNIT_EXPECT_EQ(test, all.copied_ns, 7000);
		KUNIT_EXPECT_EQ(test, all.worst_ns, 6000);
		migrate_times_merge(&all, &parts[2]);
		KUNIT_EXPECT_EQ(test, all.nr, 619);
		KUNIT_EXPECT_EQ(test, all.nr_by_engine, 612);
		KUNIT_EXPECT_EQ(test, all.worst_ns, 9000);
	}
}

/*
 * The rate follows a tenfold slowdown at the second slow window.  It ignores a
 * single slow window.  It follows a tenfold speedup after a few more windows.
 */
static void mo_test_rates(struct kunit *test)
{
	struct migrate_rate rate = {};
	int i;

	migrate_rate_note(&rate, 0);
	KUNIT_EXPECT_EQ(test, rate.ns, 1);
	rate.ns = 0;
	migrate_rate_note(&rate, 1000);
	KUNIT_EXPECT_EQ(test, rate.ns, 1000);
	migrate_rate_note(&rate, 50000);
	KUNIT_EXPECT_EQ(test, rate.ns, 1000);
	migrate_rate_note(&rate, 1000);
	KUNIT_EXPECT_EQ(test, rate.ns, 1000);
	migrate_rate_note(&rate, 11000);
	migrate_rate_note(&rate, 10000);
	KUNIT_EXPECT_EQ(test, rate.ns, 10000);
	migrate_rate_note(&rate, 1000);
	KUNIT_EXPECT_GT(test, rate.ns, 5000);
	for (i = 0; i < 16; i++)
		migrate_rate_note(&rate, 1000);
	KUNIT_EXPECT_LT(test, rate.ns, 1200);
}

/*
 * The mean follows usual samples, and not one that is a thousand times longer.
 */
static void mo_test_mean(struct kunit *test)
{
	u64 mean_ns = 0;
	int i;

	migrate_mean_note(&mean_ns, 0);
	KUNIT_EXPECT_GT(test, mean_ns, 0);
	for (i = 0; i < 200; i++)
		migrate_mean_note(&mean_ns, 1000);
	KUNIT_EXPECT_GE(test, mean_ns, 900);
	KUNIT_EXPECT_LE(test, mean_ns, 1100);
	migrate_mean_note(&mean_ns, 1000000);
	KUNIT_EXPECT_LE(test, mean_ns, 1500);
	for (i = 0; i < 100; i++)
		migrate_mean_note(&mean_ns, 1000000);
	KUNIT_EXPECT_GE(test, mean_ns, 900000);
	/* A third of the samples is long, and has to show in the mean. */
	for (i = 0; i < 300; i++)
		migrate_mean_note(&mean_ns, i % 3 ? 1000 : 100000);
	KUNIT_EXPECT_GE(test, mean_ns, 10000);
	KUNIT_EXPECT_LE(test, mean_ns, 70000);
}

static struct kunit_case migrate_plan_test_cases[] = {
	KUNIT_CASE(mo_test_times),
	KUNIT_CASE(mo_test_rates),
	KUNIT_CASE(mo_test_mean),
	{}
};

static struct kunit_suite migrate_plan_test_suite = {
	.name = "migrate_plan",
	.test_cases = migrate_plan_test_cases,
};

kunit_test_suite(migrate_plan_test_suite);
