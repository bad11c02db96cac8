// SPDX-License-Identifier: GPL-2.0-only
/*
 * The nodes that a scheme migrates to, and which of them a folio belongs on.
 *
 * Folios take turns, as with weighted interleaving: the first destination gets
 * as many as its weight says, then the next one, and after the last one it
 * begins anew.  The turn of a folio is its offset in its file, in units of its
 * own size.  For private memory that is the offset that its area has, which
 * begins with the address at which it was mapped first.
 *
 * So the turn is a property of the folio, not of who maps it, or where: it is
 * the same for all processes that share it, after areas were split, merged or
 * moved, and for schemes that come by way of physical addresses.  A folio that
 * is where it belongs is left there by every scheme with the same weights.
 */

#include <linux/damon.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "dests.h"

int damos_dests_copy(struct damos_dests *dst, const struct damos_dests *src)
{
	*dst = (struct damos_dests) {};
	if (!src->nr)
		return 0;

	dst->arr = kmemdup_array(src->arr, src->nr, sizeof(*src->arr),
				 GFP_KERNEL);
	if (!dst->arr)
		return -ENOMEM;
	dst->nr = src->nr;
	return 0;
}

void damos_dests_free(struct damos_dests *dests)
{
	kfree(dests->arr);
	*dests = (struct damos_dests) {};
}

u64 damos_dests_total_weight(const struct damos_dests *dests)
{
	unsigned int i;
	u64 total = 0;

	for (i = 0; i < dests->nr; i++)
		total += dests->arr[i].weight;
	return total;
}

/*
 * The index of a folio may only change while nobody has it mapped, or while it
 * is locked.  Where neither keeps it from doing so, the worst is a folio that is
 * on a wrong node until the next time.
 */
u64 damos_dests_turn(const struct folio *folio)
{
	return READ_ONCE(folio->index) >> folio_order(folio);
}

unsigned int damos_dests_choose(const struct damos_dests *dests,
				u64 total_weight, u64 turn)
{
	unsigned int i;
	u64 rest;

	div64_u64_rem(turn, total_weight, &rest);
	for (i = 0; i < dests->nr - 1; i++) {
		if (rest < dests->arr[i].weight)
			break;
		rest -= dests->arr[i].weight;
	}
	return i;
}
