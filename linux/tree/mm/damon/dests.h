/* SPDX-License-Identifier: GPL-2.0-only */
/* The nodes that a scheme migrates to, and which of them a folio belongs on. */
#ifndef _DAMON_DESTS_H
#define _DAMON_DESTS_H

#include <linux/damon.h>

struct folio;

/*
 * Make @dst, which is not looked at, a copy of @src.  After -ENOMEM it is empty,
 * and can be freed like any other.
 */
int damos_dests_copy(struct damos_dests *dst, const struct damos_dests *src);
void damos_dests_free(struct damos_dests *dests);

/* The sum of all weights; with 0, nothing belongs anywhere. */
u64 damos_dests_total_weight(const struct damos_dests *dests);

/* The turn of a folio: its place among the folios of its size, in its file. */
u64 damos_dests_turn(const struct folio *folio);

/* Which of the destinations has this turn?  @total_weight is not 0. */
unsigned int damos_dests_choose(const struct damos_dests *dests,
				u64 total_weight, u64 turn);

#endif /* _DAMON_DESTS_H */
