/* SPDX-License-Identifier: GPL-2.0-only */
/* The arithmetic of windows: see plan.c.  All times are in nanoseconds. */
#ifndef _MM_MIGRATE_OFFLOAD_PLAN_H
#define _MM_MIGRATE_OFFLOAD_PLAN_H

#include <linux/types.h>

/*
 * After a late window, this many windows are smaller, so that the 99th
 * percentile of unmapped times is within the limit.  Without this rule, that
 * percentile is 44% longer for 4K folios with a limit of two folios.
 *
 * Windows for 75% of the limit instead of 90% do not replace this rule.  The
 * percentile is then still 38% longer, and the rate falls by up to 13% ("bench
 * latency --check limit" on the machine "counted").
 */
#define MIGRATE_CAREFUL_WINDOWS 256

/* A time that the core expects, from repeated samples. */
struct migrate_rate {
	u64 ns;				/* 0: not known yet */
	u64 last_ns;
};

/* Times of windows with folios of one size. */
struct migrate_pace {
	unsigned int folios;		/* in the next window */
	struct migrate_rate own;	/* time of a window of @folios */
	struct migrate_rate copy;	/* time to copy one folio */
	struct migrate_rate prep;	/* time to unmap one folio */
	u64 fixed_ns;			/* to flush and hand over a window */
	unsigned int early;		/* see plan.c; 0: not known */
	unsigned int most;		/* folios, after a late window */
	unsigned int nr_careful;	/* windows for which @most holds */
	unsigned int since;		/* nr_limits_set at the last reset */
};

/* Times of a part or of a whole window, by the task's clock. */
struct migrate_times {
	unsigned int nr;		/* folios */
	unsigned int nr_by_engine;
	u64 launched_ns;		/* the engine got the first part */
	u64 copied_ns;			/* the engine had copied all */
	u64 backlog_ns;			/* in between, for earlier windows */
	u64 worst_ns;			/* longest unmapped time of a folio */
	u64 stood_ns;			/* how long the clock stood meanwhile */
};

/* The plan of a window. */
struct migrate_plan {
	u64 limit_ns;			/* 0: none */
	u64 own_ns;
	u64 copy_ns;			/* of one folio; 0: not known */
	u64 early_ns;			/* begin when this much work is left */
	unsigned int folios;
	unsigned int least;		/* with fewer, most time is fixed */
	unsigned int max_windows;
	bool streaming;
};

void migrate_rate_note(struct migrate_rate *rate, u64 sample_ns);
void migrate_mean_note(u64 *mean_ns, u64 sample_ns);
void migrate_times_merge(struct migrate_times *all,
			 const struct migrate_times *some);
u64 migrate_times_copy_ns(const struct migrate_times *all,
			  const struct migrate_pace *pace);
void migrate_pace_reset(struct migrate_pace *pace);
unsigned int migrate_pace_least(const struct migrate_pace *pace, u64 cpu_ns);
void migrate_pace_note_window(struct migrate_pace *pace,
			      const struct migrate_plan *plan,
			      unsigned int nr, u64 own_ns, u64 copy_ns);
void migrate_pace_learn(struct migrate_pace *pace,
			const struct migrate_plan *plan,
			const struct migrate_times *all);
void migrate_pace_prepared(struct migrate_pace *pace, unsigned int nr,
			   u64 prep_ns, bool held_back, bool idle);
void migrate_pace_handed(struct migrate_pace *pace, unsigned int nr,
			 u64 flush_ns, u64 submit_ns);
void migrate_plan_fill(struct migrate_plan *plan,
		       const struct migrate_pace *pace, unsigned int max_folios,
		       u64 cpu_ns, bool by_engine);
u64 migrate_plan_late_ns(const struct migrate_plan *plan, u64 backlog_ns);
u64 migrate_plan_hold_ns(const struct migrate_plan *plan, u64 backlog_ns);
bool migrate_plan_is_over(const struct migrate_plan *plan);
bool migrate_plan_wants_cpu(const struct migrate_plan *plan, u64 cpu_ns);

#endif /* _MM_MIGRATE_OFFLOAD_PLAN_H */
