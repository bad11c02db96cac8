// SPDX-License-Identifier: GPL-2.0-only
/*
 * Users of an mmu_notifier, as virtual machines and devices are, must hear of
 * each page before it moves.
 *
 * A device of the module migrate_notifier_test uses memory through a shadow of
 * the page table, without references to pages, while this memory moves.  With
 * all rules the module must report no failure.  A case that names a rule runs
 * again with this rule off.  Then the module must report a failure.  In some
 * cases without a rule, a second device ignores the notifier, and must report a
 * failure.
 *
 * The device stops while pages migrate.  So the device never writes to a page
 * of another owner, with or without rules.  For options see mo_hazard.c.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_hazard.h"
#include "mo_notify.h"
#include "mo_run.h"
#include "mo_util.h"

/* The word of each page that the device writes. */
#define WORD 511
#define PAGE_WORDS (SZ_4K / sizeof(__u64))
/* Moves there and back, while the program does other things. */
#define BESIDE_MOVES 200
#define BESIDE_PAGES 512
/* Memory is unmapped so many times, each time after at most so long. */
#define UNMAPS 1000
#define MAPPED_US 4000

static int watched;
/* Properties of the device. */
static bool as_tlb, deaf;

static void watch(const struct mo_area *area, int word)
{
	mo_write(PATH_NOTIFY "as_tlb", as_tlb ? "Y" : "N");
	mo_write(PATH_NOTIFY "deaf", deaf ? "Y" : "N");
	watched = mo_notify_watch(0, area->mem, area->bytes, word);
	if (!mo_notify_wait(2 * area->bytes / SZ_4K))
		mo_die("the device does not use its memory");
}

/* The device checks its own words, so take their content as right. */
static void forgive(struct mo_area *area)
{
	size_t i;

	for (i = WORD; i < area->bytes / sizeof(__u64); i += PAGE_WORDS)
		area->shadow[i] = ((__u64 *)area->mem)[i];
}

/* Give the device time to make wrong accesses while pages migrate. */
static void let_it_write(struct mo_area *area)
{
	usleep(300000);
	mo_notify_stop(watched);
}

/*
 * Close the device, which then makes its last checks, and return the verdict.
 */
static int verdict(struct mo_area *area, const struct mo_notify *before)
{
	close(watched);
	if (mo_notify_failures(before))
		return DAMAGED;
	forgive(area);
	return mo_verdict(area);
}

static int move_watched(struct mo_area *area, int word)
{
	struct mo_notify before, after;

	mo_notify_read(&before);
	watch(area, word);
	mo_run_move(area, 0, let_it_write);
	mo_notify_read(&after);
	if (mo_elsewhere(area, mo_nodes[1]) == area->bytes / SZ_4K)
		mo_die("nothing was moved");
	return verdict(area, &before);
}

/* Small pages, which migrate in runs. */
static int notify_run(void)
{
	struct mo_area area;

	mo_run_map(&area, RUN_PAGES);
	return move_watched(&area, WORD);
}

/* Large folios, which migrate in runs, too. */
static int notify_large(void)
{
	mo_run_use_large(RUN_FOLIO_BYTES);
	return notify_run();
}

/* The device has a TLB, and hears when CPUs flush their TLBs. */
static int tlb_run(void)
{
	as_tlb = true;
	return notify_run();
}

static void map_ptes(struct mo_area *area)
{
	mo_map_anon(area, RUN_PAGES * SZ_4K, 16 * SZ_4K);
}

static int tlb_ptes(void)
{
	struct mo_area area;

	as_tlb = true;
	map_ptes(&area);
	return move_watched(&area, WORD);
}

/* Run once with a device that hears all calls, and once with a deaf device. */
static int with_and_without_ears(void (*map)(struct mo_area *area), int word)
{
	struct mo_area area;
	int result;

	map(&area);
	result = move_watched(&area, word);
	mo_unmap(&area);
	if (result)
		return result;
	map(&area);
	deaf = true;
	result = move_watched(&area, word);
	if (result == DAMAGED)
		return RIGHT;
	printf("# a device that ignores the notifier does no harm\n");
	return DAMAGED;
}

static int notify_ptes(void)
{
	return with_and_without_ears(map_ptes, WORD);
}

static void map_pmd(struct mo_area *area)
{
	mo_map_anon(area, 2 * SZ_2M, SZ_2M);
}

static int notify_pmd(void)
{
	mo_set_limit("max_batch_pages", 1024);
	return with_and_without_ears(map_pmd, WORD);
}

static int tlb_pmd(void)
{
	as_tlb = true;
	return notify_pmd();
}

static void map_shmem(struct mo_area *area)
{
	const char *why_not = mo_map(area, MO_SHMEM, RUN_PAGES * SZ_4K, SZ_4K);

	if (why_not)
		mo_die("%s", why_not);
}

static int notify_shmem(void)
{
	struct mo_area area;

	map_shmem(&area);
	return move_watched(&area, WORD);
}

static struct mo_kin kin;

static void map_shared(struct mo_area *area)
{
	mo_run_map(area, RUN_PAGES);
	mo_kin_start(&kin, area);
}

/* Two processes map each page.  A device that only reads does not break COW. */
static int notify_shared(void)
{
	struct mo_area area;
	int result;

	map_shared(&area);
	result = move_watched(&area, MO_NO_WORD);
	if (!result)
		result = mo_kin_ask(&kin, KIN_CHECKS);
	mo_kin_end(&kin);
	return result;
}

static struct {
	struct mo_area *area;
	atomic_bool stop;
	atomic_ulong rounds;
} other;

/* Fork, protect pages, and map and unmap memory next to the moving pages. */
static void *do_other_things(void *arg)
{
	struct mo_area *area = other.area;
	size_t half = area->bytes / 2;
	pid_t pid;

	while (!atomic_load(&other.stop)) {
		char *mem = mmap(NULL, SZ_1M, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (mem == MAP_FAILED)
			mo_die("cannot map memory: %m");
		memset(mem, 1, SZ_1M);
		pid = fork();
		if (pid < 0)
			mo_die("cannot fork: %m");
		if (!pid)
			_exit(0);
		if (mprotect(area->mem + half, half, PROT_READ) ||
		    mprotect(area->mem + half, half, PROT_NONE) ||
		    mprotect(area->mem + half, half, PROT_READ | PROT_WRITE) ||
		    munmap(mem, SZ_1M))
			mo_die("cannot change memory: %m");
		if (waitpid(pid, NULL, 0) != pid)
			mo_die("the child does not end");
		atomic_fetch_add(&other.rounds, 1);
	}
	return NULL;
}

static int beside(struct mo_area *area, int word)
{
	struct mo_notify before;
	pthread_t thread;
	long long moved;
	int i;

	mo_notify_read(&before);
	watch(area, word);
	moved = mo_vm_counter("pgmigrate_success");
	other.area = area;
	if (pthread_create(&thread, NULL, do_other_things, NULL))
		mo_die("cannot start a thread");
	for (i = 1; i <= BESIDE_MOVES || !atomic_load(&other.rounds); i++)
		mo_move_once(area, mo_nodes[i % 2]);
	/* A fork keeps some pages in place for a moment. */
	moved = mo_vm_counter("pgmigrate_success") - moved;
	if (moved < BESIDE_MOVES * BESIDE_PAGES / 8)
		mo_die("%lld pages were moved", moved);
	atomic_store(&other.stop, true);
	pthread_join(thread, NULL);
	mo_notify_stop(watched);
	return verdict(area, &before);
}

static int notify_beside(void)
{
	struct mo_area area;

	mo_map_anon(&area, BESIDE_PAGES * SZ_4K, SZ_4K);
	return beside(&area, WORD);
}

/* After a fork, a write of the device would replace a folio by small pages. */
static int notify_beside_ptes(void)
{
	struct mo_area area;

	mo_map_anon(&area, BESIDE_PAGES * SZ_4K, 16 * SZ_4K);
	return beside(&area, MO_NO_WORD);
}

static struct mo_kin own;

static void kill_own(struct mo_area *area)
{
	kill(own.pid, SIGKILL);
	if (waitpid(own.pid, NULL, 0) != own.pid)
		mo_die("the child does not end");
}

/* A process ends while another one migrates its memory, which a device uses. */
static int notify_ended(void)
{
	struct mo_notify before;
	struct mo_area area;

	mo_run_map(&area, RUN_PAGES);
	mo_kin_start(&own, &area);
	mo_kin_ask(&own, KIN_WRITES);
	munmap(area.mem, area.bytes);
	mo_notify_read(&before);
	watched = mo_notify_watch(own.pid, area.mem, area.bytes, WORD);
	if (!mo_notify_wait(RUN_PAGES))
		mo_die("the device does not use its memory");
	mo_run_move(&area, own.pid, kill_own);
	usleep(10000);
	close(watched);
	return mo_notify_failures(&before) ? DAMAGED : RIGHT;
}

/*
 * Memory goes away and comes back, without any move.  The device finds the zero
 * page in every other page.
 */
static int notify_unmapped(void)
{
	struct mo_notify before;
	struct mo_area area;
	size_t i;
	int n;

	mo_map_anon(&area, BESIDE_PAGES * SZ_4K, SZ_4K);
	mo_notify_read(&before);
	mo_write(PATH_NOTIFY "rest_us", "1");
	watch(&area, MO_NO_WORD);
	for (n = 0; n < UNMAPS; n++) {
		usleep(mo_mix(0, n) % MAPPED_US);
		munmap(area.mem, area.bytes);
		if (mmap(area.mem, area.bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
			 0) != area.mem)
			mo_die("cannot map memory: %m");
		for (i = 0; i < area.bytes; i += 2 * SZ_4K)
			area.mem[i] = 1;
		if (!mo_notify_wait(BESIDE_PAGES))
			mo_die("the device does not use its memory");
	}
	close(watched);
	mo_write(PATH_NOTIFY "rest_us", "100");
	return mo_notify_failures(&before) ? DAMAGED : RIGHT;
}

static const struct mo_hazard hazards[] = {
	{ .name = "run", .rule = "run_notify", .run = notify_run },
	{ .name = "run_pairs", .rule = "run_notify_end", .run = notify_run },
	{ .name = "large", .rule = "run_notify", .run = notify_large },
	{ .name = "large_pairs", .rule = "run_notify_end", .run = notify_large },
	{ .name = "tlb_run", .rule = "run_flush", .run = tlb_run },
	{ .name = "tlb_ptes", .rule = "ptes_flush", .run = tlb_ptes },
	{ .name = "ptes", .run = notify_ptes },
	{ .name = "pmd", .run = notify_pmd },
	{ .name = "tlb_pmd", .run = tlb_pmd },
	{ .name = "shmem", .rule = "run_notify", .run = notify_shmem },
	{ .name = "shmem_pairs", .rule = "run_notify_end", .run = notify_shmem },
	{ .name = "shared", .run = notify_shared },
	{ .name = "beside", .run = notify_beside },
	{ .name = "beside_ptes", .run = notify_beside_ptes },
	{ .name = "ended", .run = notify_ended },
	{ .name = "unmapped", .run = notify_unmapped },
};

static const char *cannot(void)
{
	if (mo_run_cannot())
		return mo_run_cannot();
	return mo_notify_load() ? NULL : "no CONFIG_MIGRATE_NOTIFIER_TEST";
}

int main(int argc, char **argv)
{
	return mo_hazards_main(hazards, ARRAY_SIZE(hazards), cannot, argc, argv);
}
