// SPDX-License-Identifier: GPL-2.0-only
/* Find the folios to migrate in a region of physical addresses. */

#include <linux/damon.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/pfn.h>

#include "migrate.h"
#include "ops-common.h"

static void damos_pa_take(struct damos_migration *m, struct damos *s,
			  struct folio *folio)
{
	int dest = damos_migration_dest(m, folio);

	if (dest >= 0 && !damos_pa_filter_out(s, folio))
		damos_migration_add(m, folio, dest);
}

unsigned long damos_pa_migrate(struct damon_region *r, struct damos *s)
{
	struct damos_migration migration;
	unsigned long addr = r->ar.start;

	if (!damos_migration_begin(&migration, s))
		return 0;

	/*
	 * A region may cover all memory, so check for a stop of this kdamond.
	 */
	while (addr < r->ar.end && !kthread_should_stop()) {
		struct folio *folio = damon_get_folio(PHYS_PFN(addr));

		if (!folio) {
			addr += PAGE_SIZE;
			continue;
		}
		damos_pa_take(&migration, s, folio);
		/*
		 * A region may begin inside a folio: continue at the end of the
		 * folio.
		 */
		addr = PFN_PHYS(folio_pfn(folio)) + folio_size(folio);
		folio_put(folio);
		damos_migration_flush_much(&migration);
	}
	return damos_migration_end(&migration);
}
