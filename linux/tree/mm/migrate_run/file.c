// SPDX-License-Identifier: GPL-2.0-only
/*
 * Replace folios of the page cache.  The statistics of a run are updated
 * together, when the run is mapped.
 */

#include <linux/backing-dev.h>
#include <linux/leafops.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/pagemap.h>
#include <linux/rcupdate.h>
#include <linux/vmstat.h>
#include <linux/xarray.h>

#include "../internal.h"
#include "../migrate_offload/internal.h"
#include "run.h"

/* The references of a folio of the page cache: of the cache, of the isolation. */
#define MIGRATE_FILE_REFS 2

/* Returns true if another task has a reference to an unmapped folio. */
bool migrate_file_in_use(struct folio *src)
{
	return migrate_rule(FILE_REFS,
			    folio_ref_count(src) != MIGRATE_FILE_REFS);
}

/* Dirty folios are few, so they do not wait for the end of the run. */
static void migrate_file_count_dirty(struct folio *dst, struct folio *src)
{
	struct mem_cgroup *memcg;

	rcu_read_lock();
	memcg = folio_memcg(src);
	mod_lruvec_state(mem_cgroup_lruvec(memcg, folio_pgdat(src)),
			 NR_FILE_DIRTY, -1);
	mod_lruvec_state(mem_cgroup_lruvec(memcg, folio_pgdat(dst)),
			 NR_FILE_DIRTY, 1);
	rcu_read_unlock();
	mod_zone_page_state(folio_zone(src), NR_ZONE_WRITE_PENDING, -1);
	mod_zone_page_state(folio_zone(dst), NR_ZONE_WRITE_PENDING, 1);
}

/**
 * migrate_file_replace - replace a folio of the page cache
 * @dst: The destination, locked, which has the content of @src.
 * @src: The source, locked, isolated and unmapped.
 *
 * migrate_file_count() has to follow before the folios are unlocked.
 *
 * Return: 0, or -EAGAIN if another task has a reference to the source.
 */
int migrate_file_replace(struct folio *dst, struct folio *src)
{
	struct address_space *mapping = src->mapping;
	XA_STATE(xas, &mapping->i_pages, src->index);
	bool dirty;

	xas_lock_irq(&xas);
	/* A frozen folio cannot be found any more. */
	if (migrate_rule(FILE_REFS,
			 !folio_ref_freeze(src, MIGRATE_FILE_REFS))) {
		xas_unlock_irq(&xas);
		return -EAGAIN;
	}
	dst->index = src->index;
	dst->mapping = mapping;
	folio_get(dst);
	if (folio_test_swapbacked(src))
		__folio_set_swapbacked(dst);
	/* Before other tasks find the destination. */
	dirty = folio_test_dirty(src);
	if (dirty) {
		folio_clear_dirty(src);
		folio_set_dirty(dst);
	}
	xas_store(&xas, dst);
	folio_ref_unfreeze(src, MIGRATE_FILE_REFS - 1);
	xas_unlock_irq(&xas);

	if (dirty && mapping_can_writeback(mapping) &&
	    folio_zone(src) != folio_zone(dst))
		migrate_file_count_dirty(dst, src);
	src->mapping = NULL;
	return 0;
}

static void migrate_file_add(struct folio *dst, struct folio *src, int nr)
{
	struct lruvec *from, *to;
	struct mem_cgroup *memcg;

	if (folio_nid(src) == folio_nid(dst))
		return;
	rcu_read_lock();
	/* The charge of the source has gone to the destination. */
	memcg = folio_memcg(dst);
	from = mem_cgroup_lruvec(memcg, folio_pgdat(src));
	to = mem_cgroup_lruvec(memcg, folio_pgdat(dst));
	mod_lruvec_state(from, NR_FILE_PAGES, -nr);
	mod_lruvec_state(to, NR_FILE_PAGES, nr);
	if (folio_test_swapbacked(dst)) {
		mod_lruvec_state(from, NR_SHMEM, -nr);
		mod_lruvec_state(to, NR_SHMEM, nr);
	}
	rcu_read_unlock();
}

/* Returns true if one update counts both folios. */
static bool migrate_file_is_alike(struct folio *a, struct folio *b)
{
	return folio_nid(a) == folio_nid(b) &&
		migrate_lru_memcg_data(a) == migrate_lru_memcg_data(b);
}

/**
 * migrate_file_count - count the folios of a run where they are now
 * @run: The run, of one mapping.  The folios are locked, so that their memory
 *	cgroup cannot change.
 */
void migrate_file_count(const struct migrate_run *run)
{
	unsigned int i, first = 0;

	for (i = 1; i < run->nr; i++) {
		if (migrate_file_is_alike(run->dst[i], run->dst[first]) &&
		    folio_nid(run->src[i]) == folio_nid(run->src[first]))
			continue;
		migrate_file_add(run->dst[first], run->src[first], i - first);
		first = i;
	}
	migrate_file_add(run->dst[first], run->src[first], i - first);
}
