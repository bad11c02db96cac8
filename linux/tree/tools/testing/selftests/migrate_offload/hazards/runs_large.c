// SPDX-License-Identifier: GPL-2.0-only
/*
 * Checks of mm/migrate_run/ptes.c, which unmaps a PTE-mapped large folio in one
 * step, and of mm/migrate_run/large.c, which does so in runs.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_hazard.h"
#include "mo_run.h"
#include "mo_uring.h"
#include "mo_util.h"

#define FOLIO_BYTES RUN_FOLIO_BYTES
#define FOLIO_PAGES (FOLIO_BYTES / SZ_4K)
#define PINNED_PAGE 7
#define POISONED_PAGE (FOLIO_PAGES + 5)

static struct mo_kin kin;

static void fork_in_flight(struct mo_area *area)
{
	mo_kin_start(&kin, area);
}

/* As run_pinned() of runs.c: fork() must not share pinned pages. */
int mo_large_pinned(void)
{
	struct mo_uring *ring;
	struct mo_area area;
	char *page;
	int result;

	mo_map_anon(&area, RUN_PAGES * SZ_4K, FOLIO_BYTES);
	page = area.mem + PINNED_PAGE * SZ_4K;
	ring = mo_uring_open();
	if (!ring)
		return mo_skip("no io_uring");
	if (!mo_uring_register(ring, page, SZ_4K))
		mo_die("cannot pin a page: %m");
	mo_run_move(&area, 0, fork_in_flight);
	if (mo_elsewhere(&area, mo_nodes[1]) != FOLIO_PAGES)
		mo_die("the pinned folio alone had to stay");
	result = mo_uring_device_writes(&area, ring, PINNED_PAGE);
	if (!result)
		result = mo_kin_ask(&kin, KIN_CHECKS);
	mo_kin_end(&kin);
	return result;
}

/* A pipe holds a page, so the kernel can neither split nor move its folio. */
static void hold(int *fds, char *page)
{
	struct iovec part = { .iov_base = page, .iov_len = SZ_4K };

	if (pipe(fds) || vmsplice(fds[1], &part, 1, 0) != SZ_4K)
		mo_die("cannot splice a page: %m");
}

static void let_go(int *fds)
{
	close(fds[0]);
	close(fds[1]);
}

/*
 * A folio has a poisoned page that the kernel could not split off.  The folio
 * moves, and the poisoned page stays inaccessible.
 */
int mo_large_poisoned(void)
{
	struct mo_area area;
	int fds[2];
	char *page;

	mo_map_anon(&area, RUN_PAGES * SZ_4K, FOLIO_BYTES);
	page = area.mem + POISONED_PAGE * SZ_4K;
	hold(fds, area.mem + FOLIO_BYTES);
	mo_poison(page);
	let_go(fds);
	if (!mo_page_flag(page, KPF_HWPOISON) ||
	    !mo_page_flag(area.mem + FOLIO_BYTES, KPF_COMPOUND_HEAD))
		mo_die("no folio is poisoned");
	mo_move_once(&area, mo_nodes[1]);
	if (!mo_raises_sigbus(page))
		return DAMAGED;
	if (mmap(page, SZ_4K, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		mo_die("cannot map memory: %m");
	mo_expect_byte(&area, POISONED_PAGE, 0);
	return mo_verdict(&area);
}

/* These cases are those of small pages. */
static int with_large(int (*run)(void))
{
	mo_run_use_large(RUN_FOLIO_BYTES);
	return run();
}

/* A folio of this size is unmapped in one step, but not in a run. */
int mo_lone_stale_tlb(void)
{
	mo_run_use_large(SZ_1M);
	return mo_run_stale_tlb();
}

int mo_large_stale_tlb(void)
{
	return with_large(mo_run_stale_tlb);
}

int mo_large_stale_own_tlb(void)
{
	return with_large(mo_run_stale_own_tlb);
}

int mo_large_rewritten(void)
{
	return with_large(mo_run_rewritten);
}

int mo_large_forked(void)
{
	return with_large(mo_run_forked);
}

int mo_large_shared(void)
{
	return with_large(mo_run_shared);
}

int mo_large_moved(void)
{
	return with_large(mo_run_moved);
}

int mo_large_unmapped(void)
{
	return with_large(mo_run_unmapped);
}

int mo_large_ended(void)
{
	return with_large(mo_run_ended);
}

/*
 * As run_foreign() of runs.c: the VMA of the child is found first, and has
 * other pages.
 */
int mo_large_foreign(void)
{
	struct mo_area area;

	mo_map_anon(&area, RUN_PAGES * SZ_4K, FOLIO_BYTES);
	mo_kin_start(&kin, &area);
	mo_kin_ask(&kin, KIN_WRITES);
	if (mprotect(area.mem, SZ_4K, PROT_READ))
		mo_die("mprotect: %m");
	mo_move_once(&area, mo_nodes[1]);
	if (mo_kin_ask(&kin, KIN_CHECKS))
		mo_stay();
	mo_kin_end(&kin);
	if (mo_elsewhere(&area, mo_nodes[1]))
		mo_die("not all pages were moved");
	return mo_verdict(&area);
}

/* The folios of each group, in the order of their addresses. */
static const size_t mixed_bytes[] = {
	FOLIO_BYTES, FOLIO_BYTES, 4 * SZ_4K, SZ_4K,
};

static size_t mixed_at(size_t at)
{
	return mixed_bytes[at / FOLIO_BYTES % ARRAY_SIZE(mixed_bytes)];
}

/* Folios of several sizes, in one list and in one page table. */
int mo_large_mixed(void)
{
	void *pages[RUN_PAGES * 4];
	struct mo_area area;
	size_t at, nr = 0;
	bool large;

	mo_map_anon(&area, RUN_PAGES * 4 * SZ_4K, FOLIO_BYTES);
	for (at = 0; at < area.bytes; at += FOLIO_BYTES) {
		size_t bytes = mixed_at(at), in;

		if (bytes != FOLIO_BYTES)
			mo_refill(&area, at, FOLIO_BYTES, bytes);
		for (in = 0; in < FOLIO_BYTES; in += bytes)
			pages[nr++] = area.mem + at + in;
	}
	mo_move_pages(pages, nr, mo_nodes[1]);
	if (mo_elsewhere(&area, mo_nodes[1]))
		mo_die("not all pages were moved");
	while (nr--) {
		at = (char *)pages[nr] - area.mem;
		large = mixed_at(at) > SZ_4K;
		if (mo_page_flag(pages[nr], KPF_COMPOUND_HEAD) != large)
			mo_die("the folio at %zu KiB has another size",
			       at / 1024);
	}
	return mo_verdict(&area);
}

/*
 * One half of a folio is mapped, and cannot migrate.  What a run unmaps of it
 * must be mapped again.
 */
int mo_large_partial(void)
{
	struct mo_area area;
	int fds[2];

	mo_map_anon(&area, RUN_PAGES * SZ_4K, FOLIO_BYTES);
	hold(fds, area.mem + FOLIO_BYTES);
	if (madvise(area.mem + FOLIO_BYTES + FOLIO_BYTES / 2, FOLIO_BYTES / 2,
		    MADV_DONTNEED))
		mo_die("madvise: %m");
	memset((char *)area.shadow + FOLIO_BYTES + FOLIO_BYTES / 2, 0,
	       FOLIO_BYTES / 2);
	mo_move_once(&area, mo_nodes[1]);
	if (mo_run_dangles(getpid(), &area))
		mo_stay();
	let_go(fds);
	return mo_verdict(&area);
}

/*
 * A move without batch_ptes leaves the folios in the queue of those to split,
 * although all their pages are mapped.  The kernel warns if a folio leaves
 * memory that way.
 */
int mo_large_queued(void)
{
	struct mo_area area;

	mo_map_anon(&area, RUN_PAGES * SZ_4K, FOLIO_BYTES);
	mo_run_batch(false);
	mo_move_once(&area, mo_nodes[1]);
	mo_run_batch(true);
	mo_move_once(&area, mo_nodes[0]);
	mo_move_once(&area, mo_nodes[1]);
	if (mo_elsewhere(&area, mo_nodes[1]))
		mo_die("not all pages were moved");
	return mo_verdict(&area);
}
