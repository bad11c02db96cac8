// SPDX-License-Identifier: GPL-2.0-only
/*
 * A migrating DAMON scheme obeys its settings: destinations, filters, quota and
 * watermarks.  The scheme does not move pages that are in use.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../kselftest_harness.h"
#include "mo_area.h"
#include "mo_damon.h"
#include "mo_util.h"

/* Emulated machines and debug kernels are slow. */
#define TIMEOUT 600
#define BYTES SZ_1M
#define QUOTA_MS 200
/* The most by which the start of a window is late: one tick. */
#define TICK_MS 10

/* From <linux/io_uring.h>, which older systems lack. */
#define URING_PARAMS_BYTES 120
#define URING_REGISTER_BUFFERS 0

FIXTURE(scheme)
{
	struct mo_area area;
	char cgroups[32];
};

static long long clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/*
 * Returns the name of the cgroup of this test.  Each test mounts cgroups at
 * another directory, which gives the name.  So DAMON cannot find an older
 * cgroup, which stays while memory is charged to it.
 */
static const char *cgroup_of(const char *cgroups)
{
	return strrchr(cgroups, '/') + 1;
}

/*
 * Enter a new cgroup, which is charged for all later memory.  Returns NULL, or
 * the reason.
 */
static const char *enter_cgroup(char *cgroups, size_t size)
{
	char path[128];

	snprintf(cgroups, size, "/tmp/mo_damon.XXXXXX");
	if (!mkdtemp(cgroups))
		mo_die("cannot make a directory: %m");
	if (mount("cgroup2", cgroups, "cgroup2", 0, NULL))
		return "cannot mount cgroups";
	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", cgroups);
	if (mo_try_write(path, "+memory"))
		return "no control of memory by cgroups";
	snprintf(path, sizeof(path), "%s/%s", cgroups, cgroup_of(cgroups));
	if (mkdir(path, 0700))
		mo_die("cannot make %s: %m", path);
	snprintf(path, sizeof(path), "%s/%s/cgroup.procs", cgroups,
		 cgroup_of(cgroups));
	mo_write(path, "0");
	return NULL;
}

static void leave_cgroup(char *cgroups)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/cgroup.procs", cgroups);
	if (mo_exists(path))
		mo_write(path, "0");
	snprintf(path, sizeof(path), "%s/%s", cgroups, cgroup_of(cgroups));
	rmdir(path);
	umount(cgroups);
	rmdir(cgroups);
}

FIXTURE_SETUP(scheme)
{
	struct mo_area *area = &self->area;
	const char *why_not = mo_cannot_run();

	if (!why_not)
		why_not = mo_damon_cannot_run();
	if (why_not)
		SKIP(return, "%s", why_not);
	why_not = enter_cgroup(self->cgroups, sizeof(self->cgroups));
	if (why_not) {
		leave_cgroup(self->cgroups);
		SKIP(return, "%s", why_not);
	}
	ASSERT_EQ(mo_map(area, MO_ANON, BYTES, SZ_4K), NULL);
	/* DAMON does not see new pages in a CPU's batch. */
	mo_drain();
	mo_damon_setup("fvaddr", "migrate_hot", (uintptr_t)area->mem,
		       (uintptr_t)area->mem + area->bytes);
}

FIXTURE_TEARDOWN(scheme)
{
	mo_damon_remove();
	if (self->area.mem)
		mo_unmap(&self->area);
	leave_cgroup(self->cgroups);
}

static const unsigned int all_there[] = { 0, 1 }, all_here[] = { 1, 0 };

#define NR_PAGES (BYTES / SZ_4K)

/* Count the pages on the second node.  A page in migration is on no node. */
static unsigned long nr_there(const struct mo_area *area)
{
	return NR_PAGES - mo_elsewhere(area, mo_nodes[1]);
}

#define START() ASSERT_EQ(mo_damon_command("on"), 0)
#define COMMIT() ASSERT_EQ(mo_damon_command("commit"), 0)
#define EXPECT_THERE(nr) do {						\
	ASSERT_TRUE(mo_damon_settles(BYTES));				\
	EXPECT_EQ(nr_there(&self->area), nr);				\
	EXPECT_TRUE(mo_content_ok(&self->area));			\
} while (0)

static unsigned int mode_of(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : st.st_mode & 0777;
}

TEST_F_TIMEOUT(scheme, has_files_for_destinations, TIMEOUT)
{
	static const char *const numbers[] = {
		PATH_DESTS "nr_dests", PATH_DESTS "0/id", PATH_DESTS "0/weight",
	};
	static const char *const wrong[] = {
		"-1", "-2147483648", "many", "", " ", "1 2", "0x", "1.5",
	};
	unsigned int i, k;

	EXPECT_EQ(mo_read_number(PATH_DESTS "nr_dests"), 0);
	mo_write(PATH_DESTS "nr_dests", "3");
	EXPECT_TRUE(mo_exists(PATH_DESTS "2/weight"));
	EXPECT_FALSE(mo_exists(PATH_DESTS "3"));
	for (i = 0; i < ARRAY_SIZE(numbers); i++) {
		EXPECT_EQ(mode_of(numbers[i]), 0600);
		EXPECT_EQ(mo_read_number(numbers[i]), i ? 0 : 3);
		for (k = 0; k < ARRAY_SIZE(wrong); k++)
			if (*wrong[k])
				EXPECT_EQ(mo_try_write(numbers[i], wrong[k]),
					  -EINVAL);
		EXPECT_EQ(mo_try_write(numbers[i], "99999999999999999999"),
			  -ERANGE);
	}
	/*
	 * No machine has memory for this many.  The failed write removes all
	 * entries.
	 */
	EXPECT_EQ(mo_try_write(PATH_DESTS "nr_dests", "2147483647"), -ENOMEM);
	EXPECT_EQ(mo_read_number(PATH_DESTS "nr_dests"), 0);

	mo_write(PATH_DESTS "nr_dests", "2");
	mo_write(PATH_DESTS "1/id", "1");
	mo_write(PATH_DESTS "1/weight", "4294967295");
	EXPECT_EQ(mo_read_number(PATH_DESTS "1/weight"), 4294967295);
	mo_write(PATH_DESTS "nr_dests", "1");
	EXPECT_FALSE(mo_exists(PATH_DESTS "1"));
	mo_write(PATH_DESTS "nr_dests", "2");
	EXPECT_EQ(mo_read_number(PATH_DESTS "1/id"), 0);
	mo_write(PATH_DESTS "nr_dests", "0");
	EXPECT_FALSE(mo_exists(PATH_DESTS "0"));
}

TEST_F_TIMEOUT(scheme, goes_to_target_nid_without_destinations, TIMEOUT)
{
	mo_damon_set_number("target_nid", mo_nodes[1]);
	START();
	EXPECT_THERE(NR_PAGES);
	/* Destinations override target_nid. */
	mo_damon_set_dests(2, mo_nodes, all_here);
	COMMIT();
	EXPECT_THERE(0);
	mo_damon_set_number("dests/nr_dests", 0);
	COMMIT();
	EXPECT_THERE(NR_PAGES);
	/* No destination at all. */
	mo_damon_set_number("target_nid", -1);
	COMMIT();
	EXPECT_TRUE(mo_damon_moves_nothing(BYTES));
}

TEST_F_TIMEOUT(scheme, has_no_place_to_go_to, TIMEOUT)
{
	static const unsigned int none[] = { 0, 0 }, even[] = { 1, 1 };
	const int unknown[] = { 1000000, 1023 };
	const int half[] = { mo_nodes[1], 63 };

	mo_damon_set_dests(2, mo_nodes, none);
	START();
	EXPECT_TRUE(mo_damon_moves_nothing(BYTES));
	mo_damon_set_dests(2, unknown, even);
	COMMIT();
	EXPECT_TRUE(mo_damon_moves_nothing(BYTES));
	EXPECT_EQ(nr_there(&self->area), 0);
	/* Pages go to the destination that exists.  All others stay. */
	mo_damon_set_dests(2, half, even);
	COMMIT();
	EXPECT_THERE(NR_PAGES / 2);
}

TEST_F_TIMEOUT(scheme, adds_weights_up_without_wrapping, TIMEOUT)
{
	static const unsigned int most[] = { 0xffffffff, 1 };
	static const unsigned int large[] = { 0x80000000, 0x80000000 };
	const int swapped[] = { mo_nodes[1], mo_nodes[0] };

	/*
	 * Both weights add up to 2^32.  Turns follow from addresses here, so
	 * they reach the sum.
	 */
	mo_damon_set_dests(2, swapped, most);
	START();
	EXPECT_THERE(NR_PAGES);
	mo_damon_set_dests(2, mo_nodes, large);
	COMMIT();
	ASSERT_TRUE(mo_damon_settles(BYTES));
	EXPECT_EQ(nr_there(&self->area) % NR_PAGES, 0);
}

TEST_F_TIMEOUT(scheme, migrates_cold, TIMEOUT)
{
	mo_damon_set("action", "migrate_cold");
	mo_damon_set_dests(2, mo_nodes, all_there);
	START();
	EXPECT_THERE(NR_PAGES);
}

TEST_F_TIMEOUT(scheme, keeps_to_the_access_pattern, TIMEOUT)
{
	mo_damon_set_dests(2, mo_nodes, all_there);
	mo_damon_set_number("access_pattern/age/min", 1000000);
	START();
	usleep(300000);
	EXPECT_EQ(nr_there(&self->area), 0);
	mo_damon_set_number("access_pattern/age/min", 0);
	COMMIT();
	EXPECT_THERE(NR_PAGES);
}

static void add_filter(const char *type, const char *matching)
{
	mo_damon_set("filters/nr_filters", "1");
	mo_damon_set("filters/0/type", type);
	mo_damon_set("filters/0/matching", matching);
}

TEST_F_TIMEOUT(scheme, filters_anonymous_memory, TIMEOUT)
{
	mo_damon_set_dests(2, mo_nodes, all_there);
	add_filter("anon", "Y");
	START();
	EXPECT_TRUE(mo_damon_moves_nothing(BYTES));
	add_filter("anon", "N");
	COMMIT();
	EXPECT_THERE(NR_PAGES);
}

/* Make the first filter match the cgroup of this test. */
static void set_cgroup(const char *cgroups)
{
	char path[64];

	snprintf(path, sizeof(path), "/%s", cgroup_of(cgroups));
	mo_damon_set("filters/0/memcg_path", path);
}

TEST_F_TIMEOUT(scheme, filters_cgroups, TIMEOUT)
{
	mo_damon_set_dests(2, mo_nodes, all_there);
	add_filter("memcg", "Y");
	set_cgroup(self->cgroups);
	START();
	EXPECT_TRUE(mo_damon_moves_nothing(BYTES));
	add_filter("memcg", "N");
	set_cgroup(self->cgroups);
	COMMIT();
	EXPECT_THERE(NR_PAGES);
}

TEST_F_TIMEOUT(scheme, filters_addresses, TIMEOUT)
{
	uintptr_t start = (uintptr_t)self->area.mem;

	mo_damon_set_dests(2, mo_nodes, all_there);
	add_filter("addr", "N");
	mo_damon_set_number("filters/0/addr_start", start);
	mo_damon_set_number("filters/0/addr_end", start + BYTES / 4);
	START();
	ASSERT_TRUE(mo_damon_settles(BYTES / 4));
	EXPECT_EQ(nr_there(&self->area), NR_PAGES / 4);
}

/* A check by the filter ages a young page until the next access. */
TEST_F_TIMEOUT(scheme, filters_what_is_young, TIMEOUT)
{
	unsigned long there;

	/* DAMON must not age most pages while the host stalls the test. */
	mo_damon_set_interval_us(200000);
	mo_damon_set_dests(2, mo_nodes, all_there);
	add_filter("young", "Y");
	START();
	/* The first pass finds all pages young, the next one none. */
	EXPECT_THERE(NR_PAGES);
	/* No pass may come between this content check and the new filter. */
	ASSERT_EQ(mo_damon_command("off"), 0);
	EXPECT_TRUE(mo_content_ok(&self->area));
	mo_damon_set_dests(2, mo_nodes, all_here);
	add_filter("young", "N");
	START();
	ASSERT_TRUE(mo_damon_settles(BYTES));
	/*
	 * The content check made all pages young.  DAMON has aged only the
	 * pages that it sampled.
	 */
	EXPECT_LE(nr_there(&self->area), NR_PAGES / 2);
	there = nr_there(&self->area);
	mo_damon_set_dests(2, mo_nodes, all_there);
	COMMIT();
	EXPECT_TRUE(mo_damon_moves_nothing(BYTES));
	EXPECT_EQ(nr_there(&self->area), there);
	EXPECT_TRUE(mo_content_ok(&self->area));
	ASSERT_TRUE(mo_damon_settles(BYTES));
	EXPECT_GE(nr_there(&self->area), NR_PAGES / 2);
}

TEST_F_TIMEOUT(scheme, keeps_to_the_quota, TIMEOUT)
{
	struct mo_damon_stats stats;
	long long begin_ms, windows;

	mo_damon_set_dests(2, mo_nodes, all_there);
	mo_damon_set_number("quotas/bytes", BYTES / 8);
	mo_damon_set_number("quotas/reset_interval_ms", QUOTA_MS);
	begin_ms = clock_ms();
	START();
	/* A late look sees more bytes, but also more windows. */
	do {
		mo_damon_stats(&stats);
		windows = (clock_ms() - begin_ms + TICK_MS) / QUOTA_MS + 1;
		EXPECT_LE(stats.sz_applied, windows * (long long)BYTES / 8);
	} while (stats.sz_applied < (long long)BYTES / 2);
	EXPECT_THERE(NR_PAGES);
	mo_damon_stats(&stats);
	EXPECT_GE(stats.qt_exceeds, 8);
}

TEST_F_TIMEOUT(scheme, keeps_to_the_watermarks, TIMEOUT)
{
	mo_damon_set_dests(2, mo_nodes, all_there);
	mo_damon_set("watermarks/metric", "free_mem_rate");
	mo_damon_set_number("watermarks/interval_us", 20000);
	/* Per thousand of memory.  More than this is free. */
	mo_damon_set_number("watermarks/high", 2);
	mo_damon_set_number("watermarks/mid", 1);
	START();
	usleep(300000);
	EXPECT_EQ(nr_there(&self->area), 0);
	/* An inactive kdamond takes no new parameters. */
	ASSERT_EQ(mo_damon_command("off"), 0);
	mo_damon_set_number("watermarks/high", 1000);
	mo_damon_set_number("watermarks/mid", 999);
	START();
	EXPECT_THERE(NR_PAGES);
}

/* A pipe and a ring hold these pages by reference. */
TEST_F_TIMEOUT(scheme, leaves_what_is_in_use, TIMEOUT)
{
	struct iovec piped = { self->area.mem, 8 * SZ_4K };
	struct iovec pinned = { self->area.mem + BYTES / 2, 32 * SZ_4K };
	char params[URING_PARAMS_BYTES] = {};
	int pipe_fds[2], uring;

	ASSERT_EQ(pipe(pipe_fds), 0);
	ASSERT_EQ(vmsplice(pipe_fds[1], &piped, 1, 0), 8 * SZ_4K);
	uring = syscall(SYS_io_uring_setup, 1, params);
	ASSERT_GE(uring, 0);
	ASSERT_EQ(syscall(SYS_io_uring_register, uring, URING_REGISTER_BUFFERS,
			  &pinned, 1), 0);

	mo_damon_set_dests(2, mo_nodes, all_there);
	START();
	EXPECT_THERE(NR_PAGES - 40);
	close(uring);
	EXPECT_TRUE(mo_damon_settles(BYTES));
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	/* The kernel closes an io_uring asynchronously. */
	while (nr_there(&self->area) != NR_PAGES)
		usleep(10000);
	EXPECT_THERE(NR_PAGES);
}

/* The target is the whole address space, with all of its mappings. */
TEST_F_TIMEOUT(scheme, takes_a_whole_process, TIMEOUT)
{
	mo_damon_remove();
	mo_damon_setup("vaddr", "migrate_hot", 0, 0);
	mo_damon_set_dests(2, mo_nodes, all_there);
	START();
	while (nr_there(&self->area) != NR_PAGES)
		usleep(10000);
	EXPECT_TRUE(mo_content_ok(&self->area));
}

TEST_F_TIMEOUT(scheme, survives_its_target, TIMEOUT)
{
	pid_t pid = fork();

	ASSERT_GE(pid, 0);
	if (!pid) {
		memset(self->area.mem, 1, BYTES);
		for (;;)
			pause();
	}
	mo_damon_set_target(pid);
	mo_damon_set_dests(2, mo_nodes, all_there);
	START();
	usleep(50000);
	EXPECT_TRUE(mo_damon_is_on());
	ASSERT_EQ(kill(pid, SIGKILL), 0);
	ASSERT_EQ(waitpid(pid, NULL, 0), pid);
	EXPECT_TRUE(mo_damon_stops());
	EXPECT_TRUE(mo_content_ok(&self->area));
}

/*
 * The scheme takes all physical addresses of the machine.  A filter admits only
 * the cgroup of this test.
 */
TEST_F_TIMEOUT(scheme, takes_physical_addresses, TIMEOUT)
{
	static const unsigned int even[] = { 1, 1 };
	unsigned long long first, last, start = ~0ULL, end = 0;
	FILE *map = fopen("/proc/iomem", "r");
	char line[128];

	ASSERT_NE(map, NULL);
	while (fgets(line, sizeof(line), map))
		if (strstr(line, "System RAM") &&
		    sscanf(line, "%llx-%llx", &first, &last) == 2) {
			start = first < start ? first : start;
			end = last + 1 > end ? last + 1 : end;
		}
	fclose(map);
	ASSERT_LT(start, end);

	mo_damon_remove();
	mo_damon_setup("paddr", "migrate_hot", start & -SZ_4K, end);
	mo_damon_set("filters/nr_filters", "2");
	mo_damon_set("filters/0/type", "memcg");
	set_cgroup(self->cgroups);
	mo_damon_set("filters/0/matching", "N");
	mo_damon_set("filters/1/type", "addr");
	mo_damon_set_number("filters/1/addr_start", start & -SZ_4K);
	mo_damon_set_number("filters/1/addr_end", end);
	mo_damon_set("filters/1/matching", "N");
	mo_damon_set_dests(2, mo_nodes, even);
	START();
	ASSERT_TRUE(mo_damon_settles(end - start));
	EXPECT_EQ(nr_there(&self->area), NR_PAGES / 2);
	EXPECT_TRUE(mo_content_ok(&self->area));

	/*
	 * Both operations use one rule, so virtual addresses leave nothing to
	 * move.
	 */
	mo_damon_remove();
	mo_damon_setup("fvaddr", "migrate_hot", (uintptr_t)self->area.mem,
		       (uintptr_t)self->area.mem + BYTES);
	mo_damon_set_dests(2, mo_nodes, even);
	START();
	EXPECT_TRUE(mo_damon_moves_nothing(BYTES));
}

TEST_HARNESS_MAIN
