/* SPDX-License-Identifier: GPL-2.0-only */
/* Safety rules of migration, which test kernels can break. */
#ifndef _MM_MIGRATE_OFFLOAD_BREAK_RULES_H
#define _MM_MIGRATE_OFFLOAD_BREAK_RULES_H

#include <linux/fs.h>
#include <linux/mm.h>

#include "copy.h"

struct dentry;

/*
 * A test breaks one of these rules to show that it detects the failure.  Only
 * test kernels can break rules.
 */
enum migrate_offload_rule {
	MO_RULE_REFCOUNT,	/* excess references exclude a folio */
	MO_RULE_RETRY,		/* a copy is good for one attempt */
	MO_RULE_BUFFERS,	/* buffers exclude a folio */
	MO_RULE_MAPPING,	/* an unknown callback excludes a folio */
	MO_RULE_POISON,		/* the CPU copies a poisoned folio */
	MO_RULE_RESULT,		/* each folio's own result counts */
	MO_RULE_RESCHED,	/* a copy calls cond_resched() */
	MO_RULE_ORDER,		/* both lists keep the same order */
	MO_RULE_HOLD,		/* the CPU does not write to held folios */
	/* Rules for small pages in runs: see mm/migrate_run/run.c. */
	MO_RULE_RUN_HINTS,	/* checks without locks exclude folios */
	MO_RULE_RUN_PAGE,	/* an entry to clear must map the page */
	MO_RULE_RUN_EXCLUSIVE,	/* the page must be exclusive */
	MO_RULE_RUN_POISON,	/* the page must not be poisoned */
	MO_RULE_RUN_PIN,	/* the page must have no other reference */
	MO_RULE_RUN_FLUSH,	/* TLBs are flushed before pages are copied */
	MO_RULE_RUN_JUDGE,	/* each entry tells if it needs a flush */
	MO_RULE_RUN_ENTRY,	/* an entry to map must be the source's */
	MO_RULE_RUN_SHARED,	/* the entry must be marked as exclusive */
	MO_RULE_RUN_LOCKED,	/* the VMA must not be mlocked */
	MO_RULE_RUN_REST,	/* an rmap walk maps all other entries */
	MO_RULE_RUN_NOTIFY,	/* mmu_notifiers run before unmapping */
	MO_RULE_RUN_NOTIFY_END,	/* mmu_notifiers run after unmapping */
	MO_RULE_FILE_REFS,	/* nobody has a reference to replaced cache */
	/* Rules for large folios in one step: see mm/migrate_run/ptes.c. */
	MO_RULE_PTES_PIN,	/* the pages of a pinned folio stay exclusive */
	MO_RULE_PTES_POISON,	/* a poisoned page gets no migration entry */
	MO_RULE_PTES_FLUSH,	/* TLBs are flushed before a folio is copied */
	/* Rules for exchanges: see mm/migrate_offload/exchange.c. */
	MO_RULE_EXCHANGE_PIN,	/* the folio must have no other reference */
	MO_RULE_EXCHANGE_POISON, /* a poisoned folio stays */
	MO_RULE_EXCHANGE_FLUSH,	/* TLBs are flushed before the exchange */
	MO_RULE_EXCHANGE_UNDO,	/* after a failed read, both are restored */
	NR_MO_RULES,
};

/*
 * A condition that keeps data safe.  While the rule is broken, a test kernel
 * treats the condition as false.
 */
#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_DEBUG
#define migrate_rule(_rule, _condition) \
	((_condition) && !migrate_offload_broken(MO_RULE_##_rule))
bool migrate_offload_broken(enum migrate_offload_rule rule);
bool migrate_offload_judge_late(struct mm_struct *mm, const pte_t *old,
				unsigned int nr);
/* Simulated machine checks, and moves with a broken rule. */
size_t migrate_offload_readable(struct page *page, size_t bytes);
int migrate_offload_set_bad_pfn(unsigned long pfn);
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

static inline size_t migrate_offload_readable(struct page *page, size_t bytes)
{
	return bytes;
}

static inline int migrate_offload_mc_copy(struct folio *dst, struct folio *src)
{
	return migrate_copy_folio(dst, src);
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
