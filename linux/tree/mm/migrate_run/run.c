// SPDX-License-Identifier: GPL-2.0-only
/*
 * Small pages: migration unmaps and maps them in runs.
 *
 * For each page, migrate_pages_batch() walks the reverse mapping twice,
 * updates statistics four times, and takes the lock of an LRU list.  A page
 * that is exclusive to one process has one mapping, so the first mapping found
 * is the last.  The next pages of the list are mapped near it.  So take both
 * locks, of the anon_vma and of the page table, once for all pages that are
 * alike.  Find the VMA and update statistics once, too.
 *
 * A run has small anonymous pages that are exclusive and mapped once.  They
 * are not in the swap cache, not mlocked, not poisoned, and not pages of KSM.
 * Their VMA is neither locked nor watched by a userfaultfd.  All other pages
 * take the ordinary path, also those that turn out to differ.
 *
 * These rules add to those of the ordinary path.  runs.c of the selftests
 * breaks each rule in brackets, to show that it is needed:
 *
 * - Unmapping.  The folio is locked and the lock of the page table is held.
 *   The entry must map the page [run_page]: the anon_vma also leads to VMAs
 *   that have another page at the same place.  An exclusive page has no other
 *   mapping, and stays exclusive: fork() and KSM change that under the lock of
 *   the page table.  A page that is not exclusive must not become so
 *   [run_exclusive].  A poisoned page must not be mapped again [run_poison].
 *
 *   GUP-fast takes no lock.  It takes a reference, and then checks the entry
 *   again.  So clear the entries, issue a barrier, and then check references.
 *   If there are more than those of the entry and of the isolation, restore the
 *   entry.  If fork() found a migration entry for a pinned page, it would share
 *   the page [run_pin].  Other references only make the move fail later.
 *
 *   Nothing is copied while a TLB may have a cleared entry [run_flush].  Each
 *   cleared entry is checked for that [run_judge].  Devices and virtual
 *   machines that shadow page tables are notified before an entry is cleared.
 *   They are notified again when they may read the page table.  notify.c breaks
 *   these two rules [run_notify, run_notify_end].
 *
 * - Mapping.  Since the unmapping, programs may have forked, moved, unmapped or
 *   protected memory.  An entry for the source [run_entry] that is still
 *   exclusive [run_shared] is the only one.  fork() marks both entries as
 *   shared, and a move leaves no entry behind.  In a VMA that was locked
 *   meanwhile [run_locked], the ordinary path counts the pages.  If no entry is
 *   mapped, remove_migration_ptes() looks for all entries [run_rest].  The walk
 *   finds an entry that mremap() moves meanwhile, from a VMA that was not
 *   searched yet to a VMA that was.
 *
 * - The anon_vma.  Its lock keeps the VMAs that it leads to, and their page
 *   tables.  Between unmapping and mapping, each page has a reference to it.
 *
 * Checks without the lock of the page table only save time [run_hints].  An
 * exclusive page is mapped once and is not of KSM.  A page in the swap cache
 * or under writeback has one more reference.  Unmapping leaves out VMAs that
 * are locked or watched by a userfaultfd as a precaution.  It must leave out
 * temporary stacks, as the ordinary path does.  Only a race with execve()
 * would show why, so no test breaks that rule.
 */

#include <linux/bitmap.h>
#include <linux/leafops.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/page_owner.h>
#include <linux/pgtable.h>
#include <linux/rmap.h>
#include <linux/sched.h>
#include <linux/swap.h>
#include <linux/userfaultfd_k.h>
#include <linux/vmstat.h>

#include <trace/events/migrate.h>

#include "../internal.h"
#include "../migrate_offload/internal.h"
#include "../page_alloc.h"
#include "pte.h"
#include "row.h"
#include "run.h"

/* Returns true if this may be the page's only entry.  Read its flags once. */
static bool migrate_row_fits(struct folio *folio, pte_t pte)
{
	unsigned long flags = READ_ONCE(*const_folio_flags(folio, 0));

	if (!pte_present(pte) || pte_unused(pte))
		return false;
	if (migrate_rule(RUN_PAGE, pte_pfn(pte) != folio_pfn(folio)))
		return false;
	if (migrate_rule(RUN_EXCLUSIVE, !(flags & BIT(PG_anon_exclusive))))
		return false;
#ifdef CONFIG_MEMORY_FAILURE
	if (migrate_rule(RUN_POISON, flags & BIT(PG_hwpoison)))
		return false;
#endif
	/* This is always true for an exclusive page. */
	return !atomic_read(&folio->_mapcount);
}

/* Clear entries as long as each is the only one of its page. */
static void migrate_row_clear(struct migrate_row *row, struct mm_struct *mm,
			      pte_t *old)
{
	unsigned int i;

	for (i = 0; i < row->nr; i++) {
		pte_t *ptep = migrate_row_pte(row, i);

		if (!migrate_row_fits(row->folios[i], ptep_get(ptep)))
			break;
		old[i] = ptep_get_and_clear(mm, migrate_row_addr(row, i), ptep);
	}
	row->nr = i;
}

/*
 * Remove the only mapping of each page, and its reference: the caller has
 * another one, and counts the pages.  From the first page on that has another
 * user, restore the entries instead.
 */
static void migrate_row_detach(struct migrate_row *row, struct mm_struct *mm,
			       const pte_t *old)
{
	unsigned int i, nr_free;

	if (IS_ENABLED(CONFIG_HAVE_GUP_FAST))
		smp_mb(); /* paired with the one in try_grab_folio() */
	for (nr_free = 0; nr_free < row->nr; nr_free++) {
		struct folio *folio = row->folios[nr_free];

		if (migrate_rule(RUN_PIN, folio_ref_count(folio) != 2))
			break;
		VM_WARN_ON_FOLIO(atomic_read(&folio->_mapcount), folio);
		ClearPageAnonExclusive(&folio->page);
		atomic_set(&folio->_mapcount, -1);
		folio_ref_dec(folio);
	}
	for (i = nr_free; i < row->nr; i++)
		set_pte_at(mm, migrate_row_addr(row, i),
			   migrate_row_pte(row, i), old[i]);
	row->nr = nr_free;
	if (IS_ENABLED(CONFIG_HAVE_GUP_FAST))
		smp_mb__after_atomic(); /* paired with gup_must_unshare() */
}

/* The reverse: the folio gets its only mapping, exclusive to @vma's process. */
static void migrate_run_add_rmap(struct folio *folio, struct vm_area_struct *vma,
				 unsigned long addr)
{
	VM_WARN_ON_FOLIO(folio_mapped(folio), folio);
	VM_WARN_ON_FOLIO(folio_anon_vma(folio)->root != vma->anon_vma->root,
			 folio);
	VM_WARN_ON_FOLIO(vma_anon_address(vma, folio->index, 1) != addr, folio);
	folio_get(folio);
	atomic_set(&folio->_mapcount, 0);
	SetPageAnonExclusive(&folio->page);
}

/* Returns true if the entry maps this folio, which is mapped once. */
static bool migrate_run_is_here(struct folio *src, pte_t pte)
{
	return pte_present(pte) && pte_pfn(pte) == folio_pfn(src);
}

/*
 * Unmap a row in @vma, from the nth folio on.  Returns how many it unmapped,
 * 0 if the nth is not mapped there, or -EBUSY if it needs the ordinary path.
 */
static int migrate_run_unmap_row(struct migrate_run *run, unsigned int nth,
				 struct vm_area_struct *vma)
{
	struct folio **src = run->src + nth;
	unsigned long addr = vma_anon_address(vma, src[0]->index, 1);
	struct mm_struct *mm = vma->vm_mm;
	struct mmu_notifier_range range;
	/* CONFIG_INIT_STACK_ALL_ZERO would clear both for each row. */
	pte_t old[MIGRATE_RUN_MAX] __uninitialized;
	struct migrate_row row __uninitialized;
	spinlock_t *ptl;	/* of the page table */
	pmd_t *pmd;
	int nr = 0;

	if (addr == -EFAULT || !migrate_run_vma_fits(vma))
		return 0;
	migrate_row_init(&row, src, run->nr - nth, vma, addr);
	mmu_notifier_range_init(&range, MMU_NOTIFY_CLEAR, 0, mm, row.start,
				row.end);
	if (migrate_rule(RUN_NOTIFY, true))
		mmu_notifier_invalidate_range_start(&range);
	flush_cache_range(vma, row.start, row.end);
	pmd = mm_find_pmd(mm, addr);
	row.ptep = pmd ? pte_offset_map_lock(mm, pmd, addr, &ptl) : NULL;
	if (row.ptep && migrate_run_vma_fits(vma)) {
		migrate_row_clear(&row, mm, old);
		if (row.nr)
			migrate_row_detach(&row, mm, old);
		nr = row.nr;
		if (nr)
			migrate_row_replace(run, &row, vma, old, true);
		else if (migrate_run_is_here(src[0], ptep_get(row.ptep)))
			nr = -EBUSY;
	}
	if (row.ptep)
		pte_unmap_unlock(row.ptep, ptl);
	if (migrate_rule(RUN_NOTIFY, migrate_rule(RUN_NOTIFY_END, true)))
		mmu_notifier_invalidate_range_end(&range);
	return nr;
}

/* Map a row of folios in @vma, from the nth on.  Returns how many it mapped. */
static int migrate_run_map_row(struct migrate_run *run, unsigned int nth,
			       struct vm_area_struct *vma)
{
	struct folio **src = run->src + nth, **dst = run->dst + nth;
	unsigned long addr = vma_anon_address(vma, dst[0]->index, 1);
	struct mm_struct *mm = vma->vm_mm;
	struct migrate_first first;
	struct migrate_row row __uninitialized;
	spinlock_t *ptl;	/* of the page table */
	unsigned int i;
	pmd_t *pmd;

	if (addr == -EFAULT)
		return 0;
	migrate_row_init(&row, dst, run->nr - nth, vma, addr);
	pmd = mm_find_pmd(mm, addr);
	row.ptep = pmd ? pte_offset_map_lock(mm, pmd, addr, &ptl) : NULL;
	if (!row.ptep)
		return 0;
	/*
	 * mlock() has set VM_LOCKED, or finds the pages that are mapped here.
	 */
	if (migrate_rule(RUN_LOCKED, !migrate_run_vma_fits(vma)))
		row.nr = 0;
	for (i = 0; i < row.nr; i++) {
		pte_t *ptep = migrate_row_pte(&row, i), pte = ptep_get(ptep);

		addr = migrate_row_addr(&row, i);
		if (!migrate_run_may_map(pte, folio_pfn(src[i])))
			break;
		pte = migrate_row_mapped(&first, i, vma, dst[i], src[i], pte);
		migrate_run_add_rmap(dst[i], vma, addr);
		set_pte_at(mm, addr, ptep, pte);
		if (trace_remove_migration_pte_enabled())
			trace_remove_migration_pte(addr, pte_val(pte), 0);
		/* No TLB has this entry, because it was not present before. */
		update_mmu_cache(vma, addr, ptep);
	}
	pte_unmap_unlock(row.ptep, ptl);
	return i;
}

static int migrate_run_row_of(struct migrate_run *run, unsigned int nth,
			      bool map, struct vm_area_struct *vma)
{
	if (map)
		return run->order ? migrate_large_map_row(run, nth, vma) :
				    migrate_run_map_row(run, nth, vma);
	return run->kind == MIGRATE_RUN_LARGE ?
		migrate_large_unmap_row(run, nth, vma) :
		migrate_run_unmap_row(run, nth, vma);
}

/*
 * Unmap or map a row, from the nth folio on.  Try the VMA of the previous row
 * first.  The caller holds the lock of the anon_vma.  Returns like
 * migrate_run_unmap_row() or migrate_run_map_row().
 */
static int migrate_run_row(struct migrate_run *run, unsigned int nth, bool map,
			   struct vm_area_struct **vma)
{
	pgoff_t index = (map ? run->dst : run->src)[nth]->index;
	struct vm_area_struct *last = *vma;
	struct anon_vma_chain *avc;
	int nr;

	if (last) {
		nr = migrate_run_row_of(run, nth, map, last);
		if (nr)
			return nr;
	}
	anon_rmap_tree_foreach(avc, run->anon_vma, index, index) {
		if (avc->vma == last)
			continue;
		*vma = avc->vma;
		cond_resched();
		nr = migrate_run_row_of(run, nth, map, *vma);
		if (nr)
			return nr;
	}
	return 0;
}

/* Map what is unmapped of a large folio: the ordinary path follows. */
static void migrate_run_restore(struct migrate_run *run, struct folio *src)
{
	remove_migration_ptes(src, src, 0);
	migrate_queue_if_partial(src);
	put_anon_vma(run->anon_vma);
}

/* Returns how many folios of the run from the first one on it unmapped. */
static unsigned int migrate_exclusive_unmap(struct migrate_run *run)
{
	struct vm_area_struct *vma = NULL;
	unsigned int nr_unmapped = 0;
	int nr;

	run->was = MIGRATE_WAS_MAPPED;
	run->partial = false;
	/* A mapped folio keeps its anon_vma while the folio is locked. */
	run->anon_vma = folio_lock_anon_vma_read(run->src[0], NULL);
	if (!run->anon_vma)
		return 0;
	do {
		nr = migrate_run_row(run, nr_unmapped, false, &vma);
		nr_unmapped += max(nr, 0);
	} while (nr > 0 && !run->partial && nr_unmapped < run->nr);
	atomic_add(nr_unmapped + run->partial, &run->anon_vma->refcount);
	anon_vma_unlock_read(run->anon_vma);
	if (run->kind == MIGRATE_RUN_EXCLUSIVE)
		migrate_mapped_mod(run->src, nr_unmapped, -1);
	if (run->partial)
		migrate_run_restore(run, run->src[nr_unmapped]);
	return nr_unmapped;
}

/**
 * migrate_run_unmap - unmap a run of small folios
 * @run: Returns the unmapped folios in @src and @dst.  They are locked.  Each
 *	has a reference to @anon_vma, if @run has one.
 * @from: The list of folios to migrate, which does not change.
 * @first: The first folio of the run.  migrate_run_is_due() has noted its kind.
 * @max_nr: The most folios to unmap.
 * @get_new_folio: Allocates destinations, as for migrate_pages().
 * @put_new_folio: Frees unused destinations, as for migrate_pages().
 * @private: An argument for both.
 *
 * The caller has to call try_to_unmap_flush() before anything is copied.
 *
 * Return: how many were unmapped, 0 if @first has to take the ordinary path.
 */
unsigned int migrate_run_unmap(struct migrate_run *run, struct list_head *from,
			       struct folio *first, unsigned int max_nr,
			       new_folio_t get_new_folio,
			       free_folio_t put_new_folio,
			       unsigned long private)
{
	unsigned int i, nr_unmapped;

	migrate_run_gather(run, from, first, max_nr, get_new_folio,
			   put_new_folio, private);
	if (!run->nr)
		return 0;
	if (run->windows) {
		migrate_windows_unmapping(run->windows);
		for (i = 0; i < run->nr; i++)
			migrate_offload_note_reason(run->src[i], run->reason);
	}

	run->anon_vma = NULL;
	if (run->kind <= MIGRATE_RUN_LARGE)
		nr_unmapped = migrate_exclusive_unmap(run);
	else
		nr_unmapped = migrate_shared_unmap(run);
	for (i = nr_unmapped; i < run->nr; i++)
		migrate_run_give_up(run, i, put_new_folio, private);
	if (nr_unmapped)
		migrate_run_trust(run);
	else
		migrate_run_note_failed(run);
	run->nr = nr_unmapped;
	return nr_unmapped;
}

/*
 * Returns true if a task waits for one of the run's folios.  A task that waits
 * for a migration entry sets PG_waiters of the source.
 */
bool migrate_run_has_waiters(const struct migrate_run *run)
{
	unsigned long flags = 0;
	unsigned int i;

	for (i = 0; i < run->nr; i++)
		flags |= READ_ONCE(*folio_flags(run->src[i], 0));
	/* The page cache already leads to the destinations. */
	for (i = 0; i < run->nr && !run->anon_vma; i++)
		flags |= READ_ONCE(*folio_flags(run->dst[i], 0));
	return flags & BIT(PG_waiters);
}

/*
 * Drop the references to the sources, and free those without another one, as
 * __folio_put() does.  The sources are on no LRU list, and their destinations
 * have their charges.
 */
static noinline_for_stack void
migrate_run_free(const struct migrate_run *run)
{
	struct folio_batch freed;
	unsigned int i;

	folio_batch_init(&freed);
	for (i = 0; i < run->nr; i++) {
		struct folio *src = run->src[i];

		if (!folio_put_testzero(src))
			continue;
		folio_unqueue_deferred_split(src);
		if (!folio_batch_add(&freed, src))
			free_unref_folios(&freed);
	}
	if (folio_batch_count(&freed))
		free_unref_folios(&freed);
}

/* Release the folios of a run that has been mapped. */
static void migrate_run_done(struct migrate_run *run)
{
	unsigned int i;

	for (i = 0; i < run->nr; i++) {
		struct folio *src = run->src[i], *dst = run->dst[i];

		folio_unlock(dst);
		folio_set_owner_migrate_reason(dst, run->reason);
		/* The mapping has a reference of its own. */
		folio_put(dst);
		list_del(&src->lru);
		folio_unlock(src);
	}
	if (run->reason != MR_DEMOTION)
		migrate_isolated_mod(run->src, run->nr, -(1 << run->order));
	migrate_run_free(run);
}

static void migrate_exclusive_map(struct migrate_run *run)
{
	DECLARE_BITMAP(left, MIGRATE_RUN_MAX) = {};
	struct vm_area_struct *vma = NULL;
	unsigned int i, end;
	int nr;

	anon_vma_lock_read(run->anon_vma);
	for (i = 0; i < run->nr; i += nr) {
		nr = migrate_run_row(run, i, true, &vma);
		if (!nr) {
			__set_bit(i, left);
			nr = 1;
		}
	}
	anon_vma_unlock_read(run->anon_vma);
	/* The other functions have counted the pages of large folios. */
	if (!run->order)
		for_each_clear_bitrange(i, end, left, run->nr)
			migrate_mapped_mod(run->dst + i, end - i, 1);
	for_each_set_bit(i, left, run->nr)
		if (migrate_rule(RUN_REST, true)) {
			remove_migration_ptes(run->src[i], run->dst[i], 0);
			migrate_queue_if_partial(run->dst[i]);
		}
}

/**
 * migrate_run_map - map and release the folios of a run
 * @run: The run, which is empty on return.
 *
 * The function adds destinations to LRU lists, maps them in place of their
 * sources, and frees the sources.
 */
void migrate_run_map(struct migrate_run *run)
{
	/* migrate_folio_move() explains why this comes before the mapping. */
	migrate_lru_add(run->dst, run->nr, 1 << run->order);
	if (run->was & MIGRATE_WAS_SHARED)
		migrate_shared_map(run);
	else
		migrate_exclusive_map(run);
	if (run->anon_vma) {
		/* The last put may free the anon_vma. */
		atomic_sub(run->nr - 1, &run->anon_vma->refcount);
		put_anon_vma(run->anon_vma);
	} else {
		migrate_file_count(run);
	}
	migrate_run_done(run);
	run->nr = 0;
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/run_kunit.c"
#endif
