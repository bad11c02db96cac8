// SPDX-License-Identifier: GPL-2.0-only
/*
 * Find the folios to migrate in a region of an address space.
 *
 * The walk does not split huge pages: the walker splits a huge PMD only for a
 * callback on PTEs, and this walk has none.
 */

#include <linux/damon.h>
#include <linux/huge_mm.h>
#include <linux/hugetlb.h>
#include <linux/kthread.h>
#include <linux/leafops.h>
#include <linux/mempolicy.h>
#include <linux/mm.h>
#include <linux/pagewalk.h>
#include <linux/sched/mm.h>
#include <linux/sizes.h>

#include "../internal.h"
#include "filters.h"
#include "migrate.h"

/* With one node, no folio is misplaced. */
#ifdef CONFIG_NUMA

/*
 * The walk of one piece holds mmap_lock and a reference to the memory, and so
 * delays changes of the address space, and the exit of the process.
 */
#define DAMOS_VA_PIECE SZ_32M

struct damos_va_walk {
	struct damos_migration migration;
	const struct damos *scheme;
};

/*
 * Weighted interleaving takes the page offset from the VMA, and so does this.
 * Linux 7.3 gives a written page of a private file mapping an index that counts
 * from the address, which no program can see.  But VMAs that share a page of KSM
 * differ, so such a page has the turn of its index.
 */
static pgoff_t damos_va_index(struct folio *folio, struct page *page,
			      const struct damos_va_mapping *map)
{
	if (folio_test_ksm(folio))
		return READ_ONCE(folio->index);
	return linear_page_index(map->vma, map->addr) -
		folio_page_idx(folio, page);
}

static void damos_va_take(struct damos_va_walk *w, struct folio *folio,
			  struct page *page,
			  const struct damos_va_mapping *map)
{
	int dest;

	/* The driver decides on which node device memory lies. */
	if (folio_is_zone_device(folio))
		return;
	dest = damos_migration_dest(&w->migration, folio,
				    damos_va_index(folio, page, map));
	if (dest < 0)
		return;
	if (damos_va_filter_out(w->scheme, folio, map))
		return;
	damos_migration_add(&w->migration, folio, dest);
}

/* The caller holds the page table lock. */
static void damos_va_take_pmd(struct damos_va_walk *w, pmd_t *pmd,
			      struct vm_area_struct *vma, unsigned long addr)
{
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
	struct damos_va_mapping map = {
		.vma = vma,
		.addr = addr & HPAGE_PMD_MASK,
		.pmd = pmd,
	};
	pmd_t pmde = pmdp_get(pmd);
	struct folio *folio;

	/* The folio may be migrating already. */
	if (!pmd_present(pmde))
		return;
	folio = vm_normal_folio_pmd(vma, addr, pmde);
	if (!folio)
		return;
	map.young = pmd_young(pmde);
	damos_va_take(w, folio, pmd_page(pmde), &map);
#endif
}

/*
 * Returns true if the PMD maps a huge page, or has a migration entry for one.
 */
static bool damos_va_take_huge(struct mm_walk *walk, pmd_t *pmd,
			       unsigned long addr)
{
	spinlock_t *ptl;	/* page table lock */
	bool huge;

	ptl = pmd_lock(walk->mm, pmd);
	huge = pmd_is_huge(*pmd);
	if (huge)
		damos_va_take_pmd(walk->private, pmd, walk->vma, addr);
	spin_unlock(ptl);
	return huge;
}

static int damos_va_pmd_entry(pmd_t *pmd, unsigned long addr,
			      unsigned long end, struct mm_walk *walk)
{
	struct damos_va_mapping map = { .vma = walk->vma };
	pte_t *start_pte, *pte;
	struct folio *folio;
	spinlock_t *ptl;	/* page table lock */
	pte_t ptent;

	if (damos_va_take_huge(walk, pmd, addr))
		return 0;

	start_pte = pte_offset_map_lock(walk->mm, pmd, addr, &ptl);
	if (!start_pte) {
		walk->action = ACTION_AGAIN;
		return 0;
	}
	for (pte = start_pte; addr < end;
	     pte += map.nr, addr += map.nr * PAGE_SIZE) {
		map.nr = 1;
		ptent = ptep_get(pte);
		if (!pte_present(ptent))
			continue;
		folio = vm_normal_folio(walk->vma, addr, ptent);
		if (!folio)
			continue;
		if (folio_test_large(folio))
			map.nr = folio_pte_batch_flags(folio, NULL, pte, &ptent,
						       (end - addr) >> PAGE_SHIFT,
						       FPB_MERGE_YOUNG_DIRTY);
		map.addr = addr;
		map.pte = pte;
		map.young = pte_young(ptent);
		damos_va_take(walk->private, folio, pte_page(ptent), &map);
	}
	pte_unmap_unlock(start_pte, ptl);
	cond_resched();
	return 0;
}

static const struct mm_walk_ops damos_va_walk_ops = {
	.pmd_entry = damos_va_pmd_entry,
	.walk_lock = PGWALK_RDLOCK,
};

/* Walk a piece of the next VMA. Returns the end of the piece. */
static unsigned long damos_va_walk_piece(struct damos_va_walk *w,
					 struct mm_struct *mm,
					 unsigned long start, unsigned long end)
{
	struct vm_area_struct *vma;

	mmap_read_lock(mm);
	vma = find_vma(mm, start);
	if (!vma || vma->vm_start >= end)
		goto out;
	start = max(start, vma->vm_start);
	end = min(end, vma->vm_end);
	/* Also excludes DAX, whose huge PUDs the walker would split. */
	if (!vma_migratable(vma) || is_vm_hugetlb_page(vma))
		goto out;
	end = min(end, ALIGN(start + 1, DAMOS_VA_PIECE));
	walk_page_range_vma(vma, start, end, &damos_va_walk_ops, w);
out:
	mmap_read_unlock(mm);
	return end;
}

/*
 * Walk the range piece by piece.  Returns false if this kdamond has to stop, or
 * the process has exited.
 */
static bool damos_va_walk(struct damos_va_walk *w, struct mm_struct *mm,
			  unsigned long addr, unsigned long end)
{
	while (addr < end) {
		if (kthread_should_stop() || !mmget_not_zero(mm))
			return false;
		addr = damos_va_walk_piece(w, mm, addr, end);
		mmput(mm);
		damos_migration_flush_much(&w->migration);
	}
	return true;
}

unsigned long damos_migrate_vaddr(struct mm_struct *mm, struct damon_region *r,
				  struct damos *s)
{
	unsigned long start = PAGE_ALIGN_DOWN(r->ar.start);
	unsigned long end = PAGE_ALIGN(r->ar.end);
	struct damos_va_walk w = { .scheme = s };

	if (!damos_migration_begin(&w.migration, s))
		return 0;
	while (damos_va_walk(&w, mm, start, end) &&
	       damos_migration_again(&w.migration))
		;
	return damos_migration_end(&w.migration);
}

#endif /* CONFIG_NUMA */
