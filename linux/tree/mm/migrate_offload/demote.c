// SPDX-License-Identifier: GPL-2.0-only
/*
 * How many pages reclaim isolates at once to demote them.
 *
 * Stock reclaim isolates SWAP_CLUSTER_MAX (32) pages or one huge page, demotes
 * them, and checks whether that was enough.  An engine can divide the copy of
 * one huge page, but reclaim only waits meanwhile.  For an engine that takes
 * more, reclaim isolates several huge pages, if they come next on the LRU list.
 * Then the CPU unmaps one and maps another while the engine copies a third.
 *
 * Small pages are still isolated 32 at a time.  Pages of a list that cannot be
 * demoted are reclaimed instead, and a longer list may have more of them.
 */

#include <linux/math.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/sizes.h>

#include "../internal.h"
#include "hooks.h"
#include "internal.h"

/*
 * Each list must wake helpers, which are idle while its first folio is unmapped
 * and its last folio is mapped.  64M is long enough to make up for this.
 */
#define MIGRATE_DEMOTE_PAGES (SZ_64M >> PAGE_SHIFT)

/*
 * Returns how many of @most pages to isolate at once for demotion to @dst_nid,
 * or 0 for as many as stock Linux.  The caller keeps the last huge page whole.
 * Takes no lock, and does not sleep.
 */
unsigned long __migrate_offload_demote_pages(int dst_nid, unsigned long most)
{
	unsigned long nr = min(most, MIGRATE_DEMOTE_PAGES), wanted = 0;
	size_t bytes = round_up((size_t)nr << PAGE_SHIFT, PMD_SIZE);
	struct migrate_engine *engine;
	int idx;

	/* Stock Linux isolates enough for one huge page. */
	if (bytes < 2 * PMD_SIZE)
		return 0;
	engine = migrate_engine_enter(MR_DEMOTION, &idx);
	if (engine && migrate_engine_wants(engine, dst_nid, bytes) &&
	    migrate_engine_pays(engine, MR_DEMOTION, PMD_ORDER, bytes))
		wanted = nr;
	migrate_engine_exit(idx);
	return wanted;
}
