// SPDX-License-Identifier: GPL-2.0-only
/*
 * Move the content and the state of a folio to its destination.
 *
 * migrate_folio() moves all kinds of folios.  It asks for each flag, and for
 * swap cache, buffers and KSM.  A folio of a run has none of these, see
 * migrate_run_kind().  It is locked, isolated and unmapped, so this stays true.
 */

#include <linux/bitops.h>
#include <linux/cacheflush.h>
#include <linux/leafops.h>
#include <linux/list.h>
#include <linux/memcontrol.h>
#include <linux/memory-tiers.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/page_owner.h>
#include <linux/pgalloc_tag.h>
#include <linux/sched/numa_balancing.h>
#include <linux/sched/sysctl.h>

#include "../internal.h"
#include "run.h"

/*
 * The flags that folio_migrate_flags() copies.  PG_mappedtodisk is
 * PG_anon_exclusive in an anonymous page, which is in the migration entry.
 */
#define MIGRATE_RUN_FLAGS (BIT(PG_referenced) | BIT(PG_uptodate) |	\
			   BIT(PG_dirty) | BIT(PG_active) |		\
			   BIT(PG_unevictable) | BIT(PG_workingset) |	\
			   BIT(PG_checked) | BIT(PG_readahead) |	\
			   MIGRATE_RUN_IDLE_FLAGS)
#if defined(CONFIG_PAGE_IDLE_FLAG) && defined(CONFIG_64BIT)
#define MIGRATE_RUN_IDLE_FLAGS (BIT(PG_young) | BIT(PG_idle))
#else
#define MIGRATE_RUN_IDLE_FLAGS 0
#endif

/* As in folio_migrate_flags(), which says why. */
static void migrate_run_move_cpupid(struct folio *dst, struct folio *src)
{
	/* The source keeps its own until it is freed. */
	int cpupid = folio_last_cpupid(src);

	if (sysctl_numa_balancing_mode & NUMA_BALANCING_MEMORY_TIERING &&
	    node_is_toptier(folio_nid(src)) != node_is_toptier(folio_nid(dst)))
		cpupid = -1;
	/* Without NUMA balancing, new memory has the same. */
	if (folio_last_cpupid(dst) != (cpupid & LAST_CPUPID_MASK))
		folio_xchg_last_cpupid(dst, cpupid);
}

static void migrate_run_move_state(struct folio *dst, struct folio *src,
				   bool anon)
{
	unsigned long flags = READ_ONCE(*const_folio_flags(src, 0));
	unsigned long on_lru = flags & (BIT(PG_active) | BIT(PG_unevictable));
	unsigned long moved = MIGRATE_RUN_FLAGS | BIT(PG_swapbacked);

	if (!anon)
		moved |= BIT(PG_mappedtodisk);
	if (flags & BIT(PG_head))
		mod_mthp_stat(folio_order(dst), MTHP_STAT_NR_ANON, 1);

	/* As in folio_mark_uptodate(): the content comes first. */
	smp_wmb();
	/* A task that waits for one of the folios may set PG_waiters now. */
	set_mask_bits(folio_flags(dst, 0), 0, flags & moved);
	/* A folio that is freed must not have these. */
	if (on_lru)
		set_mask_bits(folio_flags(src, 0), on_lru, 0);
	if (!IS_ENABLED(CONFIG_64BIT)) {
		if (folio_test_young(src))
			folio_set_young(dst);
		if (folio_test_idle(src))
			folio_set_idle(dst);
	}
	folio_migrate_refs(dst, src);
	if (IS_ENABLED(CONFIG_NUMA_BALANCING))
		migrate_run_move_cpupid(dst, src);
	folio_copy_owner(dst, src);
	pgalloc_tag_swap(dst, src);
	mem_cgroup_migrate(src, dst);
}

/*
 * Returns true if a large folio is on the queue of folios to split.  The scan of
 * the queue takes a folio off it, with a reference, and may put it back later.
 * It was perhaps off the queue when the run began.  Nobody but the isolation has
 * a reference now, so the scan has put it back already, or never will.
 */
static bool migrate_run_is_queued(struct folio *src)
{
	/* Paired with the folio_put() of deferred_split_scan(). */
	smp_rmb();
	return !list_empty(&src->_deferred_list);
}

/**
 * migrate_run_move - move a folio of a run to its destination
 * @dst: The destination, locked.
 * @src: The source, locked, isolated and unmapped by migrate_run_unmap().
 * @copy: Copy the content; an engine has not done so.
 *
 * Return: 0, -EAGAIN if another task has a reference to the source, or
 * -EHWPOISON if the content cannot be read.
 */
int migrate_run_move(struct folio *dst, struct folio *src, bool copy)
{
	const bool anon = folio_test_anon(src);
	int rc;

	/* The reference of the isolation. */
	if (anon && folio_ref_count(src) != 1)
		return -EAGAIN;
	if (folio_test_large(src) && migrate_run_is_queued(src))
		return -EAGAIN;
	if (!anon && migrate_file_in_use(src))
		return -EAGAIN;
	if (copy) {
		rc = migrate_offload_mc_copy(dst, src);
		if (unlikely(rc))
			return rc;
	}
	if (anon) {
		dst->index = src->index;
		dst->mapping = src->mapping;
	} else {
		rc = migrate_file_replace(dst, src);
		if (unlikely(rc))
			return rc;
	}
	flush_dcache_folio(dst);
	migrate_run_move_state(dst, src, anon);
	return 0;
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/move_kunit.c"
#endif
