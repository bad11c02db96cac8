/* SPDX-License-Identifier: GPL-2.0-only */
/* The filters of a migrating scheme: those that look at single folios. */
#ifndef _DAMON_FILTERS_H
#define _DAMON_FILTERS_H

#include <linux/damon.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>

#include "ops-common.h"
#include "va-mapping.h"

/* The core skips these when it applies to regions, so one list has them all. */
#define damos_for_each_ops_filter(f, s) damos_for_each_filter(f, s)

static inline bool damos_va_in_memcg(struct folio *folio, unsigned short id)
{
	struct mem_cgroup *memcg;
	bool matched;

	rcu_read_lock();
	memcg = folio_memcg_check(folio);
	matched = memcg && mem_cgroup_id(memcg) == id;
	rcu_read_unlock();
	return matched;
}

/* DAMON's core has applied filters for addresses and targets to the region. */
static inline bool damos_va_filter_out(const struct damos *s,
				       struct folio *folio,
				       const struct damos_va_mapping *map)
{
	struct damos_filter *filter;
	bool matched;

	damos_for_each_filter(filter, s) {
		switch (filter->type) {
		case DAMOS_FILTER_TYPE_ANON:
			matched = folio_test_anon(folio);
			break;
		case DAMOS_FILTER_TYPE_MEMCG:
			matched = damos_va_in_memcg(folio, filter->memcg_id);
			break;
		case DAMOS_FILTER_TYPE_YOUNG:
			matched = damos_va_is_young(map, folio);
			if (matched)
				damos_va_make_old(map);
			break;
		default:
			continue;
		}
		if (matched == filter->matching)
			return true;
	}
	return false;
}

/* Linux 6.12 does not note which folio a scheme was applied to last. */
static inline bool damos_is_last_applied(const struct damos *s,
					 const struct folio *folio)
{
	return false;
}

static inline void damos_set_last_applied(struct damos *s, struct folio *folio)
{
}

#ifdef CONFIG_DAMON_MIGRATE_KUNIT_TEST
static inline void damos_test_init_filters(struct damos *s)
{
	INIT_LIST_HEAD(&s->filters);
}

/* Make a filter that rejects folios that match. */
static inline struct damos_filter *
damos_test_new_filter(enum damos_filter_type type)
{
	return damos_new_filter(type, true);
}
#endif

#endif /* _DAMON_FILTERS_H */
