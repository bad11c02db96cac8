// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the division of a list into windows.
 * mm/migrate_offload/window.c includes this file, which gives access to static
 * functions.
 */

#include <kunit/test.h>
#include <linux/percpu.h>
#include <linux/sizes.h>

#include "../registry.h"
#include "kunit.h"

/* More folios than any list has. */
#define MO_ALL_FOLIOS 100000U

static int mo_test_stream_submit(struct migrate_copy_stream *stream,
				 struct migrate_copy_batch *batch)
{
	return -EOPNOTSUPP;
}

static const struct migrate_engine_ops mo_test_stream_ops = {
	.submit = mo_test_stream_submit,
};

static struct migrate_engine mo_test_stream_engine = {
	.ops = &mo_test_stream_ops,
};

/*
 * Make the windows of a list of compaction with 2 MiB, which fits into one
 * window.
 */
static struct migrate_windows *mo_test_windows(struct kunit *test)
{
	struct migrate_windows *w = kunit_kzalloc(test, sizeof(*w), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, w);
	w->session.paces = kunit_kzalloc(test, sizeof(*w->session.paces), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, w->session.paces);
	w->session.reason = MR_COMPACTION;
	w->session.engine = &mo_test_stream_engine;
	w->session.streams = true;
	w->session.total_bytes = SZ_2M;
	w->plan.folios = MO_ALL_FOLIOS;
	w->plan.max_windows = 2;
	w->plan.streaming = true;
	return w;
}

struct mo_divide_case {
	const char *name;
	size_t total_bytes;
	unsigned int order;
	unsigned int max_windows;
	unsigned int planned;
	unsigned int folios;
};

#define MO_PAGES(nr) ((size_t)(nr) << PAGE_SHIFT)

static const struct mo_divide_case mo_divide_cases[] = {
	{ "by two", MO_PAGES(512), 0, 2, MO_ALL_FOLIOS, 256 },
	{ "by three, the last is smaller", MO_PAGES(512), 0, 3, MO_ALL_FOLIOS, 171 },
	{ "by four", MO_PAGES(512), 0, 4, MO_ALL_FOLIOS, 128 },
	{ "no smaller than worth it", MO_PAGES(512), 0, 8, MO_ALL_FOLIOS, 128 },
	{ "small lists stay whole", MO_PAGES(32), 0, 2, MO_ALL_FOLIOS, 128 },
	{ "folios, not pages", MO_PAGES(512), 1, 2, MO_ALL_FOLIOS, 128 },
	{ "one window", MO_PAGES(512), 0, 1, MO_ALL_FOLIOS, 512 },
	{ "never more than planned", MO_PAGES(512), 0, 2, 50, 50 },
};

KUNIT_ARRAY_PARAM_DESC(mo_divide, mo_divide_cases, name);

static void mo_test_divide(struct kunit *test)
{
	const struct mo_divide_case *param = test->param_value;
	struct migrate_windows *w = mo_test_windows(test);

	w->session.total_bytes = param->total_bytes;
	w->order = param->order;
	w->plan.max_windows = param->max_windows;
	w->plan.folios = param->planned;
	migrate_windows_divide(w);
	KUNIT_EXPECT_EQ(test, w->plan.folios, param->folios);
}

/* The core divides only lists of compaction, and only where windows overlap. */
static void mo_test_divide_not(struct kunit *test)
{
	struct migrate_windows *w;
	int i;

	for (i = 0; i < 6; i++) {
		w = mo_test_windows(test);
		if (i == 0)
			w->session.reason = MR_SYSCALL;
		if (i == 1)
			w->plan.streaming = false;
		if (i == 2)
			w->session.paces = NULL;
		if (i == 3)
			w->session.streams = false;
		if (i == 4)
			w->session.by_cpu = true;
		if (i == 5)
			w->declined = true;
		migrate_windows_divide(w);
		KUNIT_EXPECT_EQ_MSG(test, w->plan.folios, MO_ALL_FOLIOS,
				    "case %d", i);
	}
}

/* Sum up a counter of a reason or of an engine. */
static u64 mo_test_count(const struct migrate_offload_stats *stats,
			 enum migrate_offload_counter what)
{
	u64 nr = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		nr += per_cpu_ptr(stats->counts, cpu)->nr[what];
	return nr;
}

/* A folio that moves alone, without memory for a window, counts like others. */
static void mo_test_move_now(struct kunit *test)
{
	struct migrate_windows *w = mo_test_windows(test);
	struct folio *src = mo_test_folio(test, 2);
	struct migrate_offload_stats stats = {};
	struct migrate_run run;
	LIST_HEAD(ret_folios);

	stats.counts = alloc_percpu(struct migrate_offload_counts);
	KUNIT_ASSERT_TRUE(test, stats.counts);
	w->session.engine_stats = &stats;
	/* mm/migrate.c defines this type, whose size is below 256 bytes. */
	w->stats = kunit_kzalloc(test, 256, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, w->stats);
	w->ret_folios = &ret_folios;
	w->nr_pass = 1;
	migrate_run_init(&run, &ret_folios, MIGRATE_ASYNC, w->session.reason);
	w->run = &run;
	migrate_session_clock(&w->session);
	migrate_windows_unmapping(w);

	/* The reference keeps the folio from moving. */
	folio_get(src);
	migrate_windows_move_now(w, src, mo_test_folio(test, 2));
	KUNIT_EXPECT_PTR_EQ(test, ret_folios.next, &src->lru);
	KUNIT_EXPECT_EQ(test, w->nr_failed, 1);
	KUNIT_EXPECT_EQ(test, mo_test_count(&stats, MO_CPU_FOLIOS), 1);
	KUNIT_EXPECT_EQ(test, mo_test_count(&stats, MO_DECLINED_FOLIOS), 1);
	KUNIT_EXPECT_EQ(test, mo_test_count(&stats, MO_CPU_BYTES),
			4 * PAGE_SIZE);
	migrate_payers_settle(&w->session.payers);
	free_percpu(stats.counts);
	list_del(&src->lru);
	folio_put(src);
	folio_put(src);
}

static struct folio *mo_test_new_folio(struct folio *src, unsigned long private)
{
	unsigned int *nr_calls = (unsigned int *)private;

	(*nr_calls)++;
	return NULL;
}

/*
 * migrate_new_folio_nowait() must not wait for memory, even if the mask of the
 * caller allows that.
 */
static void mo_test_nowait(struct kunit *test)
{
	struct migration_target_control mtc = {
		.nid = NUMA_NO_NODE,
		.gfp_mask = GFP_HIGHUSER_MOVABLE,
		.reason = MR_SYSCALL,
	};
	struct folio *dst, *src = mo_test_folio(test, 0);
	unsigned int nr_calls = 0;
	gfp_t gfp;

	dst = migrate_new_folio_nowait(alloc_migration_target, src,
				       (unsigned long)&mtc);
	KUNIT_EXPECT_NOT_NULL(test, dst);
	KUNIT_EXPECT_FALSE(test, mtc.nowait);
	if (dst)
		folio_put(dst);
	KUNIT_EXPECT_NULL(test,
			  migrate_new_folio_nowait(mo_test_new_folio, src,
						   (unsigned long)&nr_calls));
	KUNIT_EXPECT_EQ(test, nr_calls, 1);

	gfp = migration_target_gfp(GFP_TRANSHUGE, true);
	KUNIT_EXPECT_FALSE(test, gfpflags_allow_blocking(gfp));
	KUNIT_EXPECT_TRUE(test, gfp & __GFP_NOMEMALLOC);
	gfp = migration_target_gfp(GFP_TRANSHUGE, false);
	KUNIT_EXPECT_TRUE(test, gfp == GFP_TRANSHUGE);
	mo_test_folio_free(src);
}

#if defined(CONFIG_NUMA) && defined(CONFIG_TRANSPARENT_HUGEPAGE)
/*
 * Take all free blocks of huge page size on @nid, without reclaim or
 * compaction.
 */
static void mo_test_fill(int nid, struct list_head *blocks)
{
	gfp_t gfp = (GFP_TRANSHUGE_LIGHT & ~__GFP_COMP) | __GFP_THISNODE;
	struct page *page;

	while ((page = alloc_pages_node(nid, gfp, HPAGE_PMD_ORDER)))
		list_add(&page->lru, blocks);
}

static void mo_test_free_blocks(struct list_head *blocks)
{
	struct page *page, *next;

	list_for_each_entry_safe(page, next, blocks, lru)
		__free_pages(page, HPAGE_PMD_ORDER);
}

/* The test takes a whole node for a moment, so it skips large nodes. */
#define MO_TEST_MOST_PAGES (SZ_4G >> PAGE_SHIFT)

/*
 * Demotion allocates on its target, then on lower tiers.  A target without a
 * free huge page must first be compacted, which may wait.  So an allocation
 * that must not wait fails, and does not use another node.
 */
static void mo_test_demote_spills(struct kunit *test)
{
	struct migration_target_control mtc = {
		.nid = next_memory_node(first_memory_node),
		.nmask = &node_states[N_MEMORY],
		.gfp_mask = GFP_TRANSHUGE_LIGHT,
		.reason = MR_DEMOTION,
	};
	struct folio *src, *dst;
	LIST_HEAD(blocks);

	if (num_node_state(N_MEMORY) < 2)
		kunit_skip(test, "one node");
	if (node_present_pages(mtc.nid) > MO_TEST_MOST_PAGES)
		kunit_skip(test, "the node is too large to be filled");
	src = mo_test_folio(test, HPAGE_PMD_ORDER);
	mo_test_fill(mtc.nid, &blocks);
	dst = migrate_new_folio_nowait(alloc_demote_folio, src,
				       (unsigned long)&mtc);
	KUNIT_EXPECT_NULL(test, dst);
	if (dst)
		folio_put(dst);
	/* Without __GFP_THISNODE, another node can provide the page. */
	mtc.gfp_mask &= ~__GFP_THISNODE;
	dst = migrate_new_folio_nowait(alloc_migration_target, src,
				       (unsigned long)&mtc);
	KUNIT_EXPECT_NOT_NULL(test, dst);
	if (dst)
		folio_put(dst);
	mo_test_free_blocks(&blocks);
	mo_test_folio_free(src);
}
#else
static void mo_test_demote_spills(struct kunit *test)
{
	kunit_skip(test, "no second node, or no huge pages");
}
#endif

/*
 * The core has to retry a move.  Without streaming, it first waits for all
 * copies.
 */
static void mo_test_must_wait(struct kunit *test)
{
	struct migrate_windows *w = mo_test_windows(test);
	struct migrate_part *moved, *flying;

	moved = kunit_kzalloc(test, sizeof(*moved), GFP_KERNEL);
	flying = kunit_kzalloc(test, sizeof(*flying), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, moved);
	KUNIT_ASSERT_NOT_NULL(test, flying);
	INIT_LIST_HEAD(&w->flying);
	list_add_tail(&moved->node, &w->flying);
	list_add_tail(&flying->node, &w->flying);
	moved->copy.nr_pairs = 1;
	moved->copy.nr_done = 1;
	moved->nr_collected = 1;
	moved->nr_retry = 1;
	flying->copy.nr_pairs = 1;

	KUNIT_EXPECT_FALSE(test, migrate_windows_must_wait(w));
	/* Without streaming, the core can only wait for the whole window. */
	w->plan.streaming = false;
	KUNIT_EXPECT_TRUE(test, migrate_windows_must_wait(w));
	flying->copy.nr_done = 1;
	KUNIT_EXPECT_FALSE(test, migrate_windows_must_wait(w));
}

static struct kunit_case migrate_window_test_cases[] = {
	KUNIT_CASE(mo_test_move_now),
	KUNIT_CASE(mo_test_nowait),
	KUNIT_CASE(mo_test_demote_spills),
	KUNIT_CASE(mo_test_must_wait),
	KUNIT_CASE_PARAM(mo_test_divide, mo_divide_gen_params),
	KUNIT_CASE(mo_test_divide_not),
	{}
};

static struct kunit_suite migrate_window_test_suite = {
	.name = "migrate_window",
	.test_cases = migrate_window_test_cases,
};

kunit_test_suite(migrate_window_test_suite);
