// SPDX-License-Identifier: GPL-2.0-only
/*
 * The status that move_pages(2) reports for each entry of a mixed list.  The
 * list has pages that move, pages already on the node, duplicates, holes, zero
 * pages, huge pages, pages that other processes map, and unmapped addresses.
 *
 * Prints the result, each status, and the node of each page afterwards.  No
 * output depends on chance, so all kernels must print the same.  A test runs
 * this on stock Linux, too, and compares the outputs.
 *
 *	status [SEEDS]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_area.h"
#include "mo_util.h"

#define MPOL_MF_MOVE 2
#define MPOL_MF_MOVE_ALL 4
#define MAX_LIST 400
/* No kernel stores this value: the kernel did not reach the entry. */
#define UNTOUCHED -77

/* The size of each part of the memory. */
#define PART_PAGES 512
#define PART_BYTES (PART_PAGES * SZ_4K)

enum part {
	SMALL,		/* pages in a row */
	OTHERS,		/* the same, in another part */
	HOLES,		/* every third page was never touched */
	ZEROES,		/* every other page was only read */
	GIVEN_BACK,	/* every fourth page was given back */
	UNMAPPED,	/* every fifth page is not mapped */
	GUARDED,	/* every other page is PROT_NONE */
	LOCKED,		/* mlocked */
	SHARED,		/* a child maps these pages, too */
	MEMFD,		/* of a memfd */
	FOLIOS,		/* of 64K */
	HUGE,		/* of 2M */
	NR_PARTS,
};

static const char *const part_names[NR_PARTS] = {
	[SMALL] = "small", [OTHERS] = "others", [HOLES] = "holes",
	[ZEROES] = "zeroes", [GIVEN_BACK] = "given_back",
	[UNMAPPED] = "unmapped", [GUARDED] = "guarded", [LOCKED] = "locked",
	[SHARED] = "shared", [MEMFD] = "memfd", [FOLIOS] = "folios",
	[HUGE] = "huge",
};

static char *parts[NR_PARTS];
static pid_t keeper;

static struct {
	unsigned long nr;
	void *pages[MAX_LIST];
	int nodes[MAX_LIST];
	int status[MAX_LIST];
} list;

static __u64 seed, rolls;

static __u64 dice(void)
{
	return mo_mix(seed, rolls++);
}

static void fill(char *mem, size_t step)
{
	size_t i;

	for (i = 0; i < PART_PAGES; i += step)
		memset(mem + i * SZ_4K, 1 + i % 200, SZ_4K);
}

static char *map_part(void)
{
	char *mem = mmap(NULL, 2 * PART_BYTES, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		mo_die("cannot map memory: %m");
	mem = (char *)(((size_t)mem + PART_BYTES - 1) & ~(PART_BYTES - 1));
	if (mmap(mem, PART_BYTES, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != mem)
		mo_die("cannot map memory: %m");
	mo_bind(mem, PART_BYTES);
	madvise(mem, PART_BYTES, MADV_NOHUGEPAGE);
	return mem;
}

static void every(char *mem, size_t nth, void (*act)(char *page))
{
	size_t i;

	for (i = nth - 1; i < PART_PAGES; i += nth)
		act(mem + i * SZ_4K);
}

static void read_only(char *page)
{
	(void)__atomic_load_n(page, __ATOMIC_RELAXED);
}

static void give_back(char *page)
{
	if (madvise(page, SZ_4K, MADV_DONTNEED))
		mo_die("madvise: %m");
}

static void give_back_all(char *mem)
{
	if (madvise(mem, PART_BYTES, MADV_DONTNEED))
		mo_die("madvise: %m");
}

static void unmap(char *page)
{
	if (munmap(page, SZ_4K))
		mo_die("munmap: %m");
}

static void guard(char *page)
{
	if (mprotect(page, SZ_4K, PROT_NONE))
		mo_die("mprotect: %m");
}

static void map_holes(char *mem)
{
	size_t i;

	for (i = 0; i < PART_PAGES; i++)
		if (i % 3)
			memset(mem + i * SZ_4K, 1, SZ_4K);
}

static void map_zeroes(char *mem)
{
	fill(mem, 2);
	every(mem, 2, read_only);
}

static void map_memfd(char *mem)
{
	int fd = memfd_create("status", 0);

	if (fd < 0 || ftruncate(fd, PART_BYTES) ||
	    mmap(mem, PART_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 fd, 0) != mem)
		mo_die("cannot map a memfd: %m");
	mo_bind(mem, PART_BYTES);
	fill(mem, 1);
}

/*
 * Map large folios, or replace those of an earlier round, because stock Linux
 * may split folios that have moved.
 */
static void map_large(char *mem, const char *enabled)
{
	char before[64], *chosen;

	give_back_all(mem);
	mo_read(enabled, before, sizeof(before));
	chosen = strchr(before, '[') + 1;
	*strchr(chosen, ']') = '\0';
	mo_write(enabled, "madvise");
	madvise(mem, PART_BYTES, MADV_HUGEPAGE);
	fill(mem, 1);
	madvise(mem, PART_BYTES, MADV_NOHUGEPAGE);
	mo_write(enabled, chosen);
	if (!mo_page_flag(mem, KPF_COMPOUND_HEAD))
		mo_die("no memory for large folios");
}

/* Fork a child that keeps the present pages. */
static void share(char *mem)
{
	fill(mem, 1);
	fflush(stdout);
	keeper = fork();
	if (keeper < 0)
		mo_die("cannot fork: %m");
	if (keeper)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
}

static void unshare_but(enum part kept)
{
	enum part p;

	for (p = 0; p < NR_PARTS; p++)
		if (p != kept && parts[p])
			madvise(parts[p], PART_BYTES, MADV_DONTFORK);
}

static void map_folios(void)
{
	map_large(parts[FOLIOS], PATH_THP "hugepages-64kB/enabled");
}

static void map_all(void)
{
	enum part p;

	for (p = 0; p < NR_PARTS; p++)
		parts[p] = map_part();
	fill(parts[SMALL], 1);
	fill(parts[OTHERS], 1);
	map_holes(parts[HOLES]);
	map_zeroes(parts[ZEROES]);
	fill(parts[GIVEN_BACK], 1);
	every(parts[GIVEN_BACK], 4, give_back);
	fill(parts[GUARDED], 1);
	every(parts[GUARDED], 2, guard);
	fill(parts[LOCKED], 1);
	if (mlock(parts[LOCKED], PART_BYTES))
		mo_die("mlock: %m");
	map_memfd(parts[MEMFD]);
	map_folios();
	map_large(parts[HUGE], PATH_THP "hugepages-2048kB/enabled");
	unshare_but(SHARED);
	share(parts[SHARED]);
	/* Do this last, so that no later mapping fills the gaps. */
	fill(parts[UNMAPPED], 1);
	every(parts[UNMAPPED], 5, unmap);
}

static void add(void *page, int node)
{
	if (list.nr == MAX_LIST)
		return;
	list.pages[list.nr] = page;
	list.nodes[list.nr++] = node;
}

static void add_run(enum part part, size_t first, size_t nr, int node)
{
	for (; nr && first < PART_PAGES; nr--, first++)
		add(parts[part] + first * SZ_4K, node);
}

static void print(const char *what, const int *values, unsigned long nr)
{
	unsigned long i, n;

	printf("%s", what);
	/* Print repeated values as "VALUE*TIMES". */
	for (i = 0; i < nr; i += n) {
		for (n = 1; i + n < nr && values[i + n] == values[i]; n++)
			;
		printf(n > 1 ? " %d*%lu" : " %d", values[i], n);
	}
	printf("\n");
}

static void move(const char *name, int flags)
{
	unsigned long i;
	long ret;

	for (i = 0; i < list.nr; i++)
		list.status[i] = UNTOUCHED;
	ret = syscall(SYS_move_pages, 0, list.nr, list.pages, list.nodes,
		      list.status, flags);
	printf("%s: %lu entries, %s: %ld, errno %d\n", name, list.nr,
	       flags == MPOL_MF_MOVE ? "own" : "all", ret,
	       ret < 0 ? errno : 0);
	print("  status", list.status, list.nr);
	if (syscall(SYS_move_pages, 0, list.nr, list.pages, NULL, list.status,
		    0))
		mo_die("cannot query the nodes of pages: %m");
	print("  nodes", list.status, list.nr);
	list.nr = 0;
}

/* Move 64 pages of each part, between small pages that move. */
static void move_parts(int node, int flags)
{
	enum part p;

	map_folios();
	for (p = 0; p < NR_PARTS; p++) {
		add_run(SMALL, 32 * p, 20, node);
		add_run(p, 100, 64, node);
		add_run(OTHERS, 32 * p, 20, node);
		move(part_names[p], flags);
	}
}

static void move_duplicates(int node)
{
	size_t i;

	for (i = 0; i < 64; i++) {
		add_run(SMALL, 400 + i, 1, node);
		if (i % 7 == 3)
			add_run(SMALL, 400 + i, 1, node);
		if (i % 11 == 5)
			add_run(SMALL, 400 + i / 2, 1, node);
	}
	move("duplicates", MPOL_MF_MOVE_ALL);
	map_folios();
	for (i = 0; i < 48; i++)
		add_run(FOLIOS, 320 + i, 1, node);
	move("pages of folios", MPOL_MF_MOVE_ALL);
	for (i = 0; i < 64; i++)
		add_run(SMALL, 400 + i, 1, mo_nodes[i / 5 % 2]);
	move("nodes in turn", MPOL_MF_MOVE_ALL);
}

/* At an invalid node, the call fails and does not reach later entries. */
static void move_nonsense(int node)
{
	add_run(SMALL, 0, 40, node);
	list.nodes[25] = 1000;
	move("no such node", MPOL_MF_MOVE_ALL);
	add_run(SMALL, 40, 40, node);
	list.nodes[25] = -1;
	move("negative node", MPOL_MF_MOVE_ALL);
	add_run(SMALL, 80, 20, node);
	add((void *)(~0UL << 12), node);
	add(NULL, node);
	add((void *)1, node);
	add(parts[SMALL] + 101 * SZ_4K + 7, node);
	add_run(SMALL, 102, 20, node);
	move("odd addresses", MPOL_MF_MOVE_ALL);
}

static void move_mix(int flags)
{
	unsigned long nr = 1 + dice() % MAX_LIST;
	int node = mo_nodes[dice() % 2];

	map_folios();
	while (list.nr < nr) {
		enum part part = dice() % NR_PARTS;

		/* Small pages are the most frequent, with others in between. */
		if (dice() % 2)
			part = dice() % 2 ? SMALL : OTHERS;
		if (dice() % 16 == 0)
			node = mo_nodes[dice() % 2];
		add_run(part, dice() % PART_PAGES, 1 + dice() % 40, node);
		if (dice() % 4 == 0)
			list.pages[list.nr - 1] =
				list.pages[dice() % list.nr];
	}
	move("mix", flags);
}

int main(int argc, char **argv)
{
	unsigned long i, seeds = argc > 1 ? strtoul(argv[1], NULL, 0) : 20;
	const char *why_not = mo_find_nodes();

	if (why_not) {
		printf("1..0 # SKIP %s\n", why_not);
		return KSFT_SKIP;
	}
	map_all();
	move_parts(mo_nodes[1], MPOL_MF_MOVE);
	move_parts(mo_nodes[0], MPOL_MF_MOVE_ALL);
	move_duplicates(mo_nodes[1]);
	move_nonsense(mo_nodes[1]);
	for (i = 0; i < seeds; i++) {
		seed = i;
		rolls = 0;
		move_mix(i % 2 ? MPOL_MF_MOVE : MPOL_MF_MOVE_ALL);
	}
	kill(keeper, SIGKILL);
	waitpid(keeper, NULL, 0);
	return 0;
}
