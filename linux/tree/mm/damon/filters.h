/* SPDX-License-Identifier: GPL-2.0-only */
/* The filters of a migrating scheme: those that look at single folios. */
#ifndef _DAMON_FILTERS_H
#define _DAMON_FILTERS_H

#include <linux/damon.h>
#include <linux/mm.h>

#include "ops-common.h"
#include "va-mapping.h"

static inline bool damos_va_filter_match(struct damos_filter *filter,
					 struct folio *folio,
					 const struct damos_va_mapping *map)
{
	bool young;

	if (filter->type != DAMOS_FILTER_TYPE_YOUNG)
		return damos_folio_filter_match(filter, folio);
	young = damos_va_is_young(map, folio);
	if (young)
		damos_va_make_old(map);
	return young == filter->matching;
}

/* DAMON's core has applied filters for addresses and targets to the region. */
static inline bool damos_va_filter_out(const struct damos *s,
				       struct folio *folio,
				       const struct damos_va_mapping *map)
{
	struct damos_filter *filter;

	if (s->core_filters_allowed)
		return false;
	damos_for_each_ops_filter(filter, s)
		if (damos_va_filter_match(filter, folio, map))
			return !filter->allow;
	return s->ops_filters_default_reject;
}

/*
 * A folio may begin in one region and end in the next one.  The scheme applies
 * to the folio once.
 */
static inline bool damos_is_last_applied(const struct damos *s,
					 const struct folio *folio)
{
	return folio == s->last_applied;
}

static inline void damos_set_last_applied(struct damos *s, struct folio *folio)
{
	s->last_applied = folio;
}

#ifdef CONFIG_DAMON_MIGRATE_KUNIT_TEST
static inline void damos_test_init_filters(struct damos *s)
{
	INIT_LIST_HEAD(&s->core_filters);
	INIT_LIST_HEAD(&s->ops_filters);
}

/* Make a filter that rejects folios that match. */
static inline struct damos_filter *
damos_test_new_filter(enum damos_filter_type type)
{
	return damos_new_filter(type, true, false);
}
#endif

#endif /* _DAMON_FILTERS_H */
