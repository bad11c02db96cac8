/* SPDX-License-Identifier: GPL-2.0-only */
/* Plan windows by the times of earlier ones: see mm/migrate_offload/limit.c. */
#ifndef _MM_MIGRATE_OFFLOAD_LIMIT_H
#define _MM_MIGRATE_OFFLOAD_LIMIT_H

#include <linux/mm.h>
#include <linux/sizes.h>
#include <linux/types.h>

/* The largest window that max_batch_pages allows. */
#define MIGRATE_MAX_BATCH_PAGES (SZ_1G >> PAGE_SHIFT)

struct attribute_group;
struct migrate_windows;

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
	unsigned int early;		/* see limit.c; 0: not known */
	unsigned int most;		/* folios, after a late window */
	unsigned int nr_careful;	/* windows for which @most holds */
	unsigned int since;		/* nr_limits_set at that time */
};

/* Times of a part of a window, or of all of it, by the clock of the task. */
struct migrate_times {
	unsigned int nr;		/* folios */
	unsigned int nr_by_engine;
	u64 launched_ns;		/* the engine got the first part */
	u64 copied_ns;			/* the engine had copied all */
	u64 backlog_ns;			/* between them, for earlier windows */
	u64 worst_ns;			/* longest unmapped time of a folio */
	u64 stood_ns;			/* the clock stood during the copy */
};

/* The plan of a window. */
struct migrate_plan {
	u64 limit_ns;			/* 0: none */
	u64 own_ns;
	u64 copy_ns;			/* of one folio; 0: not known */
	u64 early_ns;			/* begin with this work left */
	unsigned int folios;
	unsigned int least;		/* with fewer, most time is fixed */
	unsigned int max_windows;
	bool streaming;
};

extern const struct attribute_group migrate_limit_group;
extern unsigned int migrate_max_batch_pages;
extern unsigned int migrate_max_windows;
extern unsigned int migrate_streaming;

void migrate_max_windows_set(unsigned int nr);

u64 migrate_limit_ns(void);
bool migrate_limit_is_fixed(void);
bool migrate_limit_allows_two(u64 own_ns);
struct migrate_pace *migrate_pace_of(struct migrate_pace *paces,
				     unsigned int order);
void migrate_times_learn(struct migrate_windows *w, unsigned int order,
			 const struct migrate_times *all);
void migrate_plan_init(struct migrate_plan *plan, struct migrate_pace *paces,
		       unsigned int order);
void migrate_plan_stock(struct migrate_plan *plan, unsigned int order);
u64 migrate_plan_late_ns(const struct migrate_plan *plan, u64 backlog_ns);
u64 migrate_plan_hold_ns(const struct migrate_plan *plan, u64 backlog_ns);
bool migrate_plan_is_over(const struct migrate_plan *plan);
void migrate_windows_prepared(struct migrate_windows *w, u64 prep_ns, bool idle);
void migrate_windows_handed(struct migrate_windows *w, unsigned int nr,
			    u64 flush_ns, u64 submit_ns);
void migrate_windows_plan(struct migrate_windows *w);
void migrate_limit_prepare(void);

/* mm/migrate_offload/measure.c */
void migrate_rate_note(struct migrate_rate *rate, u64 sample_ns);
void migrate_mean_note(u64 *mean_ns, u64 sample_ns);
void migrate_times_merge(struct migrate_times *all,
			 const struct migrate_times *some);
u64 migrate_times_copy_ns(const struct migrate_times *all,
			  const struct migrate_pace *pace);
u64 migrate_measure_copy_2m_ns(void);

#endif /* _MM_MIGRATE_OFFLOAD_LIMIT_H */
