/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Conversion of a page table entry to a migration entry and back.  Both have
 * the same accessed, dirty, soft-dirty, writable and userfaultfd bits.
 */
#ifndef _MM_MIGRATE_RUN_PTE_H
#define _MM_MIGRATE_RUN_PTE_H

#include <linux/leafops.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/userfaultfd_k.h>

/* Returns the migration entry for a page that @pte maps. */
static inline softleaf_t migrate_pte_entry(unsigned long pfn, pte_t pte,
					   bool exclusive)
{
	softleaf_t entry;

	if (pte_write(pte))
		entry = make_writable_migration_entry(pfn);
	else if (exclusive)
		entry = make_readable_exclusive_migration_entry(pfn);
	else
		entry = make_readable_migration_entry(pfn);
	if (pte_young(pte))
		entry = make_migration_entry_young(entry);
	if (pte_dirty(pte))
		entry = make_migration_entry_dirty(entry);
	return entry;
}

/* Returns @entry for the page table, with the bits of @old that stay. */
static inline pte_t migrate_pte_of_entry(softleaf_t entry, pte_t old)
{
	pte_t pte = softleaf_to_pte(entry);

	if (pte_soft_dirty(old))
		pte = pte_swp_mksoft_dirty(pte);
	if (pte_uffd(old))
		pte = pte_swp_mkuffd(pte);
	return pte;
}

/*
 * Returns the entry for the next page, if @pte has a migration entry.  The page
 * is in the lowest bits of a swap entry, and architectures shift these bits or
 * negate them.  So the entries of neighbours have the same distance everywhere.
 */
static inline pte_t migrate_pte_next(pte_t pte, unsigned long step)
{
	return __pte(pte_val(pte) + step);
}

/* Returns that distance. */
static inline unsigned long migrate_pte_step(softleaf_t entry)
{
	softleaf_t next = { entry.val + 1 };

	return pte_val(softleaf_to_pte(next)) - pte_val(softleaf_to_pte(entry));
}

/* Returns the entry that maps @page in place of @old_pte, which has @entry. */
static inline pte_t migrate_pte_mapped(struct vm_area_struct *vma,
				       struct folio *folio, struct page *page,
				       pte_t old_pte, softleaf_t entry)
{
	pte_t pte = mk_pte(page, READ_ONCE(vma->vm_page_prot));

	if (!softleaf_is_migration_young(entry))
		pte = pte_mkold(pte);
	if (folio_test_dirty(folio) && softleaf_is_migration_dirty(entry))
		pte = pte_mkdirty(pte);
	if (pte_swp_soft_dirty(old_pte))
		pte = pte_mksoft_dirty(pte);
	else
		pte = pte_clear_soft_dirty(pte);
	if (softleaf_is_migration_write(entry))
		pte = pte_mkwrite(pte, vma);
	else if (pte_swp_uffd(old_pte))
		pte = pte_mkuffd(pte);
	/* A userfaultfd tracks each access to the page. */
	if (pte_swp_uffd(old_pte) && userfaultfd_rwp(vma))
		pte = pte_modify(pte, PAGE_NONE);
	return pte;
}

#endif /* _MM_MIGRATE_RUN_PTE_H */
