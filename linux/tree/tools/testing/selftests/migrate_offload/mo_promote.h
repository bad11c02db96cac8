/* SPDX-License-Identifier: GPL-2.0-only */
/* What the test of promotions sets and asks: nodes, NUMA balancing, cgroups. */
#ifndef MO_PROMOTE_H
#define MO_PROMOTE_H

#include "mo_util.h"

#define MO_SCAN_SETTINGS 5
#define MO_SETTING_BYTES 32

/* The number of a line "name number" of a file. */
long long mo_read_line(const char *path, const char *name);
/* Of /proc/vmstat, up to date. */
long long mo_vm_counter(const char *name);

/*
 * Have the second of mo_nodes be the one with CPUs, of which @cpu is one, and the
 * first one slower.  NULL, or why not.
 */
const char *mo_find_tiers(int *cpu);

/* Have NUMA balancing look at memory at once, and as it did before. */
void mo_scan_at_once(char saved[][MO_SETTING_BYTES]);
void mo_scan_restore(char saved[][MO_SETTING_BYTES]);

/*
 * Have this process in a cgroup with a setting, if @text is one.  NULL, or why not.
 * @cgroups: where they are then, of MO_SETTING_BYTES; for the way back.
 */
const char *mo_cgroup_enter(char *cgroups, const char *controller,
			    const char *file, const char *text);
void mo_cgroup_leave(const char *cgroups);

#endif /* MO_PROMOTE_H */
