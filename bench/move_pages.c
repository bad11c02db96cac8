// SPDX-License-Identifier: GPL-2.0-only
/*
 * How fast does move_pages(2) move memory from one node to another?
 *
 * For every folio size and engine, one call moves a fixed total that was
 * freshly allocated on the source node.  All variants, and plain memcpy as
 * the limit, take turns within each round, so that whatever slows the machine
 * down for a while slows all of them.  After each call the node of every page
 * is asked from the kernel and every byte is compared: a wrong one ends the
 * program with status 1.
 */
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bench.h"
#include "common/engine.h"
#include "common/limit.h"

#define MAX_SIZES 16
#define MAX_VARIANTS 32	/* of which so many are no limits: */
#define MAX_ENGINES 16
#define MAX_ROUNDS 10000
#define MAX_MODULES 8

enum busy_mode { BUSY_NO, BUSY_ONLY, BUSY_BOTH };

struct options {
	int from, to;
	bool hugetlb;
	size_t sizes[MAX_SIZES];
	size_t nr_sizes;
	uint64_t total_bytes;
	unsigned int rounds;
	struct variant variants[MAX_VARIANTS];
	size_t nr_variants;
	enum busy_mode busy;
	const char *max_unmapped_us;	/* or NULL: as it is */
	const char *sabotage;
	const char *modules[MAX_MODULES];
	size_t nr_modules;
	cpu_set_t cpus;
	int cpu;
};

struct sample {
	const struct variant *variant;
	size_t folio_bytes;
	bool busy;
	unsigned int round;	/* 0 warms up and does not count */
	uint64_t elapsed_ns;
	uint64_t hog_iterations;
	size_t nr_split;
	bool split_known;
	uint64_t engine_bytes;
	bool engine_bytes_known;
};

static const char usage_text[] =
	"usage: move_pages [options]\n"
	"\n"
	"Moves memory between two NUMA nodes, verifies every page and byte, and\n"
	"prints one JSON object per measurement.\n"
	"\n"
	"  --from NODE, --to NODE  nodes (default 0 and 1)\n"
	"  --sizes LIST            folio sizes, 4K to 2M (default 4K,64K,2M)\n"
	"  --hugetlb               memory of hugetlb, up to 1G (default 2M); its pools\n"
	"                          grow meanwhile\n"
	"  --total-bytes SIZE      moved by each call (default 256M)\n"
	"  --rounds N              that count; one more comes first (default 5)\n"
	"  --variants LIST         stock, off, cpu, mtcopy[:threads=N], dcbm[:channels=N]\n"
	"                          (default stock)\n"
	"  --limit LIST            memcpy with so many threads (default 1), or none\n"
	"  --max-unmapped-us N     how long a folio may be out of reach, 0: without\n"
	"                          bounds (default: as it is)\n"
	"  --busy no|only|both     a hog on every CPU meanwhile (default no)\n"
	"  --cpu CPU               where the caller runs (default: first of --from)\n"
	"  --module FILE           load this kernel module first; may be repeated;\n"
	"                          'FILE.ko NAME=VALUE' with parameters\n"
	"  --sabotage content|node spoil one page before the check, which must\n"
	"                          then fail (for tests)\n"
	"  --help\n"
	"\n"
	"example: move_pages --sizes 64K,2M --variants stock,mtcopy:threads=2\n";

/* Limits come after --variants, whatever the order on the command line. */
static void parse_limits(struct options *o, const char *text)
{
	char words[MAX_VARIANTS - MAX_ENGINES][64];
	size_t nr;

	if (!strcmp(text, "none"))
		return;
	nr = parse_list(text, words, ARRAY_SIZE(words));
	if (!nr)
		option_invalid("limit", text);
	for (size_t i = 0; i < nr; i++)
		o->variants[o->nr_variants++] = (struct variant){
			.engine = "limit",
			.threads = (unsigned int)option_u64("limit", words[i], 1,
							64),
			.limit = true,
		};
}

static void parse_busy(struct options *o, const char *text)
{
	static const char *const words[] = { "no", "only", "both" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (!strcmp(text, words[i])) {
			o->busy = (enum busy_mode)i;
			return;
		}
	}
	option_invalid("busy", text);
}

static void parse_options(struct options *o, int argc, char **argv)
{
	static const struct option longopts[] = {
		{ "from", required_argument, NULL, 'f' },
		{ "to", required_argument, NULL, 't' },
		{ "sizes", required_argument, NULL, 's' },
		{ "hugetlb", no_argument, NULL, 'g' },
		{ "total-bytes", required_argument, NULL, 'b' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "variants", required_argument, NULL, 'v' },
		{ "limit", required_argument, NULL, 'l' },
		{ "max-unmapped-us", required_argument, NULL, 'u' },
		{ "busy", required_argument, NULL, 'y' },
		{ "cpu", required_argument, NULL, 'c' },
		{ "module", required_argument, NULL, 'm' },
		{ "sabotage", required_argument, NULL, 'x' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const char *limits = "1", *sizes = NULL;
	int c;

	o->nr_variants = variants_parse("stock", o->variants, MAX_ENGINES);
	while ((c = getopt_long(argc, argv, "", longopts, NULL)) != -1) {
		switch (c) {
		case 'f':
			o->from = (int)option_u64("from", optarg, 0, 1023);
			break;
		case 't':
			o->to = (int)option_u64("to", optarg, 0, 1023);
			break;
		case 's':
			sizes = optarg;
			break;
		case 'g':
			o->hugetlb = true;
			break;
		case 'b':
			if (!parse_bytes(optarg, &o->total_bytes))
				option_invalid("total-bytes", optarg);
			break;
		case 'r':
			o->rounds = (unsigned int)option_u64("rounds", optarg, 1,
							 MAX_ROUNDS);
			break;
		case 'v':
			o->nr_variants = variants_parse(optarg, o->variants,
							MAX_ENGINES);
			break;
		case 'l':
			limits = optarg;
			break;
		case 'u':
			option_u64("max-unmapped-us", optarg, 0, UINT32_MAX);
			o->max_unmapped_us = optarg;
			break;
		case 'y':
			parse_busy(o, optarg);
			break;
		case 'c':
			o->cpu = (int)option_u64("cpu", optarg, 0, CPU_SETSIZE - 1);
			break;
		case 'm':
			if (o->nr_modules == MAX_MODULES)
				bench_die(BENCH_USAGE, "too many --module");
			o->modules[o->nr_modules++] = optarg;
			break;
		case 'x':
			if (strcmp(optarg, "content") && strcmp(optarg, "node"))
				option_invalid("sabotage", optarg);
			o->sabotage = optarg;
			break;
		case 'h':
			fputs(usage_text, stdout);
			exit(BENCH_OK);
		default:
			/* getopt has said which option it was. */
			exit(BENCH_USAGE);
		}
	}
	if (optind != argc)
		bench_die(BENCH_USAGE, "unexpected argument '%s'",
			  argv[optind]);
	parse_limits(o, limits);
	if (!sizes)
		sizes = o->hugetlb ? "2M" : "4K,64K,2M";
	o->nr_sizes = sizes_parse(sizes, o->sizes, MAX_SIZES, o->hugetlb ?
				  HUGETLB_MAX_BYTES : PMD_BYTES);
}

static size_t largest_folio(const struct options *o)
{
	size_t largest = PMD_BYTES;

	for (size_t i = 0; i < o->nr_sizes; i++)
		if (o->sizes[i] > largest)
			largest = o->sizes[i];
	return largest;
}

static void check_total(const struct options *o)
{
	size_t largest = largest_folio(o);

	if (!o->total_bytes || o->total_bytes % largest ||
	    o->total_bytes > (1ULL << 44))
		bench_die(BENCH_USAGE,
			  "--total-bytes must be a multiple of %zuM, so that every folio size divides it",
			  largest >> 20);
	if (o->from == o->to)
		bench_die(BENCH_USAGE,
			  "--from and --to are both node %d: nothing would move",
			  o->from);
}

static void report_environment(const struct options *o)
{
	json_begin("environment");
	json_str("bench", o->hugetlb ? "hugetlb" : "move-pages");
	machine_report();
	json_u64("from_node", (uint64_t)o->from);
	json_u64("to_node", (uint64_t)o->to);
	json_u64("caller_cpu", (uint64_t)o->cpu);
	json_u64("page_bytes", page_bytes());
	json_str("limit_copy", limit_choose_copy());
	if (o->max_unmapped_us)
		json_u64("max_unmapped_us", strtoull(o->max_unmapped_us, NULL, 0));
	engine_report();
	machine_quiet();
	json_end();
}

static void count_split_or_unknown(const struct region *r, struct sample *s)
{
	s->split_known = !r->hugetlb && region_count_split(r, &s->nr_split);
}

static void verify(const struct region *r, int node, uint64_t seed,
		   const struct sample *s)
{
	region_check(r, node, seed, s->variant->engine, s->round);
}

static void allocate(const struct options *o, struct region *r,
		     struct region *spacer, size_t folio_bytes, uint64_t seed)
{
	*spacer = (struct region){ 0 };
	if (!o->hugetlb) {
		region_allocate(r, o->total_bytes, folio_bytes, o->from, seed);
		spacer_take(spacer, folio_bytes, o->to);
		return;
	}
	region_allocate_hugetlb(r, o->total_bytes, folio_bytes, o->from, seed);
	/* What does not fit between two huge pages is no use. */
	if (folio_bytes <= PMD_BYTES)
		spacer_take_hugetlb(spacer, folio_bytes, o->to);
}

static void measure_move(const struct options *o, struct sample *s,
			 uint64_t seed)
{
	uint64_t before = 0, after = 0, hogs = 0;
	struct region r, spacer;
	long ret;

	allocate(o, &r, &spacer, s->folio_bytes, seed);
	engine_select(s->variant);
	s->engine_bytes_known = engine_copied_bytes(s->variant, &before);
	if (s->busy) {
		hogs_run();
		hogs = hogs_progress();
	}
	ret = region_move(&r, o->to, &s->elapsed_ns);
	if (s->busy) {
		s->hog_iterations = hogs_progress() - hogs;
		hogs_pause();
	}
	if (ret < 0)
		bench_die(BENCH_FAILED, "move_pages(2) with engine %s: %s",
			  s->variant->engine, strerror((int)-ret));
	if (engine_copied_bytes(s->variant, &after))
		s->engine_bytes = after - before;
	region_sabotage(&r, o->sabotage, o->from);
	verify(&r, o->to, seed, s);
	count_split_or_unknown(&r, s);
	if (spacer.map)
		region_unmap(&spacer);
	region_unmap(&r);
}

static void map_for_limit(const struct options *o, struct region *r,
			  size_t folio_bytes, int node)
{
	if (o->hugetlb) {
		region_map_hugetlb(r, o->total_bytes, folio_bytes, node);
		return;
	}
	folio_size_select(folio_bytes);
	region_map(r, o->total_bytes, folio_bytes, node);
}

static void measure_limit(const struct options *o, struct sample *s,
			  uint64_t seed)
{
	struct region src, dst;

	map_for_limit(o, &src, s->folio_bytes, o->from);
	region_fill(&src, seed);
	map_for_limit(o, &dst, s->folio_bytes, o->to);
	region_fill(&dst, seed + 1);
	if (s->busy)
		hogs_run();
	s->elapsed_ns = limit_copy_ns(&src, &dst, s->variant->threads,
				      &o->cpus, o->cpu);
	if (s->busy)
		hogs_pause();
	verify(&src, o->from, seed, s);
	verify(&dst, o->to, seed, s);
	region_unmap(&src);
	region_unmap(&dst);
}

static void report_sample(const struct options *o, const struct sample *s)
{
	json_begin("measurement");
	json_str("engine", s->variant->engine);
	json_u64("threads", s->variant->threads);
	json_u64("channels", s->variant->channels);
	json_u64("folio_bytes", s->folio_bytes);
	json_bool("busy", s->busy);
	json_u64("round", s->round);
	json_u64("moved_bytes", o->total_bytes);
	json_u64("elapsed_ns", s->elapsed_ns);
	if (s->split_known)
		json_u64("split_folios", s->nr_split);
	else
		json_null("split_folios");
	if (s->engine_bytes_known)
		json_u64("engine_bytes", s->engine_bytes);
	else
		json_null("engine_bytes");
	if (s->busy)
		json_u64("hog_iterations", s->hog_iterations);
	json_bool("verified", true);
	json_end();
}

static void measure(const struct options *o, struct sample *s)
{
	static uint64_t seed;

	/* A new seed each time: stale content of an earlier run is wrong. */
	seed += 2;
	if (s->variant->limit)
		measure_limit(o, s, seed);
	else
		measure_move(o, s, seed);
	report_sample(o, s);
}

static void run_group(const struct options *o, unsigned int round,
		      size_t folio_bytes, bool busy)
{
	for (size_t i = 0; i < o->nr_variants; i++) {
		/* Nobody is always first, or always after the same one. */
		size_t turn = (i + round) % o->nr_variants;
		struct sample s = {
			.variant = &o->variants[turn],
			.folio_bytes = folio_bytes,
			.busy = busy,
			.round = round,
		};

		measure(o, &s);
	}
}

static void run_rounds(const struct options *o)
{
	for (unsigned int round = 0; round <= o->rounds; round++) {
		for (size_t i = 0; i < o->nr_sizes; i++) {
			if (o->busy != BUSY_ONLY)
				run_group(o, round, o->sizes[i], false);
			if (o->busy != BUSY_NO)
				run_group(o, round, o->sizes[i], true);
		}
	}
}

/* So much on both nodes: what moves, and what it moves to. */
static void reserve_pools(const struct options *o)
{
	for (size_t i = 0; i < o->nr_sizes; i++) {
		size_t folio = o->sizes[i];
		uint64_t bytes = o->total_bytes;

		hugetlb_reserve(o->from, folio, bytes);
		if (folio <= PMD_BYTES)
			bytes += SPACER_MAX_BYTES;
		hugetlb_reserve(o->to, folio, bytes);
	}
}

int main(int argc, char **argv)
{
	struct options o = {
		.to = 1,
		.total_bytes = 256UL << 20,
		.rounds = 5,
		.cpu = -1,
	};

	parse_options(&o, argc, argv);
	check_total(&o);
	if (!o.hugetlb) {
		node_check_free(o.from, o.total_bytes);
		node_check_free(o.to, o.total_bytes);
	}
	for (size_t i = 0; i < o.nr_modules; i++)
		module_load(o.modules[i]);
	for (size_t i = 0; i < o.nr_variants; i++)
		engine_check(&o.variants[i]);
	o.cpu = caller_cpu(&o.cpus, o.cpu, o.from, o.to);

	settings_restore_on_exit();
	settings_on_interrupt(hogs_kill);
	report_environment(&o);
	o.nr_sizes = sizes_drop_unsupported(o.sizes, o.nr_sizes, o.hugetlb);
	if (o.hugetlb)
		reserve_pools(&o);
	engine_prepare();
	if (o.max_unmapped_us)
		engine_limit(o.max_unmapped_us);
	if (largest_folio(&o) > PMD_BYTES)
		engine_allow_large();
	if (o.busy != BUSY_NO)
		hogs_create();
	/* After the hogs, which take their CPUs from the same mask. */
	pin_to_cpu(o.cpu);
	parallel_setup(&o.cpus, o.cpu);
	run_rounds(&o);
	hogs_kill();
	json_begin("done");
	json_u64("rounds", o.rounds);
	json_end();
	return BENCH_OK;
}
