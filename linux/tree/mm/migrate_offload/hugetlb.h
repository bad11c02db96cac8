/* SPDX-License-Identifier: GPL-2.0-only */
/* hugetlb folios that an engine copies: what mm/migrate.c calls. */
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
	struct migrate_windows windows;	/* of which none is ever filled */
	struct list_head *from;
	union migrate_huge_part parts[2];	/* of two folios in turn */
	unsigned int turn;		/* whose part is that of the folio at hand */
	struct migrate_huge_ahead ahead;
	bool was_ahead;			/* the folio at hand */
	bool one_by_one;		/* two at once took too long */
	u64 done_task_ns;		/* the one before it was copied */
	struct migrate_attempt attempt;
};

#ifdef CONFIG_MIGRATE_OFFLOAD_HUGETLB
struct migrate_huge *__migrate_huge_begin(struct list_head *from,
					  enum migrate_mode mode, int reason);
void __migrate_huge_admit(struct migrate_huge *huge, struct folio *src);
void __migrate_huge_submit(struct migrate_huge *huge, struct folio *src,
			   struct folio *dst);
struct folio *__migrate_huge_next(struct migrate_huge *huge,
				  struct folio *src, struct folio *dst);
enum migrate_content __migrate_huge_copied(struct migrate_huge *huge);
void __migrate_huge_end(struct migrate_huge *huge, struct folio *src, int rc);
void __migrate_huge_finish(struct migrate_huge *huge, unsigned int nr_moved);
#else
static inline struct migrate_huge *
__migrate_huge_begin(struct list_head *from, enum migrate_mode mode, int reason)
{
	return NULL;
}

static inline void __migrate_huge_admit(struct migrate_huge *huge,
					struct folio *src)
{
}

static inline void __migrate_huge_submit(struct migrate_huge *huge,
					 struct folio *src, struct folio *dst)
{
}

static inline struct folio *__migrate_huge_next(struct migrate_huge *huge,
						struct folio *src,
						struct folio *dst)
{
	return NULL;
}

static inline enum migrate_content
__migrate_huge_copied(struct migrate_huge *huge)
{
	return MIGRATE_CONTENT_SRC;
}

static inline void __migrate_huge_end(struct migrate_huge *huge,
				      struct folio *src, int rc)
{
}

static inline void __migrate_huge_finish(struct migrate_huge *huge,
					 unsigned int nr_moved)
{
}
#endif

/* As for windows, this is decided once, and holds whatever becomes of the key. */
static inline bool migrate_huge_on(const struct migrate_huge *huge)
{
	return IS_ENABLED(CONFIG_MIGRATE_OFFLOAD_HUGETLB) &&
		unlikely(huge) && huge->windows.on;
}

/* @from has a hugetlb folio.  What is before it in the list is not one. */
static inline void migrate_huge_begin(struct migrate_huge **huge,
				      struct list_head *from,
				      enum migrate_mode mode, int reason)
{
	if (IS_ENABLED(CONFIG_MIGRATE_OFFLOAD_HUGETLB) &&
	    migrate_offload_on() && !*huge)
		*huge = __migrate_huge_begin(from, mode, reason);
}

/* Both folios are locked, and @src is about to be unmapped. */
static inline void migrate_huge_admit(struct migrate_huge *huge,
				      struct folio *src)
{
	if (migrate_huge_on(huge))
		__migrate_huge_admit(huge, src);
}

/* It is unmapped, and the TLBs are flushed: the engine may begin. */
static inline void migrate_huge_submit(struct migrate_huge *huge,
				       struct folio *src, struct folio *dst)
{
	if (migrate_huge_on(huge))
		__migrate_huge_submit(huge, src, dst);
}

/* Which folio is to be unmapped while the engine copies @src?  NULL: none. */
static inline struct folio *migrate_huge_next(struct migrate_huge *huge,
					      struct folio *src,
					      struct folio *dst)
{
	if (migrate_huge_on(huge))
		return __migrate_huge_next(huge, src, dst);
	return NULL;
}

/* That was done with @src; NULL: it could not be. */
static inline void migrate_huge_put_ahead(struct migrate_huge *huge,
					  struct folio *src, struct folio *dst,
					  struct anon_vma *anon_vma)
{
	huge->ahead = (struct migrate_huge_ahead) {
		.src = src,
		.dst = dst,
		.anon_vma = anon_vma,
	};
}

/* Was it done with this one, whose turn it is now? */
static inline bool migrate_huge_take_ahead(struct migrate_huge *huge,
					   const struct folio *src,
					   struct folio **dst,
					   struct anon_vma **anon_vma)
{
	if (!migrate_huge_on(huge))
		return false;
	huge->was_ahead = huge->ahead.src == src;
	if (!huge->was_ahead)
		return false;
	*dst = huge->ahead.dst;
	*anon_vma = huge->ahead.anon_vma;
	huge->ahead.src = NULL;
	huge->turn = !huge->turn;
	return true;
}

/* The engine was to copy it.  Where is its content now? */
static inline enum migrate_content migrate_huge_copied(struct migrate_huge *huge)
{
	if (migrate_huge_on(huge))
		return __migrate_huge_copied(huge);
	return MIGRATE_CONTENT_SRC;
}

/* It is in reach again, moved or not. */
static inline void migrate_huge_end(struct migrate_huge *huge,
				    struct folio *src, int rc)
{
	if (migrate_huge_on(huge))
		__migrate_huge_end(huge, src, rc);
}

/* Nothing more will be unmapped.  @nr_moved: base pages. */
static inline void migrate_huge_finish(struct migrate_huge *huge,
				       unsigned int nr_moved)
{
	if (IS_ENABLED(CONFIG_MIGRATE_OFFLOAD_HUGETLB) && unlikely(huge))
		__migrate_huge_finish(huge, nr_moved);
}

#endif /* _MM_MIGRATE_OFFLOAD_HUGETLB_H */
