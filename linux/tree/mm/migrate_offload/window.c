// SPDX-License-Identifier: GPL-2.0-only
/*
 * Windows: migrate a long list of folios a few at a time.
 *
 * Stock migrate_pages_batch() unmaps all folios of a list, flushes the TLBs,
 * and then copies and moves them.  So the CPU would be idle while an engine
 * copies, and all folios would stay unmapped until their turn.  Instead the
 * core divides the list into windows.  While the engine copies one window, the
 * CPU moves folios that are copied, and unmaps the next window:
 *
 *	unmap 1 | flush | unmap 2 | flush | move 1, unmap 3 | flush | move 2 ...
 *	               copy 1            copy 2                   copy 3 ...
 *
 * A folio moves as soon as its own copy is done.  max_windows limits the
 * windows in flight, and limit.c decides when the next one may begin.
 *
 * Each window keeps the rules of a stock batch.  The TLBs are flushed before
 * any folio is copied.  The core retries a move that fails with -EAGAIN as
 * often as stock Linux, and then undoes the unmapping.  Only MIGRATE_ASYNC,
 * which does not wait for locks, locks folios of several windows at the same
 * time.
 *
 * Only the task that migrates uses its windows: there is no lock.
 */

#define pr_fmt(fmt) "migrate_offload: " fmt

#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/mm.h>

#include "../internal.h"
#include "clock.h"
#include "hooks.h"
#include "internal.h"

/* To begin and to end a smaller window costs more than it saves. */
#define MIGRATE_DIVIDED_FOLIOS 128U

/* Does the part have copies that the core has not collected yet? */
static bool migrate_part_is_flying(const struct migrate_part *part)
{
	return part->nr_collected < part->copy.nr_pairs;
}

/* Returns another part of the same window, or NULL. */
static struct migrate_part *migrate_part_sibling(struct list_head *parts,
						 const struct migrate_part *part)
{
	struct migrate_part *other;

	list_for_each_entry(other, parts, node)
		if (other != part && other->window == part->window)
			return other;
	return NULL;
}

/* Keep the times of a part, and learn from a window after its last part. */
static void migrate_part_learn(struct migrate_windows *w,
			       struct migrate_part *part)
{
	struct migrate_part *other;

	part->took.nr = part->nr_all;
	part->took.nr_by_engine = part->by_engine ? part->nr_all : 0;
	migrate_times_merge(&part->took, &part->before);
	if (!part->took.nr || !w->session.engine)
		return;
	other = migrate_part_sibling(&w->flying, part) ?:
		migrate_part_sibling(&w->filling, part);
	if (other)
		migrate_times_merge(&other->before, &part->took);
	else
		migrate_times_learn(w, part->order, &part->took);
}

static void migrate_part_retire(struct migrate_windows *w,
				struct migrate_part *part)
{
	migrate_part_note_engine(part);
	migrate_part_learn(w, part);
	list_del(&part->node);
	w->nr_parts_of[part->window]--;
	if (!w->nr_parts_of[part->window])
		w->nr_windows--;
	migrate_part_count(&w->session, part);
	migrate_trace_part(&w->session, part);
	migrate_part_free(part);
}

/*
 * Are all windows in flight copied?  Without streaming, no folio moves before.
 */
static bool migrate_windows_all_copied(const struct migrate_windows *w)
{
	struct migrate_part *part;

	list_for_each_entry(part, &w->flying, node)
		if (part->copy.nr_done < part->copy.nr_pairs)
			return false;
	return true;
}

/* Do not call an engine without work: it might wait forever. */
static void migrate_windows_reap(struct migrate_windows *w, u64 wait_ns)
{
	struct migrate_session *s = &w->session;

	if (!migrate_windows_all_copied(w))
		migrate_engine_reap(s->engine, &s->stream, wait_ns);
}

/*
 * Collect copies that are done, move their folios, and retry failed moves.
 * Before that, wait for the engine for up to @wait_ns.
 */
static void migrate_windows_progress(struct migrate_windows *w, u64 wait_ns)
{
	struct migrate_part *part, *next;

	migrate_windows_reap(w, wait_ns);
	migrate_session_clock(&w->session);
	if (!w->plan.streaming && !migrate_windows_all_copied(w))
		return;

	list_for_each_entry_safe(part, next, &w->flying, node) {
		if (part->copy.nr_done != part->nr_collected)
			migrate_part_collect(w, part);
		else if (!migrate_part_is_flying(part) && part->nr_retry)
			migrate_part_retry(w, part);
		if (!part->nr_open)
			migrate_part_retire(w, part);
	}
}

/* Can the task do nothing until the engine completes a copy? */
static bool migrate_windows_must_wait(const struct migrate_windows *w)
{
	struct migrate_part *part;

	/* Without streaming, the core retries moves only after all copies. */
	if (!w->plan.streaming && !migrate_windows_all_copied(w))
		return true;
	list_for_each_entry(part, &w->flying, node) {
		if (part->nr_retry && !migrate_part_is_flying(part))
			return false;
		/* The engine may have reported copies in a later submit(). */
		if (w->plan.streaming &&
		    part->copy.nr_done != part->nr_collected)
			return false;
	}
	return true;
}

static void migrate_windows_wait(struct migrate_windows *w, u64 wait_ns)
{
	migrate_windows_progress(w, migrate_windows_must_wait(w) ? wait_ns : 0);
}

/* After the flush: give eligible folios to the engine, and move the others. */
static void migrate_part_launch(struct migrate_windows *w,
				struct migrate_part *part)
{
	struct migrate_session *s = &w->session;
	enum migrate_verdict why;
	u64 flushed_ns = s->task_ns;
	unsigned int i;

	part->flushed_ns = s->now_ns;
	part->begun_ns = flushed_ns;
	why = s->by_cpu ? VERDICT_TOO_SLOW : VERDICT_DECLINED;
	if (!s->by_cpu && migrate_session_hold(s))
		why = migrate_session_why_not(s, folio_nid(part->copy.pairs[0].dst));
	if (why != VERDICT_ENGINE) {
		migrate_part_leave(s, part, why);
	} else {
		migrate_part_sort(s, part);
		why = part->copy.nr_pairs ? migrate_part_submit(s, part) :
					    VERDICT_ENGINE;
	}
	migrate_session_clock(s);
	/* A part without eligible folios says nothing about the engine. */
	part->by_engine = why == VERDICT_ENGINE && part->copy.nr_pairs;
	if (part->by_engine && s->open)
		w->submit_ns += s->task_ns - part->begun_ns;
	/* Without a stream, the engine has copied in submit(). */
	part->took.launched_ns = s->open ? s->task_ns : flushed_ns;
	part->launched_stood_ns = migrate_session_stood_ns(s);

	if (!part->by_engine || !s->open) {
		/* The engine declined the part, failed, or has copied it. */
		for (i = 0; i < part->copy.nr_pairs; i++)
			migrate_part_judge(s, part, &part->copy.pairs[i], why);
		part->nr_collected = part->copy.nr_pairs;
		part->copy.nr_done = part->nr_collected;
		part->copied_ns = s->now_ns;
		part->took.copied_ns = s->task_ns;
		migrate_part_move_range(w, part, 0, part->nr_all);
	} else {
		migrate_part_move_range(w, part, part->copy.nr_pairs,
					part->nr_all);
	}
	/* Plan the next window for the CPU if the engine declined this one. */
	if (!s->by_cpu && (part->by_engine || why != VERDICT_ENGINE))
		w->declined = !part->by_engine;
}

/* Note the time to unmap the window, and whether the engine is idle. */
static void migrate_windows_note_prepared(struct migrate_windows *w)
{
	const struct migrate_part *first;
	bool idle = false;

	first = list_first_entry(&w->filling, struct migrate_part, node);
	if (w->held_back) {
		migrate_windows_reap(w, 0);
		idle = migrate_windows_all_copied(w);
	}
	migrate_windows_prepared(w, w->session.task_ns - first->start_task_ns, idle);
}

/* Count the folios if even a smaller window would exceed the limit. */
static void migrate_windows_note_over(const struct migrate_windows *w)
{
	if (w->session.engine && migrate_plan_is_over(&w->plan))
		migrate_session_count_over(&w->session, w->fill_folios);
}

static void migrate_windows_launch(struct migrate_windows *w)
{
	struct migrate_session *s = &w->session;
	struct migrate_part *part, *next;
	u64 full_ns, full_task_ns, flush_ns;
	unsigned int nr = w->fill_folios;

	if (!nr)
		return;
	migrate_session_clock(s);
	full_ns = s->now_ns;
	full_task_ns = s->task_ns;
	migrate_windows_note_prepared(w);
	/* Until this flush, a CPU may still write to the folios. */
	try_to_unmap_flush();
	migrate_session_clock(s);
	flush_ns = s->task_ns - full_task_ns;
	migrate_windows_note_over(w);

	w->submit_ns = 0;
	w->fill_folios = 0;
	w->fill_pages = 0;
	list_for_each_entry_safe(part, next, &w->filling, node) {
		part->full_ns = full_ns;
		list_move_tail(&part->node, &w->flying);
		/* A part is empty if its first folio could not be unmapped. */
		if (part->nr_all)
			migrate_part_launch(w, part);
		if (!part->nr_open)
			migrate_part_retire(w, part);
	}
	migrate_windows_handed(w, nr, flush_ns, w->submit_ns);
	/* The next list gives the engine one window again, to time it. */
	if (!READ_ONCE(migrate_engine_always) && migrate_windows_want_cpu(w))
		s->by_cpu = true;
}

/* Stop using an engine that is no longer active: a task waits for that. */
static void migrate_windows_check_engine(struct migrate_windows *w)
{
	struct migrate_session *s = &w->session;

	if (s->engine && !migrate_engine_stays(s->engine, s->reason))
		s->leaving = true;
}

/*
 * Compaction migrates one block at a time, which may fit into one window.  Use
 * max_windows windows, so that the CPU unmaps one while the engine copies
 * another.
 */
static void migrate_windows_divide(struct migrate_windows *w)
{
	const struct migrate_session *s = &w->session;
	unsigned int nr = s->total_bytes >> (PAGE_SHIFT + w->order);

	if (s->reason != MR_COMPACTION || !w->plan.streaming)
		return;
	/* If the task itself copies, windows do not overlap. */
	if (!s->paces || !s->streams || s->by_cpu || w->declined)
		return;
	nr = max(DIV_ROUND_UP(nr, w->plan.max_windows), MIGRATE_DIVIDED_FOLIOS);
	w->plan.folios = min(w->plan.folios, nr);
}

/* How long will the engine need for the batches that it has? */
static u64 migrate_windows_backlog_ns(const struct migrate_windows *w)
{
	const struct migrate_session *s = &w->session;
	u64 expected_ns, elapsed_ns;

	/*
	 * The copy time is not known yet.  Assume the limit, so that the window
	 * waits until a copy shows the time.
	 */
	if (s->flying_bytes && !w->plan.copy_ns)
		return w->plan.limit_ns;
	if (!s->flying_bytes)
		return 0;
	expected_ns = mul_u64_u64_div_u64(w->plan.copy_ns, s->flying_bytes,
					  PAGE_SIZE << w->order);
	elapsed_ns = s->task_ns - s->progress_ns;
	/* The engine is late: assume that it needs the elapsed time again. */
	return elapsed_ns < expected_ns ? expected_ns - elapsed_ns :
					  elapsed_ns;
}

/* Begin a window with @folio, after enough work of earlier windows is done. */
static void migrate_windows_start(struct migrate_windows *w,
				  const struct folio *folio)
{
	migrate_windows_check_engine(w);
	w->order = folio_order(folio);
	w->held_back = false;
	for (;;) {
		const struct migrate_plan *plan = &w->plan;
		u64 backlog_ns, hold_ns;

		migrate_windows_plan(w);
		if (list_empty(&w->flying))
			break;
		/*
		 * Do not count an empty part: its folio could not be unmapped.
		 */
		if (w->nr_windows - !list_empty(&w->filling) >=
		    plan->max_windows) {
			migrate_windows_wait(w, U64_MAX);
			continue;
		}
		backlog_ns = migrate_windows_backlog_ns(w);
		hold_ns = migrate_plan_hold_ns(plan, backlog_ns);
		if (!hold_ns)
			break;
		w->held_back = true;
		migrate_windows_wait(w, min(hold_ns, backlog_ns));
	}
	if ((w->session.leaving || w->session.by_cpu) && list_empty(&w->flying))
		migrate_session_release(&w->session);
	migrate_windows_divide(w);

	/* An ID is free: there is one ID more than windows in flight. */
	while (list_empty(&w->filling) && w->nr_parts_of[w->window])
		w->window = (w->window + 1) % MIGRATE_NR_WINDOW_IDS;
}

/* Returns a part with room for one more pair, or NULL without memory. */
static struct migrate_part *migrate_windows_part(struct migrate_windows *w)
{
	struct migrate_part *part;

	part = list_empty(&w->filling) ? NULL :
		list_last_entry(&w->filling, struct migrate_part, node);
	if (part && !part->nr_all) {
		migrate_part_begin(part, &w->session);
		part->order = w->order;
	}
	if (part && part->nr_all < MIGRATE_PART_MAX_PAIRS)
		return part;
	part = migrate_part_alloc();
	if (!part)
		return NULL;
	migrate_part_init(part);
	part->copy.reason = w->session.reason;
	part->copy.mode = w->session.mode;
	migrate_part_begin(part, &w->session);
	part->order = w->order;
	part->window = w->window;
	w->nr_windows += !w->nr_parts_of[w->window]++;
	list_add_tail(&part->node, &w->filling);
	return part;
}

/*
 * Like a stock batch, a window may exceed its pages by a part of its last
 * folio.  Unmapping gets half of the limit, copy and move get the other half.
 */
static bool migrate_windows_is_full(const struct migrate_windows *w)
{
	const struct migrate_plan *plan = &w->plan;
	struct migrate_part *first;

	if (!w->fill_folios)
		return false;
	if (w->fill_folios >= plan->folios ||
	    w->fill_pages >= (unsigned long)plan->folios << w->order)
		return true;
	first = list_first_entry(&w->filling, struct migrate_part, node);
	return plan->limit_ns && w->fill_folios >= plan->least &&
		w->session.now_ns - first->start_ns > plan->limit_ns / 2;
}

/*
 * The core did not unmap the admitted folio.  Do not access the folio, which
 * may have been freed.
 */
static void migrate_windows_forget_admitted(struct migrate_windows *w)
{
	if (w->admitted)
		migrate_offload_forget_reason(w->admitted);
	w->admitted = NULL;
}

/*
 * Move all unmapped folios, release the engine, and charge the CPU time of
 * helpers.
 */
static void migrate_windows_drain(struct migrate_windows *w)
{
	migrate_windows_launch(w);
	while (!list_empty(&w->flying))
		migrate_windows_wait(w, U64_MAX);
	migrate_session_release(&w->session);
	migrate_session_charge(&w->session);
}

/*
 * Allocate a destination.  Wait for memory only while no folio is unmapped and
 * no engine is held.
 */
struct folio *__migrate_windows_new_folio(struct migrate_windows *w,
					  new_folio_t get_new_folio,
					  struct folio *src,
					  unsigned long private)
{
	struct folio *dst;

	if (w->fill_folios || !list_empty(&w->flying) || w->session.held) {
		dst = migrate_new_folio_nowait(get_new_folio, src, private);
		if (dst)
			return dst;
		migrate_windows_drain(w);
	}
	return get_new_folio(src, private);
}

/* Called before the core unmaps @folio, or a run that begins with @folio. */
void __migrate_windows_admit(struct migrate_windows *w, struct folio *folio)
{
	migrate_session_clock(&w->session);
	if (!list_empty(&w->flying))
		migrate_windows_progress(w, 0);
	if (migrate_windows_is_full(w))
		migrate_windows_launch(w);
	if (!w->fill_folios)
		migrate_windows_start(w, folio);

	w->part = migrate_windows_part(w);
	while (!w->part && (w->fill_folios || !list_empty(&w->flying))) {
		/*
		 * Without memory for a part, finish one in flight and reuse it.
		 */
		migrate_windows_launch(w);
		if (!list_empty(&w->flying))
			migrate_windows_wait(w, U64_MAX);
		w->part = migrate_windows_part(w);
	}
	migrate_windows_forget_admitted(w);
	migrate_offload_note_reason(folio, w->session.reason);
	w->admitted = folio;
	w->unmap_ns = w->session.now_ns;
}

/* Admit @folio.  Returns how many folios a run that @folio begins may have. */
unsigned int __migrate_windows_room(struct migrate_windows *w,
				    struct folio *folio)
{
	unsigned long pages;

	__migrate_windows_admit(w, folio);
	if (!w->part)
		return 0;
	pages = ((unsigned long)w->plan.folios << w->order) - w->fill_pages;
	return min3(w->plan.folios - w->fill_folios,
		    MIGRATE_PART_MAX_PAIRS - w->part->nr_all,
		    (unsigned int)DIV_ROUND_UP(pages, folio_nr_pages(folio)));
}

/*
 * Called before the core unmaps a run.  The run has its destinations by now, so
 * their allocation does not count as unmapped time.
 */
void migrate_windows_unmapping(struct migrate_windows *w)
{
	migrate_session_clock(&w->session);
	w->unmap_ns = w->session.now_ns;
}

/*
 * Called after the core has unmapped the admitted folio, or another one of its
 * run.
 */
void __migrate_windows_add(struct migrate_windows *w, struct folio *src,
			   struct folio *dst)
{
	w->admitted = NULL;
	if (!w->part) {
		migrate_windows_move_now(w, src, dst);
		return;
	}
	migrate_part_add(w->part, src, dst, w->unmap_ns);
	w->fill_folios++;
	w->fill_pages += folio_nr_pages(src);
}

/*
 * Called after the core has unmapped the last folio of the list.  Returns how
 * many folios did not move.
 */
int __migrate_windows_finish(struct migrate_windows *w)
{
	struct migrate_part *part, *next;

	migrate_windows_forget_admitted(w);
	migrate_windows_drain(w);
	/* A part is left if its first folio could not be unmapped. */
	list_for_each_entry_safe(part, next, &w->filling, node)
		migrate_part_retire(w, part);
	if (w->session.engine)
		migrate_session_settle(&w->session);
	migrate_trace_last(&w->session);
	/* The engine has not copied folios that move after this. */
	w->run->content = MIGRATE_CONTENT_SRC;
	return w->nr_failed;
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/window_kunit.c"
#endif
