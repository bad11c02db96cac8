// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which pages form a run, and the folios that they are to be moved to.
 *
 * See mm/migrate_run/run.c for what is done with them.
 */

#include <linux/gfp.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "../internal.h"
#include "../migrate_offload/hooks.h"
#include "run.h"

static void migrate_run_put_dst(struct folio *dst, free_folio_t put_new_folio,
				unsigned long private)
{
	if (put_new_folio)
		put_new_folio(dst, private);
	else
		folio_put(dst);
}

/* The nth folio stays where it is, for the ordinary way. */
void migrate_run_give_up(struct migrate_run *run, unsigned int nth,
			 free_folio_t put_new_folio, unsigned long private)
{
	struct folio *dst = run->dst[nth];

	if (run->windows)
		migrate_offload_forget_reason(run->src[nth]);
	folio_unlock(run->src[nth]);
	folio_unlock(dst);
	migrate_run_put_dst(dst, put_new_folio, private);
}

/*
 * Lock one more.  False: it ends the run.  Only the anon_vma is asked for without
 * the lock: nearly all folios that share it with the first one fit.
 */
static bool migrate_run_add(struct migrate_run *run, struct folio *folio,
			    const struct address_space *mapping)
{
	if (READ_ONCE(folio->mapping) != mapping || !folio_trylock(folio))
		return false;
	/* The anon_vma and most flags do not change while it is locked. */
	if (folio->mapping == mapping && migrate_run_wants(folio)) {
		run->src[run->nr++] = folio;
		return true;
	}
	folio_unlock(folio);
	return false;
}

/* Lock folios of one anon_vma that are next in the list. */
static void migrate_run_lock(struct migrate_run *run, struct list_head *from,
			     struct folio *first, unsigned int max_nr)
{
	const struct address_space *mapping = READ_ONCE(first->mapping);
	struct folio *folio = first;

	run->nr = 0;
	while (run->nr < max_nr && !list_entry_is_head(folio, from, lru) &&
	       migrate_run_add(run, folio, mapping))
		folio = list_next_entry(folio, lru);
}

/*
 * Does @get_new_folio need to know nothing of the folios?  Then they can be
 * allocated at once.
 */
static bool migrate_run_is_bulk(new_folio_t get_new_folio, unsigned long private)
{
	const struct migration_target_control *mtc = (void *)private;

	return get_new_folio == alloc_migration_target &&
	       mtc->nid != NUMA_NO_NODE && (mtc->gfp_mask & __GFP_HIGHMEM);
}

/* Returns how many it got, from the first one on: none if there is no memory. */
static unsigned int migrate_run_alloc_bulk(struct migrate_run *run,
					   unsigned long private)
{
	const struct migration_target_control *mtc = (void *)private;

	memset(run->dst, 0, run->nr * sizeof(*run->dst));
	/* A page that is not part of a larger one is its own folio. */
	return __alloc_pages_bulk(migration_target_gfp(mtc->gfp_mask, true),
				  mtc->nid, mtc->nmask, run->nr, NULL,
				  (struct page **)run->dst);
}

/*
 * A run unmapped nothing: its VMA does not allow runs, or memory is short.  The next
 * folios may have the same VMA.  So move some of them as stock Linux does, and then
 * try a run of one folio.
 */
void migrate_run_note_failed(struct migrate_run *run)
{
	run->max_nr = 1;
	run->nr_spared = MIGRATE_RUN_MAX;
}

/*
 * Allocate as many as are to be unmapped, and lock them; or fewer.  Folios are locked
 * here, and others may be out of reach: so take only memory that is at hand.  The
 * ordinary way then waits for more, with one folio.
 */
static void migrate_run_alloc(struct migrate_run *run,
			      new_folio_t get_new_folio,
			      free_folio_t put_new_folio, unsigned long private)
{
	const bool bulk = migrate_run_is_bulk(get_new_folio, private);
	unsigned int i, nr, nr_locked;

	nr = bulk ? migrate_run_alloc_bulk(run, private) : 0;
	/* In bulk there may be few while there is memory, but none only if not. */
	for (; nr < run->nr && (nr || !bulk); nr++) {
		run->dst[nr] = migrate_new_folio_nowait(get_new_folio,
							run->src[nr], private);
		if (!run->dst[nr])
			break;
	}
	if (nr < run->nr)
		migrate_run_note_failed(run);
	for (nr_locked = 0; nr_locked < nr; nr_locked++) {
		struct folio *dst = run->dst[nr_locked];

		/* It is new: but see migrate_folio_unmap(). */
		if (unlikely(!folio_trylock(dst)))
			break;
		dst->private = NULL;
	}
	for (i = nr_locked; i < nr; i++)
		migrate_run_put_dst(run->dst[i], put_new_folio, private);
	for (i = nr_locked; i < run->nr; i++)
		folio_unlock(run->src[i]);
	run->nr = nr_locked;
}

/*
 * Make room for the folios of a run.  Not on the stack: the ordinary way reclaims and
 * compacts beneath the same function.  Without memory there are no runs.
 */
static bool migrate_run_make_room(struct migrate_run *run)
{
	if (likely(run->src))
		return true;
	run->src = kmalloc_array(2 * MIGRATE_RUN_MAX, sizeof(*run->src),
				 GFP_NOWAIT | __GFP_NOMEMALLOC | __GFP_NOWARN);
	if (!run->src) {
		run->on = false;
		run->nr = 0;
		return false;
	}
	run->dst = run->src + MIGRATE_RUN_MAX;
	return true;
}

/*
 * Lock up to @max_nr folios of one anon_vma that are next in the list, beginning
 * with @first, and as many new ones to move them to.
 *
 * The first run of a list has one folio.  Most lists are short: those of
 * compaction and reclaim.  Where a VMA is not one for runs, each of them would
 * lock and allocate 32 folios only to give them up.
 */
void migrate_run_gather(struct migrate_run *run, struct list_head *from,
			struct folio *first, unsigned int max_nr,
			new_folio_t get_new_folio, free_folio_t put_new_folio,
			unsigned long private)
{
	if (!migrate_run_make_room(run))
		return;
	migrate_run_lock(run, from, first, min(max_nr, run->max_nr));
	if (!run->nr)
		return;
	migrate_run_alloc(run, get_new_folio, put_new_folio, private);
}
