// SPDX-License-Identifier: GPL-2.0-only
/*
 * Derive expected times from measured times.  Also time how long the CPU takes
 * to copy 2 MiB, which is the default of the time limit.
 */

#define pr_fmt(fmt) "migrate_offload: " fmt

#include <linux/gfp.h>
#include <linux/ktime.h>
#include <linux/math.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/nodemask.h>
#include <linux/sizes.h>

#include "internal.h"

/* Ignore a stop of the task's clock of up to 1/8 of the measured time. */
#define MIGRATE_STOOD_PART 8

/* Assume 2 MiB at 2 GB/s if there is no memory to time a copy. */
#define MIGRATE_GUESSED_2M_NS NSEC_PER_MSEC

/*
 * Update an expected time.  If two samples in a row are longer than expected,
 * expect the shorter of them.  So a lasting slowdown counts at once, and a
 * single outlier does not.  A shorter sample counts for a quarter.  Lost
 * updates do no harm, so there is no lock.
 *
 * A mean that moves by a quarter both ways is worse.  With a limit of two
 * folios, windows of 4K folios stay at one folio.  The rate falls to a fifth
 * ("bench latency --check limit" on the machine "counted").
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

/*
 * Update a mean over about 8 samples.  A sample counts at most as four times
 * the mean, so that a single outlier does not become the rule.
 */
void migrate_mean_note(u64 *mean_ns, u64 sample_ns)
{
	u64 old_ns = READ_ONCE(*mean_ns);

	if (old_ns)
		sample_ns = old_ns - old_ns / 8 + min(sample_ns, 4 * old_ns) / 8;
	WRITE_ONCE(*mean_ns, max(sample_ns, 8ULL));
}

/* Merge the times of two parts of a window. */
void migrate_times_merge(struct migrate_times *all,
			 const struct migrate_times *some)
{
	if (!some->nr)
		return;
	if (!all->nr) {
		*all = *some;
		return;
	}
	if (some->launched_ns < all->launched_ns) {
		all->launched_ns = some->launched_ns;
		all->backlog_ns = some->backlog_ns;
	}
	all->copied_ns = max(all->copied_ns, some->copied_ns);
	all->worst_ns = max(all->worst_ns, some->worst_ns);
	all->stood_ns = max(all->stood_ns, some->stood_ns);
	all->nr += some->nr;
	all->nr_by_engine += some->nr_by_engine;
}

/*
 * How long did the engine copy a window?  The engine continues while the task's
 * clock stands, so the measured time may be too short.  If the clock stood for
 * long, return at least the expected time.
 */
u64 migrate_times_copy_ns(const struct migrate_times *all,
			  const struct migrate_pace *pace)
{
	u64 ns = all->copied_ns - all->launched_ns - all->backlog_ns;

	if (all->stood_ns <= ns / MIGRATE_STOOD_PART)
		return ns;
	return max(ns, READ_ONCE(pace->copy.ns) * all->nr);
}

static u64 migrate_measure_copy_ns(struct folio *dst, struct folio *src)
{
	u64 start_ns = ktime_get_ns();

	folio_mc_copy(dst, src);
	return ktime_get_ns() - start_ns;
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
