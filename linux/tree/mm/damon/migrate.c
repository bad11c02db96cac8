// SPDX-License-Identifier: GPL-2.0-only
/*
 * Migrate the folios that a scheme finds, in lists that are as long as
 * possible.
 *
 * The walk of a region isolates misplaced folios into one list for each
 * destination. migrate_pages() gets each list as a whole, so that one TLB flush
 * or batch copy covers many folios.
 *
 * All folios in a list are isolated from the LRU, accounted as isolated, and
 * referenced. migrate_pages() leaves folios that did not move in the list, and
 * this code puts them back at once.  No path leaves between
 * damos_migration_begin() and _end(), so no folio stays isolated.
 */

#include <linux/damon.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/nodemask.h>
#include <linux/sched/mm.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/vmstat.h>

#include "../internal.h"
#include "dests.h"
#include "exchange.h"
#include "filters.h"
#include "migrate.h"
#include "quota.h"

/*
 * Reclaim waits for isolated folios, and a stop of this kdamond waits for the
 * lists.  So migrate the lists when they reach this size.
 */
#define DAMOS_MUCH_PAGES (SZ_32M >> PAGE_SHIFT)

/* Draining the LRU batches disturbs all CPUs, so drain at most this often. */
#define DAMOS_DRAIN_JIFFIES (HZ / 10)

static bool damos_can_have(unsigned int nid)
{
	return nid < MAX_NUMNODES && node_state(nid, N_MEMORY);
}

/*
 * A filter that asks whether a page is young makes the page old.  A second walk
 * would then find the page old, and decide differently from the first walk.
 */
static bool damos_makes_old(const struct damos *s)
{
	struct damos_filter *filter;

	damos_for_each_ops_filter(filter, s)
		if (filter->type == DAMOS_FILTER_TYPE_YOUNG)
			return true;
	return false;
}

bool damos_migration_begin(struct damos_migration *m, const struct damos *s)
{
	unsigned int i;

	/* Without migrate_pages(), nothing would put isolated folios back. */
	if (!IS_ENABLED(CONFIG_MIGRATION))
		return false;
	/*
	 * DAMON's core passes further regions even when this kdamond has to
	 * stop.
	 */
	if (kthread_should_stop())
		return false;

	*m = (struct damos_migration) {
		.target_nid = s->target_nid,
		.target_weight = 1,
		.dests = s->migrate_dests,
		.cold = s->action == DAMOS_MIGRATE_COLD,
	};
	if (!m->dests.nr_dests) {
		m->dests.node_id_arr = &m->target_nid;
		m->dests.weight_arr = &m->target_weight;
		m->dests.nr_dests = 1;
		/* No folio of the region can move, so skip the walk. */
		if (!damos_can_have(m->target_nid))
			return false;
	}
	m->total_weight = damos_dests_total_weight(&m->dests);
	if (!m->total_weight)
		return false;

	m->lists = kmalloc_array(m->dests.nr_dests, sizeof(*m->lists),
				 GFP_KERNEL);
	if (!m->lists)
		return false;
	for (i = 0; i < m->dests.nr_dests; i++)
		INIT_LIST_HEAD(&m->lists[i]);
	m->again = damos_makes_old(s);
	lru_add_drain();
	return true;
}

int damos_migration_dest(const struct damos_migration *m, struct folio *folio,
			 pgoff_t index)
{
	unsigned int i, nid;

	i = damos_dests_choose(&m->dests, m->total_weight,
			       damos_dests_turn(folio, index));
	nid = m->dests.node_id_arr[i];
	if (nid == folio_nid(folio) || !damos_can_have(nid))
		return -1;
	return i;
}

void damos_migration_add(struct damos_migration *m, struct folio *folio,
			 int dest)
{
	/* A pinned folio cannot move, so do not isolate and unmap it. */
	if (folio_maybe_dma_pinned(folio))
		return;
	if (!folio_isolate_lru(folio)) {
		m->missed = true;
		return;
	}
	node_stat_add_folio(folio, NR_ISOLATED_ANON +
			    folio_is_file_lru(folio));
	list_add_tail(&folio->lru, &m->lists[dest]);
	m->nr_pages += folio_nr_pages(folio);
}

static unsigned int damos_migration_max_order(const struct list_head *folios)
{
	unsigned int order = 0;
	struct folio *folio;

	list_for_each_entry(folio, folios, lru)
		order = max(order, folio_order(folio));
	return order;
}

/* Put folios of at least this order back on the LRU lists. */
static void damos_migration_put_back(struct list_head *folios,
				     unsigned int order)
{
	struct folio *folio, *next;
	LIST_HEAD(back);

	list_for_each_entry_safe(folio, next, folios, lru)
		if (folio_order(folio) >= order)
			list_move_tail(&folio->lru, &back);
	putback_movable_pages(&back);
}

/*
 * migrate_pages() ends at the first folio that finds no memory, and does not
 * split that folio.  Smaller folios behind it may find memory.  The next pass
 * of the scheme would begin with the same large folio.  So each round here
 * leaves out the largest folios of the previous round.
 *
 * Do not wrap alloc_migration_target().  The migration core recognises this
 * function, and tells it not to compact while other folios are unmapped.
 */
static void damos_migration_flush_list(struct damos_migration *m,
				       struct list_head *folios,
				       unsigned int nid)
{
	struct migration_target_control mtc = {
		/*
		 * Allocate on this node or not at all.  Better placement does
		 * not justify reclaim of other memory.
		 */
		.gfp_mask = (GFP_HIGHUSER_MOVABLE & ~__GFP_RECLAIM) |
			GFP_NOWAIT | __GFP_NOWARN | __GFP_NOMEMALLOC |
			__GFP_THISNODE,
		.nid = nid,
		.reason = MR_DAMON,
	};
	/* A scheme with weights spreads all memory, be it hot or cold. */
	bool one_target = m->dests.node_id_arr == &m->target_nid;
	unsigned int nr_succeeded, order;
	int rc;

	if (one_target && !m->cold)
		m->nr_moved += damos_exchange(folios, nid);
	while (!list_empty(folios)) {
		nr_succeeded = 0;
		rc = migrate_pages(folios, alloc_migration_target, NULL,
				   (unsigned long)&mtc, MIGRATE_ASYNC,
				   MR_DAMON, &nr_succeeded);
		m->nr_moved += nr_succeeded;
		order = 0;
		if (rc == -ENOMEM) {
			order = damos_migration_max_order(folios);
			if (one_target && m->cold)
				damos_exchange_note(folios, order, nid);
		}
		damos_migration_put_back(folios, order);
	}
}

static void damos_migration_flush(struct damos_migration *m)
{
	unsigned int i, noreclaim_flag;

	/* Allocating a huge page may compact memory, but must not reclaim. */
	noreclaim_flag = memalloc_noreclaim_save();
	for (i = 0; i < m->dests.nr_dests; i++)
		damos_migration_flush_list(m, &m->lists[i],
					   m->dests.node_id_arr[i]);
	memalloc_noreclaim_restore(noreclaim_flag);
	m->nr_pages = 0;
	/* Put moved folios on the LRU, so that the next walk finds them. */
	lru_add_drain();
}

void damos_migration_flush_much(struct damos_migration *m)
{
	if (m->nr_pages >= DAMOS_MUCH_PAGES)
		damos_migration_flush(m);
	cond_resched();
}

bool damos_migration_again(struct damos_migration *m)
{
	static unsigned long drained = INITIAL_JIFFIES;
	unsigned long last = READ_ONCE(drained);

	/*
	 * A missed folio may be in a list already, or never be on the LRU.
	 * Draining does not help then, so do not drain for each region.
	 */
	if (!m->missed || m->again ||
	    time_before(jiffies, last + DAMOS_DRAIN_JIFFIES))
		return false;
	WRITE_ONCE(drained, jiffies);
	lru_add_drain_all();
	m->again = true;
	return true;
}

unsigned long damos_migration_end(struct damos_migration *m)
{
	damos_migration_flush(m);
	kfree(m->lists);
	return m->nr_moved * PAGE_SIZE;
}

#include "tests/migrate-kunit.h"
