/* SPDX-License-Identifier: GPL-2.0-only */
/* The start of a quota's charge windows. */
#ifndef _DAMON_QUOTA_H
#define _DAMON_QUOTA_H

#include <linux/damon.h>
#include <linux/jiffies.h>

/**
 * damos_next_charge_window - find the start of the next charge window
 * @quota: The quota.  Its last window has ended, or it had none.
 * @now: The time in jiffies.
 *
 * kdamond checks a scheme only now and then, so each window begins late.  With
 * windows that start @now, the scheme would always get less than its quota.  So
 * a window starts at the end of the last one, but at most half an interval ago.
 * This bound keeps two full quotas at least half an interval apart.
 *
 * Return: the start in jiffies.
 */
static inline unsigned long
damos_next_charge_window(const struct damos_quota *quota, unsigned long now)
{
	unsigned long interval = msecs_to_jiffies(quota->reset_interval);
	unsigned long next = quota->charged_from + interval;
	unsigned long earliest = now - interval / 2;

	/* The quota is new, or its goals leave nothing of it. */
	if (!quota->esz)
		return now;
	return time_in_range(next, earliest, now) ? next : earliest;
}

#endif /* _DAMON_QUOTA_H */
