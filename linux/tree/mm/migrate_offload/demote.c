// SPDX-License-Identifier: GPL-2.0-only
/*
 * How much reclaim isolates at once to demote it.
 *
 * It takes SWAP_CLUSTER_MAX pages off an LRU list, or one huge page, demotes them,
 * and looks whether that was enough.  An engine that is given one huge page can
 * divide its copy, but nothing else is done meanwhile.  So with one that would take
 * several, isolate several, if that is what comes next on the list: one is unmapped,
 * and another mapped, while a third is being copied.
 *
 * Small pages come by 32, as ever: with more of them, it would matter that those in
 * the middle of the list cannot be demoted, and are reclaimed in the ordinary way.
 */

#include <linux/math.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/sizes.h>

#include "../internal.h"
#include "hooks.h"
#include "internal.h"

/*
 * With each list, helpers have to be woken, and have nothing to do while its first
 * folio is unmapped and its last one is mapped.
 */
#define MIGRATE_DEMOTE_PAGES (SZ_64M >> PAGE_SHIFT)

/*
 * For demotion to this node, when @most pages are to be reclaimed: how many to isolate
 * at once, and the rest of a huge page with them.  0: as many as ever.  Takes no lock,
 * and does not sleep.
 */
unsigned long __migrate_offload_demote_pages(int dst_nid, unsigned long most)
{
	unsigned long nr = min(most, MIGRATE_DEMOTE_PAGES), wanted = 0;
	size_t bytes = round_up((size_t)nr << PAGE_SHIFT, PMD_SIZE);
	struct migrate_engine *engine;
	int idx;

	/* Of one there is no question. */
	if (bytes < 2 * PMD_SIZE)
		return 0;
	engine = migrate_engine_enter(MR_DEMOTION, &idx);
	if (engine && migrate_engine_wants(engine, dst_nid, bytes) &&
	    migrate_engine_pays(engine, MR_DEMOTION, PMD_ORDER, bytes))
		wanted = nr;
	migrate_engine_exit(idx);
	return wanted;
}
