// SPDX-License-Identifier: GPL-2.0-only
/*
 * Large folios that are mapped by single page table entries: migration unmaps
 * and maps them in one step.
 *
 * For each entry, the ordinary path updates the reverse mapping and statistics,
 * flushes, and drops a reference.  After the first entry, the folio also looks
 * partially mapped, and the ordinary path would queue it for splitting.  So
 * take all adjacent entries that a folio has in a page table and a VMA at once.
 * Do not call a folio partially mapped because it migrates.
 * __migrate_queue_if_partial() decides that when the folio is mapped again.
 *
 * Locks are those of the ordinary path.  The folio is locked, and the lock of
 * the page table is held from the first cleared entry to the last written one.
 * GUP-fast takes neither lock.  It may pin a page through an entry.  Then it
 * checks the entry again, and gives up if the entry has changed.  So for
 * exclusive anonymous pages, clear the entries, issue a barrier, and then check
 * for pins.  If the folio is pinned, restore the entries.
 * folio_try_share_anon_rmap_pte() requires this order.
 */

#include <linux/kstrtox.h>
#include <linux/leafops.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/pgtable.h>
#include <linux/rmap.h>
#include <linux/swap.h>
#include <linux/sysfs.h>

#include <trace/events/migrate.h>

#include "../internal.h"
#include "../migrate_offload/internal.h"
#include "pte.h"
#include "ptes.h"

/* On, unless an administrator switches it off. */
DEFINE_STATIC_KEY_TRUE(migrate_batch_ptes_key);

/* Keep this many old entries until the folio is known not to be pinned. */
#define MIGRATE_PTES_CHUNK 16U

/* Adjacent entries of one page table that map adjacent pages of one folio. */
struct migrate_ptes {
	struct vm_area_struct *vma;
	struct folio *folio;
	struct page *page;		/* the first */
	unsigned long pfn;
	unsigned long addr;
	pte_t *pte;
	unsigned int max_nr;		/* by the page table, VMA and folio */
	unsigned int nr;		/* that were replaced */
	pte_t expected;			/* the next entry, but for its flags */
	struct migrate_cleared cleared;	/* of the replaced entries */
};

/* Entries that are cleared, and have not been replaced yet. */
struct migrate_ptes_chunk {
	unsigned int nr;
	bool alike;			/* they differ in the page only */
	unsigned long exclusive;	/* a bit for each entry */
	pte_t old[MIGRATE_PTES_CHUNK];
};

/*
 * Returns the number of entries from the position of the walk to the last entry
 * that the folio has in this page table and VMA.
 */
static inline unsigned int migrate_ptes_max(struct page_vma_mapped_walk *pvmw)
{
	unsigned long end = pmd_addr_end(pvmw->address, vma_address_end(pvmw));

	return (end - pvmw->address) >> PAGE_SHIFT;
}

/*
 * Move the walk to the last of @nr entries, so that it continues behind them.
 */
static void migrate_ptes_skip(struct page_vma_mapped_walk *pvmw, unsigned int nr)
{
	pvmw->address += (unsigned long)(nr - 1) * PAGE_SIZE;
	pvmw->pte += nr - 1;
}

/* Begin at an entry that maps a page of the folio, with up to @max_nr entries. */
static void migrate_ptes_begin(struct migrate_ptes *run,
			       struct vm_area_struct *vma, struct folio *folio,
			       unsigned long addr, pte_t *ptep,
			       unsigned int max_nr)
{
	pte_t pte = ptep_get(ptep);
	unsigned long first;

	run->vma = vma;
	run->folio = folio;
	run->pfn = pte_pfn(pte);
	first = run->pfn - folio_pfn(folio);
	run->page = &folio->page + first;
	run->addr = addr;
	run->pte = ptep;
	run->nr = 0;
	run->expected = pte;
	run->cleared = (struct migrate_cleared) {};
	run->max_nr = min_t(unsigned long, max_nr,
			    folio_nr_pages(folio) - first);
}

/* The flags of a page: in Linux 7.3 they are the only member of a structure. */
static unsigned long *migrate_page_flags(struct page *page)
{
	return (unsigned long *)&page->flags;
}

/* Like PageAnonExclusive(), which also tests for hugetlb. */
static bool migrate_page_exclusive(struct page *page)
{
	return test_bit(PG_anon_exclusive, migrate_page_flags(page));
}

/*
 * Returns false if the folio may be pinned.  The caller has cleared the
 * entries.
 */
static bool migrate_ptes_may_share(struct folio *folio)
{
	if (IS_ENABLED(CONFIG_HAVE_GUP_FAST))
		smp_mb(); /* paired with the one in try_grab_folio() */
	return !migrate_rule(PTES_PIN, folio_maybe_dma_pinned(folio));
}

/*
 * Clear up to a chunk of entries behind the replaced ones.  Stop at a page
 * that is poisoned or unused, because these do not become migration entries.
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
		 * Compare entries of this chunk only.  On arm64, clearing the
		 * first entry unfolds its block, which changes a bit.
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

/*
 * The pages of a cleared chunk are no longer exclusive.  GUP-fast finds no
 * entry to pin them by.
 */
static void migrate_ptes_share(const struct migrate_ptes *run,
			       const struct migrate_ptes_chunk *chunk)
{
	struct page *page = run->page + run->nr;
	unsigned int i;

	for (i = 0; i < chunk->nr; i++)
		if (chunk->alike || chunk->exclusive & BIT(i))
			clear_bit(PG_anon_exclusive,
				  migrate_page_flags(page + i));
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
 * Write @nr migration entries for cleared entries that differ in the page only.
 */
static void migrate_ptes_write(struct migrate_ptes *run,
			       const struct migrate_ptes_chunk *chunk,
			       unsigned int nth, unsigned int nr)
{
	pte_t old = chunk->old[nth], *ptep = run->pte + run->nr + nth;
	unsigned long addr = run->addr +
		(unsigned long)(run->nr + nth) * PAGE_SIZE;
	struct mm_struct *mm = run->vma->vm_mm;
	softleaf_t entry = migrate_pte_entry(run->pfn + run->nr + nth, old,
					     chunk->exclusive & BIT(nth));
	unsigned long step = migrate_pte_step(entry);
	pte_t pte = migrate_pte_of_entry(entry, old);
	unsigned int i;

	for (i = 0; i < nr; i++) {
		set_pte_at(mm, addr + i * PAGE_SIZE, ptep + i, pte);
		pte = migrate_pte_next(pte, step);
	}
	migrate_cleared_add(&run->cleared, mm, old);
}

/*
 * Replace up to a chunk of entries behind the replaced ones.  Returns false if
 * the folio is pinned, and restores the entries then.
 */
static bool migrate_ptes_replace(struct migrate_ptes *run)
{
	unsigned long addr = run->addr + (unsigned long)run->nr * PAGE_SIZE;
	/* CONFIG_INIT_STACK_ALL_ZERO would clear it for each chunk. */
	struct migrate_ptes_chunk chunk __uninitialized;
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
	/* Stop at an entry that cannot become a migration entry. */
	if (chunk.nr < MIGRATE_PTES_CHUNK)
		run->max_nr = run->nr;
	return true;
}

/* Replace entries.  Returns false if the folio is pinned. */
static bool migrate_ptes_replace_all(struct migrate_ptes *run)
{
	while (run->nr < run->max_nr)
		if (!migrate_ptes_replace(run))
			return false;
	return true;
}

/* Account for all entries that were replaced. */
static void migrate_ptes_unmapped(const struct migrate_ptes *run,
				  enum ttu_flags flags)
{
	unsigned int nr = run->nr;

	if (trace_set_migration_pte_enabled())
		migrate_ptes_trace(run);
	/* The entries are gone, so no CPU can set the dirty bit any more. */
	if (run->cleared.dirty)
		folio_mark_dirty(run->folio);
	/* TTU_SYNC means a split, which takes the folio from the queue. */
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
	bool pinned;

	if (!pte_present(ptep_get(pvmw->pte)))
		return 0;
	migrate_ptes_begin(&run, pvmw->vma, folio, pvmw->address, pvmw->pte,
			   migrate_ptes_max(pvmw));
	flush_cache_range(run.vma, run.addr,
			  run.addr + (unsigned long)run.max_nr * PAGE_SIZE);
	pinned = !migrate_ptes_replace_all(&run);
	if (run.nr) {
		if (migrate_rule(PTES_FLUSH, run.cleared.flush))
			migrate_flush_ptes(run.vma, run.addr, run.nr,
					   run.cleared.dirty, flags, false);
		migrate_ptes_unmapped(&run, flags);
	}
	if (pinned)
		return -EBUSY;
	if (run.nr)
		migrate_ptes_skip(pvmw, run.nr);
	return run.nr;
}

/**
 * migrate_unmap_whole - unmap a large folio that has one entry for each page
 * @vma: The VMA of the entries.
 * @folio: The folio, which is anonymous and locked.
 * @addr: The address of the first entry.
 * @ptep: The first entry.  The page table has one for each page of the folio.
 * @cleared: Collects the cleared entries.  The caller flushes them.
 *
 * The caller holds the lock of the page table, and a reference to the folio.
 *
 * Return: how many entries became migration entries.  If a page is not mapped
 * here, poisoned or pinned, they are fewer than the pages of the folio.
 */
unsigned int migrate_unmap_whole(struct vm_area_struct *vma,
				 struct folio *folio, unsigned long addr,
				 pte_t *ptep, struct migrate_cleared *cleared)
{
	struct migrate_ptes run;
	pte_t pte = ptep_get(ptep);

	/* The VMA of another process may have another page here. */
	if (!pte_present(pte) || pte_pfn(pte) != folio_pfn(folio))
		return 0;
	migrate_ptes_begin(&run, vma, folio, addr, ptep, folio_nr_pages(folio));
	migrate_ptes_replace_all(&run);
	if (run.nr)
		migrate_ptes_unmapped(&run, TTU_BATCH_FLUSH);
	cleared->flush |= run.cleared.flush;
	cleared->dirty |= run.cleared.dirty;
	return run.nr;
}

/*
 * Returns how many adjacent migration entries, up to @max_nr, differ in the page
 * only.
 */
static unsigned int migrate_ptes_alike(pte_t *ptep, pte_t first,
				       unsigned int max_nr)
{
	unsigned long step = migrate_pte_step(softleaf_from_pte(first));
	unsigned int nr;

	for (nr = 1; nr < max_nr; nr++) {
		first = migrate_pte_next(first, step);
		if (!pte_same(ptep_get(ptep + nr), first))
			break;
	}
	return nr;
}

/**
 * migrate_map_alike - map pages in place of adjacent migration entries
 * @vma: The VMA of the entries.
 * @page: The page to map first.
 * @addr: The address of the first entry.
 * @ptep: The first entry, a migration entry.
 * @max_nr: The most entries to map.
 *
 * The caller holds the lock of the page table.
 *
 * Return: the number of mapped entries.  The next entry is another one.
 */
unsigned int migrate_map_alike(struct vm_area_struct *vma, struct page *page,
			       unsigned long addr, pte_t *ptep,
			       unsigned int max_nr)
{
	struct folio *folio = page_folio(page);
	pte_t old_pte = ptep_get(ptep), pte;
	rmap_t rmap_flags = RMAP_NONE;
	softleaf_t entry = softleaf_from_pte(old_pte);
	unsigned int i, nr;

	nr = migrate_ptes_alike(ptep, old_pte, max_nr);
	pte = migrate_pte_mapped(vma, folio, page, old_pte, entry);

	folio_ref_add(folio, nr);
	if (folio_test_anon(folio)) {
		if (!softleaf_is_migration_read(entry))
			rmap_flags |= RMAP_EXCLUSIVE;
		folio_add_anon_rmap_ptes(folio, page, nr, vma, addr, rmap_flags);
	} else {
		folio_add_file_rmap_ptes(folio, page, nr, vma);
	}
	set_ptes(vma->vm_mm, addr, ptep, pte, nr);
	if (READ_ONCE(vma->vm_flags) & VM_LOCKED)
		mlock_drain_local();
	if (trace_remove_migration_pte_enabled())
		for (i = 0; i < nr; i++)
			trace_remove_migration_pte(addr + i * PAGE_SIZE,
						   pte_val(ptep_get(ptep + i)),
						   compound_order(page + i));
	/* No TLB has these entries, because they were not present before. */
	update_mmu_cache_range(NULL, vma, addr, ptep, nr);
	return nr;
}

unsigned int __migrate_map_ptes(struct page_vma_mapped_walk *pvmw,
				struct folio *folio, struct page *page)
{
	unsigned int nr;

	/* The entry of a device's memory is not a present one. */
	if (!softleaf_is_migration(softleaf_from_pte(ptep_get(pvmw->pte))) ||
	    folio_is_device_private(folio))
		return 0;
	nr = migrate_map_alike(pvmw->vma, page, pvmw->address, pvmw->pte,
			       migrate_ptes_max(pvmw));
	migrate_ptes_skip(pvmw, nr);
	return nr;
}

/*
 * A thread that unmapped migration entries did not see the folio, and could not
 * queue it.  Now the folio is mapped: a thread that unmaps a part queues the
 * folio.
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

/* Folios that are migrating now are mapped again under either setting. */
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
