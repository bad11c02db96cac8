// SPDX-License-Identifier: GPL-2.0-only
/*
 * Gather the folios of a run, and allocate their destinations.
 *
 * mm/migrate_run/run.c unmaps and maps the folios of a run.
 */

#include <linux/gfp.h>
#include <linux/leafops.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "../internal.h"
#include "../migrate_offload/hooks.h"
#include "../migrate_offload/internal.h"
#include "run.h"

static void migrate_run_put_dst(struct folio *dst, free_folio_t put_new_folio,
				unsigned long private)
{
	if (put_new_folio)
		put_new_folio(dst, private);
	else
		folio_put(dst);
}

/* Unlock the nth folio and free its destination: the ordinary path follows. */
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
 * Lock one more folio for the run.  Returns false if the folio does not fit, so
 * that the run ends before this folio.  Without the lock, check only the
 * mapping: nearly all folios that share a mapping fit.
 */
static bool migrate_run_add(struct migrate_run *run, struct folio *folio,
			    const struct address_space *mapping)
{
	if (READ_ONCE(folio->mapping) != mapping || !folio_trylock(folio))
		return false;
	/* A locked folio keeps its mapping and most of its flags. */
	if (folio->mapping == mapping && migrate_run_kind(folio) == run->kind &&
	    (run->kind != MIGRATE_RUN_LARGE || !run->nr ||
	     folio_order(folio) == folio_order(run->src[0]))) {
		run->src[run->nr++] = folio;
		return true;
	}
	folio_unlock(folio);
	return false;
}

/* Lock @first and the next folios of @from that are alike. */
static void migrate_run_lock(struct migrate_run *run, struct list_head *from,
			     struct folio *first, unsigned int max_nr)
{
	const struct address_space *mapping = READ_ONCE(first->mapping);
	struct folio *folio = first;

	run->nr = 0;
	if (run->kind == MIGRATE_RUN_LARGE)
		max_nr = min_t(unsigned int, max_nr,
			       MIGRATE_RUN_PAGES >> folio_order(first));
	while (run->nr < max_nr && !list_entry_is_head(folio, from, lru) &&
	       migrate_run_add(run, folio, mapping))
		folio = list_next_entry(folio, lru);
}

/*
 * Returns true if destinations do not depend on their sources, so that one call
 * can allocate several.
 */
static bool migrate_run_is_bulk(new_folio_t get_new_folio, unsigned long private)
{
	const struct migration_target_control *mtc = (void *)private;

	return get_new_folio == alloc_migration_target &&
	       mtc->nid != NUMA_NO_NODE && (mtc->gfp_mask & __GFP_HIGHMEM);
}

/*
 * The per-CPU list returns neighbours in reverse: last in, first out.  Put them
 * in rising order, because an engine copies folios that are next to each other
 * on both sides at once.
 */
static void migrate_run_rise(struct page **pages, unsigned int nr)
{
	unsigned int first, last, next;

	for (first = 0; first < nr; first = next) {
		for (next = first + 1; next < nr; next++)
			if (pages[next] != pages[next - 1] - 1)
				break;
		for (last = next - 1; first < last; first++, last--)
			swap(pages[first], pages[last]);
	}
}

/* Returns the number of destinations: 0 only if no memory is free. */
static unsigned int migrate_run_alloc_bulk(struct migrate_run *run,
					   unsigned long private)
{
	const struct migration_target_control *mtc = (void *)private;

	struct page **pages = (struct page **)run->dst;
	unsigned int nr;

	memset(pages, 0, run->nr * sizeof(*pages));
	/* The pages have order 0, so each is a folio of its own. */
	nr = __alloc_pages_bulk(migration_target_gfp(mtc->gfp_mask, true),
				mtc->nid, mtc->nmask, run->nr, pages);
	migrate_run_rise(pages, nr);
	return nr;
}

/*
 * Called after a run that unmapped nothing, often because its VMA does not
 * allow runs.  Also called if a run finds no memory for all its folios.  The
 * next folios may meet the same obstacle.  So move MIGRATE_RUN_MAX folios as
 * stock Linux does, and then try a run of one folio.  A run that unmaps some
 * folios nevertheless restores the length of runs.
 */
void migrate_run_note_failed(struct migrate_run *run)
{
	run->max_nr = 1;
	run->nr_spared = MIGRATE_RUN_MAX;
}

/*
 * Allocate and lock a destination for each folio, or for the first few.  The
 * run holds folio locks, and earlier folios may be unmapped, so take only free
 * memory.  The ordinary path allocates before it locks a folio, and can wait.
 */
static void migrate_run_alloc(struct migrate_run *run,
			      new_folio_t get_new_folio,
			      free_folio_t put_new_folio, unsigned long private)
{
	const bool bulk = run->kind != MIGRATE_RUN_LARGE &&
		migrate_run_is_bulk(get_new_folio, private);
	unsigned int i, nr, nr_locked;

	nr = bulk ? migrate_run_alloc_bulk(run, private) : 0;
	/*
	 * A bulk allocation may return too few pages although memory is free.
	 * If a bulk allocation returns none, no memory is free: do not try
	 * again.
	 */
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

		/*
		 * A previous user may hold the lock: see migrate_folio_unmap().
		 */
		if (unlikely(!folio_trylock(dst)))
			break;
		dst->migrate_info = 0;
	}
	for (i = nr_locked; i < nr; i++)
		migrate_run_put_dst(run->dst[i], put_new_folio, private);
	for (i = nr_locked; i < run->nr; i++)
		folio_unlock(run->src[i]);
	run->nr = nr_locked;
}

/*
 * Allocate the arrays of a run.  The stack has no room for arrays, because
 * reclaim and compaction migrate deep in the stack.  Returns false without
 * memory: the list then has no runs.
 */
static bool migrate_run_make_room(struct migrate_run *run)
{
	if (likely(run->src))
		return true;
	run->src = kmalloc_array(3 * MIGRATE_RUN_MAX, sizeof(*run->src),
				 GFP_NOWAIT | __GFP_NOMEMALLOC | __GFP_NOWARN);
	if (!run->src) {
		run->on = false;
		run->nr = 0;
		return false;
	}
	run->dst = run->src + MIGRATE_RUN_MAX;
	run->picked = run->dst + MIGRATE_RUN_MAX;
	return true;
}

/* A file system must move folios as migrate_file_replace() does. */
static bool migrate_run_may_move(const struct migrate_run *run)
{
	struct folio *first = run->src[0];

	return run->kind != MIGRATE_RUN_FILE ||
		migrate_offload_mapping_ok(first->mapping, first);
}

/*
 * Lock up to @max_nr folios of one mapping, from @first on, and allocate their
 * destinations.
 *
 * The first run of a list has one folio.  Lists of compaction and reclaim are
 * short.  If their VMAs do not allow runs, a longer first run would only lock,
 * allocate and release up to 32 folios for each list.
 */
void migrate_run_gather(struct migrate_run *run, struct list_head *from,
			struct folio *first, unsigned int max_nr,
			new_folio_t get_new_folio, free_folio_t put_new_folio,
			unsigned long private)
{
	if (!migrate_run_make_room(run))
		return;
	migrate_run_lock(run, from, first, min(max_nr, run->max_nr));
	if (run->nr && !migrate_run_may_move(run)) {
		migrate_run_note_failed(run);
		while (run->nr)
			folio_unlock(run->src[--run->nr]);
	}
	if (run->nr)
		migrate_run_alloc(run, get_new_folio, put_new_folio, private);
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/gather_kunit.c"
#endif
