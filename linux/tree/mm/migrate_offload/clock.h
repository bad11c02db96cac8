/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The two clocks of windows.
 *
 * now_ns is the elapsed time.  It is for histograms and tracepoints, and limits
 * how long a window is filled.  The clock of the task, task_ns, stands while
 * the task is runnable and waits for a CPU.  The core plans windows by this
 * clock, because smaller windows would not shorten these waits.
 *
 * Without CONFIG_SCHED_INFO both clocks are the same.
 */
#ifndef _MM_MIGRATE_OFFLOAD_CLOCK_H
#define _MM_MIGRATE_OFFLOAD_CLOCK_H

#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/sched.h>

#include "internal.h"

/* How long has the task waited for a CPU while it was runnable? */
static inline u64 migrate_task_waited_ns(void)
{
#ifdef CONFIG_SCHED_INFO
	return READ_ONCE(current->sched_info.run_delay);
#else
	return 0;
#endif
}

static inline void migrate_session_clock_is(struct migrate_session *s,
					    u64 now_ns, u64 waited_ns)
{
	s->now_ns = now_ns;
	/* run_delay is by clocks of run queues, which may be ahead of ktime. */
	s->task_ns = max(s->task_ns, now_ns - min(now_ns, waited_ns));
}

static inline void migrate_session_clock(struct migrate_session *s)
{
	u64 now_ns, waited_ns;

	/* Read both again if the task had to wait for a CPU in between. */
	do {
		waited_ns = migrate_task_waited_ns();
		now_ns = ktime_get_ns();
	} while (waited_ns != migrate_task_waited_ns());
	migrate_session_clock_is(s, now_ns, waited_ns);
}

/* How long has the task's clock stood?  Use differences only. */
static inline u64 migrate_session_stood_ns(const struct migrate_session *s)
{
	return s->now_ns - s->task_ns;
}

/* Start the times of a part, and restart them as long as the part is empty. */
static inline void migrate_part_begin(struct migrate_part *part,
				      const struct migrate_session *s)
{
	part->start_ns = s->now_ns;
	part->start_task_ns = s->task_ns;
}

/* Converts the unmapped time of a part's first folio to the task's clock. */
static inline u64 migrate_part_task_ns(const struct migrate_session *s,
				       const struct migrate_part *part,
				       u64 unmapped_ns)
{
	u64 waited_ns = migrate_session_stood_ns(s) -
			(part->start_ns - part->start_task_ns);

	return unmapped_ns - min(unmapped_ns, waited_ns);
}

/*
 * Converts the unmapped time of any folio of a flushed part to the task's
 * clock.  migrate_part_task_ns() also subtracts waits before this folio was
 * unmapped.  But the folio was unmapped before the engine got the part, so use
 * at least the time since then.
 */
static inline u64 migrate_pair_task_ns(const struct migrate_session *s,
				       const struct migrate_part *part,
				       u64 unmapped_ns)
{
	return max(migrate_part_task_ns(s, part, unmapped_ns),
		   s->task_ns - part->begun_ns);
}

#endif /* _MM_MIGRATE_OFFLOAD_CLOCK_H */
