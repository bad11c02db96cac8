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
 * The core keeps times for each order of the page allocator, and then for each
 * size of hugetlb folios.  hugetlb folios have their own times, because no
 * window contains them.
 */
#define MIGRATE_NR_PACES (NR_PAGE_ORDERS + MIGRATE_NR_HUGE_PACES)

/* Room to describe a folio to an engine: a part with one pair. */
union migrate_huge_part {
	struct migrate_part part;
	u8 room[struct_size_t(struct migrate_part, copy.pairs, 1)];
};

/*
 * One call of migrate_hugetlbs(), from the first hugetlb folio at which
 * migrate_offload_key is on.
 */
struct migrate_huge {
	struct migrate_session session;
	union migrate_huge_part part;	/* the folio that is migrated now */
	struct migrate_attempt attempt;
};

#endif /* _MM_MIGRATE_OFFLOAD_HUGETLB_H */
