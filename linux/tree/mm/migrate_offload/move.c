// SPDX-License-Identifier: GPL-2.0-only
/*
 * Move the folios of a window: in which order, how often, and with whose copy.
 *
 * window.c decides when folios move.  No function here waits for the engine.
 */

#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/sched.h>

#include "../internal.h"
#include "clock.h"
#include "hooks.h"
#include "internal.h"

/* Note that a folio is mapped again, at its destination or at its source. */
static void migrate_pair_reachable(struct migrate_windows *w,
				   struct migrate_part *part,
				   struct migrate_copy_pair *pair,
				   size_t bytes, int rc)
{
	struct migrate_session *s = &w->session;

	migrate_offload_forget_reason(pair->src);
	pair->src = NULL;
	part->nr_open--;
	if (unlikely(s->traced))
		migrate_trace_folio(s, bytes, s->now_ns - pair->unmapped_ns,
				    pair->content == MIGRATE_CONTENT_DST, rc);
}

/* Note how long @nr folios were unmapped, all for the same time. */
static void migrate_part_note_unmapped(struct migrate_windows *w,
				       struct migrate_part *part,
				       u64 since_ns, unsigned int nr)
{
	struct migrate_session *s = &w->session;
	u64 unmapped_ns = s->now_ns - since_ns;

	migrate_offload_note_unmapped(s->reason, unmapped_ns, nr);
	part->took.worst_ns = max(part->took.worst_ns,
				  migrate_pair_task_ns(s, part, unmapped_ns));
}

/* Map the folios of the run, and note that they are mapped. */
static void migrate_part_land(struct migrate_windows *w,
			      struct migrate_part *part)
{
	unsigned int i, nr = 0;
	u64 since_ns = 0;

	if (!w->nr_moved)
		return;
	migrate_run_finish(w->run);
	migrate_session_clock(&w->session);
	for (i = 0; i < w->nr_moved; i++, nr++) {
		struct migrate_copy_pair *pair = &part->copy.pairs[w->moved[i]];

		/* Most folios of a run were unmapped at the same time. */
		if (nr && pair->unmapped_ns != since_ns) {
			migrate_part_note_unmapped(w, part, since_ns, nr);
			nr = 0;
		}
		since_ns = pair->unmapped_ns;
		/* The source may be free by now. */
		migrate_pair_reachable(w, part, pair, w->moved_bytes[i], 0);
	}
	migrate_part_note_unmapped(w, part, since_ns, nr);
	w->nr_moved = 0;
}

/*
 * Try to move a pair once.  After -EAGAIN the pair stays in the part.  The
 * caller has to call migrate_part_land() after its last pair.
 */
static void migrate_part_move(struct migrate_windows *w,
			      struct migrate_part *part,
			      struct migrate_copy_pair *pair)
{
	size_t bytes = folio_size(pair->src);
	int rc;

	/* A file system may wait for a disk: release the engine first. */
	if (w->session.mode != MIGRATE_ASYNC)
		migrate_session_release(&w->session);
	cond_resched();
	rc = migrate_windows_move_folio(w, pair->src, pair->dst, pair->content);
	if (migrate_run_has(w->run, pair->src)) {
		part->nr_retry -= pair->tried;
		w->moved_bytes[w->nr_moved] = bytes;
		w->moved[w->nr_moved++] = pair - part->copy.pairs;
		if (w->nr_moved == MIGRATE_RUN_MAX)
			migrate_part_land(w, part);
		return;
	}
	/* This move has also mapped the run: note the folios of the run. */
	if (!w->run->nr)
		migrate_part_land(w, part);
	migrate_session_clock(&w->session);
	if (rc == -EAGAIN) {
		if (pair->content == MIGRATE_CONTENT_DST)
			part->outcome.nr_retried++;
		part->nr_retry += !pair->tried;
		pair->tried = true;
		/* A user with a reference may have written to the source. */
		if (migrate_rule(RETRY, true))
			pair->content = MIGRATE_CONTENT_SRC;
		return;
	}
	part->nr_retry -= pair->tried;
	migrate_part_note_unmapped(w, part, pair->unmapped_ns, 1);
	migrate_pair_reachable(w, part, pair, bytes, rc);
}

/* Retry moves that failed.  The last pass maps the sources again. */
void migrate_part_retry(struct migrate_windows *w, struct migrate_part *part)
{
	bool last = ++part->pass >= w->nr_pass;
	unsigned int i;

	for (i = 0; i < part->nr_all && part->nr_retry; i++) {
		struct migrate_copy_pair *pair = &part->copy.pairs[i];
		size_t bytes;

		if (!pair->src || !pair->tried)
			continue;
		if (!last) {
			migrate_part_move(w, part, pair);
			continue;
		}
		bytes = folio_size(pair->src);
		migrate_windows_undo_folio(w, pair->src, pair->dst);
		migrate_session_clock(&w->session);
		part->nr_retry--;
		migrate_part_note_unmapped(w, part, pair->unmapped_ns, 1);
		migrate_pair_reachable(w, part, pair, bytes, -EAGAIN);
	}
	migrate_part_land(w, part);
}

/* Decide whose copy of a pair counts, the engine's or the CPU's. */
void migrate_part_judge(struct migrate_session *s, struct migrate_part *part,
			struct migrate_copy_pair *pair,
			enum migrate_verdict why)
{
	enum migrate_verdict end = migrate_pair_judge(pair, why);

	part->outcome.folios[end]++;
	if (end == VERDICT_ENGINE) {
		pair->content = MIGRATE_CONTENT_DST;
		part->outcome.engine_bytes += folio_size(pair->src);
		migrate_payers_add(&s->payers, pair->src, true);
	} else if (end == VERDICT_HELD) {
		pair->content = MIGRATE_CONTENT_HELD;
	} else {
		/* Do not read the source again: a CPU took a machine check. */
		if (why == VERDICT_ENGINE && pair->result == -EHWPOISON)
			pair->content = MIGRATE_CONTENT_POISON;
		else
			pair->content = MIGRATE_CONTENT_SRC;
		part->outcome.cpu_bytes += folio_size(pair->src);
		migrate_payers_add(&s->payers, pair->src, false);
	}
}

/* Move pairs for the first time. */
void migrate_part_move_range(struct migrate_windows *w,
			     struct migrate_part *part,
			     unsigned int from, unsigned int to)
{
	unsigned int i;

	for (i = from; i < to; i++)
		migrate_part_move(w, part, &part->copy.pairs[i]);
	migrate_part_land(w, part);
}

/* Move the pairs that the engine has reported since the last call. */
void migrate_part_collect(struct migrate_windows *w, struct migrate_part *part)
{
	struct migrate_copy_batch *copy = &part->copy;
	unsigned int i, from = part->nr_collected, to = copy->nr_done;

	for (i = from; i < to; i++) {
		struct migrate_copy_pair *pair =
			&copy->pairs[copy->pairs[i].nth_done];

		w->session.flying_bytes -= folio_size(pair->src);
		migrate_part_judge(&w->session, part, pair, VERDICT_ENGINE);
	}
	part->nr_collected = to;
	if (from != to)
		w->session.progress_ns = w->session.task_ns;
	if (from != to && to == copy->nr_pairs) {
		if (w->copied_ns > part->took.launched_ns)
			part->took.backlog_ns =
				w->copied_ns - part->took.launched_ns;
		part->copied_ns = w->session.now_ns;
		part->took.copied_ns = w->session.task_ns;
		part->took.stood_ns = migrate_session_stood_ns(&w->session) -
				      part->launched_stood_ns;
		w->copied_ns = w->session.task_ns;
	}

	for (i = from; i < to; i++)
		migrate_part_move(w, part,
				  &copy->pairs[copy->pairs[i].nth_done]);
	migrate_part_land(w, part);
}

/* Count a folio that moves without a window, and so without the engine. */
static void migrate_windows_count_now(struct migrate_windows *w,
				      struct folio *src)
{
	if (!w->session.engine)
		return;
	migrate_session_count_cpu(&w->session, VERDICT_DECLINED, 1,
				  folio_size(src));
	migrate_payers_add(&w->session.payers, src, false);
}

/* Move one folio alone, because there is no memory for a window. */
void migrate_windows_move_now(struct migrate_windows *w, struct folio *src,
			      struct folio *dst)
{
	size_t bytes = folio_size(src);
	LIST_HEAD(src_list);
	LIST_HEAD(dst_list);
	int pass, rc = -EAGAIN;
	u64 unmapped_ns;

	migrate_windows_count_now(w, src);
	list_move_tail(&src->lru, &src_list);
	list_add_tail(&dst->lru, &dst_list);
	try_to_unmap_flush();
	for (pass = 0; pass < w->nr_pass && rc == -EAGAIN; pass++) {
		cond_resched();
		rc = migrate_windows_move_folio(w, src, dst,
						MIGRATE_CONTENT_SRC);
	}
	if (rc == -EAGAIN)
		migrate_windows_undo_folio(w, src, dst);
	migrate_run_finish(w->run);
	migrate_offload_forget_reason(src);
	migrate_session_clock(&w->session);
	unmapped_ns = w->session.now_ns - w->unmap_ns;
	migrate_offload_note_unmapped(w->session.reason, unmapped_ns, 1);
	if (unlikely(w->session.traced))
		migrate_trace_folio(&w->session, bytes, unmapped_ns, false, rc);
}
