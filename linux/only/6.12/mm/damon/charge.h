/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of a region that uses a quota up. */
#ifndef _DAMON_CHARGE_H
#define _DAMON_CHARGE_H

#include <linux/align.h>
#include <linux/damon.h>
#include <linux/math.h>
#include <linux/minmax.h>

/*
 * Returns how many bytes of a region of @sz bytes count, if the action was
 * applied to @moved bytes.  A large folio may reach beyond the region.
 *
 * A scheme goes on after the region that used its quota up.  Of a quota with a
 * part of DAMON_MIN_REGION left, that part would stay, and each turn would begin
 * with the same memory.  So count whole DAMON_MIN_REGION, and at least one.
 */
static inline unsigned long damos_charge(const struct damos_quota *quota,
					 unsigned long sz, unsigned long moved)
{
	unsigned long left = sz > moved ? sz - moved : 0;

	if (!quota->fail_charge_denom)
		return sz;
	if (!left)
		return sz;
	return sz - left + ALIGN(max(1UL, mult_frac(left, quota->fail_charge_num,
						    quota->fail_charge_denom)),
				 DAMON_MIN_REGION);
}

#endif /* _DAMON_CHARGE_H */
