// SPDX-License-Identifier: GPL-2.0-only
/*
 * Other callers that migrate folios: mbind(2), migrate_pages(2), move_pages(2)
 * of hugetlb memory, compaction, demotion and promotion; and DAMON, for page
 * cache that no process maps.
 *
 * Each path does the same work in each pass, in its own process, so the
 * caller's memory does not move.  After each pass all pages must be on their
 * node and have their content.
 */
#include <errno.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "compaction.h"
#include "paths.h"
#include "tiers.h"

#define VMSTAT "/proc/vmstat"
#define DEMOTION_ENABLED "/sys/kernel/mm/numa/demotion_enabled"
#define BALANCING "/proc/sys/kernel/numa_balancing"
#define COMPACT "/sys/devices/system/node/node0/compact"
/* The number of bits of a node mask. */
#define MASK_BITS 64UL
/* Half of the pages are freed, and half of the rest moves: a quarter. */
#define COMPACTION_SHARE 2
/* Limits the wait for a scan of NUMA balancing: about a minute of spinning. */
#define SCAN_SPINS 1000000U
#define SCAN_POLLS 60000

/* The work of one path, and its passes, which hold the outcome. */
struct work {
	uint64_t bytes;
	struct path_pass *passes;
	unsigned int nr;
};

/* A new seed for each pass, so that stale content is detected. */
static uint64_t seed_of(unsigned int pass)
{
	return 2 * (uint64_t)pass + 2;
}

/* There and back. */
static int target_of(unsigned int pass)
{
	return pass % 2 ? 0 : 1;
}

static uint64_t vmstat(const char *name)
{
	uint64_t value;

	if (!line_read_u64(VMSTAT, name, &value))
		bench_die(BENCH_LACKING, VMSTAT " does not have %s", name);
	return value;
}

static uint64_t vmstat_flushed(const char *name)
{
	counters_flush();
	return vmstat(name);
}

static void run_mbind(const struct work *w)
{
	struct region r;

	region_allocate(&r, w->bytes, page_bytes(), 0, seed_of(0));
	for (unsigned int i = 0; i < w->nr; i++) {
		uint64_t start = bench_now_ns();

		memory_bind(r.base, r.bytes, target_of(i), MPOL_MF_MOVE);
		w->passes[i].ns = bench_now_ns() - start;
		w->passes[i].folios = r.bytes / page_bytes();
		region_check(&r, target_of(i), seed_of(0), "mbind", i);
	}
	region_unmap(&r);
}

/* Move all unshared memory of this process: a little more than @w->bytes. */
static void run_migrate_pages(const struct work *w)
{
	struct region r;

	region_allocate(&r, w->bytes, page_bytes(), 0, seed_of(0));
	for (unsigned int i = 0; i < w->nr; i++) {
		unsigned long from = 1UL << !target_of(i);
		unsigned long to = 1UL << target_of(i);
		uint64_t moved = vmstat("pgmigrate_success");
		uint64_t start = bench_now_ns();

		if (syscall(SYS_migrate_pages, 0, MASK_BITS, &from, &to) < 0)
			bench_die(BENCH_FAILED, "migrate_pages(2): %s",
				  strerror(errno));
		w->passes[i].ns = bench_now_ns() - start;
		w->passes[i].folios = vmstat("pgmigrate_success") - moved;
		region_check(&r, target_of(i), seed_of(0), "migrate_pages", i);
	}
	region_unmap(&r);
}

/* Reserve this many pages on each node.  The memory takes half of them. */
static void prepare_hugetlb(uint64_t bytes)
{
	for (int node = 0; node < 2; node++)
		hugetlb_reserve(node, PMD_BYTES, bytes);
}

static void run_hugetlb(const struct work *w)
{
	struct region r;

	region_map_hugetlb(&r, w->bytes, PMD_BYTES, 0);
	region_fill(&r, seed_of(0));
	for (unsigned int i = 0; i < w->nr; i++) {
		long ret = region_move(&r, target_of(i), &w->passes[i].ns);

		if (ret)
			bench_die(BENCH_FAILED,
				  "move_pages(2) of hugetlb returned %ld: not every page moved",
				  ret);
		w->passes[i].folios = r.bytes / r.folio_bytes;
		region_check(&r, target_of(i), seed_of(0), "hugetlb", i);
	}
	region_unmap(&r);
}

/*
 * Freed pages wait on lists of their CPU, where compaction does not find them.
 * These lists may hold an eighth of the node.
 */
static void pcp_shorten(char *old, size_t size)
{
	setting_value(PCP_FRACTION, old, size);
	setting_must_pin(PCP_FRACTION, "1000000");
}

/*
 * Use fresh memory in each pass, because compaction has defragmented the old.
 * After the first pass, the node has no other pages that can move.
 */
static void run_compaction(const struct work *w)
{
	uint64_t bytes = w->bytes * COMPACTION_SHARE, moved, start;
	struct fragments f;
	char old[24];

	pcp_shorten(old, sizeof(old));
	for (unsigned int i = 0; i < w->nr; i++) {
		if (!fragments_make(&f, bytes, 0, seed_of(i)))
			bench_die(BENCH_LACKING, "cannot fragment memory: %s",
				  strerror(errno));
		moved = vmstat("pgmigrate_success");
		start = bench_now_ns();
		if (!file_write(COMPACT, "1"))
			bench_die(BENCH_LACKING,
				  "cannot write '1' to " COMPACT ": %s",
				  strerror(errno));
		w->passes[i].ns = bench_now_ns() - start;
		w->passes[i].folios = vmstat("pgmigrate_success") - moved;
		region_check(&f.region, 0, seed_of(i), "compaction", i);
		fragments_free(&f);
	}
	setting_must_pin(PCP_FRACTION, old);
}

static uint64_t demoted_pages(void)
{
	uint64_t proactive = 0, others;

	others = vmstat_flushed("pgdemote_kswapd") + vmstat("pgdemote_direct") +
		 vmstat("pgdemote_khugepaged");
	/* Newer kernels count demotion by memory.reclaim apart. */
	line_read_u64(VMSTAT, "pgdemote_proactive", &proactive);
	return others + proactive;
}

/* Verify memory that may have moved only in part, and count moved pages. */
static uint64_t moved_pages(const struct region *r, int from, int to,
			    uint64_t seed, const char *path, unsigned int pass)
{
	struct run o = { .from = from, .to = to };
	struct placement p;

	placement_read(r, &o, &p);
	region_check_content(r, seed, path, pass);
	return p.to_bytes / page_bytes();
}

static void prepare_demotion(uint64_t bytes)
{
	(void)bytes;
	setting_must_pin(DEMOTION_ENABLED, "true");
}

static void run_demotion(const struct work *w)
{
	cgroup_open();
	for (unsigned int i = 0; i < w->nr; i++) {
		uint64_t demoted, start, moved;
		struct region r;

		region_allocate(&r, w->bytes, page_bytes(), 0, seed_of(i));
		if (madvise(r.base, r.bytes, MADV_COLD))
			bench_die(BENCH_LACKING, "madvise(MADV_COLD): %s",
				  strerror(errno));
		demoted = demoted_pages();
		start = bench_now_ns();
		cgroup_reclaim(w->bytes);
		w->passes[i].ns = bench_now_ns() - start;
		demoted = demoted_pages() - demoted;
		w->passes[i].folios = demoted;
		moved = moved_pages(&r, 0, 1, seed_of(i), "demotion", i);
		if (!moved || moved > demoted)
			bench_die(moved ? BENCH_FAILED : BENCH_LACKING,
				  "Linux says it demoted %llu pages, and %llu are on node 1: is that of a slower tier (see /sys/devices/virtual/memory_tiering)?",
				  (unsigned long long)demoted,
				  (unsigned long long)moved);
		region_unmap(&r);
	}
	cgroup_close();
}

/*
 * Wait until NUMA balancing has made all memory inaccessible.  This happens
 * after a second of CPU time, and not again for another one.
 */
static void scan_wait(uint64_t nr_pages)
{
	uint64_t before = vmstat("numa_pte_updates"), seen = 0;

	setting_must_pin(BALANCING, "2");
	for (unsigned int i = 0; i < SCAN_POLLS && seen < nr_pages; i++) {
		for (volatile unsigned int spin = 0; spin < SCAN_SPINS; spin++)
			;
		seen = vmstat("numa_pte_updates") - before;
	}
	if (seen < nr_pages)
		bench_die(BENCH_LACKING,
			  "NUMA balancing looked at %llu of %llu pages: is node 1 of a slower tier (see /sys/devices/virtual/memory_tiering)?",
			  (unsigned long long)seen,
			  (unsigned long long)nr_pages);
}

/* Use one memory for all passes: it is scanned once, and touched in parts. */
static void run_promotion(const struct work *w)
{
	size_t page = page_bytes();
	struct region r;

	region_allocate(&r, w->bytes * w->nr, page, 1, seed_of(0));
	memory_unbind(r.base, r.bytes);
	region_drain_lru(&r);
	scan_wait(r.bytes / page);
	for (unsigned int i = 0; i < w->nr; i++) {
		const volatile char *part = r.base + i * w->bytes;
		uint64_t promoted = vmstat_flushed("pgpromote_success");
		uint64_t start = bench_now_ns();

		for (size_t off = 0; off < w->bytes; off += page)
			(void)part[off];
		w->passes[i].ns = bench_now_ns() - start;
		w->passes[i].folios =
			vmstat_flushed("pgpromote_success") - promoted;
	}
	setting_must_pin(BALANCING, "0");
	if (moved_pages(&r, 1, 0, seed_of(0), "promotion", 0) * page != r.bytes)
		bench_die(BENCH_FAILED, "not all %zu pages were promoted",
			  r.bytes / page);
	region_unmap(&r);
}

/*
 * A process must map page cache to see where it is.  So map it before and after
 * each pass.  DAMON moves it meanwhile, with few other files in between.
 */
static void move_unmapped(const struct work *w, const struct region *r,
			  const char *path)
{
	/* Otherwise the kernel takes mapped pages for used ones. */
	if (madvise(r->base, r->bytes, MADV_RANDOM))
		bench_die(BENCH_FAILED, "madvise(MADV_RANDOM): %s",
			  strerror(errno));
	region_drain_lru(r);
	for (unsigned int i = 0; i < w->nr; i++) {
		static struct physical ranges[MAX_RANGES];
		uint64_t moved;
		size_t nr;

		region_touch(r);
		nr = region_ranges(r, ranges);
		if (!nr)
			bench_die(BENCH_LACKING, "cannot see physical addresses");
		madvise(r->base, r->bytes, MADV_DONTNEED);
		moved = vmstat("pgmigrate_success");
		w->passes[i].ns = damon_move(ranges, nr, target_of(i));
		w->passes[i].folios = vmstat("pgmigrate_success") - moved;
		region_touch(r);
		region_check(r, target_of(i), seed_of(0), path, i);
	}
}

static void run_cached(const struct work *w)
{
	struct region r;

	region_map_file(&r, w->bytes, 0, seed_of(0));
	move_unmapped(w, &r, "cached");
	region_unmap(&r);
}

static void run_tmpfs(const struct work *w)
{
	struct region r;

	region_map_shared(&r, w->bytes, 0);
	region_fill(&r, seed_of(0));
	move_unmapped(w, &r, "tmpfs");
	region_unmap(&r);
}

const char *const path_names[NR_PATHS + 1] = {
	[PATH_MOVE_PAGES] = "move_pages",
	[PATH_MBIND] = "mbind",
	[PATH_MIGRATE_PAGES] = "migrate_pages",
	[PATH_HUGETLB] = "hugetlb",
	[PATH_COMPACTION] = "compaction",
	[PATH_DEMOTION] = "demotion",
	[PATH_PROMOTION] = "promotion",
	[PATH_CACHED] = "cached",
	[PATH_TMPFS] = "tmpfs",
};

static const struct path {
	bool huge;
	/* Set up; the program restores all settings at its end. */
	void (*prepare)(uint64_t bytes);
	void (*run)(const struct work *w);
} paths[NR_PATHS] = {
	[PATH_MBIND] = { .run = run_mbind },
	[PATH_MIGRATE_PAGES] = { .run = run_migrate_pages },
	[PATH_HUGETLB] = { .huge = true,
			   .prepare = prepare_hugetlb,
			   .run = run_hugetlb },
	[PATH_COMPACTION] = { .run = run_compaction },
	[PATH_DEMOTION] = { .prepare = prepare_demotion, .run = run_demotion },
	[PATH_PROMOTION] = { .run = run_promotion },
	[PATH_CACHED] = { .run = run_cached },
	[PATH_TMPFS] = { .run = run_tmpfs },
};

size_t path_folio_bytes(enum path_kind kind)
{
	return paths[kind].huge ? PMD_BYTES : page_bytes();
}

/* Bytes of a node that are needed to move @bytes @nr times. */
uint64_t path_needs(enum path_kind kind, uint64_t bytes, unsigned int nr)
{
	if (kind == PATH_PROMOTION)
		return bytes * nr;
	return kind == PATH_COMPACTION ? bytes * COMPACTION_SHARE : bytes;
}

/* Run in a child, and end the program if the child fails. */
static void child_run(void (*run)(const struct work *w), const struct work *w)
{
	if (!settings_fork(&settings_child)) {
		/* After SIGTERM, clean up what the path has made. */
		settings_on_interrupt();
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		run(w);
		/* The parent restores the settings that it pinned. */
		_exit(BENCH_OK);
	}
	settings_child_wait();
}

/* Move @bytes @nr times, and report the time of each. */
void path_run(enum path_kind kind, uint64_t bytes, struct path_pass *passes,
	      unsigned int nr)
{
	size_t size = nr * sizeof(*passes);
	struct work w = { .bytes = bytes, .nr = nr };

	w.passes = mmap(NULL, size, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (w.passes == MAP_FAILED)
		bench_die(BENCH_LACKING, "cannot map %zu bytes: %s", size,
			  strerror(errno));
	if (paths[kind].prepare)
		paths[kind].prepare(bytes);
	child_run(paths[kind].run, &w);
	for (unsigned int i = 0; i < nr; i++)
		if (!w.passes[i].folios)
			bench_die(BENCH_FAILED, "%s, pass %u: nothing moved",
				  path_names[kind], i);
	memcpy(passes, w.passes, size);
	munmap(w.passes, size);
}
