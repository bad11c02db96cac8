// SPDX-License-Identifier: GPL-2.0-only
/*
 * Histograms for each reason: how long folios were unmapped, and how long
 * threads waited for them.
 *
 * A folio is unmapped from just before its page table entries are cleared until
 * they are restored.  A thread that touches the folio meanwhile waits in
 * migration_entry_wait_on_locked(), which does not know the reason.  The task
 * that unmaps the folio stores the reason in a small hash table.  If two folios
 * share a slot, a wait may count for the wrong reason, or for none.
 */

#include <linux/cache.h>
#include <linux/hash.h>
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/sysfs.h>

#include "../internal.h"
#include "hooks.h"
#include "internal.h"

#define MIGRATE_REASON_HASH_BITS 10

unsigned int migrate_measure;
static DEFINE_MUTEX(measure_lock);	/* serialises its writers */

/* 0: none, else the reason plus one.  Only a hint, so no lock protects it. */
static u8 migrate_reason_of[1 << MIGRATE_REASON_HASH_BITS];

/* Eight buckets for each power of two: a bucket is an eighth of its octave. */
unsigned int migrate_hist_bucket(u64 ns)
{
	unsigned int octave, nr;

	if (ns < MIGRATE_HIST_MIN_NS)
		return 0;
	octave = ilog2(ns);
	nr = (octave - ilog2(MIGRATE_HIST_MIN_NS)) << MIGRATE_HIST_SUB_SHIFT;
	nr += (ns >> (octave - MIGRATE_HIST_SUB_SHIFT)) &
		(BIT(MIGRATE_HIST_SUB_SHIFT) - 1);
	return min(nr + 1, MIGRATE_HIST_BUCKETS - 1U);
}

/* Returns the smallest time that belongs to this bucket. */
u64 migrate_hist_lower_ns(unsigned int bucket)
{
	unsigned int octave, sub;

	if (!bucket)
		return 0;
	octave = (bucket - 1) >> MIGRATE_HIST_SUB_SHIFT;
	sub = (bucket - 1) & (BIT(MIGRATE_HIST_SUB_SHIFT) - 1);
	return ((u64)MIGRATE_HIST_MIN_NS << octave) +
		(((u64)sub * MIGRATE_HIST_MIN_NS << octave) >>
		 MIGRATE_HIST_SUB_SHIFT);
}

static void migrate_hist_add(struct migrate_offload_stats *stats,
			     enum migrate_hist_kind kind, u64 ns,
			     unsigned int nr)
{
	struct migrate_hist *hist;

	/* Only tasks get here, so disabling preemption is enough. */
	hist = &get_cpu_ptr(stats->hists)->of[kind];
	hist->buckets[migrate_hist_bucket(ns)] += nr;
	hist->sum_ns += ns * nr;
	hist->max_ns = max(hist->max_ns, ns);
	put_cpu_ptr(stats->hists);
}

void migrate_offload_note_unmapped(int reason, u64 ns, unsigned int nr)
{
	struct migrate_offload_stats *stats =
		migrate_offload_reason_stats[reason];

	if (stats)
		migrate_hist_add(stats, MIGRATE_HIST_UNMAPPED, ns, nr);
}

static u8 *migrate_reason_slot(const struct folio *folio)
{
	return &migrate_reason_of[hash_ptr(folio, MIGRATE_REASON_HASH_BITS)];
}

/* Called before the folio is unmapped, so that each waiter finds the reason. */
void migrate_offload_note_reason(const struct folio *folio, int reason)
{
	WRITE_ONCE(*migrate_reason_slot(folio), reason + 1);
}

/* Called once the folio is mapped.  Waiters have read the reason by then. */
void migrate_offload_forget_reason(const struct folio *folio)
{
	WRITE_ONCE(*migrate_reason_slot(folio), 0);
}

void __migrate_wait_begin(struct migrate_wait *wait, const struct folio *folio)
{
	wait->reason = READ_ONCE(*migrate_reason_slot(folio)) - 1;
	wait->start_ns = wait->reason < 0 ? 0 : ktime_get_ns();
}

void __migrate_wait_end(const struct migrate_wait *wait)
{
	struct migrate_offload_stats *stats;

	stats = migrate_offload_reason_stats[wait->reason];
	if (stats)
		migrate_hist_add(stats, MIGRATE_HIST_WAITED,
				 ktime_get_ns() - wait->start_ns, 1);
}

/*
 * Prints "<lower bound in ns> <count>" for each bucket that is not empty.  One
 * file has all lines, because they form one distribution.
 */
static ssize_t migrate_hist_show(struct migrate_offload_stats *stats,
				 enum migrate_hist_kind kind, char *buf)
{
	unsigned int bucket;
	int cpu, len = 0;
	u64 nr;

	for (bucket = 0; bucket < MIGRATE_HIST_BUCKETS; bucket++) {
		nr = 0;
		for_each_possible_cpu(cpu)
			nr += per_cpu_ptr(stats->hists, cpu)
				->of[kind].buckets[bucket];
		if (nr)
			len += sysfs_emit_at(buf, len, "%llu %llu\n",
					     migrate_hist_lower_ns(bucket), nr);
	}
	return len;
}

static ssize_t migrate_hist_show_count(struct migrate_offload_stats *stats,
				       enum migrate_hist_kind kind, char *buf)
{
	unsigned int bucket;
	u64 nr = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		for (bucket = 0; bucket < MIGRATE_HIST_BUCKETS; bucket++)
			nr += per_cpu_ptr(stats->hists, cpu)
				->of[kind].buckets[bucket];
	return sysfs_emit(buf, "%llu\n", nr);
}

static ssize_t migrate_hist_show_sum(struct migrate_offload_stats *stats,
				     enum migrate_hist_kind kind, char *buf)
{
	u64 sum_ns = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum_ns += per_cpu_ptr(stats->hists, cpu)->of[kind].sum_ns;
	return sysfs_emit(buf, "%llu\n", sum_ns);
}

static ssize_t migrate_hist_show_max(struct migrate_offload_stats *stats,
				     enum migrate_hist_kind kind, char *buf)
{
	u64 max_ns = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		max_ns = max(max_ns,
			     per_cpu_ptr(stats->hists, cpu)->of[kind].max_ns);
	return sysfs_emit(buf, "%llu\n", max_ns);
}

#define HIST_ATTR(_name, _kind, _show)					\
	static ssize_t _name##_show(struct migrate_offload_stats *stats, \
				    char *buf)				\
	{								\
		return _show(stats, _kind, buf);			\
	}								\
	static struct migrate_stats_attribute stats_##_name = {		\
		.attr = { .name = __stringify(_name), .mode = 0444 },	\
		.show = _name##_show,					\
	}

HIST_ATTR(unmapped_hist, MIGRATE_HIST_UNMAPPED, migrate_hist_show);
HIST_ATTR(unmapped_folios, MIGRATE_HIST_UNMAPPED, migrate_hist_show_count);
HIST_ATTR(unmapped_sum_ns, MIGRATE_HIST_UNMAPPED, migrate_hist_show_sum);
HIST_ATTR(unmapped_max_ns, MIGRATE_HIST_UNMAPPED, migrate_hist_show_max);
HIST_ATTR(waited_hist, MIGRATE_HIST_WAITED, migrate_hist_show);
HIST_ATTR(waited_threads, MIGRATE_HIST_WAITED, migrate_hist_show_count);
HIST_ATTR(waited_sum_ns, MIGRATE_HIST_WAITED, migrate_hist_show_sum);
HIST_ATTR(waited_max_ns, MIGRATE_HIST_WAITED, migrate_hist_show_max);

static struct attribute *migrate_hist_attrs[] = {
	&stats_unmapped_hist.attr,
	&stats_unmapped_folios.attr,
	&stats_unmapped_sum_ns.attr,
	&stats_unmapped_max_ns.attr,
	&stats_waited_hist.attr,
	&stats_waited_threads.attr,
	&stats_waited_sum_ns.attr,
	&stats_waited_max_ns.attr,
	NULL
};

/* Files in the directory of each reason. */
const struct attribute_group migrate_hist_group = {
	.attrs = migrate_hist_attrs,
};

/* Are histograms kept even while no engine is active? */
bool migrate_measuring(void)
{
	return READ_ONCE(migrate_measure);
}

void migrate_measure_set(unsigned int on)
{
	mutex_lock(&measure_lock);
	if (on != migrate_measure) {
		WRITE_ONCE(migrate_measure, on);
		if (on)
			static_branch_inc(&migrate_offload_key);
		else
			static_branch_dec(&migrate_offload_key);
	}
	mutex_unlock(&measure_lock);
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/hist_kunit.c"
#endif
