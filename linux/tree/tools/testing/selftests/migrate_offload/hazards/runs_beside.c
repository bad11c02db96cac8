// SPDX-License-Identifier: GPL-2.0-only
/*
 * Other code that changes page tables, or moves or replaces pages, during
 * migration: NUMA balancing, userfaultfd, KSM, collapse and exec.  Also
 * adjacent pages that belong to two processes in turn.
 *
 * Some of this code waits for migration entries, and so runs in a second
 * thread, which ends when the pages have arrived.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_hazard.h"
#include "mo_numa.h"
#include "mo_run.h"
#include "mo_util.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#ifndef UFFDIO_MOVE
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#define UFFD_FEATURE_MOVE 0x10000

struct uffdio_move {
	__u64 dst;
	__u64 src;
	__u64 len;
	__u64 mode;
	__s64 move;
};
#endif

/* Time for a thread to reach the point where it waits. */
#define BEGIN_US 200000
/* Moves there and back, beside other changes. */
#define BESIDE_MOVES 60

static pthread_t waiter;
static atomic_bool stop_waiter;

static void start_waiter(void *(*fn)(void *arg), void *arg)
{
	atomic_store(&stop_waiter, false);
	if (pthread_create(&waiter, NULL, fn, arg))
		mo_die("cannot start a thread");
}

static void end_waiter(void)
{
	atomic_store(&stop_waiter, true);
	pthread_join(waiter, NULL);
}

/* userfaultfd moves entries to another address of the process. */
static struct {
	int fd;
	struct mo_area *area;
	char *places[2];
	int at;			/* the present place */
} uffd;

/* Register the target only: registered pages do not migrate in runs. */
static void uffd_watch(char *mem, size_t bytes, bool on)
{
	struct uffdio_register reg = {
		.range = { .start = (size_t)mem, .len = bytes },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	if (on ? ioctl(uffd.fd, UFFDIO_REGISTER, &reg) :
		 ioctl(uffd.fd, UFFDIO_UNREGISTER, &reg.range))
		mo_die("cannot watch memory by a userfaultfd: %m");
}

static void uffd_move(void)
{
	char *from = uffd.places[uffd.at], *to = uffd.places[!uffd.at];
	size_t bytes = uffd.area->bytes, done = 0;

	uffd_watch(to, bytes, true);
	while (done < bytes) {
		struct uffdio_move move = {
			.dst = (size_t)to + done,
			.src = (size_t)from + done,
			.len = bytes - done,
		};

		if (ioctl(uffd.fd, UFFDIO_MOVE, &move) && errno != EAGAIN)
			mo_die("cannot move a page by a userfaultfd: %m");
		if (move.move > 0)
			done += move.move;
	}
	uffd_watch(to, bytes, false);
	uffd.at = !uffd.at;
}

static bool uffd_open(struct mo_area *area)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_MOVE };

	uffd.fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (uffd.fd < 0 || ioctl(uffd.fd, UFFDIO_API, &api))
		return false;
	uffd.area = area;
	uffd.places[0] = area->mem;
	uffd.places[1] = mmap(NULL, area->bytes, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (uffd.places[1] == MAP_FAILED)
		mo_die("cannot map memory: %m");
	madvise(uffd.places[1], area->bytes, MADV_NOHUGEPAGE);
	uffd.at = 0;
	return true;
}

static void *uffd_move_once(void *arg)
{
	uffd_move();
	return NULL;
}

static atomic_ulong nr_uffd_moves;

static void *uffd_move_on(void *arg)
{
	/* End at the first place. */
	while (!atomic_load(&stop_waiter) || uffd.at) {
		uffd_move();
		atomic_fetch_add(&nr_uffd_moves, 1);
	}
	return NULL;
}

static void uffd_in_flight(struct mo_area *area)
{
	start_waiter(uffd_move_once, NULL);
	usleep(BEGIN_US);
}

int mo_run_uffd_moved(void)
{
	struct mo_area area, other;
	int i;

	mo_run_map(&area, RUN_PAGES);
	if (!uffd_open(&area))
		return mo_skip("no UFFDIO_MOVE");
	mo_run_move(&area, 0, uffd_in_flight);
	end_waiter();
	other = area;
	other.mem = uffd.places[1];
	if (mo_verdict(&other))
		return DAMAGED;

	uffd_move();
	start_waiter(uffd_move_on, NULL);
	for (i = 0; i < BESIDE_MOVES || atomic_load(&nr_uffd_moves) < 4; i++) {
		mo_move_once(&area, mo_nodes[i % 2]);
		mo_move_once(&other, mo_nodes[i % 2]);
	}
	end_waiter();
	return mo_verdict(&area);
}

/* KSM replaces pages of the same content by one.  Writes allocate new pages. */
int mo_run_merged(void)
{
	long long merged = 0;
	struct mo_area area;
	const char *why_not;
	size_t page;
	int i;

	why_not = mo_map(&area, MO_KSM, 4 * RUN_PAGES * SZ_4K, SZ_4K);
	if (why_not)
		return mo_skip(why_not);
	area.step = SZ_4K;
	mo_write(PATH_KSM "sleep_millisecs", "0");
	mo_write(PATH_KSM "run", "1");
	for (i = 0; i < BESIDE_MOVES; i++) {
		/*
		 * Write the old content, so that KSM can merge the page again.
		 */
		for (page = i % 3; page < area.bytes / SZ_4K; page += 3)
			memcpy(area.mem + page * SZ_4K,
			       (char *)area.shadow + page * SZ_4K, SZ_4K);
		mo_move_once(&area, mo_nodes[i % 2]);
		merged += mo_read_number(PATH_KSM "pages_sharing");
		if (!mo_content_ok(&area))
			break;
	}
	mo_write(PATH_KSM "run", "0");
	mo_write(PATH_KSM "sleep_millisecs", "20");
	if (!merged)
		mo_die("no page was merged");
	return mo_verdict(&area);
}

static atomic_ulong collapses;

static void *collapse_on(void *arg)
{
	struct mo_area *area = arg;

	/* Collapse at least once, and until it succeeds or the test ends. */
	do {
		if (!madvise(area->mem, area->bytes, MADV_COLLAPSE)) {
			atomic_fetch_add(&collapses, 1);
			break;
		}
		if (errno != EAGAIN && errno != EBUSY && errno != EINVAL &&
		    errno != ENOMEM)
			mo_die("cannot collapse memory: %m");
		usleep(1000);
	} while (!atomic_load(&stop_waiter));
	return NULL;
}

static void collapse_in_flight(struct mo_area *area)
{
	start_waiter(collapse_on, area);
	usleep(BEGIN_US);
}

/* Replace a large folio by small pages. */
static void make_small(struct mo_area *area)
{
	if (madvise(area->mem, area->bytes, MADV_DONTNEED) ||
	    madvise(area->mem, area->bytes, MADV_NOHUGEPAGE))
		mo_die("madvise: %m");
	mo_fill(area);
	/* The kernel refuses to collapse memory under MADV_NOHUGEPAGE. */
	if (madvise(area->mem, area->bytes, MADV_HUGEPAGE))
		mo_die("madvise: %m");
}

int mo_run_collapsed(void)
{
	struct mo_area area;
	int i;

	mo_map_anon(&area, SZ_2M, SZ_4K);
	if (madvise(area.mem, area.bytes, MADV_HUGEPAGE))
		return mo_skip("no huge pages");
	mo_run_move(&area, 0, collapse_in_flight);
	end_waiter();
	if (mo_verdict(&area))
		return DAMAGED;
	for (i = 0; i < BESIDE_MOVES; i++) {
		if (i % 6 == 0) {
			make_small(&area);
			start_waiter(collapse_on, &area);
		}
		mo_move_once(&area, mo_nodes[i % 2]);
		if (i % 6 == 5) {
			end_waiter();
			if (mo_verdict(&area))
				return DAMAGED;
		}
	}
	if (!atomic_load(&collapses))
		mo_die("nothing was collapsed");
	return RIGHT;
}

static struct mo_kin runner;

static void exec_in_flight(struct mo_area *area)
{
	mo_kin_exec(&runner);
}

/* A process runs another program while its memory migrates. */
int mo_run_executed(void)
{
	struct mo_area area;

	mo_run_map(&area, RUN_PAGES);
	mo_kin_start(&runner, &area);
	mo_kin_ask(&runner, KIN_WRITES);
	munmap(area.mem, area.bytes);
	mo_run_move(&area, runner.pid, exec_in_flight);
	kill(runner.pid, SIGKILL);
	if (waitpid(runner.pid, NULL, 0) != runner.pid)
		mo_die("the child does not end");
	return RIGHT;
}

/*
 * During exec, arguments are on a temporary stack, which the kernel moves
 * later.
 */
#define NR_ARGS 8
#define ARG_BYTES (16 * SZ_4K)
#define NR_EXECS 40

static void fill_arg(char *arg, int nth)
{
	size_t i;

	for (i = 0; i < ARG_BYTES - 1; i++)
		arg[i] = 'a' + (i / 61 + i + nth) % 26;
	arg[i] = '\0';
}

static __noreturn void exec_again(int nr)
{
	static char args[NR_ARGS][ARG_BYTES];
	char *argv[NR_ARGS + 4] = { "runs", MO_RUN_EXEC_CHECK }, text[16];
	int i;

	snprintf(text, sizeof(text), "%d", nr);
	argv[2] = text;
	for (i = 0; i < NR_ARGS; i++) {
		fill_arg(args[i], i);
		argv[3 + i] = args[i];
	}
	execv("/proc/self/exe", argv);
	_exit(1);
}

int mo_run_exec_check(int argc, char **argv)
{
	static char expected[ARG_BYTES];
	int i, nr = argc > 2 ? atoi(argv[2]) : 0;

	if (argc != NR_ARGS + 3)
		return 1;
	for (i = 0; i < NR_ARGS; i++) {
		fill_arg(expected, i);
		if (memcmp(expected, argv[3 + i], ARG_BYTES))
			return DAMAGED;
	}
	if (nr)
		exec_again(nr - 1);
	return RIGHT;
}

/* Have compaction move arguments.  No other caller finds a temporary stack. */
int mo_run_arguments(void)
{
	long long moved = mo_read_line("/proc/vmstat", "pgmigrate_success");
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		mo_die("cannot fork: %m");
	if (!pid)
		exec_again(NR_EXECS);
	while (!waitpid(pid, &status, WNOHANG)) {
		mo_write(PATH_COMPACT, "1");
		usleep(1000);
	}
	if (mo_read_line("/proc/vmstat", "pgmigrate_success") == moved)
		return mo_skip("compaction has nothing to do");
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		printf("# a program was started with wrong arguments: %x\n",
		       status);
		return DAMAGED;
	}
	return RIGHT;
}

/* Up to this many pages have entries that are NUMA hints. */
#define HINT_PAGES (RUN_PAGES / 2)

/*
 * NUMA balancing has made entries inaccessible: alone, in turn with others, and
 * in a row.  Pages in a run arrive with ordinary entries, as single pages do.
 */
int mo_run_hints(void)
{
	static const size_t steps[] = { 1, 2, 3, HINT_PAGES };
	long long faults;
	struct mo_area area;
	size_t i, nr_touched;
	unsigned int n;

	for (n = 0; n < ARRAY_SIZE(steps); n++) {
		mo_run_map(&area, RUN_PAGES);
		if (!mo_numa_hint(&area, HINT_PAGES))
			return mo_skip("no NUMA balancing");
		faults = mo_vm_counter("numa_hint_faults");
		for (i = 0, nr_touched = 0; i < HINT_PAGES; i++) {
			if (i % steps[n] == 0)
				continue;
			__atomic_load_n(area.mem + i * SZ_4K, __ATOMIC_RELAXED);
			nr_touched++;
		}
		faults = mo_vm_counter("numa_hint_faults") - faults;
		if (faults < (long long)nr_touched)
			mo_die("%lld entries of %zu were hints", faults,
			       nr_touched);
		mo_move_once(&area, mo_nodes[1]);
		if (mo_elsewhere(&area, mo_nodes[1]))
			mo_die("not all pages were moved");
		if (mo_verdict(&area))
			return DAMAGED;
		mo_unmap(&area);
	}
	return RIGHT;
}

#define PATH_CONTIG PATH_TEST "alloc_contig"
#define PATH_SPLIT "/sys/kernel/debug/split_huge_pages"

/* Map adjacent small pages that fill a whole block of memory. */
static bool map_block(struct mo_area *area)
{
	char text[96];

	mo_map_anon(area, SZ_2M, SZ_2M);
	snprintf(text, sizeof(text), "%d,0x%lx,0x%lx", getpid(),
		 (unsigned long)area->mem,
		 (unsigned long)area->mem + area->bytes);
	mo_write(PATH_SPLIT, text);
	area->step = SZ_4K;
	area->folio_bytes = SZ_4K;
	return !mo_page_flag(area->mem, KPF_COMPOUND_HEAD);
}

/*
 * Adjacent pages belong to two processes in turn. fork() shares all pages, and
 * each process unmaps those that the other one keeps.
 */
int mo_run_in_turn(void)
{
	struct mo_area area;
	struct mo_kin kin;
	int result, tries;
	char text[48];
	__u64 pfn;

	if (!mo_exists(PATH_CONTIG) || !mo_exists(PATH_SPLIT))
		return mo_skip("no alloc_contig_range() in this kernel");
	if (!map_block(&area))
		mo_die("a huge page was not split");
	pfn = mo_pfn(area.mem);
	mo_kin_start(&kin, &area);
	mo_kin_ask(&kin, KIN_KEEPS);
	mo_run_keep_some(&area, 0);
	mo_run_own_some(&area, 0);
	mo_kin_ask(&kin, KIN_OWNS);
	/* Pages in a CPU's batch for the LRU cannot move. */
	mo_drain();
	snprintf(text, sizeof(text), "%llu %lu", pfn, SZ_2M / SZ_4K);
	for (tries = 0; tries < 10; tries++)
		if (!mo_try_write(PATH_CONTIG, text))
			break;
	if (tries == 10 || mo_pfn(area.mem) == pfn)
		mo_die("cannot take a block of memory");
	result = mo_verdict(&area);
	if (!result)
		result = mo_kin_ask(&kin, KIN_CHECKS);
	/*
	 * The pages must still be exclusive: the child must not see this write.
	 */
	memset(area.mem, 0x77, area.bytes);
	if (!result)
		result = mo_kin_ask(&kin, KIN_CHECKS);
	mo_kin_end(&kin);
	return result;
}
