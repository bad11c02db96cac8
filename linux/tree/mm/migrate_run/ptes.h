/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Large folios that are mapped by single page table entries: migration unmaps
 * and maps them in one step.  See mm/migrate_run/ptes.c.
 */
#ifndef _MM_MIGRATE_RUN_PTES_H
#define _MM_MIGRATE_RUN_PTES_H

#include <linux/jump_label.h>
#include <linux/mm.h>
#include <linux/rmap.h>

#include "../internal.h"

#ifdef CONFIG_MIGRATE_BATCH_PTES
DECLARE_STATIC_KEY_TRUE(migrate_batch_ptes_key);

#define migrate_batch_ptes_on() static_branch_likely(&migrate_batch_ptes_key)

int __migrate_unmap_ptes(struct page_vma_mapped_walk *pvmw, struct folio *folio,
			 enum ttu_flags flags);
unsigned int __migrate_map_ptes(struct page_vma_mapped_walk *pvmw,
				struct folio *folio, struct page *page);
void __migrate_queue_if_partial(struct folio *folio);
#else
#define migrate_batch_ptes_on() false
#endif

/* Some files that include this are also built without an MMU. */
#ifdef CONFIG_MMU
#include "pte.h"

#ifndef CONFIG_MIGRATE_BATCH_PTES
static inline int __migrate_unmap_ptes(struct page_vma_mapped_walk *pvmw,
				       struct folio *folio,
				       enum ttu_flags flags)
{
	return 0;
}

static inline unsigned int
__migrate_map_ptes(struct page_vma_mapped_walk *pvmw, struct folio *folio,
		   struct page *page)
{
	return 0;
}

static inline void __migrate_queue_if_partial(struct folio *folio)
{
}
#endif /* !CONFIG_MIGRATE_BATCH_PTES */

/*
 * try_to_migrate_one() has found an entry that maps a page of @folio.  Unmap it
 * and the next entries that map the next pages.  The walk skips all of them.
 *
 * Returns how many it unmapped, 0 if the entry has to take the ordinary path,
 * or -EBUSY if the folio is pinned and cannot migrate.
 */
static inline int migrate_unmap_ptes(struct page_vma_mapped_walk *pvmw,
				     struct folio *folio, enum ttu_flags flags)
{
	/* The walk covers the whole folio, so nr_pages is the folio's size. */
	if (likely(pvmw->nr_pages == 1) || !pvmw->pte ||
	    folio_test_hugetlb(folio) || !migrate_batch_ptes_on())
		return 0;
	return __migrate_unmap_ptes(pvmw, folio, flags);
}

/*
 * remove_migration_pte() found a migration entry for the nth page of @folio.
 * Map it, and the next entries that map the next pages in the same way.
 * Returns how many it mapped, 0 if the entry has to take the ordinary path.
 */
static inline unsigned int migrate_map_ptes(struct page_vma_mapped_walk *pvmw,
					    struct folio *folio,
					    unsigned long nth)
{
	if (!pvmw->pte || !migrate_batch_ptes_on())
		return 0;
	return __migrate_map_ptes(pvmw, folio, &folio->page + nth);
}

/*
 * Returns true if every page of a large folio is mapped.  PG_partially_mapped
 * may differ: unmapping a folio entry by entry sets it, and nothing clears it.
 *
 * With CONFIG_NO_PAGE_MAPCOUNT, Linux counts the mappings of the folio only.
 * With fewer mappings than pages, a page is not mapped: see
 * __folio_remove_rmap().  With more, the folio counts as whole.
 */
static inline bool migrate_is_whole(struct folio *folio)
{
	if (!migrate_batch_ptes_on())
		return false;
	if (folio_entire_mapcount(folio))
		return true;
	if (IS_ENABLED(CONFIG_NO_PAGE_MAPCOUNT))
		return folio_large_mapcount(folio) >= folio_nr_pages(folio);
	return folio_nr_pages_mapped(folio) == folio_nr_pages(folio);
}

/*
 * Called after the core has mapped a folio again.  Queue the folio for
 * splitting if a part of it was unmapped before or meanwhile.
 */
static inline void migrate_queue_if_partial(struct folio *folio)
{
	if (folio_test_large(folio) && migrate_batch_ptes_on() &&
	    !migrate_is_whole(folio))
		__migrate_queue_if_partial(folio);
}

/*
 * Called before the core maps @dst.  @queued: the source was on the queue of
 * folios to split, whole or partially mapped.
 *
 * Queue a whole folio now: once @dst is mapped, another CPU may unmap a part
 * and mark the folio as partially mapped.  To queue a marked folio as a whole
 * one is an error.  migrate_queue_if_partial() queues partially mapped folios
 * later.  Returns false if the caller has to queue the folio.
 *
 * CONFIG_NO_PAGE_MAPCOUNT cannot tell whether all pages of a shared folio are
 * mapped.  So a marked folio stays marked.
 */
static inline bool migrate_requeue(struct folio *dst, bool queued,
				   bool partially_mapped)
{
	if (!queued || !migrate_batch_ptes_on())
		return false;
	if (IS_ENABLED(CONFIG_NO_PAGE_MAPCOUNT) && partially_mapped)
		return false;
	if (!partially_mapped)
		deferred_split_folio(dst, false);
	return true;
}

/*
 * Page table entries that are cleared: may a TLB have one, and was one dirty?
 *
 * Check each entry once for @flush, under the lock of the page table.  A
 * PROT_NONE entry counts only while mm->tlb_flush_pending is above 0, and
 * another thread may lower that at any time.  So a later check of one entry
 * says nothing about others.
 */
struct migrate_cleared {
	bool flush;
	bool dirty;
};

static inline void migrate_cleared_add(struct migrate_cleared *cleared,
				       struct mm_struct *mm, pte_t pte)
{
	cleared->flush |= pte_accessible(mm, pte);
	cleared->dirty |= pte_dirty(pte);
}

/* mm/migrate_run/ptes.c, for runs of large folios */
unsigned int migrate_unmap_whole(struct vm_area_struct *vma,
				 struct folio *folio, unsigned long addr,
				 pte_t *ptep, struct migrate_cleared *cleared);
unsigned int migrate_map_alike(struct vm_area_struct *vma, struct page *page,
			       unsigned long addr, pte_t *ptep,
			       unsigned int max_nr);

/* mm/rmap.c */
bool migrate_flush_ptes(struct vm_area_struct *vma, unsigned long addr,
			unsigned int nr, bool dirty, enum ttu_flags flags,
			bool often);
void folio_remove_rmap_ptes_migrating(struct folio *folio, struct page *page,
				      int nr_pages, struct vm_area_struct *vma);
#endif /* CONFIG_MMU */

#endif /* _MM_MIGRATE_RUN_PTES_H */
