/* SPDX-License-Identifier: GPL-2.0-only */
/* When the charge windows of a quota begin. */
#ifndef _DAMON_QUOTA_H
#define _DAMON_QUOTA_H

#include <linux/damon.h>
#include <linux/jiffies.h>

/**
 * damos_next_charge_window - from when on does a new charge window count?
 * @quota: The quota.  Its last window has ended, or it had none.
 * @now: The time in jiffies.
 *
 * kdamond looks at a scheme only now and then, so each window begins late.  If
 * it counted from @now, the scheme would always get less than its quota.  So it
 * counts from the end of the last window, but no further back than half an
 * interval.  That bound keeps two full quotas at least that far apart.
 *
 * Return: the time in jiffies.
 */
static inline unsigned long
damos_next_charge_window(const struct damos_quota *quota, unsigned long now)
{
	unsigned long interval = msecs_to_jiffies(quota->reset_interval);
	unsigned long next = quota->charged_from + interval;
	unsigned long earliest = now - interval / 2;

	/* There was no quota until now, so no window has ended. */
	if (!quota->esz)
		return now;
	return time_in_range(next, earliest, now) ? next : earliest;
}

#endif /* _DAMON_QUOTA_H */
