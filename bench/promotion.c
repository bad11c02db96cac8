// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measures how fast hot memory returns from a slower node, and the time that the
 * program loses meanwhile.
 *
 * A thread on a CPU of the fast node touches memory of the slow one.  With
 * kernel.numa_balancing=2 Linux makes this memory inaccessible from time to time.
 * The next touch of each folio faults, and moves the folio unless it is too late.
 * So the thread itself migrates each folio, and loses this time.  With an engine,
 * folios of less than 2M gather, and the kernel migrates them in batches.
 *
 * The clock starts at the first promoted folio, because the time until the scan
 * is not to be measured.  The variants take turns within each round.  Afterwards
 * the program counts the nodes of all pages, undoes the writes of the thread and
 * compares every byte.
 */
#include <stdio.h>

#include "common/latency.h"
#include "common/tiers.h"

#define BALANCING "/proc/sys/kernel/numa_balancing"
#define SCAN_DIR "/sys/kernel/debug/sched/numa_balancing"
#define TIERING_MODE "2"
#define QUEUE "/sys/kernel/mm/migrate_offload/promotion"
#define POLL_NS 500000
/* After this time without a promotion, the measurement ends. */
#define STILL_NS 3000000000ULL

struct options {
	struct run run;
	enum touch_mode touch;
	uint64_t wait_s;	/* limit for the first folio */
	uint64_t percent;	/* of all pages, after which the clock stops */
	int other_cpu;
};

/*
 * Files of CONFIG_SCHED_DEBUG.  By default a scan begins after a second of CPU
 * time, and a page that is touched a second after the scan is not hot.
 */
static const struct {
	const char *key, *path, *value;
} scan_settings[] = {
	{ "scan_delay_ms_found", SCAN_DIR "/scan_delay_ms", "100" },
	{ "scan_period_min_ms_found", SCAN_DIR "/scan_period_min_ms", "100" },
	{ "scan_period_max_ms_found", SCAN_DIR "/scan_period_max_ms", "1000" },
	{ "scan_size_mb_found", SCAN_DIR "/scan_size_mb", "1024" },
	{ "hot_threshold_ms_found", SCAN_DIR "/hot_threshold_ms", "5000" },
};

static struct options opts = {
	.run = { TIER_DEFAULTS(1, 0) },
	.touch = TOUCH_WRITE,
	.wait_s = 60,
	.percent = 90,
};

static const struct option_row rows[] = {
	ROWS_TIERS(&opts.run, 1, 0),
	{ "touch", "read|write", "how it is touched (default write)", set_word,
	  &opts.touch, TOUCH_READ, 0, touch_names },
	{ "percent", "N", "of the memory, then the clock stops (default 90)",
	  set_u64, &opts.percent, 1, 100, NULL },
	{ "wait", "SECONDS", "for the first folio (default 60)", set_u64,
	  &opts.wait_s, 1, 3600, NULL },
	{ 0 },
};

static const struct program program = {
	.name = "promotion",
	.about = "Touches memory of a slow NUMA node until Linux has promoted it to the fast\n"
		 "one, verifies it, and prints one JSON object per measurement.",
	.example = "--sizes 2M --variants stock,mtcopy:threads=2",
	.options = rows,
};

struct sample {
	const struct variant *variant;
	size_t folio_bytes;
	unsigned int round;	/* 0: a warm-up, which does not count */
	uint64_t waited_ns, elapsed_ns, promoted_pages;
	struct counters copied;
	struct placement placement;
	struct toucher toucher;
	bool split_known;
	size_t nr_split;
};

/* Pages that Linux promoted to the fast node since boot. */
static uint64_t promoted_pages(const struct options *o)
{
	char path[64];
	uint64_t pages;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/vmstat",
		 o->run.to);
	if (!line_read_u64(path, "pgpromote_success", &pages))
		bench_die(BENCH_LACKING,
			  "%s has no pgpromote_success: this needs CONFIG_NUMA_BALANCING of Linux 5.18 or later",
			  path);
	return pages;
}

/*
 * Measure from before the first promotion until enough folios, or no more, have
 * moved.  @first is the number of promoted pages before the first touch.
 */
static void watch(const struct options *o, struct sample *s, uint64_t first)
{
	const uint64_t page = page_bytes();
	const uint64_t goal =
		o->run.total_bytes / page * o->percent / 100;
	uint64_t begin = bench_now_ns(), quiet = begin, last = begin;
	uint64_t pages = 0;

	while (pages < goal) {
		uint64_t now, found;

		bench_sleep_ns(POLL_NS);
		found = promoted_pages(o) - first;
		now = bench_now_ns();
		if (!found) {
			quiet = now;
			if (now - begin > o->wait_s * 1000000000)
				bench_die(BENCH_LACKING,
					  "nothing was promoted from node %d to node %d in %llu s: is node %d of a slower tier, and has node %d room above its watermarks?",
					  o->run.from, o->run.to,
					  (unsigned long long)o->wait_s,
					  o->run.from, o->run.to);
			continue;
		}
		if (!pages)
			toucher_moving(&s->toucher);
		if (found > pages)
			last = now;
		else if (now - last > STILL_NS)
			break;
		pages = found;
	}
	s->waited_ns = quiet - begin;
	s->elapsed_ns = last - quiet;
	s->promoted_pages = pages;
}

static uint64_t queue_folios(const char *what)
{
	uint64_t nr = 0;
	char path[96];

	snprintf(path, sizeof(path), QUEUE "/%s_folios", what);
	/* Kernels without gathering promotions lack this file. */
	file_read_u64(path, &nr);
	return nr;
}

/*
 * Without the engine, the kernel would move the queued folios differently.  So
 * wait here until the queue is empty.  New folios are not queued any more.
 */
static void let_queue_drain(void)
{
	uint64_t begin = bench_now_ns();

	while (queue_folios("queued") >
		       queue_folios("moved") + queue_folios("returned") &&
	       bench_now_ns() - begin < STILL_NS)
		bench_sleep_ns(POLL_NS);
}

/*
 * Bytes promoted while the clock ran.  The counter is that of the node, so it
 * includes pages of other programs and this program's stacks.
 */
static uint64_t promoted_bytes(const struct sample *s)
{
	uint64_t bytes = s->promoted_pages * page_bytes();

	return bytes < s->placement.to_bytes ? bytes : s->placement.to_bytes;
}

static void report_sample(const struct sample *s)
{
	moved_begin("promotion", s->variant, s->folio_bytes, s->round,
		    promoted_bytes(s), s->elapsed_ns);
	json_str("method", "numa_balancing");
	json_u64("pgpromote_success", s->promoted_pages);
	json_u64("fast_bytes", s->placement.to_bytes);
	json_u64("left_bytes", s->placement.from_bytes);
	json_u64("waited_ns", s->waited_ns);
	counters_report(&s->copied);
	json_u64_or_null("split_folios", s->split_known, s->nr_split);
	toucher_report(&s->toucher);
	verified_end();
}

static void measure(const struct run *t, const struct variant *v,
		    size_t folio_bytes, unsigned int round)
{
	/* Switching the engine off waits for all queued promotions. */
	static const struct variant off = { .engine = "off" };
	struct sample sample = {
		.variant = v,
		.folio_bytes = folio_bytes,
		.round = round,
		.copied = COPIES_FOR("numa_misplaced"),
	}, *s = &sample;
	const struct options *o = &opts;
	uint64_t first, seed = run_seed();
	struct region r, spacer;

	region_allocate(&r, t->total_bytes, s->folio_bytes, t->from, seed);
	memory_unbind(r.base, r.bytes);
	spacer_take(&spacer, s->folio_bytes, t->to);
	engine_select(s->variant);
	s->toucher.region = &r;
	s->toucher.mode = o->touch;
	s->toucher.cpu = t->cpu;
	counters_read(&s->copied, false);
	/*
	 * Linux patches its code for this write.  No task may execute this code
	 * now, because emulators are known to get that wrong.
	 */
	setting_must_pin(BALANCING, TIERING_MODE);
	counters_flush();
	first = promoted_pages(o);
	toucher_start(&s->toucher);
	watch(o, s, first);
	toucher_stop(&s->toucher);
	setting_must_pin(BALANCING, "0");
	let_queue_drain();
	engine_select(&off);
	counters_read(&s->copied, true);
	placement_read(&r, t, &s->placement);
	if (!s->placement.to_bytes)
		bench_die(BENCH_FAILED,
			  "%s, %zu-byte folios, round %u: %llu pages were promoted, but none of ours",
			  s->variant->engine, s->folio_bytes, s->round,
			  (unsigned long long)s->promoted_pages);
	s->split_known = region_count_split(&r, &s->nr_split);
	region_sabotage(&r, t->sabotage, t->from);
	region_check_content(&r, seed, s->variant->engine, s->round);
	region_unmap(&spacer);
	region_unmap(&r);
	report_sample(s);
}

/* Report the present settings in the environment line, then pin faster ones. */
static void prepare_scan(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(scan_settings); i++)
		setting_report_and_pin(scan_settings[i].key,
				       scan_settings[i].path,
				       scan_settings[i].value);
	setting_report("promote_rate_limit_mbps_found",
		     "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps");
}

int main(int argc, char **argv)
{
	struct run *r = &opts.run;

	run_begin(r, &program, argc, argv);
	opts.other_cpu = tiers_choose_cpus(r);
	run_environment(r, "promotion");
	tiers_report();
	prepare_scan();
	json_end();
	run_prepare(r);
	promoted_pages(&opts);
	run_on_cpu(r, opts.other_cpu);
	for (unsigned int round = 0; round <= r->rounds; round++)
		run_round(r, round, measure);
	run_done();
	return BENCH_OK;
}
