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

/* Destinations in the arrays of a test, which nothing frees. */
static struct damos_migrate_dests
damos_test_dests(unsigned int *nodes, unsigned int *weights, size_t nr)
{
	return (struct damos_migrate_dests) {
		.node_id_arr = nodes, .weight_arr = weights, .nr_dests = nr,
	};
}

/* Each destination gets as many consecutive turns as its weight. */
static void damos_test_shares(struct kunit *test)
{
	unsigned int nodes[] = { 0, 1, 2, 0 }, weights[] = { 3, 0, 1, 2 };
	struct damos_migrate_dests dests = damos_test_dests(nodes, weights, 4);
	static const unsigned int expected[] = { 0, 0, 0, 2, 3, 3 };
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
	unsigned int nodes[] = { 0, 1 };
	unsigned int same[] = { 1, 1 }, more[] = { 3, 1 };
	struct damos_migrate_dests even = damos_test_dests(nodes, same, 2);
	struct damos_migrate_dests uneven = damos_test_dests(nodes, more, 2);
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
	unsigned int nodes[] = { 0, 1, 2 };
	unsigned int weights[] = { UINT_MAX, UINT_MAX, 2 };
	struct damos_migrate_dests dests = damos_test_dests(nodes, weights, 3);
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
	unsigned int nodes[] = { 0, 1 }, weights[] = { 0, 0 };
	struct damos scheme = {
		.target_nid = 0,
		.migrate_dests = damos_test_dests(nodes, weights, 2),
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
		pgoff_t index = 5 << DAMOS_TEST_ORDER;

		KUNIT_EXPECT_EQ(test, damos_dests_turn(folio, index), 5ULL);
		index = 6 << DAMOS_TEST_ORDER;
		KUNIT_EXPECT_EQ(test, damos_dests_turn(folio, index), 6ULL);
		KUNIT_EXPECT_EQ(test, damos_dests_turn(page, 77), 77ULL);
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
	unsigned int nodes[] = { 0, MAX_NUMNODES }, weights[] = { 1, 1 };
	struct damos_migrate_dests dests = damos_test_dests(nodes, weights, 2);
	struct folio *folio = folio_alloc(GFP_KERNEL, 0);
	struct damos_migration m;
	struct damos scheme = {};
	int i;

	KUNIT_ASSERT_NOT_NULL(test, folio);
	damos_test_init_filters(&scheme);

	scheme.target_nid = NUMA_NO_NODE;
	KUNIT_EXPECT_FALSE(test, damos_migration_begin(&m, &scheme));
	scheme.target_nid = MAX_NUMNODES;
	KUNIT_EXPECT_FALSE(test, damos_migration_begin(&m, &scheme));

	/* Destinations override the target node. */
	nodes[0] = folio_nid(folio);
	scheme.migrate_dests = dests;
	for (i = 0; i < 4; i++) {
		KUNIT_ASSERT_TRUE(test, damos_migration_begin(&m, &scheme));
		KUNIT_EXPECT_EQ(test, damos_migration_dest(&m, folio, i), -1);
		damos_migration_add(&m, folio, 0);
		KUNIT_EXPECT_TRUE(test, list_empty(&m.lists[0]));
		KUNIT_EXPECT_EQ(test, m.nr_pages, 0UL);
		KUNIT_EXPECT_EQ(test, damos_migration_end(&m), 0UL);
	}
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
	unsigned int nodes[] = { first_node(node_states[N_MEMORY]) };
	unsigned int weights[] = { 1 };
	struct damos scheme = {
		.migrate_dests = damos_test_dests(nodes, weights, 1),
	};
	struct damos_filter *filter;
	struct damos_migration m;
	unsigned int i;

	damos_test_init_filters(&scheme);
	for (i = 0; i < ARRAY_SIZE(types); i++) {
		filter = damos_test_new_filter(types[i]);
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

/* Give the scheme a copy of the destinations. */
static bool damos_test_set_dests(struct damos *s,
				 const struct damos_migrate_dests *dests)
{
	struct damos_migrate_dests *copy = &s->migrate_dests;

	if (!dests->nr_dests)
		return true;
	copy->node_id_arr = kmemdup(dests->node_id_arr, dests->nr_dests *
				    sizeof(*dests->node_id_arr), GFP_KERNEL);
	copy->weight_arr = kmemdup(dests->weight_arr, dests->nr_dests *
				   sizeof(*dests->weight_arr), GFP_KERNEL);
	if (!copy->node_id_arr || !copy->weight_arr)
		return false;
	copy->nr_dests = dests->nr_dests;
	return true;
}

static struct damos *damos_test_new_scheme(struct damon_ctx *ctx,
					   struct damos_migrate_dests *dests)
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
	return damos_test_set_dests(s, dests) ? s : NULL;
}

/*
 * After a commit, a scheme has the new destinations: more, fewer, or none.
 * They stay when the source of the commit is freed.
 */
static void damos_test_commit(struct kunit *test)
{
	unsigned int nodes[] = { 0, 1, 2 }, weights[] = { 3, 1, 5 };
	struct damos_migrate_dests dests = damos_test_dests(nodes, weights, 2);
	static const unsigned int nrs[] = { 1, 3, 2, 0, 2 };
	struct damon_ctx *ctx = damon_new_ctx(), *src;
	struct damos *running = NULL;
	unsigned int i;

	if (ctx)
		running = damos_test_new_scheme(ctx, &dests);
	for (i = 0; running && i < ARRAY_SIZE(nrs); i++) {
		src = damon_new_ctx();
		if (!src)
			break;
		dests.nr_dests = nrs[i];
		if (damos_test_new_scheme(src, &dests))
			KUNIT_EXPECT_EQ(test, damon_commit_ctx(ctx, src), 0);
		damon_destroy_ctx(src);
		KUNIT_EXPECT_EQ(test, running->migrate_dests.nr_dests, nrs[i]);
		if (!nrs[i])
			continue;
		KUNIT_EXPECT_MEMEQ(test, running->migrate_dests.node_id_arr,
				   nodes, nrs[i] * sizeof(*nodes));
		KUNIT_EXPECT_MEMEQ(test, running->migrate_dests.weight_arr,
				   weights, nrs[i] * sizeof(*weights));
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

/* Make a context with a scheme and this many targets.  Returns the scheme. */
static struct damos *damos_test_fill(struct damon_ctx *ctx, unsigned int nr)
{
	struct damos_migrate_dests none = {};
	struct damon_target *t;

	while (nr--) {
		t = damon_new_target();
		if (!t)
			return NULL;
		damon_add_target(ctx, t);
	}
	return damos_test_new_scheme(ctx, &none);
}

/* Commit so many targets.  Returns 0 or -errno. */
static int damos_test_commit_targets(struct damon_ctx *ctx, unsigned int nr)
{
	struct damon_ctx *src = damon_new_ctx();
	int err = -ENOMEM;

	if (!src)
		return err;
	if (damos_test_fill(src, nr))
		err = damon_commit_ctx(ctx, src);
	damon_destroy_ctx(src);
	return err;
}

/*
 * A commit that removes the target at which a quota ran out must reset the
 * quota's position.
 */
static void damos_test_forget_target(struct kunit *test)
{
	struct damon_ctx *ctx = damon_new_ctx();
	struct damon_target *first;
	struct damos *s = NULL;

	if (ctx)
		s = damos_test_fill(ctx, 2);
	if (!s)
		goto out;
	first = list_first_entry(&ctx->adaptive_targets, struct damon_target,
				 list);
	/*
	 * The commit keeps the first target, so the quota keeps its position.
	 */
	s->quota.charge_target_from = first;
	s->quota.charge_addr_from = PAGE_SIZE;
	KUNIT_EXPECT_EQ(test, damos_test_commit_targets(ctx, 2), 0);
	KUNIT_EXPECT_PTR_EQ(test, s->quota.charge_target_from, first);
	/* The commit removes the second target. */
	s->quota.charge_target_from = list_next_entry(first, list);
	KUNIT_EXPECT_EQ(test, damos_test_commit_targets(ctx, 1), 0);
	KUNIT_EXPECT_NULL(test, s->quota.charge_target_from);
	KUNIT_EXPECT_EQ(test, s->quota.charge_addr_from, 0UL);
out:
	KUNIT_EXPECT_NOT_NULL(test, s);
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
