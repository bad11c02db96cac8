/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The two clocks of windows.
 *
 * One is what time it is.  It says what users are shown, and when a window that is
 * filled has to go.  The other one, that of the task, stands while the task is ready
 * to run and others have its CPU.  What windows take by this clock is what the next
 * ones are planned with: for how long others have the CPU says nothing about windows,
 * and smaller ones would not change it.
 *
 * Without CONFIG_SCHED_INFO they are the same.
 */
#ifndef _MM_MIGRATE_OFFLOAD_CLOCK_H
#define _MM_MIGRATE_OFFLOAD_CLOCK_H

#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/sched.h>

#include "internal.h"

/* For how long has this task been ready to run, and others had its CPU? */
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
	/* What was waited is by clocks of run queues, which may be ahead of ours. */
	s->task_ns = max(s->task_ns, now_ns - min(now_ns, waited_ns));
}

static inline void migrate_session_clock(struct migrate_session *s)
{
	u64 now_ns, waited_ns;

	/* Both at once: the task may have to wait in between. */
	do {
		waited_ns = migrate_task_waited_ns();
		now_ns = ktime_get_ns();
	} while (waited_ns != migrate_task_waited_ns());
	migrate_session_clock_is(s, now_ns, waited_ns);
}

/* For how long has the clock of the task stood, since some time in the past? */
static inline u64 migrate_session_stood_ns(const struct migrate_session *s)
{
	return s->now_ns - s->task_ns;
}

/* A part begins, or has its first folio only now. */
static inline void migrate_part_begin(struct migrate_part *part,
				      const struct migrate_session *s)
{
	part->start_ns = s->now_ns;
	part->start_task_ns = s->task_ns;
}

/* For how long was the first folio of a part out of reach, by the clock of the task? */
static inline u64 migrate_part_task_ns(const struct migrate_session *s,
				       const struct migrate_part *part,
				       u64 unmapped_ns)
{
	u64 waited_ns = migrate_session_stood_ns(s) -
			(part->start_ns - part->start_task_ns);

	return unmapped_ns - min(unmapped_ns, waited_ns);
}

/*
 * And any other one, of a part that was flushed?  If the task waited before it was
 * unmapped, that would be too little.  But it was unmapped before the engine was
 * offered it: at least for as long as that is ago.
 */
static inline u64 migrate_pair_task_ns(const struct migrate_session *s,
				       const struct migrate_part *part,
				       u64 unmapped_ns)
{
	return max(migrate_part_task_ns(s, part, unmapped_ns),
		   s->task_ns - part->begun_ns);
}

#endif /* _MM_MIGRATE_OFFLOAD_CLOCK_H */
