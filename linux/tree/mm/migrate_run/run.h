/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Small anonymous folios of one process: migration unmaps and maps them in
 * runs.  See mm/migrate_run/run.c.
 */
#ifndef _MM_MIGRATE_RUN_RUN_H
#define _MM_MIGRATE_RUN_RUN_H

#include <linux/leafops.h>
#include <linux/list.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/rmap.h>
#include <linux/slab.h>

#include "../internal.h"
#include "../migrate_offload/break_rules.h"
#include "ptes.h"

struct migrate_windows;

/*
 * Where the content of a folio is when the folio is moved.  The first two can
 * move.
 */
enum migrate_content {
	MIGRATE_CONTENT_SRC,	/* in the source: copy it */
	MIGRATE_CONTENT_DST,	/* in the destination already */
	MIGRATE_CONTENT_HELD,	/* a device may write to the destination */
	MIGRATE_CONTENT_POISON,	/* lost: a read raised a machine check */
};

/* Like migrate_batch_ptes_on(), but keeps the code for runs out of line. */
#ifdef CONFIG_MIGRATE_BATCH_PTES
#define migrate_runs_on() static_branch_unlikely(&migrate_batch_ptes_key)
#else
#define migrate_runs_on() false
#endif

/*
 * The most folios of a run.  A moved folio stays unmapped until its run is
 * mapped.
 */
#define MIGRATE_RUN_MAX 32U

/*
 * Flush so many entries of a list one by one, and all others together, after the
 * last one is cleared.  x86 has the same limit for a range of addresses: see
 * tlb_single_page_flush_ceiling.
 */
#define MIGRATE_RUN_FLUSHES 33U

/*
 * The current run, on the stack of migrate_pages_batch(): folios of one
 * anon_vma.  The core unmaps them together, or has moved them and will map them
 * together.
 */
struct migrate_run {
	bool on;
	unsigned int max_nr;		/* of the next run, at first 1 */
	unsigned int nr_spared;		/* folios to skip before the next run */
	unsigned int nr_flushed;	/* entries of the list, not deferred */
	enum migrate_content content;	/* of the folio that is moved now */
	enum migrate_reason reason;
	unsigned int nr;
	struct anon_vma *anon_vma;
	struct migrate_windows *windows;	/* of the list, or NULL */
	/* MIGRATE_RUN_MAX each, allocated for the first run of a list. */
	struct folio **src;		/* locked, as are the destinations */
	struct folio **dst;
};

/*
 * Prepare for a list.  Only MIGRATE_ASYNC has runs: the other modes may wait
 * for locks or memory while a run is unmapped.
 */
static inline void migrate_run_init(struct migrate_run *run,
				    enum migrate_mode mode, int reason)
{
	run->on = migrate_batch_ptes_on() && mode == MIGRATE_ASYNC &&
		reason != MR_MEMORY_FAILURE;
	run->windows = NULL;
	run->src = NULL;
	run->max_nr = 1;
	run->nr_spared = 0;
	run->nr_flushed = 0;
	run->content = MIGRATE_CONTENT_SRC;
	run->reason = reason;
	run->nr = 0;
}

/*
 * Returns true if the folio is a small anonymous page that seems to have one
 * user.  Two references are those of the isolation and of one mapping.  Callers
 * ask without any lock, and again with the lock of the folio.
 */
static inline bool migrate_run_wants(struct folio *folio)
{
#ifdef CONFIG_MIGRATE_BATCH_PTES
	unsigned long not = BIT(PG_swapcache) | BIT(PG_writeback) |
		BIT(PG_mlocked) | BIT(PG_unevictable) | BIT(PG_head);
	unsigned long needed = 0;
	/* migrate_run_unmap_row() checks these again, with all locks held. */
	const bool hints = migrate_rule(RUN_HINTS, true);

	if (hints)
		needed |= BIT(PG_anon_exclusive);
#ifdef CONFIG_MEMORY_FAILURE
	if (hints)
		not |= BIT(PG_hwpoison);
#endif
	return (READ_ONCE(*const_folio_flags(folio, 0)) & (not | needed)) == needed &&
		((unsigned long)READ_ONCE(folio->mapping) &
		 FOLIO_MAPPING_FLAGS) == FOLIO_MAPPING_ANON &&
		(!hints || folio_ref_count(folio) == 2);
#else
	/* Without an MMU, some of these flags do not exist. */
	return false;
#endif
}

/* Returns true if a run should be tried: not soon after a failed run. */
static inline bool migrate_run_is_due(struct migrate_run *run)
{
	if (likely(!run->nr_spared))
		return run->on;
	run->nr_spared--;
	return false;
}

/* A run succeeded, so the next may have MIGRATE_RUN_MAX folios. */
static inline void migrate_run_trust(struct migrate_run *run)
{
	run->max_nr = MIGRATE_RUN_MAX;
}

#ifdef CONFIG_MIGRATE_BATCH_PTES
/* mm/migrate_run/gather.c */
void migrate_run_gather(struct migrate_run *run, struct list_head *from,
			struct folio *first, unsigned int max_nr,
			new_folio_t get_new_folio, free_folio_t put_new_folio,
			unsigned long private);
void migrate_run_note_failed(struct migrate_run *run);
void migrate_run_give_up(struct migrate_run *run, unsigned int nth,
			 free_folio_t put_new_folio, unsigned long private);

/* mm/migrate_run/move.c */
int migrate_run_move(struct folio *dst, struct folio *src, bool copy);

/* mm/migrate_run/run.c */
unsigned int migrate_run_unmap(struct migrate_run *run, struct list_head *from,
			       struct folio *first, unsigned int max_nr,
			       new_folio_t get_new_folio,
			       free_folio_t put_new_folio,
			       unsigned long private);
bool migrate_run_has_waiters(const struct migrate_run *run);
void migrate_run_map(struct migrate_run *run);

/* mm/migrate_run/isolate.c */
unsigned long migrate_isolate_run(struct mm_struct *mm,
				  const void __user *pages,
				  const int __user *nodes,
				  unsigned long nr_pages, int node, bool all,
				  struct list_head *pagelist);

/* mm/migrate_run/lru.c */
unsigned int migrate_lru_isolate(struct folio **folios, unsigned int nr);
void migrate_lru_add(struct folio **folios, unsigned int nr);
void migrate_isolated_mod(struct folio **folios, unsigned int nr, int delta);
void migrate_mapped_mod(struct folio **folios, unsigned int nr, int delta);
#else
static inline unsigned int
migrate_run_unmap(struct migrate_run *run, struct list_head *from,
		  struct folio *first, unsigned int max_nr,
		  new_folio_t get_new_folio, free_folio_t put_new_folio,
		  unsigned long private)
{
	return 0;
}

static inline int migrate_run_move(struct folio *dst, struct folio *src,
				   bool copy)
{
	return -EAGAIN;
}

static inline bool migrate_run_has_waiters(const struct migrate_run *run)
{
	return false;
}

static inline void migrate_run_map(struct migrate_run *run)
{
}

static inline unsigned long
migrate_isolate_run(struct mm_struct *mm, const void __user *pages,
		    const int __user *nodes, unsigned long nr_pages, int node,
		    bool all, struct list_head *pagelist)
{
	return 0;
}
#endif /* CONFIG_MIGRATE_BATCH_PTES */

/*
 * Returns true if migrate_isolate_run() is worth a try.  After a large folio,
 * the next folio is probably large, too.
 */
static inline bool migrate_isolate_more(const struct list_head *pagelist)
{
	return !folio_test_large(list_last_entry(pagelist, struct folio, lru));
}

/* Returns true if @src is the last folio of the run, and not mapped yet. */
static inline bool migrate_run_has(const struct migrate_run *run,
				   const struct folio *src)
{
	return run->nr && run->src[run->nr - 1] == src;
}

/* After this many moved folios, check whether a task waits for one. */
#define MIGRATE_RUN_LOOK 8

/*
 * Returns true if the core has to map the run now.  Its folios are ready, so a
 * task that needs one must not wait until others are copied.
 */
static inline bool migrate_run_is_due_to_map(const struct migrate_run *run)
{
	if (run->nr % MIGRATE_RUN_LOOK)
		return false;
	return run->nr == MIGRATE_RUN_MAX || migrate_run_has_waiters(run);
}

/**
 * migrate_run_take - add a moved folio to the run that will be mapped
 * @run: The run, which migrate_run_finish() maps at the latest.
 * @src: The source, which migrate_run_unmap() has unmapped.
 * @dst: The destination, which has the content.
 * @anon_vma: The anon_vma of both.  The run takes over a reference to it.
 */
static inline void migrate_run_take(struct migrate_run *run, struct folio *src,
				    struct folio *dst,
				    struct anon_vma *anon_vma)
{
	if (run->nr && run->anon_vma != anon_vma)
		migrate_run_map(run);
	run->anon_vma = anon_vma;
	run->src[run->nr] = src;
	run->dst[run->nr++] = dst;
	if (migrate_run_is_due_to_map(run))
		migrate_run_map(run);
}

/* Called after the last run.  One allocation holds both arrays. */
static inline void migrate_run_exit(struct migrate_run *run)
{
	kfree(run->src);
}

/* Map and release the folios of the run. */
static inline void migrate_run_finish(struct migrate_run *run)
{
	if (run->nr)
		migrate_run_map(run);
}

#endif /* _MM_MIGRATE_RUN_RUN_H */
