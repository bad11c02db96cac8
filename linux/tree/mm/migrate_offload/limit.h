/* SPDX-License-Identifier: GPL-2.0-only */
/* Plan windows by the times of earlier ones: see mm/migrate_offload/limit.c. */
#ifndef _MM_MIGRATE_OFFLOAD_LIMIT_H
#define _MM_MIGRATE_OFFLOAD_LIMIT_H

#include <linux/mm.h>
#include <linux/sizes.h>
#include <linux/types.h>

#include "plan.h"

/* The largest window that max_batch_pages allows. */
#define MIGRATE_MAX_BATCH_PAGES (SZ_1G >> PAGE_SHIFT)

struct attribute_group;
struct migrate_windows;

extern const struct attribute_group migrate_limit_group;
extern unsigned int migrate_max_batch_pages;
extern unsigned int migrate_max_windows;
extern unsigned int migrate_streaming;

void migrate_max_windows_set(unsigned int nr);

u64 migrate_limit_ns(void);
bool migrate_limit_is_fixed(void);
struct migrate_pace *migrate_pace_of(struct migrate_pace *paces,
				     unsigned int order);
void migrate_times_learn(struct migrate_windows *w, unsigned int order,
			 const struct migrate_times *all);
void migrate_plan_init(struct migrate_plan *plan, struct migrate_pace *paces,
		       unsigned int order);
void migrate_plan_stock(struct migrate_plan *plan, unsigned int order);
void migrate_windows_prepared(struct migrate_windows *w, u64 prep_ns, bool idle);
void migrate_windows_handed(struct migrate_windows *w, unsigned int nr,
			    u64 flush_ns, u64 submit_ns);
void migrate_windows_plan(struct migrate_windows *w);
bool migrate_windows_want_cpu(const struct migrate_windows *w);
void migrate_limit_prepare(void);

/* mm/migrate_offload/measure.c */
u64 migrate_measure_copy_2m_ns(void);

#endif /* _MM_MIGRATE_OFFLOAD_LIMIT_H */
