// SPDX-License-Identifier: GPL-2.0-only
/*
 * How many pages compaction isolates before it migrates them.
 *
 * Stock compaction isolates COMPACT_CLUSTER_MAX (32) pages of a block, and then
 * the rest.  So it sees early whether the allocation that waits can succeed.
 * But to begin and to end a batch of 32 pages costs an engine more than it
 * saves.  For an engine that takes more, compaction isolates enough pages to
 * fill max_windows windows.  It isolates no page beyond the block that the
 * allocation waits for.
 *
 * Isolated pages are not on the LRU lists, but stay mapped until their window
 * begins.  Further pages would gain nothing, and reclaim could not free them.
 */

#define pr_fmt(fmt) "migrate_offload: " fmt

#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/pageblock-flags.h>
#include <linux/swap.h>

#include "../internal.h"
#include "hooks.h"
#include "internal.h"

/*
 * The allocation waits for a block of @order: to isolate more might migrate
 * pages needlessly.  Compaction scans one pageblock at a time, and a negative
 * order compacts all of them.
 */
static unsigned int migrate_cluster_most(int order)
{
	if (order < 0 || order > pageblock_order)
		order = pageblock_order;
	return max(1U << order, COMPACT_CLUSTER_MAX);
}

/* Returns the pages of max_windows full windows. */
static unsigned int migrate_cluster_pages(const struct migrate_plan *plan,
					  unsigned int most)
{
	u64 pages = mul_u32_u32(plan->folios, plan->max_windows);

	return clamp_t(u64, pages, COMPACT_CLUSTER_MAX, most);
}

/* Returns how many pages of node @nid to isolate for a block of @order. */
unsigned int __migrate_offload_cluster(int nid, int order)
{
	unsigned int nr = COMPACT_CLUSTER_MAX, wanted;
	struct migrate_engine *engine;
	struct migrate_plan plan;
	size_t bytes;
	int idx;

	engine = migrate_engine_enter(MR_COMPACTION, &idx);
	if (!engine)
		goto exit;
	/* Plan for small pages: orders are unknown before the isolation. */
	migrate_plan_init(&plan, migrate_engine_paces(engine), 0);
	wanted = migrate_cluster_pages(&plan, migrate_cluster_most(order));
	bytes = (size_t)wanted << PAGE_SHIFT;
	if (migrate_engine_wants(engine, nid, bytes) &&
	    migrate_engine_pays(engine, MR_COMPACTION, 0, bytes))
		nr = wanted;
exit:
	migrate_engine_exit(idx);
	return nr;
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/compact_kunit.c"
#endif
