/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Copies of folios by a CPU: of moves without an engine, of the engines of CPUs,
 * and of hugetlb.  See copy.c.
 */
#ifndef _MM_MIGRATE_OFFLOAD_COPY_H
#define _MM_MIGRATE_OFFLOAD_COPY_H

#include <linux/jump_label.h>
#include <linux/mm.h>
#include <linux/sizes.h>
#include <linux/types.h>

struct kobj_attribute;

enum migrate_copy_routine {
	MIGRATE_COPY_PAGES,		/* page by page, as stock Linux does */
	/* These bypass the caches. */
	MIGRATE_COPY_NONTEMPORAL,	/* MOVNTI: 8 bytes at once */
	MIGRATE_COPY_DIRECT,		/* MOVDIR64B: a line at once */
	NR_MIGRATE_COPY_ROUTINES,
};

/*
 * Folios that are at least this large may bypass the caches, also if several
 * CPUs copy small parts of them.  A program that reads a smaller folio at once
 * would lose more than the copy gains.
 */
#define MIGRATE_COPY_LARGE_BYTES SZ_256K

int migrate_copy_by(enum migrate_copy_routine routine, struct folio *dst,
		    struct folio *src, size_t offset, size_t bytes,
		    bool resched);
int migrate_copy_span(struct folio *dst, struct folio *src, size_t offset,
		      size_t bytes, bool resched);

#ifdef CONFIG_MIGRATE_COPY_ROUTINES
/* copy_routine.c: the routine of large folios, and whether it is not "pages". */
extern enum migrate_copy_routine migrate_copy_routine;
DECLARE_STATIC_KEY_FALSE(migrate_copy_key);
extern struct kobj_attribute migrate_copy_routine_attr;
extern struct kobj_attribute migrate_copy_routine_reason_attr;

bool migrate_copy_has(enum migrate_copy_routine routine);
void migrate_copy_use(enum migrate_copy_routine routine);

/* A change may be seen late: any routine copies. */
#define migrate_copy_large_routine()				\
	(static_branch_unlikely(&migrate_copy_key) ?		\
	 READ_ONCE(migrate_copy_routine) : MIGRATE_COPY_PAGES)
#else
#define migrate_copy_large_routine() MIGRATE_COPY_PAGES
#endif

/*
 * Copy a whole folio.  Returns 0 or -EHWPOISON, as folio_mc_copy(), which this
 * is unless the folio bypasses the caches.  May sleep.
 */
static inline int migrate_copy_folio(struct folio *dst, struct folio *src)
{
	enum migrate_copy_routine routine = migrate_copy_large_routine();

	if (routine != MIGRATE_COPY_PAGES &&
	    folio_size(src) >= MIGRATE_COPY_LARGE_BYTES)
		return migrate_copy_by(routine, dst, src, 0, folio_size(src),
				       true);
	return folio_mc_copy(dst, src);
}

#endif /* _MM_MIGRATE_OFFLOAD_COPY_H */
