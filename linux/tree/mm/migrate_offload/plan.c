// SPDX-License-Identifier: GPL-2.0-only
/*
 * The arithmetic of windows: how many folios the next window gets, and when it
 * begins, from times of earlier windows.  limit.c says what the times mean.
 *
 * Nothing here reads a clock or a setting, so that a program can run these
 * functions in user space.  Several tasks update a pace without a lock: a lost
 * update makes an expected time less precise, and does no other harm.
 */

#include <linux/compiler.h>
#include <linux/limits.h>
#include <linux/math.h>
#include <linux/math64.h>
#include <linux/minmax.h>

#include "plan.h"

/* Plan windows for this part of the limit: the rest is for surprises. */
#define MIGRATE_LIMIT_PERCENT 90

/*
 * A held-back window begins when the engine's remaining work is this multiple,
 * in 1/256, of the time to prepare a window.  The multiple grows by a half
 * after a window that came too late.  Otherwise it falls by 1/24, so that one
 * window in ten comes late.
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

/* Ignore a stop of the task's clock of up to 1/8 of the measured time. */
#define MIGRATE_STOOD_PART 8

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

/* Forget all times. */
void migrate_pace_reset(struct migrate_pace *pace)
{
	WRITE_ONCE(pace->folios, 0);
	WRITE_ONCE(pace->own.ns, 0);
	WRITE_ONCE(pace->copy.ns, 0);
	WRITE_ONCE(pace->prep.ns, 0);
	WRITE_ONCE(pace->fixed_ns, 0);
	WRITE_ONCE(pace->early, 0);
	WRITE_ONCE(pace->nr_careful, 0);
}

/*
 * Returns how many folios take as long as the fixed part of a window.  Each
 * folio is unmapped, copied and mapped, and mapping takes as long as unmapping.
 * A copy counts at most as @cpu_ns, the CPU's time: if the engine takes longer,
 * the folio is not the cause.
 */
unsigned int migrate_pace_least(const struct migrate_pace *pace, u64 cpu_ns)
{
	u64 copy_ns = READ_ONCE(pace->copy.ns);
	u64 folio_ns = 2 * READ_ONCE(pace->prep.ns) +
		       (copy_ns ? min_not_zero(copy_ns, cpu_ns) : cpu_ns);
	u64 nr = div64_u64(READ_ONCE(pace->fixed_ns), max(folio_ns, 1ULL));

	return clamp_t(u64, nr, 1, UINT_MAX);
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

/*
 * Scale expected times from @was to @next folios.  A part of the time is fixed,
 * so a larger window takes at most the scaled time.
 */
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
 * windows in flight.  The times of DMA channels do not scale so, above all with
 * few folios for each channel.  A time of more than twice the limit is a
 * slowdown, which migrate_pace_note_window() handles.
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
 * Learn from a window of @nr folios.  See limit.c for @own_ns and @copy_ns.
 * @plan is the plan of this window or a newer one.
 */
void migrate_pace_note_window(struct migrate_pace *pace,
			      const struct migrate_plan *plan,
			      unsigned int nr, u64 own_ns, u64 copy_ns)
{
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

/* Learn from a whole window, which the engine or the CPU copied. */
void migrate_pace_learn(struct migrate_pace *pace,
			const struct migrate_plan *plan,
			const struct migrate_times *all)
{
	u64 copy_ns = all->nr_by_engine ? migrate_times_copy_ns(all, pace) : 0;

	migrate_pace_beware(pace, plan, all->nr, all->worst_ns);
	migrate_pace_note_window(pace, plan, all->nr,
				 all->worst_ns - all->backlog_ns, copy_ns);
}

/*
 * Returns how much work the engine has left when the next window begins.  Some
 * channels become idle long before others, so this is at least a part of a
 * window's copy.
 */
static u64 migrate_pace_early_ns(const struct migrate_pace *pace,
				 const struct migrate_plan *plan)
{
	u64 prep_ns = div_u64(READ_ONCE(pace->prep.ns) *
			      READ_ONCE(pace->early), MIGRATE_EARLY_ONCE);

	return READ_ONCE(pace->fixed_ns) + plan->folios *
		max(prep_ns, div_u64(plan->copy_ns, MIGRATE_EARLY_PART));
}

/*
 * Plan a window within the limits that the caller has set in @plan.  @cpu_ns:
 * the CPU's time to copy a folio.  @by_engine: the engine must not become idle.
 */
void migrate_plan_fill(struct migrate_plan *plan,
		       const struct migrate_pace *pace, unsigned int max_folios,
		       u64 cpu_ns, bool by_engine)
{
	plan->least = min(migrate_pace_least(pace, cpu_ns), max_folios);
	plan->own_ns = READ_ONCE(pace->own.ns);
	plan->copy_ns = READ_ONCE(pace->copy.ns);
	plan->early_ns = 0;
	plan->folios = max_folios;
	if (!plan->limit_ns)
		return;
	/* Begin with one folio until times are known. */
	plan->folios = clamp(READ_ONCE(pace->folios), 1U, max_folios);
	if (by_engine)
		plan->early_ns = migrate_pace_early_ns(pace, plan);
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
 * Does the window meet the limit only if the CPU copies it?  @cpu_ns: the CPU's
 * time to copy a folio.
 */
bool migrate_plan_wants_cpu(const struct migrate_plan *plan, u64 cpu_ns)
{
	u64 engine_ns = min(plan->own_ns, plan->folios * plan->copy_ns);

	return migrate_plan_is_over(plan) && plan->own_ns - engine_ns +
		plan->folios * cpu_ns <= plan->limit_ns;
}

/*
 * How long should the core hold a window back?  Until the window meets the
 * limit, if one can, and until the engine's work left falls to early_ns.
 */
u64 migrate_plan_hold_ns(const struct migrate_plan *plan, u64 backlog_ns)
{
	u64 late_ns = migrate_plan_is_over(plan) ? 0 :
		      migrate_plan_late_ns(plan, backlog_ns);

	if (!plan->early_ns || backlog_ns <= plan->early_ns)
		return late_ns;
	return max(late_ns, backlog_ns - plan->early_ns);
}

/*
 * Note the time to unmap a window of @nr folios.  @held_back: the window began
 * later than it could.  @idle: the engine has no work.
 */
void migrate_pace_prepared(struct migrate_pace *pace, unsigned int nr,
			   u64 prep_ns, bool held_back, bool idle)
{
	unsigned int early = READ_ONCE(pace->early) ?: 2 * MIGRATE_EARLY_ONCE;

	migrate_rate_note(&pace->prep, div_u64(prep_ns, nr));
	/* Learn only from windows that were held back. */
	if (held_back && idle)
		early += early / 2;
	else if (held_back)
		early -= early / MIGRATE_EARLY_LESS;
	WRITE_ONCE(pace->early, clamp(early, MIGRATE_EARLY_ONCE,
				      MIGRATE_EARLY_MOST));
}

/*
 * Note the fixed time of a window of @nr folios: flush and submit, without
 * describing folios to the engine.  Describing takes at most as long as
 * unmapping.
 */
void migrate_pace_handed(struct migrate_pace *pace, unsigned int nr,
			 u64 flush_ns, u64 submit_ns)
{
	u64 folios_ns = READ_ONCE(pace->prep.ns) * nr;

	migrate_mean_note(&pace->fixed_ns, flush_ns + submit_ns -
			  min(submit_ns, folios_ns));
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/plan_kunit.c"
#endif
