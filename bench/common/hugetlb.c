// SPDX-License-Identifier: GPL-2.0-only
/* Memory of hugetlb, and its pools. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"

#define POOL_TRIES 3
#define MAX_HELD 4

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif

/* Memory from the pools, which signal handlers read. */
static struct {
	void *volatile map;	/* NULL: not in use; set last */
	size_t bytes;
} held[MAX_HELD];

static void pool_path(char *buf, size_t size, int node, size_t folio_bytes,
		      const char *name)
{
	snprintf(buf, size,
		 "/sys/devices/system/node/node%d/hugepages/hugepages-%zukB/%s",
		 node, folio_bytes >> 10, name);
}

static uint64_t pool_read(int node, size_t folio_bytes, const char *name)
{
	uint64_t value;
	char path[128];

	pool_path(path, sizeof(path), node, folio_bytes, name);
	if (!file_read_u64(path, &value))
		bench_die(BENCH_LACKING, "cannot read %s: %s", path,
			  strerror(errno));
	return value;
}

bool hugetlb_supported(size_t folio_bytes)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%zukB",
		 folio_bytes >> 10);
	return !access(path, F_OK);
}

/*
 * Async-signal-safe.  Release the memory before the pools shrink, because a
 * pool removes free pages alone.  If more pages are in use than it is to keep,
 * on any node, the kernel marks free pages as surplus for good.
 * (set_max_huge_pages() of 6.12 compares all pages in use with pages that are
 * not surplus.) A thread that still uses the memory gets other memory in its
 * place, which no code reads any more.
 */
static void let_go(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(held); i++) {
		void *map = held[i].map;

		if (map)
			mmap(map, held[i].bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
				     MAP_FIXED,
			     -1, 0);
	}
}

static void hold(const struct region *r)
{
	for (size_t i = 0; i < ARRAY_SIZE(held); i++) {
		if (held[i].map)
			continue;
		held[i].bytes = r->map_bytes;
		atomic_signal_fence(memory_order_seq_cst);
		held[i].map = r->map;
		return;
	}
	bench_die(BENCH_FAILED, "too many regions of huge pages at a time");
}

/* Call this after the region is unmapped. */
void region_forget_hugetlb(const struct region *r)
{
	for (size_t i = 0; i < ARRAY_SIZE(held); i++)
		if (held[i].map == r->map)
			held[i].map = NULL;
}

/*
 * Grow the pool of @node by @bytes, until the settings are restored.  Memory of
 * region_map_hugetlb() is released before that.
 */
void hugetlb_reserve(int node, size_t folio_bytes, uint64_t bytes)
{
	uint64_t wanted = bytes / folio_bytes, free = 0;
	char path[128];
	uint64_t before;

	settings_restore_after(let_go);
	pool_path(path, sizeof(path), node, folio_bytes, "nr_hugepages");
	before = pool_read(node, folio_bytes, "nr_hugepages");
	for (int try = 0; try < POOL_TRIES; try++) {
		/* The kernel may add fewer pages, without an error. */
		setting_must_pin(path, decimal(before + wanted).text);
		free = pool_read(node, folio_bytes, "free_hugepages");
		if (free >= wanted)
			return;
		file_write("/proc/sys/vm/compact_memory", "1");
	}
	bench_die(BENCH_LACKING,
		  "node %d gave %llu of %llu huge pages of %zu bytes: its memory is in use or fragmented, move less, or reserve them when the machine boots (hugepagesz=, hugepages=)",
		  node, (unsigned long long)free, (unsigned long long)wanted,
		  folio_bytes);
}

/* Map private memory for @node.  No page of it is allocated yet. */
void region_map_hugetlb(struct region *r, size_t bytes, size_t folio_bytes,
			int node)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB |
		    __builtin_ctzl(folio_bytes) << MAP_HUGE_SHIFT;

	*r = (struct region){ .bytes = bytes,
			      .folio_bytes = folio_bytes,
			      .node = node,
			      .map_bytes = bytes,
			      .hugetlb = true };
	r->map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (r->map == MAP_FAILED)
		bench_die(BENCH_LACKING,
			  "cannot map %zu bytes of huge pages: %s", bytes,
			  strerror(errno));
	hold(r);
	r->base = r->map;
	memory_bind(r->base, bytes, node, 0);
}
