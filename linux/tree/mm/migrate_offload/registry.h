/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Copy engines: what the files that keep them and that call them share.
 */
#ifndef _MM_MIGRATE_OFFLOAD_REGISTRY_H
#define _MM_MIGRATE_OFFLOAD_REGISTRY_H

#include <linux/mutex.h>
#include <linux/srcu.h>

#include "internal.h"

struct migrate_engine {
	struct list_head list;
	const struct migrate_engine_ops *ops;
	struct migrate_offload_stats *stats;
	struct migrator *migrator;		/* NULL if it is none, else: */
	struct migrate_engine_ops migrator_ops;	/* what makes it an engine */
};

/* Who reads which engine is active, or the list of them. */
extern struct srcu_struct migrate_engines_srcu;

/* The caller copies, but all folios in one go. */
extern const struct migrate_engine_ops migrate_cpu_engine_ops;

/* Where engines are when they are active: one for each reason, and this. */
#define MIGRATE_ENGINE_IN_GENERAL	MR_TYPES
#define MIGRATE_NR_ENGINE_SLOTS		(MR_TYPES + 1)

extern struct migrate_engine migrate_no_engine;

/* Held by those who change which engines there are, and which is active. */
extern struct mutex migrate_engines_lock;

/* With that lock held. */
struct migrate_engine *migrate_engine_in(unsigned int slot);
void migrate_engine_put_in(unsigned int slot, struct migrate_engine *engine);

const char *migrate_engine_name_in(unsigned int slot);

#endif /* _MM_MIGRATE_OFFLOAD_REGISTRY_H */
