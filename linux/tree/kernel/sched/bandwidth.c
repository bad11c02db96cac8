// SPDX-License-Identifier: GPL-2.0-only
/*
 * Charge CPU time of helpers to the cgroup of the task that they work for.
 *
 * A helper is a kernel thread in the root cgroup, so cpu.max of the task's
 * cgroup does not limit the helper.  Before a helper works, it reserves time of
 * this period.  So the helpers of all tasks together reserve no more than the
 * cgroup has.  At the end, the caller charges the time that they have spent to
 * the cgroup and its ancestors.  If a cgroup has too little time left in this
 * period, the rest becomes a debt.  Later periods pay the debt before CPUs get
 * time.  The period timer runs until the debt is paid, even if no task of the
 * cgroup runs.
 *
 * A debt may throttle the task, so callers charge only when the task can lose
 * its CPU.  For the same reason, a reservation takes no time from CPUs, and they
 * may use it up meanwhile.  A reservation ends with the period.  A helper may give
 * back the time of another one: if its period is over, or if its task has changed
 * the cgroup.  So helpers may exceed the time of a period.  The charge makes a
 * debt of that.
 *
 * A CPU takes a slice of 5 ms (sched_cfs_bandwidth_slice_us) when a task of the
 * cgroup begins to run.  Helpers get only time that no CPU has taken.  If the
 * slices use up each period, helpers never get any time.
 */

/* Inline functions of sched.h need this. */
#include <linux/mmu_context.h>
#include <linux/sched/bandwidth.h>

#include "sched.h"

static bool cfs_bandwidth_is_limited(const struct cfs_bandwidth *cfs_b)
{
	return READ_ONCE(cfs_b->quota) != RUNTIME_INF;
}

/**
 * cfs_bandwidth_limits - does cpu.max limit a task?
 * @p: the task.
 *
 * Context: any but NMI.
 * Return: true if the task's cgroup or an ancestor has a limit.
 */
bool cfs_bandwidth_limits(struct task_struct *p)
{
	struct task_group *tg;

	guard(rcu)();
	for (tg = task_group(p); tg; tg = tg->parent)
		if (cfs_bandwidth_is_limited(&tg->cfs_bandwidth))
			return true;
	return false;
}

/**
 * cfs_bandwidth_is_left - may helpers spend CPU time for a task now?
 * @p: the task.  The caller keeps it from being freed.
 * @spent_ns: the time that helpers have spent since the last charge.
 *
 * Context: any but NMI; the result is a hint.
 * Return: true if the task's cgroup and all ancestors with a limit have more
 * than @spent_ns left in this period, and more than helpers have reserved.  A
 * cgroup with a debt has no time left.
 */
bool cfs_bandwidth_is_left(struct task_struct *p, u64 spent_ns)
{
	struct task_group *tg;

	guard(rcu)();
	for (tg = task_group(p); tg; tg = tg->parent) {
		const struct cfs_bandwidth *cfs_b = &tg->cfs_bandwidth;

		if (cfs_bandwidth_is_limited(cfs_b) &&
		    READ_ONCE(cfs_b->runtime) <=
		    max(spent_ns, READ_ONCE(cfs_b->reserved)))
			return false;
	}
	return true;
}

static void cfs_bandwidth_end_reserved(struct cfs_bandwidth *cfs_b, u64 ns)
{
	lockdep_assert_held(&cfs_b->lock);

	WRITE_ONCE(cfs_b->reserved,
		   cfs_b->reserved - min(cfs_b->reserved, ns));
}

/* Give back time of a cgroup and its ancestors below @end. */
static void cfs_bandwidth_unreserve_below(struct task_group *tg,
					  const struct task_group *end, u64 ns)
{
	for (; tg != end; tg = tg->parent) {
		struct cfs_bandwidth *cfs_b = &tg->cfs_bandwidth;

		if (!cfs_bandwidth_is_limited(cfs_b))
			continue;
		guard(raw_spinlock_irqsave)(&cfs_b->lock);
		cfs_bandwidth_end_reserved(cfs_b, ns);
	}
}

static bool cfs_bandwidth_reserve_one(struct cfs_bandwidth *cfs_b, u64 ns)
{
	if (!cfs_bandwidth_is_limited(cfs_b))
		return true;
	guard(raw_spinlock_irqsave)(&cfs_b->lock);
	if (cfs_b->runtime < cfs_b->reserved + ns)
		return false;
	/* The period timer, which ends it, stops if no task runs. */
	start_cfs_bandwidth(cfs_b);
	WRITE_ONCE(cfs_b->reserved, cfs_b->reserved + ns);
	return true;
}

/**
 * cfs_bandwidth_reserve - let a helper of a task spend CPU time
 * @p: the task.  The caller keeps it from being freed.
 * @ns: the time, at most.
 *
 * Context: any but NMI.
 * Return: true if the task's cgroup and all ancestors with a limit have @ns that
 * no helper has reserved in this period.
 */
bool cfs_bandwidth_reserve(struct task_struct *p, u64 ns)
{
	struct task_group *first, *tg;

	guard(rcu)();
	/* The task may move to another cgroup meanwhile. */
	first = task_group(p);
	for (tg = first; tg; tg = tg->parent) {
		if (cfs_bandwidth_reserve_one(&tg->cfs_bandwidth, ns))
			continue;
		cfs_bandwidth_unreserve_below(first, tg, ns);
		return false;
	}
	return true;
}

/**
 * cfs_bandwidth_unreserve - give back time that a helper has not spent
 * @p: the task.  The caller keeps it from being freed.
 * @ns: the time.
 *
 * Context: any but NMI.
 */
void cfs_bandwidth_unreserve(struct task_struct *p, u64 ns)
{
	guard(rcu)();
	cfs_bandwidth_unreserve_below(task_group(p), NULL, ns);
}

/**
 * cfs_bandwidth_charge - charge CPU time of helpers to a task's cgroup
 * @p: the task.
 * @ns: the time.
 *
 * Context: any but NMI.
 */
void cfs_bandwidth_charge(struct task_struct *p, u64 ns)
{
	struct task_group *tg;

	guard(rcu)();
	for (tg = task_group(p); tg && ns; tg = tg->parent) {
		struct cfs_bandwidth *cfs_b = &tg->cfs_bandwidth;
		u64 paid;

		if (!cfs_bandwidth_is_limited(cfs_b))
			continue;
		guard(raw_spinlock_irqsave)(&cfs_b->lock);
		if (!cfs_bandwidth_is_limited(cfs_b))
			continue;
		/* The period timer stops if no task of the group runs. */
		start_cfs_bandwidth(cfs_b);
		cfs_b->idle = 0;
		paid = min(cfs_b->runtime, ns);
		cfs_b->runtime -= paid;
		cfs_bandwidth_end_reserved(cfs_b, ns);
		cfs_b->owed += ns - paid;
	}
}
