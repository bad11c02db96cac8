// SPDX-License-Identifier: GPL-2.0-only
/*
 * Promotions gather into batches.  A thread on the fast node writes to memory
 * of a slow node.  An engine moves this memory to the fast node, many folios at
 * a time.  Tests also cover memory that must stay, and cases in which gathering
 * would use another cgroup's CPU time.  No folio may stay isolated.
 *
 * Needs a node with CPUs and one of a lower tier without CPUs.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../kselftest_harness.h"
#include "mo_area.h"
#include "mo_fail.h"
#include "mo_numa.h"
#include "mo_promote.h"
#include "mo_util.h"

/* Emulated machines and debug kernels are slow. */
#define TIMEOUT 600
#define ROUNDS 4
/*
 * A task that waits for the worker gives up after MIGRATE_PROMOTE_FLUSH_MS of 2 s.
 * Less than this time is surely in time.
 */
#define FLUSH_MS 1500

#define PATH_ENGINE_OF PATH_OFFLOAD "engine_of/numa_misplaced"
#define PATH_BALANCING "/proc/sys/kernel/numa_balancing"
#define MPOL_DEFAULT 0

#define TIERING "2"
#define AREA_BYTES (4 * SZ_1M)
#define AREA_PAGES (AREA_BYTES / SZ_4K)
#define WORDS_OF_PAGE (SZ_4K / sizeof(__u64))

/* Writes one word of each page in turn, and checks its last values. */
struct writer {
	struct mo_area *area;
	pthread_t thread;
	atomic_bool stop;
	int cpu;
	size_t lost;
};

static void *write_on(void *arg)
{
	struct writer *w = arg;
	size_t i, turn;

	mo_run_on(w->cpu);
	for (turn = 0; !w->stop; turn++) {
		for (i = 0; i < AREA_PAGES && !w->stop; i++) {
			size_t word = i * WORDS_OF_PAGE + turn % WORDS_OF_PAGE;
			__u64 *mem = (__u64 *)w->area->mem + word;

			w->lost += __atomic_load_n(mem, __ATOMIC_RELAXED) !=
				w->area->shadow[word];
			w->area->shadow[word] = mo_mix(turn, word);
			__atomic_store_n(mem, w->area->shadow[word],
					 __ATOMIC_RELAXED);
		}
	}
	return NULL;
}

static void writer_start(struct writer *w)
{
	w->stop = false;
	if (pthread_create(&w->thread, NULL, write_on, w))
		mo_die("cannot start a thread: %m");
}

static void writer_stop(struct writer *w)
{
	w->stop = true;
	pthread_join(w->thread, NULL);
}

/* Returns false when all rounds are done, and at least one ended in time. */
static bool goes_on(unsigned int rounds, unsigned int in_time)
{
	return rounds < ROUNDS || (!in_time && rounds < 4 * ROUNDS);
}

FIXTURE(promote)
{
	struct mo_area area;
	struct writer writer;
	char saved[MO_SCAN_SETTINGS][MO_SETTING_BYTES];
	char cgroups[MO_SETTING_BYTES];	/* empty: the root cgroup */
	long long freed;	/* unsettled folios at the start */
	long long marks;	/* of NUMA balancing, before its first scan */
	bool mapped;
};

FIXTURE_VARIANT(promote)
{
	size_t folio_bytes;
};

FIXTURE_VARIANT_ADD(promote, 4k)
{
	.folio_bytes = SZ_4K,
};

FIXTURE_VARIANT_ADD(promote, 64k)
{
	.folio_bytes = 16 * SZ_4K,
};

FIXTURE_SETUP(promote)
{
	const char *why_not = mo_cannot_run();
	const char *engine = getenv("ENGINE") ?: "cpu";

	if (!why_not)
		why_not = mo_find_tiers(&self->writer.cpu);
	if (why_not)
		SKIP(return, "%s", why_not);
	if (!mo_exists(PATH_PROMOTION "queued_folios"))
		SKIP(return, "promotions do not gather in this kernel");
	mo_scan_at_once(self->saved);
	mo_reset();
	mo_set_limit("max_unmapped_us", 0);
	mo_select(engine);
	ASSERT_EQ(mo_map(&self->area, MO_ANON, AREA_BYTES, variant->folio_bytes),
		  NULL);
	self->mapped = true;
	/* From now on the kernel may move the memory to its user. */
	ASSERT_EQ(syscall(SYS_mbind, self->area.mem, AREA_BYTES, MPOL_DEFAULT,
			  NULL, 0, 0), 0);
	self->writer.area = &self->area;
	self->freed = not_settled();
	self->marks = mo_vm_counter("numa_pte_updates");
	mo_write(PATH_BALANCING, TIERING);
}

FIXTURE_TEARDOWN(promote)
{
	mo_fail_end();
	if (mo_exists(PATH_BALANCING))
		mo_write(PATH_BALANCING, "0");
	if (self->cgroups[0])
		mo_cgroup_leave(self->cgroups);
	if (self->mapped)
		mo_unmap(&self->area);
	mo_scan_restore(self->saved);
	mo_reset();
}

/* All memory moves, many folios at a time, and each page counts once. */
TEST_F_TIMEOUT(promote, gathers, TIMEOUT)
{
	long long folios = AREA_BYTES / variant->folio_bytes;
	long long moved = promotion("moved_folios");
	long long copied = stat_of_reason("engine_folios");
	long long batches = stat_of_reason("batches");
	long long promoted = mo_vm_counter("pgpromote_success");
	long long migrated = mo_vm_counter("numa_pages_migrated");

	writer_start(&self->writer);
	EXPECT_LE(wait_for_promotion(&self->area, 0), AREA_PAGES / 10);
	writer_stop(&self->writer);
	EXPECT_EQ(self->writer.lost, 0);
	EXPECT_TRUE(mo_content_ok(&self->area));
	EXPECT_EQ(wait_for_isolated(), 0);
	EXPECT_EQ(not_settled(), self->freed);

	moved = promotion("moved_folios") - moved;
	copied = stat_of_reason("engine_folios") - copied;
	batches = stat_of_reason("batches") - batches;
	promoted = mo_vm_counter("pgpromote_success") - promoted;
	migrated = mo_vm_counter("numa_pages_migrated") - migrated;
	TH_LOG("%lld folios in %lld batches, %lld by the engine, waited %lld us",
	       moved, batches, copied, promotion("max_waited_us"));
	EXPECT_GE(moved, folios * 9 / 10);
	EXPECT_GE(copied, folios * 9 / 10);
	EXPECT_LE(batches, folios / 4);
	EXPECT_EQ(promoted, migrated);
	EXPECT_GE(promoted, AREA_PAGES * 9 / 10);
	/* Programs that the test runs may have a few promoted pages. */
	EXPECT_LE(promoted, AREA_PAGES + AREA_PAGES / 4);
}

/* The cgroup of the memory has the same counters. */
TEST_F_TIMEOUT(promote, counts_for_the_cgroup, TIMEOUT)
{
	const char *why_not = mo_cgroup_enter(self->cgroups, "+memory",
					   "memory.max", NULL);
	long long promoted, migrated;
	struct mo_area area;
	char path[64];

	if (why_not)
		SKIP(return, "%s", why_not);
	/* Memory of this cgroup, unlike the other area. */
	ASSERT_EQ(mo_map(&area, MO_ANON, AREA_BYTES, variant->folio_bytes), NULL);
	ASSERT_EQ(syscall(SYS_mbind, area.mem, AREA_BYTES, MPOL_DEFAULT, NULL, 0,
			  0), 0);
	self->writer.area = &area;
	writer_start(&self->writer);
	EXPECT_LE(wait_for_promotion(&area, 0), AREA_PAGES / 10);
	writer_stop(&self->writer);
	EXPECT_EQ(wait_for_isolated(), 0);

	snprintf(path, sizeof(path), "%s/promote/memory.stat", self->cgroups);
	read_both(path, "\npgpromote_success ", &promoted,
		  "\nnuma_pages_migrated ", &migrated);
	EXPECT_GE(promoted, AREA_PAGES * 9 / 10);
	EXPECT_LE(promoted, AREA_PAGES + AREA_PAGES / 4);
	EXPECT_EQ(promoted, migrated);
	EXPECT_TRUE(mo_content_ok(&area));
	mo_unmap(&area);
}

/*
 * Linux 7.3 scans no memory for a task whose cpuset has one node.  So pages get
 * their marks before the task enters the cpuset, and cause faults afterwards.
 */
TEST_F_TIMEOUT(promote, keeps_to_the_cpuset, TIMEOUT)
{
	long long hints, queued = promotion("queued_folios");
	const char *why_not;
	char nodes[16];

	wait_for_marks(self->marks + AREA_PAGES);
	snprintf(nodes, sizeof(nodes), "%d", mo_nodes[0]);
	why_not = mo_cgroup_enter(self->cgroups, "+cpuset", "cpuset.mems", nodes);
	if (why_not)
		SKIP(return, "%s", why_not);
	hints = mo_vm_counter("numa_hint_faults");
	writer_start(&self->writer);
	wait_for_hints(hints + AREA_BYTES / variant->folio_bytes / 4);
	writer_stop(&self->writer);
	EXPECT_EQ(mo_elsewhere(&self->area, mo_nodes[0]), 0);
	EXPECT_EQ(promotion("queued_folios"), queued);
	EXPECT_EQ(self->writer.lost, 0);
}

/* A task that may not use all CPUs moves its folios itself. */
TEST_F_TIMEOUT(promote, works_for_itself_without_all_cpus, TIMEOUT)
{
	long long queued = promotion("queued_folios");
	const char *why_not;
	char cpu[16];

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "the machine has one CPU");
	snprintf(cpu, sizeof(cpu), "%d", self->writer.cpu);
	why_not = mo_cgroup_enter(self->cgroups, "+cpuset", "cpuset.cpus", cpu);
	if (why_not)
		SKIP(return, "%s", why_not);
	writer_start(&self->writer);
	EXPECT_LE(wait_for_promotion(&self->area, AREA_PAGES / 10),
		  AREA_PAGES / 10);
	writer_stop(&self->writer);
	EXPECT_EQ(promotion("queued_folios"), queued);
	EXPECT_EQ(self->writer.lost, 0);
}

/* A task with limited CPU time moves its folios itself. */
TEST_F_TIMEOUT(promote, works_for_itself_under_cpu_max, TIMEOUT)
{
	const char *why_not = mo_cgroup_enter(self->cgroups, "+cpu", "cpu.max",
					   "80000 100000");
	long long queued = promotion("queued_folios");

	if (why_not)
		SKIP(return, "%s", why_not);
	writer_start(&self->writer);
	EXPECT_LE(wait_for_promotion(&self->area, AREA_PAGES / 10),
		  AREA_PAGES / 10);
	writer_stop(&self->writer);
	EXPECT_EQ(promotion("queued_folios"), queued);
	EXPECT_EQ(self->writer.lost, 0);
}

/*
 * After an engine is switched off, for all reasons or for promotions, no folio
 * may wait any more.
 */
TEST_F_TIMEOUT(promote, ends_with_its_engine, TIMEOUT)
{
	long long queued = promotion("queued_folios");
	const char *engine = getenv("ENGINE") ?: "cpu";
	unsigned int rounds = 0, in_time = 0;

	writer_start(&self->writer);
	while (goes_on(rounds, in_time)) {
		long long before = promotion("queued_folios"), begin_ms;
		time_t until = now_s() + WAIT_S;

		mo_select(engine);
		mo_write(PATH_ENGINE_OF, "default");
		while (promotion("queued_folios") == before && now_s() < until)
			usleep(500);
		begin_ms = now_ms();
		if (rounds % 2)
			mo_write(PATH_ENGINE_OF, "none");
		else
			mo_select("none");
		if (now_ms() - begin_ms < FLUSH_MS) {
			EXPECT_EQ(not_settled(), self->freed);
			in_time++;
		}
		mo_move_once(&self->area, mo_nodes[0]);
		rounds++;
	}
	writer_stop(&self->writer);
	EXPECT_GE(rounds, ROUNDS);
	EXPECT_GT(in_time, 0);
	EXPECT_GT(promotion("queued_folios"), queued);
	EXPECT_EQ(self->writer.lost, 0);
	EXPECT_TRUE(mo_content_ok(&self->area));
	EXPECT_EQ(wait_for_isolated(), 0);
}

/* A drain of the LRU caches of all CPUs waits for gathered folios. */
TEST_F_TIMEOUT(promote, is_drained, TIMEOUT)
{
	unsigned int rounds, in_time = 0;

	for (rounds = 0; goes_on(rounds, in_time); rounds++) {
		long long queued = promotion("queued_folios"), begin_ms;

		writer_start(&self->writer);
		while (promotion("queued_folios") == queued)
			usleep(500);
		writer_stop(&self->writer);
		begin_ms = now_ms();
		mo_drain();
		if (now_ms() - begin_ms >= FLUSH_MS) {
			mo_move_once(&self->area, mo_nodes[0]);
			continue;
		}
		in_time++;
		EXPECT_EQ(not_settled(), self->freed);
		/* Folios in flight have arrived, and can move again. */
		EXPECT_EQ(mo_move_once(&self->area, mo_nodes[0]), 0);
		EXPECT_EQ(mo_elsewhere(&self->area, mo_nodes[0]), 0);
	}
	EXPECT_GT(in_time, 0);
	EXPECT_EQ(self->writer.lost, 0);
	EXPECT_TRUE(mo_content_ok(&self->area));
	EXPECT_EQ(wait_for_isolated(), 0);
}

/* Use memory until a few folios are queued. */
static void queue_some(const struct mo_area *area)
{
	long long enough = promotion("queued_folios") + 4;
	time_t until = now_s() + WAIT_S;
	size_t i;

	for (i = 0; promotion("queued_folios") < enough && now_s() < until; i++)
		(void)__atomic_load_n(area->mem + i % AREA_PAGES * SZ_4K,
				      __ATOMIC_RELAXED);
}

/*
 * On Linux, a promotion has ended when its fault returns.  So system calls find
 * all folios, although a worker has unmapped some.
 */
TEST_F_TIMEOUT(promote, is_found_in_flight, TIMEOUT)
{
	unsigned int rounds, in_time = 0;

	if (!promote_slowly())
		SKIP(return, "cannot load the module migrate_offload_test");
	mo_run_on(self->writer.cpu);
	for (rounds = 0; goes_on(rounds, in_time); rounds++) {
		long long begin_ms, in_copy;
		size_t errors;

		queue_some(&self->area);
		do {
			usleep(500);
			in_copy = mo_read_number(PATH_TEST "in_copy");
		} while (!in_copy && not_settled() > self->freed);
		begin_ms = now_ms();
		errors = find_all(&self->area, rounds % FIND_WAYS);
		if (in_copy && now_ms() - begin_ms < FLUSH_MS) {
			EXPECT_EQ(errors, 0);
			in_time++;
		}
		mo_drain();
		mo_move_once(&self->area, mo_nodes[0]);
	}
	EXPECT_GT(in_time, 0);
	EXPECT_TRUE(mo_content_ok(&self->area));
	mo_select("none");
	EXPECT_EQ(wait_for_isolated(), 0);
}

/*
 * On Linux, no fault of the process promotes while mbind(2) looks.  So it finds
 * all folios, although a thread goes on to use them.
 */
TEST_F_TIMEOUT(promote, is_bound_beside_faults, TIMEOUT)
{
	unsigned int rounds, in_time = 0;

	if (!promote_slowly())
		SKIP(return, "cannot load the module migrate_offload_test");
	for (rounds = 0; goes_on(rounds, in_time); rounds++) {
		long long begin_ms, queued = promotion("queued_folios");
		time_t until = now_s() + WAIT_S;
		size_t errors;

		writer_start(&self->writer);
		while (promotion("queued_folios") == queued && now_s() < until)
			usleep(500);
		begin_ms = now_ms();
		errors = find_all(&self->area, FIND_BY_MBIND);
		if (now_ms() - begin_ms < FLUSH_MS) {
			EXPECT_EQ(errors, 0);
			in_time++;
		}
		writer_stop(&self->writer);
		mo_drain();
		mo_move_once(&self->area, mo_nodes[0]);
	}
	EXPECT_GT(in_time, 0);
	EXPECT_EQ(self->writer.lost, 0);
	EXPECT_TRUE(mo_content_ok(&self->area));
	mo_select("none");
	EXPECT_EQ(wait_for_isolated(), 0);
}

/* The engine declines all batches: no folio may wait for one. */
TEST_F_TIMEOUT(promote, gathers_only_what_the_engine_wants, TIMEOUT)
{
	long long queued = promotion("queued_folios");

	if (!mo_load_test_engine(MO_TEST_PLAIN))
		SKIP(return, "cannot load the module migrate_offload_test");
	mo_write(PATH_TEST "unwilling", "1");
	mo_select("test");
	writer_start(&self->writer);
	EXPECT_LE(wait_for_promotion(&self->area, AREA_PAGES / 10),
		  AREA_PAGES / 10);
	writer_stop(&self->writer);
	mo_write(PATH_TEST "unwilling", "0");
	EXPECT_EQ(promotion("queued_folios"), queued);
	EXPECT_EQ(self->writer.lost, 0);
	EXPECT_TRUE(mo_content_ok(&self->area));
}

/* A drain of all CPUs' LRU caches does not wait long for a slow engine. */
TEST_F_TIMEOUT(promote, does_not_hold_up_others, TIMEOUT)
{
	time_t until = now_s() + WAIT_S;
	struct mo_area other;
	long long moved;

	if (!mo_load_test_engine(MO_TEST_PLAIN))
		SKIP(return, "cannot load the module migrate_offload_test");
	ASSERT_EQ(mo_map(&other, MO_ANON, SZ_2M, SZ_4K), NULL);
	mo_select_for_all("none");
	mo_select_for("numa_misplaced", "default");
	/* Longer than this test, however slow the machine is. */
	mo_write(PATH_TEST "delay_us", "600000000");
	mo_select("test");
	writer_start(&self->writer);
	while (!mo_read_number(PATH_TEST "in_copy") && now_s() < until)
		usleep(500);
	moved = promotion("moved_folios");
	mo_drain();
	EXPECT_EQ(mo_move_once(&other, mo_nodes[1]), 0);
	/* The worker copies, and so may a task that found the queue full. */
	EXPECT_GT(mo_read_number(PATH_TEST "in_copy"), 0);
	EXPECT_EQ(promotion("moved_folios"), moved);
	mo_write(PATH_TEST "delay_us", "0");
	writer_stop(&self->writer);
	EXPECT_EQ(self->writer.lost, 0);
	EXPECT_TRUE(mo_content_ok(&self->area));
	mo_select("none");
	EXPECT_EQ(wait_for_isolated(), 0);
	EXPECT_EQ(not_settled(), self->freed);
	mo_unmap(&other);
}

/*
 * The memory is mapped twice.  The fault of one mapping queues a folio, and the
 * fault of the other meets this folio, which counts as no failed migration.
 */
TEST_F_TIMEOUT(promote, is_met_by_another_fault, TIMEOUT)
{
	long long met = promotion("met_folios");
	time_t until = now_s() + WAIT_S;
	struct mo_area shared;
	const char *again;
	size_t i;

	ASSERT_EQ(mo_map(&shared, MO_SHMEM, AREA_BYTES, SZ_4K), NULL);
	ASSERT_EQ(syscall(SYS_mbind, shared.mem, AREA_BYTES, MPOL_DEFAULT, NULL,
			  0, 0), 0);
	again = mremap(shared.mem, 0, AREA_BYTES, MREMAP_MAYMOVE);
	ASSERT_NE(again, MAP_FAILED);
	do {
		mo_move_once(&shared, mo_nodes[0]);
		/* NUMA balancing scans only a process that uses CPU time. */
		mo_spin(10000000);
		for (i = 0; i < AREA_BYTES; i += SZ_4K) {
			(void)__atomic_load_n(shared.mem + i, __ATOMIC_RELAXED);
			(void)__atomic_load_n(again + i, __ATOMIC_RELAXED);
		}
	} while (promotion("met_folios") == met && now_s() < until);
	EXPECT_GT(promotion("met_folios"), met);
	EXPECT_TRUE(mo_content_ok(&shared));
	EXPECT_EQ(wait_for_isolated(), 0);
	EXPECT_EQ(munmap((void *)again, AREA_BYTES), 0);
	mo_unmap(&shared);
}

/*
 * The process ends while its folios wait.  Freed folios count as not promoted.
 */
TEST_F_TIMEOUT(promote, survives_its_process, TIMEOUT)
{
	long long promoted = mo_vm_counter("pgpromote_success");
	long long migrated = mo_vm_counter("numa_pages_migrated");
	unsigned int rounds;

	for (rounds = 0; rounds < ROUNDS; rounds++) {
		long long queued = promotion("queued_folios");
		time_t until = now_s() + WAIT_S;
		pid_t pid = fork();

		ASSERT_GE(pid, 0);
		if (!pid) {
			/* Memory of the child, on the slow node. */
			ASSERT_EQ(mo_map(&self->area, MO_ANON, AREA_BYTES,
					 variant->folio_bytes), NULL);
			syscall(SYS_mbind, self->area.mem, AREA_BYTES,
				MPOL_DEFAULT, NULL, 0, 0);
			write_on(&self->writer);
		}
		while (promotion("queued_folios") == queued && now_s() < until)
			usleep(500);
		EXPECT_GT(promotion("queued_folios"), queued);
		kill(pid, SIGKILL);
		EXPECT_EQ(waitpid(pid, NULL, 0), pid);
	}
	EXPECT_EQ(wait_for_isolated(), 0);
	EXPECT_EQ(mo_vm_counter("pgpromote_success") - promoted,
		  mo_vm_counter("numa_pages_migrated") - migrated);
}

/* Without memory for large folios, small folios of a batch still move. */
TEST_F_TIMEOUT(promote, goes_on_without_memory_for_some, TIMEOUT)
{
	long long returned = promotion("returned_folios");
	unsigned long left = variant->folio_bytes > SZ_4K ? AREA_PAGES : 0;
	struct mo_area small;
	struct writer writer = { .area = &small, .cpu = self->writer.cpu };
	const char *why_not;

	ASSERT_EQ(mo_map(&small, MO_ANON, AREA_BYTES, SZ_4K), NULL);
	ASSERT_EQ(syscall(SYS_mbind, small.mem, AREA_BYTES, MPOL_DEFAULT, NULL,
			  0, 0), 0);
	why_not = mo_fail_large(MO_64K_ORDER);
	if (why_not)
		SKIP(return, "%s", why_not);
	writer_start(&self->writer);
	writer_start(&writer);
	/* Faults queue the large folios again and again, which takes time. */
	EXPECT_LE(wait_for_promotion(&small, AREA_PAGES / 2), AREA_PAGES / 2);
	writer_stop(&writer);
	writer_stop(&self->writer);
	/* Folios that wait would find memory now. */
	EXPECT_EQ(wait_for_isolated(), 0);
	mo_fail_end();
	if (left) {
		EXPECT_EQ(mo_elsewhere(&self->area, mo_nodes[1]), left);
		EXPECT_GT(promotion("returned_folios"), returned);
	}
	EXPECT_EQ(not_settled(), self->freed);
	EXPECT_EQ(self->writer.lost + writer.lost, 0);
	EXPECT_TRUE(mo_content_ok(&self->area));
	EXPECT_TRUE(mo_content_ok(&small));
	mo_unmap(&small);
}

TEST_HARNESS_MAIN
