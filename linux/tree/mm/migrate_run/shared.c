// SPDX-License-Identifier: GPL-2.0-only
/*
 * Small pages with any number of mappings: migration unmaps and maps them in
 * runs.  They are anonymous pages that are not exclusive, and page cache.
 *
 * For each page, the ordinary path walks the reverse mapping twice, and looks
 * for one entry in each VMA.  The next pages of the list are mapped by the same
 * VMAs.  So walk the VMAs of all pages together, and look in each VMA for the
 * entries of all pages.
 *
 * The rules are those of mm/migrate_run/run.c, with these differences.
 * runs_shared.c of the selftests breaks them, too.
 *
 * - Unmapping.  A page may have any number of entries, so the walk ends at the
 *   last VMA.  A page that is still mapped takes the ordinary path: a VMA that
 *   does not fit has an entry.  A page that is not exclusive cannot become so:
 *   that needs a folio with one reference, and the isolation has another.  So
 *   no page is checked for pins here.  Each pin and each entry has a reference,
 *   and a folio with more references does not move.
 *
 * - Mapping.  The walk is the one of remove_migration_ptes(), and visits VMAs
 *   in the same order.  So it finds each entry that fork() or mremap() copies
 *   meanwhile: a copy is in a later VMA.  In a VMA that does not fit any more,
 *   remove_migration_ptes() maps the pages of the row.
 *
 * - The page cache.  A folio is replaced while nobody else has a reference
 *   [file_refs].  Its file system must move folios by __migrate_folio(), as for
 *   the batch copy, and must have no private data in the folio.
 */

#include <linux/bitmap.h>
#include <linux/fs.h>
#include <linux/leafops.h>
#include <linux/memcontrol.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/pagemap.h>
#include <linux/pgtable.h>
#include <linux/rmap.h>
#include <linux/sched.h>
#include <linux/userfaultfd_k.h>

#include <trace/events/migrate.h>

#include "../internal.h"
#include "../migrate_offload/internal.h"
#include "pte.h"
#include "row.h"
#include "run.h"

/* The walk of a run's VMAs, under the lock that keeps them. */
struct migrate_walk {
	struct migrate_run *run;
	struct folio **folios;		/* with the index of each page */
	struct address_space *mapping;	/* NULL: the pages are anonymous */
	unsigned long *left;		/* mapping: folios that are left over */
};

/* As migrate_run_vma_fits(), which also rules out what breaks exclusiveness. */
static bool migrate_shared_vma_fits(struct vm_area_struct *vma)
{
	const vm_flags_t not = VM_LOCKED | VM_HUGETLB | VM_PFNMAP | VM_MIXEDMAP;

	return !(vma->vm_flags & not) && !userfaultfd_armed(vma) &&
		!vma_is_temporary_stack(vma);
}

static bool migrate_shared_fits(struct folio *folio, pte_t pte)
{
	unsigned long flags = READ_ONCE(*const_folio_flags(folio, 0));

	if (!pte_present(pte) || pte_unused(pte))
		return false;
	if (migrate_rule(RUN_PAGE, pte_pfn(pte) != folio_pfn(folio)))
		return false;
#ifdef CONFIG_MEMORY_FAILURE
	if (migrate_rule(RUN_POISON, flags & BIT(PG_hwpoison)))
		return false;
#endif
	/* For page cache the bit is PG_mappedtodisk. */
	return !folio_test_anon(folio) || !(flags & BIT(PG_anon_exclusive));
}

/* Clear the entries of the folios that this VMA maps, and keep only these. */
static void migrate_shared_clear(struct migrate_row *row, struct mm_struct *mm,
				 pte_t *old)
{
	unsigned int i, nr = 0;

	for (i = 0; i < row->nr; i++) {
		pte_t *ptep = migrate_row_pte(row, i);

		if (!migrate_shared_fits(row->folios[i], ptep_get(ptep)))
			continue;
		old[nr] = ptep_get_and_clear(mm, migrate_row_addr(row, i), ptep);
		row->folios[nr] = row->folios[i];
		row->at[nr++] = row->at[i];
	}
	row->nr = nr;
}

/* Returns how many folios have lost their last mapping.  They come first. */
static unsigned int migrate_shared_remove_rmap(struct migrate_row *row)
{
	unsigned int i, nr_last = 0;

	for (i = 0; i < row->nr; i++) {
		struct folio *folio = row->folios[i];

		VM_WARN_ON_FOLIO(atomic_read(&folio->_mapcount) < 0, folio);
		if (atomic_add_negative(-1, &folio->_mapcount))
			row->folios[nr_last++] = folio;
		/* The isolation has another reference. */
		folio_ref_dec(folio);
	}
	return nr_last;
}

static void migrate_shared_unmap_row(struct migrate_run *run,
				     struct migrate_row *row,
				     struct vm_area_struct *vma)
{
	/* CONFIG_INIT_STACK_ALL_ZERO would clear it for each row. */
	pte_t old[MIGRATE_RUN_MAX] __uninitialized;
	struct mm_struct *mm = vma->vm_mm;
	struct mmu_notifier_range range;
	unsigned int nr_last = 0;
	spinlock_t *ptl;	/* of the page table */
	pmd_t *pmd;

	/* The row drops folios that this VMA does not map. */
	memcpy(run->picked, row->folios, row->nr * sizeof(*run->picked));
	row->folios = run->picked;
	mmu_notifier_range_init(&range, MMU_NOTIFY_CLEAR, 0, mm, row->start,
				row->end);
	if (migrate_rule(RUN_NOTIFY, true))
		mmu_notifier_invalidate_range_start(&range);
	flush_cache_range(vma, row->start, row->end);
	pmd = mm_find_pmd(mm, row->addr);
	row->ptep = pmd ? pte_offset_map_lock(mm, pmd, row->addr, &ptl) : NULL;
	if (row->ptep) {
		if (migrate_shared_vma_fits(vma))
			migrate_shared_clear(row, mm, old);
		else
			row->nr = 0;
		if (row->nr) {
			migrate_row_replace(run, row, vma, old, false);
			nr_last = migrate_shared_remove_rmap(row);
		}
		pte_unmap_unlock(row->ptep, ptl);
	}
	if (migrate_rule(RUN_NOTIFY, migrate_rule(RUN_NOTIFY_END, true)))
		mmu_notifier_invalidate_range_end(&range);
	migrate_mapped_mod(run->picked, nr_last, -1);
}

/* Count a new mapping.  Returns true if it is the folio's first one. */
static bool migrate_shared_add_rmap(struct folio *dst, pte_t old)
{
	folio_get(dst);
	/* A run that is mapped may have exclusive pages, too. */
	if (folio_test_anon(dst) &&
	    !softleaf_is_migration_read(softleaf_from_pte(old)))
		SetPageAnonExclusive(&dst->page);
	return atomic_inc_and_test(&dst->_mapcount);
}

/* Map what the VMA has of a row.  Returns false if it has to be left over. */
static bool migrate_shared_map_row(struct migrate_run *run, unsigned int nth,
				   struct migrate_row *row,
				   struct vm_area_struct *vma)
{
	struct folio **src = run->src + nth, **dst = run->dst + nth;
	unsigned int i, nr = 0, nr_first = 0;
	struct mm_struct *mm = vma->vm_mm;
	struct migrate_first first;
	bool fits;
	spinlock_t *ptl;	/* of the page table */
	pmd_t *pmd;

	pmd = mm_find_pmd(mm, row->addr);
	if (!pmd)
		return true;
	row->ptep = pte_offset_map_lock(mm, pmd, row->addr, &ptl);
	if (!row->ptep)
		return false;
	/*
	 * mlock() has set VM_LOCKED, or finds the pages that are mapped here.
	 */
	fits = !migrate_rule(RUN_LOCKED, !migrate_shared_vma_fits(vma));
	for (i = 0; i < row->nr && fits; i++) {
		pte_t *ptep = migrate_row_pte(row, i), pte = ptep_get(ptep);
		unsigned long addr = migrate_row_addr(row, i);

		if (!migrate_row_is_source(pte, folio_pfn(src[i])))
			continue;
		if (migrate_shared_add_rmap(dst[i], pte))
			run->picked[nr_first++] = dst[i];
		pte = migrate_row_mapped(&first, nr++, vma, dst[i], src[i], pte);
		set_pte_at(mm, addr, ptep, pte);
		if (trace_remove_migration_pte_enabled())
			trace_remove_migration_pte(addr, pte_val(pte), 0);
		/* No TLB has this entry, because it was not present before. */
		update_mmu_cache(vma, addr, ptep);
	}
	pte_unmap_unlock(row->ptep, ptl);
	migrate_mapped_mod(run->picked, nr_first, 1);
	return fits;
}

/* Returns where the VMA maps the nth folio, or -EFAULT if it does not. */
static unsigned long migrate_shared_address(const struct migrate_walk *walk,
					    struct vm_area_struct *vma,
					    unsigned int nth)
{
	pgoff_t index = walk->folios[nth]->index;

	return walk->mapping ? vma_filebacked_address(vma, index, 1) :
		vma_anon_address(vma, index, 1);
}

/* Unmap or map the folios of the run that are in this VMA. */
static void migrate_shared_vma(struct migrate_walk *walk,
			       struct vm_area_struct *vma)
{
	struct migrate_run *run = walk->run;
	struct migrate_row row __uninitialized;
	unsigned long addr;
	unsigned int i;

	cond_resched();
	/* Another check follows, with the lock of the page table. */
	if (!walk->left && !migrate_shared_vma_fits(vma))
		return;
	for (i = 0; i < run->nr; i += row.nr) {
		row.nr = 1;
		addr = migrate_shared_address(walk, vma, i);
		if (addr == -EFAULT)
			continue;
		migrate_row_init(&row, walk->folios + i, run->nr - i, vma, addr);
		if (!walk->left) {
			unsigned int nr = row.nr;

			migrate_shared_unmap_row(run, &row, vma);
			row.nr = nr;
		} else if (!migrate_shared_map_row(run, i, &row, vma)) {
			bitmap_set(walk->left, i, row.nr);
		}
	}
}

/* The caller holds the lock of the anon_vma or of the mapping. */
static void migrate_shared_walk(struct migrate_run *run, struct folio **folios,
				struct address_space *mapping,
				unsigned long *left)
{
	struct migrate_walk walk = {
		.run = run,
		.folios = folios,
		.mapping = mapping,
		.left = left,
	};
	pgoff_t first = folios[0]->index, last = first;
	struct anon_vma_chain *avc;
	struct vm_area_struct *vma;
	unsigned int i;

	for (i = 1; i < run->nr; i++) {
		first = min(first, folios[i]->index);
		last = max(last, folios[i]->index);
	}
	if (mapping) {
		mapping_rmap_tree_foreach(vma, mapping, first, last)
			migrate_shared_vma(&walk, vma);
	} else {
		anon_rmap_tree_foreach(avc, run->anon_vma, first, last)
			migrate_shared_vma(&walk, avc->vma);
	}
}

/*
 * Count the folios that are unmapped everywhere, from the first one on.  Each
 * gets a reference to the anon_vma.  Map the others again.
 */
static unsigned int migrate_shared_settle(struct migrate_run *run)
{
	struct anon_vma *anon_vma = run->anon_vma;
	unsigned int i, nr;

	for (nr = 0; nr < run->nr; nr++)
		if (folio_mapped(run->src[nr]))
			break;
	if (anon_vma) {
		atomic_add(nr + 1, &anon_vma->refcount);
		anon_vma_unlock_read(anon_vma);
	}
	for (i = nr; i < run->nr; i++)
		remove_migration_ptes(run->src[i], run->src[i], 0);
	if (anon_vma)
		put_anon_vma(anon_vma);
	return nr;
}

/**
 * migrate_shared_unmap - unmap the folios of a run from all processes
 * @run: The run, whose @kind is not MIGRATE_RUN_EXCLUSIVE.  Its folios are
 *	locked.
 *
 * Return: how many folios from the first one on are unmapped.  The others are
 * mapped as before.
 */
unsigned int migrate_shared_unmap(struct migrate_run *run)
{
	struct address_space *mapping;
	unsigned int i;

	run->was = MIGRATE_WAS_SHARED;
	for (i = 0; i < run->nr; i++)
		if (folio_mapped(run->src[i]))
			run->was |= MIGRATE_WAS_MAPPED;
	if (!(run->was & MIGRATE_WAS_MAPPED))
		return run->kind == MIGRATE_RUN_FILE ? run->nr : 0;

	if (run->kind == MIGRATE_RUN_FILE) {
		/* A locked folio keeps its mapping. */
		mapping = run->src[0]->mapping;
		i_mmap_lock_read(mapping);
		migrate_shared_walk(run, run->src, mapping, NULL);
		i_mmap_unlock_read(mapping);
	} else {
		/* A mapped folio keeps its anon_vma while the folio is locked. */
		run->anon_vma = folio_lock_anon_vma_read(run->src[0], NULL);
		if (!run->anon_vma)
			return 0;
		migrate_shared_walk(run, run->src, NULL, NULL);
	}
	return migrate_shared_settle(run);
}

/**
 * migrate_shared_map - map the folios of a run for all processes
 * @run: The run, whose folios are on LRU lists.
 */
void migrate_shared_map(struct migrate_run *run)
{
	DECLARE_BITMAP(left, MIGRATE_RUN_MAX) = {};
	struct address_space *mapping;
	unsigned int i;

	if (!(run->was & MIGRATE_WAS_MAPPED))
		return;
	if (run->anon_vma) {
		anon_vma_lock_read(run->anon_vma);
		migrate_shared_walk(run, run->dst, NULL, left);
		anon_vma_unlock_read(run->anon_vma);
	} else {
		mapping = run->dst[0]->mapping;
		i_mmap_lock_read(mapping);
		migrate_shared_walk(run, run->dst, mapping, left);
		i_mmap_unlock_read(mapping);
	}
	for_each_set_bit(i, left, run->nr)
		if (migrate_rule(RUN_REST, true))
			remove_migration_ptes(run->src[i], run->dst[i], 0);
}
