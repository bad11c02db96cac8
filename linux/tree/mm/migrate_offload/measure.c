// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is expected, by what was timed.  And what the CPU takes to copy a 2M folio:
 * what is usual without any engine, and with that the default limit in time.
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

/* A stop of the clock that is shorter than that of what it was to time is none. */
#define MIGRATE_STOOD_PART 8

/* Where there is no memory to time a copy: 2 MiB at 2 GB/s. */
#define MIGRATE_GUESSED_2M_NS NSEC_PER_MSEC

/*
 * When two samples in a row are longer than expected, the shorter of them is
 * what is expected from now on: so that something has become slower is noticed
 * at once, and a single one that was held up by something else does not count.
 * Shorter ones count for a quarter.  Lost updates do no harm.
 *
 * With a mean by a quarter instead, as for longer so for shorter ones, 4K folios keep a
 * fifth of the rate with a limit of two folios ("bench latency --check limit" on the
 * machine "counted"): windows there stay at one folio.
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
 * A mean over some samples.  One that is much longer than all others counts as four, so
 * that it takes several of them to become the rule.
 */
void migrate_mean_note(u64 *mean_ns, u64 sample_ns)
{
	u64 old_ns = READ_ONCE(*mean_ns);

	if (old_ns)
		sample_ns = old_ns - old_ns / 8 + min(sample_ns, 4 * old_ns) / 8;
	WRITE_ONCE(*mean_ns, max(sample_ns, 8ULL));
}

/* Add what is known of some folios of a window to what is known of others. */
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
 * For how long was the engine at a window?  While the clock of the task stood it went
 * on, so that this may be longer than it seems: as long as it was when others did not
 * have the CPU.
 */
u64 migrate_times_copy_ns(const struct migrate_times *all,
			  const struct migrate_pace *pace)
{
	u64 ns = all->copied_ns - all->launched_ns - all->backlog_ns;

	if (all->stood_ns <= ns / MIGRATE_STOOD_PART)
		return ns;
	return max(ns, READ_ONCE(pace->copy.ns) * all->nr);
}

/* The time that the CPU takes to copy a folio of this order, once. */
static u64 migrate_measure_copy_ns(struct folio *dst, struct folio *src)
{
	u64 start_ns = ktime_get_ns();

	folio_mc_copy(dst, src);
	return ktime_get_ns() - start_ns;
}

/*
 * Time one copy of a 2M folio by the CPU.  Smaller ones will do if there is nothing
 * else.  Returns 0 if there is no memory to find out.
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
 * Between the first node and the one that takes longest, in nanoseconds.  May sleep.
 * Never 0: that would be no limit.
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
