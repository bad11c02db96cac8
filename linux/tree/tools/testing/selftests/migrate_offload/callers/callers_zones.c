// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callers that need the physical memory: a contiguous range, a memory block,
 * frames that must not be pinned, or frames about to fail.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mo_area.h"
#include "mo_callers.h"
#include "mo_uring.h"
#include "mo_util.h"

#define MPOL_BIND 2
#define KPF_RESERVED 32
#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif

#define PATH_NODES "/sys/devices/system/node/"
#define PATH_BLOCKS "/sys/devices/system/memory/"
#define PATH_PCP_FRACTION "/proc/sys/vm/percpu_pagelist_high_fraction"
#define PATH_CONTIG PATH_TEST "alloc_contig"
#define PATH_UNPOISON "/sys/kernel/debug/hwpoison/unpoison-pfn"

#define SMALL_BYTES (SZ_1M / 2)
#define NR_LARGE 2
/* The test gives back every other page of this. */
#define FRAGMENTED_BYTES (16 * SZ_1M)
#define NR_SOFT_OFFLINE 4
/* Page frames of one contiguous range. */
#define NR_CONTIG (SZ_2M / SZ_4K)
#define MAX_TRIES 5
#define WAIT_US 100000
/* Memory of a node that stays free while map_in_once() takes the rest. */
#define KEEP_FREE_KB (64 * 1024)

/* Map small and large folios.  All of them have to move. */
static const char *map_both(struct mo_trip *trip)
{
	const char *why_not = mo_trip_map(trip, NR_LARGE * SZ_2M, SZ_2M);

	return why_not ?: mo_trip_map(trip, SMALL_BYTES, SZ_4K);
}

/* Parse a line "key   123" of /proc/zoneinfo. */
static bool find_number(const char *line, const char *key,
			unsigned long long *number)
{
	line += strspn(line, " ");
	return !strncmp(line, key, strlen(key)) &&
		sscanf(line + strlen(key), "%llu", number) == 1;
}

/* Find the frames of a node's ZONE_MOVABLE. */
static bool movable_zone(int node, struct mo_range *zone)
{
	FILE *file = fopen("/proc/zoneinfo", "r");
	unsigned long long start = 0, spanned = 0;
	char line[256], name[32];
	bool here = false;
	int nid;

	if (!file)
		mo_die("cannot open /proc/zoneinfo: %m");
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Node %d, zone %31s", &nid, name) == 2)
			here = nid == node && !strcmp(name, "Movable");
		if (!here)
			continue;
		find_number(line, "spanned", &spanned);
		find_number(line, "start_pfn:", &start);
	}
	fclose(file);
	zone->start = start;
	zone->end = start + spanned;
	return spanned > 0;
}

static unsigned long long free_kb(int node)
{
	unsigned long long kb = 0;
	char path[96], line[256];
	FILE *file;

	snprintf(path, sizeof(path), PATH_NODES "node%d/meminfo", node);
	file = fopen(path, "r");
	if (!file)
		mo_die("cannot open %s: %m", path);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Node %*d MemFree: %llu", &kb) == 1)
			break;
	fclose(file);
	return kb;
}

static bool in_range(struct mo_range range, __u64 pfn)
{
	return range.start <= pfn && pfn < range.end;
}

/*
 * Take memory of a node until the next free page is in this range, then map a
 * trip there.  Other processes may take that memory first: then the trip has
 * too little to move.  Returns NULL, or the reason.
 */
static const char *map_in_once(struct mo_trip *trip, int node,
			       struct mo_range range)
{
	unsigned long mask[4] = {}, max = free_kb(node) * 1024;
	const char *why_not;
	char *hog, *mem;

	hog = mmap(NULL, max + SZ_2M, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (hog == MAP_FAILED)
		mo_die("cannot map memory: %m");
	mask[node / 64] = 1UL << (node % 64);
	if (syscall(SYS_mbind, hog, max, MPOL_BIND, mask, 8 * sizeof(mask), 0))
		mo_die("cannot bind memory to node %d: %m", node);
	madvise(hog, max, MADV_HUGEPAGE);

	mem = (char *)(((size_t)hog + SZ_2M - 1) & ~(SZ_2M - 1));
	for (; free_kb(node) > KEEP_FREE_KB; mem += SZ_2M) {
		*mem = 1;
		if (in_range(range, mo_pfn(mem)))
			break;
	}
	madvise(mem, SZ_2M, MADV_DONTNEED);
	why_not = map_both(trip);
	if (!why_not && node != mo_nodes[0] &&
	    mo_move(&trip->areas[0], node) + mo_move(&trip->areas[1], node))
		mo_die("memory that cannot be moved");
	munmap(hog, max + SZ_2M);
	if (why_not)
		return why_not;

	trip->away = range;
	trip->must_move = mo_trip_bytes_in(trip, range);
	return NULL;
}

static const char *map_in(struct mo_trip *trip, int node, struct mo_range range)
{
	const char *why_not;
	int tries;

	for (tries = 0; tries < MAX_TRIES; tries++) {
		mo_trip_unmap(trip);
		why_not = map_in_once(trip, node, range);
		if (why_not || trip->must_move >= SZ_2M)
			return why_not;
	}
	return "cannot allocate memory there";
}

static void compact_second_node(void)
{
	char path[96];

	snprintf(path, sizeof(path), PATH_NODES "node%d/compact", mo_nodes[1]);
	mo_write(path, "1");
}

static char pcp_was[32];

/*
 * Free every other page, as a program does that exits.  Use the second node,
 * where other programs have little memory.  Their pages could fill the holes
 * first, if these pages lie below the area.
 */
static const char *prepare_compaction(struct mo_trip *trip)
{
	const char *why_not;
	char path[96];
	size_t i;

	snprintf(path, sizeof(path), PATH_NODES "node%d/compact", mo_nodes[1]);
	if (!mo_exists(path))
		return "no compaction in this kernel";
	why_not = mo_trip_map(trip, FRAGMENTED_BYTES, SZ_4K);
	if (why_not)
		return why_not;
	if (mo_move(&trip->areas[0], mo_nodes[1]))
		mo_die("memory that cannot be moved");
	/* Return freed pages to the zone, not to the list of a CPU. */
	mo_read(PATH_PCP_FRACTION, pcp_was, sizeof(pcp_was));
	mo_write(PATH_PCP_FRACTION, "1000000");
	for (i = 1; i < FRAGMENTED_BYTES / SZ_4K; i += 2) {
		madvise(trip->areas[0].mem + i * SZ_4K, SZ_4K, MADV_DONTNEED);
		mo_expect_byte(&trip->areas[0], i, 0);
	}
	trip->every = 2;
	/*
	 * Compaction moves pages to free memory higher up, also to holes of the
	 * area.  So only a part has to move.
	 */
	trip->must_move = FRAGMENTED_BYTES / 64;
	return NULL;
}

static void go_by_compaction(struct mo_trip *trip)
{
	int tries;

	for (tries = 0; tries < MAX_TRIES; tries++) {
		compact_second_node();
		if (mo_trip_moved(trip) >= trip->must_move)
			break;
		usleep(WAIT_US);
	}
}

static void finish_compaction(struct mo_trip *trip)
{
	if (pcp_was[0])
		mo_write(PATH_PCP_FRACTION, pcp_was);
	pcp_was[0] = '\0';
}

const struct mo_caller mo_compaction = {
	.reason = "compaction",
	.prepare = prepare_compaction,
	.go = go_by_compaction,
	.finish = finish_compaction,
	.may_stay = true,
};

/* The memory block that goes offline. */
static unsigned int block;
static bool block_is_gone;

static void block_path(char *path, size_t size, const char *file)
{
	snprintf(path, size, PATH_BLOCKS "memory%u/%s", block, file);
}

static bool block_is_online(void)
{
	char path[96], state[32];

	block_path(path, sizeof(path), "state");
	if (!mo_exists(path))
		return false;
	mo_read(path, state, sizeof(state));
	return !strcmp(state, "online\n");
}

/*
 * Returns true if the range has reserved frames, and so cannot go offline.
 * Boot reserves memory anywhere.
 */
static bool has_reserved(struct mo_range range)
{
	size_t i, nr = range.end - range.start;
	__u64 *flags = calloc(nr, sizeof(*flags));
	bool found = false;

	if (!flags)
		mo_die("no memory");
	mo_page_flags(range.start, nr, flags);
	for (i = 0; i < nr; i++)
		found |= !!(flags[i] & (1ULL << KPF_RESERVED));
	free(flags);
	return found;
}

static const char *prepare_unplug(struct mo_trip *trip)
{
	struct mo_range zone, range;
	char number[32];
	__u64 pages;

	if (!mo_exists(PATH_BLOCKS "block_size_bytes"))
		return "no memory that can be removed in this kernel";
	if (!movable_zone(mo_nodes[1], &zone))
		return "the second node has no ZONE_MOVABLE (boot with movablecore=)";
	mo_read(PATH_BLOCKS "block_size_bytes", number, sizeof(number));
	pages = strtoull(number, NULL, 16) / SZ_4K;

	range.start = (zone.start + pages - 1) / pages * pages;
	for (;; range.start += pages) {
		range.end = range.start + pages;
		if (range.end > zone.end)
			return "no memory block that can be removed";
		block = range.start / pages;
		if (block_is_online() && !has_reserved(range))
			return map_in(trip, mo_nodes[1], range);
	}
}

static void go_by_unplug(struct mo_trip *trip)
{
	char path[96];
	int ret = 0, tries;

	block_path(path, sizeof(path), "state");
	for (tries = 0; tries < MAX_TRIES && !block_is_gone; tries++) {
		ret = mo_try_write(path, "offline");
		block_is_gone = !ret;
		if (ret)
			usleep(WAIT_US);
	}
	if (ret)
		printf("# cannot set memory%u offline: %s\n", block,
		       strerror(-ret));
}

static void finish_unplug(struct mo_trip *trip)
{
	char path[96];

	if (!block_is_gone)
		return;
	block_path(path, sizeof(path), "state");
	mo_write(path, "online_movable");
	block_is_gone = false;
}

const struct mo_caller mo_hot_unplug = {
	.reason = "memory_hotplug",
	.prepare = prepare_unplug,
	.go = go_by_unplug,
	.finish = finish_unplug,
};

/* One ring for each area. */
static struct mo_uring *rings[2];

static const char *prepare_pin(struct mo_trip *trip)
{
	struct mo_range zone;
	unsigned int n;

	if (!movable_zone(mo_nodes[0], &zone))
		return "the first node has no ZONE_MOVABLE (boot with movablecore=)";
	for (n = 0; n < 2; n++)
		rings[n] = mo_uring_open();
	if (!rings[0] || !rings[1])
		return "no io_uring in this kernel";
	return map_in(trip, mo_nodes[0], zone);
}

/*
 * Registering a buffer pins it for long.  Such pages must leave ZONE_MOVABLE.
 */
static void go_by_pin(struct mo_trip *trip)
{
	unsigned int n;

	for (n = 0; n < trip->nr_areas; n++)
		if (!mo_uring_register(rings[n], trip->areas[n].mem,
				       trip->areas[n].bytes))
			mo_die("cannot register a buffer: %m");
	for (n = 0; n < trip->nr_areas; n++)
		mo_uring_unregister(rings[n]);
}

const struct mo_caller mo_longterm_pin = {
	.reason = "longterm_pin",
	.prepare = prepare_pin,
	.go = go_by_pin,
};

/*
 * CMA, virtio-mem and huge pages of 1 GiB use alloc_contig_range().  The test
 * module has a file that calls it.
 */
static const char *prepare_contig(struct mo_trip *trip)
{
	const char *why_not;

	if (!mo_load_test_engine(MO_TEST_PLAIN))
		return "no migrate_offload_test";
	if (!mo_exists(PATH_CONTIG))
		return "no alloc_contig_range() in this kernel";
	why_not = map_both(trip);
	/* The range around a small folio may contain pages that cannot move. */
	trip->must_move = trip->areas[0].bytes;
	return why_not;
}

/* Allocate the contiguous range around a page. */
static void alloc_around(__u64 pfn)
{
	__u64 start = pfn / NR_CONTIG * NR_CONTIG;
	char text[48];
	int tries;

	snprintf(text, sizeof(text), "%llu %lu", start, NR_CONTIG);
	for (tries = 0; tries < MAX_TRIES; tries++)
		if (!mo_try_write(PATH_CONTIG, text))
			break;
}

static void go_by_contig(struct mo_trip *trip)
{
	size_t i, n;

	for (n = 0; n < trip->nr_areas; n++) {
		const struct mo_area *area = &trip->areas[n];

		for (i = 0; i < area->bytes / SZ_4K; i++)
			/* The page may have moved with an earlier range. */
			if (mo_pfn(area->mem + i * SZ_4K) == trip->pfns[n][i])
				alloc_around(trip->pfns[n][i]);
	}
}

/* The loaded module watches all migration, so unload it. */
static void finish_contig(struct mo_trip *trip)
{
	const char *const unload[] = { "modprobe", "-r", "migrate_offload_test",
				       NULL };

	if (mo_exists("/sys/module/migrate_offload_test"))
		mo_run(unload);
}

const struct mo_caller mo_contig_alloc = {
	.reason = "contig_range",
	.prepare = prepare_contig,
	.go = go_by_contig,
	.finish = finish_contig,
};

static const char *prepare_soft_offline(struct mo_trip *trip)
{
	const char *why_not;

	if (!mo_exists(PATH_UNPOISON))
		return "no CONFIG_MEMORY_FAILURE, or no CONFIG_HWPOISON_INJECT";
	why_not = mo_trip_map(trip, SMALL_BYTES, SZ_4K);
	trip->must_move = NR_SOFT_OFFLINE * SZ_4K;
	return why_not;
}

static void go_by_soft_offline(struct mo_trip *trip)
{
	char *mem = trip->areas[0].mem;
	unsigned int i, tries;
	int ret;

	for (i = 0; i < NR_SOFT_OFFLINE; i++) {
		for (tries = 0; tries < MAX_TRIES; tries++) {
			ret = madvise(mem + i * SZ_4K, SZ_4K, MADV_SOFT_OFFLINE);
			if (!ret)
				break;
			usleep(WAIT_US);
		}
		if (ret)
			printf("# cannot offline page %u: %m\n", i);
	}
}

/* Unpoison the frames, or other tests could not use the memory around them. */
static void heal(struct mo_trip *trip)
{
	unsigned int i;

	for (i = 0; trip->pfns[0] && i < NR_SOFT_OFFLINE; i++) {
		__u64 flags;

		mo_page_flags(trip->pfns[0][i], 1, &flags);
		if (flags & (1ULL << KPF_HWPOISON))
			mo_write_number(PATH_UNPOISON, trip->pfns[0][i]);
	}
}

const struct mo_caller mo_soft_offline = {
	.prepare = prepare_soft_offline,
	.go = go_by_soft_offline,
	.finish = heal,
};
