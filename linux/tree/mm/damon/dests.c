// SPDX-License-Identifier: GPL-2.0-only
/*
 * The node that each folio belongs on, of those that a scheme migrates to.
 *
 * Folios take turns, as with weighted interleaving.  Each destination gets as
 * many consecutive turns as its weight, and the first follows the last.  The
 * turn of a folio is its page offset in its file, in units of its own size.
 * Memory without a file has the page offset of its VMA, which derives from the
 * first mapped address.
 *
 * So all processes that share the folio see one turn.  Splitting, merging or
 * moving a VMA does not change the turn.  Schemes with equal weights leave a
 * folio alone that is on its node.
 */

#include <linux/damon.h>
#include <linux/math64.h>
#include <linux/mm.h>

#include "dests.h"

u64 damos_dests_total_weight(const struct damos_migrate_dests *dests)
{
	unsigned int i;
	u64 total = 0;

	for (i = 0; i < dests->nr_dests; i++)
		total += dests->weight_arr[i];
	return total;
}

/* @index: the page offset of the folio's first page. */
u64 damos_dests_turn(const struct folio *folio, pgoff_t index)
{
	return index >> folio_order(folio);
}

unsigned int damos_dests_choose(const struct damos_migrate_dests *dests,
				u64 total_weight, u64 turn)
{
	unsigned int i;
	u64 rest;

	div64_u64_rem(turn, total_weight, &rest);
	for (i = 0; i < dests->nr_dests - 1; i++) {
		if (rest < dests->weight_arr[i])
			break;
		rest -= dests->weight_arr[i];
	}
	return i;
}
