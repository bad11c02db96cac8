/* SPDX-License-Identifier: GPL-2.0-only */
/* Rules that keep a migration from losing data, as tests name them. */
#ifndef _MM_MIGRATE_OFFLOAD_RULES_H
#define _MM_MIGRATE_OFFLOAD_RULES_H

#include <linux/types.h>

/*
 * Switches that break one safety rule each, so that a test can show that it
 * would notice.  Constant false in every kernel but a test kernel.
 */
enum migrate_offload_rule {
	MO_RULE_REFCOUNT,	/* an excess reference is not eligible */
	MO_RULE_RETRY,		/* a copy is good for one attempt */
	MO_RULE_BUFFERS,	/* a folio with buffers is not eligible */
	MO_RULE_MAPPING,	/* nor one with a callback of its own */
	MO_RULE_POISON,		/* poison ends as in the ordinary path */
	MO_RULE_RESULT,		/* the result of each folio counts */
	MO_RULE_RESCHED,	/* copying gives way to others */
	MO_RULE_ORDER,		/* both lists keep the same order */
	MO_RULE_HOLD,		/* nobody writes where a device still may */
	NR_MO_RULES,
};

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_DEBUG
bool migrate_offload_broken(enum migrate_offload_rule rule);
#else
static inline bool migrate_offload_broken(enum migrate_offload_rule rule)
{
	return false;
}
#endif

#endif /* _MM_MIGRATE_OFFLOAD_RULES_H */
