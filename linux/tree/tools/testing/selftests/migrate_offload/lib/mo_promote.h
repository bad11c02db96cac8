/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Settings and checks of the test of promotions: nodes, NUMA balancing,
 * cgroups.
 */
#ifndef MO_PROMOTE_H
#define MO_PROMOTE_H

#include <time.h>

#include "mo_area.h"
#include "mo_util.h"

#define PATH_PROMOTION PATH_OFFLOAD "promotion/"

/* A counter of gathered promotions, or of their reason. */
long long promotion(const char *name);
long long stat_of_reason(const char *name);
/*
 * Queued folios that neither moved nor were put back: they wait, or were freed.
 */
long long not_settled(void);
/*
 * Read the numbers behind two texts at once.  Between two reads, the kernel may
 * add up more counts.
 */
void read_both(const char *path, const char *a, long long *of_a, const char *b,
	       long long *of_b);
long long now_ms(void);
time_t now_s(void);
/*
 * Wait until at most @left pages are elsewhere.  Returns how many are.  This and
 * the next two waits give up after WAIT_S.
 */
#define WAIT_S 120
unsigned long wait_for_promotion(const struct mo_area *area, unsigned long left);
/*
 * Wait until NUMA balancing has marked this many pages.  It scans only the memory
 * of a process that uses CPU time.
 */
void wait_for_marks(long long until);
/* Wait until numa_hint_faults in /proc/vmstat has this value. */
void wait_for_hints(long long until);
/* Let the worker keep each batch for a while.  Returns false without an engine. */
bool promote_slowly(void);
/*
 * Look for all pages: 0 queries their nodes, 1 moves them, and FIND_BY_MBIND
 * binds them to where they may be.  Returns the number of errors.
 */
#define FIND_BY_MBIND 2
#define FIND_WAYS 3
size_t find_all(const struct mo_area *area, unsigned int way);
/* Wait until no page is isolated.  Returns the number that still are. */
long long wait_for_isolated(void);

/*
 * Make the node with CPUs the second of mo_nodes, and a slower one the first.
 * @cpu gets a CPU of the former.  Returns NULL, or the reason.
 */
const char *mo_find_tiers(int *cpu);

/*
 * Put this process into a cgroup, with a setting if @text is not NULL.
 * @cgroups, of MO_SETTING_BYTES, gets the mount point for the way back.
 * Returns NULL, or the reason.
 */
const char *mo_cgroup_enter(char *cgroups, const char *controller,
			    const char *file, const char *text);
void mo_cgroup_leave(const char *cgroups);

#endif /* MO_PROMOTE_H */
