// SPDX-License-Identifier: GPL-2.0-only
/*
 * Look up and isolate pages for move_pages(2) in runs.
 *
 * For each address, do_pages_move() takes the mmap_lock, looks up the VMA,
 * walks the page table and takes the lock of an LRU list.  After one page, the
 * next pages are mostly like it.  This file handles many pages at a time, up to
 * the first whose folio has another size, or is for another node.
 * do_pages_move() handles that page, so results and their order stay the same.
 */

#include <linux/compat.h>
#include <linux/hugetlb.h>
#include <linux/leafops.h>
#include <linux/mempolicy.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/rmap.h>
#include <linux/sched.h>
#include <linux/uaccess.h>

#include "../internal.h"
#include "run.h"

/* Without NUMA, move_pages(2) does nothing. */
#ifdef CONFIG_NUMA

/*
 * A position in the page tables of a process.  The caller holds the mmap_lock.
 */
struct migrate_lookup {
	struct mm_struct *mm;
	int node;			/* the target */
	unsigned int order;		/* of the folios */
	unsigned long flags;		/* PG_lru and PG_head of the folios */
	bool all;			/* take pages of several processes */
	bool drained;			/* no LRU cache has a page */
	struct vm_area_struct *vma;	/* of the last address */
	unsigned long start;		/* @table has PMD_SIZE from here */
	pte_t *table;			/* NULL: none is locked */
	spinlock_t *ptl;
};

static void migrate_lookup_unlock(struct migrate_lookup *look)
{
	if (!look->table)
		return;
	/* For sparse: migrate_lookup_find_table() took the lock. */
	__acquire(look->ptl);
	pte_unmap_unlock(look->table, look->ptl);
	look->table = NULL;
}

static bool migrate_lookup_find_vma(struct migrate_lookup *look,
				    unsigned long addr)
{
	if (look->vma && addr >= look->vma->vm_start && addr < look->vma->vm_end)
		return true;
	migrate_lookup_unlock(look);
	look->vma = vma_lookup(look->mm, addr);
	return look->vma && vma_migratable(look->vma) &&
		!is_vm_hugetlb_page(look->vma);
}

static bool migrate_lookup_find_table(struct migrate_lookup *look,
				      unsigned long addr)
{
	unsigned long start = addr & PMD_MASK;
	pte_t *ptep;
	pmd_t *pmd;

	if (look->table && look->start == start)
		return true;
	migrate_lookup_unlock(look);
	pmd = mm_find_pmd(look->mm, start);
	if (!pmd)
		return false;
	ptep = pte_offset_map_lock(look->mm, pmd, start, &look->ptl);
	if (!ptep)
		return false;
	/* For sparse: migrate_lookup_unlock() releases the lock. */
	__release(look->ptl);
	look->table = ptep;
	look->start = start;
	return true;
}

/* Returns true if a large folio may not move by @look. */
static bool migrate_lookup_excludes(const struct migrate_lookup *look,
				    struct folio *folio)
{
	return folio_order(folio) != look->order ||
		(!look->all && folio_maybe_mapped_shared(folio));
}

/*
 * Returns the folio at an address if it may move.  The folio stays mapped until
 * the caller unlocks @look.  Returns NULL if do_pages_move() has to handle the
 * address.
 */
static struct folio *migrate_lookup(struct migrate_lookup *look,
				    unsigned long addr)
{
	unsigned long flags;
	struct folio *folio;
	struct page *page;
	pte_t pte;
	int refs;

	if (!migrate_lookup_find_vma(look, addr) ||
	    !migrate_lookup_find_table(look, addr))
		return NULL;
	pte = ptep_get(look->table + pte_index(addr));
	if (!pte_present(pte))
		return NULL;
	/* As in vm_normal_page(): such a page has a folio in all kinds of VMA. */
	if (IS_ENABLED(CONFIG_ARCH_HAS_PTE_SPECIAL) && !pte_special(pte))
		page = pte_page(pte);
	else
		page = vm_normal_page(look->vma, addr, pte);
	if (!page)
		return NULL;
	folio = page_folio(page);
	/* Neither the zero page nor memory of a device is on an LRU list. */
	flags = READ_ONCE(*const_folio_flags(folio, 0));
	if ((flags & (BIT(PG_lru) | BIT(PG_head))) != look->flags ||
	    folio_nid(folio) == look->node)
		return NULL;
	if (unlikely(look->order)) {
		if (migrate_lookup_excludes(look, folio))
			return NULL;
	/* Like folio_maybe_mapped_shared(): the number of mappings less one. */
	} else if (!look->all && atomic_read(&folio->_mapcount) > 0) {
		return NULL;
	}
	/* A cache may have the page: see migrate_may_be_cached(). */
	refs = folio_ref_count(folio);
	if (refs > 1 && !look->drained && refs > folio_mapcount(folio) &&
	    refs > folio_expected_ref_count(folio))
		return NULL;
	return folio;
}

/*
 * Look up addresses, up to @nr or the first that has no folio to move.  Returns
 * the number of folios, each with a reference.
 */
static unsigned int migrate_lookup_all(struct migrate_lookup *look,
				       const void **pages, unsigned int nr,
				       struct folio **folios)
{
	unsigned int i;

	look->vma = NULL;
	look->table = NULL;
	mmap_read_lock(look->mm);
	for (i = 0; i < nr; i++) {
		unsigned long addr = (unsigned long)
			untagged_addr_remote(look->mm, pages[i]);

		folios[i] = migrate_lookup(look, addr);
		if (!folios[i])
			break;
		folio_get(folios[i]);
	}
	migrate_lookup_unlock(look);
	mmap_read_unlock(look->mm);
	return i;
}

/* Read up to @nr pairs.  Returns how many of them are for @node. */
static unsigned int migrate_read_user(const void __user *pages,
				      const int __user *nodes, unsigned int nr,
				      int node, const void **addrs)
{
	int wanted[MIGRATE_RUN_MAX];
	unsigned int i;

	/* do_pages_move() reports an unreadable address when its turn comes. */
	nr -= DIV_ROUND_UP(copy_from_user(addrs, pages, nr * sizeof(*addrs)),
			   sizeof(*addrs));
	nr -= DIV_ROUND_UP(copy_from_user(wanted, nodes, nr * sizeof(*wanted)),
			   sizeof(*wanted));
	for (i = 0; i < nr; i++)
		if (wanted[i] != node)
			break;
	return i;
}

/**
 * migrate_isolate_run - isolate pages that are like the previous page
 * @mm: The process that maps the pages.
 * @pages: Addresses of the pages, an array of user space.
 * @nodes: The target node of each page, an array of user space.
 * @nr_pages: The length of both arrays.
 * @node: The target node of the previous page, which this process may use.
 * @all: Isolate also pages that other processes map.
 * @drained: No LRU cache of a CPU has a page.  Else such pages are left out.
 * @pagelist: The list with the previous page.  Isolated pages are added to it.
 *
 * Return: how many from the first one on were isolated, possibly none.
 */
unsigned long migrate_isolate_run(struct mm_struct *mm,
				  const void __user *pages,
				  const int __user *nodes,
				  unsigned long nr_pages, int node, bool all,
				  bool drained, struct list_head *pagelist)
{
	struct migrate_lookup look = {
		.mm = mm,
		.node = node,
		.order = folio_order(list_last_entry(pagelist, struct folio,
						     lru)),
		.all = all,
		.drained = drained,
	};
	struct folio *folios[MIGRATE_RUN_MAX];
	const void *addrs[MIGRATE_RUN_MAX];
	unsigned int i, nr, nr_found;
	unsigned long done = 0;

	if (in_compat_syscall())
		return 0;
	look.flags = BIT(PG_lru) | (look.order ? BIT(PG_head) : 0);
	do {
		nr = min_t(unsigned long, nr_pages - done, MIGRATE_RUN_MAX);
		nr = migrate_read_user(pages + done * sizeof(*addrs),
				       nodes + done, nr, node, addrs);
		if (!nr)
			break;
		nr_found = migrate_lookup_all(&look, addrs, nr, folios);
		nr = migrate_lru_isolate(folios, nr_found, 1 << look.order);
		/*
		 * Update the counter now: too_many_isolated() makes tasks wait
		 * by it.
		 */
		if (nr)
			migrate_isolated_mod(folios, nr, 1 << look.order);
		for (i = 0; i < nr; i++)
			list_add_tail(&folios[i]->lru, pagelist);
		for (i = nr; i < nr_found; i++)
			folio_put(folios[i]);
		done += nr;
		cond_resched();
	} while (nr == MIGRATE_RUN_MAX && done < nr_pages);
	return done;
}

#endif /* CONFIG_NUMA */
