// SPDX-License-Identifier: GPL-2.0-only
/*
 * hugetlb folios that migrate: an engine copies them, one at a time, or two.
 *
 * They never form a batch.  unmap_and_move_huge_page() unmaps one, copies and
 * moves it, and maps it again, before the next one is looked at.  But each is as
 * large as a batch of small ones, or a thousand times as large, and engines split
 * it.  So when its last page table entry is gone, the active engine gets it as a
 * part with a single pair; then it is moved as ever, but for the copy.
 *
 * Meanwhile the next one may be unmapped, and be the engine's, too: so that this has
 * something to do while the first is moved.  It is for the ordinary case, and whatever
 * is in the way leaves a folio to its turn:
 *
 * - Nothing is waited for while another folio is out of reach, but what has to be to
 *   unmap it: its lock is tried, as that of the destination is, and the pool of the
 *   node where the last one went to is to have some.
 * - Anonymous folios only: the lock of a file's mappings would be held for longer.
 * - Two may be out of reach for as long as max_unmapped_us only, and not at all with
 *   one window or without streaming.
 * - Not if the time that helpers spend may stop the task: that is charged between two
 *   folios, when none is out of reach.
 *
 * The rules are those for windows, and are kept by the same functions:
 *
 * - Which content can be copied before the move is said in
 *   mm/migrate_offload/eligible.c.  try_to_migrate() flushes the TLBs by itself
 *   here, as nobody asks it to put that off.
 * - A copy is good for one attempt.  A folio that could not be moved is mapped again
 *   before it is tried again, and its destination is given back: each attempt
 *   begins anew, with another destination, and counts as one.
 * - A destination that is held has a reference more.  It does not get back to the
 *   pool of hugetlb until that is dropped.
 *
 * The engine is held from when it is given a folio until that one is moved, and the
 * next one, if that was unmapped meanwhile.  It may go while a folio is locked, or a
 * destination allocated, that waits for something.
 *
 * Of one alone, a limit in time cannot be kept by having fewer folios out of reach.
 * The engine is left out where the CPU is sooner: see mm/migrate_offload/choice.c.
 *
 * Everything is done by the task that migrates: there is no lock.
 */

#define pr_fmt(fmt) "migrate_offload: " fmt

#include <linux/hugetlb.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/bandwidth.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "../internal.h"
#include "clock.h"
#include "hooks.h"
#include "hugetlb.h"
#include "internal.h"

/* The size up to which engines are told of folios; there are some of 16 GiB. */
#define MIGRATE_HUGE_MAX_BYTES SZ_1G

/* Where the times of folios of this size are kept. */
static unsigned int migrate_huge_kind(struct folio *folio)
{
	return NR_PAGE_ORDERS + hstate_index(folio_hstate(folio));
}

/* The engine may go; what is left of the list is the CPU's. */
static void migrate_huge_leave(struct migrate_session *s)
{
	migrate_session_release(s);
	if (s->engine)
		migrate_session_settle(s);
	s->engine = NULL;
}

/* Who is to have the list?  As for lists of other folios. */
static void migrate_huge_choose(struct migrate_huge *huge, unsigned int order)
{
	struct migrate_session *s = &huge->session;
	const struct migrate_engine *engine;
	int idx;

	huge->attempt.choice = NULL;
	engine = migrate_engine_enter(s->reason, &idx);
	if (engine && migrate_engine_wants(engine, NUMA_NO_NODE, s->total_bytes)) {
		migrate_choose(&huge->attempt, engine, s->reason, order,
			       s->total_bytes);
		s->by_cpu = huge->attempt.choice && huge->attempt.by_cpu;
	}
	migrate_engine_exit(idx);
}

/*
 * The first hugetlb folio of a list was found: how much is there?  Not on the stack,
 * which has to do for those who compact to get a destination.  NULL, when there is
 * no memory without reclaiming any: then it is as without an engine.
 */
struct migrate_huge *__migrate_huge_begin(struct list_head *from,
					  enum migrate_mode mode, int reason)
{
	struct migrate_session *s;
	struct migrate_huge *huge;
	unsigned int nr_folios = 0, order = 0;
	struct folio *folio;

	huge = kmalloc(sizeof(*huge),
		       GFP_NOWAIT | __GFP_NOMEMALLOC | __GFP_NOWARN);
	if (!huge)
		return NULL;
	s = &huge->session;
	*s = (struct migrate_session) {
		.mode = mode,
		.reason = reason,
	};
	huge->from = from;
	huge->turn = 0;
	huge->ahead.src = NULL;
	huge->was_ahead = false;
	huge->one_by_one = false;
	huge->done_task_ns = 0;
	list_for_each_entry(folio, from, lru) {
		if (!folio_test_hugetlb(folio))
			continue;
		order = folio_order(folio);
		s->total_bytes += folio_size(folio);
		nr_folios++;
	}
	migrate_huge_choose(huge, order);
	migrate_session_begin(s, from, true, nr_folios, false);
	return huge;
}

static struct migrate_part *migrate_huge_part(struct migrate_huge *huge,
					      const struct folio *src)
{
	unsigned int ahead = huge->ahead.src == src;

	return &huge->parts[huge->turn ^ ahead].part;
}

void __migrate_huge_admit(struct migrate_huge *huge, struct folio *src)
{
	struct migrate_part *part = migrate_huge_part(huge, src);
	struct migrate_session *s = &huge->session;

	/* Somebody waits for us to leave it, and the list may be a long one. */
	if (s->engine && huge->ahead.src != src &&
	    !migrate_engine_stays(s->engine, s->reason))
		migrate_huge_leave(s);
	migrate_part_init(part);
	part->copy.reason = s->reason;
	part->copy.mode = s->mode;
	migrate_offload_note_reason(src, s->reason);
	migrate_session_clock(s);
	migrate_part_begin(part, s);
}

/* Will a folio be out of reach for longer than the limit?  There is no smaller window. */
static void migrate_huge_check_limit(const struct migrate_session *s,
				     unsigned int kind)
{
	u64 limit_ns = migrate_limit_ns();
	const struct migrate_pace *pace;

	if (!s->engine)
		return;
	pace = migrate_pace_of(s->by_cpu ? NULL : s->paces, kind);
	if (limit_ns && READ_ONCE(pace->own.ns) > limit_ns)
		migrate_session_count_over(s, 1);
}

/* Nothing more is to come of the engine. */
static void migrate_huge_judge(struct migrate_session *s,
			       struct migrate_part *part,
			       enum migrate_verdict why)
{
	migrate_session_clock(s);
	part->copied_ns = s->now_ns;
	part->took.copied_ns = s->task_ns;
	part->nr_collected = part->copy.nr_pairs;
	migrate_part_judge(s, part, &part->copy.pairs[0], why);
}

/* Is the engine at it, as far as we know? */
static bool migrate_huge_is_flying(const struct migrate_session *s,
				   const struct migrate_part *part)
{
	return s->open && part->by_engine &&
		part->nr_collected < part->copy.nr_pairs;
}

/* Look whether the engine is done with it, and wait for that for up to @wait_ns. */
static void migrate_huge_reap(struct migrate_session *s,
			      struct migrate_part *part, u64 wait_ns)
{
	const struct migrate_copy_batch *copy = &part->copy;

	if (!migrate_huge_is_flying(s, part))
		return;
	if (copy->nr_done < copy->nr_pairs)
		migrate_engine_reap(s->engine, &s->stream, wait_ns);
	if (copy->nr_done < copy->nr_pairs)
		return;
	s->flying_bytes -= copy->bytes;
	migrate_huge_judge(s, part, VERDICT_ENGINE);
}

/* Have the engine copy the one pair of the part, if it can and will. */
static void migrate_huge_offer(struct migrate_session *s,
			       struct migrate_part *part)
{
	struct migrate_copy_batch *copy = &part->copy;
	enum migrate_verdict why;

	why = VERDICT_DECLINED;
	if (migrate_session_hold(s))
		why = migrate_session_why_not(s, folio_nid(copy->pairs[0].dst));
	if (part->bytes > MIGRATE_HUGE_MAX_BYTES)
		why = VERDICT_DECLINED;
	if (why != VERDICT_ENGINE) {
		migrate_part_leave(s, part, why);
		return;
	}
	migrate_part_sort(s, part);
	if (!copy->nr_pairs)
		return;

	part->begun_ns = s->task_ns;
	why = migrate_part_submit(s, part);
	part->by_engine = why == VERDICT_ENGINE;
	migrate_session_clock(s);
	part->took.launched_ns = s->task_ns;
	/* Without a stream the engine is done by now. */
	if (!migrate_huge_is_flying(s, part))
		migrate_huge_judge(s, part, why);
}

/*
 * Who made the list of sources goes on with it, and finds @src where it was: an engine
 * that is still at it does not look at its lists.  The destination, which nobody else
 * knows of, may be on hugetlb's list of folios in use.  It need not be: whoever puts it
 * there, or frees it, takes it off whatever list it is on.
 */
void __migrate_huge_submit(struct migrate_huge *huge, struct folio *src,
			   struct folio *dst)
{
	struct migrate_part *part = migrate_huge_part(huge, src);
	struct migrate_session *s = &huge->session;
	struct list_head *before = src->lru.prev;

	/* It was, before its turn came. */
	if (huge->was_ahead && huge->ahead.src != src)
		return;
	/* The time of the engine ends when it is seen to be done. */
	if (huge->ahead.src == src)
		migrate_huge_reap(s, &huge->parts[huge->turn].part, 0);
	migrate_session_clock(s);
	part->full_ns = s->now_ns;
	part->flushed_ns = s->now_ns;
	part->copied_ns = s->now_ns;
	migrate_huge_check_limit(s, migrate_huge_kind(src));

	spin_lock_irq(&hugetlb_lock);
	list_del_init(&dst->lru);
	spin_unlock_irq(&hugetlb_lock);
	migrate_part_add(part, src, dst, part->start_ns);
	migrate_huge_offer(s, part);
	list_move(&src->lru, before);
	list_del_init(&dst->lru);
}

static bool migrate_huge_two_in_time(const struct migrate_huge *huge,
				     unsigned int kind)
{
	struct migrate_pace *pace = migrate_pace_of(huge->session.paces, kind);

	return !huge->one_by_one &&
		migrate_limit_allows_two(READ_ONCE(pace->own.ns));
}

/*
 * A look without its lock: what is found then decides.  Whoever has a reference, it
 * could not be moved.
 */
static bool migrate_huge_is_ordinary(struct folio *next, const struct folio *src)
{
	return folio_test_hugetlb(next) &&
		folio_order(next) == folio_order(src) &&
		folio_test_anon(src) && folio_test_anon(next) &&
		folio_mapped(next) && !folio_test_locked(next) &&
		folio_ref_count(next) == folio_expected_ref_count(next) + 1;
}

/*
 * Racy: at worst, a destination has to be allocated as ever.  As @dst had to be, if
 * what is in the pool would not do.
 */
static bool migrate_huge_pool_has_more(struct folio *dst)
{
	const struct hstate *h = folio_hstate(dst);

	if (folio_test_hugetlb_temporary(dst))
		return false;
	/* Without hugetlb_lock: no more than a guess is needed. */
	return data_race(h->free_huge_pages > h->resv_huge_pages &&
			 h->free_huge_pages_node[folio_nid(dst)]);
}

struct folio *__migrate_huge_next(struct migrate_huge *huge, struct folio *src,
				  struct folio *dst)
{
	struct migrate_session *s = &huge->session;
	struct folio *next;

	if (!s->engine || list_is_last(&src->lru, huge->from) ||
	    !migrate_engine_stays(s->engine, s->reason))
		return NULL;
	/* Were it copied by now, it should not have to wait. */
	migrate_huge_reap(s, migrate_huge_part(huge, src), 0);
	if (!migrate_huge_is_flying(s, migrate_huge_part(huge, src)))
		return NULL;
	next = list_next_entry(src, lru);
	if (!migrate_huge_is_ordinary(next, src) ||
	    !migrate_huge_pool_has_more(dst) ||
	    !migrate_huge_two_in_time(huge, migrate_huge_kind(src)) ||
	    cfs_bandwidth_limits(current))
		return NULL;
	huge->ahead.src = next;
	return next;
}

/* Waits for the engine, if it is still at it. */
enum migrate_content __migrate_huge_copied(struct migrate_huge *huge)
{
	struct migrate_part *other, *part = &huge->parts[huge->turn].part;
	struct migrate_session *s = &huge->session;

	while (migrate_huge_is_flying(s, part)) {
		migrate_huge_reap(s, part, U64_MAX);
		cond_resched();
	}
	/* That was not time of the other one, though it had been begun. */
	other = &huge->parts[!huge->turn].part;
	if (huge->ahead.src && other->by_engine)
		other->took.backlog_ns = part->took.copied_ns -
			min(part->took.copied_ns, other->took.launched_ns);
	return part->copy.pairs[0].content;
}

/*
 * One that was unmapped ahead of its turn was out of reach for longer than it takes by
 * itself: that begins when the one before it was copied, @since_ns ago.  As it was
 * unmapped by then, it is half of all the time at least.
 */
static u64 migrate_huge_own_ns(u64 unmapped_ns, u64 since_ns)
{
	return max(unmapped_ns / 2, min(unmapped_ns, since_ns));
}

/* How long did it take?  The next one of this size will take as long. */
static void migrate_huge_learn(struct migrate_huge *huge,
			       struct migrate_part *part, struct folio *src,
			       u64 unmapped_ns)
{
	struct migrate_session *s = &huge->session;
	unsigned int kind = migrate_huge_kind(src);
	u64 limit_ns = migrate_limit_ns();
	struct migrate_pace *pace;

	if ((huge->was_ahead || huge->ahead.src) && limit_ns &&
	    unmapped_ns > limit_ns)
		huge->one_by_one = true;
	if (huge->was_ahead)
		unmapped_ns = migrate_huge_own_ns(unmapped_ns,
						  s->task_ns -
						  huge->done_task_ns);
	pace = migrate_pace_of(part->by_engine ? s->paces : NULL, kind);
	migrate_rate_note(&pace->own, unmapped_ns);
}

void __migrate_huge_end(struct migrate_huge *huge, struct folio *src, int rc)
{
	struct migrate_part *part = migrate_huge_part(huge, src);
	struct migrate_session *s = &huge->session;
	bool copied;
	u64 ns;

	migrate_offload_forget_reason(src);
	/* It could not be unmapped. */
	if (!part->nr_all)
		return;
	migrate_session_clock(s);
	ns = s->now_ns - part->start_ns;
	copied = part->copy.pairs[0].content == MIGRATE_CONTENT_DST;
	if (copied && rc == -EAGAIN)
		part->outcome.nr_retried++;
	migrate_offload_note_unmapped(s->reason, ns);
	if (unlikely(s->traced))
		migrate_trace_folio(s, part->bytes, ns, copied, rc);
	/* What was not moved may not have been copied either. */
	if (s->engine && rc == MIGRATEPAGE_SUCCESS)
		migrate_huge_learn(huge, part, src,
				   migrate_part_task_ns(s, part, ns));
	huge->done_task_ns = part->took.copied_ns;
	migrate_part_note_engine(part);
	migrate_part_count(s, part);
	migrate_trace_part(s, part);
	/* The next one may have to wait for memory, or a lock. */
	if (s->engine && !huge->ahead.src) {
		migrate_session_release(s);
		migrate_session_charge(s);
	}
}

void __migrate_huge_finish(struct migrate_huge *huge, unsigned int nr_moved)
{
	/* Its turn comes always: nothing but an allocation ends a list early. */
	VM_WARN_ON_ONCE(huge->ahead.src);
	if (huge->attempt.choice)
		migrate_attempt_end(&huge->attempt, nr_moved);
	if (huge->session.on) {
		migrate_huge_leave(&huge->session);
		migrate_trace_last(&huge->session);
	}
	kfree(huge);
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/hugetlb_kunit.c"
#endif
