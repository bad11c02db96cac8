/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Batch copy of migrating folios: all that other files of mm/ call, and what it
 * calls there.  They include no other header of mm/migrate_offload/ or
 * mm/migrate_run/.
 */
#ifndef _MM_MIGRATE_OFFLOAD_HOOKS_H
#define _MM_MIGRATE_OFFLOAD_HOOKS_H

#include <linux/jump_label.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/swap.h>

#include "../migrate_run/run.h"
#include "break_rules.h"
#include "choice.h"
#include "hugetlb.h"
#include "internal.h"
#include "payers.h"

struct pglist_data;

/* A list that is on its way: who copies it, and since when. */
struct migrate_offload_section {
	bool by_cpu;			/* though an engine is active */
	int nr_before;			/* pages that the call had moved */
	struct migrate_attempt attempt;
};

/* One thread's wait for a folio that migrates. */
struct migrate_wait {
	int reason;			/* -1: not known */
	u64 start_ns;
};

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD

/* On while an engine is active, or the batch copy is measured or traced. */
DECLARE_STATIC_KEY_FALSE(migrate_offload_key);

unsigned int __migrate_offload_begin(struct migrate_windows **w,
				     struct migrate_offload_section *section,
				     const struct list_head *from, int reason);
void migrate_offload_end(struct migrate_windows *w);
struct folio *migrate_new_folio_nowait(new_folio_t get_new_folio,
				       struct folio *src,
				       unsigned long private);
struct folio *__migrate_windows_new_folio(struct migrate_windows *w,
					  new_folio_t get_new_folio,
					  struct folio *src,
					  unsigned long private);
unsigned int __migrate_offload_cluster(int nid, int order);
unsigned long __migrate_offload_demote_pages(int dst_nid, unsigned long most);
void __migrate_windows_begin(struct migrate_windows *w, struct list_head *from);
void __migrate_windows_admit(struct migrate_windows *w, struct folio *folio);
unsigned int __migrate_windows_room(struct migrate_windows *w,
				    struct folio *folio);
void __migrate_windows_add(struct migrate_windows *w, struct folio *src,
			   struct folio *dst);
int __migrate_windows_finish(struct migrate_windows *w);
void __migrate_wait_begin(struct migrate_wait *wait, const struct folio *folio);
void __migrate_wait_end(const struct migrate_wait *wait);

#define migrate_offload_on() static_branch_unlikely(&migrate_offload_key)
#else
#define migrate_offload_on() false

static inline unsigned int
__migrate_offload_begin(struct migrate_windows **w,
			struct migrate_offload_section *section,
			const struct list_head *from, int reason)
{
	return MIGRATE_STOCK_BATCH_PAGES;
}

static inline void migrate_attempt_end(struct migrate_attempt *attempt,
				       unsigned int pages)
{
}

static inline void migrate_offload_end(struct migrate_windows *w)
{
}

static inline struct folio *
migrate_new_folio_nowait(new_folio_t get_new_folio, struct folio *src,
			 unsigned long private)
{
	return get_new_folio(src, private);
}

static inline struct folio *
__migrate_windows_new_folio(struct migrate_windows *w,
			    new_folio_t get_new_folio, struct folio *src,
			    unsigned long private)
{
	return NULL;
}

static inline unsigned int __migrate_offload_cluster(int nid, int order)
{
	return COMPACT_CLUSTER_MAX;
}

static inline unsigned long __migrate_offload_demote_pages(int dst_nid,
							   unsigned long most)
{
	return 0;
}

static inline void __migrate_windows_begin(struct migrate_windows *w,
					   struct list_head *from)
{
}

static inline void __migrate_windows_admit(struct migrate_windows *w,
					   struct folio *folio)
{
}

static inline unsigned int __migrate_windows_room(struct migrate_windows *w,
						  struct folio *folio)
{
	return 0;
}

static inline void __migrate_windows_add(struct migrate_windows *w,
					 struct folio *src, struct folio *dst)
{
}

static inline int __migrate_windows_finish(struct migrate_windows *w)
{
	return 0;
}

static inline void __migrate_wait_begin(struct migrate_wait *wait,
					const struct folio *folio)
{
}

static inline void __migrate_wait_end(const struct migrate_wait *wait)
{
}
#endif /* CONFIG_MIGRATION_COPY_OFFLOAD */

/*
 * How many pages may the next call of migrate_pages_batch() get, of those in @from?
 * @w is what it is to be given with them, and migrate_offload_end() in the end.  So
 * far @nr_succeeded were moved.
 */
static inline unsigned int
migrate_offload_begin(struct migrate_windows **w,
		      struct migrate_offload_section *section,
		      const struct list_head *from, int reason,
		      int nr_succeeded)
{
	section->by_cpu = false;
	section->attempt.choice = NULL;
	if (!migrate_offload_on())
		return MIGRATE_STOCK_BATCH_PAGES;
	section->nr_before = nr_succeeded;
	return __migrate_offload_begin(w, section, from, reason);
}

/* The list is through, and what could not be moved at once is left. */
static inline void migrate_offload_note(struct migrate_offload_section *section,
					int nr_succeeded)
{
	if (unlikely(section->attempt.choice))
		migrate_attempt_end(&section->attempt,
				    nr_succeeded - section->nr_before);
}

/* How many pages is compaction to isolate before it migrates them? */
static inline unsigned int migrate_offload_cluster(int nid, int order)
{
	if (migrate_offload_on())
		return __migrate_offload_cluster(nid, order);
	return COMPACT_CLUSTER_MAX;
}

/*
 * Whether a batch is worked through in windows is decided when it begins, and
 * stays so, whatever becomes of the static key meanwhile: else @w is NULL.
 */
static inline bool migrate_windows_on(const struct migrate_windows *w)
{
	return IS_ENABLED(CONFIG_MIGRATION_COPY_OFFLOAD) && unlikely(w);
}

/* Did migrate_pages_batch() get more than it ever gets without windows? */
static inline bool migrate_windows_is_long(const struct migrate_windows *w)
{
	return migrate_windows_on(w) && w->is_long;
}

/* A destination for a folio that is not locked yet. */
static inline struct folio *
migrate_windows_new_folio(struct migrate_windows *w, new_folio_t get_new_folio,
			  struct folio *src, unsigned long private)
{
	if (migrate_windows_on(w))
		return __migrate_windows_new_folio(w, get_new_folio, src,
						   private);
	return get_new_folio(src, private);
}

/*
 * Both folios are locked, and @folio is about to be unmapped.  May move others, and
 * wait until it is time.
 */
static inline void migrate_windows_admit(struct migrate_windows *w,
					 struct folio *folio)
{
	if (migrate_windows_on(w))
		__migrate_windows_admit(w, folio);
}

/* As above, and says how many small folios may be unmapped with that one. */
static inline unsigned int migrate_windows_room(struct migrate_windows *w,
						struct folio *folio)
{
	if (migrate_windows_on(w))
		return __migrate_windows_room(w, folio);
	return MIGRATE_RUN_MAX;
}

/* It is unmapped.  False: it belongs on the lists of the batch, as ever. */
static inline bool migrate_windows_add(struct migrate_windows *w,
				       struct folio *src, struct folio *dst)
{
	if (!migrate_windows_on(w))
		return false;
	__migrate_windows_add(w, src, dst);
	return true;
}

/* Nothing more will be unmapped.  Returns how many could not be moved. */
static inline int migrate_windows_finish(struct migrate_windows *w)
{
	return migrate_windows_on(w) ? __migrate_windows_finish(w) : 0;
}

/* A thread is about to wait for a folio that migrates, and has waited. */
static inline void migrate_wait_begin(struct migrate_wait *wait,
				      const struct folio *folio)
{
	wait->reason = -1;
	if (migrate_offload_on())
		__migrate_wait_begin(wait, folio);
}

static inline void migrate_wait_end(const struct migrate_wait *wait)
{
	if (IS_ENABLED(CONFIG_MIGRATION_COPY_OFFLOAD) &&
	    unlikely(wait->reason >= 0))
		__migrate_wait_end(wait);
}

/* hugetlb folios that an engine copies. */
#ifdef CONFIG_MIGRATE_OFFLOAD_HUGETLB
struct migrate_huge *__migrate_huge_begin(struct list_head *from,
					  enum migrate_mode mode, int reason);
void __migrate_huge_admit(struct migrate_huge *huge, struct folio *src);
enum migrate_content __migrate_huge_copy(struct migrate_huge *huge,
					 struct folio *src, struct folio *dst);
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

static inline enum migrate_content
__migrate_huge_copy(struct migrate_huge *huge, struct folio *src,
		    struct folio *dst)
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
		unlikely(huge) && huge->session.on;
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

/* @src is unmapped, and no TLB has it.  Returns where the content is afterwards. */
static inline enum migrate_content migrate_huge_copy(struct migrate_huge *huge,
						     struct folio *src,
						     struct folio *dst)
{
	if (migrate_huge_on(huge))
		return __migrate_huge_copy(huge, src, dst);
	return MIGRATE_CONTENT_SRC;
}

/* @src is mapped again, or its destination is. */
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

/* Promotions gather into batches. */
#ifdef CONFIG_MIGRATE_PROMOTE
bool __migrate_promote_defer(struct folio *folio, int nid);
bool __migrate_promote_waits(const struct folio *folio, int *nid);
void __migrate_promote_flush(void);
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

/* mm/migrate.c: what windows do with one folio. */
int migrate_windows_move_folio(struct migrate_windows *w, struct folio *src,
			       struct folio *dst,
			       enum migrate_content content);
void migrate_windows_undo_folio(struct migrate_windows *w, struct folio *src,
				struct folio *dst);

/* mm/migrate.c: what promotion calls. */
struct folio *alloc_misplaced_dst_folio(struct folio *src, unsigned long data);
bool migrate_balanced_pgdat(struct pglist_data *pgdat,
			    unsigned long nr_migrate_pages);

#if defined(CONFIG_MEMCG) && defined(CONFIG_MIGRATION_COPY_OFFLOAD)
/* mm/memcontrol.c */
void mem_cgroup_count_migration(struct mem_cgroup *memcg, const u64 *nr);
#endif

#endif /* _MM_MIGRATE_OFFLOAD_HOOKS_H */
