/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Folios of one mapping: migration unmaps and maps them in runs.  See
 * mm/migrate_run/run.c, large.c and shared.c.
 */
#ifndef _MM_MIGRATE_RUN_RUN_H
#define _MM_MIGRATE_RUN_RUN_H

#include <linux/leafops.h>
#include <linux/list.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/rmap.h>
#include <linux/sizes.h>
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

/* The most pages of a run of large folios, and of one of its folios. */
#define MIGRATE_RUN_PAGES (SZ_512K >> PAGE_SHIFT)

/*
 * Flush so many entries of a list one by one, and all others together, after the
 * last one is cleared.  x86 has the same limit for a range of addresses: see
 * tlb_single_page_flush_ceiling.
 */
#define MIGRATE_RUN_FLUSHES 33U

/* The folios of a run are of one kind. */
enum migrate_run_kind {
	MIGRATE_RUN_NONE,
	MIGRATE_RUN_EXCLUSIVE,	/* anonymous, mapped once, exclusive */
	MIGRATE_RUN_LARGE,	/* the same, large and of one size */
	MIGRATE_RUN_SHARED,	/* anonymous, with any number of mappings */
	MIGRATE_RUN_FILE,	/* page cache, perhaps mapped */
};

/* The state of folios before their run.  mm/migrate.c keeps these bits. */
#define MIGRATE_WAS_MAPPED BIT(0)	/* a process may have mapped it */
#define MIGRATE_WAS_SHARED BIT(1)	/* it was not exclusive */

/*
 * The current run, on the stack of migrate_pages_batch(): folios of one mapping.
 * The core unmaps them together, or has moved them and will map them together.
 */
struct migrate_run {
	bool on;
	unsigned int max_nr;		/* of the next run, at first 1 */
	unsigned int nr_spared;		/* folios to skip before the next run */
	unsigned int nr_flushed;	/* entries of the list, not deferred */
	enum migrate_content content;	/* of the folio that is moved now */
	enum migrate_reason reason;
	enum migrate_run_kind kind;	/* of the folios that are unmapped now */
	bool partial;			/* so is a part of the next folio */
	unsigned int order;		/* of the folios that are mapped now */
	unsigned int was;		/* MIGRATE_WAS_* of all folios */
	unsigned int nr;
	struct anon_vma *anon_vma;	/* NULL: the folios are page cache */
	struct migrate_windows *windows;	/* of the list, or NULL */
	/* MIGRATE_RUN_MAX each, allocated for the first run of a list. */
	struct folio **src;		/* locked, as are the destinations */
	struct folio **dst;
	struct folio **picked;		/* those of a row that a process maps */
};

/*
 * Prepare for a list.  Only MIGRATE_ASYNC has runs: the other modes may wait
 * for locks or memory while a run is unmapped.  A run of one small folio, as
 * promotion has it, spares nothing.
 */
static inline void migrate_run_init(struct migrate_run *run,
				    const struct list_head *from,
				    enum migrate_mode mode, int reason)
{
	run->on = migrate_batch_ptes_on() && mode == MIGRATE_ASYNC &&
		reason != MR_MEMORY_FAILURE &&
		(!list_is_singular(from) ||
		 folio_test_large(list_first_entry(from, struct folio, lru)));
	run->windows = NULL;
	run->src = NULL;
	run->max_nr = 1;
	run->nr_spared = 0;
	run->nr_flushed = 0;
	run->content = MIGRATE_CONTENT_SRC;
	run->reason = reason;
	run->nr = 0;
}

#ifdef CONFIG_MIGRATE_BATCH_PTES
/* mm/migrate_run/large.c */
enum migrate_run_kind migrate_large_kind(struct folio *folio, bool exclusive);
#endif

/*
 * Returns the kind of run that may have the folio: none for KSM, or a folio with
 * other references than those of the isolation, the mappings and the page cache.
 * Callers ask without any lock, and again with the lock of the folio.
 */
static inline enum migrate_run_kind migrate_run_kind(struct folio *folio)
{
#ifdef CONFIG_MIGRATE_BATCH_PTES
	/* PG_swapcache is PG_checked for some file systems. */
	unsigned long not = BIT(PG_swapcache) | BIT(PG_writeback) |
		BIT(PG_mlocked) | BIT(PG_unevictable);
	unsigned long flags = READ_ONCE(*const_folio_flags(folio, 0));
	unsigned long mapping = (unsigned long)READ_ONCE(folio->mapping);
	/* The functions that unmap check these again, with all locks held. */
	const bool hints = migrate_rule(RUN_HINTS, true);
	int refs = folio_ref_count(folio);

#ifdef CONFIG_MEMORY_FAILURE
	if (hints)
		not |= BIT(PG_hwpoison);
#endif
	if (unlikely(flags & (not | BIT(PG_head))))
		return !(flags & not) &&
		       (mapping & FOLIO_MAPPING_FLAGS) == FOLIO_MAPPING_ANON ?
			migrate_large_kind(folio, flags & BIT(PG_anon_exclusive)) :
			MIGRATE_RUN_NONE;
	if ((mapping & FOLIO_MAPPING_FLAGS) == FOLIO_MAPPING_ANON) {
		if (!hints || (flags & BIT(PG_anon_exclusive) && refs == 2))
			return MIGRATE_RUN_EXCLUSIVE;
		return refs == folio_mapcount(folio) + 1 &&
			!(flags & BIT(PG_anon_exclusive)) ?
			MIGRATE_RUN_SHARED : MIGRATE_RUN_NONE;
	}
	if (!mapping || mapping & FOLIO_MAPPING_FLAGS ||
	    flags & BIT(PG_private))
		return MIGRATE_RUN_NONE;
	return !hints || refs == folio_mapcount(folio) + 2 ?
		MIGRATE_RUN_FILE : MIGRATE_RUN_NONE;
#else
	/* Without an MMU, some of these flags do not exist. */
	return MIGRATE_RUN_NONE;
#endif
}

/*
 * Returns true if a run should be tried, from @first on: not soon after a failed
 * run.
 */
static inline bool migrate_run_is_due(struct migrate_run *run,
				      struct folio *first)
{
	if (likely(!run->nr_spared)) {
		if (!run->on)
			return false;
		run->kind = migrate_run_kind(first);
		return run->kind != MIGRATE_RUN_NONE;
	}
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

/* mm/migrate_run/shared.c */
unsigned int migrate_shared_unmap(struct migrate_run *run);
void migrate_shared_map(struct migrate_run *run);

/* mm/migrate_run/file.c */
bool migrate_file_in_use(struct folio *src);
int migrate_file_replace(struct folio *dst, struct folio *src);
void migrate_file_count(const struct migrate_run *run);

/* mm/migrate_run/isolate.c */
unsigned long migrate_isolate_run(struct mm_struct *mm,
				  const void __user *pages,
				  const int __user *nodes,
				  unsigned long nr_pages, int node, bool all,
				  bool drained, struct list_head *pagelist);

/* Folios with the same value have the same memory cgroup. */
static inline unsigned long migrate_lru_memcg_data(const struct folio *folio)
{
#ifdef CONFIG_MEMCG
	return READ_ONCE(folio->memcg_data);
#else
	return 0;
#endif
}

/* mm/migrate_run/lru.c */
unsigned int migrate_lru_isolate(struct folio **folios, unsigned int nr,
				 int nr_pages);
void migrate_lru_add(struct folio **folios, unsigned int nr, int nr_pages);
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
		    bool all, bool drained, struct list_head *pagelist)
{
	return 0;
}
#endif /* CONFIG_MIGRATE_BATCH_PTES */

/*
 * Returns true if migrate_isolate_run() is worth a try.  After a huge page, the
 * next address probably has no page table, too.
 */
static inline bool migrate_isolate_more(const struct list_head *pagelist)
{
	return folio_order(list_last_entry(pagelist, struct folio, lru)) <
		PMD_ORDER;
}

/* Returns true if @src is the last folio of the run, and not mapped yet. */
static inline bool migrate_run_has(const struct migrate_run *run,
				   const struct folio *src)
{
	return run->nr && run->src[run->nr - 1] == src;
}

/* After this many moved pages, check whether a task waits for one. */
#define MIGRATE_RUN_LOOK 8

/*
 * Returns true if the core has to map the run now.  Its folios are ready, so a
 * task that needs one must not wait until others are copied.
 */
static inline bool migrate_run_is_due_to_map(const struct migrate_run *run)
{
	bool full = run->nr == MIGRATE_RUN_MAX;
	unsigned int nr_pages = run->nr;

	if (unlikely(run->order)) {
		nr_pages <<= run->order;
		full |= nr_pages >= MIGRATE_RUN_PAGES;
	}
	if (nr_pages % MIGRATE_RUN_LOOK)
		return false;
	return full || migrate_run_has_waiters(run);
}

/**
 * migrate_run_take - add a moved folio to the run that will be mapped
 * @run: The run, which migrate_run_finish() maps at the latest.
 * @src: The source, which migrate_run_unmap() has unmapped.
 * @dst: The destination, which has the content.
 * @anon_vma: The anon_vma of both, or NULL.  The run takes over a reference.
 * @was: Among other bits, MIGRATE_WAS_* of the folio.
 */
static inline void migrate_run_take(struct migrate_run *run, struct folio *src,
				    struct folio *dst,
				    struct anon_vma *anon_vma, unsigned int was)
{
	const unsigned int order = folio_order(dst);

	if (run->nr && (run->dst[0]->mapping != dst->mapping ||
			run->order != order))
		migrate_run_map(run);
	if (!run->nr) {
		run->anon_vma = anon_vma;
		run->order = order;
		run->was = 0;
	}
	run->was |= was;
	run->src[run->nr] = src;
	run->dst[run->nr++] = dst;
	if (migrate_run_is_due_to_map(run))
		migrate_run_map(run);
}

/* Called after the last run.  One allocation holds both arrays. */
static inline void migrate_run_exit(struct migrate_run *run)
{
	/* A page fault has no run, and calls no function for that. */
	if (!run->src)
		return;
	kfree(run->src);
}

/* Map and release the folios of the run. */
static inline void migrate_run_finish(struct migrate_run *run)
{
	if (run->nr)
		migrate_run_map(run);
}

#endif /* _MM_MIGRATE_RUN_RUN_H */
