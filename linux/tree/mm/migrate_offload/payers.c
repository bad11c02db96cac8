// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whose memory migrates, and what that took: bytes and times for memory.stat.
 *
 * They count for the cgroup that the memory belongs to, not for the one of the
 * task that migrates it.  That task is kswapd, kcompactd, kdamond or an
 * administrator's as often as not, which is in no cgroup of interest; and to
 * migrate memory is a cost of having it, like reclaiming it, which memory.stat
 * counts in the same way.  CPU time is another matter: what cpu.max allows is
 * that of the task that asks, see migrate_copy_note_helpers().
 *
 * Bytes are those of the counters in /sys/kernel/mm/migrate_offload/stats/ and
 * are counted at the same places, so the sums agree.  How long an engine took is
 * known for a list of folios, not for each, and is shared out by bytes.  Folios
 * of no cgroup count for the root cgroup: those of hugetlb, unless cgroup2 is
 * mounted with memory_hugetlb_accounting, and those of drivers.
 *
 * A list rarely has folios of more than a few cgroups.  If it has more than
 * MIGRATE_MAX_PAYERS, the bytes of the others still count for their cgroups, but
 * their times count for the root cgroup alone.
 */

#include <linux/math64.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/string.h>

#include "hooks.h"
#include "payers.h"

/* The place of this cgroup, or MIGRATE_MAX_PAYERS if there is none left. */
static unsigned int migrate_payer_find(struct migrate_payers *payers,
				       struct mem_cgroup *memcg)
{
	unsigned int i;

	for (i = 0; i < payers->nr; i++)
		if (payers->of[i].memcg == memcg)
			return i;
	if (payers->nr == MIGRATE_MAX_PAYERS)
		return MIGRATE_MAX_PAYERS;
	css_get(&memcg->css);
	payers->of[i] = (struct migrate_payer) { .memcg = memcg };
	return payers->nr++;
}

/*
 * A folio is copied, or about to be by the CPU.  It is locked or isolated: it
 * keeps its cgroup, which stays as long as it has folios.
 */
void migrate_payers_add(struct migrate_payers *payers, struct folio *folio,
			bool by_engine)
{
	unsigned int at = payers->last, pages = folio_nr_pages(folio);
	struct mem_cgroup *memcg = folio_memcg(folio) ?: root_mem_cgroup;

	if (at >= payers->nr || payers->of[at].memcg != memcg) {
		at = migrate_payer_find(payers, memcg);
		payers->last = at;
	}
	payers->pages += pages;
	payers->engine_pages += by_engine ? pages : 0;
	if (at < MIGRATE_MAX_PAYERS) {
		payers->of[at].pages += pages;
		payers->of[at].engine_pages += by_engine ? pages : 0;
	} else {
		const u64 nr[NR_MIGRATE_MEMCG_ITEMS] = {
			[MIGRATE_MEMCG_BYTES] = folio_size(folio),
			[MIGRATE_MEMCG_ENGINE_BYTES] =
				by_engine ? folio_size(folio) : 0,
		};

		mem_cgroup_count_migration(memcg, nr);
	}
}

/* Those of a list that are hugetlb's, or that are not, are left to the CPU. */
void migrate_payers_add_list(struct migrate_payers *payers,
			     const struct list_head *folios, bool hugetlb)
{
	struct folio *folio;

	list_for_each_entry(folio, folios, lru)
		if (folio_test_hugetlb(folio) == hugetlb)
			migrate_payers_add(payers, folio, false);
}

/* The share of @pages of all: of those that the engine copied, if there are. */
static u64 migrate_payers_share(const struct migrate_payers *payers,
				unsigned int engine_pages, unsigned int pages,
				u64 ns)
{
	if (payers->engine_pages)
		return mul_u64_u64_div_u64(ns, engine_pages,
					   payers->engine_pages);
	return payers->pages ? mul_u64_u64_div_u64(ns, pages, payers->pages) : 0;
}

/* All is known: count it.  @payers can be used again. */
void migrate_payers_settle(struct migrate_payers *payers)
{
	u64 engine_ns = payers->engine_ns, helper_ns = payers->helper_ns;
	u64 nr[NR_MIGRATE_MEMCG_ITEMS];
	unsigned int i;

	for (i = 0; i < payers->nr; i++) {
		const struct migrate_payer *payer = &payers->of[i];

		nr[MIGRATE_MEMCG_BYTES] = (u64)payer->pages << PAGE_SHIFT;
		nr[MIGRATE_MEMCG_ENGINE_BYTES] =
			(u64)payer->engine_pages << PAGE_SHIFT;
		nr[MIGRATE_MEMCG_ENGINE_NS] =
			migrate_payers_share(payers, payer->engine_pages,
					     payer->pages, payers->engine_ns);
		nr[MIGRATE_MEMCG_HELPER_NS] =
			migrate_payers_share(payers, payer->engine_pages,
					     payer->pages, payers->helper_ns);
		engine_ns -= nr[MIGRATE_MEMCG_ENGINE_NS];
		helper_ns -= nr[MIGRATE_MEMCG_HELPER_NS];
		mem_cgroup_count_migration(payer->memcg, nr);
		css_put(&payer->memcg->css);
	}
	/* Of those that are too many, and what was lost in rounding. */
	if (engine_ns || helper_ns) {
		memset(nr, 0, sizeof(nr));
		nr[MIGRATE_MEMCG_ENGINE_NS] = engine_ns;
		nr[MIGRATE_MEMCG_HELPER_NS] = helper_ns;
		mem_cgroup_count_migration(root_mem_cgroup, nr);
	}
	memset(payers, 0, sizeof(*payers));
}
