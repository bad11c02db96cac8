// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exchange hot folios with cold ones if both nodes are full.
 *
 * Two schemes move memory between two nodes: migrate_cold from the fast node to
 * the slow one, and migrate_hot back.  If both nodes are full, neither finds a
 * free page.  Then migrate_cold notes the page frames of folios that it could
 * not move.  migrate_hot exchanges its folios with these, before it takes free
 * pages for the rest.
 *
 * Schemes run one after the other, or in two kdamonds.  A folio must not be
 * isolated for so long.  So a note holds no reference, and is valid for a
 * second.  The page frame may have another owner by then, whose memory must
 * stay.  So a note also says which memory was there.
 *
 * Both schemes decide as always which memory is hot, and which is cold.  The
 * kernel does not look at cpusets or memory policies here, as in all migration
 * by DAMON.
 */

#include <linux/bits.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/spinlock.h>
#include <linux/swap.h>

#include "../internal.h"
#include "../migrate_offload/exchange.h"
#include "exchange.h"
#include "ops-common.h"

/* 16 MiB of small pages.  New notes replace the oldest. */
#define DAMOS_NOTES 4096
#define DAMOS_NOTE_JIFFIES HZ

/*
 * A folio that is cold, and on the wrong node.  If the frame gets another owner,
 * its folio has another anon_vma in @mapping, or another index.  Both are the
 * same again only if the anon_vma was freed and reused within the second.  Then
 * the new owner's memory moves, but keeps its content.
 */
struct damos_note {
	unsigned long pfn;
	const void *mapping;
	pgoff_t index;
	unsigned long until;	/* in jiffies */
	short from, to;		/* nodes */
	unsigned char order;
	bool valid;
};

/* damos_notes_lock protects these, and the writes to the last one. */
static struct damos_note damos_notes[DAMOS_NOTES];
static unsigned int damos_next_note;	/* to write */
static unsigned int damos_next_take;	/* to look at */
/* No note is valid for longer. */
static unsigned long damos_notes_until = INITIAL_JIFFIES;
static DEFINE_SPINLOCK(damos_notes_lock);

void damos_exchange_note(const struct list_head *cold, unsigned int order,
			 unsigned int nid)
{
	unsigned long until = jiffies + DAMOS_NOTE_JIFFIES;
	struct folio *folio;

	spin_lock(&damos_notes_lock);
	WRITE_ONCE(damos_notes_until, until);
	list_for_each_entry(folio, cold, lru) {
		if (folio_order(folio) != order || !folio_test_anon(folio))
			continue;
		damos_notes[damos_next_note] = (struct damos_note) {
			.pfn = folio_pfn(folio),
			.mapping = READ_ONCE(folio->mapping),
			.index = folio->index,
			.until = until,
			.from = folio_nid(folio),
			.to = nid,
			.order = order,
			.valid = true,
		};
		damos_next_note = (damos_next_note + 1) % DAMOS_NOTES;
	}
	spin_unlock(&damos_notes_lock);
}

/*
 * Take the note of a folio to exchange with @hot, if there is one.  Notes for
 * two nodes follow each other, so begin behind the note that was taken last.
 */
static bool damos_take_note(const struct folio *hot, int nid,
			    struct damos_note *taken)
{
	struct damos_note *note;
	bool found = false;
	unsigned int i;

	spin_lock(&damos_notes_lock);
	for (i = 0; i < DAMOS_NOTES && !found; i++) {
		note = &damos_notes[damos_next_take];
		damos_next_take = (damos_next_take + 1) % DAMOS_NOTES;
		if (!note->valid || note->from != nid ||
		    note->to != folio_nid(hot) ||
		    note->order != folio_order(hot))
			continue;
		note->valid = false;
		*taken = *note;
		found = time_before(jiffies, note->until);
	}
	spin_unlock(&damos_notes_lock);
	return found;
}

/* Returns true if the memory of the note is still there. */
static bool damos_is_noted(struct folio *folio,
			   const struct damos_note *note)
{
	return folio_pfn(folio) == note->pfn &&
		folio_order(folio) == note->order &&
		READ_ONCE(folio->mapping) == note->mapping &&
		folio->index == note->index;
}

/* Isolate a noted folio of node @nid that still is as the note says. */
static struct folio *damos_isolate_cold(const struct folio *hot, int nid,
					struct list_head *cold)
{
	struct damos_note note;
	struct folio *folio;
	bool isolated;

	while (damos_take_note(hot, nid, &note)) {
		folio = damon_get_folio(note.pfn);
		if (!folio)
			continue;
		isolated = damos_is_noted(folio, &note) &&
			isolate_folio_to_list(folio, cold);
		folio_put(folio);
		if (isolated)
			return folio;
	}
	return NULL;
}

unsigned long damos_exchange(struct list_head *hot, unsigned int nid)
{
	struct folio *folio, *next, *other;
	int none_nid = NUMA_NO_NODE;
	unsigned long none_left = 0;	/* on @none_nid, a bit for each order */
	unsigned long nr = 0;
	LIST_HEAD(back);

	if (!time_before(jiffies, READ_ONCE(damos_notes_until)))
		return 0;
	list_for_each_entry_safe(folio, next, hot, lru) {
		if (folio_nid(folio) != none_nid) {
			none_nid = folio_nid(folio);
			none_left = 0;
		}
		if (!folio_test_anon(folio) ||
		    none_left & BIT(folio_order(folio)))
			continue;
		other = damos_isolate_cold(folio, nid, &back);
		if (!other) {
			none_left |= BIT(folio_order(folio));
			continue;
		}
		if (!migrate_exchange_folios(folio, other, MR_DAMON)) {
			nr += folio_nr_pages(folio);
			list_move(&folio->lru, &back);
		}
		putback_movable_pages(&back);
		cond_resched();
	}
	return nr;
}

#include "tests/exchange-kunit.h"
