// SPDX-License-Identifier: GPL-2.0-only
/*
 * The node that each folio belongs on, of those that a scheme migrates to.
 *
 * Folios take turns, as with weighted interleaving.  Each destination gets as
 * many consecutive turns as its weight, and the first follows the last.  The
 * turn of a folio is its offset in its file, in units of its own size.  Private
 * memory has the offset of its VMA, which derives from the first mapped
 * address.
 *
 * So the turn is a property of the folio, and does not depend on the mapping.
 * All processes that share the folio see one turn.  Splitting, merging or
 * moving a VMA does not change the turn, and schemes for physical addresses see
 * it, too.  Schemes with equal weights leave a folio alone that is on its node.
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

/*
 * The index changes only while the folio is unmapped or locked.  The caller
 * need not exclude such a change: a wrong turn puts a folio on a wrong node
 * only until the next pass.
 */
u64 damos_dests_turn(const struct folio *folio)
{
	return READ_ONCE(folio->index) >> folio_order(folio);
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
