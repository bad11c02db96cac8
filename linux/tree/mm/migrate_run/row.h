/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A row: folios of a run whose entries are near each other in one page table.
 * The inline functions take no lock.
 */
#ifndef _MM_MIGRATE_RUN_ROW_H
#define _MM_MIGRATE_RUN_ROW_H

#include <linux/leafops.h>
#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/rmap.h>
#include <linux/userfaultfd_k.h>

#include "pte.h"
#include "run.h"

/*
 * A row has entries of one page table, in any order.  Compaction takes the
 * highest pages first, and reclaim takes pages in the order of their use.  A
 * row spans at most this many entries, because notifications and cache flushes
 * cover the span.
 */
#define MIGRATE_ROW_SPAN ((long)MIGRATE_RUN_MAX)

struct migrate_row {
	struct folio **folios;
	unsigned int nr;
	unsigned long addr;		/* of the first folio */
	unsigned long start, end;	/* of all folios */
	pte_t *ptep;			/* of the first folio */
	s8 at[MIGRATE_RUN_MAX];		/* pages from the first folio */
};

static inline unsigned long migrate_row_addr(const struct migrate_row *row,
					     unsigned int nth)
{
	return row->addr + row->at[nth] * (long)PAGE_SIZE;
}

static inline pte_t *migrate_row_pte(const struct migrate_row *row,
				     unsigned int nth)
{
	return row->ptep + row->at[nth];
}

/* Find the folios whose entries form a row with the first one's, at @addr. */
static inline void migrate_row_init(struct migrate_row *row,
				    struct folio **folios, unsigned int max_nr,
				    struct vm_area_struct *vma,
				    unsigned long addr)
{
	long min_at = max(addr & PMD_MASK, vma->vm_start) - addr;
	long max_at = pmd_addr_end(addr, vma->vm_end) - PAGE_SIZE - addr;
	long start = 0, end = 0;

	min_at /= (long)PAGE_SIZE;
	max_at /= (long)PAGE_SIZE;
	BUILD_BUG_ON(MIGRATE_ROW_SPAN > S8_MAX);
	row->folios = folios;
	row->addr = addr;
	row->at[0] = 0;
	for (row->nr = 1; row->nr < max_nr; row->nr++) {
		long at = folios[row->nr]->index - folios[0]->index;

		/*
		 * Compare pages, not bytes: a folio of another VMA may be so
		 * far away that bytes would overflow.
		 */
		if (at < min_at || at > max_at)
			break;
		if (max(end, at) - min(start, at) >= MIGRATE_ROW_SPAN)
			break;
		start = min(start, at);
		end = max(end, at);
		row->at[row->nr] = at;
	}
	row->start = addr + start * PAGE_SIZE;
	row->end = addr + (end + 1) * PAGE_SIZE;
}

/*
 * Returns how many entries from the nth on one flush covers.  @addr gets the
 * lowest address.  A row that was cut short keeps its span, which may start at
 * an entry that was cut off.
 */
static inline unsigned int migrate_row_piece(const struct migrate_row *row,
					     unsigned int nth,
					     unsigned long *addr)
{
	unsigned int next;

	/* The row fills its span, in any order, so one flush covers it. */
	if (!nth && row->end - row->start == row->nr * PAGE_SIZE) {
		*addr = row->start;
		return row->nr;
	}
	*addr = migrate_row_addr(row, nth);
	for (next = nth + 1; next < row->nr; next++)
		if (row->at[next] != row->at[nth] + (int)(next - nth))
			break;
	return next - nth;
}

/*
 * Does the VMA allow runs of exclusive pages?  The answer stays true for entries
 * whose page table lock the caller holds.
 */
static inline bool migrate_run_vma_fits(struct vm_area_struct *vma)
{
	const vm_flags_t not = VM_LOCKED | VM_HUGETLB | VM_PFNMAP | VM_SHARED;

	/* Without VM_MAYWRITE, fork() leaves both entries exclusive. */
	return (vma->vm_flags & (not | VM_MAYWRITE)) == VM_MAYWRITE &&
		!userfaultfd_armed(vma) && !vma_is_temporary_stack(vma);
}

/* Returns true if an entry is a migration entry for the page @pfn. */
static inline bool migrate_row_is_source(pte_t old, unsigned long pfn)
{
	softleaf_t entry;

	if (pte_none(old) || pte_present(old))
		return !migrate_rule(RUN_ENTRY, true);
	entry = softleaf_from_pte(old);
	if (!softleaf_is_migration(entry))
		return !migrate_rule(RUN_ENTRY, true);
	return !migrate_rule(RUN_ENTRY,
			     softleaf_to_pfn(entry) != pfn);
}

/* Returns true if @old may be mapped as the only entry for the page @pfn. */
static inline bool migrate_run_may_map(pte_t old, unsigned long pfn)
{
	if (!migrate_row_is_source(old, pfn))
		return false;
	/* fork() has shared the page. */
	return !migrate_rule(RUN_SHARED,
			     softleaf_is_migration_read(softleaf_from_pte(old)));
}

/* The first entry that a row maps.  Most of the others differ in the page only. */
struct migrate_first {
	unsigned long src_pfn, dst_pfn;
	softleaf_t entry;		/* for the source */
	pte_t old;			/* the same in the page table */
	pte_t mapped;			/* for the destination */
	bool dirty;			/* the destination */
};

/* Like migrate_pte_mapped(), for the nth entry of a row. */
static inline pte_t
migrate_row_mapped(struct migrate_first *first, unsigned int nth,
		   struct vm_area_struct *vma, struct folio *dst,
		   struct folio *src, pte_t old)
{
	softleaf_t entry = softleaf_from_pte(old);
	const bool dirty = folio_test_dirty(dst);

	if (nth && dirty == first->dirty &&
	    entry.val - folio_pfn(src) == first->entry.val - first->src_pfn &&
	    pte_swp_soft_dirty(old) == pte_swp_soft_dirty(first->old) &&
	    pte_swp_uffd(old) == pte_swp_uffd(first->old))
		return pte_advance_pfn(first->mapped,
				       folio_pfn(dst) - first->dst_pfn);
	first->src_pfn = folio_pfn(src);
	first->dst_pfn = folio_pfn(dst);
	first->entry = entry;
	first->old = old;
	first->mapped = migrate_pte_mapped(vma, dst, &dst->page, old, entry);
	first->dirty = dirty;
	return first->mapped;
}

/* row.c */
void migrate_row_replace(struct migrate_run *run, const struct migrate_row *row,
			 struct vm_area_struct *vma, const pte_t *old,
			 bool exclusive);

/* large.c */
int migrate_large_unmap_row(struct migrate_run *run, unsigned int nth,
			    struct vm_area_struct *vma);
int migrate_large_map_row(struct migrate_run *run, unsigned int nth,
			  struct vm_area_struct *vma);

#endif /* _MM_MIGRATE_RUN_ROW_H */
