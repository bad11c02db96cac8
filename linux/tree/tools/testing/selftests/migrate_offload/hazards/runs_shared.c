// SPDX-License-Identifier: GPL-2.0-only
/* Pages of several processes, and page cache: both migrate in runs. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_hazard.h"
#include "mo_run.h"
#include "mo_uring.h"
#include "mo_util.h"

#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif

#define PINNED_PAGE 7
/* A page of the last window, which stays mapped until its turn. */
#define POISONED_PAGE (RUN_PAGES - 5)
#define FIRST_REWRITTEN 8
#define LAST_REWRITTEN 47

static struct mo_kin kin;

static void map_shared(struct mo_area *area)
{
	mo_run_map(area, RUN_PAGES);
	mo_kin_start(&kin, area);
}

/* Check both processes, and that all pages have arrived. */
static int verdict_of_both(struct mo_area *area)
{
	int result;

	if (mo_run_dangles(getpid(), area) || mo_run_dangles(kin.pid, area))
		mo_stay();
	if (mo_elsewhere(area, mo_nodes[1]))
		mo_die("not all pages were moved");
	result = mo_verdict(area) ?: mo_kin_ask(&kin, KIN_CHECKS);
	mo_kin_end(&kin);
	return result;
}

/*
 * The child has its own pages at the addresses of the parent's.  The parent's
 * are not exclusive any more.
 */
int mo_shared_foreign(void)
{
	struct mo_area area;

	map_shared(&area);
	mo_kin_ask(&kin, KIN_WRITES);
	mo_move_once(&area, mo_nodes[1]);
	if (mo_kin_ask(&kin, KIN_CHECKS))
		mo_stay();
	return verdict_of_both(&area);
}

/*
 * A userfaultfd watches the child's memory, so a run leaves the child's entries
 * alone.  The pages take the ordinary path.
 */
int mo_shared_watched(void)
{
	struct mo_area area;

	map_shared(&area);
	mo_kin_ask(&kin, KIN_WATCHES);
	mo_move_once(&area, mo_nodes[1]);
	/* The child must not unmap a page that has gone. */
	if (mo_kin_ask(&kin, KIN_CHECKS))
		mo_stay();
	return verdict_of_both(&area);
}

/* Free some pages, and write to their new replacements. */
static void rewrite(struct mo_area *area)
{
	size_t bytes = (LAST_REWRITTEN - FIRST_REWRITTEN + 1) * SZ_4K;
	char *mem = area->mem + FIRST_REWRITTEN * SZ_4K;

	if (madvise(mem, bytes, MADV_DONTNEED))
		mo_die("madvise: %m");
	memset(mem, 0x3c, bytes);
}

int mo_shared_rewritten(void)
{
	struct mo_area area;
	size_t i;
	int result;

	map_shared(&area);
	mo_run_move(&area, 0, rewrite);
	result = mo_kin_ask(&kin, KIN_CHECKS);
	for (i = FIRST_REWRITTEN; i <= LAST_REWRITTEN; i++)
		mo_expect_byte(&area, i, 0x3c);
	result = mo_verdict(&area) ?: result;
	if (result)
		mo_stay();
	mo_kin_end(&kin);
	return result;
}

static void lock_memory(struct mo_area *area)
{
	/* MLOCK_ONFAULT does not wait for absent pages. */
	if (syscall(SYS_mlock2, area->mem, area->bytes, MLOCK_ONFAULT))
		mo_die("mlock2: %m");
}

/* mlock() during migration finds no page.  The pages are locked on arrival. */
int mo_shared_mlocked(void)
{
	size_t i, unlocked = 0;
	struct mo_area area;
	int result;

	map_shared(&area);
	mo_run_move(&area, 0, lock_memory);
	for (i = 0; i < area.bytes; i += SZ_4K)
		unlocked += !mo_page_flag(area.mem + i, KPF_MLOCKED);
	result = verdict_of_both(&area);
	if (unlocked)
		printf("# %zu pages are not mlocked\n", unlocked);
	return unlocked ? DAMAGED : result;
}

/* The same, but a run must map also what its VMA does not allow. */
int mo_shared_left(void)
{
	struct mo_area area;

	map_shared(&area);
	mo_run_move(&area, 0, lock_memory);
	return verdict_of_both(&area);
}

static struct mo_kin late;

static void fork_late(struct mo_area *area)
{
	mo_kin_start(&late, area);
}

/* A third process gets entries while the pages migrate. */
int mo_shared_forked(void)
{
	struct mo_area area;
	int result;

	map_shared(&area);
	mo_run_move(&area, 0, fork_late);
	if (mo_run_dangles(late.pid, &area))
		mo_stay();
	result = mo_kin_ask(&late, KIN_CHECKS);
	mo_kin_end(&late);
	return verdict_of_both(&area) ?: result;
}

/* Exclusive pages and others in turn: both kinds are mapped together. */
int mo_shared_mixed(void)
{
	struct mo_area area;
	size_t i, lost = 0;
	int result;

	map_shared(&area);
	for (i = 0; i < RUN_PAGES; i += 2)
		memcpy(area.mem + i * SZ_4K,
		       (char *)area.shadow + i * SZ_4K, SZ_4K);
	mo_move_once(&area, mo_nodes[1]);
	for (i = 0; i < RUN_PAGES; i += 2)
		lost += !mo_is_exclusive(area.mem + i * SZ_4K);
	if (lost)
		printf("# %zu pages are not exclusive any more\n", lost);
	result = verdict_of_both(&area);
	return lost ? DAMAGED : result;
}

int mo_cache_stale_tlb(void)
{
	return mo_run_stale_tlb_of(mo_run_map_cache);
}

/* A device writes to a page of the cache, which therefore has to stay. */
int mo_cache_pinned(void)
{
	struct mo_uring *ring;
	struct mo_area area;
	int result;
	char *page;

	mo_run_map_cache(&area);
	page = area.mem + PINNED_PAGE * SZ_4K;
	ring = mo_uring_open();
	if (!ring)
		return mo_skip("no io_uring");
	if (!mo_uring_register(ring, page, SZ_4K))
		mo_die("cannot pin a page: %m");
	mo_move_once(&area, mo_nodes[1]);
	result = mo_uring_device_writes(&area, ring, PINNED_PAGE);
	/* The page that has gone must not be unpinned. */
	if (result)
		mo_stay();
	if (mo_elsewhere(&area, mo_nodes[1]) != 1)
		mo_die("the pinned page alone had to stay");
	return RIGHT;
}

static void poison_in_flight(struct mo_area *area)
{
	mo_poison_isolated(area->mem + POISONED_PAGE * SZ_4K);
}

/*
 * The kernel finds the poison while the page is on the list and still mapped.
 */
int mo_cache_poisoned(void)
{
	struct mo_area area;

	mo_run_map_cache(&area);
	mo_set_limit("max_windows", 1);
	mo_set_limit("max_batch_pages", RUN_PAGES / 4);
	mo_run_move(&area, 0, poison_in_flight);
	if (!mo_raises_sigbus(area.mem + POISONED_PAGE * SZ_4K))
		return DAMAGED;
	return RIGHT;
}

static pthread_t remover;

/* This waits for the pages that migrate. */
static void *remove_half(void *arg)
{
	struct mo_area *area = arg;

	if (madvise(area->mem, area->bytes / 2, MADV_REMOVE))
		mo_die("madvise: %m");
	return NULL;
}

static void remove_in_flight(struct mo_area *area)
{
	if (pthread_create(&remover, NULL, remove_half, area))
		mo_die("cannot start a thread");
	usleep(200000);
}

/* Half of the file is removed while it migrates. */
int mo_cache_truncated(void)
{
	struct mo_area area;
	size_t i;

	mo_run_map_cache(&area);
	mo_run_move(&area, 0, remove_in_flight);
	pthread_join(remover, NULL);
	for (i = 0; i < RUN_PAGES / 2; i++)
		mo_expect_byte(&area, i, 0);
	return mo_verdict(&area);
}

/* Page cache in a run must arrive with the same bits as before. */
int mo_cache_bits(void)
{
	__u64 before[RUN_PAGES], after[RUN_PAGES];
	struct mo_area area;
	size_t i, nr;

	mo_run_map_cache(&area);
	for (i = 0; i < RUN_PAGES; i += 3)
		if (madvise(area.mem + i * SZ_4K, SZ_4K, MADV_COLD))
			mo_die("madvise: %m");
	mo_write("/proc/self/clear_refs", "1");
	for (i = 0; i < RUN_PAGES; i += 2)
		__atomic_load_n(area.mem + i * SZ_4K, __ATOMIC_RELAXED);
	mo_run_look(&area, before);
	mo_move_once(&area, mo_nodes[1]);
	mo_run_look(&area, after);
	if (mo_elsewhere(&area, mo_nodes[1]))
		mo_die("not all pages were moved");
	nr = mo_run_changed("before", after, before, ~0ULL);
	return nr ? DAMAGED : mo_verdict(&area);
}
