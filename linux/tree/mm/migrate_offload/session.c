// SPDX-License-Identifier: GPL-2.0-only
/*
 * An engine session: the use that one list of migrating folios makes of an
 * engine.
 *
 * The core divides lists of small folios into windows, and migrates hugetlb
 * folios one by one.  For both, the core must keep the engine while it may
 * copy, open its stream, and count its time for the owning cgroups.
 *
 * The session holds its engine under SRCU while the engine may copy for the
 * list.  A task that changes the engine waits for the release.  So the core
 * must release the engine before it waits for memory, a lock or a disk.
 *
 * Only the task that migrates uses its session: there is no lock.
 */

#include <linux/ktime.h>
#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/numa.h>
#include <linux/sched.h>

#include "clock.h"
#include "internal.h"

/*
 * Begin a list of @nr_folios folios; the caller has set @total_bytes in @s.
 * The session is on if the engine wants the list, if the list is measured or
 * traced, or if the caller sets @needed.  If the CPU copies, a limit that an
 * administrator has set also needs a session.
 *
 * Do not hold the engine yet: the first folio may wait for memory or a disk.
 */
void migrate_session_begin(struct migrate_session *s,
			   const struct list_head *from, bool hugetlb,
			   unsigned int nr_folios, bool needed)
{
	enum migrate_verdict why = VERDICT_ENGINE;
	struct migrate_engine *engine;
	int idx;

	s->traced = migrate_being_traced();
	needed |= s->traced || migrate_measuring();
	needed |= s->by_cpu && migrate_limit_is_fixed();

	engine = migrate_engine_enter(s->reason, &idx);
	if (engine) {
		s->engine = engine;
		s->engine_stats = migrate_engine_stats(engine);
		s->paces = migrate_engine_paces(engine);
		s->streams = migrate_engine_streams(engine);
		why = migrate_session_why_not(s, NUMA_NO_NODE);
	}
	migrate_engine_exit(idx);
	s->on = needed || (s->engine && why == VERDICT_ENGINE);
	if (s->engine && !s->on)
		migrate_session_count_unasked(s, from, hugetlb, nr_folios, why);
	s->start_ns = ktime_get_ns();
}

/*
 * Does the session want its engine for folios that go to @dst_nid?  Returns
 * VERDICT_ENGINE if so, else the reason why the CPU copies.  Callers ask before
 * they check each folio, which costs more.
 */
enum migrate_verdict
migrate_session_why_not(const struct migrate_session *s, int dst_nid)
{
	if (!s->engine || s->leaving)
		return VERDICT_DECLINED;
	if (s->by_cpu)
		return VERDICT_TOO_SLOW;
	/* An open stream wants all of the list: submit() may decline a part. */
	if (!s->open &&
	    !migrate_engine_wants(s->engine, dst_nid,
				  min_t(u64, s->total_bytes, SIZE_MAX)))
		return VERDICT_DECLINED;
	return VERDICT_ENGINE;
}

/*
 * Hold the engine, if the list began with this engine and it is still active.
 * A write to sysfs that changes the engine waits until the release.  So wait
 * for nothing but the engine's copies while the session holds the engine.
 */
bool migrate_session_hold(struct migrate_session *s)
{
	if (s->held || !s->engine || s->leaving)
		return s->held;
	s->held = migrate_engine_enter(s->reason, &s->srcu_idx) == s->engine;
	if (!s->held) {
		migrate_engine_exit(s->srcu_idx);
		s->leaving = true;
	}
	return s->held;
}

/*
 * Called when the engine has nothing in flight for this list.  Afterwards the
 * engine may unregister.
 */
void migrate_session_release(struct migrate_session *s)
{
	if (!s->held)
		return;
	if (s->open)
		migrate_engine_close(s->engine, &s->stream);
	s->open = false;
	migrate_engine_exit(s->srcu_idx);
	s->held = false;
}

/*
 * Offer a part to the engine.  Returns VERDICT_ENGINE if the engine took the
 * part, else the reason why the CPU copies it.
 */
enum migrate_verdict
migrate_part_submit(struct migrate_session *s, struct migrate_part *part)
{
	struct migrate_copy_batch *copy = &part->copy;
	int rc = 0;

	if (!s->open) {
		s->stream.reason = s->reason;
		s->stream.mode = s->mode;
		s->stream.dst_nid = copy->dst_nid;
		s->stream.bytes = min_t(u64, s->total_bytes, SIZE_MAX);
		s->stream.task = current;
		if (migrate_engine_streams(s->engine)) {
			rc = migrate_engine_open(s->engine, &s->stream);
			s->open = !rc;
		}
	}
	if (rc)
		return migrate_copy_why(rc);
	/* The engine's time begins here: without a stream, submit() copies. */
	migrate_session_clock(s);
	part->begun_ns = s->task_ns;
	rc = migrate_engine_submit(s->engine, &s->stream, copy);
	if (!rc && s->open) {
		if (!s->flying_bytes)
			s->progress_ns = s->task_ns;
		s->flying_bytes += copy->bytes;
	}
	return migrate_copy_why(rc);
}

/* Leave all pairs of a part to the CPU, for the reason @why. */
void migrate_part_leave(struct migrate_session *s, struct migrate_part *part,
			enum migrate_verdict why)
{
	unsigned int i;

	for (i = 0; i < part->nr_all && s->engine; i++)
		migrate_payers_add(&s->payers, part->copy.pairs[i].src, false);
	part->outcome.folios[why] += part->nr_all;
	part->outcome.cpu_bytes += part->bytes;
	part->copy.nr_pairs = 0;
}
