// SPDX-License-Identifier: GPL-2.0-only
/*
 * How fast does hot memory come back from a slower node, and what does the
 * program that needs it lose meanwhile?
 *
 * A thread on a CPU of the fast node touches memory of the slow one.  With
 * kernel.numa_balancing=2 Linux takes away its access to that memory from time to
 * time and moves each folio in the page fault of the next touch, unless that comes
 * too late.  So it is the thread itself that migrates, folio by folio, and that
 * loses the time; with an engine, folios of less than 2M wait for each other, and
 * the kernel migrates them in batches.
 *
 * The clock runs from the first promoted folio that is seen: when the kernel looks
 * at the memory is not what is measured.  The variants take turns within each
 * round.  The nodes of all pages are counted afterwards and every byte is compared,
 * the writes of the thread taken back.
 */
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/latency.h"
#include "common/tiers.h"

#define BALANCING "/proc/sys/kernel/numa_balancing"
#define SCAN_DIR "/sys/kernel/debug/sched/numa_balancing"
#define TIERING_MODE "2"
#define QUEUE "/sys/kernel/mm/migrate_offload/promotion"
#define POLL_NS 500000L
/* So long without a promotion, and it is taken to be over. */
#define STILL_NS 3000000000ULL

struct options {
	struct run run;
	enum touch_mode touch;
	uint64_t wait_s;	/* for the first folio */
	uint64_t percent;	/* of all pages; then the clock stops */
	int other_cpu;
};

/*
 * Files of CONFIG_SCHED_DEBUG.  As they are by default a scan begins after a second
 * of CPU time, and a page that is touched a second later is not hot any more.
 */
static const struct scan_setting {
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
	unsigned int round;	/* 0 warms up and does not count */
	uint64_t waited_ns, elapsed_ns, promoted_pages;
	struct offloaded before, after;
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

/* The memory may go where its policy would not let it: it has none from now on. */
static void let_go(const struct region *r)
{
	if (syscall(SYS_mbind, r->base, r->bytes, MPOL_DEFAULT, NULL, 0UL, 0))
		bench_die(BENCH_FAILED, "mbind to no node: %s",
			  strerror(errno));
}

/*
 * From before the first folio until enough of them, or no more, are there.  Before
 * anybody touched them @first had been promoted.
 */
static void watch(const struct options *o, struct sample *s, uint64_t first)
{
	const struct timespec poll = { .tv_nsec = POLL_NS };
	const uint64_t page = page_bytes();
	const uint64_t goal =
		o->run.total_bytes / page * o->percent / 100;
	uint64_t begin = bench_now_ns(), quiet = begin, last = begin;
	uint64_t pages = 0;

	while (pages < goal) {
		uint64_t now, found;

		nanosleep(&poll, NULL);
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
	/* Where promotions do not gather there is none. */
	file_read_u64(path, &nr);
	return nr;
}

/*
 * Folios that wait when the engine is switched off would be moved without it.
 * Nothing is put on the queue any more.
 */
static void let_queue_drain(void)
{
	const struct timespec poll = { .tv_nsec = POLL_NS };
	uint64_t begin = bench_now_ns();

	while (queue_folios("queued") >
		       queue_folios("moved") + queue_folios("returned") &&
	       bench_now_ns() - begin < STILL_NS)
		nanosleep(&poll, NULL);
}

/*
 * While the clock ran.  The counter is that of the node: pages of others, and of
 * this program's stacks, are among them.
 */
static uint64_t promoted_bytes(const struct sample *s)
{
	uint64_t bytes = s->promoted_pages * page_bytes();

	return bytes < s->placement.to_bytes ? bytes : s->placement.to_bytes;
}

static void report_sample(const struct options *o, const struct sample *s)
{
	moved_begin("promotion", s->variant, s->folio_bytes, s->round,
		    promoted_bytes(s), s->elapsed_ns);
	json_str("method", "numa_balancing");
	json_u64("asked_bytes", o->run.total_bytes);
	json_u64("pgpromote_success", s->promoted_pages);
	json_u64("fast_bytes", s->placement.to_bytes);
	json_u64("left_bytes", s->placement.from_bytes);
	json_u64("waited_ns", s->waited_ns);
	offloaded_report(&s->before, &s->after);
	json_u64_or_null("split_folios", s->split_known, s->nr_split);
	toucher_report(&s->toucher);
	verified_end();
}

static void measure(const struct run *t, const struct variant *v,
		    size_t folio_bytes, unsigned int round)
{
	/* Switching engines off waits for all that waits to be promoted. */
	static const struct variant off = { .engine = "off" };
	struct sample sample = {
		.variant = v,
		.folio_bytes = folio_bytes,
		.round = round,
	}, *s = &sample;
	const struct options *o = &opts;
	uint64_t first, seed = run_seed();
	struct region r, spacer;

	region_allocate(&r, t->total_bytes, s->folio_bytes, t->from, seed);
	let_go(&r);
	spacer_take(&spacer, s->folio_bytes, t->to);
	engine_select(s->variant);
	s->toucher.region = &r;
	s->toucher.mode = o->touch;
	s->toucher.cpu = t->cpu;
	offloaded_read("numa_misplaced", &s->before);
	/*
	 * Linux changes its code for this.  Nobody is to be in the middle of
	 * that code: emulators are known to get it wrong.
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
	offloaded_read("numa_misplaced", &s->after);
	placement_read(&r, t, &s->placement);
	if (!s->placement.to_bytes)
		bench_die(BENCH_FAILED,
			  "%s, %zu-byte folios, round %u: %llu pages were promoted, but none of ours",
			  s->variant->engine, s->folio_bytes, s->round,
			  (unsigned long long)s->promoted_pages);
	s->split_known = region_count_split(&r, &s->nr_split);
	content_check(&r, t, seed, s->variant, s->round);
	region_unmap(&spacer);
	region_unmap(&r);
	report_sample(o, s);
}

/*
 * The thread touches from the fast node.  Who looks on runs elsewhere, so that
 * its time is not taken for time that was lost.
 */
static void choose_cpus(struct options *o)
{
	struct run *t = &o->run;
	int fast = node_first_cpu(t->to);

	if (fast < 0)
		bench_die(BENCH_LACKING,
			  "node %d has no CPU: memory is promoted to nodes with CPUs",
			  t->to);
	t->cpu = CPU_ISSET(fast, &t->cpus) ? fast : t->cpu;
	o->other_cpu = run_other_cpu(t);
	if (o->other_cpu < 0)
		bench_die(BENCH_LACKING, "touching needs a second CPU");
}

/* In the environment line what was found; pinned so that it takes seconds. */
static void prepare_scan(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(scan_settings); i++) {
		const struct scan_setting *s = &scan_settings[i];

		setting_report(s->key, s->path);
		if (!access(s->path, F_OK) && !setting_pin(s->path, s->value))
			fprintf(stderr, "warning: cannot write '%s' to %s: %s\n",
				s->value, s->path, strerror(errno));
	}
	setting_report("promote_rate_limit_mbps_found",
		     "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps");
}

int main(int argc, char **argv)
{
	struct run *r = &opts.run;

	run_begin(r, &program, argc, argv, NULL);
	choose_cpus(&opts);
	run_environment(r, "promotion");
	tiers_report();
	prepare_scan();
	json_end();
	run_prepare(r);
	promoted_pages(&opts);
	run_on_cpu(r, opts.other_cpu);
	for (unsigned int round = 0; round <= r->rounds; round++)
		run_round(r, round, measure);
	run_done(r);
	return BENCH_OK;
}
