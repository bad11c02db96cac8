// SPDX-License-Identifier: GPL-2.0-only
/* Memory that is in use, and the kernel's part of it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "footprint.h"

/* Call @found for each line of a file.  Returns false if there is no file. */
static bool each_line(const char *path, void (*found)(const char *line,
						      struct footprint *f),
		      struct footprint *f)
{
	FILE *file = fopen(path, "re");
	char line[512];

	if (!file)
		return false;
	while (fgets(line, sizeof(line), file))
		found(line, f);
	fclose(file);
	return true;
}

static void add_meminfo(const char *line, struct footprint *f)
{
	unsigned long long kib;

	if (sscanf(line, "MemTotal: %llu kB", &kib) == 1)
		f->used_bytes += kib << 10;
	if (sscanf(line, "Slab: %llu kB", &kib) == 1)
		f->slab_bytes += kib << 10;
	if (sscanf(line, "Percpu: %llu kB", &kib) == 1)
		f->percpu_bytes += kib << 10;
}

/* Free pages include those on the lists of CPUs, which MemFree leaves out. */
static void subtract_free(const char *line, struct footprint *f)
{
	unsigned long long pages;

	if (sscanf(line, " pages free %llu", &pages) == 1 ||
	    sscanf(line, " count: %llu", &pages) == 1)
		f->used_bytes -= pages * page_bytes();
}

static void add_pool(const char *line, struct footprint *f)
{
	static const char *const pools[] = { "migrate_part", "migrate_windows",
					     "dcbm_job", NULL };
	unsigned long long objects;
	char name[64];

	if (sscanf(line, "%63s %llu", name, &objects) == 2 &&
	    parse_word(name, pools) >= 0)
		f->pool_objects += objects;
}

void footprint_read(struct footprint *f)
{
	*f = (struct footprint){ 0 };
	counters_flush();
	if (!each_line("/proc/meminfo", add_meminfo, f) ||
	    !each_line("/proc/zoneinfo", subtract_free, f))
		bench_die(BENCH_LACKING,
			  "cannot read /proc/meminfo and /proc/zoneinfo: %s",
			  strerror(errno));
	f->knows_pools = each_line("/proc/slabinfo", add_pool, f);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Caches of free objects breathe, so the least of several counts. */
void footprint_least(struct footprint *f, const struct footprint *other)
{
	f->used_bytes = least(f->used_bytes, other->used_bytes);
	f->slab_bytes = least(f->slab_bytes, other->slab_bytes);
	f->percpu_bytes = least(f->percpu_bytes, other->percpu_bytes);
	f->pool_objects = least(f->pool_objects, other->pool_objects);
	f->knows_pools = other->knows_pools;
}
