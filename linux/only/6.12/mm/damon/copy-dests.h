/* SPDX-License-Identifier: GPL-2.0-only */
/* Copy and free the nodes that a scheme migrates to. */
#ifndef _DAMON_COPY_DESTS_H
#define _DAMON_COPY_DESTS_H

#include <linux/damon.h>

/*
 * Make @dst a copy of @src, without reading the old content of @dst.  After
 * -ENOMEM @dst is empty, and can be freed like any other.
 */
int damos_dests_copy(struct damos_migrate_dests *dst,
		     const struct damos_migrate_dests *src);
void damos_dests_free(struct damos_migrate_dests *dests);

#endif /* _DAMON_COPY_DESTS_H */
