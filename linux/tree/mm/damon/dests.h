/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The nodes that a scheme migrates to, and the node that each folio belongs on.
 */
#ifndef _DAMON_DESTS_H
#define _DAMON_DESTS_H

#include <linux/damon.h>

struct folio;

/*
 * Make @dst a copy of @src, without reading the old content of @dst.  After
 * -ENOMEM @dst is empty, and can be freed like any other.
 */
int damos_dests_copy(struct damos_dests *dst, const struct damos_dests *src);
void damos_dests_free(struct damos_dests *dests);

/* The sum of all weights; with 0, no folio belongs anywhere. */
u64 damos_dests_total_weight(const struct damos_dests *dests);

/* The turn of a folio: its place among the folios of its size in its file. */
u64 damos_dests_turn(const struct folio *folio);

/* Returns the destination that has this turn.  @total_weight is not 0. */
unsigned int damos_dests_choose(const struct damos_dests *dests,
				u64 total_weight, u64 turn);

#endif /* _DAMON_DESTS_H */
