// SPDX-License-Identifier: GPL-2.0-only
/*
 * An engine copies hugetlb folios, one at a time.
 *
 * migrate_hugetlbs() unmaps a folio, copies, moves and maps it, before it takes
 * the next one.  A 2M folio is as large as a batch of small folios, and engines
 * split folios.  So the core offers each folio as a part with one pair.
 *
 * The rules for windows hold here, too, and the same functions keep them:
 *
 * - eligible.c says which content the engine may copy before the move.
 *   try_to_migrate() has flushed the TLBs by then, because migrate_hugetlbs()
 *   does not defer the flush.
 * - A copy is good for one attempt.  After a failed move the source is mapped
 *   again, and the next attempt begins with another destination.
 * - A held destination has one more reference, and stays out of hugetlb's
 *   pools.
 *
 * The session holds the engine from the offer until the folio has moved.  So
 * the engine can unregister while a folio waits for a lock or for a
 * destination.
 *
 * A hugetlb folio may exceed the time limit, because no smaller window is
 * possible.  choice.c leaves the engine out where the CPU is faster.
 *
 * Only the task that migrates uses these data: there is no lock.
 */

#define pr_fmt(fmt) "migrate_offload: " fmt

#include <linux/hugetlb.h>
#include <linux/ktime.h>
#include <linux/leafops.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "../internal.h"
#include "clock.h"
#include "hooks.h"
#include "hugetlb.h"
#include "internal.h"

/* Engines get folios of up to this size.  Some hugetlb folios have 16 GiB. */
#define MIGRATE_HUGE_MAX_BYTES SZ_1G

/* Returns the index of the times of folios of this size. */
static unsigned int migrate_huge_kind(struct folio *folio)
{
	return NR_PAGE_ORDERS + hstate_index(folio_hstate(folio));
}

/* Leave the rest of the list to the CPU, so that the engine can unregister. */
static void migrate_huge_leave(struct migrate_session *s)
{
	migrate_session_release(s);
	if (s->engine)
		migrate_session_settle(s);
	s->engine = NULL;
}

/* Choose the engine or the CPU, as for lists of other folios. */
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
 * Begin the hugetlb folios of a list.  The allocation neither reclaims nor uses
 * reserves; if it fails, the CPU copies as in stock Linux.  The stack has no
 * room, because reclaim and compaction may run below to get a destination.
 */
struct migrate_huge *__migrate_huge_begin(struct list_head *from,
					  enum migrate_mode mode, int reason)
{
	struct migrate_session *s;
	struct migrate_huge *huge;
	unsigned int nr_folios = 0, order = 0;
	struct folio *folio;

	huge = kmalloc_obj(*huge,
			   GFP_NOWAIT | __GFP_NOMEMALLOC | __GFP_NOWARN);
	if (!huge)
		return NULL;
	s = &huge->session;
	*s = (struct migrate_session) {
		.mode = mode,
		.reason = reason,
	};
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

void __migrate_huge_admit(struct migrate_huge *huge, struct folio *src)
{
	struct migrate_part *part = &huge->part.part;
	struct migrate_session *s = &huge->session;

	/*
	 * The engine is no longer active: the CPU copies the rest of the list.
	 */
	if (s->engine && !migrate_engine_stays(s->engine, s->reason))
		migrate_huge_leave(s);
	migrate_part_init(part);
	part->copy.reason = s->reason;
	part->copy.mode = s->mode;
	migrate_offload_note_reason(src, s->reason);
	migrate_session_clock(s);
	migrate_part_begin(part, s);
}

/* Count a folio whose expected unmapped time exceeds the limit. */
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

/* Called after the engine has completed the part, or has not taken it. */
static void migrate_huge_judge(struct migrate_session *s,
			       struct migrate_part *part,
			       enum migrate_verdict why)
{
	migrate_session_clock(s);
	part->copied_ns = s->now_ns;
	part->took.copied_ns = s->task_ns;
	migrate_part_judge(s, part, &part->copy.pairs[0], why);
}

/*
 * Wait until the engine has reported the pair.  Without a stream, the engine
 * has copied in submit().
 */
static void migrate_huge_wait(struct migrate_session *s,
			      const struct migrate_copy_batch *copy)
{
	if (!s->open)
		return;
	while (copy->nr_done < copy->nr_pairs) {
		migrate_engine_reap(s->engine, &s->stream, U64_MAX);
		cond_resched();
	}
	s->flying_bytes -= copy->bytes;
}

/* Offer the pair of the part to the engine, and wait for the copy. */
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

	why = migrate_part_submit(s, part);
	part->by_engine = why == VERDICT_ENGINE;
	if (part->by_engine)
		migrate_huge_wait(s, copy);
	migrate_huge_judge(s, part, why);
}

/*
 * Let the engine copy @src, which is unmapped.  The TLBs are flushed.  Returns
 * where the content is afterwards.
 *
 * The engine may use the lists of the batch only until it has completed, so
 * @src returns to its place in the caller's list.  @dst leaves hugetlb's list
 * of active folios, and need not return: hugetlb removes a folio from any list
 * that it is on.
 */
enum migrate_content __migrate_huge_copy(struct migrate_huge *huge,
					 struct folio *src, struct folio *dst)
{
	struct migrate_part *part = &huge->part.part;
	struct migrate_session *s = &huge->session;
	struct list_head *before = src->lru.prev;

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
	return part->copy.pairs[0].content;
}

/* Expect the next folio of this size to take as long. */
static void migrate_huge_learn(struct migrate_session *s,
			       struct migrate_part *part, struct folio *src,
			       u64 unmapped_ns)
{
	struct migrate_pace *pace;

	pace = migrate_pace_of(part->by_engine ? s->paces : NULL,
			       migrate_huge_kind(src));
	migrate_rate_note(&pace->own, unmapped_ns);
}

void __migrate_huge_end(struct migrate_huge *huge, struct folio *src, int rc)
{
	struct migrate_part *part = &huge->part.part;
	struct migrate_session *s = &huge->session;
	bool copied;
	u64 ns;

	migrate_offload_forget_reason(src);
	/* The folio could not be unmapped. */
	if (!part->nr_all)
		return;
	migrate_session_clock(s);
	ns = s->now_ns - part->start_ns;
	copied = part->copy.pairs[0].content == MIGRATE_CONTENT_DST;
	if (copied && rc == -EAGAIN)
		part->outcome.nr_retried++;
	migrate_offload_note_unmapped(s->reason, ns, 1);
	if (unlikely(s->traced))
		migrate_trace_folio(s, part->bytes, ns, copied, rc);
	/* Learn only from moves: after a failure, a copy may be missing. */
	if (s->engine && !rc)
		migrate_huge_learn(s, part, src,
				   migrate_part_task_ns(s, part, ns));
	migrate_part_note_engine(part);
	migrate_part_count(s, part);
	migrate_trace_part(s, part);
	/* Release the engine: the next folio may wait for memory or a lock. */
	if (s->engine) {
		migrate_session_release(s);
		migrate_session_charge(s);
	}
}

void __migrate_huge_finish(struct migrate_huge *huge, unsigned int nr_moved)
{
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
