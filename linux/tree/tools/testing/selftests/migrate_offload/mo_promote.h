/* SPDX-License-Identifier: GPL-2.0-only */
/* What the test of promotions sets and asks: nodes, NUMA balancing, cgroups. */
#ifndef MO_PROMOTE_H
#define MO_PROMOTE_H

#include "mo_util.h"

#define PATH_PROMOTION PATH_OFFLOAD "promotion/"

/* A counter of promotions that gather, and one of their reason. */
long long promotion(const char *name);
long long stat_of_reason(const char *name);
/* What was queued and neither moved nor put back: it waits, or was freed. */
long long not_settled(void);
/* Until nothing is isolated any more.  Returns what is. */
long long wait_for_isolated(void);

/*
 * Have the second of mo_nodes be the one with CPUs, of which @cpu is one, and the
 * first one slower.  NULL, or why not.
 */
const char *mo_find_tiers(int *cpu);

/*
 * Have this process in a cgroup with a setting, if @text is one.  NULL, or why not.
 * @cgroups: where they are then, of MO_SETTING_BYTES; for the way back.
 */
const char *mo_cgroup_enter(char *cgroups, const char *controller,
			    const char *file, const char *text);
void mo_cgroup_leave(const char *cgroups);

#endif /* MO_PROMOTE_H */
