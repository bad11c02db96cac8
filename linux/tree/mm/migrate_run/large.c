// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs of large folios.
 *
 * For each large folio, the ordinary path walks the reverse mapping, looks up
 * the page table, notifies and flushes twice.  Folios that lie behind each other
 * in one page table need this once.
 *
 * The folios of a run have one size.  Each has one entry for each page, in one
 * process, and its first page is exclusive.  The rules are those of
 * mm/migrate_run/run.c, with these differences.
 *
 * - Unmapping.  ptes.c unmaps one folio, and checks its pages for pins
 *   [ptes_pin] and poison [ptes_poison].  A folio is unmapped if all its entries
 *   were here and nothing else maps it.  Otherwise the run ends before the
 *   folio.  Then the ordinary path takes it, after the entries are restored.
 *
 * - The queue of folios to split.  A folio on the queue takes the ordinary path,
 *   which queues the destination, too.  Unmapping a part of a folio queues it.
 *   Once all entries are replaced, only a scan of the queue that already has the
 *   folio may put it there.  So moving the folio looks again.
 *
 * - Mapping.  A folio may be mapped in parts, because its pages differ in their
 *   bits, or are no longer mapped.  remove_migration_ptes() maps what is left.  A
 *   VMA that was locked meanwhile makes no difference: the functions that count
 *   the pages see to it.
 */

#include <linux/leafops.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/pgtable.h>
#include <linux/rmap.h>

#include "../internal.h"
#include "ptes.h"
#include "row.h"
#include "run.h"

/* Folios that lie behind each other in one page table of a VMA. */
struct migrate_large_row {
	unsigned int nr;
	unsigned long addr;		/* of the first */
	unsigned long bytes;		/* of one */
};

/* Returns true if the folio is on the queue of folios to split. */
static bool migrate_large_is_queued(struct folio *folio)
{
	/* A hint: a scan may have the folio, see migrate_run_is_queued(). */
	return !data_race(list_empty(&folio->_deferred_list));
}

/*
 * Returns the kind of run that may have a large folio.  Like migrate_run_kind(),
 * callers ask without any lock, and again with the lock of the folio.
 */
enum migrate_run_kind migrate_large_kind(struct folio *folio, bool exclusive)
{
	unsigned int order = folio_order(folio);

	/* Only folios of more than two pages have a place in the queue. */
	if (order < 2 || order > ilog2(MIGRATE_RUN_PAGES) ||
	    folio_test_hugetlb(folio))
		return MIGRATE_RUN_NONE;
	if (migrate_rule(RUN_HINTS, !exclusive ||
			 folio_ref_count(folio) != (1 << order) + 1 ||
			 folio_entire_mapcount(folio) ||
			 migrate_large_is_queued(folio)))
		return MIGRATE_RUN_NONE;
	return MIGRATE_RUN_LARGE;
}

/* Find the folios that form a row with the first one.  There may be none. */
static void migrate_large_row_init(struct migrate_large_row *row,
				   struct folio **folios, unsigned int max_nr,
				   struct vm_area_struct *vma,
				   unsigned long addr)
{
	const unsigned long nr_pages = folio_nr_pages(folios[0]);

	row->addr = addr;
	row->bytes = nr_pages * PAGE_SIZE;
	max_nr = min_t(unsigned long, max_nr,
		       (pmd_addr_end(addr, vma->vm_end) - addr) / row->bytes);
	for (row->nr = 0; row->nr < max_nr; row->nr++)
		if (folios[row->nr]->index !=
		    folios[0]->index + row->nr * nr_pages)
			break;
}

/*
 * Unmap folios as long as nothing else maps them.  Returns how many.  After that,
 * @partial is true if entries of the next folio are left to restore.
 */
static unsigned int migrate_large_clear(struct migrate_run *run,
					struct folio **src, pte_t *ptep,
					const struct migrate_large_row *row,
					struct vm_area_struct *vma)
{
	const unsigned int nr_pages = row->bytes / PAGE_SIZE;
	struct migrate_cleared cleared = {};
	unsigned int i, nr = 0, nr_entries = 0;

	for (i = 0; i < row->nr; i++) {
		nr = migrate_unmap_whole(vma, src[i], row->addr + i * row->bytes,
					 ptep + i * nr_pages, &cleared);
		nr_entries += nr;
		if (nr < nr_pages || folio_mapped(src[i]) ||
		    migrate_large_is_queued(src[i])) {
			run->partial = nr;
			break;
		}
	}
	if (migrate_rule(PTES_FLUSH, cleared.flush)) {
		migrate_flush_ptes(vma, row->addr, nr_entries, cleared.dirty,
				   TTU_BATCH_FLUSH,
				   run->nr_flushed > MIGRATE_RUN_FLUSHES);
		run->nr_flushed += nr_entries;
	}
	return i;
}

/**
 * migrate_large_unmap_row - unmap a row of large folios
 * @run: The run.
 * @nth: The first folio of the row.
 * @vma: Where to unmap them.
 *
 * Return: how many were unmapped, 0 if the first is not mapped in the VMA, or
 * -EBUSY if it needs the ordinary path.
 */
int migrate_large_unmap_row(struct migrate_run *run, unsigned int nth,
			    struct vm_area_struct *vma)
{
	struct folio **src = run->src + nth;
	unsigned long addr = vma_anon_address(vma, src[0]->index, 1);
	struct mm_struct *mm = vma->vm_mm;
	struct migrate_large_row row;
	struct mmu_notifier_range range;
	spinlock_t *ptl;	/* of the page table */
	pte_t *ptep;
	pmd_t *pmd;
	int nr = 0;

	if (addr == -EFAULT || !migrate_run_vma_fits(vma))
		return 0;
	migrate_large_row_init(&row, src, run->nr - nth, vma, addr);
	if (!row.nr)
		return 0;
	mmu_notifier_range_init(&range, MMU_NOTIFY_CLEAR, 0, mm, addr,
				addr + row.nr * row.bytes);
	if (migrate_rule(RUN_NOTIFY, true))
		mmu_notifier_invalidate_range_start(&range);
	flush_cache_range(vma, range.start, range.end);
	pmd = mm_find_pmd(mm, addr);
	ptep = pmd ? pte_offset_map_lock(mm, pmd, addr, &ptl) : NULL;
	if (ptep) {
		if (migrate_run_vma_fits(vma))
			nr = migrate_large_clear(run, src, ptep, &row, vma);
		pte_unmap_unlock(ptep, ptl);
	}
	if (migrate_rule(RUN_NOTIFY, migrate_rule(RUN_NOTIFY_END, true)))
		mmu_notifier_invalidate_range_end(&range);
	return nr || !run->partial ? nr : -EBUSY;
}

/* Map a folio.  Returns true if all its pages are mapped. */
static bool migrate_large_map(struct folio *dst, struct folio *src,
			      struct vm_area_struct *vma, unsigned long addr,
			      pte_t *ptep)
{
	const unsigned int nr_pages = folio_nr_pages(dst);
	unsigned int nr;

	for (nr = 0; nr < nr_pages; ) {
		if (!migrate_run_may_map(ptep_get(ptep + nr),
					 folio_pfn(src) + nr))
			return false;
		nr += migrate_map_alike(vma, &dst->page + nr,
					addr + nr * PAGE_SIZE, ptep + nr,
					nr_pages - nr);
	}
	return true;
}

/**
 * migrate_large_map_row - map a row of large folios
 * @run: The run.
 * @nth: The first folio of the row.
 * @vma: Where to map them.
 *
 * Return: how many were mapped, with all their pages.
 */
int migrate_large_map_row(struct migrate_run *run, unsigned int nth,
			  struct vm_area_struct *vma)
{
	struct folio **src = run->src + nth, **dst = run->dst + nth;
	unsigned long addr = vma_anon_address(vma, dst[0]->index, 1);
	struct migrate_large_row row;
	spinlock_t *ptl;	/* of the page table */
	unsigned int i;
	pte_t *ptep;
	pmd_t *pmd;

	if (addr == -EFAULT)
		return 0;
	migrate_large_row_init(&row, dst, run->nr - nth, vma, addr);
	pmd = row.nr ? mm_find_pmd(vma->vm_mm, addr) : NULL;
	ptep = pmd ? pte_offset_map_lock(vma->vm_mm, pmd, addr, &ptl) : NULL;
	if (!ptep)
		return 0;
	for (i = 0; i < row.nr; i++) {
		unsigned long at = i * row.bytes;

		if (!migrate_large_map(dst[i], src[i], vma, addr + at,
				       ptep + at / PAGE_SIZE))
			break;
	}
	pte_unmap_unlock(ptep, ptl);
	return i;
}
