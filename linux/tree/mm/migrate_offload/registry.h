/* SPDX-License-Identifier: GPL-2.0-only */
/* Copy engines: declarations for registry.c and call.c. */
#ifndef _MM_MIGRATE_OFFLOAD_REGISTRY_H
#define _MM_MIGRATE_OFFLOAD_REGISTRY_H

#include <linux/mutex.h>
#include <linux/srcu.h>

#include "internal.h"

struct migrate_engine {
	struct list_head list;
	const struct migrate_engine_ops *ops;
	struct migrate_offload_stats *stats;
	struct migrator *migrator;		/* NULL: not a migrator */
	struct migrate_engine_ops migrator_ops;	/* wraps the migrator */
};

/* Protects readers of slots and of the list of engines. */
extern struct srcu_struct migrate_engines_srcu;

/* The engine "cpu": the migrating task copies all folios of a batch. */
extern const struct migrate_engine_ops migrate_cpu_engine_ops;

/* Slots of active engines: one for each reason, and one for all others. */
#define MIGRATE_ENGINE_IN_GENERAL	MR_TYPES
#define MIGRATE_NR_ENGINE_SLOTS		(MR_TYPES + 1)

extern struct migrate_engine migrate_no_engine;

/* Serialises changes of slots and of the list of engines. */
extern struct mutex migrate_engines_lock;

/* The caller holds migrate_engines_lock. */
struct migrate_engine *migrate_engine_in(unsigned int slot);
void migrate_engine_put_in(unsigned int slot, struct migrate_engine *engine);

void migrate_engines_pause(bool pause);

const char *migrate_engine_name_in(unsigned int slot);

#endif /* _MM_MIGRATE_OFFLOAD_REGISTRY_H */
