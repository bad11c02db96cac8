/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Batch copy of migrating folios: the functions that other files of mm/ call,
 * and the functions of these files that the batch copy calls.  Other files of
 * mm/ include no other header of mm/migrate_offload/ or mm/migrate_run/.
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

/*
 * The list that migrate_pages() migrates now: which side copies it, and since
 * when the core times it.
 */
struct migrate_offload_section {
	bool by_cpu;			/* the CPU copies, despite an engine */
	int nr_before;			/* pages that moved before this list */
	struct migrate_attempt attempt;
};

/* One thread's wait for a folio that migrates. */
struct migrate_wait {
	int reason;			/* -1: not known */
	u64 start_ns;
};

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD

/* On while an engine is active, or while migration is measured or traced. */
DECLARE_STATIC_KEY_FALSE(migrate_offload_key);

unsigned int __migrate_offload_begin(struct migrate_windows **w,
				     struct migrate_offload_section *section,
				     const struct list_head *from, int reason);
void __migrate_offload_end(struct migrate_windows *w);
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

static inline void __migrate_offload_end(struct migrate_windows *w)
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
 * Begin a list.  Returns how many pages of @from migrate_pages_batch() may get.
 * @nr_succeeded pages of earlier lists have moved.
 *
 * The function may allocate @w.  The caller gives @w to migrate_pages_batch(),
 * and to migrate_offload_end() after the last list.
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

/*
 * Stop timing the list.  migrate_pages_batch() has moved the folios that need
 * no wait for a lock or a disk.  A second call does nothing.
 */
static inline void migrate_offload_note(struct migrate_offload_section *section,
					int nr_succeeded)
{
	if (unlikely(section->attempt.choice))
		migrate_attempt_end(&section->attempt,
				    nr_succeeded - section->nr_before);
}

/*
 * Returns how many pages of node @nid compaction isolates before it migrates
 * them, for a block of @order.
 */
static inline unsigned int migrate_offload_cluster(int nid, int order)
{
	if (migrate_offload_on())
		return __migrate_offload_cluster(nid, order);
	return COMPACT_CLUSTER_MAX;
}

/*
 * Does the list have windows?  Without windows, @w is NULL.  The core decides
 * this when a list begins, and a later change of migrate_offload_key has no
 * effect.
 */
static inline bool migrate_windows_on(const struct migrate_windows *w)
{
	return IS_ENABLED(CONFIG_MIGRATION_COPY_OFFLOAD) && unlikely(w);
}

/* Free @w after the last list. */
static inline void migrate_offload_end(struct migrate_windows *w)
{
	if (migrate_windows_on(w))
		__migrate_offload_end(w);
}

/* Was the last list longer than any list without windows? */
static inline bool migrate_windows_is_long(const struct migrate_windows *w)
{
	return migrate_windows_on(w) && w->is_long;
}

/*
 * Allocate a destination for @src, which is not locked yet.  With windows, the
 * core moves all unmapped folios before it waits for memory.
 */
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
 * Called before the core unmaps @folio.  @folio and its destination are locked.
 * May move other folios, and wait until the next window may begin.
 */
static inline void migrate_windows_admit(struct migrate_windows *w,
					 struct folio *folio)
{
	if (migrate_windows_on(w))
		__migrate_windows_admit(w, folio);
}

/*
 * Called before the core locks the folios of a run that begins with @folio.
 * Admits @folio.  Returns the most folios that the run may have.
 */
static inline unsigned int migrate_windows_room(struct migrate_windows *w,
						struct folio *folio)
{
	if (migrate_windows_on(w))
		return __migrate_windows_room(w, folio);
	return MIGRATE_RUN_MAX;
}

/*
 * Called after the core has unmapped @src.  Returns false without windows: the
 * caller adds both folios to the lists of the batch, as stock Linux does.
 */
static inline bool migrate_windows_add(struct migrate_windows *w,
				       struct folio *src, struct folio *dst)
{
	if (!migrate_windows_on(w))
		return false;
	__migrate_windows_add(w, src, dst);
	return true;
}

/*
 * Called after the core has unmapped the last folio of the list.  Moves all
 * unmapped folios.  Returns how many folios did not move.
 */
static inline int migrate_windows_finish(struct migrate_windows *w)
{
	return migrate_windows_on(w) ? __migrate_windows_finish(w) : 0;
}

/*
 * Time a thread that waits for a migrating folio.  The thread calls these
 * functions before and after its wait.
 */
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

/*
 * Do the hugetlb folios of the list have a session?  __migrate_huge_begin()
 * decides this, and a later change of migrate_offload_key has no effect.
 */
static inline bool migrate_huge_on(const struct migrate_huge *huge)
{
	return IS_ENABLED(CONFIG_MIGRATE_OFFLOAD_HUGETLB) &&
		unlikely(huge) && huge->session.on;
}

/*
 * Called before each hugetlb folio of @from.  If migrate_offload_key is on and
 * @huge is NULL, allocates @huge for the hugetlb folios of @from.
 */
static inline void migrate_huge_begin(struct migrate_huge **huge,
				      struct list_head *from,
				      enum migrate_mode mode, int reason)
{
	if (IS_ENABLED(CONFIG_MIGRATE_OFFLOAD_HUGETLB) &&
	    migrate_offload_on() && !*huge)
		*huge = __migrate_huge_begin(from, mode, reason);
}

/* Called before the core unmaps @src.  @src and its destination are locked. */
static inline void migrate_huge_admit(struct migrate_huge *huge,
				      struct folio *src)
{
	if (migrate_huge_on(huge))
		__migrate_huge_admit(huge, src);
}

/*
 * Let the engine copy @src, which is unmapped.  The TLBs are flushed.  Returns
 * where the content is afterwards.
 */
static inline enum migrate_content migrate_huge_copy(struct migrate_huge *huge,
						     struct folio *src,
						     struct folio *dst)
{
	if (migrate_huge_on(huge))
		return __migrate_huge_copy(huge, src, dst);
	return MIGRATE_CONTENT_SRC;
}

/*
 * Called after @src or its destination is mapped again.  @rc is the result of
 * the move.
 */
static inline void migrate_huge_end(struct migrate_huge *huge,
				    struct folio *src, int rc)
{
	if (migrate_huge_on(huge))
		__migrate_huge_end(huge, src, rc);
}

/*
 * The core migrates no more hugetlb folios of the list.  @nr_moved: base pages.
 */
static inline void migrate_huge_finish(struct migrate_huge *huge,
				       unsigned int nr_moved)
{
	if (IS_ENABLED(CONFIG_MIGRATE_OFFLOAD_HUGETLB) && unlikely(huge))
		__migrate_huge_finish(huge, nr_moved);
}

/* mm/migrate_offload/promote.c: queue folios, to promote them in batches. */
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
 * Queue a misplaced folio, which the caller has isolated, for promotion to node
 * @nid.  Returns true if the folio is queued: a worker migrates it later, or
 * puts it back, and the caller must not use it.  The caller holds the page
 * table lock.
 */
static inline bool migrate_promote_defer(struct folio *folio, int nid)
{
	return migrate_offload_on() && __migrate_promote_defer(folio, nid);
}

/*
 * Called if the caller could not isolate @folio.  Returns true, and sets @nid,
 * if @folio is queued for promotion to this node.  Do not report that to the
 * scheduler as a failure: it would scan the task's memory half as often.  Takes
 * a spinlock.
 */
static inline bool migrate_promote_waits(const struct folio *folio, int *nid)
{
	return migrate_offload_on() && __migrate_promote_waits(folio, nid);
}

/*
 * Wait until the worker has migrated all queued folios.  After a timeout, put
 * those back that the worker has not taken.  Sleeps.
 */
static inline void migrate_promote_flush(void)
{
	if (migrate_offload_on())
		__migrate_promote_flush();
}

/*
 * Called after an attempt to isolate a folio, which is the last of @pagelist if
 * @err is above 0.  Returns true if a CPU may have a folio in its LRU cache: it
 * is on no list, or has a reference of the cache.  The folio may also wait for
 * its promotion, or be unmapped by the worker and not be found.
 */
static inline bool migrate_may_be_cached(const struct list_head *pagelist,
					 int err)
{
	struct folio *folio;

	if (err <= 0)
		return err == -EBUSY || (err == -ENOENT && migrate_offload_on());
	folio = list_last_entry(pagelist, struct folio, lru);
	return !folio_test_hugetlb(folio) &&
		folio_ref_count(folio) > folio_expected_ref_count(folio) + 1;
}

/* mm/migrate.c: windows move a folio, or undo its unmapping. */
int migrate_windows_move_folio(struct migrate_windows *w, struct folio *src,
			       struct folio *dst,
			       enum migrate_content content);
void migrate_windows_undo_folio(struct migrate_windows *w, struct folio *src,
				struct folio *dst);

/* mm/migrate.c: mm/migrate_offload/promote.c calls these. */
struct folio *alloc_misplaced_dst_folio(struct folio *src, unsigned long data);
bool migrate_balanced_pgdat(struct pglist_data *pgdat,
			    unsigned long nr_migrate_pages);

#if defined(CONFIG_MEMCG) && defined(CONFIG_MIGRATION_COPY_OFFLOAD)
/* mm/memcontrol.c */
void mem_cgroup_count_migration(struct mem_cgroup *memcg, const u64 *nr);
#endif

#endif /* _MM_MIGRATE_OFFLOAD_HOOKS_H */
