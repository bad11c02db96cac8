// SPDX-License-Identifier: GPL-2.0-only
/*
 * A migrating DAMON scheme meets limits: a node without a free huge page,
 * targets that exit, a quota, and a request to stop.
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../kselftest_harness.h"
#include "mo_area.h"
#include "mo_damon.h"
#include "mo_fail.h"
#include "mo_util.h"

/* Emulated machines and debug kernels are slow. */
#define TIMEOUT 600
#define BYTES SZ_1M
#define NR_PAGES (BYTES / SZ_4K)
#define WAIT_TRIES 300
#define WAIT_US 100000

#define BEHIND_BYTES (32 * SZ_1M)

/* Moving this takes long enough that a stop or an exit comes in the middle. */
#define MUCH_BYTES (256 * SZ_1M)
#define BEGUN_PAGES (8 * SZ_1M / SZ_4K)
#define ROUNDS 4

/* Longer than any test takes. */
#define HOUR_MS 3600000

static const unsigned int all_there[] = { 0, 1 }, all_here[] = { 1, 0 };

/* Read the number of a line "name number" of /proc/vmstat. */
static unsigned long vm_counter(const char *name)
{
	FILE *file = fopen("/proc/vmstat", "r");
	unsigned long number = 0;
	char key[64];

	if (!file)
		mo_die("cannot open /proc/vmstat: %m");
	while (fscanf(file, "%63s %lu\n", key, &number) == 2)
		if (!strcmp(key, name))
			break;
	fclose(file);
	return number;
}

static unsigned long nr_migrated(void)
{
	return vm_counter("pgmigrate_success");
}

/* Fork a child that maps an area and waits.  @area gets its address. */
static pid_t fork_with(struct mo_area *area, size_t bytes)
{
	int ready[2];
	pid_t pid;

	if (pipe(ready))
		mo_die("cannot make a pipe: %m");
	pid = fork();
	if (pid < 0)
		mo_die("cannot fork: %m");
	if (!pid) {
		const char *why_not = mo_map(area, MO_ANON, bytes, SZ_4K);

		if (why_not)
			mo_die("%s", why_not);
		if (write(ready[1], area, sizeof(*area)) != sizeof(*area))
			mo_die("cannot write to a pipe: %m");
		for (;;)
			pause();
	}
	if (read(ready[0], area, sizeof(*area)) != sizeof(*area))
		mo_die("the child has no memory");
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

FIXTURE(limits)
{
	struct mo_area area;
	pid_t child;
};

FIXTURE_SETUP(limits)
{
	struct mo_area *area = &self->area;
	const char *why_not = mo_cannot_run();

	if (!why_not)
		why_not = mo_damon_cannot_run();
	if (why_not)
		SKIP(return, "%s", why_not);
	ASSERT_EQ(mo_map(area, MO_ANON, BYTES, SZ_4K), NULL);
	mo_damon_setup("fvaddr", "migrate_hot", (uintptr_t)area->mem,
		       (uintptr_t)area->mem + area->bytes);
	mo_damon_set_dests(2, mo_nodes, all_there);
}

FIXTURE_TEARDOWN(limits)
{
	mo_damon_remove();
	mo_fail_end();
	if (self->child)
		end_child(self->child);
	if (self->area.mem)
		mo_unmap(&self->area);
}

/* Count the pages on the second node.  A page in migration is on no node. */
static unsigned long nr_there(const struct mo_area *area)
{
	return area->bytes / SZ_4K - mo_elsewhere(area, mo_nodes[1]);
}

/* Wait until this many pages have moved.  Returns false after a timeout. */
static bool arrives(const struct mo_area *area, unsigned long nr)
{
	int tries;

	for (tries = 0; tries < WAIT_TRIES && nr_there(area) != nr; tries++)
		usleep(WAIT_US);
	return tries < WAIT_TRIES;
}

#define START() ASSERT_EQ(mo_damon_command("on"), 0)
#define COMMIT() ASSERT_EQ(mo_damon_command("commit"), 0)
#define EXPECT_THERE(nr) do {						\
	EXPECT_TRUE(arrives(&self->area, nr));				\
	EXPECT_TRUE(mo_content_ok(&self->area));			\
} while (0)

/* Map one huge page on the first node, and small pages behind the huge page. */
static void map_both(struct mo_area *area)
{
	size_t bytes = SZ_2M + BEHIND_BYTES;
	char *mem = mmap(NULL, bytes + SZ_2M, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		mo_die("cannot map memory: %m");
	*area = (struct mo_area){ .bytes = bytes, .step = SZ_4K,
		.folio_bytes = SZ_4K, .fd = -1 };
	area->mem = (char *)(((uintptr_t)mem + SZ_2M - 1) & ~(SZ_2M - 1));
	area->shadow = malloc(bytes);
	if (!area->shadow)
		mo_die("no memory");
	mo_bind(area->mem, bytes);
	if (madvise(area->mem, SZ_2M, MADV_HUGEPAGE) ||
	    madvise(area->mem + SZ_2M, BEHIND_BYTES, MADV_NOHUGEPAGE))
		mo_die("madvise: %m");
	memset(area->shadow, 0x5a, bytes);
	mo_fill(area);
}

/* The large folio does not fit.  The small pages behind it must move. */
TEST_F_TIMEOUT(limits, goes_on_behind_a_large_folio, TIMEOUT)
{
	const char *why_not;
	struct mo_area both, behind;

	map_both(&both);
	if (!mo_page_flag(both.mem, KPF_COMPOUND_HEAD))
		SKIP(return, "no huge page");
	why_not = mo_fail_large(MO_2M_ORDER);
	if (why_not)
		SKIP(return, "%s", why_not);
	behind = both;
	behind.mem += SZ_2M;
	behind.bytes -= SZ_2M;
	mo_damon_remove();
	mo_damon_setup("fvaddr", "migrate_hot", (uintptr_t)both.mem,
		       (uintptr_t)both.mem + both.bytes);
	mo_damon_set_dests(2, mo_nodes, all_there);
	START();
	EXPECT_TRUE(mo_damon_settles(both.bytes));
	EXPECT_EQ(nr_there(&behind), BEHIND_BYTES / SZ_4K);
	/* The large folio stays in place, and whole. */
	EXPECT_EQ(nr_there(&both) - nr_there(&behind), 0);
	EXPECT_TRUE(mo_page_flag(both.mem, KPF_COMPOUND_HEAD));
	EXPECT_TRUE(mo_content_ok(&both));
}

/* A commit must not drop other targets when one target has exited. */
TEST_F_TIMEOUT(limits, commits_without_a_target, TIMEOUT)
{
	struct mo_area area;
	pid_t pids[2];

	self->child = fork_with(&area, BYTES);
	pids[0] = self->child;
	pids[1] = getpid();
	mo_damon_set_targets(2, pids, &self->area);
	START();
	EXPECT_THERE(NR_PAGES);
	end_child(self->child);
	self->child = 0;
	mo_damon_set_dests(2, mo_nodes, all_here);
	COMMIT();
	EXPECT_THERE(0);
	EXPECT_TRUE(mo_damon_is_on());
	/* DAMON stops only when the last target has exited. */
	mo_damon_set_targets(1, pids, &self->area);
	COMMIT();
	EXPECT_TRUE(mo_damon_stops());
	/* A start without a live target still fails. */
	EXPECT_EQ(mo_damon_command("on"), -EINVAL);
}

/* Wait until the scheme has tried as much as its quota allows. */
static void use_up(long long bytes)
{
	struct mo_damon_stats stats;

	do
		mo_damon_stats(&stats);
	while (stats.sz_tried < bytes);
}

/*
 * A target exits after the quota ran out in it.  The scheme must go on with the
 * other targets.
 */
TEST_F_TIMEOUT(limits, forgets_a_target, TIMEOUT)
{
	pid_t pids[2] = { getpid(), getpid() };

	mo_damon_set_targets(2, pids, &self->area);
	mo_damon_set_number("quotas/bytes", BYTES + BYTES / 2);
	mo_damon_set_number("quotas/reset_interval_ms", HOUR_MS);
	START();
	use_up(BYTES + BYTES / 2);
	EXPECT_EQ(nr_there(&self->area), NR_PAGES);
	mo_damon_set_targets(1, pids, &self->area);
	mo_damon_set_dests(2, mo_nodes, all_here);
	mo_damon_set_number("quotas/bytes", 0);
	mo_damon_set_number("quotas/reset_interval_ms", 1);
	COMMIT();
	EXPECT_THERE(0);
}

/* Memory that moved without a quota is not charged to a later quota. */
TEST_F_TIMEOUT(limits, begins_a_quota_with_nothing, TIMEOUT)
{
	START();
	EXPECT_THERE(NR_PAGES);
	mo_damon_set_dests(2, mo_nodes, all_here);
	mo_damon_set_number("quotas/bytes", 2 * BYTES);
	mo_damon_set_number("quotas/reset_interval_ms", HOUR_MS);
	COMMIT();
	EXPECT_THERE(0);
}

/*
 * The first half is in its place, and uses the quota up.  With failures charged
 * in part, most of the quota is left for the other half.
 */
TEST_F_TIMEOUT(limits, charges_failures_in_part, TIMEOUT)
{
	struct mo_area half = self->area;

	half.bytes /= 2;
	ASSERT_EQ(mo_move(&half, mo_nodes[1]), 0);
	mo_damon_set_number("quotas/bytes", half.bytes + half.bytes / 64);
	mo_damon_set_number("quotas/reset_interval_ms", HOUR_MS);
	START();
	use_up(half.bytes + half.bytes / 64);
	EXPECT_LE(nr_there(&self->area), NR_PAGES / 2 + NR_PAGES / 128);
	ASSERT_EQ(mo_damon_command("off"), 0);
	mo_damon_set_number("quotas/fail_charge_num", 1);
	mo_damon_set_number("quotas/fail_charge_denom", 64);
	START();
	EXPECT_THERE(NR_PAGES);
}

/*
 * The memory that is there already counts for more than one quota.  The next
 * turn goes on behind what used up the last one, so the rest moves, too.
 */
TEST_F_TIMEOUT(limits, goes_on_behind_what_counted, TIMEOUT)
{
	struct mo_area most = self->area;

	most.bytes -= 8 * SZ_4K;
	ASSERT_EQ(mo_move(&most, mo_nodes[1]), 0);
	mo_damon_set_number("quotas/bytes", 2 * SZ_4K);
	mo_damon_set_number("quotas/reset_interval_ms", 20);
	mo_damon_set_number("quotas/fail_charge_num", 1);
	mo_damon_set_number("quotas/fail_charge_denom", 64);
	START();
	EXPECT_THERE(NR_PAGES);
}

/* Wait until a region has begun to move, but is far from its end. */
static void wait_until_begun(unsigned long before)
{
	while (nr_migrated() < before + BEGUN_PAGES)
		usleep(500);
}

static void start_much(pid_t pid, const struct mo_area *area)
{
	mo_damon_remove();
	mo_damon_setup("fvaddr", "migrate_hot", (uintptr_t)area->mem,
		       (uintptr_t)area->mem + area->bytes);
	mo_damon_set_target(pid);
	mo_damon_set_dests(2, mo_nodes, all_there);
	if (mo_damon_command("on"))
		mo_die("cannot start DAMON");
}

/* A request to stop takes effect in the middle of a region. */
TEST_F_TIMEOUT(limits, stops_in_the_middle, TIMEOUT)
{
	unsigned long least = ~0UL, before, moved;
	struct mo_area much;
	unsigned int i;

	ASSERT_EQ(mo_map(&much, MO_ANON, MUCH_BYTES, SZ_4K), NULL);
	/* On a busy host the request may come too late. */
	for (i = 0; i < ROUNDS && least > MUCH_BYTES / SZ_4K / 2; i++) {
		mo_move(&much, mo_nodes[0]);
		before = nr_migrated();
		start_much(getpid(), &much);
		wait_until_begun(before);
		ASSERT_EQ(mo_damon_command("off"), 0);
		moved = nr_there(&much);
		least = moved < least ? moved : least;
	}
	TH_LOG("%lu of %lu pages moved", least, MUCH_BYTES / SZ_4K);
	EXPECT_LE(least, MUCH_BYTES / SZ_4K / 2);
	EXPECT_TRUE(mo_content_ok(&much));
	mo_unmap(&much);
}

/* The memory of an exiting process is freed without a migration first. */
TEST_F_TIMEOUT(limits, lets_a_process_exit, TIMEOUT)
{
	unsigned long least = ~0UL, before, moved;
	struct mo_area much;
	unsigned int i;

	for (i = 0; i < ROUNDS && least > MUCH_BYTES / SZ_4K / 2; i++) {
		self->child = fork_with(&much, MUCH_BYTES);
		before = nr_migrated();
		start_much(self->child, &much);
		wait_until_begun(before);
		end_child(self->child);
		self->child = 0;
		EXPECT_TRUE(mo_damon_stops());
		moved = nr_migrated() - before;
		least = moved < least ? moved : least;
	}
	TH_LOG("%lu of %lu pages moved", least, MUCH_BYTES / SZ_4K);
	EXPECT_LE(least, MUCH_BYTES / SZ_4K / 2);
}

TEST_HARNESS_MAIN
