/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * KUnit tests of destinations, of commits, and of quotas.  mm/damon/migrate.c
 * includes this file.
 */
#ifdef CONFIG_DAMON_MIGRATE_KUNIT_TEST

#ifndef _DAMON_MIGRATE_TEST_H
#define _DAMON_MIGRATE_TEST_H

#include <kunit/test.h>

#define DAMOS_TEST_ORDER 4

/* Each destination gets as many consecutive turns as its weight. */
static void damos_test_shares(struct kunit *test)
{
	struct damos_dest arr[] = { { 0, 3 }, { 1, 0 }, { 2, 1 }, { 0, 2 } };
	static const unsigned int expected[] = { 0, 0, 0, 2, 3, 3 };
	struct damos_dests dests = { .arr = arr, .nr = ARRAY_SIZE(arr) };
	u64 total = damos_dests_total_weight(&dests);
	unsigned int i;

	KUNIT_ASSERT_EQ(test, total, 6ULL);
	for (i = 0; i < 10 * ARRAY_SIZE(expected); i++)
		KUNIT_EXPECT_EQ(test, damos_dests_choose(&dests, total, i),
				expected[i % ARRAY_SIZE(expected)]);
}

/*
 * If weights change from 1:1 to 3:1, a quarter of all folios moves, and only to
 * the first node.
 */
static void damos_test_change(struct kunit *test)
{
	struct damos_dest even_arr[] = { { 0, 1 }, { 1, 1 } };
	struct damos_dest uneven_arr[] = { { 0, 3 }, { 1, 1 } };
	struct damos_dests even = { .arr = even_arr, .nr = 2 };
	struct damos_dests uneven = { .arr = uneven_arr, .nr = 2 };
	unsigned int turn, from, to, moved = 0;

	for (turn = 0; turn < 1024; turn++) {
		from = damos_dests_choose(&even, 2, turn);
		to = damos_dests_choose(&uneven, 4, turn);
		if (from == to)
			continue;
		KUNIT_EXPECT_EQ(test, to, 0);
		moved++;
	}
	KUNIT_EXPECT_EQ(test, moved, 256);
}

/* Weights may have any value that their files accept. */
static void damos_test_large_weights(struct kunit *test)
{
	struct damos_dest arr[] = { { 0, UINT_MAX }, { 1, UINT_MAX }, { 2, 2 } };
	struct damos_dests dests = { .arr = arr, .nr = ARRAY_SIZE(arr) };
	u64 total = damos_dests_total_weight(&dests);

	KUNIT_ASSERT_EQ(test, total, 1ULL << 33);
	KUNIT_EXPECT_EQ(test, damos_dests_choose(&dests, total, 0), 0);
	KUNIT_EXPECT_EQ(test, damos_dests_choose(&dests, total, UINT_MAX), 1);
	KUNIT_EXPECT_EQ(test, damos_dests_choose(&dests, total, total - 3), 1);
	KUNIT_EXPECT_EQ(test, damos_dests_choose(&dests, total, total - 1), 2);
	KUNIT_EXPECT_EQ(test, damos_dests_choose(&dests, total, total), 0);
	KUNIT_EXPECT_EQ(test, damos_dests_choose(&dests, total, U64_MAX), 2);
}

static void damos_test_no_weight(struct kunit *test)
{
	struct damos_dest arr[] = { { 0, 0 }, { 1, 0 } };
	struct damos scheme = {
		.target_nid = 0,
		.dests = { .arr = arr, .nr = ARRAY_SIZE(arr) },
	};
	struct damos_migration m;

	KUNIT_EXPECT_FALSE(test, damos_migration_begin(&m, &scheme));
}

/* The turn of a folio is its index, in units of the folio's size. */
static void damos_test_turn(struct kunit *test)
{
	struct folio *folio = folio_alloc(GFP_KERNEL, DAMOS_TEST_ORDER);
	struct folio *page = folio_alloc(GFP_KERNEL, 0);

	if (folio && page) {
		folio->index = 5 << DAMOS_TEST_ORDER;
		KUNIT_EXPECT_EQ(test, damos_dests_turn(folio), 5ULL);
		folio->index = 6 << DAMOS_TEST_ORDER;
		KUNIT_EXPECT_EQ(test, damos_dests_turn(folio), 6ULL);
		page->index = 77;
		KUNIT_EXPECT_EQ(test, damos_dests_turn(page), 77ULL);
		folio->index = 0;
		page->index = 0;
	}
	if (folio)
		folio_put(folio);
	if (page)
		folio_put(page);
	if (!folio || !page)
		kunit_skip(test, "no memory");
}

/*
 * A folio stays if it is on its destination node, if its destination does not
 * exist, or if it is not on the LRU.
 */
static void damos_test_stays(struct kunit *test)
{
	struct damos_dest arr[] = { { 0, 1 }, { MAX_NUMNODES, 1 } };
	struct folio *folio = folio_alloc(GFP_KERNEL, 0);
	struct damos_migration m;
	struct damos scheme = {};
	int i;

	KUNIT_ASSERT_NOT_NULL(test, folio);
	folio->index = 0;
	INIT_LIST_HEAD(&scheme.filters);

	scheme.target_nid = NUMA_NO_NODE;
	KUNIT_EXPECT_FALSE(test, damos_migration_begin(&m, &scheme));
	scheme.target_nid = MAX_NUMNODES;
	KUNIT_EXPECT_FALSE(test, damos_migration_begin(&m, &scheme));

	/* Destinations override the target node. */
	arr[0].nid = folio_nid(folio);
	scheme.dests = (struct damos_dests) { .arr = arr, .nr = 2 };
	for (i = 0; i < 4; i++) {
		folio->index = i;
		KUNIT_ASSERT_TRUE(test, damos_migration_begin(&m, &scheme));
		KUNIT_EXPECT_EQ(test, damos_migration_dest(&m, folio), -1);
		damos_migration_add(&m, folio, 0);
		KUNIT_EXPECT_TRUE(test, list_empty(&m.lists[0]));
		KUNIT_EXPECT_EQ(test, m.nr_pages, 0UL);
		KUNIT_EXPECT_EQ(test, damos_migration_end(&m), 0UL);
	}
	folio->index = 0;
	KUNIT_EXPECT_EQ(test, folio_ref_count(folio), 1);
	folio_put(folio);
}

/*
 * A filter for young pages makes them old, so the scheme must not walk twice.
 */
static void damos_test_again(struct kunit *test)
{
	static const enum damos_filter_type types[] = {
		DAMOS_FILTER_TYPE_ANON, DAMOS_FILTER_TYPE_YOUNG,
	};
	struct damos_dest dest = { first_node(node_states[N_MEMORY]), 1 };
	struct damos scheme = { .dests = { .arr = &dest, .nr = 1 } };
	struct damos_filter *filter;
	struct damos_migration m;
	unsigned int i;

	INIT_LIST_HEAD(&scheme.filters);
	for (i = 0; i < ARRAY_SIZE(types); i++) {
		filter = damos_new_filter(types[i], true);
		KUNIT_ASSERT_NOT_NULL(test, filter);
		damos_add_filter(&scheme, filter);
		KUNIT_ASSERT_TRUE(test, damos_migration_begin(&m, &scheme));
		KUNIT_EXPECT_EQ(test, m.again,
				types[i] == DAMOS_FILTER_TYPE_YOUNG);
		m.missed = true;
		if (m.again)
			KUNIT_EXPECT_FALSE(test, damos_migration_again(&m));
		damos_migration_end(&m);
		damos_destroy_filter(filter);
	}
}

/* Copies are independent of their source.  An empty copy has no array. */
static void damos_test_copy(struct kunit *test)
{
	struct damos_dest arr[] = { { 0, 3 }, { 1, 1 } };
	struct damos_dests src = { .arr = arr, .nr = 2 }, none = {}, dst;

	KUNIT_ASSERT_EQ(test, damos_dests_copy(&dst, &src), 0);
	arr[1].weight = 7;
	KUNIT_EXPECT_EQ(test, dst.nr, 2);
	KUNIT_EXPECT_EQ(test, dst.arr[1].nid, 1);
	KUNIT_EXPECT_EQ(test, dst.arr[1].weight, 1);
	damos_dests_free(&dst);
	KUNIT_EXPECT_NULL(test, dst.arr);
	KUNIT_EXPECT_EQ(test, dst.nr, 0);
	damos_dests_free(&dst);

	KUNIT_EXPECT_EQ(test, damos_dests_copy(&dst, &none), 0);
	KUNIT_EXPECT_NULL(test, dst.arr);
	KUNIT_EXPECT_EQ(test, damos_dests_total_weight(&dst), 0ULL);
}

static struct damos *damos_test_new_scheme(struct damon_ctx *ctx,
					   struct damos_dests *dests)
{
	struct damos_access_pattern pattern = {};
	struct damos_watermarks wmarks = {};
	struct damos_quota quota = {};
	struct damos *s;

	s = damon_new_scheme(&pattern, DAMOS_MIGRATE_HOT, 0, &quota, &wmarks,
			     0);
	if (!s)
		return NULL;
	damon_add_scheme(ctx, s);
	return damos_dests_copy(&s->dests, dests) ? NULL : s;
}

/* After a commit, a scheme has the new destinations: more, fewer, or none. */
static void damos_test_commit(struct kunit *test)
{
	struct damos_dest arr[] = { { 0, 3 }, { 1, 1 }, { 2, 5 } };
	static const unsigned int nrs[] = { 1, 3, 2, 0, 2 };
	struct damos_dests dests = { .arr = arr, .nr = 2 };
	struct damon_ctx *ctx = damon_new_ctx(), *src;
	struct damos *running = NULL, *s;
	unsigned int i;

	if (ctx)
		running = damos_test_new_scheme(ctx, &dests);
	for (i = 0; running && i < ARRAY_SIZE(nrs); i++) {
		src = damon_new_ctx();
		if (!src)
			break;
		dests.nr = nrs[i];
		s = damos_test_new_scheme(src, &dests);
		if (s)
			KUNIT_EXPECT_EQ(test, damon_commit_ctx(ctx, src), 0);
		damon_destroy_ctx(src);
		KUNIT_EXPECT_EQ(test, running->dests.nr, nrs[i]);
		if (nrs[i])
			KUNIT_EXPECT_MEMEQ(test, running->dests.arr, arr,
					   nrs[i] * sizeof(*arr));
	}
	if (ctx)
		damon_destroy_ctx(ctx);
	KUNIT_EXPECT_EQ(test, i, ARRAY_SIZE(nrs));
}

/*
 * A late charge window starts at the end of the last one, but at most half an
 * interval ago.
 */
static void damos_test_charge_windows(struct kunit *test)
{
	unsigned long interval = msecs_to_jiffies(1000);
	/* Jiffies wrap in the middle of the window. */
	unsigned long from = -(interval / 2), next = from + interval;
	struct damos_quota quota = {
		.reset_interval = 1000, .esz = 1, .charged_from = from,
	};
	unsigned long late;

	KUNIT_EXPECT_EQ(test, damos_next_charge_window(&quota, next), next);
	KUNIT_EXPECT_EQ(test, damos_next_charge_window(&quota, next +
						       interval / 2), next);
	for (late = interval / 2; late < 4 * interval; late += interval / 8)
		KUNIT_EXPECT_EQ(test,
				damos_next_charge_window(&quota, next + late),
				next + late - interval / 2);
	/*
	 * Jiffies compare as signed numbers.  So after more than LONG_MAX of
	 * them, the end of the last charge window seems to be in the future.
	 */
	KUNIT_EXPECT_EQ(test,
			damos_next_charge_window(&quota, next + LONG_MAX + 9UL),
			next + LONG_MAX + 9UL - interval / 2);
	/* A new quota has had no charge window, so the first one starts now. */
	quota.esz = 0;
	KUNIT_EXPECT_EQ(test, damos_next_charge_window(&quota, next + 1),
			next + 1);
}

static bool damos_test_add_target(struct damon_ctx *ctx)
{
	struct damon_target *t = damon_new_target();

	if (t)
		damon_add_target(ctx, t);
	return t;
}

/*
 * A commit that removes the target at which a quota ran out must reset the
 * quota's position.
 */
static void damos_test_forget_target(struct kunit *test)
{
	struct damon_ctx *ctx = damon_new_ctx(), *src = damon_new_ctx();
	struct damos_dests none = {};
	struct damon_target *first;
	struct damos *s = NULL;

	if (!ctx || !src || !damos_test_new_scheme(src, &none) ||
	    !damos_test_add_target(src) || !damos_test_add_target(ctx) ||
	    !damos_test_add_target(ctx))
		goto out;
	s = damos_test_new_scheme(ctx, &none);
	if (!s)
		goto out;
	first = list_first_entry(&ctx->adaptive_targets, struct damon_target,
				 list);
	/*
	 * The commit keeps the first target, so the quota keeps its position.
	 */
	s->quota.charge_target_from = first;
	s->quota.charge_addr_from = PAGE_SIZE;
	KUNIT_EXPECT_TRUE(test, damos_test_add_target(src));
	KUNIT_EXPECT_EQ(test, damon_commit_ctx(ctx, src), 0);
	KUNIT_EXPECT_PTR_EQ(test, s->quota.charge_target_from, first);
	/* The commit removes the second target. */
	s->quota.charge_target_from = list_next_entry(first, list);
	damon_destroy_target(list_last_entry(&src->adaptive_targets,
					     struct damon_target, list));
	KUNIT_EXPECT_EQ(test, damon_commit_ctx(ctx, src), 0);
	KUNIT_EXPECT_NULL(test, s->quota.charge_target_from);
	KUNIT_EXPECT_EQ(test, s->quota.charge_addr_from, 0UL);
out:
	KUNIT_EXPECT_NOT_NULL(test, s);
	if (src)
		damon_destroy_ctx(src);
	if (ctx)
		damon_destroy_ctx(ctx);
}

static struct kunit_case damos_migrate_test_cases[] = {
	KUNIT_CASE(damos_test_shares),
	KUNIT_CASE(damos_test_change),
	KUNIT_CASE(damos_test_large_weights),
	KUNIT_CASE(damos_test_no_weight),
	KUNIT_CASE(damos_test_turn),
	KUNIT_CASE(damos_test_stays),
	KUNIT_CASE(damos_test_again),
	KUNIT_CASE(damos_test_copy),
	KUNIT_CASE(damos_test_commit),
	KUNIT_CASE(damos_test_charge_windows),
	KUNIT_CASE(damos_test_forget_target),
	{},
};

static struct kunit_suite damos_migrate_test_suite = {
	.name = "migrate_damon",
	.test_cases = damos_migrate_test_cases,
};

kunit_test_suite(damos_migrate_test_suite);

#endif /* _DAMON_MIGRATE_TEST_H */

#endif /* CONFIG_DAMON_MIGRATE_KUNIT_TEST */
