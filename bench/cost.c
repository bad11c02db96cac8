// SPDX-License-Identifier: GPL-2.0-only
/*
 * How many instructions does it take to migrate a folio?
 *
 * In a QEMU guest with "-accel tcg -icount shift=0,sleep=off" and one CPU, a
 * nanosecond of guest time is one instruction.  This program moves a list of
 * folios back and forth with move_pages(2) and reports the time of each pass.
 * As /init of an initramfs it runs alone, and the same image gives the same
 * digits every time.  Elsewhere the figures are plain nanoseconds.
 *
 * An option selects other callers that migrate folios: see common/paths.c.
 *
 * Base pages and PMD folios are the same on every pass.  Stock Linux splits
 * folios of other sizes on their second migration.  For these sizes, every move
 * counts, beginning with the first one of fresh memory.
 */
#include <assert.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/paths.h"
#include "common/run.h"

#define MAX_PASSES 64
#define SCATTER_BYTES (48UL << 20)
/* The first two passes fill caches and free lists. */
#define WARM_UP_PASSES 2
/* Folios between 4K and 2M go there and back five times. */
#define MIDDLE_PASSES 10

struct options {
	struct run run;		/* between nodes 0 and 1, with one variant */
	uint64_t base_pages;
	uint64_t huge_pages;
	uint64_t middle_bytes;
	uint64_t scatter;
	uint64_t passes;
	struct word_list kinds;
	struct word_list paths;
	const char *image;
};

static struct options opts = {
	.run = { .sizes_text = "4K,2M",
		 .variants = { { .engine = "off", .threads = 1 } } },
	.base_pages = 8192,
	.huge_pages = 16,
	.middle_bytes = 16UL << 20,
	.passes = 4,
	.kinds.nr = 1,
	.paths.nr = 1,
};

static const struct variant *const variant = &opts.run.variants[0];

/* --pages takes all kinds at once. */
static_assert(NR_PAGES_KINDS <= MAX_WORDS, "a word_list is too short");

static const struct option_row rows[] = {
	ROW_ENGINE(&opts.run.variants[0]),
	ROW_MODULE(&opts.run.modules),
	{ "paths", "LIST",
	  "callers to measure: move_pages, mbind, migrate_pages, hugetlb,\n"
	  "demotion, promotion, cached, tmpfs, compaction\n"
	  "(default move_pages)", set_words,
	  &opts.paths, 0, 0, path_names },
	{ "base-pages", "N", "4K pages in the list (default 8192)", set_u64,
	  &opts.base_pages, 1, 1 << 24, NULL },
	{ "huge-pages", "N", "2M folios in the list (default 16)", set_u64,
	  &opts.huge_pages, 1, 1 << 16, NULL },
	{ "middle-bytes", "N", "of lists of folios in between (default 16M)",
	  set_bytes, &opts.middle_bytes, PMD_BYTES, UINT64_MAX, NULL },
	ROW_SIZES(&opts.run, "4K to 2M (default 4K,2M)"),
	{ "pages", "LIST",
	  "what base pages are: runs, random, shared, shared16,\n"
	  "shmem, shmem16, file, file16, mlocked, ksm,\n"
	  "inherited, mixed, watched (default runs)", set_words,
	  &opts.kinds, 0, 0, pages_names },
	{ "image", "FILE",
	  "an ext4 image to copy to a RAM disk, which files are\n"
	  "then on (default: they are in this directory)", set_text,
	  &opts.image, 0, 0, NULL },
	{ "scatter", "SEED",
	  "leave holes of this pattern in both nodes' free memory\n"
	  "first (default 0: none)", set_u64, &opts.scatter, 0, UINT32_MAX,
	  NULL },
	{ "passes", "N", "passes that count, even (default 4); 2 come first",
	  set_u64, &opts.passes, 2, MAX_PASSES - WARM_UP_PASSES, NULL },
	{ 0 },
};

static const struct program program = {
	.name = "cost",
	.about = "Moves lists of folios back and forth between nodes 0 and 1 and prints the\n"
		 "nanoseconds of each pass: instructions, under QEMU's icount. Can be /init.",
	.example = "--engine mtcopy --module /mtcopy.ko",
	.options = rows,
};

static void check_options(struct options *o)
{
	run_read_sizes(&o->run);
	if (o->passes % 2)
		bench_die(BENCH_USAGE, "--passes must be even: there and back");
}

static bool other_paths(const struct options *o)
{
	return o->paths.nr > 1 || o->paths.at[0] != PATH_MOVE_PAGES;
}

/*
 * The places of free pages decide how often the buddy allocator splits and
 * merges blocks.  So take memory, and free three of four pages in an order that
 * the seed decides.  The others are never freed.
 */
static void scatter(const struct options *o, int node)
{
	uint64_t seed = o->scatter;
	size_t page = page_bytes();
	struct region r;

	region_map(&r, SCATTER_BYTES, page, node);
	region_fill(&r, seed);
	for (size_t i = 0; i < SCATTER_BYTES / page; i++) {
		seed = random_step(seed);
		if (seed >> 62)
			madvise(r.base + i * page, page, MADV_DONTNEED);
	}
	/* Paths that move all memory of a process run in children. */
	if (other_paths(o))
		madvise(r.map, r.map_bytes, MADV_DONTFORK);
}

static void one_pass(const struct region *r, unsigned int pass, uint64_t seed,
		     uint64_t *elapsed_ns)
{
	int node = pass % 2 ? 0 : 1;
	long ret = region_move(r, node, elapsed_ns);

	if (ret)
		bench_die(BENCH_FAILED,
			  "pass %u: move_pages(2) returned %ld: not every page moved",
			  pass, ret);
	region_check(r, node, seed, variant->engine, pass);
}

static size_t split_folios(const struct region *r)
{
	size_t nr_split;

	if (!region_count_split(r, &nr_split))
		bench_die(BENCH_LACKING, "no page flags to look at");
	return nr_split;
}

static void check_whole(const struct region *r, const char *when)
{
	size_t nr_split = split_folios(r);

	if (nr_split)
		bench_die(BENCH_FAILED,
			  "%zu folios do not have %zu bytes %s the passes",
			  nr_split, r->folio_bytes, when);
}

/* A counter of the kernel for folios of one size; 0 if it has none. */
static uint64_t folio_stat(size_t folio_bytes, const char *name)
{
	char path[128];
	uint64_t value;

	snprintf(path, sizeof(path),
		 "/sys/kernel/mm/transparent_hugepage/hugepages-%zukB/stats/%s",
		 folio_bytes >> 10, name);
	return file_read_u64(path, &value) ? value : 0;
}

/* The descriptors that dcbm has submitted, and those that had to interrupt. */
struct transfers {
	uint64_t descriptors;
	uint64_t interrupts;
};

static struct transfers transfers_read(void)
{
	struct transfers sum = { 0 };
	glob_t found;

	if (glob("/sys/module/dcbm/channels/*", 0, NULL, &found))
		return sum;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		char path[PATH_MAX];
		uint64_t value;

		snprintf(path, sizeof(path), "%s/descriptors", found.gl_pathv[i]);
		if (file_read_u64(path, &value))
			sum.descriptors += value;
		snprintf(path, sizeof(path), "%s/interrupts", found.gl_pathv[i]);
		if (file_read_u64(path, &value))
			sum.interrupts += value;
	}
	globfree(&found);
	return sum;
}

/* Before the passes. */
static struct transfers begun;

static void work_begin(struct counters *work)
{
	counters_read(work, false);
	begun = transfers_read();
}

static void json_per_1000(const char *name, uint64_t number, uint64_t moved)
{
	if (strcmp(variant->engine, "dcbm"))
		json_null(name);
	else
		json_u64(name, (number * 1000 + moved / 2) / moved);
}

/*
 * Open a line of @nr folios in @passes, with the @work of the engine since
 * work_begin(), in which @moved folios moved.
 */
static void cost_begin(size_t folio_bytes, uint64_t nr, const uint64_t *ns,
		       unsigned int passes, struct counters *work, uint64_t moved)
{
	struct transfers after = transfers_read();
	uint64_t bytes;

	counters_read(work, true);
	bytes = work->value[ENGINE_BYTES];
	json_begin("cost");
	json_str("engine", variant->engine);
	json_u64("folio_bytes", folio_bytes);
	json_u64("folios", nr);
	json_u64_array("pass_ns", ns, passes);
	/*
	 * Only this engine copies exactly as the kernel does without an engine.
	 */
	if (work->known[ENGINE_NS] && bytes && !strcmp(variant->engine, "cpu"))
		json_u64("copy_instructions", work->value[ENGINE_NS] /
						      (bytes / folio_bytes));
	else
		json_null("copy_instructions");
	json_u64_or_null("engine_bytes", work->known[ENGINE_BYTES], bytes);
	json_per_1000("descriptors_per_1000_folios",
		      after.descriptors - begun.descriptors, moved);
	json_per_1000("interrupts_per_1000_folios",
		      after.interrupts - begun.interrupts, moved);
}

/* All passes are equal but the first two, which do not count. */
static void measure(const struct options *o, const struct region *r,
		    const char *pages)
{
	unsigned int passes = WARM_UP_PASSES + o->passes;
	size_t folio_bytes = r->folio_bytes;
	struct counters work = engine_counters(variant);
	uint64_t pass_ns[MAX_PASSES];

	check_whole(r, "before");
	work_begin(&work);
	for (unsigned int pass = 0; pass < passes; pass++)
		one_pass(r, pass, folio_bytes, &pass_ns[pass]);
	check_whole(r, "after");
	cost_begin(folio_bytes, r->bytes / folio_bytes,
		   pass_ns + WARM_UP_PASSES, o->passes, &work,
		   r->bytes / folio_bytes * passes);
	if (pages)
		json_str("pages", pages);
	verified_end();
}

/*
 * At each interval the kernel lowers the limits of the CPU's lists of free
 * pages.  The CPU then gives more pages back to their nodes.  Some passes take 2%
 * more instructions.  Do this only as init: a long interval ends an hour late.
 */
static void keep_free_lists(void)
{
	if (getpid() != 1)
		return;
	setting_must_pin("/proc/sys/vm/stat_interval", "3600");
	/* Work that waits has the old interval. */
	bench_sleep_ns(3000000000ULL);
}

/*
 * Lower the limits of the CPU's lists of free pages to their minimum.  A figure
 * then depends less on the one before it.  A flush takes an eighth off a limit.
 */
static void shorten_free_lists(void)
{
	for (int i = 0; i < 64; i++)
		counters_flush();
}

static void measure_base(const struct options *o)
{
	for (size_t i = 0; i < o->kinds.nr; i++) {
		struct pages pages;

		shorten_free_lists();
		pages_make(&pages, o->kinds.at[i], o->base_pages * page_bytes(),
			   page_bytes());
		measure(o, &pages.region, pages_names[o->kinds.at[i]]);
		pages_free(&pages);
	}
}

static void measure_huge(const struct options *o)
{
	struct region r;

	folio_size_select(PMD_BYTES);
	shorten_free_lists();
	region_map(&r, o->huge_pages * PMD_BYTES, PMD_BYTES, 0);
	region_fill(&r, PMD_BYTES);
	measure(o, &r, NULL);
	region_unmap(&r);
}

/* Move and free memory once, so that free lists are as in later passes. */
static void warm_up(size_t folio_bytes, uint64_t bytes)
{
	uint64_t elapsed_ns;
	struct region r;

	region_map(&r, bytes, folio_bytes, 0);
	region_fill(&r, folio_bytes);
	one_pass(&r, 0, folio_bytes, &elapsed_ns);
	region_unmap(&r);
}

/* Each pass may differ from the previous one, because folios may be split. */
static void measure_middle(const struct options *o, size_t folio_bytes)
{
	static const char *const stats[] = { "nr_anon_partially_mapped", "split",
					     "split_deferred" };
	uint64_t pass_ns[MIDDLE_PASSES], was[ARRAY_SIZE(stats)];
	struct counters work = engine_counters(variant);
	struct region r;

	folio_size_select(folio_bytes);
	shorten_free_lists();
	warm_up(folio_bytes, o->middle_bytes);
	region_map(&r, o->middle_bytes, folio_bytes, 0);
	region_fill(&r, folio_bytes);
	check_whole(&r, "before");
	for (size_t i = 0; i < ARRAY_SIZE(stats); i++)
		was[i] = folio_stat(folio_bytes, stats[i]);
	work_begin(&work);
	for (unsigned int pass = 0; pass < MIDDLE_PASSES; pass++) {
		/* One entry for each folio as it is now. */
		struct region now = r;

		if (split_folios(&r))
			now.folio_bytes = page_bytes();
		one_pass(&now, pass, folio_bytes, &pass_ns[pass]);
	}

	cost_begin(folio_bytes, o->middle_bytes / folio_bytes, pass_ns,
		   MIDDLE_PASSES, &work,
		   o->middle_bytes / folio_bytes * MIDDLE_PASSES);
	json_u64("split_folios", split_folios(&r));
	for (size_t i = 0; i < ARRAY_SIZE(stats); i++)
		json_u64(stats[i], folio_stat(folio_bytes, stats[i]) - was[i]);
	verified_end();
	region_unmap(&r);
}

static uint64_t path_bytes(const struct options *o, enum path_kind kind)
{
	if (path_folio_bytes(kind) == PMD_BYTES)
		return o->huge_pages * PMD_BYTES;
	return o->base_pages * page_bytes();
}

static void measure_path(const struct options *o, enum path_kind kind)
{
	unsigned int passes = WARM_UP_PASSES + o->passes;
	uint64_t ns[MAX_PASSES], folios[MAX_PASSES], moved = 0;
	size_t folio_bytes = path_folio_bytes(kind);
	struct counters work = engine_counters(variant);
	struct path_pass pass[MAX_PASSES];

	shorten_free_lists();
	work_begin(&work);
	path_run(kind, path_bytes(o, kind), pass, passes);
	for (unsigned int i = 0; i < passes; i++) {
		ns[i] = pass[i].ns;
		folios[i] = pass[i].folios;
		moved += folios[i];
	}

	cost_begin(folio_bytes, folios[WARM_UP_PASSES], ns + WARM_UP_PASSES,
		   o->passes, &work, moved);
	json_str("path", path_names[kind]);
	json_u64_array("pass_folios", folios + WARM_UP_PASSES, o->passes);
	verified_end();
}

static void measure_sizes(const struct options *o)
{
	for (size_t i = 0; i < o->run.nr_sizes; i++) {
		size_t size = o->run.sizes[i];

		if (size == page_bytes())
			measure_base(o);
		else if (size == PMD_BYTES)
			measure_huge(o);
		else
			measure_middle(o, size);
	}
}

static uint64_t list_bytes(const struct options *o, size_t folio_bytes)
{
	if (folio_bytes == page_bytes())
		return o->base_pages * folio_bytes;
	if (folio_bytes == PMD_BYTES)
		return o->huge_pages * folio_bytes;
	return o->middle_bytes;
}

static void check_free(const struct options *o)
{
	uint64_t most = 0, bytes;

	for (size_t i = 0; i < o->run.nr_sizes; i++) {
		bytes = list_bytes(o, o->run.sizes[i]);
		most = bytes > most ? bytes : most;
	}
	for (size_t i = 0; i < o->paths.nr; i++) {
		bytes = path_needs(o->paths.at[i], path_bytes(o, o->paths.at[i]),
				   WARM_UP_PASSES + o->passes);
		most = bytes > most ? bytes : most;
	}
	for (int node = 0; node < 2; node++)
		node_check_free(node, most);
}

int main(int argc, char **argv)
{
	struct run *r = &opts.run;

	become_init();
	options_parse(&program, argc, argv);
	check_options(&opts);
	/* This changes the layout of memory a little. */
	if (getpid() == 1 && other_paths(&opts))
		mount_or_die("cgroup2", "/sys/fs/cgroup");
	if (opts.image)
		files_on_image(opts.image);
	check_free(&opts);
	modules_load(&r->modules);
	engine_check(variant);

	settings_restore_on_exit();
	settings_on_interrupt();
	json_begin("environment");
	json_str("bench", "cost");
	machine_report();
	engine_report();
	machine_quiet();
	json_end();
	keep_free_lists();

	for (int node = 0; opts.scatter && node < 2; node++)
		scatter(&opts, node);
	engine_prepare();
	engine_select(variant);
	/* Emulated time says nothing about caches, so do not let it choose. */
	engine_copy_as_stock(true);
	for (size_t i = 0; i < opts.paths.nr; i++) {
		if (opts.paths.at[i] == PATH_MOVE_PAGES)
			measure_sizes(&opts);
		else
			measure_path(&opts, opts.paths.at[i]);
	}
	run_done();
	return BENCH_OK;
}
