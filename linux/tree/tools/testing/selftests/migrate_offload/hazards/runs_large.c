// SPDX-License-Identifier: GPL-2.0-only
/*
 * Checks of mm/migrate_run/ptes.c, which unmaps a PTE-mapped large folio in one
 * step.
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

#define FOLIO_PAGES 16
#define FOLIO_BYTES (FOLIO_PAGES * SZ_4K)
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

/*
 * A folio has a poisoned page that the kernel could not split off.  The folio
 * moves, and the poisoned page stays inaccessible.
 */
int mo_large_poisoned(void)
{
	struct iovec part = { .iov_len = SZ_4K };
	struct mo_area area;
	int fds[2];
	char *page;

	mo_map_anon(&area, RUN_PAGES * SZ_4K, FOLIO_BYTES);
	page = area.mem + POISONED_PAGE * SZ_4K;
	part.iov_base = area.mem + FOLIO_BYTES;
	if (pipe(fds) || vmsplice(fds[1], &part, 1, 0) != SZ_4K)
		mo_die("cannot splice a page: %m");
	mo_poison(page);
	close(fds[0]);
	close(fds[1]);
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
