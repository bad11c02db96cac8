// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a DAMON scheme that migrates meets on its way: a node without room for
 * large folios, targets that exit, a quota, and a request to stop.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../kselftest_harness.h"
#include "mo_area.h"
#include "mo_damon.h"
#include "mo_util.h"

/* Emulated machines, and kernels full of debugging, take their time. */
#define TIMEOUT 600
#define BYTES SZ_1M

/* The second node gets so many pages free, none of which make up a huge page. */
#define ROOM_BYTES (96 * SZ_1M)
#define BEHIND_BYTES (32 * SZ_1M)
#define HUGE_ORDER 9
#define MPOL_BIND 2
#define PATH_UNEVICTABLE "/proc/sys/vm/compact_unevictable_allowed"

static const unsigned int all_there[] = { 0, 1 };

FIXTURE(limits)
{
	struct mo_area area;
};

FIXTURE_SETUP(limits)
{
	struct mo_area *area = &self->area;
	const char *why_not = mo_cannot_run();

	if (!why_not)
		why_not = mo_damon_cannot_run();
	if (why_not)
		SKIP(return, "%s", why_not);
	ASSERT_EQ(mo_map(area, MO_ANON, BYTES, SZ_4K), NULL);
	mo_damon_setup("fvaddr", "migrate_hot", (uintptr_t)area->mem,
		       (uintptr_t)area->mem + area->bytes);
	mo_damon_set_dests(2, mo_nodes, all_there);
}

FIXTURE_TEARDOWN(limits)
{
	mo_damon_remove();
	if (self->area.mem)
		mo_unmap(&self->area);
}

static unsigned long nr_there(const struct mo_area *area)
{
	return mo_elsewhere(area, mo_nodes[0]);
}

#define START() ASSERT_EQ(mo_damon_command("on"), 0)
static char *map_there(size_t bytes, int advice)
{
	unsigned long mask[4] = {};
	char *mem = mmap(NULL, bytes + SZ_2M, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		mo_die("cannot map memory: %m");
	mem = (char *)(((uintptr_t)mem + SZ_2M - 1) & ~(SZ_2M - 1));
	mask[mo_nodes[1] / 64] = 1UL << (mo_nodes[1] % 64);
	if (syscall(SYS_mbind, mem, bytes, MPOL_BIND, mask, 8 * sizeof(mask), 0))
		mo_die("cannot bind memory: %m");
	if (madvise(mem, bytes, advice))
		mo_die("madvise: %m");
	return mem;
}

/*
 * Have memory free on the second node, but no block for a huge page: of each such
 * block one page stays, which compaction has to leave alone.  What is taken goes
 * with this process.  NULL, or why not.
 */
static const char *leave_no_huge_block(void)
{
	size_t i, first = 0, nr = ROOM_BYTES / SZ_4K, much = 4096 * SZ_1M;
	char *room = map_there(ROOM_BYTES, MADV_NOHUGEPAGE);
	__u64 *pfns = malloc(nr * sizeof(*pfns));
	char *rest;

	if (!pfns)
		mo_die("no memory");
	memset(room, 1, ROOM_BYTES);
	mo_pfns(room, nr, pfns);
	for (i = 1; i <= nr; i++) {
		if (i < nr && pfns[i] >> HUGE_ORDER == pfns[first] >> HUGE_ORDER)
			continue;
		if (mlock(room + first * SZ_4K, SZ_4K))
			mo_die("mlock: %m");
		if (i - first > 1 &&
		    madvise(room + (first + 1) * SZ_4K,
			    (i - first - 1) * SZ_4K, MADV_DONTNEED))
			mo_die("madvise: %m");
		first = i;
	}
	free(pfns);
	/* Now that there is room, all other huge pages can be had. */
	rest = map_there(much, MADV_HUGEPAGE);
	for (i = 0; i < much; i += SZ_2M) {
		rest[i] = 1;
		if (!mo_page_flag(rest + i, KPF_COMPOUND_HEAD))
			return NULL;
	}
	return "there is too much memory";
}

/* One huge page, and small ones behind it, on the first node. */
static void map_both(struct mo_area *area)
{
	size_t bytes = SZ_2M + BEHIND_BYTES;
	char *mem = mmap(NULL, bytes + SZ_2M, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		mo_die("cannot map memory: %m");
	*area = (struct mo_area){ .bytes = bytes, .step = SZ_4K,
		.folio_bytes = SZ_4K, .fd = -1 };
	area->mem = (char *)(((uintptr_t)mem + SZ_2M - 1) & ~(SZ_2M - 1));
	area->shadow = malloc(bytes);
	if (!area->shadow)
		mo_die("no memory");
	mo_bind(area->mem, bytes);
	if (madvise(area->mem, SZ_2M, MADV_HUGEPAGE) ||
	    madvise(area->mem + SZ_2M, BEHIND_BYTES, MADV_NOHUGEPAGE))
		mo_die("madvise: %m");
	memset(area->shadow, 0x5a, bytes);
	mo_fill(area);
}

/* No room for the large folio: what is behind it in its region moves all the same. */
TEST_F_TIMEOUT(limits, goes_on_behind_a_large_folio, TIMEOUT)
{
	const char *why_not;
	struct mo_area both, behind;
	char was[16];

	map_both(&both);
	if (!mo_page_flag(both.mem, KPF_COMPOUND_HEAD))
		SKIP(return, "no huge page");
	mo_read(PATH_UNEVICTABLE, was, sizeof(was));
	mo_write(PATH_UNEVICTABLE, "0");
	why_not = leave_no_huge_block();
	if (why_not) {
		mo_write(PATH_UNEVICTABLE, was);
		SKIP(return, "%s", why_not);
	}
	behind = both;
	behind.mem += SZ_2M;
	behind.bytes -= SZ_2M;
	mo_damon_remove();
	mo_damon_setup("fvaddr", "migrate_hot", (uintptr_t)both.mem,
		       (uintptr_t)both.mem + both.bytes);
	mo_damon_set_dests(2, mo_nodes, all_there);
	START();
	EXPECT_TRUE(mo_damon_settles(both.bytes));
	EXPECT_EQ(nr_there(&behind), BEHIND_BYTES / SZ_4K);
	/* It is left alone, and whole. */
	EXPECT_EQ(nr_there(&both) - nr_there(&behind), 0);
	EXPECT_TRUE(mo_page_flag(both.mem, KPF_COMPOUND_HEAD));
	EXPECT_TRUE(mo_content_ok(&both));
	mo_write(PATH_UNEVICTABLE, was);
}

TEST_HARNESS_MAIN
