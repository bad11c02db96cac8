// SPDX-License-Identifier: GPL-2.0-only
/*
 * The hazards of copying a folio before its move, one by one.
 *
 * With all rules on, the data of each case must be right.  A case that names a
 * rule runs again with this rule off.  Then the damage must show, or the first
 * result would prove nothing.
 *
 * The program needs CONFIG_MIGRATION_COPY_OFFLOAD_DEBUG, and the module
 * migrate_offload_test.  drivers/migrate_offload/test_engine/main.c describes
 * the engine and the files of the module.  lib/mo_hazard.c describes the
 * options.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_area.h"
#include "mo_hazard.h"
#include "mo_util.h"

#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

#define BLOCK_DEVICE "/dev/ram0"

/*
 * The holder of a pin writes after the engine's copy, and drops the pin before
 * the core moves the page.
 */
static int run_pin(void)
{
	struct mo_area area;
	char text[64];
	int fd;

	mo_map_anon(&area, SZ_2M, SZ_4K);
	snprintf(text, sizeof(text), "%lx 0xa5", (long)(area.mem + 5 * SZ_4K));
	mo_expect_byte(&area, 5, 0xa5);
	mo_select("test");
	fd = mo_hold(PATH_TEST "pin", text);
	mo_move_once(&area, mo_nodes[1]);
	close(fd);
	return mo_verdict(&area);
}

/*
 * A reference makes the first attempt to move a page fail.  The holder of the
 * reference writes before the second attempt.
 */
static int run_retry(void)
{
	long long retried = mo_counter("retried_folios");
	struct mo_area area;
	int fd;

	mo_map_anon(&area, SZ_2M, SZ_4K);
	mo_expect_byte(&area, 0, 0x5a);
	/*
	 * The module drops its reference when another folio moves.  With more
	 * windows, that could come before the first attempt.
	 */
	mo_set_limit("max_windows", 1);
	mo_select("test");
	fd = mo_hold(PATH_TEST "grab", "0x5a");
	mo_move_once(&area, mo_nodes[1]);
	close(fd);
	if (mo_counter("retried_folios") == retried)
		mo_die("no move was retried");
	if (mo_elsewhere(&area, mo_nodes[1]))
		mo_die("not all pages were moved in the end");
	return mo_verdict(&area);
}

#define NR_BLOCKS 16
#define HELD_BLOCK 3

/* Write the mapped blocks to the device, and compare them with @expected. */
static bool device_ok(int fd, const void *expected)
{
	void *read_back = aligned_alloc(SZ_4K, NR_BLOCKS * SZ_4K);
	bool ok;

	if (fsync(fd))
		mo_die("cannot write to " BLOCK_DEVICE ": %m");
	fd = open(BLOCK_DEVICE, O_RDONLY | O_DIRECT);
	if (fd < 0 || !read_back ||
	    read(fd, read_back, NR_BLOCKS * SZ_4K) != NR_BLOCKS * SZ_4K)
		mo_die("cannot read from " BLOCK_DEVICE ": %m");
	ok = !memcmp(read_back, expected, NR_BLOCKS * SZ_4K);
	close(fd);
	free(read_back);
	return ok;
}

/*
 * Map blocks of a device, filled with the content of the first pages of @area.
 */
static char *map_blocks(int fd, const struct mo_area *area)
{
	char *mem;

	mo_write_pages(fd, area->shadow, NR_BLOCKS * SZ_4K);
	mem = mmap(NULL, NR_BLOCKS * SZ_4K, PROT_READ | PROT_WRITE, MAP_SHARED,
		   fd, 0);
	if (mem == MAP_FAILED || memcmp(mem, area->shadow, NR_BLOCKS * SZ_4K))
		mo_die("cannot map " BLOCK_DEVICE ": %m");
	return mem;
}

/* The holder of a buffer head changes a block without the folio lock. */
static int run_buffers(void)
{
	void *pages[2 * NR_BLOCKS];
	int i, fd, hold_fd, node;
	struct mo_area area;
	int result = RIGHT;
	char *mem;

	fd = open(BLOCK_DEVICE, O_RDWR);
	if (fd < 0)
		return mo_skip("no " BLOCK_DEVICE);
	mo_map_anon(&area, SZ_1M, SZ_4K);
	mem = map_blocks(fd, &area);

	/*
	 * The page cache of the device may be on either node: move @area there.
	 */
	pages[0] = mem;
	mo_query(pages, 1, &node);
	mo_move(&area, node);
	node = mo_nodes[node == mo_nodes[0]];

	/*
	 * With all rules, the core offers no block to the engine.  The module
	 * writes only after a batch, so add folios that the engine copies.
	 */
	for (i = 0; i < NR_BLOCKS; i++) {
		pages[i] = mem + i * SZ_4K;
		pages[NR_BLOCKS + i] = area.mem + i * SZ_4K;
	}
	mo_select("test");
	hold_fd = mo_hold(PATH_TEST "hold_bh", BLOCK_DEVICE " 3 0x77");
	mo_expect_byte(&area, HELD_BLOCK, 0x77);
	mo_move_pages(pages, ARRAY_SIZE(pages), node);
	close(hold_fd);

	if (memcmp(mem, area.shadow, NR_BLOCKS * SZ_4K)) {
		printf("# wrong content in the mapping\n");
		result = DAMAGED;
	}
	if (!device_ok(fd, area.shadow)) {
		printf("# wrong content on the device\n");
		result = DAMAGED;
	}
	return result;
}

#define NR_SECRETS 8

/* The kernel has no mapping of secret memory, so an engine must not read it. */
static int run_mapping(void)
{
	long long seen = mo_read_number(PATH_TEST "seen_secret");
	int i, before[NR_SECRETS], after[NR_SECRETS];
	void *pages[NR_SECRETS];
	char *mem;
	int fd;

	fd = syscall(SYS_memfd_secret, 0);
	if (fd < 0)
		return mo_skip("no memfd_secret(2), boot with secretmem.enable=1");
	if (ftruncate(fd, NR_SECRETS * SZ_4K))
		mo_die("cannot make secret memory larger: %m");
	mem = mmap(NULL, NR_SECRETS * SZ_4K, PROT_READ | PROT_WRITE, MAP_SHARED,
		   fd, 0);
	if (mem == MAP_FAILED)
		mo_die("cannot map secret memory: %m");
	memset(mem, 0x3c, NR_SECRETS * SZ_4K);
	for (i = 0; i < NR_SECRETS; i++)
		pages[i] = mem + i * SZ_4K;

	mo_query(pages, NR_SECRETS, before);
	mo_select("test");
	if (mo_move_pages(pages, NR_SECRETS, mo_nodes[before[0] == mo_nodes[0]]) <= 0)
		mo_die("secret memory was moved");
	mo_query(pages, NR_SECRETS, after);
	if (memcmp(before, after, sizeof(before)))
		mo_die("secret memory was moved");
	for (i = 0; i < NR_SECRETS * (int)SZ_4K; i++)
		if (mem[i] != 0x3c)
			return DAMAGED;
	return mo_read_number(PATH_TEST "seen_secret") == seen ? RIGHT : DAMAGED;
}

#define BAD_PAGE 7

/*
 * Move memory while each copy of one page ends as after a machine check.
 * @nr_reads gets the number of these copies.
 */
static int move_bad_page(const char *engine, long *ret, long long *nr_reads)
{
	long long nr_before = mo_read_number(PATH_DEBUG "bad_reads");
	struct mo_area area;
	int node, result;
	void *page;

	mo_map_anon(&area, SZ_2M, SZ_4K);
	mo_select(engine);
	mo_write_number(PATH_DEBUG "bad_pfn",
			mo_pfn(area.mem + BAD_PAGE * SZ_4K));
	*ret = mo_move_once(&area, mo_nodes[1]);
	mo_write(PATH_DEBUG "bad_pfn", "0");
	mo_select("none");

	*nr_reads = mo_read_number(PATH_DEBUG "bad_reads") - nr_before;
	result = mo_verdict(&area);
	page = area.mem + BAD_PAGE * SZ_4K;
	mo_query(&page, 1, &node);
	if (!result && (mo_elsewhere(&area, mo_nodes[1]) != 1 ||
			node != mo_nodes[0]))
		mo_die("%s: the bad page alone had to stay", engine);
	mo_unmap(&area);
	return result;
}

/*
 * Every engine must end as the ordinary path does: only the bad page stays.  No
 * engine may cause more machine checks than the ordinary path.
 */
static int run_bad_page(void)
{
	long long stock_reads, reads;
	const char *engine;
	long stock, ret;
	int i, result;

	result = move_bad_page("none", &stock, &stock_reads);
	for (i = 0; !result && (engine = mo_engine(i)); i++) {
		result = move_bad_page(engine, &ret, &reads);
		if (result)
			break;
		if (ret != stock)
			mo_die("%s: move_pages() returned %ld, not %ld", engine,
			       ret, stock);
		if (reads > stock_reads)
			mo_die("%s: a bad page was read %lld times, not %lld",
			       engine, reads, stock_reads);
	}
	return result;
}

/*
 * A reference of a pipe keeps the kernel from splitting a THP with a poisoned
 * page.  The engine must not get this THP.
 */
static int run_poisoned_thp(void)
{
	long long copied, seen = mo_read_number(PATH_TEST "seen_poisoned");
	struct iovec part = { .iov_len = SZ_4K };
	struct mo_area area;
	int fds[2];

	mo_map_anon(&area, 2 * SZ_2M, SZ_2M);
	part.iov_base = area.mem + SZ_4K;
	if (pipe(fds) || vmsplice(fds[1], &part, 1, 0) != SZ_4K)
		mo_die("cannot splice a page: %m");
	mo_poison(area.mem + BAD_PAGE * SZ_4K);
	close(fds[0]);
	close(fds[1]);
	if (!mo_page_flag(area.mem + BAD_PAGE * SZ_4K, KPF_HWPOISON) ||
	    !mo_page_flag(area.mem, KPF_COMPOUND_HEAD))
		mo_die("no THP is poisoned");

	copied = mo_counter("engine_folios");
	mo_select("test");
	mo_move_once(&area, mo_nodes[1]);
	if (mo_counter("engine_folios") == copied)
		mo_die("the other THP was not offloaded");
	if (mo_read_number(PATH_TEST "seen_poisoned") != seen)
		return DAMAGED;
	return mo_verdict(&area);
}

/* Pages next to a poisoned page move.  The poisoned page stays poisoned. */
static int run_poisoned_page(void)
{
	struct mo_area area;

	mo_map_anon(&area, SZ_2M, SZ_4K);
	mo_poison(area.mem + BAD_PAGE * SZ_4K);
	mo_select("test");
	mo_move_once(&area, mo_nodes[1]);
	if (mo_elsewhere(&area, mo_nodes[1]) != 1)
		mo_die("not all the other pages were moved");

	if (!mo_raises_sigbus(area.mem + BAD_PAGE * SZ_4K))
		return DAMAGED;
	/* Replace the poisoned page, so that the check can read all pages. */
	if (mmap(area.mem + BAD_PAGE * SZ_4K, SZ_4K, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		mo_die("cannot map memory: %m");
	mo_expect_byte(&area, BAD_PAGE, 0);
	return mo_verdict(&area);
}

/* The CPU copies a page that begins to fail, whatever engine is active. */
static int run_failing_page(void)
{
	long long seen = mo_read_number(PATH_TEST "seen_folios");
	struct mo_area area;

	mo_map_anon(&area, SZ_1M, SZ_4K);
	mo_select("test");
	if (madvise(area.mem, SZ_4K, MADV_SOFT_OFFLINE))
		return mo_skip("cannot soft-offline a page");
	if (mo_read_number(PATH_TEST "seen_folios") != seen)
		return DAMAGED;
	return mo_verdict(&area);
}

/* An engine that follows the lists copies each folio to its own destination. */
static int run_order(void)
{
	long long copied = mo_counter("engine_folios");
	struct mo_area area;

	mo_map_anon(&area, SZ_2M, SZ_4K);
	mo_move_once(&area, mo_nodes[1]);
	if (mo_counter("engine_folios") == copied)
		mo_die("nothing was offloaded");
	return mo_verdict(&area);
}

static const struct mo_hazard hazards[] = {
	{ .name = "pin", .rule = "refcount", .run = run_pin },
	{ .name = "retry", .rule = "retry", .run = run_retry },
	{ .name = "buffers", .rule = "buffers", .run = run_buffers },
	{ .name = "secret", .rule = "mapping", .run = run_mapping },
	{ .name = "bad_page", .rule = "result", .run = run_bad_page },
	{ .name = "poisoned_thp", .rule = "poison", .run = run_poisoned_thp },
	{ .name = "poisoned_page", .run = run_poisoned_page },
	{ .name = "failing_page", .run = run_failing_page },
	{ .name = "order", .rule = "order", .run = run_order, .posted = true },
	{ .name = "late", .rule = "hold", .run = mo_run_late },
	{ .name = "huge_pin", .rule = "refcount", .run = mo_run_huge_pin },
	{ .name = "huge_retry", .run = mo_run_huge_retry },
	{ .name = "huge_bad_page", .run = mo_run_huge_bad_page },
	{ .name = "huge_late", .rule = "hold", .run = mo_run_huge_late },
	{ .name = "unload", .run = mo_run_unload },
};

int main(int argc, char **argv)
{
	return mo_hazards_main(hazards, ARRAY_SIZE(hazards), mo_cannot_run,
			       argc, argv);
}
