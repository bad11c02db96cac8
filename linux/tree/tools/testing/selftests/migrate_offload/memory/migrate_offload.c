// SPDX-License-Identifier: GPL-2.0-only
/*
 * Moves memory of each kind between two nodes, with each copy engine.  Checks
 * content, node and counters.
 *
 * ENGINE=NAME in the environment selects that engine alone.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../kselftest_harness.h"
#include "mo_area.h"
#include "mo_util.h"

#define PASSES 2	/* there and back */
#define NR_WRITERS 2
/* Emulated machines and debug kernels are slow. */
#define TIMEOUT 600

FIXTURE(memory)
{
	struct mo_area area;
};

FIXTURE_VARIANT(memory)
{
	enum mo_type type;
	size_t bytes;
	size_t folio_bytes;	/* of large folios, else 0 */
	bool read_only;		/* a write would change the type */
	bool not_eligible;	/* must not be offered to an engine */
};

FIXTURE_VARIANT_ADD(memory, anon)
{
	.type = MO_ANON,
	.bytes = SZ_1M / 2,
};

FIXTURE_VARIANT_ADD(memory, anon_16k)
{
	.type = MO_ANON,
	.bytes = SZ_1M / 2,
	.folio_bytes = 4 * SZ_4K,
};

FIXTURE_VARIANT_ADD(memory, anon_32k)
{
	.type = MO_ANON,
	.bytes = SZ_1M / 2,
	.folio_bytes = 8 * SZ_4K,
};

FIXTURE_VARIANT_ADD(memory, anon_64k)
{
	.type = MO_ANON,
	.bytes = SZ_1M / 2,
	.folio_bytes = 16 * SZ_4K,
};

FIXTURE_VARIANT_ADD(memory, anon_128k)
{
	.type = MO_ANON,
	.bytes = SZ_1M / 2,
	.folio_bytes = 32 * SZ_4K,
};

FIXTURE_VARIANT_ADD(memory, anon_256k)
{
	.type = MO_ANON,
	.bytes = SZ_1M,
	.folio_bytes = 64 * SZ_4K,
};

FIXTURE_VARIANT_ADD(memory, anon_512k)
{
	.type = MO_ANON,
	.bytes = SZ_1M,
	.folio_bytes = 128 * SZ_4K,
};

FIXTURE_VARIANT_ADD(memory, anon_1m)
{
	.type = MO_ANON,
	.bytes = SZ_2M,
	.folio_bytes = SZ_1M,
};

FIXTURE_VARIANT_ADD(memory, anon_2m)
{
	.type = MO_ANON,
	.bytes = 2 * SZ_2M,
	.folio_bytes = SZ_2M,
};

FIXTURE_VARIANT_ADD(memory, mlocked)
{
	.type = MO_MLOCKED,
	.bytes = SZ_1M / 2,
};

FIXTURE_VARIANT_ADD(memory, shmem)
{
	.type = MO_SHMEM,
	.bytes = SZ_1M / 2,
};

FIXTURE_VARIANT_ADD(memory, shmem_2m)
{
	.type = MO_SHMEM,
	.bytes = 2 * SZ_2M,
	.folio_bytes = SZ_2M,
};

FIXTURE_VARIANT_ADD(memory, tmpfs)
{
	.type = MO_TMPFS,
	.bytes = SZ_1M / 2,
};

FIXTURE_VARIANT_ADD(memory, ext4_dirty)
{
	.type = MO_EXT4,
	.bytes = SZ_1M / 2,
	.not_eligible = true,
};

FIXTURE_VARIANT_ADD(memory, ext4_clean)
{
	.type = MO_EXT4_CLEAN,
	.bytes = SZ_1M / 2,
	.read_only = true,
};

FIXTURE_VARIANT_ADD(memory, ksm)
{
	.type = MO_KSM,
	.bytes = SZ_1M / 2,
	.read_only = true,
};

FIXTURE_VARIANT_ADD(memory, swapcache)
{
	.type = MO_SWAPCACHE,
	.bytes = SZ_1M / 2,
	.read_only = true,
};

FIXTURE_VARIANT_ADD(memory, hugetlb)
{
	.type = MO_HUGETLB,
	.bytes = 2 * SZ_2M,
	.folio_bytes = SZ_2M,
};

FIXTURE_VARIANT_ADD(memory, hugetlb_shared)
{
	.type = MO_HUGETLB_SHARED,
	.bytes = 2 * SZ_2M,
	.folio_bytes = SZ_2M,
};

FIXTURE_SETUP(memory)
{
	const char *why_not = mo_cannot_run();

	if (why_not)
		SKIP(return, "%s", why_not);
	mo_reset();
	why_not = mo_map_with_patience(&self->area, variant->type,
				       variant->bytes,
				       variant->folio_bytes ?: SZ_4K);
	if (why_not)
		SKIP(return, "%s", why_not);
}

FIXTURE_TEARDOWN(memory)
{
	mo_unmap(&self->area);
	mo_reset();
}

static bool always_copies(const char *engine)
{
	return !strcmp(engine, "cpu") || !strcmp(engine, "test");
}

/* The engine gets all folios or none: mtcopy may find no idle CPU. */
TEST_F_TIMEOUT(memory, moves, TIMEOUT)
{
	struct mo_area *area = &self->area;
	const char *engine;
	int i, pass;

	for (i = 0; (engine = mo_engine(i)); i++) {
		TH_LOG("engine %s", engine);
		/* Stock Linux splits most large folios that move twice. */
		if (i && variant->folio_bytes) {
			mo_unmap(area);
			ASSERT_EQ(mo_map(area, variant->type, variant->bytes,
					 variant->folio_bytes), NULL);
		}
		/*
		 * Without this, the core would leave out an engine that is
		 * slow.
		 */
		mo_set_limit("max_unmapped_us", 0);
		mo_select(engine);
		for (pass = 0; pass < PASSES; pass++) {
			int node = mo_nodes[!(pass % 2)];
			long long copied = mo_counter("engine_bytes");
			long long offered = mo_counter("offered_folios");
			long long kept = mo_counter("not_eligible_folios") +
				mo_counter("declined_folios");

			ASSERT_EQ(mo_move(area, node), 0);
			ASSERT_TRUE(mo_content_ok(area));

			copied = mo_counter("engine_bytes") - copied;
			offered = mo_counter("offered_folios") - offered;
			kept = mo_counter("not_eligible_folios") +
				mo_counter("declined_folios") - kept;
			if (variant->not_eligible) {
				EXPECT_EQ(offered, 0);
				EXPECT_GT(kept, 0);
				continue;
			}
			EXPECT_GT(offered + kept, 0);
			/*
			 * Transient references may stop a few folios from
			 * moving.
			 */
			if (always_copies(engine))
				EXPECT_GT(copied, area->bytes /
					  (area->step / area->folio_bytes) / 2);
		}
		mo_select("none");
	}
}

/* Threads and children that use the memory during the move. */
struct mo_users {
	struct mo_area *area;
	atomic_bool stop;
	atomic_ulong writes, lost, forks, forks_wrong;
	atomic_uint nr_writers;
};

/*
 * Each writer owns one word of each page, and knows its last value.  Another
 * value in the word means that a write was lost.
 */
static void *write_words(void *arg)
{
	struct mo_users *users = arg;
	struct mo_area *area = users->area;
	size_t words = SZ_4K / sizeof(*area->shadow);
	unsigned int me = users->nr_writers++;
	size_t i, nr = area->bytes / SZ_4K;

	while (!users->stop) {
		for (i = 0; i < nr && !users->stop; i++) {
			__u64 *word = (__u64 *)area->mem + i * words + me;
			__u64 *known = area->shadow + i * words + me;

			/*
			 * The compiler must not drop this load: the page moves.
			 */
			if (__atomic_load_n(word, __ATOMIC_RELAXED) != *known)
				users->lost++;
			__atomic_store_n(word, ++*known, __ATOMIC_RELAXED);
			users->writes++;
		}
		sched_yield();
	}
	return NULL;
}

/*
 * A child sees the content at the time of its fork, but for the writers' words.
 */
static bool child_content_ok(const struct mo_area *area)
{
	size_t skip = NR_WRITERS * sizeof(*area->shadow);
	size_t i;

	for (i = 0; i < area->bytes; i += SZ_4K)
		if (memcmp(area->mem + i + skip,
			   (char *)area->shadow + i + skip, SZ_4K - skip))
			return false;
	return true;
}

static void *fork_children(void *arg)
{
	struct mo_users *users = arg;

	while (!users->stop) {
		pid_t pid = fork();
		int status;

		if (pid < 0)
			continue;
		if (!pid)
			_exit(!child_content_ok(users->area));
		if (waitpid(pid, &status, 0) != pid || status)
			users->forks_wrong++;
		users->forks++;
		usleep(1000);
	}
	return NULL;
}

/* Threads write, and children are forked, during all moves. */
TEST_F_TIMEOUT(memory, moves_in_use, TIMEOUT)
{
	int i, pass, t, nr_writers = variant->read_only ? 0 : NR_WRITERS;
	struct mo_area *area = &self->area;
	pthread_t threads[NR_WRITERS + 1];
	const char *engine;

	for (i = 0; (engine = mo_engine(i)); i++) {
		struct mo_users users = { .area = area };

		TH_LOG("engine %s", engine);
		mo_select(engine);
		for (t = 0; t < nr_writers; t++)
			ASSERT_EQ(pthread_create(&threads[t], NULL, write_words,
						 &users), 0);
		ASSERT_EQ(pthread_create(&threads[t], NULL, fork_children,
					 &users), 0);
		for (pass = 0; pass < 2 * PASSES || !users.forks ||
		     (nr_writers && !users.writes); pass++)
			ASSERT_GE(mo_move_once(area, mo_nodes[!(pass % 2)]), 0);
		users.stop = true;
		for (t = 0; t <= nr_writers; t++)
			pthread_join(threads[t], NULL);

		EXPECT_EQ(users.lost, 0);
		EXPECT_EQ(users.forks_wrong, 0);
		EXPECT_TRUE(mo_content_ok(area));
		for (pass = 0; pass < 2; pass++) {
			EXPECT_EQ(mo_move(area, mo_nodes[!pass]), 0);
			EXPECT_TRUE(mo_content_ok(area));
		}
		TH_LOG("%lu writes, %lu forks", users.writes, users.forks);
		mo_select("none");
	}
}

/* Settings of the administrator, and their effect. */
FIXTURE(policy)
{
	struct mo_area area;
};

FIXTURE_SETUP(policy)
{
	const char *why_not = mo_cannot_run();

	if (why_not)
		SKIP(return, "%s", why_not);
	mo_reset();
	ASSERT_EQ(mo_map(&self->area, MO_ANON, SZ_1M, SZ_4K), NULL);
}

FIXTURE_TEARDOWN(policy)
{
	mo_unmap(&self->area);
	mo_reset();
}

#define EXPECT_MOVES(node) do {						\
	EXPECT_EQ(mo_move(&self->area, node), 0);			\
	EXPECT_TRUE(mo_content_ok(&self->area));			\
} while (0)

TEST_F_TIMEOUT(policy, refuses_nonsense, TIMEOUT)
{
	EXPECT_EQ(mo_try_write(PATH_OFFLOAD "engine", "no-such-engine"), -EINVAL);
	EXPECT_EQ(mo_try_write(PATH_OFFLOAD "engine_of/damon", "nonsense"),
		  -EINVAL);
	EXPECT_FALSE(mo_exists(PATH_OFFLOAD "engine_of/memory_failure"));
	EXPECT_EQ(mo_try_write(PATH_DEBUG "verify", "perhaps"), -EINVAL);
	EXPECT_EQ(mo_try_write(PATH_DEBUG "verify", "2"), -EINVAL);
	EXPECT_EQ(mo_try_write(PATH_DEBUG "max_windows", "0"), -EINVAL);
	EXPECT_EQ(mo_try_write(PATH_DEBUG "max_windows", "17"), -EINVAL);
	EXPECT_EQ(mo_try_write(PATH_DEBUG "max_batch_pages", "262145"), -EINVAL);
}

TEST_F_TIMEOUT(policy, a_refused_setting_stays, TIMEOUT)
{
	char before[16], after[16];

	mo_write(PATH_OFFLOAD "max_unmapped_us", "500");
	EXPECT_EQ(mo_try_write(PATH_OFFLOAD "max_unmapped_us", "many"), -EINVAL);
	EXPECT_EQ(mo_try_write(PATH_OFFLOAD "max_unmapped_us", "-1"), -EINVAL);
	EXPECT_EQ(mo_try_write(PATH_OFFLOAD "max_unmapped_us", "4294967296"),
		  -ERANGE);
	EXPECT_EQ(mo_read_number(PATH_OFFLOAD "max_unmapped_us"), 500);
	mo_write(PATH_OFFLOAD "max_unmapped_us", "default");

	mo_read(PATH_OFFLOAD "batch_ptes", before, sizeof(before));
	EXPECT_EQ(mo_try_write(PATH_OFFLOAD "batch_ptes", "perhaps"), -EINVAL);
	mo_read(PATH_OFFLOAD "batch_ptes", after, sizeof(after));
	EXPECT_STREQ(before, after);
}

TEST_F_TIMEOUT(policy, off_is_off, TIMEOUT)
{
	long long batches = mo_counter("batches");
	long long kept = mo_counter("not_eligible_folios");

	EXPECT_MOVES(mo_nodes[1]);
	EXPECT_EQ(mo_counter("batches"), batches);
	EXPECT_EQ(mo_counter("not_eligible_folios"), kept);
}

TEST_F_TIMEOUT(policy, engine_of, TIMEOUT)
{
	long long offered = mo_counter("offered_folios");

	mo_select("cpu");
	mo_select_for("syscall_or_cpuset", "none");
	EXPECT_MOVES(mo_nodes[1]);
	EXPECT_EQ(mo_counter("offered_folios"), offered);

	mo_select("none");
	mo_select_for("syscall_or_cpuset", "cpu");
	EXPECT_MOVES(mo_nodes[0]);
	EXPECT_GT(mo_counter("offered_folios"), offered);
}

TEST_F_TIMEOUT(policy, verify_of_a_good_engine, TIMEOUT)
{
	long long copied = mo_counter("engine_bytes");
	long long wrong = mo_counter("mismatched_folios");

	mo_select("cpu");
	mo_set_limit("verify", 1);
	EXPECT_MOVES(mo_nodes[1]);
	EXPECT_GT(mo_counter("engine_bytes"), copied);
	EXPECT_EQ(mo_counter("mismatched_folios"), wrong);
}

#define MPOL_BIND 2
#define MPOL_MF_MOVE 2

/* Other system calls have counters of their own. */
TEST_F_TIMEOUT(policy, mbind, TIMEOUT)
{
	static const char path[] =
		PATH_OFFLOAD "stats/reasons/mempolicy_mbind/engine_bytes";
	long long copied = mo_read_number(path);
	unsigned long mask[4] = {};

	mask[mo_nodes[1] / 64] = 1UL << (mo_nodes[1] % 64);
	mo_select("cpu");
	ASSERT_EQ(syscall(SYS_mbind, self->area.mem, self->area.bytes,
			  MPOL_BIND, mask, 8 * sizeof(mask), MPOL_MF_MOVE), 0);
	EXPECT_EQ(mo_elsewhere(&self->area, mo_nodes[1]), 0);
	EXPECT_TRUE(mo_content_ok(&self->area));
	EXPECT_GT(mo_read_number(path), copied);
}

static struct {
	void *page;
	bool deactivate;
	atomic_bool done, stop;
} elsewhere;

/*
 * Put a page into the LRU cache of CPU 1.  madvise(2) empties the cache first,
 * and does nothing else to an absent page.  The exit of the thread drains it.
 */
static void *use_elsewhere(void *arg)
{
	mo_run_on(1);
	if (madvise(elsewhere.page, SZ_4K, MADV_COLD))
		mo_die("madvise: %m");
	if (!elsewhere.deactivate)
		__atomic_store_n((char *)elsewhere.page, 1, __ATOMIC_RELAXED);
	atomic_store(&elsewhere.done, true);
	while (!atomic_load(&elsewhere.stop))
		usleep(1000);
	return NULL;
}

/*
 * The LRU cache of another CPU may have a new page, which is on no list yet, or
 * one that will get to another list.  move_pages(2) moves both.
 */
TEST_F_TIMEOUT(policy, lru_caches, TIMEOUT)
{
	int i = 0, tries = 0, node;
	pthread_t thread;
	bool drained;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "the machine has one CPU");
	mo_run_on(0);
	elsewhere.page = mmap(NULL, SZ_4K, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(elsewhere.page, MAP_FAILED);
	mo_bind(elsewhere.page, SZ_4K);
	while (i < 2) {
		elsewhere.deactivate = i;
		elsewhere.done = false;
		elsewhere.stop = false;
		ASSERT_EQ(pthread_create(&thread, NULL, use_elsewhere, NULL), 0);
		while (!atomic_load(&elsewhere.done))
			usleep(1000);
		/* Another task of CPU 1 may have drained the cache. */
		drained = !i && mo_page_flag(elsewhere.page, KPF_LRU);
		if (!drained) {
			EXPECT_EQ(mo_move_pages(&elsewhere.page, 1,
						mo_nodes[1 - i]), 0);
			mo_query(&elsewhere.page, 1, &node);
			EXPECT_EQ(node, mo_nodes[1 - i]);
			i++;
		}
		atomic_store(&elsewhere.stop, true);
		pthread_join(thread, NULL);
		if (drained) {
			ASSERT_LT(tries++, 20);
			madvise(elsewhere.page, SZ_4K, MADV_DONTNEED);
		}
	}
	munmap(elsewhere.page, SZ_4K);
}

/* shmctl(2) marks the segment, and move_pages(2) its pages, as Linux does. */
TEST_F_TIMEOUT(policy, locked_segment, TIMEOUT)
{
	const size_t nr = 64;
	void *pages[nr];
	size_t i, marked = 0;
	char *mem;
	int id;

	id = shmget(IPC_PRIVATE, nr * SZ_4K, IPC_CREAT | 0600);
	ASSERT_GE(id, 0);
	mem = shmat(id, NULL, 0);
	/* It stays until it is detached. */
	shmctl(id, IPC_RMID, NULL);
	ASSERT_NE(mem, (void *)-1);
	mo_bind(mem, nr * SZ_4K);
	memset(mem, 1, nr * SZ_4K);
	mo_drain();
	ASSERT_EQ(shmctl(id, SHM_LOCK, NULL), 0);
	for (i = 0; i < nr; i++) {
		pages[i] = mem + i * SZ_4K;
		EXPECT_FALSE(mo_page_flag(pages[i], KPF_UNEVICTABLE));
	}
	EXPECT_EQ(mo_move_pages(pages, nr, mo_nodes[1]), 0);
	mo_drain();
	for (i = 0; i < nr; i++)
		marked += mo_page_flag(pages[i], KPF_UNEVICTABLE);
	EXPECT_EQ(marked, nr);
	EXPECT_EQ(shmctl(id, SHM_UNLOCK, NULL), 0);
	shmdt(mem);
}

TEST_HARNESS_MAIN
