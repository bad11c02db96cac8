// SPDX-License-Identifier: GPL-2.0-only
/* Time how long the CPU takes to copy 2 MiB: the default of the time limit. */

#define pr_fmt(fmt) "migrate_offload: " fmt

#include <linux/gfp.h>
#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/nodemask.h>
#include <linux/sizes.h>

#include "internal.h"

/* Assume 2 MiB at 2 GB/s if there is no memory to time a copy. */
#define MIGRATE_GUESSED_2M_NS NSEC_PER_MSEC

/* The least of three times: an interrupt or another task may delay a copy. */
static u64 migrate_measure_copy_ns(struct folio *dst, struct folio *src)
{
	u64 start_ns, least_ns = 0;
	int i;

	for (i = 0; i < 3; i++) {
		start_ns = ktime_get_ns();
		/* A copy that ends at poison has no time. */
		if (folio_mc_copy(dst, src))
			return 0;
		least_ns = min_not_zero(least_ns, ktime_get_ns() - start_ns);
	}
	return least_ns;
}

/*
 * Time one copy of a 2M folio by the CPU.  Without memory for a 2M folio, scale
 * up the time of a smaller one.  Returns 0 without any memory.
 */
static u64 migrate_measure_2m_ns(int src_nid, int dst_nid)
{
	gfp_t gfp = GFP_KERNEL | __GFP_THISNODE | __GFP_NOWARN | __GFP_NORETRY;
	unsigned int order = get_order(SZ_2M);
	u64 ns = 0;

	do {
		struct folio *src = __folio_alloc_node(gfp, order, src_nid);
		struct folio *dst = __folio_alloc_node(gfp, order, dst_nid);

		if (src && dst)
			ns = migrate_measure_copy_ns(dst, src);
		if (src)
			folio_put(src);
		if (dst)
			folio_put(dst);
		if (ns)
			return ns << (get_order(SZ_2M) - order);
	} while (order--);
	return 0;
}

/*
 * The CPU's time to copy 2 MiB from the first node to the node that takes
 * longest.  Never 0, which would mean no limit.  May sleep.
 */
u64 migrate_measure_copy_2m_ns(void)
{
	int src_nid = first_memory_node, dst_nid;
	u64 ns = 0;

	for_each_node_state(dst_nid, N_MEMORY)
		if (dst_nid != src_nid || num_node_state(N_MEMORY) == 1)
			ns = max(ns, migrate_measure_2m_ns(src_nid, dst_nid));
	if (ns)
		return ns;
	pr_warn("no memory to time a copy: max_unmapped_us is guessed\n");
	return MIGRATE_GUESSED_2M_NS;
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/measure_kunit.c"
#endif
