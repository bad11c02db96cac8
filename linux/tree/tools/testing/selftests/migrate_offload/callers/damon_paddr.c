// SPDX-License-Identifier: GPL-2.0-only
/*
 * DAMON migrates a region of physical addresses that begins inside a folio.
 * DAMON must continue at the end of that folio, and skip no folio behind it.
 */
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../kselftest_harness.h"
#include "mo_area.h"
#include "mo_damon.h"
#include "mo_util.h"

/* Emulated machines and debug kernels are slow. */
#define TIMEOUT 600
/* So many huge pages that two of them are adjacent. */
#define NR_HUGE 16
#define SMALL_IN_HUGE (SZ_2M / SZ_4K)
/* The region covers half of a huge page, and all of the adjacent one. */
#define REGION_BYTES (SZ_2M / 2 + SZ_2M)
#define FOREVER_MS 3600000

FIXTURE(paddr)
{
	struct mo_area area;
	char *first, *second;
};

/* Find two huge pages that are adjacent in physical memory. */
static bool find_neighbours(const struct mo_area *area, char **first,
			    char **second)
{
	int i, j;

	for (i = 0; i < NR_HUGE; i++)
		for (j = 0; j < NR_HUGE; j++) {
			*first = area->mem + i * SZ_2M;
			*second = area->mem + j * SZ_2M;
			if (mo_pfn(*first) + SMALL_IN_HUGE == mo_pfn(*second))
				return true;
		}
	return false;
}

FIXTURE_SETUP(paddr)
{
	const char *why_not = mo_cannot_run();

	if (!why_not)
		why_not = mo_damon_cannot_run();
	if (!why_not)
		why_not = mo_map(&self->area, MO_ANON, NR_HUGE * SZ_2M, SZ_2M);
	if (why_not)
		SKIP(return, "%s", why_not);
	if (!find_neighbours(&self->area, &self->first, &self->second))
		SKIP(return, "no two huge pages next to each other");
	/* Advice for a part of a huge page splits it. */
	ASSERT_EQ(madvise(self->second, SZ_4K, MADV_COLD), 0);
	ASSERT_FALSE(mo_page_flag(self->second, KPF_COMPOUND_HEAD));
	ASSERT_TRUE(mo_page_flag(self->first, KPF_COMPOUND_HEAD));
}

FIXTURE_TEARDOWN(paddr)
{
	mo_damon_remove();
	if (self->area.mem)
		mo_unmap(&self->area);
}

static unsigned long nr_small_there(const char *huge)
{
	void *pages[SMALL_IN_HUGE];
	int nodes[SMALL_IN_HUGE];
	unsigned long i, nr = 0;

	for (i = 0; i < SMALL_IN_HUGE; i++)
		pages[i] = (char *)huge + i * SZ_4K;
	mo_query(pages, SMALL_IN_HUGE, nodes);
	for (i = 0; i < SMALL_IN_HUGE; i++)
		nr += nodes[i] == mo_nodes[1];
	return nr;
}

TEST_F_TIMEOUT(paddr, goes_on_behind_a_folio_that_it_begins_in, TIMEOUT)
{
	static const unsigned int all_there[] = { 0, 1 };
	unsigned long start = mo_pfn(self->first) * SZ_4K + SZ_2M / 2;
	struct mo_damon_stats stats;

	mo_damon_setup("paddr", "migrate_hot", start, start + REGION_BYTES);
	mo_damon_set_dests(2, mo_nodes, all_there);
	/*
	 * The quota allows one pass only.  A second pass would find skipped
	 * folios.
	 */
	mo_damon_set_number("quotas/bytes", REGION_BYTES);
	mo_damon_set_number("quotas/reset_interval_ms", FOREVER_MS);
	ASSERT_EQ(mo_damon_command("on"), 0);
	do {
		usleep(10000);
		mo_damon_stats(&stats);
	} while (stats.sz_tried < (long long)REGION_BYTES);

	EXPECT_EQ(stats.sz_applied, 2 * SZ_2M);
	EXPECT_EQ(nr_small_there(self->second), SMALL_IN_HUGE);
	EXPECT_TRUE(mo_content_ok(&self->area));
}

TEST_HARNESS_MAIN
