// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whose copy of a folio is to be believed: the engine's, or that which the CPU
 * still has to make.
 *
 * An engine's copy is used if the engine said that it was made without error, no
 * poison was found in the source since, and no device may still write to it.
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
 * Is the content of both folios the same?  Reads the source with care: poison
 * that an engine did not see must not bring the machine down here.
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

/* Is the pair out of bounds for everybody? */
static bool migrate_pair_is_held(struct migrate_copy_pair *pair)
{
	if (!pair->held)
		return false;
	if (migrate_rule(HOLD, true))
		return true;
	/* As a core would that knows nothing of slow devices. */
	migrate_copy_release(pair->src, pair->dst);
	pair->held = false;
	return false;
}

/*
 * May the engine's copy of this pair be used?  What became of the whole batch
 * comes first, @why: VERDICT_ENGINE when each pair has a result of its own.
 * Then look for poison again: a machine check may have been taken meanwhile, and
 * the ordinary copy knows how to deal with it.
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

/* What an engine's answer means for the whole batch. */
enum migrate_verdict migrate_copy_why(int rc)
{
	if (!rc)
		return VERDICT_ENGINE;
	return rc == -EOPNOTSUPP || rc == -EBUSY ? VERDICT_DECLINED :
						   VERDICT_FAILED;
}
