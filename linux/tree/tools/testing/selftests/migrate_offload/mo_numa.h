/* SPDX-License-Identifier: GPL-2.0-only */
/* NUMA balancing, which makes page table entries inaccessible to see who uses them. */
#ifndef MO_NUMA_H
#define MO_NUMA_H

#include <stdbool.h>
#include <stddef.h>

#include "mo_area.h"
#include "mo_util.h"

#define MO_SCAN_SETTINGS 5

/* Have NUMA balancing look at memory at once, and as it did before. */
void mo_scan_at_once(char saved[][MO_SETTING_BYTES]);
void mo_scan_restore(char saved[][MO_SETTING_BYTES]);

/*
 * Have NUMA balancing make the entries of pages PROT_NONE.  Those of the first
 * @nr_kept pages, which are whole folios, stay so; all others are touched again.
 * Pages stay on the first of mo_nodes.  False: this kernel has no NUMA balancing.
 */
bool mo_numa_hint(struct mo_area *area, size_t nr_kept);

#endif /* MO_NUMA_H */
