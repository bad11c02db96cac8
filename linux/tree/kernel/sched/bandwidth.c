// SPDX-License-Identifier: GPL-2.0-only
/*
 * CPU time that others spend for a task whose cgroup has a limit (cpu.max).
 *
 * A kernel thread that works for a task is in the root cgroup: what it spends is
 * not seen by the limit of the task's.  Who has a task's work done by others
 * asks again and again whether there is any time left, beside what they have
 * spent meanwhile, and says in the end how much that was.  It is taken from what
 * the cgroup, and each above it, may still spend in the period that runs; what
 * is not there is owed, and is taken from whatever comes next, before anybody of
 * the cgroup gets anything.  Also of periods in which nobody of it wants to run:
 * the timer goes on until all is paid.
 *
 * So there is nothing to give back.  It is charged when the task can do without
 * its CPU, as that is what it loses if something is owed.  Those who work for
 * several tasks of a cgroup at the same time know nothing of each other until
 * then, and may spend as much each.
 *
 * What is left is what no CPU has taken yet: each that a task of the cgroup runs
 * on takes a slice of 5 ms (sched_cfs_bandwidth_slice_us) to begin with.  Where
 * there is less in a period than the tasks of the cgroup take so, nothing is
 * ever left for others.
 */

/* For what sched.h has inline. */
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
 * @p: the task.  Any that does not go away meanwhile.
 * @spent_ns: what they have spent, and was not charged yet.
 *
 * Context: any but NMI; the result is a hint.
 * Return: whether its cgroup and those above it, as far as they have limits,
 * have more than that left of the period that runs, in which nothing is left
 * when something is owed.
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
