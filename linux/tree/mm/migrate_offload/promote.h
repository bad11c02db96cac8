/* SPDX-License-Identifier: GPL-2.0-only */
/* Promotions gather into batches: see mm/migrate_offload/promote.c. */
#ifndef _MM_MIGRATE_OFFLOAD_PROMOTE_H
#define _MM_MIGRATE_OFFLOAD_PROMOTE_H

#include <linux/types.h>

#include "internal.h"

struct attribute_group;
struct folio;
struct pglist_data;

/* mm/migrate.c */
struct folio *alloc_misplaced_dst_folio(struct folio *src, unsigned long data);
bool migrate_balanced_pgdat(struct pglist_data *pgdat,
			    unsigned long nr_migrate_pages);

extern const struct attribute_group migrate_promote_group;

#ifdef CONFIG_MIGRATE_PROMOTE
bool __migrate_promote_defer(struct folio *folio, int nid);
bool __migrate_promote_waits(const struct folio *folio, int *nid);
void __migrate_promote_flush(void);
void migrate_promote_prepare(void);
#else
static inline bool __migrate_promote_defer(struct folio *folio, int nid)
{
	return false;
}

static inline bool __migrate_promote_waits(const struct folio *folio, int *nid)
{
	return false;
}

static inline void __migrate_promote_flush(void)
{
}

static inline void migrate_promote_prepare(void)
{
}
#endif /* CONFIG_MIGRATE_PROMOTE */

/*
 * A folio is misplaced, and isolated.  True: it is migrated to node @nid later,
 * with others, or put back; it is not the caller's any more.  Called with the
 * lock of its page table held.
 */
static inline bool migrate_promote_defer(struct folio *folio, int nid)
{
	return migrate_offload_on() && __migrate_promote_defer(folio, nid);
}

/*
 * A folio could not be isolated.  True: the reason is that it waits to be
 * migrated to node @nid.  The scheduler must not take this for a failure: it would
 * look at the memory of this task half as often.  Takes a spinlock.
 */
static inline bool migrate_promote_waits(const struct folio *folio, int *nid)
{
	return migrate_offload_on() && __migrate_promote_waits(folio, nid);
}

/* Have all that wait moved or put back.  Sleeps. */
static inline void migrate_promote_flush(void)
{
	if (migrate_offload_on())
		__migrate_promote_flush();
}

#endif /* _MM_MIGRATE_OFFLOAD_PROMOTE_H */
