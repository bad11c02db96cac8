// SPDX-License-Identifier: GPL-2.0-only
/*
 * How many folios may be unmapped at once within the time limit.
 *
 * An administrator sets the limit for a folio's unmapped time, max_unmapped_us.
 * The core times windows, for each engine and size of folio, to learn how many
 * folios fit.  After a window that was faster than planned, the next is larger,
 * up to twice the size.  After a late window, the next is smaller.  The core
 * keeps two times:
 *
 *	own	the unmapped time of the window's slowest folio, without the
 *		engine's work for earlier windows
 *	copy	the time that the engine worked on the window
 *
 * With all windows in flight, each waits for the copies of the others, and then
 * takes its own time.  The sum must be within the limit.  So a window begins
 * only when the engine's remaining work and the window's own time fit.
 *
 * Nor does a window begin earlier than the engine needs it: its folios would be
 * unmapped while they wait.  The right moment follows from the time to unmap
 * and flush a window, and from how often the engine became idle.
 *
 * A simpler rule doubled an early window, and cut a late window by a quarter.
 * 2M folios were then unmapped for 50% longer.  With a limit of twice the time
 * of one folio, they were unmapped for 1.9 times the limit.
 *
 * Part of a window's time does not depend on its folios: to flush TLBs, and to
 * hand the window over.  If CPUs answer slowly, this part alone may exceed the
 * limit, and smaller windows would only cost more.  So this part is at most
 * half of a window, and over_limit_folios counts folios that are late
 * nevertheless.
 *
 * An engine may take longer than the limit for a single folio, for example to
 * tell that the copy is done.  Windows of one folio would then cost nearly all
 * of the rate.  So the engine gets one window of each list, and the CPU copies
 * the rest.  Without this rule, an engine that took 1 ms for each 4K folio, with
 * a limit of 0.9 ms, made lists take more than 200 times as long.
 */

#define pr_fmt(fmt) "migrate_offload: " fmt

#include <linux/kstrtox.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/sizes.h>
#include <linux/sysfs.h>

#include "../internal.h"
#include "hugetlb.h"
#include "internal.h"

static unsigned int max_unmapped_us;	/* set by an administrator */
static bool limit_is_fixed;		/* max_unmapped_us is the limit */
static u64 usual_copy_ns;		/* default, once it is known */
unsigned int migrate_max_batch_pages = MIGRATE_STOCK_BATCH_PAGES;
unsigned int migrate_max_windows = 2;
unsigned int migrate_streaming = 1;

/* Serialises changes of the limit, and of max_windows. */
static DEFINE_MUTEX(limit_lock);
static unsigned int nr_limits_set;

/* Times of windows that the CPU copies. */
static struct migrate_pace cpu_pace[MIGRATE_NR_PACES];

/*
 * Returns the times of windows with folios of this order.  Writes to
 * max_unmapped_us or max_windows make older times useless, so reset them.
 */
struct migrate_pace *migrate_pace_of(struct migrate_pace *paces,
				     unsigned int order)
{
	struct migrate_pace *pace = paces ? &paces[order] : &cpu_pace[order];
	unsigned int since = READ_ONCE(nr_limits_set);

	if (READ_ONCE(pace->since) != since) {
		migrate_pace_reset(pace);
		WRITE_ONCE(pace->since, since);
	}
	return pace;
}

/* How long does the CPU take to copy a folio of this order?  0: not known. */
static u64 migrate_cpu_copy_ns(unsigned int order)
{
	const unsigned int order_2m = get_order(SZ_2M);
	u64 ns = READ_ONCE(usual_copy_ns);

	return order < order_2m ? ns >> (order_2m - order) :
				  ns << (order - order_2m);
}

/* Learn from a whole window. */
void migrate_times_learn(struct migrate_windows *w, unsigned int order,
			 const struct migrate_times *all)
{
	bool by_engine = all->nr_by_engine;

	/* The engine declined parts, so the times say little about others. */
	if (by_engine && all->nr_by_engine != all->nr)
		return;
	migrate_pace_learn(migrate_pace_of(by_engine ? w->session.paces : NULL,
					   order),
			   &w->plan, all);
}

/*
 * The time limit; 0: none.  The default is the CPU's time to copy 2 MiB, which
 * is nearly all of the unmapped time of a 2M folio in stock Linux.  The default
 * is unknown, and so 0, until an engine becomes active.
 */
u64 migrate_limit_ns(void)
{
	if (READ_ONCE(limit_is_fixed))
		return (u64)READ_ONCE(max_unmapped_us) * NSEC_PER_USEC;
	return READ_ONCE(usual_copy_ns);
}

/* Has an administrator set a limit, which binds the CPU's copies, too? */
bool migrate_limit_is_fixed(void)
{
	return READ_ONCE(limit_is_fixed) && READ_ONCE(max_unmapped_us);
}

/*
 * Plan a window by the current settings, and by the times for this order.
 * @paces: the engine's, or NULL if the CPU copies.
 */
void migrate_plan_init(struct migrate_plan *plan, struct migrate_pace *paces,
		       unsigned int order)
{
	struct migrate_pace *pace = migrate_pace_of(paces, order);
	unsigned int max_folios =
		max(READ_ONCE(migrate_max_batch_pages) >> order, 1U);

	plan->limit_ns = migrate_limit_ns();
	plan->max_windows = READ_ONCE(migrate_max_windows);
	plan->streaming = READ_ONCE(migrate_streaming);
	migrate_plan_fill(plan, pace, max_folios, migrate_cpu_copy_ns(order),
			  paces);
}

/* Without an engine, only the stock batch size limits a window. */
void migrate_plan_stock(struct migrate_plan *plan, unsigned int order)
{
	plan->limit_ns = 0;
	plan->least = 1;
	plan->folios = max(MIGRATE_STOCK_BATCH_PAGES >> order, 1);
	plan->max_windows = 1;
	plan->streaming = true;
}

/* Returns the engine's times for the window being filled; NULL: the CPU's. */
static struct migrate_pace *migrate_windows_paces(const struct migrate_windows *w)
{
	return w->session.by_cpu || w->declined ? NULL : w->session.paces;
}

static struct migrate_pace *migrate_windows_pace(const struct migrate_windows *w)
{
	return migrate_pace_of(migrate_windows_paces(w), w->order);
}

/* Does the window meet the limit only if the CPU copies it? */
bool migrate_windows_want_cpu(const struct migrate_windows *w)
{
	return migrate_windows_paces(w) &&
		migrate_plan_wants_cpu(&w->plan, migrate_cpu_copy_ns(w->order));
}

/* Note the time to unmap the window.  @idle: the engine has no work. */
void migrate_windows_prepared(struct migrate_windows *w, u64 prep_ns, bool idle)
{
	if (w->plan.limit_ns)
		migrate_pace_prepared(migrate_windows_pace(w), w->fill_folios,
				      prep_ns, w->held_back, idle);
}

/* Note the fixed time of a window of @nr folios. */
void migrate_windows_handed(struct migrate_windows *w, unsigned int nr,
			    u64 flush_ns, u64 submit_ns)
{
	if (w->plan.limit_ns)
		migrate_pace_handed(migrate_windows_pace(w), nr, flush_ns,
				    submit_ns);
}

void migrate_windows_plan(struct migrate_windows *w)
{
	const struct migrate_session *s = &w->session;

	/* The CPU's lists obey only a limit that an administrator has set. */
	if (!s->engine || (s->by_cpu && !migrate_limit_is_fixed()))
		migrate_plan_stock(&w->plan, w->order);
	else
		migrate_plan_init(&w->plan, migrate_windows_paces(w), w->order);
}

/*
 * Measure the default limit when the first engine becomes active.  May sleep.
 */
void migrate_limit_prepare(void)
{
	mutex_lock(&limit_lock);
	if (!usual_copy_ns)
		WRITE_ONCE(usual_copy_ns, migrate_measure_copy_2m_ns());
	mutex_unlock(&limit_lock);
}

static ssize_t max_unmapped_us_show(struct kobject *kobj,
				    struct kobj_attribute *attr, char *buf)
{
	u64 limit_ns = migrate_limit_ns();

	return sysfs_emit(buf, "%llu\n",
			  div_u64(limit_ns + NSEC_PER_USEC - 1, NSEC_PER_USEC));
}

static ssize_t max_unmapped_us_store(struct kobject *kobj,
				     struct kobj_attribute *attr,
				     const char *buf, size_t count)
{
	bool fixed = !sysfs_streq(buf, "default");
	unsigned int us = 0;
	int ret;

	ret = fixed ? kstrtouint(buf, 0, &us) : 0;
	if (ret)
		return ret;
	mutex_lock(&limit_lock);
	if (!fixed)
		WRITE_ONCE(usual_copy_ns, migrate_measure_copy_2m_ns());
	WRITE_ONCE(max_unmapped_us, us);
	WRITE_ONCE(limit_is_fixed, fixed);
	WRITE_ONCE(nr_limits_set, nr_limits_set + 1);
	mutex_unlock(&limit_lock);
	return count;
}

static struct kobj_attribute max_unmapped_us_attr =
	__ATTR_RW(max_unmapped_us);

static ssize_t max_unmapped_is_default_show(struct kobject *kobj,
					    struct kobj_attribute *attr,
					    char *buf)
{
	return sysfs_emit(buf, "%s\n",
			  READ_ONCE(limit_is_fixed) ? "false" : "true");
}

static struct kobj_attribute max_unmapped_is_default_attr =
	__ATTR_RO(max_unmapped_is_default);

/* Reset the times of windows: they depend on the number of windows. */
void migrate_max_windows_set(unsigned int nr)
{
	mutex_lock(&limit_lock);
	WRITE_ONCE(migrate_max_windows, nr);
	WRITE_ONCE(nr_limits_set, nr_limits_set + 1);
	mutex_unlock(&limit_lock);
}

static struct attribute *migrate_limit_attrs[] = {
	&max_unmapped_us_attr.attr,
	&max_unmapped_is_default_attr.attr,
	NULL
};

const struct attribute_group migrate_limit_group = {
	.attrs = migrate_limit_attrs,
};

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/limit_kunit.c"
#endif
