/* SPDX-License-Identifier: GPL-2.0-only */
/* The node that each folio belongs on. */
#ifndef _DAMON_DESTS_H
#define _DAMON_DESTS_H

#include <linux/damon.h>

struct folio;

/* The sum of all weights; with 0, no folio belongs anywhere. */
u64 damos_dests_total_weight(const struct damos_migrate_dests *dests);

/* The turn of a folio: its place among the folios of its size in its file. */
u64 damos_dests_turn(const struct folio *folio, pgoff_t index);

/* Returns the destination that has this turn.  @total_weight is not 0. */
unsigned int damos_dests_choose(const struct damos_migrate_dests *dests,
				u64 total_weight, u64 turn);

#endif /* _DAMON_DESTS_H */
