/* SPDX-License-Identifier: GPL-2.0-only */
/* The filters of a migrating scheme: those that look at single folios. */
#ifndef _DAMON_FILTERS_H
#define _DAMON_FILTERS_H

#include <linux/damon.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/page_idle.h>

#include "ops-common.h"

/* A mapping of a folio, or of a part: one entry of @pmd, or @nr of @pte. */
struct damos_va_mapping {
	struct vm_area_struct *vma;
	unsigned long addr;
	pmd_t *pmd;
	pte_t *pte;
	int nr;
	bool young;
};

/* Returns true if this or another mapping of the folio was accessed. */
static inline bool damos_va_is_young(const struct damos_va_mapping *map,
				     struct folio *folio)
{
	return map->young || !folio_test_idle(folio) ||
	       mmu_notifier_test_young(map->vma->vm_mm, map->addr);
}

static inline void damos_va_make_old(const struct damos_va_mapping *map)
{
	int i;

	if (map->pmd)
		damon_pmdp_mkold(map->pmd, map->vma, map->addr);
	for (i = 0; i < map->nr; i++)
		damon_ptep_mkold(map->pte + i, map->vma,
				 map->addr + i * PAGE_SIZE);
}

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
