// SPDX-License-Identifier: GPL-2.0-only
/*
 * Take folios from LRU lists, or add them, many at a time.  Consecutive folios
 * of one list share one lock and one update of its size.
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

/* The bits of a folio's flags that choose its node and zone. */
#define MIGRATE_LRU_ZONE (ZONES_MASK << ZONES_PGSHIFT |			\
			  (unsigned long)NODES_MASK << NODES_PGSHIFT |	\
			  MIGRATE_LRU_SECTION)
#ifdef SECTION_IN_PAGE_FLAGS
#define MIGRATE_LRU_SECTION ((unsigned long)SECTIONS_MASK << SECTIONS_PGSHIFT)
#else
#define MIGRATE_LRU_SECTION 0
#endif

/* With the bits that choose an LRU list. */
#define MIGRATE_LRU_LIST (MIGRATE_LRU_ZONE | BIT(PG_active) |		\
			  BIT(PG_unevictable) | BIT(PG_swapbacked))

/* A locked list, and a pending change of its size. */
struct migrate_lru {
	struct lruvec *lruvec;		/* NULL: none is locked */
	unsigned long flags;		/* of its folios, MIGRATE_LRU_LIST */
	unsigned long memcg_data;	/* of its folios */
	enum lru_list lru;
	enum zone_type zid;
	int nr;
};

static unsigned long migrate_lru_flags(const struct folio *folio,
				       unsigned long bits)
{
	return READ_ONCE(*const_folio_flags(folio, 0)) & bits;
}

static void migrate_lru_flush(struct migrate_lru *list)
{
	if (list->nr)
		update_lru_size(list->lruvec, list->lru, list->zid, list->nr);
	list->nr = 0;
}

static void migrate_lru_unlock(struct migrate_lru *list)
{
	if (!list->lruvec)
		return;
	migrate_lru_flush(list);
	/* For sparse: migrate_lru_lock() took the lock. */
	__acquire(&list->lruvec->lru_lock);
	lruvec_unlock_irq(list->lruvec);
	list->lruvec = NULL;
}

/* Lock the list of a folio that is not on the list of the folio before. */
static noinline void migrate_lru_change(struct migrate_lru *list,
					struct folio *folio, unsigned long flags)
{
	if (list->lruvec && folio_matches_lruvec(folio, list->lruvec)) {
		migrate_lru_flush(list);
	} else {
		migrate_lru_unlock(list);
		list->lruvec = folio_lruvec_lock_irq(folio);
	}
	list->flags = flags;
	list->memcg_data = migrate_lru_memcg_data(folio);
	list->lru = folio_lru_list(folio);
	list->zid = folio_zonenum(folio);
}

/*
 * Lock the list that the folio is on, or will be on.  No other task changes the
 * bits that choose it: it would have to clear PG_lru first.
 */
static __always_inline void migrate_lru_lock(struct migrate_lru *list,
					     struct folio *folio)
{
	unsigned long flags = migrate_lru_flags(folio, MIGRATE_LRU_LIST);

	if (unlikely(!list->lruvec || list->flags != flags ||
		     list->memcg_data != migrate_lru_memcg_data(folio)))
		migrate_lru_change(list, folio, flags);
}

/**
 * migrate_lru_isolate - folio_isolate_lru() for many
 * @folios: Folios of one size, each with a reference, which the isolation takes
 *	over.
 * @nr: The number of folios.
 * @nr_pages: The pages of each folio.
 *
 * Return: how many from the first one on were isolated: all, or those before
 * the first that is not on a list.  The others do not change.
 */
unsigned int migrate_lru_isolate(struct folio **folios, unsigned int nr,
				 int nr_pages)
{
	struct migrate_lru list = {};
	unsigned int i;

	for (i = 0; i < nr; i++) {
		struct folio *folio = folios[i];

		if (!folio_test_clear_lru(folio))
			break;
		migrate_lru_lock(&list, folio);
		if (lru_gen_del_folio(list.lruvec, folio, false))
			continue;
		if (!folio_test_unevictable(folio))
			list_del(&folio->lru);
		list.nr -= nr_pages;
	}
	migrate_lru_unlock(&list);
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
 * @folios: Folios of one size and mapping, each with a reference that the caller
 *	keeps.
 * @nr: The number of folios.
 * @nr_pages: The pages of each folio.
 *
 * On return the folios are on the lists.  Unevictable folios, and folios of a page
 * fault, may be in a batch of the CPU instead.
 */
void migrate_lru_add(struct folio **folios, unsigned int nr, int nr_pages)
{
	const unsigned long locked = BIT(PG_unevictable) | BIT(PG_mlocked);
	/* shmctl(2) with SHM_LOCK marks the mapping only. */
	const bool one_by_one = migrate_lru_in_fault() ||
		!folio_evictable(folios[0]);
	struct migrate_lru list = {};
	unsigned int i;

	for (i = 0; i < nr; i++) {
		struct folio *folio = folios[i];

		if (one_by_one || migrate_lru_flags(folio, locked)) {
			migrate_lru_unlock(&list);
			folio_add_lru(folio);
			continue;
		}
		migrate_lru_lock(&list, folio);
		if (!lru_gen_add_folio(list.lruvec, folio, false)) {
			list_add(&folio->lru, &list.lruvec->lists[list.lru]);
			list.nr += nr_pages;
		}
		trace_mm_lru_insertion(folio);
		folio_set_lru(folio);
	}
	migrate_lru_unlock(&list);
}

static void migrate_isolated_add(struct folio *folio, int nr)
{
	/* Anonymous folios with MADV_FREE count as folios of files. */
	if (nr)
		mod_node_page_state(folio_pgdat(folio), NR_ISOLATED_ANON +
				    folio_is_file_lru(folio), nr);
}

/**
 * migrate_isolated_mod - change the counters of isolated folios
 * @folios: Folios that are isolated.
 * @nr: The number of folios.
 * @delta: For each folio: its pages, or their negative number.
 */
void migrate_isolated_mod(struct folio **folios, unsigned int nr, int delta)
{
	const unsigned long bits = MIGRATE_LRU_ZONE | BIT(PG_swapbacked);
	unsigned long flags = 0;
	unsigned int i, first = 0;

	for (i = 0; i < nr; i++) {
		unsigned long next = migrate_lru_flags(folios[i], bits);

		if (next == flags)
			continue;
		migrate_isolated_add(folios[first], (int)(i - first) * delta);
		flags = next;
		first = i;
	}
	migrate_isolated_add(folios[first], (int)(nr - first) * delta);
}

static void migrate_mapped_add(struct folio *folio, int nr)
{
	if (nr)
		lruvec_stat_mod_folio(folio, folio_test_anon(folio) ?
				      NR_ANON_MAPPED : NR_FILE_MAPPED, nr);
}

/**
 * migrate_mapped_mod - change the counters of mapped folios
 * @folios: Small folios, all anonymous or all of files.  They are locked and
 *	isolated, so that their memory cgroup cannot change.
 * @nr: The number of folios.
 * @delta: 1 or -1, for each folio.
 */
void migrate_mapped_mod(struct folio **folios, unsigned int nr, int delta)
{
	unsigned long flags = 0, memcg_data = 0;
	unsigned int i, first = 0;

	for (i = 0; i < nr; i++) {
		unsigned long next = migrate_lru_flags(folios[i], MIGRATE_LRU_ZONE);
		unsigned long next_data = migrate_lru_memcg_data(folios[i]);

		if (next == flags && next_data == memcg_data)
			continue;
		migrate_mapped_add(folios[first], (int)(i - first) * delta);
		flags = next;
		memcg_data = next_data;
		first = i;
	}
	migrate_mapped_add(folios[first], (int)(nr - first) * delta);
}
