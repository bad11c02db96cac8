/* SPDX-License-Identifier: GPL-2.0-only */
/* Rules that keep a migration from losing data, as tests name them. */
#ifndef _MM_MIGRATE_OFFLOAD_BREAK_RULES_H
#define _MM_MIGRATE_OFFLOAD_BREAK_RULES_H

#include <linux/fs.h>
#include <linux/mm.h>

struct dentry;

/*
 * Switches that break one safety rule each, so that a test can show that it
 * would notice.  Only test kernels have them.
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
	/* Rules for small pages in runs: see mm/migrate_run/run.c. */
	MO_RULE_RUN_HINTS,	/* what is asked without locks is believed */
	MO_RULE_RUN_PAGE,	/* an entry is cleared if it maps the page */
	MO_RULE_RUN_EXCLUSIVE,	/* and the page is exclusive */
	MO_RULE_RUN_POISON,	/* and not poisoned */
	MO_RULE_RUN_PIN,	/* and nobody else has a reference */
	MO_RULE_RUN_FLUSH,	/* TLBs are flushed before pages are copied */
	MO_RULE_RUN_JUDGE,	/* each entry says whether they need to be */
	MO_RULE_RUN_ENTRY,	/* an entry is mapped if it is the source's */
	MO_RULE_RUN_SHARED,	/* and there is no other one */
	MO_RULE_RUN_LOCKED,	/* and its VMA is not mlocked */
	MO_RULE_RUN_REST,	/* what is not mapped then is looked for */
	MO_RULE_RUN_NOTIFY,	/* those who follow page tables are told */
	MO_RULE_RUN_NOTIFY_END,	/* and told when it is over */
	/* Rules for large folios in one step: see mm/migrate_run/ptes.c. */
	MO_RULE_PTES_PIN,	/* the pages of a pinned folio stay exclusive */
	MO_RULE_PTES_POISON,	/* a poisoned page gets no migration entry */
	MO_RULE_PTES_FLUSH,	/* TLBs are flushed before a folio is copied */
	NR_MO_RULES,
};

/*
 * A condition that keeps data safe.  In a test kernel it does not hold while its
 * rule is broken.  In every other kernel this is just the condition.
 */
#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_DEBUG
#define migrate_rule(_rule, _condition) \
	((_condition) && !migrate_offload_broken(MO_RULE_##_rule))
bool migrate_offload_broken(enum migrate_offload_rule rule);
bool migrate_offload_judge_late(struct mm_struct *mm, const pte_t *old,
				unsigned int nr);
/* Where a copy meets a machine check that is made up, or a rule that is broken. */
bool migrate_offload_bad_page(struct page *page);
int migrate_offload_mc_copy(struct folio *dst, struct folio *src);
bool migrate_offload_unsafe(struct address_space *mapping, struct folio *src);
int migrate_offload_move_unsafe(struct address_space *mapping,
				struct folio *dst, struct folio *src,
				enum migrate_mode mode);
void migrate_break_rules_add_files(struct dentry *dir);
#else
#define migrate_rule(_rule, _condition) ((void)MO_RULE_##_rule, (_condition))

static inline bool migrate_offload_judge_late(struct mm_struct *mm,
					      const pte_t *old, unsigned int nr)
{
	return true;
}

static inline bool migrate_offload_bad_page(struct page *page)
{
	return false;
}

static inline int migrate_offload_mc_copy(struct folio *dst, struct folio *src)
{
	return folio_mc_copy(dst, src);
}

static inline bool migrate_offload_unsafe(struct address_space *mapping,
					  struct folio *src)
{
	return false;
}

static inline int migrate_offload_move_unsafe(struct address_space *mapping,
					      struct folio *dst,
					      struct folio *src,
					      enum migrate_mode mode)
{
	return -EAGAIN;
}

static inline void migrate_break_rules_add_files(struct dentry *dir)
{
}
#endif /* CONFIG_MIGRATION_COPY_OFFLOAD_DEBUG */

#endif /* _MM_MIGRATE_OFFLOAD_BREAK_RULES_H */
