// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of how much compaction isolates. mm/migrate_offload/compact.c
 * includes this file, which gives access to static functions.
 */

#include <kunit/test.h>

/*
 * Compaction isolates at most the requested block, and at least the cluster of
 * stock Linux.
 */
static void mo_test_cluster_most(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, migrate_cluster_most(0), COMPACT_CLUSTER_MAX);
	KUNIT_EXPECT_EQ(test, migrate_cluster_most(5), 32);
	KUNIT_EXPECT_EQ(test, migrate_cluster_most(6), 64);
	KUNIT_EXPECT_EQ(test, migrate_cluster_most(pageblock_order),
			pageblock_nr_pages);
	KUNIT_EXPECT_EQ(test, migrate_cluster_most(pageblock_order + 1),
			pageblock_nr_pages);
	KUNIT_EXPECT_EQ(test, migrate_cluster_most(-1), pageblock_nr_pages);
}

/* Compaction isolates as many pages as all windows hold, within bounds. */
static void mo_test_cluster_pages(struct kunit *test)
{
	struct migrate_plan plan = { .folios = 1, .max_windows = 2 };

	KUNIT_EXPECT_EQ(test, migrate_cluster_pages(&plan, 512), 32);
	plan.folios = 16;
	KUNIT_EXPECT_EQ(test, migrate_cluster_pages(&plan, 512), 32);
	plan.folios = 100;
	KUNIT_EXPECT_EQ(test, migrate_cluster_pages(&plan, 512), 200);
	KUNIT_EXPECT_EQ(test, migrate_cluster_pages(&plan, 64), 64);
	plan.folios = UINT_MAX;
	KUNIT_EXPECT_EQ(test, migrate_cluster_pages(&plan, 512), 512);
}

/* Without an engine, compaction isolates as many pages as stock Linux. */
static void mo_test_cluster_stock(struct kunit *test)
{
	const struct migrate_engine *engine;
	int idx;

	engine = migrate_engine_enter(MR_COMPACTION, &idx);
	migrate_engine_exit(idx);
	if (engine)
		kunit_skip(test, "an engine is active");
	KUNIT_EXPECT_EQ(test, __migrate_offload_cluster(0, -1),
			COMPACT_CLUSTER_MAX);
}

static struct kunit_case migrate_compact_test_cases[] = {
	KUNIT_CASE(mo_test_cluster_most),
	KUNIT_CASE(mo_test_cluster_pages),
	KUNIT_CASE(mo_test_cluster_stock),
	{}
};

static struct kunit_suite migrate_compact_test_suite = {
	.name = "migrate_compact",
	.test_cases = migrate_compact_test_cases,
};

kunit_test_suite(migrate_compact_test_suite);
