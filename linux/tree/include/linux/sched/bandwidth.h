/* SPDX-License-Identifier: GPL-2.0-only */
/* Charge CPU time of helpers to a task's cgroup: see bandwidth.c. */
#ifndef _LINUX_SCHED_BANDWIDTH_H
#define _LINUX_SCHED_BANDWIDTH_H

#include <linux/types.h>

struct task_struct;

#ifdef CONFIG_CFS_BANDWIDTH
bool cfs_bandwidth_limits(struct task_struct *p);
bool cfs_bandwidth_is_left(struct task_struct *p, u64 spent_ns);
bool cfs_bandwidth_reserve(struct task_struct *p, u64 ns);
void cfs_bandwidth_unreserve(struct task_struct *p, u64 ns);
void cfs_bandwidth_charge(struct task_struct *p, u64 ns);
#else
static inline bool cfs_bandwidth_limits(struct task_struct *p)
{
	return false;
}

static inline bool cfs_bandwidth_is_left(struct task_struct *p, u64 spent_ns)
{
	return true;
}

static inline bool cfs_bandwidth_reserve(struct task_struct *p, u64 ns)
{
	return true;
}

static inline void cfs_bandwidth_unreserve(struct task_struct *p, u64 ns)
{
}

static inline void cfs_bandwidth_charge(struct task_struct *p, u64 ns)
{
}
#endif

#endif /* _LINUX_SCHED_BANDWIDTH_H */
