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

/* The number of copies to time, for each size of folio. */
#define MIGRATE_NR_TIMED 3

/* Assume 2 MiB at 2 GB/s if there is no memory to time a copy. */
#define MIGRATE_GUESSED_2M_NS NSEC_PER_MSEC

static u64 migrate_measure_copy_ns(struct folio *dst, struct folio *src)
{
	u64 start_ns = ktime_get_ns();

	/* A copy that ends at poison has no time. */
	if (folio_mc_copy(dst, src))
		return 0;
	return ktime_get_ns() - start_ns;
}

/*
 * Returns the shortest time of a few copies, because an interrupt or another
 * task may delay a copy.  Each copy has other folios, because folios that
 * migrate are rarely in a cache.
 */
static u64 migrate_measure_order_ns(unsigned int order, int src_nid,
				    int dst_nid)
{
	/* A node of CXL memory often has ZONE_MOVABLE alone. */
	gfp_t gfp = GFP_HIGHUSER_MOVABLE | __GFP_THISNODE | __GFP_NOWARN |
		__GFP_NORETRY;
	struct folio *src[MIGRATE_NR_TIMED], *dst[MIGRATE_NR_TIMED];
	u64 ns = 0;
	int i;

	for (i = 0; i < MIGRATE_NR_TIMED; i++) {
		src[i] = __folio_alloc_node(gfp, order, src_nid);
		dst[i] = __folio_alloc_node(gfp, order, dst_nid);
	}
	for (i = 0; i < MIGRATE_NR_TIMED; i++) {
		if (src[i] && dst[i])
			ns = min_not_zero(ns, migrate_measure_copy_ns(dst[i], src[i]));
		if (src[i])
			folio_put(src[i]);
		if (dst[i])
			folio_put(dst[i]);
	}
	return ns;
}

/*
 * Time copies of 2M folios by the CPU.  Without memory for 2M folios, scale up
 * the time of smaller ones.  Returns 0 without any memory.
 */
static u64 migrate_measure_2m_ns(int src_nid, int dst_nid)
{
	unsigned int order = get_order(SZ_2M);
	u64 ns;

	do {
		ns = migrate_measure_order_ns(order, src_nid, dst_nid);
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
