/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Settings and checks of the test of promotions: nodes, NUMA balancing,
 * cgroups.
 */
#ifndef MO_PROMOTE_H
#define MO_PROMOTE_H

#include "mo_util.h"

#define PATH_PROMOTION PATH_OFFLOAD "promotion/"

/* A counter of gathered promotions, or of their reason. */
long long promotion(const char *name);
long long stat_of_reason(const char *name);
/*
 * Queued folios that neither moved nor were put back: they wait, or were freed.
 */
long long not_settled(void);
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
