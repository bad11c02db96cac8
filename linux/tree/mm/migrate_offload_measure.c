// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is expected, by what was timed.  And what the CPU takes to copy a 2M folio:
 * what is usual without any engine, and with that the larger part of the default
 * limit in time.
 */

#include <linux/gfp.h>
#include <linux/ktime.h>
#include <linux/math.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/nodemask.h>
#include <linux/sizes.h>
#include <linux/sort.h>

#include "migrate_offload.h"

#define MIGRATE_MEASURE_ROUNDS 7

/*
 * When two samples in a row are longer than expected, the shorter of them is
 * what is expected from now on: so that something has become slower is noticed
 * at once, and a single one that was held up by something else does not count.
 * Shorter ones count for a quarter.  Lost updates do no harm.
 */
void migrate_rate_note(struct migrate_rate *rate, u64 sample_ns)
{
	u64 old_ns = READ_ONCE(rate->ns);
	u64 last_ns = READ_ONCE(rate->last_ns);

	sample_ns = max(sample_ns, 1ULL);
	WRITE_ONCE(rate->last_ns, sample_ns);
	if (!old_ns)
		WRITE_ONCE(rate->ns, sample_ns);
	else if (sample_ns < old_ns)
		WRITE_ONCE(rate->ns, old_ns - DIV_ROUND_UP(old_ns - sample_ns, 4));
	else if (last_ns > old_ns)
		WRITE_ONCE(rate->ns, min(sample_ns, last_ns));
}

/* The time that the CPU takes to copy a folio of this order, once. */
static u64 migrate_measure_copy_ns(struct folio *dst, struct folio *src)
{
	u64 start_ns = ktime_get_ns();

	folio_mc_copy(dst, src);
	return ktime_get_ns() - start_ns;
}

static int migrate_cmp_ns(const void *a, const void *b)
{
	u64 a_ns = *(const u64 *)a, b_ns = *(const u64 *)b;

	return a_ns < b_ns ? -1 : a_ns > b_ns;
}

/*
 * Time the copy of a 2M folio by the CPU.  Other folios in each round, as those
 * that migrate are not in the caches either.  Returns the median, or 0 if there
 * is no memory to find out.
 */
static u64 migrate_measure_2m_ns(int src_nid, int dst_nid)
{
	gfp_t gfp = GFP_KERNEL | __GFP_THISNODE | __GFP_NOWARN | __GFP_NORETRY;
	struct folio *src[MIGRATE_MEASURE_ROUNDS], *dst[MIGRATE_MEASURE_ROUNDS];
	unsigned int order = get_order(SZ_2M);
	u64 ns[MIGRATE_MEASURE_ROUNDS];
	int i, nr;

	/* Smaller ones will do if there is nothing else. */
	do {
		for (nr = 0; nr < MIGRATE_MEASURE_ROUNDS; nr++) {
			src[nr] = __folio_alloc_node(gfp, order, src_nid);
			if (!src[nr])
				break;
			dst[nr] = __folio_alloc_node(gfp, order, dst_nid);
			if (dst[nr])
				continue;
			folio_put(src[nr]);
			break;
		}
	} while (!nr && order--);

	for (i = 0; i < nr; i++)
		ns[i] = migrate_measure_copy_ns(dst[i], src[i]);
	for (i = 0; i < nr; i++) {
		folio_put(src[i]);
		folio_put(dst[i]);
	}
	if (!nr)
		return 0;
	sort(ns, nr, sizeof(ns[0]), migrate_cmp_ns, NULL);
	return ns[nr / 2] << (get_order(SZ_2M) - order);
}

/*
 * Between the first node and the one that takes longest, in nanoseconds; 0 if there
 * is no memory to find out.  May sleep.
 */
u64 migrate_measure_usual_ns(void)
{
	int src_nid = first_memory_node, dst_nid;
	u64 ns = 0;

	for_each_node_state(dst_nid, N_MEMORY)
		if (dst_nid != src_nid || num_node_state(N_MEMORY) == 1)
			ns = max(ns, migrate_measure_2m_ns(src_nid, dst_nid));
	return ns;
}
