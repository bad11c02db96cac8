// SPDX-License-Identifier: GPL-2.0-only
/*
 * Windows: a long list of folios is migrated a few at a time.
 *
 * migrate_pages_batch() unmaps all folios of a list, flushes the TLBs, and then
 * copies and moves them.  While an engine copies the CPU has nothing to do, and
 * the other way round, and a folio is out of reach until its turn comes.  Here
 * the list is cut into windows.  While the engine is at one, the CPU moves what
 * is copied, and unmaps the next:
 *
 *	unmap 1 | flush | unmap 2 | flush | move 1, unmap 3 | flush | move 2 ...
 *	               copy 1            copy 2                   copy 3 ...
 *
 * A folio moves as soon as its own copy is done.  Only so many windows are under
 * way at once, and the next one is not begun before the engine will get to it
 * in time: limit.c says what that means.
 *
 * For each window, things are as they are for the one batch of
 * migrate_pages_batch(): it is flushed before anything is copied, a folio whose
 * move fails with -EAGAIN is tried again as often, and what is left then is put
 * back.  Folios of several windows are locked at the same time, as those of one
 * batch are: only with MIGRATE_ASYNC, which does not wait for locks.
 *
 * Everything is done by the task that migrates: there is no lock.
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

/* With less, to begin and to end a window costs more than it is worth. */
#define MIGRATE_DIVIDED_FOLIOS 128U

/* Has the engine not reported all of it yet, or have we not looked? */
static bool migrate_part_is_flying(const struct migrate_part *part)
{
	return part->nr_collected < part->copy.nr_pairs;
}

/* Another part of the same window. */
static struct migrate_part *migrate_part_sibling(struct list_head *parts,
						 const struct migrate_part *part)
{
	struct migrate_part *other;

	list_for_each_entry(other, parts, node)
		if (other != part && other->window == part->window)
			return other;
	return NULL;
}

/* A part is over, and with the last of them its window. */
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

/* As posted, a window goes back as a whole.  Is all of it copied? */
static bool migrate_windows_all_copied(const struct migrate_windows *w)
{
	struct migrate_part *part;

	list_for_each_entry(part, &w->flying, node)
		if (part->copy.nr_done < part->copy.nr_pairs)
			return false;
	return true;
}

/* With nothing in flight an engine might wait for ever. */
static void migrate_windows_reap(struct migrate_windows *w, u64 wait_ns)
{
	struct migrate_session *s = &w->session;

	if (!migrate_windows_all_copied(w))
		migrate_engine_reap(s->engine, &s->stream, wait_ns);
}

/*
 * Take everything that is under way a step forward.  Waits for up to @wait_ns
 * for the engine, if there is nothing else to do.
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

/* Is there anything to do but to wait for the engine? */
static bool migrate_windows_must_wait(const struct migrate_windows *w)
{
	struct migrate_part *part;

	/* Until then nothing is moved, not even what is to be tried again. */
	if (!w->plan.streaming && !migrate_windows_all_copied(w))
		return true;
	list_for_each_entry(part, &w->flying, node) {
		if (part->nr_retry && !migrate_part_is_flying(part))
			return false;
		/* It was reported while the engine was given more. */
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

/*
 * The TLBs are flushed.  Give the engine what it may copy, and move the rest,
 * which it may take its time for.
 */
static void migrate_part_launch(struct migrate_windows *w,
				struct migrate_part *part)
{
	struct migrate_session *s = &w->session;
	enum migrate_verdict why;
	u64 flushed_ns = s->task_ns;
	unsigned int i;

	part->flushed_ns = s->now_ns;
	part->begun_ns = flushed_ns;
	why = VERDICT_DECLINED;
	if (migrate_session_hold(s))
		why = migrate_session_why_not(s, folio_nid(part->copy.pairs[0].dst));
	if (why != VERDICT_ENGINE) {
		migrate_part_leave(s, part, why);
	} else {
		migrate_part_sort(s, part);
		why = part->copy.nr_pairs ? migrate_part_submit(s, part) :
					    VERDICT_ENGINE;
	}
	migrate_session_clock(s);
	/* One without any folio for the engine says nothing about it. */
	part->by_engine = why == VERDICT_ENGINE && part->copy.nr_pairs;
	if (part->by_engine && s->open)
		w->submit_ns += s->task_ns - part->begun_ns;
	/* Without a stream the engine is done by now. */
	part->took.launched_ns = s->open ? s->task_ns : flushed_ns;
	part->launched_stood_ns = migrate_session_stood_ns(s);

	if (!part->by_engine || !s->open) {
		/* Declined, or copied already. */
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
	/* The windows after it are planned with what it said. */
	if (!s->by_cpu)
		w->declined = why != VERDICT_ENGINE;
}

/* How long did it take to unmap them, and had the engine to wait for that? */
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

/* The limit cannot be met: not by this window, nor by a smaller one. */
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
	/* Not before this: until then a CPU may write to the folios. */
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
		/* Begun for a folio that was not to be had. */
		if (part->nr_all)
			migrate_part_launch(w, part);
		if (!part->nr_open)
			migrate_part_retire(w, part);
	}
	migrate_windows_handed(w, nr, flush_ns, w->submit_ns);
}

/* Somebody wants the engine to go: nothing more is given to it. */
static void migrate_windows_check_engine(struct migrate_windows *w)
{
	struct migrate_session *s = &w->session;

	if (s->engine && !migrate_engine_stays(s->engine, s->reason))
		s->leaving = true;
}

/*
 * Compaction has the pages of one block at a time, and all of them may fit into a
 * window.  In as many as can be under way, one is unmapped while another is copied.
 */
static void migrate_windows_divide(struct migrate_windows *w)
{
	const struct migrate_session *s = &w->session;
	unsigned int nr = s->total_bytes >> (PAGE_SHIFT + w->order);

	if (s->reason != MR_COMPACTION || !w->plan.streaming)
		return;
	/* Where the task copies itself, nothing is under way meanwhile. */
	if (!s->paces || !s->streams || s->by_cpu || w->declined)
		return;
	nr = max(DIV_ROUND_UP(nr, w->plan.max_windows), MIGRATE_DIVIDED_FOLIOS);
	w->plan.folios = min(w->plan.folios, nr);
}

/* How long will the engine be busy with what it has? */
static u64 migrate_windows_backlog_ns(const struct migrate_windows *w)
{
	const struct migrate_session *s = &w->session;
	u64 expected_ns, elapsed_ns;

	/* Not known yet: wait until it is. */
	if (s->flying_bytes && !w->plan.copy_ns)
		return w->plan.limit_ns;
	if (!s->flying_bytes)
		return 0;
	expected_ns = mul_u64_u64_div_u64(w->plan.copy_ns, s->flying_bytes,
					  PAGE_SIZE << w->order);
	elapsed_ns = s->task_ns - s->progress_ns;
	/* Overdue: it has become slower.  Who knows by how much? */
	return elapsed_ns < expected_ns ? expected_ns - elapsed_ns :
					  elapsed_ns;
}

/*
 * Begin a window with @folio, when it is time for that.  Until then see to what
 * is under way.
 */
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
		/* An empty one may be left from a folio that was not to be had. */
		if (w->nr_windows - !list_empty(&w->filling) >=
		    plan->max_windows) {
			migrate_windows_wait(w, U64_MAX);
			continue;
		}
		backlog_ns = migrate_windows_backlog_ns(w);
		hold_ns = migrate_plan_hold_ns(plan, backlog_ns);
		if (!hold_ns)
			break;
		/* Not before so much of the backlog is done. */
		w->held_back = true;
		migrate_windows_wait(w, min(hold_ns, backlog_ns));
	}
	if (w->session.leaving && list_empty(&w->flying))
		migrate_session_release(&w->session);
	migrate_windows_divide(w);

	/* There is a free place: at most all of them but one are taken. */
	while (list_empty(&w->filling) && w->nr_parts_of[w->window])
		w->window = (w->window + 1) % MIGRATE_NR_WINDOW_IDS;
}

/* A part with room for one more pair, or NULL. */
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
 * As the ordinary path does, fill a window until it has so many pages or more.
 * When unmapping takes long, leave some time for the rest.
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

/* The last one could not be unmapped.  It may be gone by now. */
static void migrate_windows_forget_admitted(struct migrate_windows *w)
{
	if (w->admitted)
		migrate_offload_forget_reason(w->admitted);
	w->admitted = NULL;
}

/* Move all that is unmapped.  When nothing is out of reach, the engine may go. */
static void migrate_windows_drain(struct migrate_windows *w)
{
	migrate_windows_launch(w);
	while (!list_empty(&w->flying))
		migrate_windows_wait(w, U64_MAX);
	migrate_session_release(&w->session);
	migrate_session_charge(&w->session);
}

/* Waits for memory, if there is none at hand, with nothing out of reach. */
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

/* Called before each folio is unmapped. */
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
		/* Make do with what we have. */
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

/*
 * Called before small folios are unmapped at once.  Returns how many there may
 * be, of which @folio is the first.
 */
unsigned int __migrate_windows_room(struct migrate_windows *w,
				    struct folio *folio)
{
	__migrate_windows_admit(w, folio);
	if (!w->part)
		return 0;
	return min(w->plan.folios - w->fill_folios,
		   MIGRATE_PART_MAX_PAIRS - w->part->nr_all);
}

/* Of a run: destinations were allocated for it since its first was admitted. */
void migrate_windows_unmapping(struct migrate_windows *w)
{
	migrate_session_clock(&w->session);
	w->unmap_ns = w->session.now_ns;
}

/* The folio that was admitted is unmapped, or one of those behind it. */
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
 * All folios have been unmapped, or there is no memory to go on.  Returns how
 * many could not be moved.
 */
int __migrate_windows_finish(struct migrate_windows *w)
{
	struct migrate_part *part, *next;

	migrate_windows_forget_admitted(w);
	migrate_windows_drain(w);
	/* One that was begun, and whose first folio was not to be had. */
	list_for_each_entry_safe(part, next, &w->filling, node)
		migrate_part_retire(w, part);
	if (w->session.engine)
		migrate_session_settle(&w->session);
	migrate_trace_last(&w->session);
	/* What is moved from now on is not ours. */
	w->run->content = MIGRATE_CONTENT_SRC;
	return w->nr_failed;
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/window_kunit.c"
#endif
