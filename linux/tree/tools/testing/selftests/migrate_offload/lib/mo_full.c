// SPDX-License-Identifier: GPL-2.0-only
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mo_full.h"
#include "mo_util.h"

/* These small pages stay free. */
#define ROOM_BYTES (96 * SZ_1M)
/* No emulated machine has more. */
#define MUCH_BYTES (4096 * SZ_1M)
#define HUGE_ORDER 9
#define MPOL_BIND 2
#define PATH_UNEVICTABLE "/proc/sys/vm/compact_unevictable_allowed"
#define PATH_FRACTION "/proc/sys/vm/percpu_pagelist_high_fraction"
#define PATH_REFRESH "/proc/sys/vm/stat_refresh"
#define REFRESHES 64

static char was[16], was_fraction[16];

static char *map_on(int node, size_t bytes, int advice)
{
	unsigned long mask[4] = {};
	char *mem = mmap(NULL, bytes + SZ_2M, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		mo_die("cannot map memory: %m");
	mem = (char *)(((uintptr_t)mem + SZ_2M - 1) & ~(SZ_2M - 1));
	mask[node / 64] = 1UL << (node % 64);
	if (syscall(SYS_mbind, mem, bytes, MPOL_BIND, mask, 8 * sizeof(mask), 0))
		mo_die("cannot bind memory: %m");
	if (madvise(mem, bytes, advice))
		mo_die("madvise: %m");
	return mem;
}

/* Lock the first page of each block, and free the others. */
static void lock_one_of_each(char *room)
{
	size_t i, first = 0, nr = ROOM_BYTES / SZ_4K;
	__u64 *pfns = malloc(nr * sizeof(*pfns));

	if (!pfns)
		mo_die("no memory");
	mo_pfns(room, nr, pfns);
	for (i = 1; i <= nr; i++) {
		if (i < nr && pfns[i] >> HUGE_ORDER == pfns[first] >> HUGE_ORDER)
			continue;
		if (mlock(room + first * SZ_4K, SZ_4K))
			mo_die("mlock: %m");
		if (i - first > 1 &&
		    madvise(room + (first + 1) * SZ_4K,
			    (i - first - 1) * SZ_4K, MADV_DONTNEED))
			mo_die("madvise: %m");
		first = i;
	}
	free(pfns);
}

/*
 * Each CPU has lists of free pages, among them huge ones.  Another CPU does not
 * find these.  So shorten the lists, to less than one huge page.  Each refresh of
 * the statistics takes an eighth of a list that is too long.
 */
static void shorten_lists(void)
{
	char text[4096];
	int i;

	mo_write(PATH_FRACTION, "1000000");
	for (i = 0; i < REFRESHES; i++)
		mo_read(PATH_REFRESH, text, sizeof(text));
}

/* Take all huge pages of a node, and those that compaction makes. */
static bool take_huge(int node)
{
	char *mem = map_on(node, MUCH_BYTES, MADV_HUGEPAGE);
	bool found;
	size_t i = 0;

	do {
		mo_write(PATH_COMPACT, "1");
		for (found = false; i < MUCH_BYTES; found = true) {
			char *block = mem + i;

			block[0] = 1;
			i += SZ_2M;
			if (!mo_page_flag(block, KPF_COMPOUND_HEAD))
				break;
		}
	} while (found && i < MUCH_BYTES);
	return i < MUCH_BYTES;
}

const char *mo_full(int node)
{
	char *room;

	if (!was[0]) {
		mo_read(PATH_UNEVICTABLE, was, sizeof(was));
		mo_read(PATH_FRACTION, was_fraction, sizeof(was_fraction));
	}
	mo_write(PATH_UNEVICTABLE, "0");
	room = map_on(node, ROOM_BYTES, MADV_NOHUGEPAGE);
	memset(room, 1, ROOM_BYTES);
	lock_one_of_each(room);
	shorten_lists();
	return take_huge(node) ? NULL : "the machine has too much memory";
}

void mo_full_end(void)
{
	if (was[0]) {
		mo_write(PATH_UNEVICTABLE, was);
		mo_write(PATH_FRACTION, was_fraction);
	}
	was[0] = '\0';
}
