// SPDX-License-Identifier: GPL-2.0-only
/*
 * Count migrated bytes, and the times that they took, in memory.stat.
 *
 * Bytes and times count for the cgroup that owns the memory, like reclaim in
 * memory.stat.  The migrating task is often kswapd, kcompactd or kdamond, which
 * are in the root cgroup.  But cpu.max limits the cgroup of the task: see
 * migrate_copy_note_helpers().
 *
 * The counters in /sys/kernel/mm/migrate_offload/stats/ count the same bytes at
 * the same places, so the sums agree.  An engine's time is known for a list,
 * and is divided by bytes.  Folios without a cgroup count for the root cgroup:
 * those of drivers, and those of hugetlb unless memory_hugetlb_accounting is
 * on.
 *
 * If a list has folios of more than MIGRATE_MAX_PAYERS cgroups, the times of
 * the others count for the root cgroup.  The bytes still count for their own
 * cgroups.
 */

#include <linux/math64.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/string.h>

#include "hooks.h"
#include "payers.h"

/* Returns the entry of a cgroup, or NULL if there is no room. */
static struct migrate_payer *migrate_payer_find(struct migrate_payers *payers,
						struct mem_cgroup *memcg)
{
	struct migrate_payer *payer = payers->of;

	for (; payer < payers->of + payers->nr; payer++)
		if (payer->memcg == memcg)
			return payer;
	if (payers->nr == MIGRATE_MAX_PAYERS)
		return NULL;
	css_get(&memcg->css);
	*payer = (struct migrate_payer) { .memcg = memcg };
	payers->nr++;
	return payer;
}

/* Count a folio of a cgroup that has no entry. */
static void migrate_payer_count(struct mem_cgroup *memcg, struct folio *folio,
				bool by_engine)
{
	const u64 nr[NR_MIGRATE_MEMCG_ITEMS] = {
		[MIGRATE_MEMCG_BYTES] = folio_size(folio),
		[MIGRATE_MEMCG_ENGINE_BYTES] = by_engine ? folio_size(folio) : 0,
	};

	mem_cgroup_count_migration(memcg, nr);
}

/*
 * Count a folio of another cgroup than the folio before.  When a cgroup is
 * removed, its folios get the cgroup's parent, also folios that are locked or
 * isolated.  So take a reference.
 */
void migrate_payers_add_other(struct migrate_payers *payers,
			      struct folio *folio, bool by_engine)
{
	unsigned long data = READ_ONCE(folio->memcg_data);
	struct mem_cgroup *memcg = get_mem_cgroup_from_folio(folio);

	/* Without cgroups, all folios are in the root cgroup. */
	if (!memcg)
		memcg = root_mem_cgroup;
	payers->last = migrate_payer_find(payers, memcg);
	payers->last_data = data;
	if (!payers->last)
		migrate_payer_count(memcg, folio, by_engine);
	migrate_payer_add(payers->last ?: &payers->rest, folio, by_engine);
	mem_cgroup_put(memcg);
}

/* Count folios that the CPU will copy: those of hugetlb, or all others. */
void migrate_payers_add_list(struct migrate_payers *payers,
			     const struct list_head *folios, bool hugetlb)
{
	struct folio *folio;

	list_for_each_entry(folio, folios, lru)
		if (folio_test_hugetlb(folio) == hugetlb)
			migrate_payers_add(payers, folio, false);
}

/* Returns a cgroup's share of @ns, by pages of the engine if there are any. */
static u64 migrate_payer_share(const struct migrate_payer *payer,
			       const struct migrate_payer *all, u64 ns)
{
	if (all->engine_pages)
		return mul_u64_u64_div_u64(ns, payer->engine_pages,
					   all->engine_pages);
	return all->pages ? mul_u64_u64_div_u64(ns, payer->pages, all->pages) : 0;
}

/* Count all in memory.stat, and clear @payers for the next list. */
void migrate_payers_settle(struct migrate_payers *payers)
{
	u64 engine_ns = payers->engine_ns, helper_ns = payers->helper_ns;
	struct migrate_payer all = payers->rest;
	u64 nr[NR_MIGRATE_MEMCG_ITEMS];
	unsigned int i;

	for (i = 0; i < payers->nr; i++) {
		all.pages += payers->of[i].pages;
		all.engine_pages += payers->of[i].engine_pages;
	}
	for (i = 0; i < payers->nr; i++) {
		const struct migrate_payer *payer = &payers->of[i];

		nr[MIGRATE_MEMCG_BYTES] = (u64)payer->pages << PAGE_SHIFT;
		nr[MIGRATE_MEMCG_ENGINE_BYTES] =
			(u64)payer->engine_pages << PAGE_SHIFT;
		nr[MIGRATE_MEMCG_ENGINE_NS] =
			migrate_payer_share(payer, &all, payers->engine_ns);
		nr[MIGRATE_MEMCG_HELPER_NS] =
			migrate_payer_share(payer, &all, payers->helper_ns);
		engine_ns -= nr[MIGRATE_MEMCG_ENGINE_NS];
		helper_ns -= nr[MIGRATE_MEMCG_HELPER_NS];
		mem_cgroup_count_migration(payer->memcg, nr);
		css_put(&payer->memcg->css);
	}
	/*
	 * The rest belongs to cgroups without an entry, or comes from rounding.
	 */
	if (engine_ns || helper_ns) {
		memset(nr, 0, sizeof(nr));
		nr[MIGRATE_MEMCG_ENGINE_NS] = engine_ns;
		nr[MIGRATE_MEMCG_HELPER_NS] = helper_ns;
		mem_cgroup_count_migration(root_mem_cgroup, nr);
	}
	memset(payers, 0, sizeof(*payers));
}
