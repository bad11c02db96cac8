/* SPDX-License-Identifier: GPL-2.0-only */
/* Promote folios in batches: see mm/migrate_offload/promote.c. */
#ifndef _MM_MIGRATE_OFFLOAD_PROMOTE_H
#define _MM_MIGRATE_OFFLOAD_PROMOTE_H

#include <linux/types.h>

struct attribute_group;

extern const struct attribute_group migrate_promote_group;

#ifdef CONFIG_MIGRATE_PROMOTE
void migrate_promote_prepare(void);
#else
static inline void migrate_promote_prepare(void)
{
}
#endif /* CONFIG_MIGRATE_PROMOTE */

#endif /* _MM_MIGRATE_OFFLOAD_PROMOTE_H */
