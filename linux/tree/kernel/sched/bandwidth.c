// SPDX-License-Identifier: GPL-2.0-only
/*
 * Charge CPU time of helpers to the cgroup of the task that they work for.
 *
 * A helper is a kernel thread in the root cgroup, so cpu.max of the task's
 * cgroup does not limit the helper.  While helpers work, the caller asks
 * whether the cgroup has more time left than they have spent.  At the end, the
 * caller charges this time to the cgroup and its ancestors.  If a cgroup has
 * too little time left in this period, the rest becomes a debt.  Later periods
 * pay the debt before CPUs get time.  The period timer runs until the debt is
 * paid, even if no task of the cgroup runs.
 *
 * A debt may throttle the task, so callers charge only when the task can lose
 * its CPU.  Helpers of several tasks do not see each other's time before the
 * charge, so together they may exceed the limit.
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
 * than @spent_ns left in this period.  A cgroup with a debt has no time left.
 */
bool cfs_bandwidth_is_left(struct task_struct *p, u64 spent_ns)
{
	struct task_group *tg;

	guard(rcu)();
	for (tg = task_group(p); tg; tg = tg->parent) {
		const struct cfs_bandwidth *cfs_b = &tg->cfs_bandwidth;

		if (cfs_bandwidth_is_limited(cfs_b) &&
		    READ_ONCE(cfs_b->runtime) <= spent_ns)
			return false;
	}
	return true;
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
		cfs_b->owed += ns - paid;
	}
}
