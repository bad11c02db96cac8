// SPDX-License-Identifier: GPL-2.0-only
/*
 * Large folios that are mapped by single page table entries, unmapped and mapped
 * again in one step when they migrate.
 *
 * One entry after the other costs each time what is due once: an update of the
 * reverse mapping and of the statistics, a flush, a reference.  And after the
 * first of them the folio looks as if a part of it was unmapped, for which it
 * would be queued to be split.  So take all entries of a folio that follow each
 * other in a page table, and that a VMA has, at once, and do not call a folio
 * partially mapped because it is being migrated: whether it is shows when it is
 * mapped again, see __migrate_queue_if_partial().
 *
 * Locks are those of the ordinary way: the folio is locked, and the lock of the
 * page table is held from the first entry that is cleared to the last that is
 * written.  GUP-fast takes neither.  It may pin a page that it found through an
 * entry; it looks at the entry again, and gives up when that has changed.  So
 * for anonymous pages that are exclusive, entries are cleared first, then comes
 * a barrier, and then the folio must not be pinned, or they are put back as they
 * were: the order that folio_try_share_anon_rmap_pte() asks for, for all of them.
 */

#include <linux/kstrtox.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/pgtable.h>
#include <linux/rmap.h>
#include <linux/swap.h>
#include <linux/swapops.h>
#include <linux/sysfs.h>

#include <trace/events/migrate.h>

#include "../internal.h"
#include "../migrate_offload/internal.h"
#include "pte.h"
#include "ptes.h"

/* On unless an administrator says otherwise. */
DEFINE_STATIC_KEY_TRUE(migrate_batch_ptes_key);

/* So many entries are kept until it is known that they may go. */
#define MIGRATE_PTES_CHUNK 16U

/* Entries in a row, in one page table, that map pages of one folio in a row. */
struct migrate_ptes {
	struct vm_area_struct *vma;
	struct folio *folio;
	struct page *page;		/* the first */
	unsigned long pfn;
	unsigned long addr;
	pte_t *pte;
	unsigned int max_nr;		/* that there can be */
	unsigned int nr;		/* that were replaced */
	pte_t expected;			/* behind these, but for its flags */
	struct migrate_cleared cleared;	/* of those that were replaced */
};

/* Entries that are cleared, and have not been replaced yet. */
struct migrate_ptes_chunk {
	unsigned int nr;
	bool alike;			/* but for the page */
	unsigned long exclusive;	/* a bit for each */
	pte_t old[MIGRATE_PTES_CHUNK];
};

/* How many entries are there, from that of the walk to the end of the folio? */
static inline unsigned int migrate_ptes_max(struct page_vma_mapped_walk *pvmw)
{
	unsigned long end = pmd_addr_end(pvmw->address, vma_address_end(pvmw));

	return (end - pvmw->address) >> PAGE_SHIFT;
}

/* The walk goes on behind the last of them. */
static void migrate_ptes_skip(struct page_vma_mapped_walk *pvmw, unsigned int nr)
{
	pvmw->address += (unsigned long)(nr - 1) * PAGE_SIZE;
	pvmw->pte += nr - 1;
}

static bool migrate_ptes_begin(struct migrate_ptes *run,
			       struct page_vma_mapped_walk *pvmw,
			       struct folio *folio)
{
	pte_t pte = ptep_get(pvmw->pte);
	unsigned long first;

	if (!pte_present(pte))
		return false;
	run->vma = pvmw->vma;
	run->folio = folio;
	run->pfn = pte_pfn(pte);
	first = run->pfn - folio_pfn(folio);
	run->page = &folio->page + first;
	run->addr = pvmw->address;
	run->pte = pvmw->pte;
	run->nr = 0;
	run->expected = pte;
	run->cleared = (struct migrate_cleared) {};
	run->max_nr = min_t(unsigned long, migrate_ptes_max(pvmw),
			    folio_nr_pages(folio) - first);
	return true;
}

/* As PageAnonExclusive(), which is about hugetlb, too. */
static bool migrate_page_exclusive(const struct page *page)
{
	return test_bit(PG_anon_exclusive, &page->flags);
}

/* May exclusive pages become pages that may be shared?  Entries are cleared. */
static bool migrate_ptes_may_share(struct folio *folio)
{
	if (IS_ENABLED(CONFIG_HAVE_GUP_FAST))
		smp_mb(); /* paired with the one in try_grab_folio() */
	return !migrate_rule(PTES_PIN, folio_maybe_dma_pinned(folio));
}

/*
 * Clear up to a chunk of entries behind those that are replaced, but none of a
 * page that is poisoned, or of no interest to its user: these do not become
 * migration entries.
 */
static void migrate_ptes_clear(struct migrate_ptes *run,
			       struct migrate_ptes_chunk *chunk)
{
	unsigned int i, max_nr = min(run->max_nr - run->nr, MIGRATE_PTES_CHUNK);
	unsigned long addr = run->addr + (unsigned long)run->nr * PAGE_SIZE;
	pte_t pte, *ptep = run->pte + run->nr, expected = run->expected;
	const bool anon = folio_test_anon(run->folio);
	struct mm_struct *mm = run->vma->vm_mm;
	struct page *page = run->page + run->nr;
	unsigned long pfn = run->pfn + run->nr;
	unsigned long exclusive = 0;
	bool alike = true;

	BUILD_BUG_ON(MIGRATE_PTES_CHUNK > BITS_PER_LONG);
	for (i = 0; i < max_nr; i++) {
		pte = ptep_get(ptep + i);
		if (!pte_same(pte, expected) &&
		    (!pte_present(pte) || pte_pfn(pte) != pfn + i))
			break;
		if (pte_unused(pte))
			break;
		if (migrate_rule(PTES_POISON, PageHWPoison(page + i)))
			break;
		if (anon && migrate_page_exclusive(page + i))
			exclusive |= BIT(i);
		pte = ptep_get_and_clear(mm, addr + i * PAGE_SIZE, ptep + i);
		VM_WARN_ON_ONCE_PAGE(pte_write(pte) && anon &&
				     !(exclusive & BIT(i)), page + i);
		/*
		 * Compare the entries of this chunk alone.  On arm64 the first entry
		 * also loses a bit when it is cleared, as that unfolds its block.
		 */
		if (i && !pte_same(pte, expected))
			alike = false;
		chunk->old[i] = pte;
		expected = pte_next_pfn(pte);
	}
	run->expected = expected;
	chunk->nr = i;
	chunk->exclusive = exclusive;
	chunk->alike = i && alike &&
		(!exclusive || exclusive == GENMASK(i - 1, 0));
}

/* They are no longer exclusive, and have no entry by which to be pinned. */
static void migrate_ptes_share(const struct migrate_ptes *run,
			       const struct migrate_ptes_chunk *chunk)
{
	struct page *page = run->page + run->nr;
	unsigned int i;

	for (i = 0; i < chunk->nr; i++)
		if (chunk->alike || chunk->exclusive & BIT(i))
			clear_bit(PG_anon_exclusive, &page[i].flags);
	if (IS_ENABLED(CONFIG_HAVE_GUP_FAST))
		smp_mb__after_atomic(); /* paired with gup_must_unshare() */
}

static void migrate_ptes_trace(const struct migrate_ptes *run)
{
	unsigned int i;

	for (i = 0; i < run->nr; i++)
		trace_set_migration_pte(run->addr + i * PAGE_SIZE,
					pte_val(ptep_get(run->pte + i)),
					folio_order(run->folio));
}

/*
 * Write @nr entries of a chunk that was cleared, from the nth on.  They differ
 * in nothing but the page.
 */
static void migrate_ptes_write(struct migrate_ptes *run,
			       const struct migrate_ptes_chunk *chunk,
			       unsigned int nth, unsigned int nr)
{
	pte_t old = chunk->old[nth], *ptep = run->pte + run->nr + nth;
	unsigned long addr = run->addr +
		(unsigned long)(run->nr + nth) * PAGE_SIZE;
	struct mm_struct *mm = run->vma->vm_mm;
	swp_entry_t entry = migrate_pte_entry(run->pfn + run->nr + nth, old,
					      chunk->exclusive & BIT(nth));
	unsigned int i;

	for (i = 0; i < nr; i++) {
		set_pte_at(mm, addr + i * PAGE_SIZE, ptep + i,
			   migrate_pte_of_entry(entry, old));
		/* The page is in the lowest bits: see swp_entry(). */
		entry.val++;
	}
	migrate_cleared_add(&run->cleared, mm, old);
}

/*
 * Replace up to a chunk of entries behind those that are replaced.  Returns
 * false if the folio is pinned; then they are as they were.
 */
static bool migrate_ptes_replace(struct migrate_ptes *run)
{
	unsigned long addr = run->addr + (unsigned long)run->nr * PAGE_SIZE;
	struct migrate_ptes_chunk chunk;
	unsigned int i;

	migrate_ptes_clear(run, &chunk);
	if (chunk.exclusive && !migrate_ptes_may_share(run->folio)) {
		for (i = 0; i < chunk.nr; i++)
			set_pte_at(run->vma->vm_mm, addr + i * PAGE_SIZE,
				   run->pte + run->nr + i, chunk.old[i]);
		return false;
	}
	if (chunk.exclusive)
		migrate_ptes_share(run, &chunk);
	if (chunk.alike)
		migrate_ptes_write(run, &chunk, 0, chunk.nr);
	for (i = 0; i < chunk.nr && !chunk.alike; i++)
		migrate_ptes_write(run, &chunk, i, 1);
	run->nr += chunk.nr;
	/* The one behind them is another's. */
	if (chunk.nr < MIGRATE_PTES_CHUNK)
		run->max_nr = run->nr;
	return true;
}

/* What is due once for all entries that were replaced. */
static void migrate_ptes_unmapped(const struct migrate_ptes *run,
				  enum ttu_flags flags)
{
	unsigned int nr = run->nr;

	if (trace_set_migration_pte_enabled())
		migrate_ptes_trace(run);
	if (migrate_rule(PTES_FLUSH, run->cleared.flush))
		migrate_flush_ptes(run->vma, run->addr, nr, run->cleared.dirty,
				   flags);
	/* No CPU can make an entry dirty any more: they are gone. */
	if (run->cleared.dirty)
		folio_mark_dirty(run->folio);
	update_hiwater_rss(run->vma->vm_mm);
	/* Who splits a folio takes it from the queue, if it comes to that. */
	if (flags & TTU_SYNC)
		folio_remove_rmap_ptes(run->folio, run->page, nr, run->vma);
	else
		folio_remove_rmap_ptes_migrating(run->folio, run->page, nr,
						 run->vma);
	if (run->vma->vm_flags & VM_LOCKED)
		mlock_drain_local();
	folio_put_refs(run->folio, nr);
}

int __migrate_unmap_ptes(struct page_vma_mapped_walk *pvmw, struct folio *folio,
			 enum ttu_flags flags)
{
	struct migrate_ptes run;
	bool pinned = false;

	if (!migrate_ptes_begin(&run, pvmw, folio))
		return 0;
	flush_cache_range(run.vma, run.addr,
			  run.addr + (unsigned long)run.max_nr * PAGE_SIZE);
	while (!pinned && run.nr < run.max_nr)
		pinned = !migrate_ptes_replace(&run);
	if (run.nr)
		migrate_ptes_unmapped(&run, flags);
	if (pinned)
		return -EBUSY;
	if (run.nr)
		migrate_ptes_skip(pvmw, run.nr);
	return run.nr;
}

/* How many entries in a row differ in nothing but the page? */
static unsigned int migrate_ptes_alike(struct page_vma_mapped_walk *pvmw,
				       pte_t first)
{
	unsigned int nr, max_nr = migrate_ptes_max(pvmw);
	swp_entry_t entry = pte_to_swp_entry(first);
	bool soft_dirty = pte_swp_soft_dirty(first);
	bool uffd_wp = pte_swp_uffd_wp(first);

	for (nr = 1; nr < max_nr; nr++) {
		pte_t expected;

		/* The page is in the lowest bits: see swp_entry(). */
		entry.val++;
		expected = swp_entry_to_pte(entry);
		if (soft_dirty)
			expected = pte_swp_mksoft_dirty(expected);
		if (uffd_wp)
			expected = pte_swp_mkuffd_wp(expected);
		if (!pte_same(ptep_get(pvmw->pte + nr), expected))
			break;
	}
	return nr;
}

unsigned int __migrate_map_ptes(struct page_vma_mapped_walk *pvmw,
				struct folio *folio, struct page *page)
{
	struct vm_area_struct *vma = pvmw->vma;
	pte_t old_pte = ptep_get(pvmw->pte), pte;
	unsigned long addr = pvmw->address;
	rmap_t rmap_flags = RMAP_NONE;
	unsigned int i, nr;

	if (!is_migration_entry(pte_to_swp_entry(old_pte)))
		return 0;
	nr = migrate_ptes_alike(pvmw, old_pte);
	pte = migrate_pte_mapped(vma, folio, page, old_pte,
				 pte_to_swp_entry(old_pte));

	folio_ref_add(folio, nr);
	if (folio_test_anon(folio)) {
		if (!is_readable_migration_entry(pte_to_swp_entry(old_pte)))
			rmap_flags |= RMAP_EXCLUSIVE;
		folio_add_anon_rmap_ptes(folio, page, nr, vma, addr, rmap_flags);
	} else {
		folio_add_file_rmap_ptes(folio, page, nr, vma);
	}
	set_ptes(vma->vm_mm, addr, pvmw->pte, pte, nr);
	if (vma->vm_flags & VM_LOCKED)
		mlock_drain_local();
	if (trace_remove_migration_pte_enabled())
		for (i = 0; i < nr; i++)
			trace_remove_migration_pte(addr + i * PAGE_SIZE,
						   pte_val(ptep_get(pvmw->pte + i)),
						   compound_order(page + i));
	/* No need to invalidate: they were not present before. */
	update_mmu_cache_range(NULL, vma, addr, pvmw->pte, nr);
	migrate_ptes_skip(pvmw, nr);
	return nr;
}

/*
 * Whoever unmapped a part while there were migration entries in its place did
 * not see a folio whose part it was.  Whoever does so from here on, does.
 */
void __migrate_queue_if_partial(struct folio *folio)
{
	if (folio_test_anon(folio) && !folio_test_hugetlb(folio) &&
	    folio_mapped(folio))
		deferred_split_folio(folio, true);
}

static ssize_t batch_ptes_show(struct kobject *kobj,
			       struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n",
			  migrate_batch_ptes_on() ? "true" : "false");
}

/* Folios that are under way are mapped again in one way or the other. */
static ssize_t batch_ptes_store(struct kobject *kobj,
				struct kobj_attribute *attr, const char *buf,
				size_t count)
{
	bool on;
	int ret = kstrtobool(buf, &on);

	if (ret)
		return ret;
	if (on)
		static_branch_enable(&migrate_batch_ptes_key);
	else
		static_branch_disable(&migrate_batch_ptes_key);
	return count;
}

struct kobj_attribute migrate_batch_ptes_attr = __ATTR_RW(batch_ptes);
