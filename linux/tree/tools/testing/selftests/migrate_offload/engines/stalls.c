// SPDX-License-Identifier: GPL-2.0-only
/*
 * A migration may have to wait for a disk or for memory.  Meanwhile it must
 * keep neither an engine nor unmapped folios.  Needs the module
 * migrate_offload_test.  Tests of memory also need CONFIG_FAIL_PAGE_ALLOC.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../kselftest_harness.h"
#include "mo_area.h"
#include "mo_util.h"

/* Emulated machines and debug kernels are slow. */
#define TIMEOUT 600

#define PATH_FAIL "/sys/kernel/debug/fail_page_alloc/"

/* The disk does not answer for at least this long. */
#define SILENT_MS 6000
/* After this time the test gives up. */
#define FOR_EVER_MS 60000

FIXTURE(stalls)
{
	struct mo_area area;
};

FIXTURE_VARIANT(stalls)
{
	enum mo_test_mode mode;
};

FIXTURE_VARIANT_ADD(stalls, per_folio)
{
	.mode = MO_TEST_PLAIN,
};

FIXTURE_VARIANT_ADD(stalls, posted)
{
	.mode = MO_TEST_POSTED,
};

FIXTURE_VARIANT_ADD(stalls, stream)
{
	.mode = MO_TEST_STREAM,
};

/* Runs of small pages need an allocation of their own. */
static void set_runs(const char *on)
{
	if (mo_exists(PATH_OFFLOAD "batch_ptes"))
		mo_write(PATH_OFFLOAD "batch_ptes", on);
}

FIXTURE_SETUP(stalls)
{
	const char *why_not = mo_cannot_run();

	if (why_not)
		SKIP(return, "%s", why_not);
	if (!mo_load_test_engine(variant->mode))
		SKIP(return, "cannot load the module migrate_offload_test");
	if (variant->mode != MO_TEST_POSTED) {
		mo_reset();
		mo_select("test");
	}
	mo_set_limit("max_unmapped_us", 0);
}

static void fail_nothing(void)
{
	if (mo_exists(PATH_FAIL "probability"))
		mo_write(PATH_FAIL "probability", "0");
}

FIXTURE_TEARDOWN(stalls)
{
	fail_nothing();
	if (self->area.mem)
		mo_unmap(&self->area);
	set_runs("true");
	if (mo_exists(PATH_TEST "decline"))
		mo_load_test_engine(MO_TEST_PLAIN);
	mo_reset();
}

struct mover {
	const struct mo_area *area;
	unsigned int fail_after;	/* pages; 0: no failures */
	pthread_t thread;
	atomic_int tid;
	atomic_bool done;
};

/* In this thread, let @pages page allocations succeed, and then fail @times. */
static void fail_allocations(unsigned int pages, int times, bool waiting)
{
	mo_write(PATH_FAIL "verbose", "0");
	mo_write(PATH_FAIL "ignore-gfp-highmem", "N");
	mo_write(PATH_FAIL "ignore-gfp-wait", waiting ? "N" : "Y");
	mo_write(PATH_FAIL "min-order", "0");
	mo_write(PATH_FAIL "task-filter", "Y");
	mo_write_number(PATH_FAIL "space", pages);
	mo_write_number(PATH_FAIL "times", times);
	mo_write("/proc/thread-self/make-it-fail", "1");
	mo_write(PATH_FAIL "probability", "100");
}

static void *move_area(void *arg)
{
	struct mover *mover = arg;

	mover->tid = syscall(SYS_gettid);
	/*
	 * The first failing attempt does not wait for memory, the second one
	 * does.
	 */
	if (mover->fail_after)
		fail_allocations(mover->fail_after, 2, true);
	mo_move_once(mover->area, mo_nodes[1]);
	mover->done = true;
	return NULL;
}

/* Returns true if the thread sleeps uninterruptibly for half a second. */
static bool mover_waits(const struct mover *mover)
{
	int ms = 0, waited_ms = 0;
	char path[64], state;
	FILE *file;

	for (; ms < FOR_EVER_MS && waited_ms < 500; ms += 10) {
		usleep(10000);
		if (!mover->tid)
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat",
			 mover->tid);
		file = fopen(path, "r");
		if (!file)
			return false;
		if (fscanf(file, "%*d %*s %c", &state) != 1)
			state = '?';
		fclose(file);
		waited_ms = state == 'D' ? waited_ms + 10 : 0;
	}
	return waited_ms >= 500;
}

/*
 * Switch the engine off in a child without @disk.  Returns whether this ends
 * soon.
 */
static bool engine_can_go(int disk)
{
	pid_t pid = fork();
	int ms, status;

	if (!pid) {
		close(disk);
		mo_select("none");
		_exit(0);
	}
	for (ms = 0; ms < SILENT_MS; ms += 10) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return !status;
		usleep(10000);
	}
	return false;
}

/* The page is under writeback until the returned file is closed. */
static int stop_disk(const struct mo_area *area, size_t page)
{
	int fd = open(PATH_TEST "writeback", O_WRONLY);
	char address[32];

	snprintf(address, sizeof(address), "%lx",
		 (long)(area->mem + page * SZ_4K));
	if (fd < 0 || write(fd, address, strlen(address)) < 0)
		mo_die("cannot write to " PATH_TEST "writeback: %m");
	return fd;
}

/*
 * A task that has migrated with the engine waits for a disk.  The engine can
 * still be switched off, and the folio stays mapped during the wait.
 */
TEST_F_TIMEOUT(stalls, disk_keeps_no_engine, TIMEOUT)
{
	long long max_ns, slow_ns = SILENT_MS / 2 * 1000000LL;
	struct mover mover = { .area = &self->area };
	int fd;

	ASSERT_EQ(mo_map(&self->area, MO_ANON, SZ_1M, SZ_4K), NULL);
	max_ns = mo_counter("unmapped_max_ns");
	fd = stop_disk(&self->area, 5);
	ASSERT_EQ(pthread_create(&mover.thread, NULL, move_area, &mover), 0);
	EXPECT_TRUE(mover_waits(&mover));
	EXPECT_FALSE(mover.done);
	EXPECT_TRUE(engine_can_go(fd));
	EXPECT_FALSE(mover.done);
	usleep(SILENT_MS * 1000);
	close(fd);
	pthread_join(mover.thread, NULL);
	EXPECT_TRUE(mo_counter("unmapped_max_ns") == max_ns ||
		    mo_counter("unmapped_max_ns") < slow_ns);
	EXPECT_EQ(mo_move(&self->area, mo_nodes[1]), 0);
	EXPECT_TRUE(mo_content_ok(&self->area));
}

/*
 * Where an allocation has to wait for memory, no folio may be unmapped.  So
 * each folio must arrive before the next one is unmapped.
 */
TEST_F_TIMEOUT(stalls, memory_keeps_nothing_unmapped, TIMEOUT)
{
	const unsigned int nr = 8;
	long long batches, copied;

	if (!mo_exists(PATH_FAIL "probability"))
		SKIP(return, "allocations cannot be made to fail");
	ASSERT_EQ(mo_map(&self->area, MO_ANON, nr * SZ_2M, SZ_2M), NULL);
	mo_set_limit("max_batch_pages", nr * SZ_2M / SZ_4K);
	batches = mo_counter("batches");
	copied = mo_counter("engine_folios");
	fail_allocations(0, -1, false);
	EXPECT_GE(mo_move_once(&self->area, mo_nodes[1]), 0);
	fail_nothing();
	EXPECT_EQ(mo_counter("batches") - batches, nr);
	EXPECT_EQ(mo_counter("engine_folios") - copied, nr);
	EXPECT_EQ(mo_elsewhere(&self->area, mo_nodes[1]), 0);
	EXPECT_TRUE(mo_content_ok(&self->area));
}

/*
 * A page under writeback does not move with the others.  The core must retry
 * this page, and so wait for the disk, although the end of the list found no
 * memory.  Only with an engine are lists this long.
 */
TEST_F_TIMEOUT(stalls, memory_costs_no_retry, TIMEOUT)
{
	const size_t pages = 2048, enough = 1500;
	struct mover mover = { .area = &self->area, .fail_after = enough };
	int fd;

	if (!mo_exists(PATH_FAIL "probability"))
		SKIP(return, "allocations cannot be made to fail");
	if (variant->mode == MO_TEST_STREAM)
		SKIP(return, "the engine's own allocations would be among them");
	ASSERT_EQ(mo_map(&self->area, MO_ANON, pages * SZ_4K, SZ_4K), NULL);
	set_runs("false");
	fd = stop_disk(&self->area, 5);
	ASSERT_EQ(pthread_create(&mover.thread, NULL, move_area, &mover), 0);
	EXPECT_TRUE(mover_waits(&mover));
	EXPECT_FALSE(mover.done);
	/* The page has not moved, and neither have the pages without memory. */
	EXPECT_GT(mo_elsewhere(&self->area, mo_nodes[1]), (pages - enough) / 2);
	close(fd);
	pthread_join(mover.thread, NULL);
	fail_nothing();
	EXPECT_EQ(mo_move(&self->area, mo_nodes[1]), 0);
	EXPECT_TRUE(mo_content_ok(&self->area));
}

TEST_HARNESS_MAIN
