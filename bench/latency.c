// SPDX-License-Identifier: GPL-2.0-only
/*
 * How long is memory out of reach while move_pages(2) moves it?
 *
 * Each case is an engine with its limits, a folio size and a total.  All cases
 * take turns within each round, so that whatever slows the machine down for a
 * while slows all of them.  Memory is fresh each time.  The kernel's histograms
 * are read before and after each call; if asked to, a thread keeps touching the
 * memory meanwhile.  After each call the node of every page is asked from the
 * kernel and every byte is compared: a wrong one ends the program with status 1.
 */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/latency.h"
#include "common/tracing.h"

#define MAX_CASES 256
#define MAX_ROUNDS 10000
#define MAX_MODULES 8

struct options {
	int from, to;
	struct test_case cases[MAX_CASES];
	bool left_out[MAX_CASES];
	size_t nr_cases;
	unsigned int rounds, skip_windows;
	uint64_t pause_us;
	const char *sabotage;
	const char *modules[MAX_MODULES];
	size_t nr_modules;
	cpu_set_t cpus;
	int cpu, other_cpu;
	bool has_times;
	char default_limit[32];
};

struct sample {
	size_t index;
	const struct test_case *test;
	unsigned int round;	/* 0 warms up and does not count */
	uint64_t elapsed_ns;
	size_t nr_split;
	bool split_known;
	uint64_t engine_bytes;
	bool engine_bytes_known;
	uint64_t first_ns;
	bool first_known;
	struct unmapped_stats times;
	struct toucher toucher;
	struct slowdown slowdown;
};

static const char usage_text[] =
	"usage: latency [options] --case LIST [--case LIST ...]\n"
	"\n"
	"Moves memory between two NUMA nodes, verifies every page and byte, and\n"
	"prints how long folios were out of reach, one JSON object per move.\n"
	"\n"
	"  --case LIST             what to measure, as NAME=VALUE,NAME=VALUE,...\n"
	"    engine=NAME           stock, cpu, mtcopy[:threads=N], dcbm[:channels=N]\n"
	"    folio=SIZE            folio size, 4K to 2M (default 2M)\n"
	"    total=SIZE            moved by one call (default 64M)\n"
	"    cap=PAGES             max_batch_pages (default 512)\n"
	"    windows=N             max_windows (default 2)\n"
	"    streaming=true|false  (default true)\n"
	"    limit=US|default      max_unmapped_us (default default)\n"
	"    mbps=N                rate of each simulated DMA channel\n"
	"    share=true|false      whether the CPU copies a share beside them\n"
	"    touch=none|read|write by a thread, meanwhile (default none)\n"
	"    slow=PERCENT:FACTOR   channels get slower by FACTOR after PERCENT\n"
	"  --from NODE, --to NODE  nodes (default 0 and 1)\n"
	"  --rounds N              that count; one more comes first (default 5)\n"
	"  --pause-us N            between two touches, on average (default 100)\n"
	"  --skip-windows N        that pass before what comes after a slowdown\n"
	"                          counts (default 6)\n"
	"  --cpu CPU               where the caller runs (default: first of --from)\n"
	"  --module FILE           load this kernel module first; may be repeated;\n"
	"                          'FILE.ko NAME=VALUE' with parameters\n"
	"  --sabotage content|node spoil one page before the check, which must\n"
	"                          then fail (for tests)\n"
	"  --help\n"
	"\n"
	"example: latency --case engine=stock,touch=write --case engine=cpu,cap=8192\n";

static void parse_case(struct options *o, const char *text)
{
	if (o->nr_cases == MAX_CASES)
		bench_die(BENCH_USAGE, "more than %d --case", MAX_CASES);
	if (!case_parse(text, &o->cases[o->nr_cases++]))
		option_invalid("case", text);
}

static void parse_options(struct options *o, int argc, char **argv)
{
	static const struct option longopts[] = {
		{ "case", required_argument, NULL, 'k' },
		{ "from", required_argument, NULL, 'f' },
		{ "to", required_argument, NULL, 't' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "pause-us", required_argument, NULL, 'p' },
		{ "skip-windows", required_argument, NULL, 's' },
		{ "cpu", required_argument, NULL, 'c' },
		{ "module", required_argument, NULL, 'm' },
		{ "sabotage", required_argument, NULL, 'x' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longopts, NULL)) != -1) {
		switch (c) {
		case 'k':
			parse_case(o, optarg);
			break;
		case 'f':
			o->from = (int)option_u64("from", optarg, 0, 1023);
			break;
		case 't':
			o->to = (int)option_u64("to", optarg, 0, 1023);
			break;
		case 'r':
			o->rounds = (unsigned int)option_u64("rounds", optarg, 1,
							 MAX_ROUNDS);
			break;
		case 'p':
			o->pause_us = option_u64("pause-us", optarg, 0, 1000000);
			break;
		case 's':
			o->skip_windows =
				(unsigned int)option_u64("skip-windows", optarg, 0,
						     100000);
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
}

static void check_options(const struct options *o)
{
	uint64_t most = 0;

	if (!o->nr_cases)
		bench_die(BENCH_USAGE, "no --case: nothing to measure");
	if (o->from == o->to)
		bench_die(BENCH_USAGE,
			  "--from and --to are both node %d: nothing would move",
			  o->from);
	for (size_t i = 0; i < o->nr_cases; i++)
		if (o->cases[i].total_bytes > most)
			most = o->cases[i].total_bytes;
	node_check_free(o->from, most);
	node_check_free(o->to, most);
}

static void report_environment(const struct options *o)
{
	json_begin("environment");
	json_str("bench", "latency");
	machine_report();
	json_u64("from_node", (uint64_t)o->from);
	json_u64("to_node", (uint64_t)o->to);
	json_u64("caller_cpu", (uint64_t)o->cpu);
	json_u64("page_bytes", page_bytes());
	json_u64("pause_us", o->pause_us);
	json_u64("skip_windows", o->skip_windows);
	engine_report();
	machine_quiet();
	json_end();
}

static void pin(const char *name, const char *value)
{
	char path[128];

	snprintf(path, sizeof(path), OFFLOAD_DIR "/%s", name);
	if (!setting_pin(path, value))
		bench_die(BENCH_LACKING, "cannot write '%s' to %s: %s", value,
			  path, strerror(errno));
}

static void pin_number(const char *name, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	pin(name, text);
}

/*
 * What the kernel measures by itself is measured once: all cases that are left
 * to it have the same limit.
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
	pin("max_unmapped_us", "default");
	setting_value(OFFLOAD_DIR "/max_unmapped_us", o->default_limit,
		      sizeof(o->default_limit));
}

#define SHARE_PARAM "/sys/module/dcbm/parameters/cpu_share"

/* A channel that gets slow is not one that has died. */
static void allow_slowness(const struct test_case *t)
{
	static const char path[] = "/sys/module/dcbm/parameters/timeout_ms";
	uint64_t factor = t->slow_factor ?: 1;
	static uint64_t timeout_ms;
	char value[32];

	if (!timeout_ms && !file_read_u64(path, &timeout_ms))
		return;
	snprintf(value, sizeof(value), "%llu",
		 (unsigned long long)(timeout_ms * factor));
	if (!setting_pin(path, value))
		bench_die(BENCH_LACKING, "cannot write '%s' to %s: %s", value,
			  path, strerror(errno));
}

static void apply(const struct options *o, const struct test_case *t)
{
	engine_select(&t->variant);
	allow_slowness(t);
	if (t->has_rate && !rate_set(t->mbps))
		bench_die(BENCH_LACKING,
			  "cannot set the rate of DMA channels: is dmasim loaded, and debugfs mounted?");
	if (t->has_share && !setting_pin(SHARE_PARAM, t->share ? "Y" : "N"))
		bench_die(BENCH_LACKING, "cannot write to " SHARE_PARAM ": %s",
			  strerror(errno));
	if (is_stock(&t->variant))
		return;
	engine_limit_keep();
	if (t->limit_us == LIMIT_DEFAULT)
		pin("max_unmapped_us", o->default_limit);
	else
		pin_number("max_unmapped_us", t->limit_us);
	pin_number("max_batch_pages", t->cap_pages);
	pin_number("max_windows", t->max_windows);
	pin("streaming", t->streaming ? "true" : "false");
}

/* The call itself, and all that looks on. */
static long move(const struct options *o, struct sample *s, struct region *r)
{
	struct unmapped_stats before;
	struct toucher *toucher = &s->toucher;
	struct slowdown *slowdown = &s->slowdown;
	const struct test_case *t = s->test;
	long ret;

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
		unmapped_read(&before);
	tracing_empty();
	if (t->touch != TOUCH_NONE)
		toucher_moving(toucher);
	ret = region_move(r, o->to, &s->elapsed_ns);
	if (t->touch != TOUCH_NONE)
		toucher_stop(toucher);
	if (t->slow_factor)
		slowdown_stop(slowdown);
	s->first_known = first_read(&s->first_ns);
	if (o->has_times) {
		unmapped_read(&s->times);
		unmapped_subtract(&s->times, slowdown->seen ? &slowdown->after :
							      &before);
	}
	return ret;
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
	setting_value(OFFLOAD_DIR "/max_unmapped_us", limit, sizeof(limit));
	json_u64("max_unmapped_us", strtoull(limit, NULL, 10));
}

static void report_sample(const struct options *o, const struct sample *s)
{
	const struct test_case *t = s->test;

	json_begin("latency");
	json_u64("case", s->index);
	json_str("engine", t->variant.engine);
	json_u64("threads", t->variant.threads);
	json_u64("channels", t->variant.channels);
	json_u64("folio_bytes", t->folio_bytes);
	json_u64("moved_bytes", t->total_bytes);
	json_u64("round", s->round);
	json_u64("elapsed_ns", s->elapsed_ns);
	report_limits(t);
	if (t->has_rate)
		json_u64("channel_mbps", t->mbps);
	if (t->has_share)
		json_bool("cpu_share", t->share);
	if (s->split_known)
		json_u64("split_folios", s->nr_split);
	if (s->engine_bytes_known)
		json_u64("engine_bytes", s->engine_bytes);
	if (s->first_known)
		json_u64("first_ns", s->first_ns);
	if (o->has_times)
		unmapped_report(&s->times);
	if (t->touch != TOUCH_NONE)
		toucher_report(&s->toucher);
	if (t->slow_factor) {
		json_u64("slow_percent", t->slow_percent);
		json_u64("slow_factor", t->slow_factor);
		json_bool("slow_seen", s->slowdown.seen);
		json_u64("slow_at_folios", s->slowdown.at_folios);
		json_u64("slow_skipped_windows", s->slowdown.skipped_windows);
	}
	json_bool("verified", true);
	json_end();
}

static void measure(const struct options *o, size_t index, unsigned int round)
{
	static uint64_t seed;
	const struct test_case *t = &o->cases[index];
	struct sample s = { .index = index, .test = t, .round = round };
	uint64_t before = 0, after = 0;
	struct region r, spacer;
	long ret;

	/* A new seed each time: stale content of an earlier run is wrong. */
	seed += 2;
	region_allocate(&r, t->total_bytes, t->folio_bytes, o->from, seed);
	spacer_take(&spacer, t->folio_bytes, o->to);
	apply(o, t);
	s.engine_bytes_known = engine_copied_bytes(&t->variant, &before);
	ret = move(o, &s, &r);
	if (ret < 0)
		bench_die(BENCH_FAILED, "move_pages(2) with engine %s: %s",
			  t->variant.engine, strerror((int)-ret));
	if (engine_copied_bytes(&t->variant, &after))
		s.engine_bytes = after - before;
	region_sabotage(&r, o->sabotage, o->from);
	region_check(&r, o->to, seed, t->variant.engine, round);
	s.split_known = region_count_split(&r, &s.nr_split);
	region_unmap(&spacer);
	region_unmap(&r);
	report_sample(o, &s);
}

static void run_rounds(const struct options *o)
{
	for (unsigned int round = 0; round <= o->rounds; round++) {
		for (size_t i = 0; i < o->nr_cases; i++) {
			/* Nobody is always first, or after the same one. */
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
		o->left_out[i] = !folio_size_supported(o->cases[i].folio_bytes);
		nr += !o->left_out[i];
		if (!o->left_out[i])
			continue;
		json_begin("skipped");
		json_u64("folio_bytes", o->cases[i].folio_bytes);
		json_str("reason",
			 "this kernel has no anonymous folios of this size");
		json_end();
	}
	if (!nr)
		bench_die(BENCH_LACKING,
			  "this kernel has no anonymous folios of any of the sizes asked for");
}

/* Those who look on run elsewhere: the last CPU that is not the caller's. */
static void choose_other_cpu(struct options *o)
{
	bool needed = false;

	for (size_t i = 0; i < o->nr_cases; i++)
		needed |= o->cases[i].touch != TOUCH_NONE;
	o->other_cpu = CPU_SETSIZE - 1;
	while (o->other_cpu >= 0 && (o->other_cpu == o->cpu ||
				     !CPU_ISSET(o->other_cpu, &o->cpus)))
		o->other_cpu--;
	if (needed && o->other_cpu < 0)
		bench_die(BENCH_LACKING, "touching needs a second CPU");
	/* To slow channels down, while we wait for them, takes hardly any time. */
	if (o->other_cpu < 0)
		o->other_cpu = o->cpu;
}

static void on_interrupt(void)
{
	rate_restore();
	tracing_close();
}

int main(int argc, char **argv)
{
	static struct options o = {
		.to = 1,
		.rounds = 5,
		.skip_windows = 6,
		.pause_us = 100,
		.cpu = -1,
	};

	parse_options(&o, argc, argv);
	check_options(&o);
	for (size_t i = 0; i < o.nr_modules; i++)
		module_load(o.modules[i]);
	for (size_t i = 0; i < o.nr_cases; i++)
		engine_check(&o.cases[i].variant);
	o.cpu = caller_cpu(&o.cpus, o.cpu, o.from, o.to);
	choose_other_cpu(&o);

	settings_restore_on_exit();
	settings_on_interrupt(on_interrupt);
	report_environment(&o);
	drop_unsupported_sizes(&o);
	engine_prepare();
	o.has_times = unmapped_prepare();
	learn_default_limit(&o);
	first_open();
	pin_to_cpu(o.cpu);
	parallel_setup(&o.cpus, o.cpu);
	run_rounds(&o);
	json_begin("done");
	json_u64("rounds", o.rounds);
	json_end();
	return BENCH_OK;
}
