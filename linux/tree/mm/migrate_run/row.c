// SPDX-License-Identifier: GPL-2.0-only
/* Replace the entries of a row, which are cleared, with migration entries. */

#include <linux/leafops.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/rmap.h>

#include <trace/events/migrate.h>

#include "../internal.h"
#include "../migrate_offload/internal.h"
#include "pte.h"
#include "row.h"
#include "run.h"

/* Flush the cleared entries, but no gaps: a gap may have 30 entries. */
static void migrate_row_flush(struct migrate_run *run,
			      const struct migrate_row *row,
			      struct vm_area_struct *vma, bool dirty)
{
	unsigned int i, nr;
	unsigned long addr;

	for (i = 0; i < row->nr; i += nr) {
		nr = migrate_row_piece(row, i, &addr);
		if (migrate_flush_ptes(vma, addr, nr, dirty, TTU_BATCH_FLUSH,
				       run->nr_flushed > MIGRATE_RUN_FLUSHES))
			return;
		run->nr_flushed += nr;
	}
}

/*
 * The file system must hear of dirty page cache, to write it back.  For
 * anonymous pages, folio_mark_dirty() sets the flag and nothing else.
 */
static void migrate_row_mark_dirty(struct folio *folio)
{
	if (!folio_test_anon(folio))
		folio_mark_dirty(folio);
	else if (!folio_test_dirty(folio))
		folio_set_dirty(folio);
}

/*
 * Write migration entries.  From now on, only TLBs can reach the pages.
 *
 * Most entries differ from the first one in the page only, so the migration
 * entries do, too.
 */
static void migrate_row_write(const struct migrate_row *row,
			      struct mm_struct *mm, const pte_t *old,
			      bool exclusive, struct migrate_cleared *cleared)
{
	const unsigned long first_pfn = pte_pfn(old[0]);
	softleaf_t entry, first = migrate_pte_entry(first_pfn, old[0],
						    exclusive);
	struct folio **src = row->folios;
	unsigned int i;
	pte_t pte;

	for (i = 0; i < row->nr; i++) {
		unsigned long pfn = folio_pfn(src[i]);

		if (pte_same(old[i], pte_advance_pfn(old[0], pfn - first_pfn)))
			/* The page is in the lowest bits: see swp_entry(). */
			entry.val = first.val + pfn - first_pfn;
		else
			entry = migrate_pte_entry(pfn, old[i], exclusive);
		pte = migrate_pte_of_entry(entry, old[i]);
		set_pte_at(mm, migrate_row_addr(row, i),
			   migrate_row_pte(row, i), pte);
		migrate_cleared_add(cleared, mm, old[i]);
		if (trace_set_migration_pte_enabled())
			trace_set_migration_pte(migrate_row_addr(row, i),
						pte_val(pte), 0);
		/* No CPU can set the bit any more. */
		if (pte_dirty(old[i]))
			migrate_row_mark_dirty(src[i]);
	}
}

/**
 * migrate_row_replace - replace cleared entries with migration entries
 * @run: The run that the row belongs to.
 * @row: The folios whose entries are cleared.
 * @vma: The VMA of the entries.
 * @old: The entries before.
 * @exclusive: The pages were exclusive.
 *
 * Sees to it that no TLB has the entries when the caller calls
 * try_to_unmap_flush().  The caller holds the lock of the page table, and
 * removes the mappings from the folios before or after.
 */
void migrate_row_replace(struct migrate_run *run, const struct migrate_row *row,
			 struct vm_area_struct *vma, const pte_t *old,
			 bool exclusive)
{
	struct migrate_cleared cleared = {};

	migrate_row_write(row, vma->vm_mm, old, exclusive, &cleared);
	if (!migrate_rule(RUN_JUDGE, true))
		cleared.flush = migrate_offload_judge_late(vma->vm_mm, old,
							   row->nr);
	if (migrate_rule(RUN_FLUSH, cleared.flush))
		migrate_row_flush(run, row, vma, cleared.dirty);
}
