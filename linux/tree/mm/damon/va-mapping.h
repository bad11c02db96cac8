/* SPDX-License-Identifier: GPL-2.0-only */
/* A mapping of a folio, as filters for virtual addresses see it. */
#ifndef _DAMON_VA_MAPPING_H
#define _DAMON_VA_MAPPING_H

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

#endif /* _DAMON_VA_MAPPING_H */
