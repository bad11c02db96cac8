// SPDX-License-Identifier: GPL-2.0
/*
 * Large folios that page tables map by PTEs (mTHP) stay whole when they
 * migrate, however often.  If a part of a folio is unmapped, migration splits
 * the folio, even if that part was unmapped during an earlier migration.
 */
#include "../kselftest_harness.h"

#include <fcntl.h>
#include <numa.h>
#include <numaif.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vm_util.h"

#define PATH_THP	"/sys/kernel/mm/transparent_hugepage/"
#define NR_FOLIOS	16
#define NR_MOVES	6
#define NR_ROUNDS	100
/* Migration is best effort: another CPU may hold a reference for a moment. */
#define MAX_TRIES	10

#define KPF_HEAD	BIT_ULL(15)
#define KPF_TAIL	BIT_ULL(16)

struct counters {
	unsigned long split;
	unsigned long split_deferred;
	unsigned long partially_mapped;
};

FIXTURE(migrate_mthp)
{
	char enabled[16];
	char *room;
	char *mem;
	size_t folio_size;
	size_t size;
	int nodes[2];
	int pagemap;
	int kpageflags;
};

FIXTURE_VARIANT(migrate_mthp)
{
	int order;
};

/* The smallest order whose folios can be queued for deferred split. */
FIXTURE_VARIANT_ADD(migrate_mthp, order_2)
{
	.order = 2,
};

FIXTURE_VARIANT_ADD(migrate_mthp, order_4)
{
	.order = 4,
};

static void path_of(char *path, size_t len, size_t folio_size, const char *name)
{
	snprintf(path, len, PATH_THP "hugepages-%zukB/%s", folio_size >> 10,
		 name);
}

/* Read the chosen one of several words: the one in brackets. */
static bool read_enabled(size_t folio_size, char *word, size_t len)
{
	char path[128], line[128], *from, *to;
	FILE *file;

	path_of(path, sizeof(path), folio_size, "enabled");
	file = fopen(path, "r");
	if (!file)
		return false;
	from = fgets(line, sizeof(line), file) ? strchr(line, '[') : NULL;
	to = from ? strchr(from, ']') : NULL;
	fclose(file);
	if (!to || to - from > len)
		return false;
	*to = 0;
	snprintf(word, len, "%s", from + 1);
	return true;
}

static bool write_enabled(size_t folio_size, const char *word)
{
	char path[128];
	FILE *file;
	bool ok;

	path_of(path, sizeof(path), folio_size, "enabled");
	file = fopen(path, "w");
	if (!file)
		return false;
	ok = fputs(word, file) >= 0;
	return !fclose(file) && ok;
}

static unsigned long read_counter(size_t folio_size, const char *name)
{
	unsigned long value = 0;
	char path[128];
	FILE *file;

	path_of(path, sizeof(path), folio_size, name);
	file = fopen(path, "r");
	if (!file)
		return 0;
	if (fscanf(file, "%lu", &value) != 1)
		value = 0;
	fclose(file);
	return value;
}

static struct counters read_counters(size_t folio_size)
{
	return (struct counters) {
		.split = read_counter(folio_size, "stats/split"),
		.split_deferred = read_counter(folio_size,
					       "stats/split_deferred"),
		.partially_mapped = read_counter(folio_size,
					"stats/nr_anon_partially_mapped"),
	};
}

/* The kernel's flags of the page at @addr, or 0 if no page is mapped there. */
static uint64_t flags_at(FIXTURE_DATA(migrate_mthp) * self, char *addr,
			 unsigned long *pfn)
{
	uint64_t flags;

	*pfn = pagemap_get_pfn(self->pagemap, addr);
	if (*pfn == -1UL)
		return 0;
	if (pread(self->kpageflags, &flags, sizeof(flags),
		  *pfn * sizeof(flags)) != sizeof(flags))
		return 0;
	return flags;
}

static bool is_whole(FIXTURE_DATA(migrate_mthp) * self, char *folio)
{
	unsigned long i, pfn, first;

	if (!(flags_at(self, folio, &first) & KPF_HEAD))
		return false;
	for (i = 1; i < self->folio_size / psize(); i++)
		if (!(flags_at(self, folio + i * psize(), &pfn) & KPF_TAIL) ||
		    pfn != first + i)
			return false;
	return true;
}

static unsigned int nr_whole(FIXTURE_DATA(migrate_mthp) * self)
{
	unsigned int nr = 0;
	size_t at;

	for (at = 0; at < self->size; at += self->folio_size)
		nr += is_whole(self, self->mem + at);
	return nr;
}

/* Count pages that belong to a large folio. */
static unsigned int nr_in_large(FIXTURE_DATA(migrate_mthp) * self)
{
	unsigned int nr = 0;
	unsigned long pfn;
	size_t at;

	for (at = 0; at < self->size; at += psize())
		nr += !!(flags_at(self, self->mem + at, &pfn) &
			 (KPF_HEAD | KPF_TAIL));
	return nr;
}

/* Move each folio, by its first page.  Returns how many are elsewhere. */
static unsigned int move_to(FIXTURE_DATA(migrate_mthp) * self, int node)
{
	int nodes[NR_FOLIOS], status[NR_FOLIOS], tries, i;
	void *pages[NR_FOLIOS];
	unsigned int left = 0;

	for (i = 0; i < NR_FOLIOS; i++) {
		pages[i] = self->mem + i * self->folio_size;
		nodes[i] = node;
	}
	for (tries = 0; tries < MAX_TRIES; tries++) {
		if (numa_move_pages(0, NR_FOLIOS, pages, nodes, status,
				    MPOL_MF_MOVE) < 0)
			return NR_FOLIOS;
		numa_move_pages(0, NR_FOLIOS, pages, NULL, status, 0);
		for (left = 0, i = 0; i < NR_FOLIOS; i++)
			left += status[i] != node;
		if (!left)
			break;
	}
	return left;
}

static void populate(FIXTURE_DATA(migrate_mthp) * self)
{
	size_t at;

	madvise(self->mem, self->size, MADV_DONTNEED);
	for (at = 0; at < self->size; at += psize())
		memset(self->mem + at, 1 + at / psize() % 255, psize());
}

static bool content_is_right(FIXTURE_DATA(migrate_mthp) * self)
{
	size_t at;

	for (at = 0; at < self->size; at++)
		if (self->mem[at] != (char)(1 + at / psize() % 255))
			return false;
	return true;
}

FIXTURE_SETUP(migrate_mthp)
{
	int node, nr = 0;

	self->folio_size = psize() << variant->order;
	self->size = NR_FOLIOS * self->folio_size;

	if (geteuid())
		SKIP(return, "Needs root, to read page frame numbers");
	if (numa_available() < 0)
		SKIP(return, "NUMA not available");
	for (node = 0; node <= numa_max_node() && nr < 2; node++)
		if (numa_bitmask_isbitset(numa_all_nodes_ptr, node))
			self->nodes[nr++] = node;
	if (nr < 2)
		SKIP(return, "Needs two NUMA nodes with memory");
	if (!read_enabled(self->folio_size, self->enabled,
			  sizeof(self->enabled)))
		SKIP(return, "No large folios of this size");

	self->pagemap = open("/proc/self/pagemap", O_RDONLY);
	ASSERT_GE(self->pagemap, 0);
	self->kpageflags = open("/proc/kpageflags", O_RDONLY);
	if (self->kpageflags < 0)
		SKIP(return, "No /proc/kpageflags");

	self->room = mmap(NULL, self->size + self->folio_size,
			  PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	ASSERT_NE(self->room, MAP_FAILED);
	self->mem = (char *)(((uintptr_t)self->room + self->folio_size - 1) &
			     ~(self->folio_size - 1));
	ASSERT_EQ(madvise(self->mem, self->size, MADV_HUGEPAGE), 0);
	numa_tonode_memory(self->mem, self->size, self->nodes[0]);
	ASSERT_TRUE(write_enabled(self->folio_size, "madvise"));
	populate(self);
	if (nr_whole(self) < NR_FOLIOS) {
		/* A fixture that skips has no teardown. */
		write_enabled(self->folio_size, self->enabled);
		SKIP(return, "The kernel did not allocate large folios");
	}
}

FIXTURE_TEARDOWN(migrate_mthp)
{
	munmap(self->room, self->size + self->folio_size);
	write_enabled(self->folio_size, self->enabled);
	close(self->kpageflags);
	close(self->pagemap);
}

TEST_F(migrate_mthp, stays_whole)
{
	struct counters before = read_counters(self->folio_size), after;
	int i;

	for (i = 1; i <= NR_MOVES; i++) {
		ASSERT_EQ(move_to(self, self->nodes[i % 2]), 0);
		ASSERT_EQ(nr_whole(self), NR_FOLIOS) {
			TH_LOG("after move %d", i);
		}
		ASSERT_TRUE(content_is_right(self));
	}
	after = read_counters(self->folio_size);
	EXPECT_EQ(after.split, before.split);
	EXPECT_EQ(after.split_deferred, before.split_deferred);
	EXPECT_EQ(after.partially_mapped, before.partially_mapped);
}

/* Migration splits a folio of which a part is unmapped. */
TEST_F(migrate_mthp, is_split_if_partially_mapped)
{
	struct counters before = read_counters(self->folio_size), after;
	size_t at, half = self->folio_size / 2;
	int tries;

	for (at = 0; at < self->size; at += self->folio_size)
		ASSERT_EQ(madvise(self->mem + at + half, half, MADV_DONTNEED),
			  0);
	after = read_counters(self->folio_size);
	EXPECT_EQ(after.partially_mapped, before.partially_mapped + NR_FOLIOS);

	for (tries = 1; tries <= MAX_TRIES && nr_in_large(self); tries++)
		ASSERT_EQ(move_to(self, self->nodes[tries % 2]), 0);
	EXPECT_EQ(nr_in_large(self), 0);
	after = read_counters(self->folio_size);
	EXPECT_EQ(after.split, before.split + NR_FOLIOS);
	EXPECT_EQ(after.partially_mapped, before.partially_mapped);
}

static void *unmap_last_pages(void *arg)
{
	FIXTURE_DATA(migrate_mthp) * self = arg;
	size_t at;

	for (at = self->folio_size; at <= self->size; at += self->folio_size)
		madvise(self->mem + at - psize(), psize(), MADV_DONTNEED);
	return NULL;
}

/*
 * A thread unmaps a page of each folio while the folio migrates.  If the page
 * has a migration entry at that moment, only the code that maps the folio again
 * can see that the folio is now partially mapped.
 */
TEST_F_TIMEOUT(migrate_mthp, is_split_if_unmapped_meanwhile, 300)
{
	pthread_t thread;
	int round, tries;

	for (round = 0; round < NR_ROUNDS; round++) {
		populate(self);
		ASSERT_EQ(pthread_create(&thread, NULL, unmap_last_pages, self),
			  0);
		for (tries = 1; tries <= 2; tries++)
			move_to(self, self->nodes[tries % 2]);
		ASSERT_EQ(pthread_join(thread, NULL), 0);
		for (tries = 1; tries <= MAX_TRIES && nr_in_large(self);
		     tries++)
			ASSERT_EQ(move_to(self, self->nodes[tries % 2]), 0);
		ASSERT_EQ(nr_in_large(self), 0) {
			TH_LOG("in round %d", round);
		}
	}
}

TEST_HARNESS_MAIN
