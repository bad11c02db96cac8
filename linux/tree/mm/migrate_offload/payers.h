/* SPDX-License-Identifier: GPL-2.0-only */
/* Count migration for the cgroups that own the memory: see payers.c. */
#ifndef _MM_MIGRATE_OFFLOAD_PAYERS_H
#define _MM_MIGRATE_OFFLOAD_PAYERS_H

#include <linux/list.h>
#include <linux/types.h>

struct folio;
struct mem_cgroup;

/* In the order of their vm_event_items: see memory.stat. */
enum migrate_memcg_item {
	MIGRATE_MEMCG_BYTES,		/* by an engine or by the CPU */
	MIGRATE_MEMCG_ENGINE_BYTES,	/* by an engine */
	MIGRATE_MEMCG_ENGINE_NS,	/* the engine worked on these bytes */
	MIGRATE_MEMCG_HELPER_NS,	/* CPU time of helpers */
	NR_MIGRATE_MEMCG_ITEMS,
};

/* At most this many cgroups get times of their own from one list. */
#define MIGRATE_MAX_PAYERS 8

struct migrate_payer {
	struct mem_cgroup *memcg;	/* with a reference */
	unsigned int pages;
	unsigned int engine_pages;
};

/*
 * The cgroups whose memory one call of migrate_pages_batch() migrates, until
 * the times are known.
 */
struct migrate_payers {
	unsigned int nr;
	unsigned int last;		/* index for the last folio */
	unsigned long last_data;	/* its memcg_data */
	unsigned int engine_pages;	/* of all cgroups */
	unsigned int pages;
	u64 engine_ns;
	u64 helper_ns;
	struct migrate_payer of[MIGRATE_MAX_PAYERS];
};

#if defined(CONFIG_MEMCG) && defined(CONFIG_MIGRATION_COPY_OFFLOAD)
void migrate_payers_add(struct migrate_payers *payers, struct folio *folio,
			bool by_engine);
void migrate_payers_add_list(struct migrate_payers *payers,
			     const struct list_head *folios, bool hugetlb);
void migrate_payers_settle(struct migrate_payers *payers);
#else
static inline void migrate_payers_add(struct migrate_payers *payers,
				      struct folio *folio, bool by_engine)
{
}

static inline void migrate_payers_add_list(struct migrate_payers *payers,
					   const struct list_head *folios,
					   bool hugetlb)
{
}

static inline void migrate_payers_settle(struct migrate_payers *payers)
{
}
#endif

#endif /* _MM_MIGRATE_OFFLOAD_PAYERS_H */
