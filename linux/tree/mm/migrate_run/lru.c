// SPDX-License-Identifier: GPL-2.0-only
/*
 * Take small folios from LRU lists, or add them, many at a time.  Consecutive
 * folios of one list share one lock and one update of its size.
 */

#include <linux/leafops.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/swap.h>
#include <linux/vmstat.h>

#include <trace/events/pagemap.h>

#include "../internal.h"
#include "run.h"

/* A pending change of a list's size.  The caller holds the lock of @lruvec. */
struct migrate_lru_size {
	struct lruvec *lruvec;		/* NULL: none is locked */
	enum lru_list lru;
	enum zone_type zid;
	int nr;
};

static void migrate_lru_size_flush(struct migrate_lru_size *size)
{
	if (size->nr)
		update_lru_size(size->lruvec, size->lru, size->zid, size->nr);
	size->nr = 0;
}

static void migrate_lru_size_add(struct migrate_lru_size *size,
				 struct folio *folio, int delta)
{
	enum lru_list lru = folio_lru_list(folio);
	enum zone_type zid = folio_zonenum(folio);

	if (size->nr && (size->lru != lru || size->zid != zid))
		migrate_lru_size_flush(size);
	size->lru = lru;
	size->zid = zid;
	size->nr += delta;
}

static void migrate_lru_unlock(struct migrate_lru_size *size)
{
	if (!size->lruvec)
		return;
	migrate_lru_size_flush(size);
	/* For sparse: migrate_lru_lock() took the lock. */
	__acquire(&size->lruvec->lru_lock);
	lruvec_unlock_irq(size->lruvec);
	size->lruvec = NULL;
}

static void migrate_lru_lock(struct migrate_lru_size *size, struct folio *folio)
{
	if (size->lruvec && folio_matches_lruvec(folio, size->lruvec))
		return;
	migrate_lru_unlock(size);
	size->lruvec = folio_lruvec_lock_irq(folio);
}

/**
 * migrate_lru_isolate - folio_isolate_lru() for many
 * @folios: Small folios, each with a reference, which the isolation takes over.
 * @nr: The number of folios.
 *
 * Return: how many from the first one on were isolated: all, or those before
 * the first that is not on a list.  The others do not change.
 */
unsigned int migrate_lru_isolate(struct folio **folios, unsigned int nr)
{
	struct migrate_lru_size size = {};
	unsigned int i;

	for (i = 0; i < nr; i++) {
		struct folio *folio = folios[i];

		if (!folio_test_clear_lru(folio))
			break;
		migrate_lru_lock(&size, folio);
		if (lru_gen_del_folio(size.lruvec, folio, false))
			continue;
		if (!folio_test_unevictable(folio))
			list_del(&folio->lru);
		migrate_lru_size_add(&size, folio, -1);
	}
	migrate_lru_unlock(&size);
	return i;
}

/*
 * Returns true in a page fault.  Then folio_add_lru() notes an access to the
 * folio.  A fault migrates one folio, so there is nothing to share.
 */
static bool migrate_lru_in_fault(void)
{
	return lru_gen_enabled() && lru_gen_in_fault() &&
		!(current->flags & PF_MEMALLOC);
}

/**
 * migrate_lru_add - folio_add_lru() for many
 * @folios: Small folios, each with a reference that the caller keeps.
 * @nr: The number of folios.
 *
 * On return the folios are on the lists.  Mlocked folios, and folios of a page
 * fault, may be in a batch of the CPU instead.
 */
void migrate_lru_add(struct folio **folios, unsigned int nr)
{
	struct migrate_lru_size size = {};
	unsigned int i;

	for (i = 0; i < nr; i++) {
		struct folio *folio = folios[i];

		if (folio_test_unevictable(folio) ||
		    folio_test_mlocked(folio) || migrate_lru_in_fault()) {
			migrate_lru_unlock(&size);
			folio_add_lru(folio);
			continue;
		}
		migrate_lru_lock(&size, folio);
		if (!lru_gen_add_folio(size.lruvec, folio, false)) {
			list_add(&folio->lru, &size.lruvec->lists[folio_lru_list(folio)]);
			migrate_lru_size_add(&size, folio, 1);
		}
		trace_mm_lru_insertion(folio);
		folio_set_lru(folio);
	}
	migrate_lru_unlock(&size);
}

static void migrate_isolated_flush(struct migrate_isolated *isolated)
{
	if (isolated->nr)
		mod_node_page_state(isolated->pgdat, isolated->item,
				    isolated->nr);
	isolated->nr = 0;
}

/* Count @delta for an isolated folio.  Without a folio, write the sum. */
void migrate_isolated_mod(struct migrate_isolated *isolated,
			  struct folio *folio, int delta)
{
	enum node_stat_item item;

	if (!folio) {
		migrate_isolated_flush(isolated);
		return;
	}
	/* Anonymous folios with MADV_FREE count as folios of files. */
	item = NR_ISOLATED_ANON + folio_is_file_lru(folio);
	if (isolated->pgdat != folio_pgdat(folio) || isolated->item != item)
		migrate_isolated_flush(isolated);
	isolated->pgdat = folio_pgdat(folio);
	isolated->item = item;
	isolated->nr += delta;
}
