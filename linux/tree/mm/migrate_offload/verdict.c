// SPDX-License-Identifier: GPL-2.0-only
/*
 * Decide whether a move uses the engine's copy of a folio, or a copy by the
 * CPU.
 *
 * The engine's copy counts if the engine reported no error.  Also, the source
 * must not be poisoned, and no device may still write to the destination.
 */

#include <linux/highmem.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "../internal.h"
#include "internal.h"

unsigned int migrate_offload_verify;

/*
 * Compare both folios.  Read the source by copy_mc_to_kernel(): the engine may
 * not have seen poison, and a plain read of poison would crash the machine.
 */
static enum migrate_verdict
migrate_pair_verify(const struct migrate_copy_pair *pair)
{
	enum migrate_verdict end = VERDICT_ENGINE;
	long i, nr = folio_nr_pages(pair->src);
	char buf[256];
	size_t offset;

	for (i = 0; i < nr && end == VERDICT_ENGINE; i++) {
		char *src = kmap_local_page(folio_page(pair->src, i));
		char *dst = kmap_local_page(folio_page(pair->dst, i));

		for (offset = 0; offset < PAGE_SIZE; offset += sizeof(buf)) {
			if (copy_mc_to_kernel(buf, src + offset, sizeof(buf)))
				end = VERDICT_FAILED;
			else if (memcmp(buf, dst + offset, sizeof(buf)))
				end = VERDICT_MISMATCHED;
			if (end != VERDICT_ENGINE)
				break;
		}
		kunmap_local(dst);
		kunmap_local(src);
		cond_resched();
	}
	return end;
}

static bool migrate_pair_is_held(struct migrate_copy_pair *pair)
{
	if (!pair->held)
		return false;
	if (migrate_rule(HOLD, true))
		return true;
	/* With the rule broken, ignore that a device may still write. */
	migrate_copy_release(pair->src, pair->dst);
	pair->held = false;
	return false;
}

/*
 * May the move use the engine's copy of this pair?  @why is the verdict on the
 * batch.  The result of the pair counts only with VERDICT_ENGINE.  Check for
 * poison again: memory may have failed since, and the CPU's copy handles that.
 */
enum migrate_verdict
migrate_pair_judge(struct migrate_copy_pair *pair,
		   enum migrate_verdict why)
{
	if (migrate_pair_is_held(pair))
		return VERDICT_HELD;
	if (why != VERDICT_ENGINE)
		return why;
	if (migrate_rule(RESULT, pair->result))
		return VERDICT_FAILED;
	if (migrate_rule(POISON, folio_contain_hwpoisoned_page(pair->src)))
		return VERDICT_FAILED;
	if (READ_ONCE(migrate_offload_verify))
		return migrate_pair_verify(pair);
	return VERDICT_ENGINE;
}

/* Turn an engine's return value into the verdict on the batch. */
enum migrate_verdict migrate_copy_why(int rc)
{
	if (!rc)
		return VERDICT_ENGINE;
	return rc == -EOPNOTSUPP || rc == -EBUSY ? VERDICT_DECLINED :
						   VERDICT_FAILED;
}
