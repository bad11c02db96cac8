// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measures how long memory is unmapped while move_pages(2) moves it.
 *
 * Each case is an engine with its limits, a folio size and a total.  All cases
 * take turns within each round, so that a slow phase of the machine slows all
 * of them.  Memory is fresh each time.  The program reads the kernel's
 * histograms before and after each call.  On request a thread touches the
 * memory meanwhile.  After each call the program asks for the node of each
 * page, and compares every byte.  A wrong one ends the program with status 1.
 */
#include <stdlib.h>

#include "common/latency.h"
#include "common/run.h"
#include "common/tracing.h"

#define MAX_CASES 256
#define MAX_UNMAPPED OFFLOAD_DIR "/max_unmapped_us"
#define SHARE_PARAM "/sys/module/dcbm/parameters/cpu_share"

struct options {
	struct run run;
	struct test_case cases[MAX_CASES];
	bool left_out[MAX_CASES];
	size_t nr_cases;
	uint64_t skip_windows;
	uint64_t pause_us;
	int other_cpu;
	bool has_times;
	char default_limit[32];
};

struct sample {
	size_t index;
	const struct test_case *test;
	unsigned int round;	/* 0: a warm-up, which does not count */
	uint64_t elapsed_ns;
	size_t nr_split;
	bool split_known;
	struct counters copied;
	uint64_t first_ns;
	bool first_known;
	struct unmapped_stats times;
	struct toucher toucher;
	struct slowdown slowdown;
};

static struct options opts = {
	.run = { RUN_DEFAULTS(0, 1, "stock") },
	.skip_windows = 6,
	.pause_us = 100,
};

static void set_case(const struct option_row *row, const char *text)
{
	if (opts.nr_cases == MAX_CASES)
		bench_die(BENCH_USAGE, "more than %d --case", MAX_CASES);
	if (!case_parse(text, &opts.cases[opts.nr_cases++]))
		option_invalid(row->name, text);
}

static const struct option_row rows[] = {
	{ "case", "LIST",
	  "what to measure, as NAME=VALUE,NAME=VALUE,...; may be\n"
	  "repeated\n"
	  "engine=NAME: stock, cpu, mtcopy[:threads=N],\n"
	  "  dcbm[:channels=N]\n"
	  "folio=SIZE: folio size, 4K to 2M (default 2M)\n"
	  "total=SIZE: moved by one call (default 64M)\n"
	  "cap=PAGES: max_batch_pages (default 512)\n"
	  "windows=N: max_windows (default 2)\n"
	  "streaming=true|false (default true)\n"
	  "limit=US|default: max_unmapped_us (default default)\n"
	  "mbps=N: rate of each simulated DMA channel\n"
	  "share=true|false: whether the CPU copies a share\n"
	  "touch=none|read|write: by a thread (default none)\n"
	  "slow=PERCENT:FACTOR: channels get slower by FACTOR\n"
	  "  after PERCENT", set_case, NULL, 0, 0, NULL },
	ROWS_NODES(&opts.run, 0, 1),
	ROW_ROUNDS(&opts.run.rounds),
	{ "pause-us", "N", "between two touches, on average (default 100)",
	  set_u64, &opts.pause_us, 0, 1000000, NULL },
	{ "skip-windows", "N",
	  "that pass before what comes after a slowdown\n"
	  "counts (default 6)", set_u64, &opts.skip_windows, 0, 100000, NULL },
	ROW_CPU(&opts.run.cpu),
	ROW_MODULE(&opts.run.modules),
	ROW_SABOTAGE(&opts.run.sabotage, " or node"),
	{ 0 },
};

static const struct program program = {
	.name = "latency",
	.about = "Moves memory between two NUMA nodes, verifies every page and byte, and\n"
		 "prints how long folios were unmapped, one JSON object per move.",
	.example = "--case engine=stock,touch=write --case engine=cpu,cap=8192",
	.options = rows,
};

static void check_options(const struct options *o)
{
	uint64_t most = 0;

	if (!o->nr_cases)
		bench_die(BENCH_USAGE, "no --case: nothing to measure");
	for (size_t i = 0; i < o->nr_cases; i++)
		if (o->cases[i].total_bytes > most)
			most = o->cases[i].total_bytes;
	run_check_nodes(&o->run, most);
}

/*
 * Have the kernel measure its default limit once: all cases that use the default
 * have the same limit.
 */
static void learn_default_limit(struct options *o)
{
	bool wanted = false;

	for (size_t i = 0; i < o->nr_cases; i++)
		wanted |= !is_stock(&o->cases[i].variant) &&
			  o->cases[i].limit_us == LIMIT_DEFAULT;
	if (!wanted)
		return;
	engine_limit_keep();
	setting_must_pin(MAX_UNMAPPED, "default");
	setting_value(MAX_UNMAPPED, o->default_limit,
		      sizeof(o->default_limit));
}

/* A channel that becomes slow must not count as dead. */
static void allow_slowness(const struct test_case *t)
{
	static const char path[] = "/sys/module/dcbm/parameters/timeout_ms";
	uint64_t factor = t->slow_factor ?: 1;
	static uint64_t timeout_ms;

	if (!timeout_ms && !file_read_u64(path, &timeout_ms))
		return;
	setting_must_pin(path, decimal(timeout_ms * factor).text);
}

static void apply(const struct options *o, const struct test_case *t)
{
	engine_select(&t->variant);
	allow_slowness(t);
	if (t->has_rate && !rate_set(t->mbps))
		bench_die(BENCH_LACKING,
			  "cannot set the rate of DMA channels: is dmasim loaded, and debugfs mounted?");
	if (t->has_share)
		setting_must_pin(SHARE_PARAM, t->share ? "Y" : "N");
	if (is_stock(&t->variant))
		return;
	engine_limit_keep();
	if (t->limit_us == LIMIT_DEFAULT)
		setting_must_pin(MAX_UNMAPPED, o->default_limit);
	else
		setting_must_pin(MAX_UNMAPPED, decimal(t->limit_us).text);
	setting_must_pin(OFFLOAD_DEBUG_DIR "/max_batch_pages",
			 decimal(t->cap_pages).text);
	setting_must_pin(OFFLOAD_DEBUG_DIR "/max_windows",
			 decimal(t->max_windows).text);
	setting_must_pin(OFFLOAD_DEBUG_DIR "/streaming",
			 t->streaming ? "1" : "0");
}

/* The call itself, and all observers. */
static void move(const struct options *o, struct sample *s, struct region *r)
{
	struct toucher *toucher = &s->toucher;
	struct slowdown *slowdown = &s->slowdown;
	const struct test_case *t = s->test;

	if (t->touch != TOUCH_NONE) {
		*toucher = (struct toucher){
			.region = r,
			.mode = t->touch,
			.cpu = o->other_cpu,
			.pause_ns = o->pause_us * 1000,
		};
		toucher_start(toucher);
	}
	if (t->slow_factor) {
		*slowdown = (struct slowdown){
			.cpu = o->other_cpu,
			.folios = t->total_bytes / t->folio_bytes *
				  t->slow_percent / 100,
			.skip_windows = o->skip_windows,
			.mbps = t->mbps,
			.slow_mbps = (t->mbps + t->slow_factor - 1) /
				     t->slow_factor,
		};
		slowdown_start(slowdown);
	}
	if (o->has_times)
		unmapped_read(&s->times, false);
	tracing_empty();
	if (t->touch != TOUCH_NONE)
		toucher_moving(toucher);
	s->elapsed_ns = region_must_move(r, o->run.to, t->variant.engine);
	if (t->touch != TOUCH_NONE)
		toucher_stop(toucher);
	if (t->slow_factor)
		slowdown_stop(slowdown);
	s->first_known = first_read(&s->first_ns);
	if (o->has_times) {
		if (slowdown->seen)
			s->times = slowdown->after;
		unmapped_read(&s->times, true);
	}
}

static void report_limits(const struct test_case *t)
{
	char limit[32];

	if (is_stock(&t->variant))
		return;
	json_u64("batch_cap_pages", t->cap_pages);
	json_u64("max_windows", t->max_windows);
	json_bool("streaming", t->streaming);
	json_bool("default_limit", t->limit_us == LIMIT_DEFAULT);
	setting_value(MAX_UNMAPPED, limit, sizeof(limit));
	json_u64("max_unmapped_us", strtoull(limit, NULL, 10));
}

static void report_sample(const struct options *o, const struct sample *s)
{
	const struct test_case *t = s->test;

	moved_begin("latency", &t->variant, t->folio_bytes, s->round,
		    t->total_bytes, s->elapsed_ns);
	json_u64("case", s->index);
	report_limits(t);
	if (t->has_rate)
		json_u64("channel_mbps", t->mbps);
	if (t->has_share)
		json_bool("cpu_share", t->share);
	if (s->split_known)
		json_u64("split_folios", s->nr_split);
	json_u64_or_null("engine_bytes", s->copied.known[ENGINE_BYTES],
			 s->copied.value[ENGINE_BYTES]);
	if (s->first_known)
		json_u64("first_ns", s->first_ns);
	if (o->has_times)
		unmapped_report(&s->times);
	if (t->touch != TOUCH_NONE)
		toucher_report(&s->toucher);
	if (t->slow_factor) {
		json_bool("slow_seen", s->slowdown.seen);
		json_u64("slow_skipped_windows", s->slowdown.skipped_windows);
	}
	verified_end();
}

static void measure(const struct options *o, size_t index, unsigned int round)
{
	const struct test_case *t = &o->cases[index];
	struct sample s = { .index = index, .test = t, .round = round };
	uint64_t seed = run_seed();
	struct region r, spacer;

	region_allocate(&r, t->total_bytes, t->folio_bytes, o->run.from, seed);
	spacer_take(&spacer, t->folio_bytes, o->run.to);
	apply(o, t);
	s.copied = engine_counters(&t->variant);
	counters_read(&s.copied, false);
	move(o, &s, &r);
	counters_read(&s.copied, true);
	region_sabotage(&r, o->run.sabotage, o->run.from);
	region_check(&r, o->run.to, seed, t->variant.engine, round);
	s.split_known = region_count_split(&r, &s.nr_split);
	region_unmap(&spacer);
	region_unmap(&r);
	report_sample(o, &s);
}

static void run_rounds(const struct options *o)
{
	for (unsigned int round = 0; round <= o->run.rounds; round++) {
		for (size_t i = 0; i < o->nr_cases; i++) {
			/*
			 * Rotate, so that each case is first at times, and
			 * follows different cases.
			 */
			size_t turn = (i + round) % o->nr_cases;

			if (!o->left_out[turn])
				measure(o, turn, round);
		}
	}
}

static void drop_unsupported_sizes(struct options *o)
{
	size_t nr = 0;

	for (size_t i = 0; i < o->nr_cases; i++) {
		o->left_out[i] =
			!folio_size_check(o->cases[i].folio_bytes, false);
		nr += !o->left_out[i];
	}
	if (!nr)
		bench_die(BENCH_LACKING,
			  "this kernel has no anonymous folios of any of the sizes asked for");
}

/* Observers run on another CPU: the last one that is not the caller's. */
static void choose_other_cpu(struct options *o)
{
	bool needed = false;

	for (size_t i = 0; i < o->nr_cases; i++)
		needed |= o->cases[i].touch != TOUCH_NONE;
	o->other_cpu = run_other_cpu(&o->run);
	if (needed && o->other_cpu < 0)
		bench_die(BENCH_LACKING, "touching needs a second CPU");
	/* Slowing channels down takes hardly any CPU time. */
	if (o->other_cpu < 0)
		o->other_cpu = o->run.cpu;
}

int main(int argc, char **argv)
{
	struct run *r = &opts.run;

	options_parse(&program, argc, argv);
	check_options(&opts);
	run_start(r);
	for (size_t i = 0; i < opts.nr_cases; i++)
		engine_check(&opts.cases[i].variant);
	choose_other_cpu(&opts);

	run_environment(r, "latency");
	json_u64("pause_us", opts.pause_us);
	json_u64("skip_windows", opts.skip_windows);
	json_end();
	drop_unsupported_sizes(&opts);
	run_prepare(r);
	opts.has_times = unmapped_prepare();
	learn_default_limit(&opts);
	first_open();
	run_on_cpu(r, r->cpu);
	run_rounds(&opts);
	run_done();
	return BENCH_OK;
}
