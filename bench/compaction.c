// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measures the cost of huge pages in fragmented memory, and the CPU time that
 * compaction leaves to other tasks on its CPU.
 *
 * The program fragments a node: it maps memory there and frees every other
 * page.  Then it takes the large blocks that are left.  A kernel module
 * allocates huge pages on one CPU, and Linux has to compact for each.  The
 * program measures the time, once with that CPU idle otherwise, and once with a
 * counting hog on it.
 *
 * The variants take turns within each round.  Compaction undoes the
 * fragmentation, so each variant starts with newly fragmented memory.  The
 * program verifies the remaining memory afterwards.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/compaction.h"
#include "common/tiers.h"

#define TEST_DIR "/sys/kernel/debug/migrate_compact_test"
#define PROACTIVENESS "/proc/sys/vm/compaction_proactiveness"
#define WATERMARK_BOOST "/proc/sys/vm/watermark_boost_factor"
/* The largest value: each CPU keeps as few free pages as possible. */
#define PCP_FRACTION_MAX "2147483647"

/* Compaction could win half of the blocks, but slowly.  We ask for this part. */
#define COUNT_PARTS 8
#define MAX_COUNT (1ULL << 32)
/* A measurement that got too few pages is repeated at most this often. */
#define MAX_REPEATS 3

/* The fastest simulated channel, far above the rate of any CPU. */
#define MAX_PERCENT 100000

/* Many turns of the scheduler, but short compared to the measurement. */
#define HOG_ALONE_NS 100000000

struct options {
	struct run run;
	uint64_t count;		/* 0: follows from total_bytes */
	uint64_t channel_percent;	/* 0: leave the channels' rate alone */
	struct word_list states;
};

static const char *const counters[] = { "pgmigrate_success",
					"compact_migrate_scanned",
					"compact_stall", NULL };
enum { MIGRATED, SCANNED, STALLED };

static const char *const state_names[] = { "idle", "busy", NULL };

static struct options opts = {
	.run = { RUN_DEFAULTS(0, 0, "stock") },
	.states = { .at = { false, true }, .nr = 2 },
};

static const struct option_row rows[] = {
	{ "node", "NODE", "that is fragmented (default 0)", set_int,
	  &opts.run.from, 0, 63, NULL },
	{ "cpu", "CPU", "that allocates (default the node's first one)",
	  set_int, &opts.run.cpu, 0, CPU_SETSIZE - 1, NULL },
	ROW_TOTAL(&opts.run,
		  "that are mapped, a multiple of 2M; half of it is\n"
		  "freed again (default 0: half of what is free)"),
	{ "count", "N", "huge pages (default 0: 1 for 8 blocks of 2M)",
	  set_u64, &opts.count, 0, MAX_COUNT, NULL },
	{ "states", "LIST", "of idle and busy (default both)", set_words,
	  &opts.states, 0, 0, state_names },
	{ "channel-percent", "N",
	  "the rate of each simulated DMA channel: of what stock\n"
	  "migrated in its CPU time so far (default 0: as it is)", set_u64,
	  &opts.channel_percent, 0, MAX_PERCENT, NULL },
	ROW_ROUNDS(&opts.run.rounds),
	ROW_VARIANTS(&opts.run),
	ROW_REACH(&opts.run),
	ROW_MODULE(&opts.run.modules),
	ROW_SABOTAGE(&opts.run.sabotage, ""),
	{ 0 },
};

static const struct program program = {
	.name = "compaction",
	.about = "Fragments a node, has a kernel module allocate huge pages there on one CPU,\n"
		 "verifies the memory, and prints one JSON object per measurement.",
	.example = "--variants stock,dcbm:channels=4 --states idle",
	.options = rows,
};

static void check_options(struct options *o)
{
	run_read_variants(&o->run);
	o->run.to = o->run.from;
	if (o->run.total_bytes % PMD_BYTES || o->run.total_bytes > (1ULL << 44))
		bench_die(BENCH_USAGE,
			  "--total-bytes must be a multiple of 2M");
}

/* Use half of the free memory, unless an option gives the size. */
static void choose_size(struct options *o)
{
	uint64_t free;

	if (!o->run.total_bytes && node_free_bytes(o->run.from, &free))
		o->run.total_bytes = free / 2 / PMD_BYTES * PMD_BYTES;
	node_check_free(o->run.from, o->run.total_bytes);
	if (!o->count)
		o->count = o->run.total_bytes / PMD_BYTES / COUNT_PARTS;
	if (!o->count)
		bench_die(BENCH_LACKING,
			  "%llu bytes are too few to make a huge page of: ask for more",
			  (unsigned long long)o->run.total_bytes);
}

static void test_write(const char *name, uint64_t value)
{
	char path[96];

	snprintf(path, sizeof(path), TEST_DIR "/%s", name);
	if (!file_write(path, decimal(value).text))
		bench_die(errno == EINTR ? BENCH_FAILED : BENCH_LACKING,
			  "cannot write %llu to %s: %s (is the module migrate_compact_test loaded?)",
			  (unsigned long long)value, path, strerror(errno));
}

static uint64_t test_read(const char *name)
{
	char path[96];
	uint64_t value;

	snprintf(path, sizeof(path), TEST_DIR "/%s", name);
	if (!file_read_u64(path, &value))
		bench_die(BENCH_LACKING, "cannot read %s: %s", path,
			  strerror(errno));
	return value;
}

/* Async-signal-safe. */
static void let_go(void)
{
	file_write(TEST_DIR "/free", "1");
}

struct sample {
	const struct variant *variant;
	bool busy;
	unsigned int round;	/* 0: a warm-up, which does not count */
	unsigned int repeated;	/* repetitions for lack of pages */
	uint64_t wall_ns, thread_ns, hog_iterations;
	uint64_t alone_ns, alone_iterations;	/* of the hog alone */
	struct cpu_ticks before, after;
	struct counters counted, copied;
};

/* The sum of all measurements of stock so far, and the rate that follows. */
static struct {
	uint64_t pages, thread_ns, channel_mbps;
} migrated;

/*
 * The speed of a CPU changes with the load of its host.  The channels' rate
 * follows it, so that both stay comparable.  It is a percentage of the rate of
 * stock so far, which is always first in the first round.
 */
static void channels_follow(const struct options *o, const struct sample *s)
{
	if (!o->channel_percent || strcmp(s->variant->engine, "stock") ||
	    !s->counted.known[MIGRATED] || !s->thread_ns)
		return;
	migrated.pages += s->counted.value[MIGRATED];
	migrated.thread_ns += s->thread_ns;
	migrated.channel_mbps = migrated.pages * page_bytes() * 1000 /
				migrated.thread_ns * o->channel_percent / 100;
	if (!migrated.channel_mbps)
		migrated.channel_mbps = 1;
	if (!rate_set(migrated.channel_mbps))
		bench_die(BENCH_LACKING,
			  "cannot set the rate of simulated channels: %s (is the module dmasim loaded?)",
			  strerror(errno));
}

static void ticks_read(const struct options *o, struct cpu_ticks *ticks)
{
	if (!cpu_ticks_read(o->run.cpu, ticks))
		bench_die(BENCH_LACKING, "/proc/stat does not have CPU %d",
			  o->run.cpu);
}

/* The progress of the hog while it has the CPU to itself. */
static void hog_alone(struct sample *s)
{
	uint64_t hog = hogs_progress(), start = bench_now_ns();

	bench_sleep_ns(HOG_ALONE_NS);
	s->alone_iterations = hogs_progress() - hog;
	s->alone_ns = bench_now_ns() - start;
}

/* The timed part. */
static void allocate(const struct options *o, struct sample *s)
{
	uint64_t start, thread, hog;

	counters_read(&s->copied, false);
	counters_read(&s->counted, false);
	if (s->busy)
		hogs_run();
	ticks_read(o, &s->before);
	hog = hogs_progress();
	thread = thread_cpu_ns();
	start = bench_now_ns();
	test_write("run", 1);
	s->wall_ns = bench_now_ns() - start;
	s->thread_ns = thread_cpu_ns() - thread;
	s->hog_iterations = hogs_progress() - hog;
	ticks_read(o, &s->after);
	if (s->busy) {
		hog_alone(s);
		hogs_pause();
	}
	counters_read(&s->counted, true);
	counters_read(&s->copied, true);
}

static void report_sample(const struct options *o, const struct sample *s,
			  uint64_t allocated)
{
	char ended[32] = "unknown";

	file_read(TEST_DIR "/ended", ended, sizeof(ended));
	json_begin("compaction");
	variant_report(s->variant);
	json_bool("busy", s->busy);
	json_u64("round", s->round);
	if (s->variant->channels && o->channel_percent)
		json_u64("channel_mbps", migrated.channel_mbps);
	json_u64("total_bytes", o->run.total_bytes);
	json_u64("asked", o->count);
	json_u64("allocated", allocated);
	json_str("ended", ended);
	json_u64("repeated", s->repeated);
	json_u64("wall_ns", s->wall_ns);
	json_u64("thread_ns", s->thread_ns);
	json_u64("user_ns", cpu_ticks_ns(s->before.user, s->after.user));
	json_u64("system_ns", cpu_ticks_ns(s->before.system, s->after.system));
	json_u64("idle_ns", cpu_ticks_ns(s->before.idle, s->after.idle));
	json_u64("steal_ns", cpu_ticks_ns(s->before.steal, s->after.steal));
	json_u64("hog_iterations", s->hog_iterations);
	json_u64("alone_iterations", s->alone_iterations);
	json_u64("alone_ns", s->alone_ns);
	counters_report(&s->counted);
	counters_report(&s->copied);
	verified_end();
}

static void check_allocated(const struct options *o, const struct sample *s,
			    uint64_t allocated, uint64_t drained)
{
	char ended[32] = "unknown";
	uint64_t free = 0;

	if (allocated &&
	    (!s->counted.known[MIGRATED] || s->counted.value[MIGRATED]))
		return;
	file_read(TEST_DIR "/ended", ended, sizeof(ended));
	node_free_bytes(o->run.from, &free);
	bench_die(BENCH_LACKING,
		  "%s, %s, round %u: %llu huge pages were allocated on node %d (%s), %llu pages migrated, compaction began %llu times and scanned %llu pages, %llu huge pages were free and %llu bytes are: ask for more memory",
		  s->variant->engine, s->busy ? "busy" : "idle", s->round,
		  (unsigned long long)allocated, o->run.from, ended,
		  (unsigned long long)s->counted.value[MIGRATED],
		  (unsigned long long)s->counted.value[STALLED],
		  (unsigned long long)s->counted.value[SCANNED],
		  (unsigned long long)drained, (unsigned long long)free);
}

/*
 * Measure once.  Returns true if all requested pages were allocated.  The last
 * measurement counts.
 */
static bool measure_once(const struct options *o, struct sample *s, bool last)
{
	uint64_t allocated, drained, seed = run_seed();
	struct fragments f;
	bool counts;

	engine_select(s->variant);
	if (!fragments_make(&f, o->run.total_bytes, o->run.from, seed))
		bench_die(BENCH_LACKING, "cannot fragment memory: %s",
			  strerror(errno));
	test_write("node", (uint64_t)o->run.from);
	test_write("count", o->count);
	test_write("drain", 1);
	drained = test_read("drained");
	allocate(o, s);
	allocated = test_read("allocated");
	if (o->run.sabotage)
		fragments_sabotage(&f);
	region_check_content(&f.region, seed, s->variant->engine, s->round);
	counts = allocated == o->count || last;
	if (counts) {
		check_allocated(o, s, allocated, drained);
		report_sample(o, s, allocated);
		channels_follow(o, s);
	}
	test_write("free", 1);
	fragments_free(&f);
	return counts;
}

static void run_state(const struct options *o, unsigned int round, bool busy)
{
	for (size_t v = 0; v < o->run.nr_variants; v++) {
		struct sample s = {
			.variant = run_turn(&o->run, v, round),
			.counted.names = counters,
			.copied = COPIES_FOR("compaction"),
			.busy = busy,
			.round = round,
		};

		/*
		 * Unmovable memory lies at random places, and may block too
		 * much.  Then the time belongs to another experiment, so
		 * measure again.
		 */
		while (!measure_once(o, &s, s.repeated == MAX_REPEATS))
			s.repeated++;
	}
}

static void report_environment(const struct options *o)
{
	run_environment(&o->run, "compaction");
	tiers_report();
	setting_report("compaction_proactiveness_found", PROACTIVENESS);
	setting_report("watermark_boost_factor_found", WATERMARK_BOOST);
	setting_report("percpu_pagelist_high_fraction_found", PCP_FRACTION);
	json_u64("total_bytes", o->run.total_bytes);
	json_end();
}

/*
 * Nobody but us is to compact.  And what is freed is to be free: a CPU keeps much of
 * it for itself, and compaction leaves alone the blocks where there is such a page.
 * After Linux broke up a block, it raises the node's watermarks for a while, and does
 * not compact a node that has less memory free.
 */
static void quieten(void)
{
	setting_must_pin(WATERMARK_BOOST, "0");
	setting_must_pin(PROACTIVENESS, "0");
	setting_must_pin(PCP_FRACTION, PCP_FRACTION_MAX);
}

int main(int argc, char **argv)
{
	struct run *r = &opts.run;

	options_parse(&program, argc, argv);
	check_options(&opts);
	run_start(r);
	if (access(TEST_DIR "/run", W_OK))
		bench_die(BENCH_LACKING,
			  "cannot write %s: %s (is the module migrate_compact_test loaded, and are you root?)",
			  TEST_DIR "/run", strerror(errno));
	choose_size(&opts);
	settings_restore_after(let_go);
	report_environment(&opts);
	run_prepare(r);
	/* A killed run may have left pages. */
	test_write("free", 1);
	quieten();
	pin_to_cpu(r->cpu);
	if (has_word(&opts.states, true))
		hogs_create();
	run_on_cpu(r, r->cpu);
	for (unsigned int round = 0; round <= r->rounds; round++)
		for (int busy = false; busy <= true; busy++)
			if (has_word(&opts.states, busy))
				run_state(&opts, round, busy);
	run_done();
	return BENCH_OK;
}
