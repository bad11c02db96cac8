/* SPDX-License-Identifier: GPL-2.0-only */
/* Count migration for the cgroups that own the memory: see payers.c. */
#ifndef _MM_MIGRATE_OFFLOAD_PAYERS_H
#define _MM_MIGRATE_OFFLOAD_PAYERS_H

#include <linux/compiler.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/types.h>

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
	struct migrate_payer *last;	/* of the last folio; NULL: none */
	unsigned long last_data;	/* its memcg_data */
	unsigned int nr;
	u64 engine_ns;
	u64 helper_ns;
	struct migrate_payer of[MIGRATE_MAX_PAYERS];
	struct migrate_payer rest;	/* of all cgroups without an entry */
};

#if defined(CONFIG_MEMCG) && defined(CONFIG_MIGRATION_COPY_OFFLOAD)
void migrate_payers_add_other(struct migrate_payers *payers,
			      struct folio *folio, bool by_engine);

static inline void migrate_payer_add(struct migrate_payer *payer,
				     const struct folio *folio, bool by_engine)
{
	unsigned int pages = folio_nr_pages(folio);

	payer->pages += pages;
	if (by_engine)
		payer->engine_pages += pages;
}

/*
 * Count a folio that is copied, or that the CPU will copy.  Most folios of a
 * list have the same cgroup as the folio before.
 */
static inline void migrate_payers_add(struct migrate_payers *payers,
				      struct folio *folio, bool by_engine)
{
	if (likely(payers->last &&
		   payers->last_data == READ_ONCE(folio->memcg_data)))
		migrate_payer_add(payers->last, folio, by_engine);
	else
		migrate_payers_add_other(payers, folio, by_engine);
}

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
