// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the histograms. mm/migrate_offload/hist.c includes this file,
 * which gives access to static functions.
 */

#include <kunit/test.h>

/* Each bucket includes its lower bound, and no smaller time. */
static void mo_test_buckets(struct kunit *test)
{
	unsigned int bucket;

	KUNIT_EXPECT_EQ(test, migrate_hist_bucket(0), 0);
	for (bucket = 1; bucket < MIGRATE_HIST_BUCKETS; bucket++) {
		u64 ns = migrate_hist_lower_ns(bucket);

		KUNIT_EXPECT_GT(test, ns, migrate_hist_lower_ns(bucket - 1));
		KUNIT_EXPECT_EQ(test, migrate_hist_bucket(ns), bucket);
		KUNIT_EXPECT_EQ(test, migrate_hist_bucket(ns - 1), bucket - 1);
	}
	/* The last bucket takes all longer times. */
	KUNIT_EXPECT_EQ(test, migrate_hist_lower_ns(MIGRATE_HIST_BUCKETS - 1),
			(u64)MIGRATE_HIST_MIN_NS << MIGRATE_HIST_OCTAVES);
	KUNIT_EXPECT_EQ(test, migrate_hist_bucket(U64_MAX),
			MIGRATE_HIST_BUCKETS - 1);
}

/* The width of a bucket is at most an eighth of its lower bound. */
static void mo_test_bucket_width(struct kunit *test)
{
	unsigned int bucket;

	for (bucket = 1; bucket < MIGRATE_HIST_BUCKETS - 1; bucket++) {
		u64 lower = migrate_hist_lower_ns(bucket);

		KUNIT_EXPECT_LE(test, migrate_hist_lower_ns(bucket + 1) - lower,
				lower / 8);
	}
}

/* The file of a histogram lists the buckets that are not empty, in order. */
static void mo_test_hist_show(struct kunit *test)
{
	struct migrate_offload_stats *stats;
	char *buf = kunit_kzalloc(test, PAGE_SIZE, GFP_KERNEL);

	stats = kunit_kzalloc(test, sizeof(*stats), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, buf);
	KUNIT_ASSERT_NOT_NULL(test, stats);
	stats->hists = alloc_percpu(struct migrate_hists);
	KUNIT_ASSERT_TRUE(test, stats->hists);

	migrate_hist_add(stats, MIGRATE_HIST_WAITED, 2048, 1);
	migrate_hist_add(stats, MIGRATE_HIST_WAITED, 100, 3);
	migrate_hist_add(stats, MIGRATE_HIST_WAITED, 2049, 1);
	migrate_hist_show(stats, MIGRATE_HIST_WAITED, buf);
	KUNIT_EXPECT_STREQ(test, buf, "0 3\n2048 2\n");
	migrate_hist_show_count(stats, MIGRATE_HIST_WAITED, buf);
	KUNIT_EXPECT_STREQ(test, buf, "5\n");
	migrate_hist_show_sum(stats, MIGRATE_HIST_WAITED, buf);
	KUNIT_EXPECT_STREQ(test, buf, "4397\n");
	migrate_hist_show_max(stats, MIGRATE_HIST_WAITED, buf);
	KUNIT_EXPECT_STREQ(test, buf, "2049\n");
	/* The other histogram is unchanged. */
	migrate_hist_show_count(stats, MIGRATE_HIST_UNMAPPED, buf);
	KUNIT_EXPECT_STREQ(test, buf, "0\n");
	free_percpu(stats->hists);
}

/* The unmapped time of a folio counts for its reason alone. */
static void mo_test_hist_reason(struct kunit *test)
{
	struct migrate_offload_stats *stats =
		migrate_offload_reason_stats[MR_LONGTERM_PIN];
	u64 nr = 0, nr_after = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		nr += per_cpu_ptr(stats->hists, cpu)
			->of[MIGRATE_HIST_UNMAPPED].buckets[1];
	migrate_offload_note_unmapped(MR_LONGTERM_PIN, MIGRATE_HIST_MIN_NS, 1);
	migrate_offload_note_unmapped(MR_DEMOTION, MIGRATE_HIST_MIN_NS, 1);
	for_each_possible_cpu(cpu)
		nr_after += per_cpu_ptr(stats->hists, cpu)
			->of[MIGRATE_HIST_UNMAPPED].buckets[1];
	KUNIT_EXPECT_EQ(test, nr_after, nr + 1);
	/* This reason is never offloaded, and has no histogram. */
	migrate_offload_note_unmapped(MR_MEMORY_FAILURE, MIGRATE_HIST_MIN_NS, 1);
}

/* A task that waits for an unmapped folio finds the reason. */
static void mo_test_wait_reason(struct kunit *test)
{
	struct folio *folio = folio_alloc(GFP_KERNEL, 0);
	struct migrate_wait wait = {};

	KUNIT_ASSERT_NOT_NULL(test, folio);
	migrate_offload_note_reason(folio, MR_DEMOTION);
	__migrate_wait_begin(&wait, folio);
	KUNIT_EXPECT_EQ(test, wait.reason, MR_DEMOTION);
	KUNIT_EXPECT_GT(test, wait.start_ns, 0);
	migrate_offload_forget_reason(folio);
	__migrate_wait_begin(&wait, folio);
	KUNIT_EXPECT_EQ(test, wait.reason, -1);
	folio_put(folio);
}

static struct kunit_case migrate_hist_test_cases[] = {
	KUNIT_CASE(mo_test_buckets),
	KUNIT_CASE(mo_test_bucket_width),
	KUNIT_CASE(mo_test_hist_show),
	KUNIT_CASE(mo_test_hist_reason),
	KUNIT_CASE(mo_test_wait_reason),
	{}
};

static struct kunit_suite migrate_hist_test_suite = {
	.name = "migrate_hist",
	.test_cases = migrate_hist_test_cases,
};

kunit_test_suite(migrate_hist_test_suite);
