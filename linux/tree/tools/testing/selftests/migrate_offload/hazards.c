// SPDX-License-Identifier: GPL-2.0-only
/*
 * The ways in which copying before the move could lose data, one by one.
 *
 * Each is arranged twice: with the rule that is there against it, when the data
 * must be right, and with this rule switched off, when the damage must show.
 * Else the first result would mean nothing.  Needs a kernel with
 * CONFIG_MIGRATION_COPY_OFFLOAD_DEBUG and the module migrate_offload_test, for
 * whose part in it see there.
 *
 * "hazards NAME..." does those only, "hazards -l" lists them.  With "-s" before
 * the names the engine copies several batches side by side.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../kselftest.h"
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
#define KPF_HWPOISON 19
#define PATH_UNPOISON "/sys/kernel/debug/hwpoison/unpoison-pfn"

struct hazard {
	const char *name;
	const char *rule;	/* NULL: nothing to switch off */
	bool posted;
	int (*run)(void);
};

/* How the engine copies where a case does not say. */
static enum mo_test_mode test_mode = MO_TEST_PLAIN;

static int skip(const char *why)
{
	printf("# %s\n", why);
	return SKIPPED;
}

/* What is written is held until it is used, or until this is closed. */
static int hold(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY);

	if (fd < 0)
		mo_die("cannot open %s: %m", file);
	if (write(fd, text, strlen(text)) < 0)
		mo_die("cannot write %s to %s: %m", text, file);
	return fd;
}

/* A pin that writes after the copy, and is gone when the page is moved. */
static int run_pin(void)
{
	struct mo_area area;
	char text[64];
	int fd;

	mo_map_anon(&area, SZ_2M, SZ_4K);
	snprintf(text, sizeof(text), "%lx 0xa5", (long)(area.mem + 5 * SZ_4K));
	mo_expect_byte(&area, 5, 0xa5);
	mo_select("test");
	fd = hold(PATH_TEST "pin", text);
	mo_move_once(&area, mo_nodes[1]);
	close(fd);
	return mo_verdict(&area);
}

/* A reference that makes the first attempt fail, and writes before the next. */
static int run_retry(void)
{
	long long retried = mo_counter("retried_folios");
	struct mo_area area;
	int fd;

	mo_map_anon(&area, SZ_2M, SZ_4K);
	mo_expect_byte(&area, 0, 0x5a);
	/* Else a folio of another window could be the next one. */
	mo_set_limit("max_windows", 1);
	mo_select("test");
	fd = hold(PATH_TEST "grab", "0x5a");
	mo_move_once(&area, mo_nodes[1]);
	close(fd);
	if (mo_counter("retried_folios") == retried)
		mo_die("no move was tried again");
	if (mo_elsewhere(&area, mo_nodes[1]))
		mo_die("not all pages were moved in the end");
	return mo_verdict(&area);
}

#define NR_BLOCKS 16
#define HELD_BLOCK 3

/* Is what is on the device the content that we know? */
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

/* Map blocks of a device that have the content of the area's first pages. */
static char *map_blocks(int fd, const struct mo_area *area)
{
	char *mem;

	if (pwrite(fd, area->shadow, NR_BLOCKS * SZ_4K, 0) != NR_BLOCKS * SZ_4K ||
	    fsync(fd))
		mo_die("cannot write to " BLOCK_DEVICE ": %m");
	mem = mmap(NULL, NR_BLOCKS * SZ_4K, PROT_READ | PROT_WRITE, MAP_SHARED,
		   fd, 0);
	if (mem == MAP_FAILED || memcmp(mem, area->shadow, NR_BLOCKS * SZ_4K))
		mo_die("cannot map " BLOCK_DEVICE ": %m");
	return mem;
}

/* The holder of a buffer head edits a block without the folio lock. */
static int run_buffers(void)
{
	void *pages[2 * NR_BLOCKS];
	int i, fd, hold_fd, node;
	struct mo_area area;
	int result = RIGHT;
	char *mem;

	fd = open(BLOCK_DEVICE, O_RDWR);
	if (fd < 0)
		return skip("no " BLOCK_DEVICE);
	mo_map_anon(&area, SZ_1M, SZ_4K);
	mem = map_blocks(fd, &area);

	/* The page cache of the device may be on either node. */
	pages[0] = mem;
	mo_query(pages, 1, &node);
	mo_move(&area, node);
	node = mo_nodes[node == mo_nodes[0]];

	/* The blocks may not be offloaded: give the engine something to do. */
	for (i = 0; i < NR_BLOCKS; i++) {
		pages[i] = mem + i * SZ_4K;
		pages[NR_BLOCKS + i] = area.mem + i * SZ_4K;
	}
	mo_select("test");
	hold_fd = hold(PATH_TEST "hold_bh", BLOCK_DEVICE " 3 0x77");
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

/* Memory that the kernel promised not to look at. */
static int run_mapping(void)
{
	long long seen = mo_read_number(PATH_TEST "seen_secret");
	int i, before[NR_SECRETS], after[NR_SECRETS];
	void *pages[NR_SECRETS];
	char *mem;
	int fd;

	fd = syscall(SYS_memfd_secret, 0);
	if (fd < 0)
		return skip("no memfd_secret(2), boot with secretmem.enable=1");
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

/* Move while reading one page raises a machine check; what came of the rest? */
static int move_bad_page(const char *engine, long *ret)
{
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

	result = mo_verdict(&area);
	page = area.mem + BAD_PAGE * SZ_4K;
	mo_query(&page, 1, &node);
	if (!result && (mo_elsewhere(&area, mo_nodes[1]) != 1 ||
			node != mo_nodes[0]))
		mo_die("%s: not just the bad page stayed", engine);
	mo_unmap(&area);
	return result;
}

/* Every engine ends as the ordinary path does: with one folio not moved. */
static int run_bad_page(void)
{
	const char *engine;
	long stock, ret;
	int i, result;

	result = move_bad_page("none", &stock);
	for (i = 0; !result && (engine = mo_engine(i)); i++) {
		result = move_bad_page(engine, &ret);
		if (!result && ret != stock)
			mo_die("%s: move_pages() returned %ld, not %ld", engine,
			       ret, stock);
	}
	return result;
}

static sigjmp_buf on_sigbus;
static atomic_bool sigbus_jumps;

static void handle_sigbus(int sig)
{
	if (sigbus_jumps)
		siglongjmp(on_sigbus, 1);
}

/*
 * Pages that a case has poisoned.  When it has ended, some of them are free, and
 * would become another case's memory: they are healed before.
 */
static struct {
	unsigned int nr;
	__u64 pfns[8];
} *poisoned;

static void poison(void *page)
{
	struct sigaction action = { .sa_handler = handle_sigbus };

	sigaction(SIGBUS, &action, NULL);
	if (poisoned->nr == ARRAY_SIZE(poisoned->pfns))
		mo_die("more poisoned pages than there is room to note them");
	poisoned->pfns[poisoned->nr++] = mo_pfn(page);
	/* Fails if the page cannot be taken away; but it is poisoned then too. */
	madvise(page, SZ_4K, MADV_HWPOISON);
}

/* A THP with a poisoned page, that could not be split when it was found. */
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
	poison(area.mem + BAD_PAGE * SZ_4K);
	close(fds[0]);
	close(fds[1]);
	if (!mo_page_flag(area.mem + BAD_PAGE * SZ_4K, KPF_HWPOISON) ||
	    !mo_page_flag(area.mem, KPF_COMPOUND_HEAD))
		mo_die("there is no poisoned THP");

	copied = mo_counter("engine_folios");
	mo_select("test");
	mo_move_once(&area, mo_nodes[1]);
	if (mo_counter("engine_folios") == copied)
		mo_die("the other THP was not offloaded");
	if (mo_read_number(PATH_TEST "seen_poisoned") != seen)
		return DAMAGED;
	return mo_verdict(&area);
}

/* A poisoned page among others: they move, and it stays poisoned. */
static int run_poisoned_page(void)
{
	struct mo_area area;

	mo_map_anon(&area, SZ_2M, SZ_4K);
	poison(area.mem + BAD_PAGE * SZ_4K);
	mo_select("test");
	mo_move_once(&area, mo_nodes[1]);
	if (mo_elsewhere(&area, mo_nodes[1]) != 1)
		mo_die("not all the other pages were moved");

	sigbus_jumps = true;
	if (!sigsetjmp(on_sigbus, 1)) {
		(void)mo_page_ok(&area, BAD_PAGE);
		return DAMAGED;
	}
	/* Give it a page that works, and look at all the others. */
	if (mmap(area.mem + BAD_PAGE * SZ_4K, SZ_4K, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		mo_die("cannot map memory: %m");
	mo_expect_byte(&area, BAD_PAGE, 0);
	return mo_verdict(&area);
}

/* A page that begins to fail is for the CPU, whatever engine there is. */
static int run_failing_page(void)
{
	long long seen = mo_read_number(PATH_TEST "seen_folios");
	struct mo_area area;

	mo_map_anon(&area, SZ_1M, SZ_4K);
	mo_select("test");
	if (madvise(area.mem, SZ_4K, MADV_SOFT_OFFLINE))
		return skip("a page cannot be taken out of use");
	if (mo_read_number(PATH_TEST "seen_folios") != seen)
		return DAMAGED;
	return mo_verdict(&area);
}

/* An engine that goes by the lists copies each folio to its own place. */
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

static const struct hazard hazards[] = {
	{ "pin", "refcount", false, run_pin },
	{ "retry", "retry", false, run_retry },
	{ "buffers", "buffers", false, run_buffers },
	{ "secret", "mapping", false, run_mapping },
	{ "bad_page", "result", false, run_bad_page },
	{ "poisoned_thp", "poison", false, run_poisoned_thp },
	{ "poisoned_page", NULL, false, run_poisoned_page },
	{ "failing_page", NULL, false, run_failing_page },
	{ "order", "order", true, run_order },
	{ "late", "hold", false, mo_run_late },
	{ "unload", NULL, false, mo_run_unload },
};

/* Nothing that a case changed stays. */
static void clean_up(void)
{
	mo_write(PATH_DEBUG "break_rules", "none");
	mo_write(PATH_DEBUG "bad_pfn", "0");
	mo_reset();
}

/* The process that had poisoned pages is gone. */
static void heal(void)
{
	for (; poisoned->nr; poisoned->nr--) {
		__u64 pfn = poisoned->pfns[poisoned->nr - 1];
		char text[32];
		int ret;

		snprintf(text, sizeof(text), "%llu", (unsigned long long)pfn);
		ret = mo_try_write(PATH_UNPOISON, text);
		if (ret)
			printf("# page %s stays poisoned: %s\n", text,
			       strerror(-ret));
	}
}

/* In a process of its own: its memory may be damaged. */
static int run_case(const struct hazard *hazard, const char *rule)
{
	int status;
	pid_t pid;

	clean_up();
	if (!mo_load_test_engine(hazard->posted ? MO_TEST_POSTED : test_mode))
		return skip("cannot load the module migrate_offload_test");
	mo_write(PATH_DEBUG "break_rules", rule);
	/* Several windows, and it does not depend on the time how large. */
	mo_set_limit("max_unmapped_us", 0);
	mo_set_limit("max_batch_pages", 64);

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		mo_die("cannot fork: %m");
	if (!pid) {
		int result = hazard->run();

		fflush(stdout);
		_exit(result);
	}
	if (waitpid(pid, &status, 0) != pid)
		mo_die("cannot wait: %m");
	clean_up();
	mo_select("none");
	heal();
	if (!WIFEXITED(status))
		printf("# ended by signal %d\n", WTERMSIG(status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void report(const struct hazard *hazard, const char *rule, int expected)
{
	int result = run_case(hazard, rule ? rule : "none");

	if (result == SKIPPED)
		ksft_test_result_skip("%s %s\n", hazard->name,
				      rule ? "without_its_rule" : "with_all_rules");
	else
		ksft_test_result(result == expected, "%s %s\n", hazard->name,
				 rule ? "without_its_rule" : "with_all_rules");
}

static bool wanted(const struct hazard *hazard, int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++)
		if (!strcmp(hazard->name, argv[i]))
			return true;
	return argc == 1;
}

int main(int argc, char **argv)
{
	const struct hazard *hazard, *end = hazards + ARRAY_SIZE(hazards);
	unsigned int nr = 0;

	if (argc == 2 && !strcmp(argv[1], "-l")) {
		for (hazard = hazards; hazard < end; hazard++)
			printf("%s %s\n", hazard->name, hazard->rule ?: "-");
		return 0;
	}

	if (argc > 1 && !strcmp(argv[1], "-s")) {
		test_mode = MO_TEST_STREAM;
		argc--;
		argv++;
	}

	ksft_print_header();
	if (mo_cannot_run())
		ksft_exit_skip("%s\n", mo_cannot_run());
	if (!mo_exists(PATH_DEBUG "break_rules"))
		ksft_exit_skip("no CONFIG_MIGRATION_COPY_OFFLOAD_DEBUG\n");

	for (hazard = hazards; hazard < end; hazard++)
		if (wanted(hazard, argc, argv))
			nr += hazard->rule ? 2 : 1;
	if (!nr)
		ksft_exit_fail_msg("no such hazard, see %s -l\n", argv[0]);
	ksft_set_plan(nr);
	poisoned = mmap(NULL, sizeof(*poisoned), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (poisoned == MAP_FAILED)
		ksft_exit_fail_msg("no memory: %m\n");

	for (hazard = hazards; hazard < end; hazard++) {
		if (!wanted(hazard, argc, argv))
			continue;
		report(hazard, NULL, RIGHT);
		if (hazard->rule)
			report(hazard, hazard->rule, DAMAGED);
	}
	ksft_finished();
}
