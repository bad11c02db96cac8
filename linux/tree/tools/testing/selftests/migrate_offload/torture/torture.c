// SPDX-License-Identifier: GPL-2.0-only
/*
 * Move the memory of a process for a long time, while it does all that programs
 * do to their memory.  No byte may be lost, and all counts must match.
 *
 *	torture [--seconds N] [--seed N] [--engines LIST] [--movers N]
 *		[--break RULE]
 *
 * The engines share the time; "none" is the kernel without an engine, and
 * "test" is the slow engine of the test module.  Each engine gets a new victim
 * process, which knows the content of its memory: private and shared, shmem and
 * page cache.
 *
 * Two threads of this process, or --movers, move the memory by move_pages(2),
 * in and out of order, and by migrate_pages(2).  Another thread starts
 * processes that the kernel kills for lack of memory, while their memory moves.
 * NUMA balancing makes page table entries inaccessible all the time.  Two
 * devices with mmu_notifiers use the memory through shadows of the page table.
 * One device reads all memory, and the other one writes to a part.
 *
 * Lines that start with # report the progress.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_area.h"
#include "mo_campaign.h"
#include "mo_notify.h"
#include "mo_numa.h"
#include "mo_pressure.h"
#include "mo_torture.h"

#define MAX_MOVERS 64
#define MAX_LIST 512
#define REPORT_S 30
#define MPOL_MF_MOVE 2
#define MPOL_MF_MOVE_ALL 4
#define CGROUPS "/tmp/torture.cgroup"
#define VICTIMS CGROUPS "/torture.victims"
#define DOOMED CGROUPS "/torture.doomed"
/* A doomed process starts with this much, and allocates until it is killed. */
#define DOOMED_BYTES (8 * SZ_1M)
#define DOOMED_LIMIT "16M"
#define DOOMED_PAUSE_US 2000000
/* The kernel must have freed all memory after this many tries. */
#define SETTLE_TRIES 100
#define SETTLE_US 100000
/* A device that never pauses would fault swapped pages in at once. */
#define DEVICE_REST_US 20000
#define PATH_BALANCING "/proc/sys/kernel/numa_balancing"

struct torture_shared *shared;

static unsigned int seconds = 60;
static unsigned int nr_movers = 2;
static __u64 seed;
static const char *engines = "none,cpu,mtcopy,test";
static const char *broken_rule;
static pid_t victim;

struct mover {
	struct worker dice;
	void *pages[MAX_LIST];
	int nodes[MAX_LIST];
	int status[MAX_LIST];
};

static time_t now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

/*
 * Choose some of @nr_pages pages at @mem, in order or not.  Returns how many.
 */
static unsigned long choose_pages(struct mover *m, char *mem, size_t nr_pages,
				  int node)
{
	size_t first = roll(&m->dice) % nr_pages, i, n, other;
	bool shuffle = roll(&m->dice) % 4 == 0;
	void *page;

	n = 1 + roll(&m->dice) % MAX_LIST;
	if (n > nr_pages - first)
		n = nr_pages - first;
	for (i = 0; i < n; i++) {
		m->pages[i] = mem + (first + i) * SZ_4K;
		m->nodes[i] = node;
	}
	for (i = 0; shuffle && i < n; i++) {
		other = roll(&m->dice) % n;
		page = m->pages[i];
		m->pages[i] = m->pages[other];
		m->pages[other] = page;
	}
	return n;
}

/* Some pages are absent or cannot move, which is no error. */
static void move_some(struct mover *m, pid_t pid, char *mem, size_t nr_pages)
{
	int node = mo_nodes[roll(&m->dice) % 2];
	unsigned long nr = choose_pages(m, mem, nr_pages, node), i, moved = 0;
	long ret;

	for (i = 0; i < nr; i++)
		m->status[i] = -ENOENT;
	ret = syscall(SYS_move_pages, pid, nr, m->pages, m->nodes, m->status,
		      roll(&m->dice) % 2 ? MPOL_MF_MOVE_ALL : MPOL_MF_MOVE);
	/*
	 * EINVAL: the process is about to exit.  EFAULT: no memory for a
	 * result.
	 */
	if (ret < 0 && errno != ESRCH && errno != EINVAL && errno != ENOMEM &&
	    !(errno == EFAULT && getenv(MO_PRESSURE)))
		torture_wrong("move_pages: %s", strerror(errno));
	for (i = 0; i < nr; i++)
		moved += m->status[i] == node;
	atomic_fetch_add(&shared->moved, moved);
}

static void move_process(struct mover *m)
{
	unsigned int to = roll(&m->dice) % 2;
	unsigned long from_mask[4] = {}, to_mask[4] = {};

	from_mask[mo_nodes[!to] / 64] = 1UL << (mo_nodes[!to] % 64);
	to_mask[mo_nodes[to] / 64] = 1UL << (mo_nodes[to] % 64);
	if (syscall(SYS_migrate_pages, victim, 8 * sizeof(to_mask), from_mask,
		    to_mask) < 0 && errno != ESRCH && errno != EINVAL &&
	    errno != ENOMEM)
		torture_wrong("migrate_pages: %s", strerror(errno));
	atomic_fetch_add(&shared->calls, 1);
}

static void *mover_fn(void *arg)
{
	struct mover *m = arg;
	char *mem = (char *)atomic_load(&shared->mem);

	mo_pressure(true);
	while (!atomic_load(&shared->stop)) {
		if (roll(&m->dice) % 64)
			move_some(m, victim, mem, NR_SLOT_PAGES);
		else
			move_process(m);
	}
	return NULL;
}

/* In a child: join a cgroup with little memory, and allocate until killed. */
static void be_doomed(char *mem, size_t bytes, atomic_bool *filled)
{
	size_t i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	mo_write(DOOMED "/cgroup.procs", "0");
	for (i = 0; i < bytes; i += SZ_4K) {
		__atomic_store_n((size_t *)(mem + i), i, __ATOMIC_RELAXED);
		if (i == DOOMED_BYTES)
			atomic_store(filled, true);
		if (i > DOOMED_BYTES && i % (16 * SZ_4K) == 0)
			usleep(1000);
	}
	_exit(0);
}

static void doom_one(struct mover *m, char *mem, atomic_bool *filled)
{
	pid_t pid;
	int status;

	atomic_store(filled, false);
	pid = fork();
	if (pid < 0)
		mo_die("cannot fork: %m");
	if (!pid)
		be_doomed(mem, 4 * DOOMED_BYTES, filled);
	while (!waitpid(pid, &status, WNOHANG)) {
		if (atomic_load(filled))
			move_some(m, pid, mem, 2 * DOOMED_BYTES / SZ_4K);
		else
			usleep(1000);
		if (atomic_load(&shared->stop))
			kill(pid, SIGKILL);
	}
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		torture_wrong("a doomed process ended with status %x", status);
	else if (!atomic_load(&shared->stop))
		atomic_fetch_add(&shared->killed, 1);
}

static void *doom_fn(void *arg)
{
	struct mover *m = arg;
	char *mem = mmap(NULL, 4 * DOOMED_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	atomic_bool *filled = mmap(NULL, SZ_4K, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED || filled == MAP_FAILED)
		mo_die("cannot map memory: %m");
	while (!atomic_load(&shared->stop)) {
		doom_one(m, mem, filled);
		usleep(DOOMED_PAUSE_US);
	}
	munmap(filled, SZ_4K);
	munmap(mem, 4 * DOOMED_BYTES);
	return NULL;
}

static void report_progress(const char *engine, time_t begin)
{
	unsigned int i;

	printf("# %s, %ld s: %lu pages moved, %lu verified, %lu killed, %lu wrong;",
	       engine, (long)(now_s() - begin), atomic_load(&shared->moved),
	       atomic_load(&shared->verified), atomic_load(&shared->killed),
	       atomic_load(&shared->wrong));
	for (i = 0; i < nr_torture_ops; i++)
		printf(" %s %lu", torture_ops[i].name,
		       atomic_load(&shared->done[i]));
	printf("\n");
	fflush(stdout);
}

/* Each open file has a device; -1: none. */
static int devices[2] = { -1, -1 };

static void start_devices(void)
{
	char *mem = (char *)atomic_load(&shared->mem);

	if (!mo_exists(PATH_NOTIFY))
		return;
	mo_write_number(PATH_NOTIFY "rest_us", DEVICE_REST_US);
	devices[0] = mo_notify_watch(victim, mem, NR_SLOT_PAGES * SZ_4K,
				     MO_NO_WORD);
	devices[1] = mo_notify_watch(victim,
				     mem + FIRST_DEVICE_SLOT * SLOT_BYTES,
				     (LAST_DEVICE_SLOT + 1 - FIRST_DEVICE_SLOT) *
				     SLOT_BYTES, DEVICE_WORD);
}

static void end_devices(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(devices); i++) {
		if (devices[i] >= 0)
			close(devices[i]);
		devices[i] = -1;
	}
}

/* Wait for the end of the time or of the victim.  Returns its exit status. */
static int watch(const char *engine, unsigned int for_s)
{
	time_t begin = now_s(), reported = begin;
	int status;

	while (now_s() - begin < for_s && !atomic_load(&shared->wrong)) {
		usleep(100000);
		if (waitpid(victim, &status, WNOHANG) == victim) {
			victim = 0;
			break;
		}
		if (now_s() - reported >= REPORT_S) {
			report_progress(engine, begin);
			reported = now_s();
		}
	}
	/* End the devices first: their last check needs the victim's memory. */
	end_devices();
	atomic_store(&shared->stop, true);
	if (victim && waitpid(victim, &status, 0) != victim)
		mo_die("cannot wait: %m");
	report_progress(engine, begin);
	return status;
}

static void start_victim(__u64 its_seed)
{
	fflush(stdout);
	victim = fork();
	if (victim < 0)
		mo_die("cannot fork: %m");
	if (!victim) {
		int result;

		mo_write(VICTIMS "/cgroup.procs", "0");
		result = torture_victim(its_seed);
		fflush(stdout);
		_exit(result);
	}
	while (!atomic_load(&shared->mem)) {
		usleep(10000);
		if (waitpid(victim, NULL, WNOHANG) == victim)
			mo_die("the victim process did not start");
	}
}

static bool set_engine(const char *engine)
{
	if (!strcmp(engine, "test")) {
		if (!mo_load_test_engine(MO_TEST_STREAM))
			return false;
		mo_write(PATH_TEST "pair_delay_us", "200");
	}
	if (mo_try_write(PATH_OFFLOAD "engine", engine))
		return false;
	if (broken_rule)
		mo_write(PATH_DEBUG "break_rules", broken_rule);
	return true;
}

static bool run_engine(const char *engine, unsigned int for_s)
{
	static struct mover movers[MAX_MOVERS + 1];
	pthread_t threads[MAX_MOVERS + 1];
	unsigned int i;
	int status;

	memset(shared, 0, sizeof(*shared));
	start_victim(mo_mix(seed, 0));
	start_devices();
	for (i = 0; i <= nr_movers; i++) {
		movers[i].dice.seed = mo_mix(seed, 1000 + i);
		if (pthread_create(&threads[i], NULL,
				   i < nr_movers ? mover_fn : doom_fn,
				   &movers[i]))
			mo_die("cannot start a thread");
	}
	status = watch(engine, for_s);
	for (i = 0; i <= nr_movers; i++)
		pthread_join(threads[i], NULL);
	seed = mo_mix(seed, 2);
	if (status)
		printf("# the process ended with status %x\n", status);
	if (!atomic_load(&shared->moved))
		printf("# nothing was moved\n");
	return !status && !atomic_load(&shared->wrong) &&
		atomic_load(&shared->moved);
}

/* Returns the number after @name in a file of names and numbers, or -1. */
static long long stat_of(const char *path, const char *name)
{
	static char text[65536];
	size_t len = strlen(name);
	char *line;

	mo_read(path, text, sizeof(text));
	for (line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, name, len) && line[len] == ' ')
			return strtoll(line + len, NULL, 10);
	}
	return -1;
}

/* Check that no page of the victims is charged, and none isolated. */
static bool nothing_left(bool say)
{
	static const char *const of_group[] = {
		"anon", "inactive_anon", "active_anon", "unevictable",
	};
	static const char *const of_all[] = {
		"nr_isolated_anon", "nr_isolated_file",
	};
	long long nr, left = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(of_group); i++) {
		nr = stat_of(VICTIMS "/memory.stat", of_group[i]);
		if (nr && say)
			printf("# %s is %lld\n", of_group[i], nr);
		left += !!nr;
	}
	for (i = 0; i < ARRAY_SIZE(of_all); i++) {
		nr = stat_of("/proc/vmstat", of_all[i]);
		if (nr && say)
			printf("# %s is %lld\n", of_all[i], nr);
		left += !!nr;
	}
	nr = mo_read_number(VICTIMS "/memory.swap.current");
	if (nr && say)
		printf("# %lld bytes are swapped\n", nr);
	return !left && !nr;
}

static bool counters_right(long long nr_mlock)
{
	int tries;

	/* A write to drop_caches also drains the LRU batches of all CPUs. */
	for (tries = 0; tries < SETTLE_TRIES; tries++) {
		mo_write("/proc/sys/vm/drop_caches", "1");
		/* The write fails if a counter is negative. */
		mo_write("/proc/sys/vm/stat_refresh", "1");
		if (nothing_left(false))
			break;
		usleep(SETTLE_US);
	}
	if (stat_of("/proc/vmstat", "nr_mlock") != nr_mlock) {
		printf("# nr_mlock is %lld, and was %lld\n",
		       stat_of("/proc/vmstat", "nr_mlock"), nr_mlock);
		return false;
	}
	return nothing_left(true);
}

static struct mo_notify notified;
static long long hint_faults;
static char scan_saved[MO_SCAN_SETTINGS][MO_SETTING_BYTES];

/* Load the devices, and start NUMA balancing. */
static void prepare_company(void)
{
	if (mo_notify_load())
		mo_notify_read(&notified);
	else
		printf("# no migrate_notifier_test\n");
	if (!mo_exists(PATH_BALANCING)) {
		printf("# no NUMA balancing\n");
		return;
	}
	hint_faults = mo_vm_counter("numa_hint_faults");
	mo_scan_at_once(scan_saved);
	mo_write(PATH_BALANCING, "1");
}

static bool devices_right(void)
{
	struct mo_notify now;

	if (!mo_exists(PATH_NOTIFY))
		return true;
	mo_notify_read(&now);
	printf("# devices: %lld ranges, %lld entries dropped, %lld filled, used %lld times\n",
	       now.ranges - notified.ranges, now.dropped - notified.dropped,
	       now.filled - notified.filled, now.accesses - notified.accesses);
	return !mo_notify_failures(&notified) &&
		now.dropped > notified.dropped;
}

static bool hints_right(void)
{
	long long nr;

	if (!mo_exists(PATH_BALANCING))
		return true;
	mo_write(PATH_BALANCING, "0");
	mo_scan_restore(scan_saved);
	nr = mo_vm_counter("numa_hint_faults") - hint_faults;
	printf("# hints: %lld\n", nr);
	return nr;
}

static void prepare_groups(void)
{
	mkdir(CGROUPS, 0700);
	if (mount("cgroup2", CGROUPS, "cgroup2", 0, NULL))
		mo_die("cannot mount cgroup2: %m");
	mo_write(CGROUPS "/cgroup.subtree_control", "+memory");
	if (mkdir(VICTIMS, 0700) || mkdir(DOOMED, 0700))
		mo_die("cannot make groups: %m");
	mo_write(DOOMED "/memory.max", DOOMED_LIMIT);
	mo_write(DOOMED "/memory.swap.max", "0");
}

static void remove_groups(void)
{
	if (rmdir(VICTIMS) || rmdir(DOOMED) || umount(CGROUPS) || rmdir(CGROUPS))
		mo_die("cannot remove the groups: %m");
}

static int run_all(void)
{
	char list[256], *rest = list, *engine;
	struct leaks_baseline before;
	unsigned int nr = 1;
	long long nr_mlock;
	const char *why_not;
	bool ok;

	snprintf(list, sizeof(list), "%s", engines);
	for (engine = list; *engine; engine++)
		nr += *engine == ',';
	ksft_print_header();
	ksft_set_plan(nr + 4);
	printf("# seed %llu\n", seed);
	prepare_groups();
	why_not = mo_swap_on();
	if (why_not)
		mo_die("%s", why_not);
	mo_write(PATH_THP "hugepages-64kB/enabled", "madvise");
	prepare_company();
	torture_files_begin();
	leaks_prepare();
	leaks_before(&before);
	nr_mlock = stat_of("/proc/vmstat", "nr_mlock");
	while ((engine = strsep(&rest, ","))) {
		if (!set_engine(engine)) {
			ksft_test_result_skip("torture %s\n", engine);
			continue;
		}
		ok = run_engine(engine, seconds / nr);
		mo_reset();
		ksft_test_result(ok, "torture %s\n", engine);
	}
	if (broken_rule)
		mo_write(PATH_DEBUG "break_rules", "none");
	ksft_test_result(devices_right(), "devices\n");
	ksft_test_result(hints_right(), "hints\n");
	/* CPUs cache swap entries, which stay charged while swap is on. */
	mo_swap_off();
	ksft_test_result(counters_right(nr_mlock), "counters\n");
	remove_groups();
	torture_files_end();
	mo_write(PATH_THP "hugepages-64kB/enabled", "never");
	ksft_test_result(leaks_check(&before), "memory\n");
	leaks_done();
	ksft_finished();
}

static const struct option options[] = {
	{ "seconds", required_argument, NULL, 't' },
	{ "seed", required_argument, NULL, 's' },
	{ "engines", required_argument, NULL, 'e' },
	{ "movers", required_argument, NULL, 'm' },
	{ "break", required_argument, NULL, 'b' },
	{}
};

int main(int argc, char **argv)
{
	int c;

	seed = mo_seed();
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 't':
			seconds = strtoul(optarg, NULL, 0);
			break;
		case 's':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 'e':
			engines = optarg;
			break;
		case 'm':
			nr_movers = strtoul(optarg, NULL, 0);
			if (nr_movers < 1 || nr_movers > MAX_MOVERS)
				return 2;
			break;
		case 'b':
			broken_rule = optarg;
			break;
		default:
			return 2;
		}
	}
	if (mo_cannot_run())
		ksft_exit_skip("%s\n", mo_cannot_run());
	setvbuf(stdout, NULL, _IOLBF, 0);
	mo_reset();
	shared = mmap(NULL, SZ_4K, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		mo_die("no memory: %m");
	return run_all();
}
