/* SPDX-License-Identifier: GPL-2.0-only */
/* The directory in sysfs with the nodes that a scheme migrates to. */
#ifndef _DAMON_SYSFS_DESTS_H
#define _DAMON_SYSFS_DESTS_H

#include <linux/damon.h>
#include <linux/kobject.h>

struct damos_sysfs_dests;

/* Make an empty directory "dests".  Returns it, or an ERR_PTR(). */
struct damos_sysfs_dests *damos_sysfs_dests_make(struct kobject *parent);
void damos_sysfs_dests_remove(struct damos_sysfs_dests *dir);

/*
 * Give a new scheme the destinations of the directory.  Returns 0 or -ENOMEM.
 */
int damos_sysfs_dests_set(struct damos *scheme,
			  const struct damos_sysfs_dests *dir);

#endif /* _DAMON_SYSFS_DESTS_H */
