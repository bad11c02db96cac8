/* SPDX-License-Identifier: GPL-2.0-only */
/* NUMA balancing, which makes PTEs inaccessible to observe accesses. */
#ifndef MO_NUMA_H
#define MO_NUMA_H

#include <stdbool.h>
#include <stddef.h>

#include "mo_area.h"
#include "mo_util.h"

#define MO_SCAN_SETTINGS 5

/* Make NUMA balancing scan memory at once, until mo_scan_restore(). */
void mo_scan_at_once(char saved[][MO_SETTING_BYTES]);
void mo_scan_restore(char saved[][MO_SETTING_BYTES]);

/*
 * Have NUMA balancing make PTEs PROT_NONE.  The PTEs of the first @nr_kept
 * pages, which are whole folios, stay so.  This touches all other pages again.
 * Pages stay on the first of mo_nodes.  Returns false without NUMA balancing.
 */
bool mo_numa_hint(struct mo_area *area, size_t nr_kept);

#endif /* MO_NUMA_H */
