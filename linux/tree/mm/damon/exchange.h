/* SPDX-License-Identifier: GPL-2.0-only */
/* Exchange hot folios with cold ones if both nodes are full. */
#ifndef _DAMON_EXCHANGE_H
#define _DAMON_EXCHANGE_H

#include <linux/list.h>

#ifdef CONFIG_DAMON_EXCHANGE
/*
 * Note the isolated folios of an order that migrate_cold found, and for which
 * node @nid had no room.
 */
void damos_exchange_note(const struct list_head *cold, unsigned int order,
			 unsigned int nid);

/*
 * Exchange isolated folios with noted folios of node @nid.  Puts both back on
 * the LRU lists; folios without a partner stay in the list.  Returns the number
 * of pages that node @nid has got.  May sleep.
 */
unsigned long damos_exchange(struct list_head *hot, unsigned int nid);
#else
static inline void damos_exchange_note(const struct list_head *cold,
				       unsigned int order, unsigned int nid)
{
}

static inline unsigned long damos_exchange(struct list_head *hot,
					   unsigned int nid)
{
	return 0;
}
#endif

#endif /* _DAMON_EXCHANGE_H */
