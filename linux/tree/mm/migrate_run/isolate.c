// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages that move_pages(2) is asked for, looked up and isolated in runs.
 *
 * do_pages_move() does that for one address after the other: a lock of the mm, a
 * lookup of the VMA, a walk through the page table and a lock of an LRU list for
 * each.  Once it has isolated one, the next ones are mostly like it.  Here they
 * are read, looked up and isolated many at a time, up to the first that is not a
 * small page which is to move to the same node.  That one is for do_pages_move()
 * to deal with, so that what is reported, and in which order, stays the same.
 */

#include <linux/compat.h>
#include <linux/hugetlb.h>
#include <linux/mempolicy.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/rmap.h>
#include <linux/sched.h>
#include <linux/uaccess.h>

#include "../internal.h"
#include "run.h"

/* move_pages(2) does nothing without it. */
#ifdef CONFIG_NUMA

/* A look at the page tables of a process, with its mmap_lock held. */
struct migrate_lookup {
	struct mm_struct *mm;
	struct vm_area_struct *vma;	/* that of the last address */
	unsigned long start;		/* what @table is for: PMD_SIZE from here */
	pte_t *table;			/* NULL: none is locked */
	spinlock_t *ptl;
};

static void migrate_lookup_unlock(struct migrate_lookup *look)
{
	if (!look->table)
		return;
	/* For sparse: it was another function that took it. */
	__acquire(look->ptl);
	pte_unmap_unlock(look->table, look->ptl);
	look->table = NULL;
}

static bool migrate_lookup_find_vma(struct migrate_lookup *look,
				    unsigned long addr)
{
	if (look->vma && addr >= look->vma->vm_start && addr < look->vma->vm_end)
		return true;
	/* The entry that is found next has to be in the new one. */
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
	/* For sparse: it is held until migrate_lookup_unlock(). */
	__release(look->ptl);
	look->table = ptep;
	look->start = start;
	return true;
}

/*
 * The folio at an address, if it is small and may be one to move; it is mapped
 * until @look is unlocked.  NULL if do_pages_move() has to look at it.
 */
static struct folio *migrate_lookup(struct migrate_lookup *look,
				    unsigned long addr, int node, bool all)
{
	struct folio *folio;
	struct page *page;
	pte_t pte;

	if (!migrate_lookup_find_vma(look, addr) ||
	    !migrate_lookup_find_table(look, addr))
		return NULL;
	pte = ptep_get(look->table + pte_index(addr));
	page = pte_present(pte) ? vm_normal_page(look->vma, addr, pte) : NULL;
	if (!page)
		return NULL;
	folio = page_folio(page);
	if (folio_test_large(folio) || folio_is_zone_device(folio) ||
	    is_zero_folio(folio) || folio_nid(folio) == node)
		return NULL;
	if (folio_likely_mapped_shared(folio) && !all)
		return NULL;
	return folio;
}

/* Look up to @nr addresses up.  Returns how many of them have a folio to move. */
static unsigned int migrate_lookup_all(struct mm_struct *mm, const void **pages,
				       unsigned int nr, int node, bool all,
				       struct folio **folios)
{
	struct migrate_lookup look = { .mm = mm };
	unsigned int i;

	mmap_read_lock(mm);
	for (i = 0; i < nr; i++) {
		unsigned long addr =
			(unsigned long)untagged_addr_remote(mm, pages[i]);

		folios[i] = migrate_lookup(&look, addr, node, all);
		if (!folios[i])
			break;
		folio_get(folios[i]);
	}
	migrate_lookup_unlock(&look);
	mmap_read_unlock(mm);
	return i;
}

/* Read up to @nr pairs.  Returns how many of them are for @node. */
static unsigned int migrate_read_user(const void __user *pages,
				      const int __user *nodes, unsigned int nr,
				      int node, const void **addrs)
{
	int wanted[MIGRATE_RUN_MAX];
	unsigned int i;

	/* What cannot be read is an error, but not before its turn comes. */
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
 * migrate_isolate_run - isolate pages that are like the one before
 * @mm: The process they are of.
 * @pages: Their addresses, an array as it was given to move_pages(2).
 * @nodes: Where each is to go.
 * @nr_pages: How many there are.
 * @node: Where the one before them is to go: this process may have it there.
 * @all: Pages that others map, too.
 * @pagelist: What is isolated is added here, behind the one before them.
 *
 * Return: how many from the first one on were isolated, possibly none.
 */
unsigned long migrate_isolate_run(struct mm_struct *mm,
				  const void __user *pages,
				  const int __user *nodes,
				  unsigned long nr_pages, int node, bool all,
				  struct list_head *pagelist)
{
	struct folio *folios[MIGRATE_RUN_MAX];
	const void *addrs[MIGRATE_RUN_MAX];
	struct migrate_isolated isolated = {};
	unsigned int i, nr, nr_found;
	unsigned long done = 0;

	if (in_compat_syscall())
		return 0;
	do {
		nr = min_t(unsigned long, nr_pages - done, MIGRATE_RUN_MAX);
		nr = migrate_read_user(pages + done * sizeof(*addrs),
				       nodes + done, nr, node, addrs);
		if (!nr)
			break;
		nr_found = migrate_lookup_all(mm, addrs, nr, node, all, folios);
		nr = migrate_lru_isolate(folios, nr_found);
		for (i = 0; i < nr; i++) {
			list_add_tail(&folios[i]->lru, pagelist);
			migrate_isolated_mod(&isolated, folios[i], 1);
		}
		/* So that whoever has to wait while too many are does so. */
		migrate_isolated_mod(&isolated, NULL, 0);
		for (i = nr; i < nr_found; i++)
			folio_put(folios[i]);
		done += nr;
		cond_resched();
	} while (nr == MIGRATE_RUN_MAX && done < nr_pages);
	return done;
}

#endif /* CONFIG_NUMA */
