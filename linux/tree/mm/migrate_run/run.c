// SPDX-License-Identifier: GPL-2.0-only
/*
 * Small anonymous pages that nobody shares, unmapped and mapped again in runs
 * when they migrate.
 *
 * For each page migrate_pages_batch() looks twice for all that map it, updates
 * statistics four times, and takes a lock of an LRU list.  A page that is marked
 * as exclusive to one process has one mapping, so that the first one found is the
 * last; and near it in the page table are those of the pages that are next in the
 * list.  So take the lock of the anon_vma, find the VMA and take the lock of
 * the page table once for as many pages as are alike, and update statistics once
 * for all of them.
 *
 * What takes this way is an anonymous page that is small, exclusive, mapped once,
 * and not KSM's, in the swap cache, mlocked or poisoned; in a VMA that is neither
 * locked nor watched by a userfaultfd.  Everything else goes the ordinary way, as
 * does all that is found to be otherwise on the way.
 *
 * Why it is safe, beyond what the ordinary way has.  What is in brackets is broken
 * by runs.c of the selftests, to show that it is needed:
 *
 * - Unmapping.  The folio is locked and the lock of the page table is held.  The
 *   entry has to be that of the page [run_page]: the anon_vma also leads to VMAs
 *   that have, at the same place, a page of their own.  An exclusive page is mapped
 *   by no other entry, and stays exclusive: fork() and KSM take the lock of the page
 *   table to change that.  One that is not marked so must not come back marked
 *   [run_exclusive].  A poisoned one must not come back at all [run_poison].
 *
 *   GUP-fast takes no lock.  It takes a reference, and then looks at the entry
 *   again.  So entries are cleared first, then comes a barrier, and then there must
 *   be no reference but that of the entry and that of whoever isolated the page;
 *   else the entry is put back as it was.  A page that is pinned when fork() finds
 *   a migration entry in its place would be shared [run_pin].  Other references
 *   make the move fail, as ever: not to begin with it saves the effort.
 *
 *   Nothing is copied while a TLB may have such an entry [run_flush].  Each entry
 *   that is cleared says whether a TLB may have it [run_judge].  Devices and virtual
 *   machines that shadow page tables are told before an entry is cleared, and again
 *   when they may look at the page table [run_notify, run_notify_end, both broken by
 *   notify.c].
 *
 * - Mapping.  In between, programs may fork, move, unmap or protect memory: no
 *   lock keeps them from it.  An entry that is for the source [run_entry], and is
 *   still marked as exclusive [run_shared], is the only one there is: fork() takes
 *   that mark from both entries, and whoever moves an entry leaves none behind.  A
 *   VMA that is locked by now [run_locked] counts its pages in the ordinary way.
 *   Where no entry is mapped, remove_migration_ptes() looks for all there are
 *   [run_rest].  That includes one that mremap() moves just then from a VMA that
 *   was not looked at yet to one that was.
 *
 * - The anon_vma.  Its lock keeps VMAs that are found by it, and their page
 *   tables.  Between the two it is kept by a reference for each page.
 *
 * What is asked without the lock of the page table saves effort, and no more
 * [run_hints]: an exclusive page is mapped once and is not KSM's, and one that is
 * in the swap cache or under writeback has one reference more.  VMAs that are
 * locked, or watched by a userfaultfd, are left alone out of caution when pages are
 * unmapped.  A temporary stack has to be, as in the ordinary way: only a race with
 * execve() would show why, and there is no test for that.
 */

#include <linux/bitmap.h>
#include <linux/memcontrol.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/page_owner.h>
#include <linux/pgtable.h>
#include <linux/rmap.h>
#include <linux/sched.h>
#include <linux/swap.h>
#include <linux/swapops.h>
#include <linux/userfaultfd_k.h>
#include <linux/vmstat.h>

#include <trace/events/migrate.h>

#include "../internal.h"
#include "../migrate_offload/internal.h"
#include "pte.h"
#include "run.h"

/* With the lock of the page table held the answer is good for its entries. */
static bool migrate_run_vma_fits(struct vm_area_struct *vma)
{
	const vm_flags_t not = VM_LOCKED | VM_HUGETLB | VM_PFNMAP | VM_SHARED;

	/* Without VM_MAYWRITE fork() leaves both entries marked as exclusive. */
	return (vma->vm_flags & (not | VM_MAYWRITE)) == VM_MAYWRITE &&
		!userfaultfd_armed(vma) && !vma_is_temporary_stack(vma);
}

/*
 * Entries of one page table, near each other and in any order: compaction finds
 * pages from the highest down, and reclaim as they were used.  So many entries at
 * most lie between the first and the last of them, as they are flushed, and
 * notified about, as one range.
 */
#define MIGRATE_ROW_SPAN ((long)MIGRATE_RUN_MAX)

struct migrate_row {
	struct folio **folios;
	unsigned int nr;
	unsigned long addr;		/* of the first of the folios */
	unsigned long start, end;	/* of all of them */
	pte_t *ptep;			/* of the first */
};

static long migrate_row_offset(const struct migrate_row *row, unsigned int nth)
{
	return row->folios[nth]->index - row->folios[0]->index;
}

static unsigned long migrate_row_addr(const struct migrate_row *row,
				      unsigned int nth)
{
	return row->addr + migrate_row_offset(row, nth) * PAGE_SIZE;
}

static pte_t *migrate_row_pte(const struct migrate_row *row, unsigned int nth)
{
	return row->ptep + migrate_row_offset(row, nth);
}

/*
 * How many of up to @max_nr folios have their entries in a row with that of the
 * first, which is for @addr?
 */
static void migrate_row_init(struct migrate_row *row, struct folio **folios,
			     unsigned int max_nr, struct vm_area_struct *vma,
			     unsigned long addr)
{
	long min_at = max(addr & PMD_MASK, vma->vm_start) - addr;
	long max_at = pmd_addr_end(addr, vma->vm_end) - PAGE_SIZE - addr;
	long start = 0, end = 0;

	min_at /= (long)PAGE_SIZE;
	max_at /= (long)PAGE_SIZE;
	row->folios = folios;
	row->addr = addr;
	for (row->nr = 1; row->nr < max_nr; row->nr++) {
		long at = migrate_row_offset(row, row->nr);

		/* In pages: one that is not of this VMA may be anywhere. */
		if (at < min_at || at > max_at ||
		    max(end, at) - min(start, at) >= MIGRATE_ROW_SPAN)
			break;
		start = min(start, at);
		end = max(end, at);
	}
	row->start = addr + start * PAGE_SIZE;
	row->end = addr + (end + 1) * PAGE_SIZE;
}

/* May this be the only entry of a page?  One look at the flags for both rules. */
static bool migrate_row_fits(struct page *page, pte_t pte)
{
	unsigned long flags = READ_ONCE(page->flags);

	if (!pte_present(pte) || pte_unused(pte))
		return false;
	if (migrate_rule(RUN_PAGE, pte_pfn(pte) != page_to_pfn(page)))
		return false;
	if (migrate_rule(RUN_EXCLUSIVE, !(flags & BIT(PG_anon_exclusive))))
		return false;
#ifdef CONFIG_MEMORY_FAILURE
	if (migrate_rule(RUN_POISON, flags & BIT(PG_hwpoison)))
		return false;
#endif
	/* That of a page that is exclusive says nothing new. */
	return !atomic_read(&page->_mapcount);
}

/* Clear entries as long as each is the only one of its page. */
static void migrate_row_clear(struct migrate_row *row, struct mm_struct *mm,
			      pte_t *old)
{
	unsigned int i;

	for (i = 0; i < row->nr; i++) {
		pte_t *ptep = migrate_row_pte(row, i);

		if (!migrate_row_fits(&row->folios[i]->page, ptep_get(ptep)))
			break;
		old[i] = ptep_get_and_clear(mm, migrate_row_addr(row, i), ptep);
	}
	row->nr = i;
}

/* Put back entries from the first one on whose page somebody else uses. */
static void migrate_row_keep_used(struct migrate_row *row, struct mm_struct *mm,
				  const pte_t *old)
{
	unsigned int i, nr_free;

	if (IS_ENABLED(CONFIG_HAVE_GUP_FAST))
		smp_mb(); /* paired with the one in try_grab_folio() */
	for (nr_free = 0; nr_free < row->nr; nr_free++)
		if (migrate_rule(RUN_PIN,
				 folio_ref_count(row->folios[nr_free]) != 2))
			break;
	for (i = nr_free; i < row->nr; i++)
		set_pte_at(mm, migrate_row_addr(row, i),
			   migrate_row_pte(row, i), old[i]);
	row->nr = nr_free;
}

/*
 * Returns how many entries one flush covers from the nth on, and their lowest address.
 * A row that was cut short keeps its span: the span may start at an entry cut off.
 */
static unsigned int migrate_row_piece(const struct migrate_row *row,
				      unsigned int nth, unsigned long *addr)
{
	long offset = migrate_row_offset(row, nth);
	unsigned int next;

	/* As many entries as fit into the span: all of it, in whichever order. */
	if (!nth && row->end - row->start == row->nr * PAGE_SIZE) {
		*addr = row->start;
		return row->nr;
	}
	*addr = migrate_row_addr(row, nth);
	for (next = nth + 1; next < row->nr; next++)
		if (migrate_row_offset(row, next) != offset + next - nth)
			break;
	return next - nth;
}

/* Flush the cleared entries, and none in the gaps: a gap may have 30 entries. */
static void migrate_row_flush(const struct migrate_row *row,
			      struct vm_area_struct *vma, bool dirty)
{
	unsigned int i, nr;
	unsigned long addr;

	for (i = 0; i < row->nr; i += nr) {
		nr = migrate_row_piece(row, i, &addr);
		if (migrate_flush_ptes(vma, addr, nr, dirty, TTU_BATCH_FLUSH))
			return;
	}
}

/* Nobody but us can reach these any more, but for what TLBs have. */
static void migrate_row_replace(struct migrate_row *row,
				struct vm_area_struct *vma, const pte_t *old,
				struct rmap_stat *stat)
{
	struct migrate_cleared cleared = {};
	struct mm_struct *mm = vma->vm_mm;
	struct folio **src = row->folios;
	unsigned int i;
	pte_t pte;

	for (i = 0; i < row->nr; i++)
		ClearPageAnonExclusive(&src[i]->page);
	if (IS_ENABLED(CONFIG_HAVE_GUP_FAST))
		smp_mb__after_atomic(); /* paired with gup_must_unshare() */
	for (i = 0; i < row->nr; i++) {
		unsigned long addr = migrate_row_addr(row, i);
		unsigned long pfn = pte_pfn(old[i]);

		/* Then it may be another page's entry. */
		if (!migrate_rule(RUN_PAGE, true))
			pfn = folio_pfn(src[i]);
		pte = migrate_pte_of_entry(migrate_pte_entry(pfn, old[i], true),
					   old[i]);
		set_pte_at(mm, addr, migrate_row_pte(row, i), pte);
		migrate_cleared_add(&cleared, mm, old[i]);
		if (trace_set_migration_pte_enabled())
			trace_set_migration_pte(addr, pte_val(pte), 0);
	}
	if (!migrate_rule(RUN_JUDGE, true))
		cleared.flush = migrate_offload_judge_late(mm, old, row->nr);
	if (migrate_rule(RUN_FLUSH, cleared.flush))
		migrate_row_flush(row, vma, cleared.dirty);
	update_hiwater_rss(mm);
	for (i = 0; i < row->nr; i++) {
		/* As folio_mark_dirty() does, when no CPU can any more. */
		if (pte_dirty(old[i]) && !folio_test_dirty(src[i]))
			folio_set_dirty(src[i]);
		folio_remove_exclusive_rmap(src[i], stat);
	}
}

/* Is it this folio, which is mapped once, that the entry is for? */
static bool migrate_run_is_here(struct folio *src, pte_t pte)
{
	return pte_present(pte) && pte_pfn(pte) == folio_pfn(src);
}

/*
 * Unmap from the nth on what is in a row in @vma.  Returns how many it was, 0 if
 * they are not there, or -EBUSY if they are, and are for the ordinary way.
 */
static int migrate_run_unmap_row(struct migrate_run *run, unsigned int nth,
				 struct vm_area_struct *vma,
				 struct rmap_stat *stat)
{
	struct folio **src = run->src + nth;
	unsigned long addr = vma_address(vma, src[0]->index, 1);
	struct mm_struct *mm = vma->vm_mm;
	struct mmu_notifier_range range;
	pte_t old[MIGRATE_RUN_MAX];
	struct migrate_row row;
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
			migrate_row_keep_used(&row, mm, old);
		nr = row.nr;
		if (nr)
			migrate_row_replace(&row, vma, old, stat);
		else if (migrate_run_is_here(src[0], ptep_get(row.ptep)))
			nr = -EBUSY;
	}
	if (row.ptep)
		pte_unmap_unlock(row.ptep, ptl);
	if (migrate_rule(RUN_NOTIFY, migrate_rule(RUN_NOTIFY_END, true)))
		mmu_notifier_invalidate_range_end(&range);
	return nr;
}

/* May @old be mapped as the only entry of what @src was? */
static bool migrate_run_may_map(pte_t old, struct folio *src)
{
	swp_entry_t entry;

	if (!is_swap_pte(old))
		return !migrate_rule(RUN_ENTRY, true);
	entry = pte_to_swp_entry(old);
	if (!is_migration_entry(entry))
		return !migrate_rule(RUN_ENTRY, true);
	/* fork() was here. */
	if (migrate_rule(RUN_SHARED, is_readable_migration_entry(entry)))
		return false;
	return !migrate_rule(RUN_ENTRY,
			     swp_offset_pfn(entry) != folio_pfn(src));
}

/* Map from the nth on what is in a row in @vma.  Returns how many it was. */
static int migrate_run_map_row(struct migrate_run *run, unsigned int nth,
			       struct vm_area_struct *vma,
			       struct rmap_stat *stat)
{
	struct folio **src = run->src + nth, **dst = run->dst + nth;
	unsigned long addr = vma_address(vma, dst[0]->index, 1);
	struct mm_struct *mm = vma->vm_mm;
	struct migrate_row row;
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
	/* Whoever locks a VMA comes by here later, or has set the flag. */
	if (migrate_rule(RUN_LOCKED, !migrate_run_vma_fits(vma)))
		row.nr = 0;
	for (i = 0; i < row.nr; i++) {
		pte_t *ptep = migrate_row_pte(&row, i), pte = ptep_get(ptep);

		addr = migrate_row_addr(&row, i);
		if (!migrate_run_may_map(pte, src[i]))
			break;
		pte = migrate_pte_mapped(vma, dst[i], &dst[i]->page, pte,
					 pte_to_swp_entry(pte));
		folio_add_exclusive_rmap(dst[i], vma, addr, stat);
		set_pte_at(mm, addr, ptep, pte);
		if (trace_remove_migration_pte_enabled())
			trace_remove_migration_pte(addr, pte_val(pte), 0);
		/* No need to invalidate: it was not present before. */
		update_mmu_cache(vma, addr, ptep);
	}
	pte_unmap_unlock(row.ptep, ptl);
	return i;
}

/*
 * Do what there is to do from the nth on, in the VMA that it is in: mostly the
 * same as for the one before.  The lock of the anon_vma is held.  Returns as those
 * above do.
 */
static int migrate_run_row(struct migrate_run *run, unsigned int nth, bool map,
			   struct vm_area_struct **vma,
			   struct rmap_stat *stat)
{
	pgoff_t index = (map ? run->dst : run->src)[nth]->index;
	struct vm_area_struct *last = *vma;
	struct anon_vma_chain *avc;
	int nr;

	if (last) {
		nr = map ? migrate_run_map_row(run, nth, last, stat) :
			   migrate_run_unmap_row(run, nth, last, stat);
		if (nr)
			return nr;
	}
	anon_vma_interval_tree_foreach(avc, &run->anon_vma->rb_root, index,
				       index) {
		if (avc->vma == last)
			continue;
		*vma = avc->vma;
		cond_resched();
		nr = map ? migrate_run_map_row(run, nth, *vma, stat) :
			   migrate_run_unmap_row(run, nth, *vma, stat);
		if (nr)
			return nr;
	}
	return 0;
}

/**
 * migrate_run_unmap - unmap pages of a list that one process alone has
 * @run: What says which, on return: the first so many of @src and @dst, which
 *	are locked, with a reference to @anon_vma for each.
 * @from: The list of folios to be migrated, which stays as it is.
 * @first: Where to begin in that list: migrate_run_wants() it.
 * @max_nr: Not more than these.
 * @get_new_folio: Allocates folios, as for migrate_pages().
 * @put_new_folio: Frees those that are not needed, as for migrate_pages().
 * @private: Is passed to both.
 *
 * TLBs are to be flushed by try_to_unmap_flush() before anything is copied.
 *
 * Return: how many were unmapped, 0 if @first is one for the ordinary way.
 */
unsigned int migrate_run_unmap(struct migrate_run *run, struct list_head *from,
			       struct folio *first, unsigned int max_nr,
			       new_folio_t get_new_folio,
			       free_folio_t put_new_folio,
			       unsigned long private)
{
	struct rmap_stat stat = {};
	struct vm_area_struct *vma = NULL;
	unsigned int i, nr_unmapped = 0;
	int nr;

	migrate_run_gather(run, from, first, max_nr, get_new_folio,
			   put_new_folio, private);
	if (!run->nr)
		return 0;
	if (run->windows) {
		migrate_windows_unmapping(run->windows);
		for (i = 0; i < run->nr; i++)
			migrate_offload_note_reason(run->src[i], run->reason);
	}

	/* One that is mapped has an anon_vma that stays while it is locked. */
	run->anon_vma = folio_lock_anon_vma_read(run->src[0], NULL);
	if (run->anon_vma) {
		do {
			nr = migrate_run_row(run, nr_unmapped, false, &vma,
					     &stat);
			nr_unmapped += max(nr, 0);
		} while (nr > 0 && nr_unmapped < run->nr);
		rmap_stat_flush(&stat);
		atomic_add(nr_unmapped, &run->anon_vma->refcount);
		anon_vma_unlock_read(run->anon_vma);
	}
	for (i = nr_unmapped; i < run->nr; i++)
		migrate_run_give_up(run, i, put_new_folio, private);
	if (nr_unmapped)
		migrate_run_trust(run);
	else
		migrate_run_note_failed(run);
	run->nr = nr_unmapped;
	return nr_unmapped;
}

/* Folios that are moved between two looks at whether a task waits for one. */
#define MIGRATE_RUN_LOOK 4

/*
 * Does the run have to be mapped now?  Its folios are ready: a task that needs one
 * must not wait until others are copied.  A task that waits for a migration entry
 * marks the source that the entry is for.
 */
static bool migrate_run_is_due_to_map(const struct migrate_run *run)
{
	unsigned long flags = 0;
	unsigned int i;

	if (run->nr == MIGRATE_RUN_MAX)
		return true;
	if (run->nr % MIGRATE_RUN_LOOK)
		return false;
	for (i = 0; i < run->nr; i++)
		flags |= READ_ONCE(run->src[i]->flags);
	return flags & BIT(PG_waiters);
}

/**
 * migrate_run_take - have a folio mapped that has taken the place of another
 * @run: Maps it with others that were moved: in migrate_run_finish() at the
 *	latest.
 * @src: Was unmapped by migrate_run_unmap().
 * @dst: Has its content.
 * @anon_vma: Of both, with a reference that the run takes over.
 */
void migrate_run_take(struct migrate_run *run, struct folio *src,
		      struct folio *dst, struct anon_vma *anon_vma)
{
	if (run->nr && run->anon_vma != anon_vma)
		migrate_run_map(run);
	run->anon_vma = anon_vma;
	run->src[run->nr] = src;
	run->dst[run->nr++] = dst;
	if (migrate_run_is_due_to_map(run))
		migrate_run_map(run);
}

/* The last of what is due for a folio that has been moved. */
static void migrate_run_done(struct migrate_run *run)
{
	struct migrate_isolated isolated = {};
	unsigned int i;

	for (i = 0; i < run->nr; i++) {
		struct folio *src = run->src[i], *dst = run->dst[i];

		folio_unlock(dst);
		set_page_owner_migrate_reason(&dst->page, run->reason);
		/* Whoever maps it has references by now. */
		folio_put(dst);
		list_del(&src->lru);
		folio_unlock(src);

		if (run->reason != MR_DEMOTION)
			migrate_isolated_mod(&isolated, src, -1);
		folio_put(src);
	}
	migrate_isolated_mod(&isolated, NULL, 0);
}

/**
 * migrate_run_map - map what migrate_run_take() took, and let go of it
 * @run: Is empty on return.
 *
 * Destinations are added to the LRU lists and mapped where their sources were,
 * sources are freed.
 */
void migrate_run_map(struct migrate_run *run)
{
	DECLARE_BITMAP(left, MIGRATE_RUN_MAX) = {};
	struct rmap_stat stat = {};
	struct vm_area_struct *vma = NULL;
	unsigned int i;
	int nr;

	/* Before they are mapped, as migrate_folio_move() explains. */
	migrate_lru_add(run->dst, run->nr);
	anon_vma_lock_read(run->anon_vma);
	for (i = 0; i < run->nr; i += nr) {
		nr = migrate_run_row(run, i, true, &vma, &stat);
		if (!nr) {
			__set_bit(i, left);
			nr = 1;
		}
	}
	rmap_stat_flush(&stat);
	anon_vma_unlock_read(run->anon_vma);
	for_each_set_bit(i, left, run->nr)
		if (migrate_rule(RUN_REST, true))
			remove_migration_ptes(run->src[i], run->dst[i], 0);

	/* The last one may free it. */
	atomic_sub(run->nr - 1, &run->anon_vma->refcount);
	put_anon_vma(run->anon_vma);
	migrate_run_done(run);
	run->nr = 0;
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/run_kunit.c"
#endif
