// SPDX-License-Identifier: GPL-2.0-only
/* Find the folios to migrate in a region of physical addresses. */

#include <linux/damon.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/pfn.h>

#include "filters.h"
#include "migrate.h"
#include "ops-common.h"

/*
 * Returns the number of bytes that passed the filters.
 *
 * Physical addresses have no VMA, so the turn follows from the index.  Both
 * agree, but for written pages of private file mappings on Linux 7.3.
 *
 * The index changes only while the folio is unmapped or locked.  Nothing here
 * excludes such a change: a wrong turn puts a folio on a wrong node only until
 * the next pass.
 */
static unsigned long damos_pa_take(struct damos_migration *m, struct damos *s,
				   struct folio *folio, bool count)
{
	int dest = damos_migration_dest(m, folio, READ_ONCE(folio->index));

	/* A filter may be slow, so do not ask it about a folio that stays. */
	if ((dest < 0 && !count) || damos_pa_filter_out(s, folio))
		return 0;
	if (dest >= 0)
		damos_migration_add(m, folio, dest);
	return folio_size(folio);
}

unsigned long damos_migrate_paddr(struct damon_region *r,
				  unsigned long addr_unit, struct damos *s,
				  unsigned long *passed)
{
	phys_addr_t addr = (phys_addr_t)r->ar.start * addr_unit;
	phys_addr_t end = (phys_addr_t)r->ar.end * addr_unit;
	struct damos_migration migration;
	unsigned long nr_passed = 0;
	struct folio *folio = NULL;

	if (!damos_migration_begin(&migration, s))
		return 0;

	/*
	 * A region may cover all memory, so check for a stop of this kdamond.
	 */
	while (addr < end && !kthread_should_stop()) {
		folio = damon_get_folio(PHYS_PFN(addr));
		if (!folio) {
			addr += PAGE_SIZE;
			continue;
		}
		if (!damos_is_last_applied(s, folio))
			nr_passed += damos_pa_take(&migration, s, folio,
						   passed) / addr_unit;
		/*
		 * A region may begin inside a folio: continue at the end of the
		 * folio.
		 */
		addr = PFN_PHYS(folio_pfn(folio)) + folio_size(folio);
		folio_put(folio);
		damos_migration_flush_much(&migration);
	}
	damos_set_last_applied(s, folio);
	if (passed)
		*passed += nr_passed;
	return damos_migration_end(&migration) / addr_unit;
}
