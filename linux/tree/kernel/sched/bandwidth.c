// SPDX-License-Identifier: GPL-2.0-only
/*
 * CPU time that others spend for a task whose cgroup has a limit (cpu.max).
 *
 * A kernel thread that works for a task is in the root cgroup: what it spends is
 * not seen by the limit of the task's.  Who has a task's work done by others
 * asks first whether there is any time left, and says afterwards how much it
 * took.  That is taken from what the cgroup, and each above it, may still spend
 * in the period that runs; what is not there is owed, and comes off the next
 * periods, before anybody gets anything of them.
 *
 * So there is nothing to give back, and what others spend beyond the limit is
 * no more than what they spend between two such calls.
 */

#include <linux/mmu_context.h>
#include <linux/sched/bandwidth.h>

#include "sched.h"

static bool cfs_bandwidth_is_limited(const struct cfs_bandwidth *cfs_b)
{
	return READ_ONCE(cfs_b->quota) != RUNTIME_INF;
}

/**
 * cfs_bandwidth_limits - is there a limit to what a task may spend?
 * @p: the task.
 *
 * Context: any but NMI.
 * Return: whether its cgroup or one above it has a limit in cpu.max.
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
 * cfs_bandwidth_is_left - may others spend CPU time for a task now?
 * @p: the task.
 *
 * Context: any but NMI; the result is a hint.
 * Return: whether its cgroup and those above it, as far as they have limits,
 * have something left of the period that runs, and owe nothing.
 */
bool cfs_bandwidth_is_left(struct task_struct *p)
{
	struct task_group *tg;

	guard(rcu)();
	for (tg = task_group(p); tg; tg = tg->parent) {
		const struct cfs_bandwidth *cfs_b = &tg->cfs_bandwidth;

		if (cfs_bandwidth_is_limited(cfs_b) &&
		    (!READ_ONCE(cfs_b->runtime) || READ_ONCE(cfs_b->owed)))
			return false;
	}
	return true;
}

/**
 * cfs_bandwidth_charge - others have spent CPU time for a task
 * @p: the task.
 * @ns: how much.
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
		/* Nobody of the group may have run for a while. */
		start_cfs_bandwidth(cfs_b);
		cfs_b->idle = 0;
		paid = min(cfs_b->runtime, ns);
		cfs_b->runtime -= paid;
		cfs_b->owed += ns - paid;
	}
}
