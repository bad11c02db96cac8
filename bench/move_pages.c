// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measures how fast move_pages(2) moves memory from one node to another.
 *
 * For each folio size and engine, one call moves a fixed total of fresh memory
 * on the source node.  All variants, and plain memcpy as the limit, take turns
 * within each round, so that a slow phase of the machine slows all of them.
 * After each call the program asks for the node of each page, and compares
 * every byte.  A wrong one ends the program with status 1.
 */
#include <string.h>

#include "common/run.h"

enum busy_mode { BUSY_NO, BUSY_ONLY, BUSY_BOTH };
static const char *const busy_names[] = { "no", "only", "both", NULL };

struct options {
	struct run run;
	const char *limits;
	enum busy_mode busy;
	bool verify;
	bool may_stay;
};

static struct options opts = {
	.run = { RUN_DEFAULTS(0, 1, "stock"), .total_bytes = 256UL << 20 },
	.limits = "1",
};

static const struct option_row rows[] = {
	ROWS_NODES(&opts.run, 0, 1),
	ROW_SIZES(&opts.run, "4K to 2M (default 4K,64K,2M)"),
	{ "hugetlb", NULL,
	  "memory of hugetlb, up to 1G (default 2M); its pools\n"
	  "grow meanwhile", set_true, &opts.run.hugetlb, 0, 0, NULL },
	ROW_TOTAL(&opts.run, "moved by each call (default 256M)"),
	ROW_ROUNDS(&opts.run.rounds),
	ROW_VARIANTS(&opts.run),
	{ "limit", "LIST", "memcpy with this many threads (default 1), or none",
	  set_text, &opts.limits, 0, 0, NULL },
	ROW_REACH(&opts.run),
	{ "busy", "no|only|both", "a hog on every CPU meanwhile (default no)",
	  set_word, &opts.busy, 0, 0, busy_names },
	{ "verify", NULL, "the kernel compares each copy with its source, too",
	  set_true, &opts.verify, 0, 0, NULL },
	{ "may-stay", NULL, "a page that does not move is no failure",
	  set_true, &opts.may_stay, 0, 0, NULL },
	ROW_CPU(&opts.run.cpu),
	ROW_MODULE(&opts.run.modules),
	ROW_SABOTAGE(&opts.run.sabotage, " or node"),
	{ 0 },
};

static const struct program program = {
	.name = "move_pages",
	.about = "Moves memory between two NUMA nodes, verifies every page and byte, and\n"
		 "prints one JSON object per measurement.",
	.example = "--sizes 64K,2M --variants stock,mtcopy:threads=2",
	.options = rows,
};

struct sample {
	const struct variant *variant;
	size_t folio_bytes;
	bool busy;
	unsigned int round;	/* 0: a warm-up, which does not count */
	uint64_t elapsed_ns;
	uint64_t hog_iterations;
	size_t nr_split;
	bool split_known;
	struct counters copied;
};

/* The limits take turns with the variants. */
static void add_limits(struct options *o)
{
	struct run *r = &o->run;
	char words[16][64];
	size_t nr;

	if (!strcmp(o->limits, "none"))
		return;
	nr = parse_list(o->limits, words, ARRAY_SIZE(words));
	if (!nr)
		option_invalid("limit", o->limits);
	for (size_t i = 0; i < nr; i++) {
		uint64_t threads;

		if (!parse_u64(words[i], &threads) || !threads || threads > 64)
			option_invalid("limit", words[i]);
		r->variants[r->nr_variants++] = (struct variant){
			.engine = "limit",
			.threads = (unsigned int)threads,
			.limit = true,
		};
	}
}

static void measure_move(const struct options *o, struct sample *s,
			 uint64_t seed)
{
	uint64_t hogs = 0;
	struct region r, spacer = { 0 };

	region_allocate(&r, o->run.total_bytes, s->folio_bytes, o->run.from,
			seed);
	/* A spacer has to fit between two huge pages. */
	if (s->folio_bytes <= PMD_BYTES)
		spacer_take(&spacer, s->folio_bytes, o->run.to);
	engine_select(s->variant);
	s->copied = engine_counters(s->variant);
	counters_read(&s->copied, false);
	if (s->busy) {
		hogs_run();
		hogs = hogs_progress();
	}
	s->elapsed_ns = region_must_move(&r, o->run.to, s->variant->engine);
	if (s->busy) {
		s->hog_iterations = hogs_progress() - hogs;
		hogs_pause();
	}
	counters_read(&s->copied, true);
	region_sabotage(&r, o->run.sabotage, o->run.from);
	if (o->may_stay)
		region_check_content(&r, seed, s->variant->engine, s->round);
	else
		region_check(&r, o->run.to, seed, s->variant->engine, s->round);
	s->split_known = !r.hugetlb && region_count_split(&r, &s->nr_split);
	if (spacer.map)
		region_unmap(&spacer);
	region_unmap(&r);
}

static void measure_limit(const struct options *o, struct sample *s,
			  uint64_t seed)
{
	struct region src, dst;

	region_prepare(&src, o->run.total_bytes, s->folio_bytes, o->run.from);
	region_fill(&src, seed);
	region_prepare(&dst, o->run.total_bytes, s->folio_bytes, o->run.to);
	region_fill(&dst, seed + 1);
	if (s->busy)
		hogs_run();
	s->elapsed_ns = limit_copy_ns(&src, &dst, s->variant->threads,
				      &o->run.cpus, o->run.cpu);
	if (s->busy)
		hogs_pause();
	region_check(&src, o->run.from, seed, s->variant->engine, s->round);
	region_check(&dst, o->run.to, seed, s->variant->engine, s->round);
	region_unmap(&src);
	region_unmap(&dst);
}

static void report_sample(const struct options *o, const struct sample *s)
{
	moved_begin("measurement", s->variant, s->folio_bytes, s->round,
		    o->run.total_bytes, s->elapsed_ns);
	json_bool("busy", s->busy);
	json_u64_or_null("split_folios", s->split_known, s->nr_split);
	json_u64_or_null("engine_bytes", s->copied.known[ENGINE_BYTES],
			 s->copied.value[ENGINE_BYTES]);
	json_u64_or_null("engine_ns", s->copied.known[ENGINE_NS],
			 s->copied.value[ENGINE_NS]);
	if (s->busy)
		json_u64("hog_iterations", s->hog_iterations);
	verified_end();
}

static void run_group(const struct options *o, unsigned int round,
		      size_t folio_bytes, bool busy)
{
	for (size_t i = 0; i < o->run.nr_variants; i++) {
		struct sample s = {
			.variant = run_turn(&o->run, i, round),
			.folio_bytes = folio_bytes,
			.busy = busy,
			.round = round,
		};

		if (s.variant->limit)
			measure_limit(o, &s, run_seed());
		else
			measure_move(o, &s, run_seed());
		report_sample(o, &s);
	}
}

static void run_rounds(const struct options *o)
{
	for (unsigned int round = 0; round <= o->run.rounds; round++) {
		for (size_t i = 0; i < o->run.nr_sizes; i++) {
			if (o->busy != BUSY_ONLY)
				run_group(o, round, o->run.sizes[i], false);
			if (o->busy != BUSY_NO)
				run_group(o, round, o->run.sizes[i], true);
		}
	}
}

/* Reserve this much on both nodes, for sources and destinations. */
static void reserve_pools(const struct options *o)
{
	regions_are_hugetlb();
	for (size_t i = 0; i < o->run.nr_sizes; i++) {
		size_t folio = o->run.sizes[i];
		uint64_t bytes = o->run.total_bytes;

		hugetlb_reserve(o->run.from, folio, bytes);
		if (folio <= PMD_BYTES)
			bytes += SPACER_MAX_BYTES;
		hugetlb_reserve(o->run.to, folio, bytes);
	}
}

int main(int argc, char **argv)
{
	struct run *r = &opts.run;

	options_parse(&program, argc, argv);
	if (!r->sizes_text)
		r->sizes_text = r->hugetlb ? "2M" : "4K,64K,2M";
	run_check(r);
	add_limits(&opts);
	run_check_nodes(r, r->total_bytes);
	run_start(r);

	run_environment(r, r->hugetlb ? "hugetlb" : "move-pages");
	json_str("limit_copy", limit_choose_copy());
	json_end();
	run_prepare(r);
	if (opts.verify)
		setting_must_pin(OFFLOAD_DEBUG_DIR "/verify", "1");
	if (r->hugetlb)
		reserve_pools(&opts);
	for (size_t i = 0; i < r->nr_sizes; i++)
		if (r->sizes[i] > PMD_BYTES)
			engine_allow_large();
	if (opts.busy != BUSY_NO)
		hogs_create();
	/* Do this after the hogs, which take their CPUs from the same mask. */
	run_on_cpu(r, r->cpu);
	run_rounds(&opts);
	run_done();
	return BENCH_OK;
}
