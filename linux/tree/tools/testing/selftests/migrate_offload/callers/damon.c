// SPDX-License-Identifier: GPL-2.0-only
/*
 * DAMON interleaves memory of each kind between two nodes by weight.  Checks
 * the node and content of each page, and the statistics of the scheme.
 *
 * BYTES=NUMBER in the environment sets the size of kinds that can be large.
 * ENGINE=NAME selects the copy engine.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../kselftest_harness.h"
#include "mo_area.h"
#include "mo_damon.h"
#include "mo_util.h"

/* Emulated machines and debug kernels are slow. */
#define TIMEOUT 600
#define NR_WRITERS 2

static const char *setup(void)
{
	const char *why_not = mo_cannot_run();

	if (!why_not)
		why_not = mo_damon_cannot_run();
	if (!why_not && getenv("ENGINE"))
		mo_select(getenv("ENGINE"));
	return why_not;
}

static void setup_region(const struct mo_area *area, const char *ops,
			 const char *action)
{
	mo_damon_setup(ops, action, (uintptr_t)area->mem,
		       (uintptr_t)area->mem + area->bytes);
}

static unsigned long nr_folios(const struct mo_area *area)
{
	return area->bytes / area->folio_bytes;
}

/* Query the node of each folio.  With KSM, two pages share one folio. */
static int *folio_nodes(const struct mo_area *area)
{
	unsigned long i, nr = nr_folios(area);
	void **pages = malloc(nr * sizeof(*pages));
	int *nodes = malloc(nr * sizeof(*nodes));

	if (!pages || !nodes)
		mo_die("no memory");
	for (i = 0; i < nr; i++)
		pages[i] = area->mem + i * area->folio_bytes;
	mo_query(pages, nr, nodes);
	free(pages);
	return nodes;
}

/* Count the folios whose nodes differ between the two lists. */
static unsigned long nr_different(const struct mo_area *area, const int *here,
				  const int *there)
{
	unsigned long i, nr = 0;

	for (i = 0; i < nr_folios(area); i++)
		nr += here[i] != there[i];
	return nr;
}

/*
 * Apply the rule: the weights give the numbers of turns that go to the first
 * node, then to the second.
 */
static int *wanted_nodes(const struct mo_area *area, const unsigned int *weights)
{
	bool is_file = area->fd >= 0;
	unsigned long turn = is_file ? 0 : (uintptr_t)area->mem / area->folio_bytes;
	int *nodes = malloc(nr_folios(area) * sizeof(*nodes));
	unsigned long i;

	if (!nodes)
		mo_die("no memory");
	for (i = 0; i < nr_folios(area); i++)
		nodes[i] = mo_nodes[(turn + i) % (weights[0] + weights[1]) >=
				    weights[0]];
	return nodes;
}

static unsigned long nr_misplaced(const struct mo_area *area,
				  const unsigned int *weights)
{
	int *nodes = folio_nodes(area), *wanted = wanted_nodes(area, weights);
	unsigned long nr = nr_different(area, nodes, wanted);

	free(wanted);
	free(nodes);
	return nr;
}

/* A split folio has a head or a foreign frame at a power of two. */
static unsigned long nr_split(const struct mo_area *area)
{
	unsigned long i, page, nr = 0, per = area->folio_bytes / SZ_4K;

	if (per == 1)
		return 0;
	for (i = 0; i < nr_folios(area); i++) {
		const char *mem = area->mem + i * area->folio_bytes;
		__u64 pfn = mo_pfn(mem);
		bool split = pfn % per || !mo_page_flag(mem, KPF_COMPOUND_HEAD);

		for (page = 1; page < per && !split; page *= 2)
			split = mo_pfn(mem + page * SZ_4K) != pfn + page ||
				mo_page_flag(mem + page * SZ_4K,
					     KPF_COMPOUND_HEAD);
		nr += split;
	}
	return nr;
}

FIXTURE(memory)
{
	struct mo_area area;
};

FIXTURE_VARIANT(memory)
{
	enum mo_type type;
	size_t bytes;
	size_t folio_bytes;	/* of large folios, else 0 */
	bool by_ptes;		/* PTEs map the huge pages */
	bool thorough;		/* all weights, and BYTES applies */
	bool written;		/* threads write during the move */
};

FIXTURE_VARIANT_ADD(memory, anon)
{
	.type = MO_ANON,
	.bytes = 8 * SZ_1M,
	.thorough = true,
	.written = true,
};

FIXTURE_VARIANT_ADD(memory, anon_64k)
{
	.type = MO_ANON,
	.bytes = 8 * SZ_1M,
	.folio_bytes = 16 * SZ_4K,
	.written = true,
};

FIXTURE_VARIANT_ADD(memory, anon_2m)
{
	.type = MO_ANON,
	.bytes = 16 * SZ_2M,
	.folio_bytes = SZ_2M,
	.thorough = true,
	.written = true,
};

FIXTURE_VARIANT_ADD(memory, anon_2m_by_ptes)
{
	.type = MO_ANON,
	.bytes = 8 * SZ_2M,
	.folio_bytes = SZ_2M,
	.by_ptes = true,
	.written = true,
};

FIXTURE_VARIANT_ADD(memory, mlocked)
{
	.type = MO_MLOCKED,
	.bytes = SZ_1M,
};

FIXTURE_VARIANT_ADD(memory, shmem)
{
	.type = MO_SHMEM,
	.bytes = SZ_1M,
	.written = true,
};

FIXTURE_VARIANT_ADD(memory, shmem_2m)
{
	.type = MO_SHMEM,
	.bytes = 8 * SZ_2M,
	.folio_bytes = SZ_2M,
};

FIXTURE_VARIANT_ADD(memory, ext4_dirty)
{
	.type = MO_EXT4,
	.bytes = SZ_1M,
};

FIXTURE_VARIANT_ADD(memory, ext4_clean)
{
	.type = MO_EXT4_CLEAN,
	.bytes = SZ_1M,
};

FIXTURE_VARIANT_ADD(memory, swapcache)
{
	.type = MO_SWAPCACHE,
	.bytes = SZ_1M,
};

FIXTURE_SETUP(memory)
{
	const char *bytes = getenv("BYTES"), *why_not = setup();
	struct mo_area *area = &self->area;
	size_t i;

	if (why_not)
		SKIP(return, "%s", why_not);
	why_not = mo_map(area, variant->type, bytes && variant->thorough ?
			 strtoull(bytes, NULL, 0) : variant->bytes,
			 variant->folio_bytes ?: SZ_4K);
	if (why_not) {
		mo_unmap(area);
		SKIP(return, "%s", why_not);
	}
	/* Protecting a part splits the mapping of the whole folio. */
	for (i = 0; variant->by_ptes && i < area->bytes; i += SZ_2M) {
		ASSERT_EQ(mprotect(area->mem + i, SZ_4K, PROT_READ), 0);
		ASSERT_EQ(mprotect(area->mem + i, SZ_4K,
				   PROT_READ | PROT_WRITE), 0);
	}
	setup_region(area, "fvaddr", "migrate_hot");
}

FIXTURE_TEARDOWN(memory)
{
	mo_damon_remove();
	mo_unmap(&self->area);
	if (mo_exists(PATH_OFFLOAD "engine"))
		mo_select("none");
}

static const unsigned int all_weights[][2] = {
	{ 1, 1 }, { 3, 1 }, { 0, 1 }, { 1, 0 }, { 2, 5 }, { 1, 1 },
};

/* The other kinds differ in how folios move, so a few weights suffice. */
#define NR_WEIGHTS(variant) ((variant)->thorough ? ARRAY_SIZE(all_weights) : 3)

static long long copied_by_engines(void)
{
	return mo_read_number(PATH_OFFLOAD "stats/reasons/damon/engine_bytes");
}

/*
 * Each folio moves to its node, the rest stays, and then nothing moves again.
 */
TEST_F_TIMEOUT(memory, is_where_it_belongs, TIMEOUT)
{
	struct mo_area *area = &self->area;
	long long copied = copied_by_engines();
	struct mo_damon_stats before = {};
	unsigned int i;

	for (i = 0; i < NR_WEIGHTS(variant); i++) {
		const unsigned int *weights = all_weights[i];
		unsigned long out_of_place = nr_misplaced(area, weights);
		struct mo_damon_stats after;
		long long moved;

		mo_damon_set_dests(2, mo_nodes, weights);
		ASSERT_EQ(mo_damon_command(i ? "commit" : "on"), 0);
		ASSERT_TRUE(mo_damon_settles_at(area->bytes, &after));
		moved = after.sz_applied - before.sz_applied;
		before = after;
		TH_LOG("%u:%u: %lu of %lu folios move", weights[0], weights[1],
		       out_of_place, nr_folios(area));

		EXPECT_EQ(nr_misplaced(area, weights), 0);
		EXPECT_EQ(moved, out_of_place * area->folio_bytes);
		/* From 1:1 to 3:1, at most a quarter of all folios moves. */
		if (i == 1)
			EXPECT_LE(out_of_place, nr_folios(area) / 4);
		EXPECT_TRUE(mo_content_ok(area));
		EXPECT_EQ(nr_split(area), 0);
	}
	copied = copied_by_engines() - copied;
	TH_LOG("%lld bytes copied by an engine", copied);
	if (getenv("ENGINE") && variant->thorough)
		EXPECT_GT(copied, 0);
}

struct mo_writers {
	const struct mo_area *area;
	atomic_bool stop;
	atomic_ulong writes, lost;
	atomic_uint nr;
};

/* Each writer owns one word of each page, and knows its content. */
static void *write_words(void *arg)
{
	struct mo_writers *writers = arg;
	const struct mo_area *area = writers->area;
	size_t words = SZ_4K / sizeof(*area->shadow);
	unsigned int me = writers->nr++;
	size_t i, nr = area->bytes / SZ_4K;

	while (!writers->stop) {
		for (i = 0; i < nr && !writers->stop; i++) {
			__u64 *word = (__u64 *)area->mem + i * words + me;
			__u64 *known = area->shadow + i * words + me;

			if (__atomic_load_n(word, __ATOMIC_RELAXED) != *known)
				writers->lost++;
			__atomic_store_n(word, ++*known, __ATOMIC_RELAXED);
			writers->writes++;
		}
		sched_yield();
	}
	return NULL;
}

TEST_F_TIMEOUT(memory, moves_while_written, TIMEOUT)
{
	struct mo_area *area = &self->area;
	struct mo_writers writers = { .area = area };
	pthread_t threads[NR_WRITERS];
	unsigned int i, t;

	if (!variant->written)
		SKIP(return, "other variants cover this");
	for (t = 0; t < NR_WRITERS; t++)
		ASSERT_EQ(pthread_create(&threads[t], NULL, write_words,
					 &writers), 0);
	for (i = 0; i < NR_WEIGHTS(variant); i++) {
		mo_damon_set_dests(2, mo_nodes, all_weights[i]);
		ASSERT_EQ(mo_damon_command(i ? "commit" : "on"), 0);
		ASSERT_TRUE(mo_damon_settles(area->bytes));
		EXPECT_EQ(nr_misplaced(area, all_weights[i]), 0);
	}
	writers.stop = true;
	for (t = 0; t < NR_WRITERS; t++)
		pthread_join(threads[t], NULL);
	TH_LOG("%lu writes", writers.writes);
	EXPECT_GT(writers.writes, 0);
	EXPECT_EQ(writers.lost, 0);
	EXPECT_TRUE(mo_content_ok(area));
	EXPECT_EQ(nr_split(area), 0);
}

TEST_HARNESS_MAIN
