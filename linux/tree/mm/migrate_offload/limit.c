// SPDX-License-Identifier: GPL-2.0-only
/*
 * How many folios may be out of reach at once, so that none is for long.
 *
 * An administrator says how long a folio may be out of reach, max_unmapped_us.
 * What that means in folios is found out while they migrate, for each engine and
 * size of folio, and remembered: a window that came back sooner than it had to
 * is followed by a larger one, up to twice the size, and one that was late by a
 * smaller one.  Two times are kept for that:
 *
 *	own	how long the folio of a window that was worst off was out of
 *		reach, but for what the engine had to do for earlier windows
 *	copy	how long the engine was at the window
 *
 * With a full set of windows under way, each waits for the copies of the others
 * and then takes its own time; that is to be within the limit.  A window is not
 * begun before what the engine has yet to do, and its own time, are.
 *
 * Nor is it begun earlier than it has to be for the engine to go on: what lies
 * ready for long is out of reach for nothing.  How early that is follows from
 * the time that it takes to unmap and flush a window, and from how often the
 * engine was found without anything to do.
 *
 * All this is more than to double a window that was early and to cut one that was late
 * by a quarter.  That simpler rule was tried: 2M folios were out of reach for 50% longer,
 * and with a limit of twice what one folio takes, for 1.9 times the limit.
 *
 * Part of a window does not depend on its folios: to flush TLBs, and to hand the window
 * over.  Where CPUs are slow to answer, that alone may take longer than the limit.
 * Smaller windows would then only cost more.  So no window is made so small that more
 * than half of it is that part, and what is late even so is counted.
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

static unsigned int max_unmapped_us;	/* by an administrator */
static bool limit_is_fixed;		/* to that; else it is what is usual: */
static u64 usual_copy_ns;		/* of 2 MiB by the CPU; 0: not timed yet */
unsigned int migrate_max_batch_pages = MIGRATE_STOCK_BATCH_PAGES;
unsigned int migrate_max_windows = 2;
unsigned int migrate_streaming = 1;

/* Serialises changes of the limit, and of max_windows. */
static DEFINE_MUTEX(limit_lock);
static unsigned int nr_limits_set;

/* Of windows that the CPU copies. */
static struct migrate_pace cpu_pace[MIGRATE_NR_PACES];

/* Longer windows are not planned: something is left for what was not foreseen. */
#define MIGRATE_LIMIT_PERCENT 90

/*
 * So few windows are late as no longer matters for the 99th percentile.  Without this
 * rule that percentile is 44% longer for 4K folios with a limit of two folios.  Windows
 * of 75% of the limit instead of 90% still leave 38% of that, and cost up to 13% of the
 * rate ("bench latency --check limit" on the machine "counted").
 */
#define MIGRATE_CAREFUL_WINDOWS 256

/*
 * A window that was held back is begun when the engine has that many times as
 * much to do as it takes to prepare one, in 1/256: once or more.  When it came too
 * late half as much again, or else a bit less: that makes one too late in ten.
 *
 * Both halves are needed.  If windows begin as soon as the limit allows, 2M folios are
 * out of reach for 30% longer ("bench latency --check throughput" on the machine
 * "counted").  If they begin at twice that time, whatever was found, 4K folios lose
 * between 16% and 89% of the rate ("--check limit").
 */
#define MIGRATE_EARLY_PART 3	/* nor less than that of a window's copy */
#define MIGRATE_EARLY_ONCE 256
#define MIGRATE_EARLY_MOST (32 * MIGRATE_EARLY_ONCE)
#define MIGRATE_EARLY_LESS 24

/*
 * What is known of windows of folios of this order.  When somebody sets the limit,
 * or how many windows there are, all of it is forgotten: they no longer fit.
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
 * With how many folios is half of a window what each of them takes?  They are unmapped,
 * copied, and mapped again, which takes as long as to unmap them.  A copy that takes
 * longer than by the CPU was held up by something else, and not by its folios.
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

/* How many folios are to be in the next window, if this one had @nr? */
static unsigned int migrate_pace_next(const struct migrate_plan *plan,
				      unsigned int nr, u64 own_ns, u64 copy_ns)
{
	u64 wanted_ns = div_u64(plan->limit_ns * MIGRATE_LIMIT_PERCENT, 100);
	u64 ns = own_ns + (plan->max_windows - 1) * copy_ns;
	u64 next;

	/* By division twice: the product may be too large. */
	next = div64_u64(wanted_ns, max(div_u64(ns, nr), 1ULL));
	return clamp_t(u64, next, min(max(plan->least, 1U), 2 * nr), 2 * nr);
}

/* Windows of @next folios take less than those of @was, or up to so much more. */
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
 * A window of @nr folios was late, if not by so much that something must have become
 * slower, which is noticed below: one that is as large would be late again.  What is
 * expected is in proportion to the folios, and to what others are under way; what
 * channels take is not, least of all where windows are as small as there are channels.
 * So try it again only after many that are smaller.
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
 * A window of @nr folios is over.  @own_ns and @copy_ns are as above.  @plan is
 * that of its time or newer.
 */
static void migrate_note_window(struct migrate_pace *paces, unsigned int order,
				const struct migrate_plan *plan,
				unsigned int nr, u64 own_ns, u64 copy_ns)
{
	struct migrate_pace *pace = migrate_pace_of(paces, order);
	unsigned int was = max(READ_ONCE(pace->folios), 1U), next = was;

	/* One that was not filled says little about one that is. */
	if (nr < was && own_ns < READ_ONCE(pace->own.ns))
		return;
	migrate_rate_note(&pace->own, own_ns);
	migrate_rate_note(&pace->copy, div_u64(copy_ns, nr));
	/* It broke the limit.  Whatever the cause, be careful at once. */
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

/* The whole window is over: learn from it, for those after it. */
void migrate_times_learn(struct migrate_windows *w, unsigned int order,
			 const struct migrate_times *all)
{
	bool by_engine = all->nr_by_engine;
	struct migrate_pace *pace, *paces = by_engine ? w->session.paces : NULL;

	/* Some of it was declined.  That says little about the others. */
	if (by_engine && all->nr_by_engine != all->nr)
		return;
	pace = migrate_pace_of(paces, order);
	migrate_pace_beware(pace, &w->plan, all->nr, all->worst_ns);
	migrate_note_window(paces, order, &w->plan,
			    all->nr, all->worst_ns - all->backlog_ns,
			    by_engine ? migrate_times_copy_ns(all, pace) : 0);
}

/*
 * For how long may a folio be out of reach?  Unless somebody has said so, for as
 * long as the CPU takes to copy 2 MiB: that is nearly all of the time for which a
 * 2M folio is out of reach without any engine.  Until an engine has been active
 * that is not known, and nothing is in windows.
 */
u64 migrate_limit_ns(void)
{
	if (READ_ONCE(limit_is_fixed))
		return (u64)READ_ONCE(max_unmapped_us) * NSEC_PER_USEC;
	return READ_ONCE(usual_copy_ns);
}

/* Has an administrator set a limit, which is to hold also where the CPU copies? */
bool migrate_limit_is_fixed(void)
{
	return READ_ONCE(limit_is_fixed) && READ_ONCE(max_unmapped_us);
}

/*
 * May two folios be out of reach at once that are windows of their own, each of which
 * takes so long by itself?  0: not known.  Both are for as long as both take.
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

/* Begin while it is at this: some channels are through long before the last. */
static u64 migrate_pace_early_ns(const struct migrate_pace *pace,
				 const struct migrate_plan *plan)
{
	u64 prep_ns = div_u64(READ_ONCE(pace->prep.ns) *
			      READ_ONCE(pace->early), MIGRATE_EARLY_ONCE);

	return READ_ONCE(pace->fixed_ns) + plan->folios *
		max(prep_ns, div_u64(plan->copy_ns, MIGRATE_EARLY_PART));
}

/*
 * The limits as they are now, and what is known of folios of this size.
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
	/* Find out with as little as possible. */
	plan->folios = clamp(READ_ONCE(pace->folios), 1U, max_folios);
	if (paces)
		plan->early_ns = migrate_pace_early_ns(pace, plan);
}

/* Without an engine nothing is bounded but the pages of a batch, as ever. */
void migrate_plan_stock(struct migrate_plan *plan, unsigned int order)
{
	plan->limit_ns = 0;
	plan->least = 1;
	plan->folios = max(MIGRATE_STOCK_BATCH_PAGES >> order, 1);
	plan->max_windows = 1;
	plan->streaming = true;
}

/*
 * By how much would a window be late that is begun now, when the engine has yet
 * to do so much?  0: it would not.
 */
u64 migrate_plan_late_ns(const struct migrate_plan *plan, u64 backlog_ns)
{
	u64 ns = backlog_ns + plan->own_ns;

	return plan->limit_ns && ns > plan->limit_ns ? ns - plan->limit_ns : 0;
}

/* Is it late by itself, with so few folios that fewer would not help? */
bool migrate_plan_is_over(const struct migrate_plan *plan)
{
	return plan->folios <= plan->least && migrate_plan_late_ns(plan, 0);
}

/*
 * For how long is a window not to be begun?  So that it is not late, unless it is late
 * whenever it begins, and so that its folios do not lie ready for nothing.
 */
u64 migrate_plan_hold_ns(const struct migrate_plan *plan, u64 backlog_ns)
{
	u64 late_ns = migrate_plan_is_over(plan) ? 0 :
		      migrate_plan_late_ns(plan, backlog_ns);

	if (!plan->early_ns || backlog_ns <= plan->early_ns)
		return late_ns;
	return max(late_ns, backlog_ns - plan->early_ns);
}

/* The times of the engine, or NULL if the CPU copies the window that is filled. */
static struct migrate_pace *migrate_windows_paces(const struct migrate_windows *w)
{
	return w->session.by_cpu || w->declined ? NULL : w->session.paces;
}

/* The folios of a window are unmapped, in @prep_ns.  @idle: the engine has no work. */
void migrate_windows_prepared(struct migrate_windows *w, u64 prep_ns, bool idle)
{
	struct migrate_pace *pace;
	unsigned int early;

	if (!w->plan.limit_ns)
		return;
	pace = migrate_pace_of(migrate_windows_paces(w), w->order);
	migrate_rate_note(&pace->prep, div_u64(prep_ns, w->fill_folios));
	early = READ_ONCE(pace->early) ?: 2 * MIGRATE_EARLY_ONCE;
	/* Only where waiting made the difference. */
	if (w->held_back && idle)
		early += early / 2;
	else if (w->held_back)
		early -= early / MIGRATE_EARLY_LESS;
	WRITE_ONCE(pace->early, clamp(early, MIGRATE_EARLY_ONCE,
				      MIGRATE_EARLY_MOST));
}

/*
 * A window of @nr folios was flushed and handed over.  To describe a folio to the engine
 * takes no longer than to unmap it, so that what is left does not depend on @nr.
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

/* Plan the window that begins with a folio of @w->order. */
void migrate_windows_plan(struct migrate_windows *w)
{
	const struct migrate_session *s = &w->session;

	/* Only a limit that was set bounds windows that the CPU copies. */
	if (!s->engine || (s->by_cpu && !migrate_limit_is_fixed()))
		migrate_plan_stock(&w->plan, w->order);
	else
		migrate_plan_init(&w->plan, migrate_windows_paces(w), w->order);
}

/* An engine becomes active: find out what is usual here.  May sleep. */
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

/* What is known of windows was planned with another number of them. */
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
