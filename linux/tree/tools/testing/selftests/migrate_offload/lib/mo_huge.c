// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of hugetlb.  The pools of both nodes grow by enough pages to move the
 * memory there and back, and to hold a copy.  A write after a fork() makes such
 * a copy.  Pools of pages larger than 2M get no spare pages, because some
 * kernels can reserve these only at boot.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include "mo_area.h"
#include "mo_util.h"

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif

#define POOL_TIMES 3

static void pool_path(char *path, size_t size, int node, size_t page_bytes,
		      const char *which)
{
	snprintf(path, size,
		 "/sys/devices/system/node/node%d/hugepages/hugepages-%zukB/%s",
		 node, page_bytes / 1024, which);
}

long long mo_huge_pages(int node, size_t page_bytes, const char *which)
{
	char path[128];

	pool_path(path, sizeof(path), node, page_bytes, which);
	return mo_read_number(path);
}

/* Add pages to the pool, or remove some.  Returns how many were added. */
static long long add_pages(int node, size_t page_bytes, long long nr)
{
	long long before;
	char path[128];

	pool_path(path, sizeof(path), node, page_bytes, "nr_hugepages");
	before = mo_read_number(path);
	mo_write_number(path, before + nr);
	return mo_read_number(path) - before;
}

/* Returns the number of pages by which the pool has to grow. */
static long long missing_pages(const struct mo_area *area, int node)
{
	long long nr = area->bytes / area->folio_bytes, free;

	if (area->folio_bytes <= SZ_2M)
		return POOL_TIMES * nr;
	free = mo_huge_pages(node, area->folio_bytes, "free_hugepages");
	return free < nr ? nr - free : 0;
}

/* Check that the kernel has pages of this size, and fill the pools. */
static const char *fill_pools(struct mo_area *area)
{
	size_t page = area->folio_bytes;
	char path[128];
	int i;

	pool_path(path, sizeof(path), mo_nodes[0], page, "nr_hugepages");
	if (!mo_exists(path))
		return "no hugetlb pages of this size in this kernel";
	for (i = 0; i < 2; i++) {
		long long nr = missing_pages(area, mo_nodes[i]);

		if (nr)
			area->pool[i] = add_pages(mo_nodes[i], page, nr);
		if (area->pool[i] < nr)
			return "no memory for hugetlb pages of this size";
	}
	return NULL;
}

void mo_unmap_huge(const struct mo_area *area)
{
	int i;

	for (i = 0; i < 2; i++)
		if (area->pool[i])
			add_pages(mo_nodes[i], area->folio_bytes,
				  -area->pool[i]);
}

static unsigned int huge_flags(const struct mo_area *area)
{
	return (unsigned int)__builtin_ctzl(area->folio_bytes) << MAP_HUGE_SHIFT;
}

/* The size limit of this file system reserves its pages. */
static const char *open_huge_file(struct mo_area *area)
{
	char options[64];

	snprintf(options, sizeof(options), "pagesize=%zu,size=%zu",
		 area->folio_bytes, area->bytes);
	if (!mo_mount(area, "hugetlbfs", "hugetlbfs", options))
		return "cannot mount hugetlbfs";
	mo_open_file(area);
	return NULL;
}

const char *mo_map_huge(struct mo_area *area)
{
	int flags = area->type == MO_HUGETLB ?
		    MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	const char *why_not = fill_pools(area);

	if (why_not)
		return why_not;
	if (area->type == MO_HUGETLB_SHARED) {
		area->fd = memfd_create("migrate_offload",
					MFD_HUGETLB | huge_flags(area));
		if (area->fd < 0)
			return "no memfd of hugetlb pages";
	}
	if (area->type == MO_HUGETLB_FILE)
		why_not = open_huge_file(area);
	if (why_not)
		return why_not;
	if (area->fd >= 0 && ftruncate(area->fd, area->bytes))
		mo_die("cannot make a file larger: %m");
	if (area->type == MO_HUGETLB)
		flags |= MAP_HUGETLB | huge_flags(area);
	area->mem = mmap(NULL, area->bytes, PROT_READ | PROT_WRITE, flags,
			 area->fd, 0);
	if (area->mem == MAP_FAILED)
		mo_die("cannot map hugetlb pages: %m");
	area->mapped = area->mem;
	area->mapped_bytes = area->bytes;
	mo_bind(area->mem, area->bytes);
	mo_fill(area);
	return NULL;
}
