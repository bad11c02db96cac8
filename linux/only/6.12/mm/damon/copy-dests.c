// SPDX-License-Identifier: GPL-2.0-only
/* Copy and free the nodes that a scheme migrates to. */

#include <linux/damon.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "copy-dests.h"

int damos_dests_copy(struct damos_migrate_dests *dst,
		     const struct damos_migrate_dests *src)
{
	*dst = (struct damos_migrate_dests) {};
	if (!src->nr_dests)
		return 0;

	dst->node_id_arr = kmemdup_array(src->node_id_arr, src->nr_dests,
					 sizeof(*src->node_id_arr), GFP_KERNEL);
	dst->weight_arr = kmemdup_array(src->weight_arr, src->nr_dests,
					sizeof(*src->weight_arr), GFP_KERNEL);
	if (!dst->node_id_arr || !dst->weight_arr) {
		damos_dests_free(dst);
		return -ENOMEM;
	}
	dst->nr_dests = src->nr_dests;
	return 0;
}

void damos_dests_free(struct damos_migrate_dests *dests)
{
	kfree(dests->node_id_arr);
	kfree(dests->weight_arr);
	*dests = (struct damos_migrate_dests) {};
}
