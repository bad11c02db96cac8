// SPDX-License-Identifier: GPL-2.0-only
/*
 * Checks of migration in runs, which unmaps small pages together, without a
 * walk of the reverse mapping for each page.  The kernel also has runs of large
 * folios, and unmaps the entries of each folio in one step.
 *
 * Cases are as in hazards.c: with all rules the content must be right, and with
 * its own rule off the damage must show.  The damage also proves that the pages
 * of the case go in runs.  If a check without locks already skips a page, the
 * case runs once more: the kernel ignores that check, and needs the check under
 * the lock.
 *
 * Without some rules, a process keeps entries that the kernel must not even
 * unmap.  This process stays, so the machine has to be switched off afterwards.
 * For options see mo_hazard.c.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_hazard.h"
#include "mo_run.h"
#include "mo_uring.h"
#include "mo_util.h"

/*
 * The child writes to all pages and so gets copies.  Then only the parent maps
 * the original pages.  A walk of the anon_vma still finds the child's VMA, and
 * finds this VMA first, because the parent's VMA begins at a later page.
 */
static int run_foreign(void)
{
	__u64 before[RUN_PAGES], after[RUN_PAGES];
	struct mo_area area;
	struct mo_kin kin;

	mo_run_map(&area, RUN_PAGES);
	mo_pfns(area.mem, RUN_PAGES, before);
	mo_kin_start(&kin, &area);
	mo_kin_ask(&kin, KIN_WRITES);
	memcpy(area.mem, area.shadow, area.bytes);
	mo_pfns(area.mem, RUN_PAGES, after);
	if (memcmp(before, after, sizeof(before)))
		mo_die("the pages are not those that were shared");
	if (mprotect(area.mem, SZ_4K, PROT_READ))
		mo_die("mprotect: %m");

	mo_move_once(&area, mo_nodes[1]);
	/*
	 * The walk must unmap the parent's pages, and leave the child's mapped.
	 */
	if (mo_kin_ask(&kin, KIN_CHECKS))
		mo_stay();
	mo_kin_end(&kin);
	if (mo_elsewhere(&area, mo_nodes[1]))
		mo_die("not all pages were moved");
	return mo_verdict(&area);
}

/*
 * Two processes have one entry each for every page.  Migration must not stop at
 * the first.
 */
int mo_run_shared(void)
{
	struct mo_area area;
	struct mo_kin kin;
	int result;

	mo_run_map(&area, RUN_PAGES);
	mo_kin_start(&kin, &area);
	mo_move_once(&area, mo_nodes[1]);
	if (mo_run_dangles(getpid(), &area) || mo_run_dangles(kin.pid, &area))
		mo_stay();
	if (mo_elsewhere(&area, mo_nodes[1]))
		mo_die("not all pages were moved");
	result = mo_verdict(&area);
	memset(area.mem, 0x77, area.bytes);
	if (!result)
		result = mo_kin_ask(&kin, KIN_CHECKS);
	mo_kin_end(&kin);
	return result;
}

/* Pages that were shared have one mapping, but are not marked exclusive. */
static int run_not_exclusive(void)
{
	struct mo_area area;
	struct mo_kin kin;
	size_t i, nr = 0;

	mo_run_map(&area, RUN_PAGES);
	if (!mo_is_exclusive(area.mem))
		mo_die("a new page is not exclusive");
	mo_kin_start(&kin, &area);
	mo_kin_end(&kin);
	mo_move_once(&area, mo_nodes[1]);
	if (mo_elsewhere(&area, mo_nodes[1]))
		mo_die("not all pages were moved");
	for (i = 0; i < area.bytes; i += SZ_4K)
		nr += mo_is_exclusive(area.mem + i);
	if (nr)
		printf("# %zu pages became exclusive\n", nr);
	return nr ? DAMAGED : mo_verdict(&area);
}

#define PINNED_PAGE 7

static struct mo_kin pinned_kin;

static void fork_in_flight(struct mo_area *area)
{
	mo_kin_start(&pinned_kin, area);
}

/*
 * A device writes to a pinned page.  With a migration entry in its place,
 * fork() could not see the pin, and would share the page.  The parent's next
 * write makes a copy, which lacks the data of the device.
 */
static int run_pinned(void)
{
	struct mo_uring *ring;
	struct mo_area area;
	int result;
	char *page;

	mo_run_map(&area, RUN_PAGES);
	page = area.mem + PINNED_PAGE * SZ_4K;
	ring = mo_uring_open();
	if (!ring)
		return mo_skip("no io_uring");
	if (!mo_uring_register(ring, page, SZ_4K))
		mo_die("cannot pin a page: %m");
	mo_run_move(&area, 0, fork_in_flight);
	if (mo_elsewhere(&area, mo_nodes[1]) != 1)
		mo_die("the pinned page alone had to stay");

	result = mo_uring_device_writes(&area, ring, PINNED_PAGE);
	if (!result)
		result = mo_kin_ask(&pinned_kin, KIN_CHECKS);
	mo_kin_end(&pinned_kin);
	return result;
}

/* A page of the last window, which stays mapped until its turn. */
#define POISONED_PAGE (2 * RUN_PAGES - 5)

static void poison_in_flight(struct mo_area *area)
{
	mo_poison_isolated(area->mem + POISONED_PAGE * SZ_4K);
}

/*
 * The kernel finds the poison while the page is on the list and still mapped.
 */
static int run_poisoned(void)
{
	struct mo_area area;
	char *page;

	mo_run_map(&area, 2 * RUN_PAGES);
	page = area.mem + POISONED_PAGE * SZ_4K;
	mo_set_limit("max_windows", 1);
	mo_run_move(&area, 0, poison_in_flight);
	if (!mo_raises_sigbus(page))
		return DAMAGED;
	if (mmap(page, SZ_4K, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		mo_die("cannot map memory: %m");
	mo_expect_byte(&area, POISONED_PAGE, 0);
	return mo_verdict(&area);
}

/* Pages in a run must arrive with the same bits as single pages. */
static int run_bits(void)
{
	__u64 before[RUN_PAGES], alone[RUN_PAGES], in_run[RUN_PAGES];
	struct mo_area first, second;
	long long kb, kb_before;
	size_t nr;

	mo_run_map(&first, RUN_PAGES);
	mo_run_map(&second, RUN_PAGES);
	mo_run_vary(&first);
	mo_run_batch(false);
	mo_move_once(&first, mo_nodes[1]);
	mo_run_batch(true);
	mo_run_look(&first, alone);

	mo_run_vary(&second);
	mo_run_look(&second, before);
	kb_before = mo_referenced_kb(second.mem);
	mo_move_once(&second, mo_nodes[1]);
	mo_run_look(&second, in_run);
	kb = mo_referenced_kb(second.mem);
	if (mo_elsewhere(&second, mo_nodes[1]))
		mo_die("not all pages were moved");

	/*
	 * The kernel marks not all pages as idle, so the idle pages may differ.
	 */
	nr = mo_run_changed("by itself", in_run, alone, ~(1ULL << KPF_IDLE));
	nr += mo_run_changed("before", in_run, before,
			     1ULL << KPF_IDLE | mo_map_bits);
	if (kb != kb_before || !kb || kb == RUN_PAGES * SZ_4K / 1024)
		printf("# %lld KiB were accessed, and %lld before\n", kb,
		       kb_before);
	return nr || kb != kb_before ? DAMAGED : mo_verdict(&second);
}

static const struct mo_hazard hazards[] = {
	{ .name = "foreign", .rule = "run_page", .run = run_foreign },
	{ .name = "shared", .run = mo_run_shared, .hints = true },
	{ .name = "not_exclusive", .rule = "run_exclusive",
	  .run = run_not_exclusive, .hints = true },
	{ .name = "pinned", .rule = "run_pin", .run = run_pinned, .hints = true },
	{ .name = "poisoned", .rule = "run_poison", .run = run_poisoned,
	  .hints = true },
	{ .name = "stale_tlb", .rule = "run_flush", .run = mo_run_stale_tlb },
	{ .name = "stale_tlb_of_file", .rule = "run_flush",
	  .run = mo_run_stale_tlb_of_file },
	{ .name = "stale_own_tlb", .rule = "run_flush",
	  .run = mo_run_stale_own_tlb },
	{ .name = "stale_hint", .rule = "run_judge", .run = mo_run_stale_hint },
	{ .name = "cut", .run = mo_run_cut },
	{ .name = "rewritten", .rule = "run_entry", .run = mo_run_rewritten },
	{ .name = "forked", .rule = "run_shared", .run = mo_run_forked },
	{ .name = "left_over", .rule = "run_rest", .run = mo_run_forked },
	{ .name = "mlocked", .rule = "run_locked", .run = mo_run_mlocked },
	{ .name = "bits", .run = run_bits },
	{ .name = "moved", .run = mo_run_moved },
	{ .name = "unmapped", .run = mo_run_unmapped },
	{ .name = "ended", .run = mo_run_ended },
	{ .name = "hints", .run = mo_run_hints },
	{ .name = "executed", .run = mo_run_executed },
	{ .name = "arguments", .run = mo_run_arguments },
	{ .name = "uffd_moved", .run = mo_run_uffd_moved },
	{ .name = "merged", .run = mo_run_merged },
	{ .name = "collapsed", .run = mo_run_collapsed },
	{ .name = "in_turn", .run = mo_run_in_turn },
	{ .name = "shared_foreign", .rule = "run_page",
	  .run = mo_shared_foreign },
	{ .name = "shared_watched", .run = mo_shared_watched },
	{ .name = "shared_rewritten", .rule = "run_entry",
	  .run = mo_shared_rewritten },
	{ .name = "shared_mlocked", .rule = "run_locked",
	  .run = mo_shared_mlocked },
	{ .name = "shared_left", .rule = "run_rest", .run = mo_shared_left },
	{ .name = "shared_forked", .run = mo_shared_forked },
	{ .name = "shared_mixed", .run = mo_shared_mixed },
	{ .name = "cache_stale_tlb", .rule = "run_flush",
	  .run = mo_cache_stale_tlb },
	{ .name = "cache_pinned", .rule = "file_refs", .run = mo_cache_pinned,
	  .hints = true },
	{ .name = "cache_poisoned", .rule = "run_poison",
	  .run = mo_cache_poisoned, .hints = true },
	{ .name = "cache_truncated", .run = mo_cache_truncated },
	{ .name = "cache_bits", .run = mo_cache_bits },
	{ .name = "large_pinned", .rule = "ptes_pin", .run = mo_large_pinned,
	  .hints = true },
	{ .name = "large_poisoned", .rule = "ptes_poison",
	  .run = mo_large_poisoned, .hints = true },
	{ .name = "large_stale", .rule = "ptes_flush", .run = mo_large_stale_tlb },
	{ .name = "lone_stale", .rule = "ptes_flush", .run = mo_lone_stale_tlb },
	{ .name = "large_stale_own", .rule = "ptes_flush",
	  .run = mo_large_stale_own_tlb },
	{ .name = "large_rewritten", .rule = "run_entry",
	  .run = mo_large_rewritten },
	{ .name = "large_forked", .rule = "run_shared", .run = mo_large_forked },
	{ .name = "large_left_over", .rule = "run_rest",
	  .run = mo_large_forked },
	{ .name = "large_shared", .run = mo_large_shared, .hints = true },
	{ .name = "large_moved", .run = mo_large_moved },
	{ .name = "large_unmapped", .run = mo_large_unmapped },
	{ .name = "large_ended", .run = mo_large_ended },
	{ .name = "large_foreign", .run = mo_large_foreign, .hints = true },
	{ .name = "large_partial", .run = mo_large_partial, .hints = true },
	{ .name = "large_queued", .run = mo_large_queued, .hints = true },
	{ .name = "large_mixed", .run = mo_large_mixed },
};

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], MO_RUN_EXEC_CHECK))
		return mo_run_exec_check(argc, argv);
	return mo_hazards_main(hazards, ARRAY_SIZE(hazards), mo_run_cannot,
			       argc, argv);
}
