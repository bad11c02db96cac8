// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reclaim gives an engine several huge pages at once.  Reclaim still takes no
 * more of a list than the balance between lists allows, which swappiness and
 * memory.low set.
 *
 * Without an engine a round takes up to 32 pages, or one huge page, off a list.
 * The kernel traces how many pages each round wanted.  Fewer than 32 means the
 * last round for its list, which may take one huge page.
 *
 * Needs memory of two tiers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../../kselftest_harness.h"
#include "mo_area.h"
#include "mo_promote.h"
#include "mo_util.h"

#define TIMEOUT 600
#define TRIES 20
#define HUGE_PAGES (SZ_2M / SZ_4K)
#define ROUND_PAGES 32
#define BYTES (48 * SZ_1M)

#define PATH_LRU_GEN "/sys/kernel/mm/lru_gen/enabled"
#define PATH_DEMOTION "/sys/kernel/mm/numa/demotion_enabled"
#define PATH_TRACING "/sys/kernel/tracing/"
#define PATH_EVENT PATH_TRACING "events/vmscan/mm_vmscan_lru_isolate/enable"

FIXTURE(demotion)
{
	struct mo_area area;
	char cgroups[MO_SETTING_BYTES];
	char lru_gen[MO_SETTING_BYTES];
	char demotion[MO_SETTING_BYTES];
};

FIXTURE_SETUP(demotion)
{
	const char *why_not = mo_cannot_run();
	int cpu, fast;

	if (!why_not)
		why_not = mo_find_tiers(&cpu);
	if (!why_not && !mo_exists(PATH_EVENT))
		why_not = "no tracepoints of reclaim";
	if (!why_not)
		why_not = mo_cgroup_enter(self->cgroups, "+memory",
					  "memory.reclaim", NULL);
	if (why_not)
		SKIP(return, "%s", why_not);
	/* Memory moves from the fast node to the slow one. */
	fast = mo_nodes[1];
	mo_nodes[1] = mo_nodes[0];
	mo_nodes[0] = fast;
	if (mo_exists(PATH_LRU_GEN)) {
		mo_read(PATH_LRU_GEN, self->lru_gen, sizeof(self->lru_gen));
		mo_write(PATH_LRU_GEN, "n");
	}
	mo_read(PATH_DEMOTION, self->demotion, sizeof(self->demotion));
	mo_write(PATH_DEMOTION, "1");
	mo_reset();
	mo_select(getenv("ENGINE") ?: "cpu");
	why_not = mo_map_with_patience(&self->area, MO_ANON, BYTES, SZ_2M);
	ASSERT_EQ(why_not, NULL)
		TH_LOG("%s", why_not);
}

FIXTURE_TEARDOWN(demotion)
{
	if (mo_exists(PATH_EVENT))
		mo_write(PATH_EVENT, "0");
	if (self->area.mem)
		mo_unmap(&self->area);
	if (self->demotion[0])
		mo_write(PATH_DEMOTION, self->demotion);
	if (self->lru_gen[0])
		mo_write(PATH_LRU_GEN, self->lru_gen);
	if (self->cgroups[0])
		mo_cgroup_leave(self->cgroups);
	mo_reset();
}

struct rounds {
	unsigned long several;	/* took more than one huge page */
	unsigned long small;	/* were the last round of their list */
	unsigned long too_much;	/* last rounds with more than one huge page */
};

/* The kernel empties the trace when it is opened for writing and truncated. */
static void empty_trace(void)
{
	FILE *trace = fopen(PATH_TRACING "trace", "w");

	if (!trace)
		mo_die("cannot empty the trace: %m");
	fclose(trace);
}

/* Read the traced rounds of inactive lists of anonymous memory. */
static struct rounds count_rounds(void)
{
	FILE *trace = fopen(PATH_TRACING "trace", "r");
	struct rounds rounds = {};
	char line[512];

	if (!trace)
		mo_die("cannot open the trace: %m");
	while (fgets(line, sizeof(line), trace)) {
		const char *wanted = strstr(line, "nr_requested=");
		const char *taken = strstr(line, "nr_taken=");
		unsigned long nr_wanted, nr_taken;

		if (!wanted || !taken || !strstr(line, "inactive_anon"))
			continue;
		nr_wanted = strtoul(strchr(wanted, '=') + 1, NULL, 10);
		nr_taken = strtoul(strchr(taken, '=') + 1, NULL, 10);
		rounds.several += nr_taken >= 2 * HUGE_PAGES;
		if (nr_wanted >= ROUND_PAGES)
			continue;
		rounds.small++;
		rounds.too_much += nr_taken >= 2 * HUGE_PAGES;
	}
	fclose(trace);
	return rounds;
}

TEST_F_TIMEOUT(demotion, keeps_the_balance_of_lists, TIMEOUT)
{
	struct rounds rounds;
	unsigned int tries;
	char path[128];

	snprintf(path, sizeof(path), "%s/promote/memory.reclaim", self->cgroups);
	empty_trace();
	mo_write(PATH_EVENT, "1");
	for (tries = 0; tries < TRIES; tries++) {
		if (mo_elsewhere(&self->area, mo_nodes[0]) >= BYTES / SZ_4K / 2)
			break;
		madvise(self->area.mem, BYTES, MADV_COLD);
		/* -EAGAIN is expected: there is less memory than this. */
		mo_try_write(path, "128M");
	}
	mo_write(PATH_EVENT, "0");
	rounds = count_rounds();
	TH_LOG("%lu rounds of several huge pages, %lu small rounds",
	       rounds.several, rounds.small);
	EXPECT_GT(mo_elsewhere(&self->area, mo_nodes[0]), 0);
	EXPECT_GT(rounds.small, 0);
	EXPECT_EQ(rounds.too_much, 0);
	/* Other rounds still take several huge pages. */
	EXPECT_GT(rounds.several, 0);
	EXPECT_TRUE(mo_content_ok(&self->area));
}

TEST_HARNESS_MAIN
