// SPDX-License-Identifier: GPL-2.0-only
/*
 * How many pages compaction isolates before it migrates them.
 *
 * COMPACT_CLUSTER_MAX of them, and then the rest of the block, is what it does by
 * itself: 32 pages, so that it can see early whether the allocation that waits is
 * satisfied.  To begin and to end a batch of those costs an engine more than it
 * saves.  So while one is active that would take more, it gets more: as many as
 * can be under way at once by what is known of windows of small pages, and none
 * beyond the block that the allocation waits for.
 *
 * Isolated pages are not on the LRU lists, but in reach: it is the windows that
 * see to it that few are unmapped at a time.  More than they hold would gain
 * nothing, and be kept from reclaim.
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
 * A block of @order is what is waited for; with less, more may be migrated than
 * would have been necessary.  Compaction never goes beyond a pageblock, and a
 * negative order is for all that there are.
 */
static unsigned int migrate_cluster_most(int order)
{
	if (order < 0 || order > pageblock_order)
		order = pageblock_order;
	return max(1U << order, COMPACT_CLUSTER_MAX);
}

/* All windows that may be under way, full. */
static unsigned int migrate_cluster_pages(const struct migrate_plan *plan,
					  unsigned int most)
{
	u64 pages = mul_u32_u32(plan->folios, plan->max_windows);

	return clamp_t(u64, pages, COMPACT_CLUSTER_MAX, most);
}

/* For an allocation of @order, on this node, or -1: as much as there is. */
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
	/* Most pages are small, and those that are not have not been counted. */
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
