/* SPDX-License-Identifier: GPL-2.0-only */
/* hugetlb folios that an engine copies. */
#ifndef _MM_MIGRATE_OFFLOAD_HUGETLB_H
#define _MM_MIGRATE_OFFLOAD_HUGETLB_H

#include <linux/hugetlb.h>
#include <linux/list.h>
#include <linux/mmzone.h>
#include <linux/overflow.h>

#include "internal.h"

#ifdef CONFIG_HUGETLB_PAGE
#define MIGRATE_NR_HUGE_PACES HUGE_MAX_HSTATE
#else
#define MIGRATE_NR_HUGE_PACES 0
#endif

/*
 * Times are kept for each order that the page allocator knows, and behind these
 * for each size of hugetlb folios: some are larger, and none is in a window.
 */
#define MIGRATE_NR_PACES (NR_PAGE_ORDERS + MIGRATE_NR_HUGE_PACES)

/* Room to describe a folio to an engine: a part with one pair. */
union migrate_huge_part {
	struct migrate_part part;
	u8 room[struct_size_t(struct migrate_part, copy.pairs, 1)];
};

/*
 * A folio that is unmapped before its turn comes.  It stays in the list, locked as
 * its destination is.
 */
struct migrate_huge_ahead {
	struct folio *src;		/* NULL: there is none */
	struct folio *dst;
	struct anon_vma *anon_vma;
};

/*
 * One call of migrate_hugetlbs(), from the first folio on for which an engine is
 * active.
 */
struct migrate_huge {
	struct migrate_session session;
	struct list_head *from;
	union migrate_huge_part parts[2];	/* of two folios in turn */
	unsigned int turn;		/* whose part is that of the folio at hand */
	struct migrate_huge_ahead ahead;
	bool was_ahead;			/* the folio at hand */
	bool one_by_one;		/* two at once took too long */
	u64 done_task_ns;		/* the one before it was copied */
	struct migrate_attempt attempt;
};

#endif /* _MM_MIGRATE_OFFLOAD_HUGETLB_H */
