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

/* Plan windows for this part of the limit: the rest is for surprises. */
#define MIGRATE_LIMIT_PERCENT 90

/*
 * After a late window this many are smaller, so that the 99th percentile is in
 * time.  Without this rule that percentile is 44% longer for 4K folios with a
 * limit of two folios.  Windows of 75% of the limit leave 38% of that, at up to
 * 13% less rate ("bench latency --check limit" on the machine "counted").
 */
#define MIGRATE_CAREFUL_WINDOWS 256

/*
 * A held-back window begins when the engine's remaining work is this multiple,
 * in 1/256, of the time to prepare a window.  The multiple grows by a half if
 * the window came too late, else it falls by 1/24: one in ten comes late.
 *
 * Both rules are needed.  If windows begin as soon as the limit allows, 2M
 * folios are unmapped for 30% longer ("bench latency --check throughput" on the
 * machine "counted").  With a fixed multiple of 2, 4K folios lose between 16%
 * and 89% of the rate ("--check limit").
 */
#define MIGRATE_EARLY_PART 3	/* at least 1/3 of a window's copy */
#define MIGRATE_EARLY_ONCE 256
#define MIGRATE_EARLY_MOST (32 * MIGRATE_EARLY_ONCE)
#define MIGRATE_EARLY_LESS 24

/*
 * Returns the times of windows with folios of this order.  Writes to
 * max_unmapped_us or max_windows make older times useless, so reset them.
 */
struct migrate_pace *migrate_pace_of(struct migrate_pace *paces,
				     unsigned int order)
{
	struct migrate_pace *pace = paces ? &paces[order] : &cpu_pace[order];
	unsigned int since = READ_ONCE(nr_limits_set);

	if (READ_ONCE(pace->since) == since)
		return pace;
	WRITE_ONCE(pace->folios, 0);
	WRITE_ONCE(pace->own.ns, 0);
	WRITE_ONCE(pace->copy.ns, 0);
	WRITE_ONCE(pace->prep.ns, 0);
	WRITE_ONCE(pace->fixed_ns, 0);
	WRITE_ONCE(pace->early, 0);
	WRITE_ONCE(pace->nr_careful, 0);
	WRITE_ONCE(pace->since, since);
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

/*
 * Returns how many folios take as long as the fixed part of a window.  Each is
 * unmapped, copied and mapped, and mapping takes as long as unmapping.  If a
 * copy is slower than by the CPU, the folios are not the cause.
 */
static unsigned int migrate_pace_least(const struct migrate_pace *pace,
				       unsigned int order)
{
	u64 cpu_ns = migrate_cpu_copy_ns(order);
	u64 copy_ns = READ_ONCE(pace->copy.ns);
	u64 folio_ns = 2 * READ_ONCE(pace->prep.ns) +
		       (copy_ns ? min_not_zero(copy_ns, cpu_ns) : cpu_ns);
	u64 nr = div64_u64(READ_ONCE(pace->fixed_ns), max(folio_ns, 1ULL));

	return clamp_t(u64, nr, 1, MIGRATE_MAX_BATCH_PAGES);
}

/* Returns how many folios the next window gets, after one of @nr folios. */
static unsigned int migrate_pace_next(const struct migrate_plan *plan,
				      unsigned int nr, u64 own_ns, u64 copy_ns)
{
	u64 wanted_ns = div_u64(plan->limit_ns * MIGRATE_LIMIT_PERCENT, 100);
	u64 ns = own_ns + (plan->max_windows - 1) * copy_ns;
	u64 next;

	/* Divide twice: the product might overflow. */
	next = div64_u64(wanted_ns, max(div_u64(ns, nr), 1ULL));
	return clamp_t(u64, next, min(max(plan->least, 1U), 2 * nr), 2 * nr);
}

/* Scale expected times to @next folios; larger windows take at most this. */
static void migrate_pace_resize(struct migrate_pace *pace, unsigned int was,
				unsigned int next)
{
	u64 own_ns = READ_ONCE(pace->own.ns);
	u64 last_ns = READ_ONCE(pace->own.last_ns);

	WRITE_ONCE(pace->own.ns,
		   max(mul_u64_u64_div_u64(own_ns, next, was), 1ULL));
	WRITE_ONCE(pace->own.last_ns,
		   mul_u64_u64_div_u64(last_ns, next, was));
	WRITE_ONCE(pace->folios, next);
}

/*
 * After a late window of @nr folios, keep the next windows smaller: another one
 * of this size would be late again.  Plans scale times with folios and with
 * windows in flight, but DMA channels do not, above all with few folios for
 * each channel.  A time of more than twice the limit is a slowdown, which
 * migrate_note_window() handles.
 */
static void migrate_pace_beware(struct migrate_pace *pace,
				const struct migrate_plan *plan,
				unsigned int nr, u64 worst_ns)
{
	unsigned int nr_careful = READ_ONCE(pace->nr_careful);

	if (plan->limit_ns && nr > 1 && worst_ns > plan->limit_ns &&
	    worst_ns <= 2 * plan->limit_ns) {
		WRITE_ONCE(pace->most, nr - max(nr / 8, 1U));
		WRITE_ONCE(pace->nr_careful, MIGRATE_CAREFUL_WINDOWS);
	} else if (nr_careful) {
		WRITE_ONCE(pace->nr_careful, nr_careful - 1);
	}
}

/*
 * Learn from a window of @nr folios.  See the top of this file for @own_ns and
 * @copy_ns.  @plan is the plan of this window or a newer one.
 */
static void migrate_note_window(struct migrate_pace *paces, unsigned int order,
				const struct migrate_plan *plan,
				unsigned int nr, u64 own_ns, u64 copy_ns)
{
	struct migrate_pace *pace = migrate_pace_of(paces, order);
	unsigned int was = max(READ_ONCE(pace->folios), 1U), next = was;

	/* A window that was not full says little about full ones. */
	if (nr < was && own_ns < READ_ONCE(pace->own.ns))
		return;
	migrate_rate_note(&pace->own, own_ns);
	migrate_rate_note(&pace->copy, div_u64(copy_ns, nr));
	/* The window exceeded the limit: expect its times at once. */
	if (plan->limit_ns && own_ns > plan->limit_ns) {
		WRITE_ONCE(pace->own.ns, max(READ_ONCE(pace->own.ns), own_ns));
		WRITE_ONCE(pace->copy.ns, max(READ_ONCE(pace->copy.ns),
					      div_u64(copy_ns, nr)));
	}

	if (plan->limit_ns)
		next = migrate_pace_next(plan, was, READ_ONCE(pace->own.ns),
					 READ_ONCE(pace->copy.ns) * was);
	if (READ_ONCE(pace->nr_careful))
		next = max(min(next, READ_ONCE(pace->most)),
			   min(plan->least, 2 * was));
	if (next != was)
		migrate_pace_resize(pace, was, next);
}

/* Learn from a whole window. */
void migrate_times_learn(struct migrate_windows *w, unsigned int order,
			 const struct migrate_times *all)
{
	bool by_engine = all->nr_by_engine;
	struct migrate_pace *pace, *paces = by_engine ? w->session.paces : NULL;

	/* The engine declined parts, so the times say little about others. */
	if (by_engine && all->nr_by_engine != all->nr)
		return;
	pace = migrate_pace_of(paces, order);
	migrate_pace_beware(pace, &w->plan, all->nr, all->worst_ns);
	migrate_note_window(paces, order, &w->plan,
			    all->nr, all->worst_ns - all->backlog_ns,
			    by_engine ? migrate_times_copy_ns(all, pace) : 0);
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
 * May two hugetlb folios be unmapped at once?  Each takes @own_ns alone (0: not
 * known), and is then unmapped for the time of both.
 */
bool migrate_limit_allows_two(u64 own_ns)
{
	u64 limit_ns = migrate_limit_ns();

	if (READ_ONCE(migrate_max_windows) < 2 || !READ_ONCE(migrate_streaming))
		return false;
	if (!limit_ns)
		return true;
	return own_ns &&
		2 * own_ns <= div_u64(limit_ns * MIGRATE_LIMIT_PERCENT, 100);
}

/* Begin with this work left: some channels become idle long before others. */
static u64 migrate_pace_early_ns(const struct migrate_pace *pace,
				 const struct migrate_plan *plan)
{
	u64 prep_ns = div_u64(READ_ONCE(pace->prep.ns) *
			      READ_ONCE(pace->early), MIGRATE_EARLY_ONCE);

	return READ_ONCE(pace->fixed_ns) + plan->folios *
		max(prep_ns, div_u64(plan->copy_ns, MIGRATE_EARLY_PART));
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
	plan->least = min(migrate_pace_least(pace, order), max_folios);
	plan->own_ns = READ_ONCE(pace->own.ns);
	plan->copy_ns = READ_ONCE(pace->copy.ns);
	plan->early_ns = 0;
	plan->folios = max_folios;
	if (!plan->limit_ns)
		return;
	/* Begin with one folio until times are known. */
	plan->folios = clamp(READ_ONCE(pace->folios), 1U, max_folios);
	if (paces)
		plan->early_ns = migrate_pace_early_ns(pace, plan);
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

/*
 * By how much would a window that begins now exceed the limit, if the engine
 * still has work for @backlog_ns?
 */
u64 migrate_plan_late_ns(const struct migrate_plan *plan, u64 backlog_ns)
{
	u64 ns = backlog_ns + plan->own_ns;

	return plan->limit_ns && ns > plan->limit_ns ? ns - plan->limit_ns : 0;
}

/* Is a window late even without a backlog, and as small as makes sense? */
bool migrate_plan_is_over(const struct migrate_plan *plan)
{
	return plan->folios <= plan->least && migrate_plan_late_ns(plan, 0);
}

/*
 * How long should the core hold a window back?  Until the window is not late,
 * if that can be, and until its folios need not wait for the engine.
 */
u64 migrate_plan_hold_ns(const struct migrate_plan *plan, u64 backlog_ns)
{
	u64 late_ns = migrate_plan_is_over(plan) ? 0 :
		      migrate_plan_late_ns(plan, backlog_ns);

	if (!plan->early_ns || backlog_ns <= plan->early_ns)
		return late_ns;
	return max(late_ns, backlog_ns - plan->early_ns);
}

/* Times for the window that is being filled: the engine's, or NULL for the CPU's. */
static struct migrate_pace *migrate_windows_paces(const struct migrate_windows *w)
{
	return w->session.by_cpu || w->declined ? NULL : w->session.paces;
}

/* Note the time to unmap a window.  @idle: the engine has no work. */
void migrate_windows_prepared(struct migrate_windows *w, u64 prep_ns, bool idle)
{
	struct migrate_pace *pace;
	unsigned int early;

	if (!w->plan.limit_ns)
		return;
	pace = migrate_pace_of(migrate_windows_paces(w), w->order);
	migrate_rate_note(&pace->prep, div_u64(prep_ns, w->fill_folios));
	early = READ_ONCE(pace->early) ?: 2 * MIGRATE_EARLY_ONCE;
	/* Learn only from windows that were held back. */
	if (w->held_back && idle)
		early += early / 2;
	else if (w->held_back)
		early -= early / MIGRATE_EARLY_LESS;
	WRITE_ONCE(pace->early, clamp(early, MIGRATE_EARLY_ONCE,
				      MIGRATE_EARLY_MOST));
}

/*
 * Note the fixed time of a window of @nr folios: flush and submit, without
 * describing folios to the engine.  Describing takes at most as long as
 * unmapping.
 */
void migrate_windows_handed(struct migrate_windows *w, unsigned int nr,
			    u64 flush_ns, u64 submit_ns)
{
	struct migrate_pace *pace;
	u64 folios_ns;

	if (!w->plan.limit_ns)
		return;
	pace = migrate_pace_of(migrate_windows_paces(w), w->order);
	folios_ns = READ_ONCE(pace->prep.ns) * nr;
	migrate_mean_note(&pace->fixed_ns, flush_ns + submit_ns -
			  min(submit_ns, folios_ns));
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

/* Time the default limit when the first engine becomes active.  May sleep. */
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
