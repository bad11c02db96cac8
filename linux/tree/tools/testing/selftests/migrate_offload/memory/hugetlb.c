// SPDX-License-Identifier: GPL-2.0-only
/*
 * Moves hugetlb folios one by one, with engines that copy and engines that
 * misbehave.  The counters are exact here, as no other process has hugetlb
 * folios.  Needs the module migrate_offload_test.
 *
 * Folios of 1 GiB move where the machine has memory for them.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../kselftest_harness.h"
#include "mo_area.h"
#include "mo_util.h"

#define SZ_1G 0x40000000UL
#define NR_WRITERS 2
/* Emulated machines and debug kernels are slow. */
#define TIMEOUT 600
#define DELAY_US 200000
/* How often the engine goes away in the middle of a list. */
#define NR_ENDS 8

FIXTURE(hugetlb)
{
	struct mo_area area;
	long long nr;
};

FIXTURE_VARIANT(hugetlb)
{
	enum mo_type type;
	size_t folio_bytes;
	size_t nr;
	enum mo_test_mode mode;
};

FIXTURE_VARIANT_ADD(hugetlb, private)
{
	.type = MO_HUGETLB,
	.folio_bytes = SZ_2M,
	.nr = 2,
	.mode = MO_TEST_PLAIN,
};

FIXTURE_VARIANT_ADD(hugetlb, private_stream)
{
	.type = MO_HUGETLB,
	.folio_bytes = SZ_2M,
	.nr = 4,
	.mode = MO_TEST_STREAM,
};

FIXTURE_VARIANT_ADD(hugetlb, shared)
{
	.type = MO_HUGETLB_SHARED,
	.folio_bytes = SZ_2M,
	.nr = 2,
	.mode = MO_TEST_STREAM,
};

FIXTURE_VARIANT_ADD(hugetlb, file)
{
	.type = MO_HUGETLB_FILE,
	.folio_bytes = SZ_2M,
	.nr = 2,
	.mode = MO_TEST_POSTED,
};

FIXTURE_VARIANT_ADD(hugetlb, private_1g)
{
	.type = MO_HUGETLB,
	.folio_bytes = SZ_1G,
	.nr = 1,
	.mode = MO_TEST_PLAIN,
};

FIXTURE_SETUP(hugetlb)
{
	const char *why_not = mo_cannot_run();
	size_t bytes;

	if (why_not)
		SKIP(return, "%s", why_not);
	if (!mo_load_test_engine(variant->mode))
		SKIP(return, "cannot load the module migrate_offload_test");
	if (variant->mode != MO_TEST_POSTED) {
		mo_reset();
		mo_select("test");
	}
	/* Without this, the core would leave out an engine that is slow. */
	mo_set_limit("max_unmapped_us", 0);
	self->nr = variant->nr;
	/* A shadow holds the content, and the pools need more than one copy. */
	bytes = variant->nr * variant->folio_bytes;
	if ((variant->folio_bytes > SZ_2M ? 4 : 8) * bytes >
	    sysconf(_SC_AVPHYS_PAGES) * SZ_4K)
		SKIP(return, "not enough memory");
	why_not = mo_map(&self->area, variant->type, bytes,
			 variant->folio_bytes);
	if (why_not) {
		mo_unmap(&self->area);
		SKIP(return, "%s", why_not);
	}
}

FIXTURE_TEARDOWN(hugetlb)
{
	mo_unmap(&self->area);
	if (mo_exists(PATH_TEST "decline"))
		mo_load_test_engine(MO_TEST_PLAIN);
	mo_reset();
}

/* The counters that the tests compare. */
struct counts {
	long long batches, offered, offered_bytes, engine, engine_bytes, cpu,
		cpu_bytes, unmapped;
};

static struct counts count(void)
{
	return (struct counts) {
		.batches = mo_counter("batches"),
		.offered = mo_counter("offered_folios"),
		.offered_bytes = mo_counter("offered_bytes"),
		.engine = mo_counter("engine_folios"),
		.engine_bytes = mo_counter("engine_bytes"),
		.cpu = mo_counter("cpu_folios"),
		.cpu_bytes = mo_counter("cpu_bytes"),
		.unmapped = mo_counter("unmapped_folios"),
	};
}

#define EXPECT_MOVES(node) do {						\
	int to = node;							\
									\
	EXPECT_EQ(mo_move_once(&self->area, to), 0);			\
	EXPECT_EQ(mo_elsewhere(&self->area, to), 0);			\
	EXPECT_TRUE(mo_content_ok(&self->area));			\
} while (0)

/* @nr folios moved, and the engine copied all of them but @nr_cpu. */
#define EXPECT_COUNTED(before, nr, nr_cpu) do {				\
	long long bytes = self->area.folio_bytes, all = nr, left = nr_cpu; \
	struct counts was = before, now = count();			\
									\
	EXPECT_EQ(now.engine - was.engine, all - left);			\
	EXPECT_EQ(now.engine_bytes - was.engine_bytes,			\
		  (all - left) * bytes);				\
	EXPECT_EQ(now.cpu - was.cpu, left);				\
	EXPECT_EQ(now.cpu_bytes - was.cpu_bytes, left * bytes);		\
	EXPECT_EQ(now.unmapped - was.unmapped, all);			\
} while (0)

TEST_F_TIMEOUT(hugetlb, moves, TIMEOUT)
{
	struct counts before = count(), after;

	EXPECT_MOVES(mo_nodes[1]);
	EXPECT_COUNTED(before, self->nr, 0);
	after = count();
	EXPECT_EQ(after.batches - before.batches, self->nr);
	EXPECT_EQ(after.offered - before.offered, self->nr);
	EXPECT_EQ(after.offered_bytes - before.offered_bytes, self->area.bytes);
	EXPECT_MOVES(mo_nodes[0]);
	EXPECT_COUNTED(before, 2 * self->nr, 0);
}

/*
 * engine_ns includes the delay of the engine, but not the time for which this
 * thread waited for a CPU.  The clock of run queues differs a little from the
 * clock of delays, so allow 1%.
 */
TEST_F_TIMEOUT(hugetlb, takes_time, TIMEOUT)
{
	const char *delay = variant->mode == MO_TEST_STREAM ?
			    PATH_TEST "submit_delay_us" : PATH_TEST "delay_us";
	long long before = mo_counter("engine_ns"), waited = mo_waited_ns(), took;

	mo_write_number(delay, DELAY_US);
	EXPECT_MOVES(mo_nodes[1]);
	took = mo_counter("engine_ns") - before + mo_waited_ns() - waited;
	EXPECT_GE(took, self->nr * DELAY_US * 990);
}

/* Migration loses no page of a pool, nor of a file system's share. */
TEST_F_TIMEOUT(hugetlb, leaves_the_pools_alone, TIMEOUT)
{
	static const char *const which[] = { "nr_hugepages", "free_hugepages",
					     "surplus_hugepages" };
	long long before[2][ARRAY_SIZE(which)];
	size_t i, bytes = variant->folio_bytes;
	int n;

	for (n = 0; n < 2; n++)
		for (i = 0; i < ARRAY_SIZE(which); i++)
			before[n][i] = mo_huge_pages(mo_nodes[n], bytes,
						     which[i]);
	EXPECT_MOVES(mo_nodes[1]);
	EXPECT_EQ(mo_huge_pages(mo_nodes[0], bytes, "free_hugepages"),
		  before[0][1] + self->nr);
	EXPECT_EQ(mo_huge_pages(mo_nodes[1], bytes, "free_hugepages"),
		  before[1][1] - self->nr);
	EXPECT_MOVES(mo_nodes[0]);
	for (n = 0; n < 2; n++)
		for (i = 0; i < ARRAY_SIZE(which); i++)
			EXPECT_EQ(mo_huge_pages(mo_nodes[n], bytes, which[i]),
				  before[n][i]);
}

TEST_F_TIMEOUT(hugetlb, declined, TIMEOUT)
{
	long long declined = mo_counter("declined_folios");
	struct counts before = count();

	mo_write(PATH_TEST "decline", "1");
	EXPECT_MOVES(mo_nodes[1]);
	EXPECT_COUNTED(before, self->nr, self->nr);
	EXPECT_EQ(mo_counter("declined_folios") - declined, self->nr);
}

/* The CPU copies a folio that the engine failed to copy. */
TEST_F_TIMEOUT(hugetlb, one_fails, TIMEOUT)
{
	long long failed = mo_counter("failed_folios");
	struct counts before = count();

	mo_write_number(PATH_TEST "fail_nth", self->nr);
	EXPECT_MOVES(mo_nodes[1]);
	EXPECT_COUNTED(before, self->nr, 1);
	EXPECT_EQ(mo_counter("failed_folios") - failed, 1);
}

TEST_F_TIMEOUT(hugetlb, lies_but_is_verified, TIMEOUT)
{
	long long wrong = mo_counter("mismatched_folios");
	struct counts before = count();

	mo_set_limit("verify", 1);
	mo_write_number(PATH_TEST "lie_nth", self->nr);
	EXPECT_MOVES(mo_nodes[1]);
	EXPECT_COUNTED(before, self->nr, 1);
	EXPECT_EQ(mo_counter("mismatched_folios") - wrong, 1);
}

/* Proves that the tests above notice a folio that was not copied. */
TEST_F_TIMEOUT(hugetlb, lies, TIMEOUT)
{
	mo_write_number(PATH_TEST "lie_nth", self->nr);
	EXPECT_EQ(mo_move_once(&self->area, mo_nodes[1]), 0);
	EXPECT_FALSE(mo_content_ok(&self->area));
}

TEST_F_TIMEOUT(hugetlb, is_left_to_the_cpu, TIMEOUT)
{
	struct counts before = count(), now;

	mo_select_for("syscall_or_cpuset", "none");
	EXPECT_MOVES(mo_nodes[1]);
	now = count();
	EXPECT_EQ(now.engine, before.engine);
	EXPECT_EQ(now.cpu, before.cpu);
}

static void *switch_off(void *unused)
{
	usleep(DELAY_US / 2);
	mo_select("none");
	return NULL;
}

/*
 * A thread deselects the engine in the middle of a list.  The engine completes
 * the folio that it has.  In at least one round, the engine must not get the
 * rest of the list.  In other rounds, the thread may come too late.
 */
TEST_F_TIMEOUT(hugetlb, ends_with_its_engine, TIMEOUT)
{
	long long copied = mo_counter("engine_folios");
	pthread_t thread;
	int i;

	mo_write_number(PATH_TEST "delay_us", DELAY_US);
	for (i = 0; i < NR_ENDS; i++) {
		mo_select("test");
		ASSERT_EQ(pthread_create(&thread, NULL, switch_off, NULL), 0);
		EXPECT_MOVES(mo_nodes[!(i % 2)]);
		pthread_join(thread, NULL);
	}
	EXPECT_LT(mo_counter("engine_folios") - copied, NR_ENDS * self->nr);
}

struct writer {
	pthread_t thread;
	struct mo_area *area;
	unsigned int index;
	atomic_bool *stop;
	unsigned long writes, lost;
};

/* Each writer owns one word of each page, and knows its last value. */
static void *write_words(void *arg)
{
	struct writer *w = arg;
	size_t words = SZ_4K / sizeof(*w->area->shadow);
	/*
	 * All pages of a 1G folio would take too long between two looks at
	 * @stop.
	 */
	size_t i, nr = w->area->bytes / SZ_4K, step = nr / 512 ?: 1;

	while (!*w->stop) {
		for (i = 0; i < nr; i += step) {
			size_t at = i * words + w->index;
			__u64 *word = (__u64 *)w->area->mem + at;
			__u64 *known = w->area->shadow + at;

			if (__atomic_load_n(word, __ATOMIC_RELAXED) != *known)
				w->lost++;
			__atomic_store_n(word, ++*known, __ATOMIC_RELAXED);
			w->writes++;
		}
		sched_yield();
	}
	return NULL;
}

static unsigned long nr_written(const struct writer *writers)
{
	unsigned long sum = 0;
	int i;

	for (i = 0; i < NR_WRITERS; i++)
		sum += __atomic_load_n(&writers[i].writes, __ATOMIC_RELAXED);
	return sum;
}

/* Writes go on during the moves with each engine. */
TEST_F_TIMEOUT(hugetlb, moves_while_written, TIMEOUT)
{
	struct writer writers[NR_WRITERS];
	atomic_bool stop = false;
	unsigned long written;
	int i, pass, node;

	mo_select("none");
	for (i = 0; i < NR_WRITERS; i++) {
		writers[i] = (struct writer) {
			.area = &self->area,
			.index = i,
			.stop = &stop,
		};
		ASSERT_EQ(pthread_create(&writers[i].thread, NULL, write_words,
					 &writers[i]), 0);
	}
	for (i = 0; mo_engine(i); i++) {
		written = nr_written(writers);
		mo_select(mo_engine(i));
		/*
		 * A writer that waits for the lock of a folio in a file holds a
		 * reference.  The folio cannot move then, with or without an
		 * engine.
		 */
		for (pass = 0; pass < 2 || pass % 2 ||
		     nr_written(writers) == written; pass++) {
			node = mo_nodes[!(pass % 2)];
			EXPECT_GE(mo_move_once(&self->area, node), 0);
		}
		mo_select("none");
	}
	stop = true;
	for (i = 0; i < NR_WRITERS; i++) {
		pthread_join(writers[i].thread, NULL);
		EXPECT_EQ(writers[i].lost, 0);
	}
	EXPECT_TRUE(mo_content_ok(&self->area));
	EXPECT_MOVES(mo_nodes[0]);
}

TEST_HARNESS_MAIN
