// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measures how fast memory moves to a slower node.
 *
 * The first part compares sizes of a request: one page in each call of
 * move_pages(2), a list of 512, or one huge page.  The second part has reclaim
 * demote cold memory of a cgroup, with each engine.
 *
 * Linux 6.12 demotes for memory.reclaim, memory.high and memory.max, and when a
 * node runs short.  A demoted page stays charged, so demotion only satisfies
 * memory.reclaim.  A limit continues until the node is empty, and then
 * memory.max kills a child, which this program starts for that.  PSI reports
 * stalls only of tasks that need memory, here the child, and not of writers of
 * the files.  Work of a limit after the last page has moved is no demotion, and
 * is told apart.
 *
 * All measurements take turns within each round.  The program then counts the
 * nodes of all pages and compares every byte.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/tiers.h"

#define DEMOTION_ENABLED "/sys/kernel/mm/numa/demotion_enabled"
#define OOM_SCORE_ADJ "/proc/self/oom_score_adj"
#define PANIC_ON_OOM "/proc/sys/vm/panic_on_oom"
#define PRINTK "/proc/sys/kernel/printk"

/*
 * The child allocates this much.  Its limit leaves this much room above the
 * memory.
 */
#define BEYOND_BYTES (4UL << 20)
#define SLACK_BYTES (256L << 10)

enum part { PART_CALLS, PART_RECLAIM };
static const char *const part_names[] = { "calls", "reclaim", NULL };

enum pressure { PRESSURE_RECLAIM, PRESSURE_HIGH, PRESSURE_MAX };
static const char *const pressure_words[] = { "reclaim", "high", "max", NULL };

struct options {
	struct run run;
	struct word_list parts;
	uint64_t call_bytes;
	enum pressure pressure;
};

static const char *const pressure_names[] = {
	[PRESSURE_RECLAIM] = "memory.reclaim",
	[PRESSURE_HIGH] = "memory.high",
	[PRESSURE_MAX] = "memory.max",
};

static const struct call_case {
	const char *method;
	bool huge;
	unsigned int per_call;
} call_cases[] = {
	{ "one page per call", false, 1 },
	{ "512 pages per call", false, 512 },
	{ "one huge page per call", true, 1 },
};

static const char *const counters[] = {
	"pgdemote_kswapd",
	"pgdemote_direct",
	"pgdemote_khugepaged",
	/* memory.reclaim on newer kernels; 6.12 counts it as direct. */
	"pgdemote_proactive",
	NULL
};

static struct options opts = {
	.run = { TIER_DEFAULTS(0, 1) },
	.parts = { .at = { PART_CALLS, PART_RECLAIM }, .nr = 2 },
	.call_bytes = 4UL << 20,
};

static const struct option_row rows[] = {
	ROWS_TIERS(&opts.run, 0, 1),
	{ "parts", "LIST", "of calls and reclaim (default both)", set_words,
	  &opts.parts, 0, 0, part_names },
	{ "call-bytes", "SIZE",
	  "moved in calls, a multiple of 2M (default 4M): each\n"
	  "call waits until every CPU has emptied its caches\n"
	  "of the LRU lists", set_bytes, &opts.call_bytes, PMD_BYTES,
	  1ULL << 44, NULL },
	{ "pressure", "reclaim|high|max",
	  "what demotes: memory.reclaim, memory.high or\n"
	  "memory.max of a cgroup (default reclaim); the last\n"
	  "has a child killed, and alone shows stalls", set_word,
	  &opts.pressure, 0, 0, pressure_words },
	{ 0 },
};

static const struct program program = {
	.name = "demotion",
	.about = "Moves memory to a slower NUMA node, a page, a list or a huge page at a time\n"
		 "and by reclaim, verifies it, and prints one JSON object per measurement.",
	.example = "--sizes 2M --variants stock,mtcopy:threads=2",
	.options = rows,
};

static void measure_calls(const struct options *o, const struct call_case *c,
			  const struct variant *v, unsigned int round)
{
	size_t folio_bytes = c->huge ? PMD_BYTES : page_bytes();
	const struct run *t = &o->run;
	struct counters copied = engine_counters(v);
	uint64_t seed = run_seed(), elapsed_ns;
	struct region r, spacer;

	region_allocate(&r, o->call_bytes, folio_bytes, t->from, seed);
	spacer_take(&spacer, folio_bytes, t->to);
	engine_select(v);
	counters_read(&copied, false);
	r.per_call = c->per_call;
	elapsed_ns = region_must_move(&r, t->to, v->engine);
	counters_read(&copied, true);
	region_sabotage(&r, t->sabotage, t->from);
	region_check(&r, t->to, seed, v->engine, round);
	region_unmap(&spacer);
	region_unmap(&r);

	moved_begin("calls", v, folio_bytes, round, o->call_bytes, elapsed_ns);
	json_str("method", c->method);
	json_u64("folios_per_call", c->per_call);
	json_u64_or_null("engine_bytes", copied.known[ENGINE_BYTES],
			 copied.value[ENGINE_BYTES]);
	verified_end();
}

struct sample {
	const struct variant *variant;
	size_t folio_bytes;
	unsigned int round;	/* 0: a warm-up, which does not count */
	uint64_t start_ns;
	uint64_t elapsed_ns;	/* of all work for the request */
	uint64_t moving_ns;	/* until the last folio had moved */
	bool moving_known;
	bool complete;		/* the kernel met the whole request */
	bool stall_known, split_known;
	struct stall stall;
	struct counters demoted, copied;
	struct placement placement;
	size_t nr_split;
};

/*
 * No program needs this memory now.  Reclaim would need two scans to find this
 * out, which is not to be measured.
 */
static void make_cold(const struct region *r)
{
	if (madvise(r->base, r->bytes, MADV_COLD))
		bench_die(BENCH_LACKING, "madvise(MADV_COLD): %s",
			  strerror(errno));
}

/*
 * Start a child that waits for a byte, and then exceeds the limit.  It keeps
 * its cgroup in use.
 */
static pid_t victim_start(const struct region *r, int *go)
{
	int ends[2];
	pid_t pid;
	char *area;
	char byte;

	/*
	 * The child must not map these pages: a second mapping makes migration
	 * slower.
	 */
	if (madvise(r->base, r->bytes, MADV_DONTFORK))
		bench_die(BENCH_FAILED, "madvise(MADV_DONTFORK): %s",
			  strerror(errno));
	if (pipe(ends))
		bench_die(BENCH_FAILED, "pipe: %s", strerror(errno));
	pid = settings_fork(&settings_child);
	if (pid) {
		close(ends[0]);
		*go = ends[1];
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(ends[1]);
	if (!file_write(OOM_SCORE_ADJ, "1000") || read(ends[0], &byte, 1) != 1)
		_exit(BENCH_FAILED);
	area = mmap(NULL, BEYOND_BYTES, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED)
		_exit(BENCH_FAILED);
	madvise(area, BEYOND_BYTES, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < BEYOND_BYTES; i += page_bytes())
		((volatile char *)area)[i] = 1;
	_exit(BENCH_OK);
}

/* Call this without a limit: a limit makes tasks above it sleep. */
static void moving_read(struct sample *s)
{
	uint64_t at_ns;

	s->moving_known = last_move_read("demotion", &at_ns) &&
			  at_ns > s->start_ns;
	s->moving_ns = s->moving_known ? at_ns - s->start_ns : 0;
}

/*
 * A page fault of the child demotes all memory, which stays charged.  The
 * kernel kills the child when no page is left.  Returns true if it did.
 */
static bool demote_by_max(const struct region *r, struct sample *s)
{
	int go, status;
	pid_t pid;

	pid = victim_start(r, &go);
	last_move_arm(pid, r->folio_bytes == PMD_BYTES);
	cgroup_limit("memory.max", SLACK_BYTES);
	s->start_ns = bench_now_ns();
	if (write(go, "", 1) != 1 || waitpid(pid, &status, 0) != pid)
		bench_die(BENCH_FAILED, "the child is not there: %s",
			  strerror(errno));
	s->elapsed_ns = bench_now_ns() - s->start_ns;
	settings_child = 0;
	cgroup_write("memory.max", "max");
	close(go);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/* The kernel must kill the child alone, and at once. */
static void prepare_to_kill(void)
{
	uint64_t panics;

	if (file_read_u64(PANIC_ON_OOM, &panics) && panics == 2)
		bench_die(BENCH_LACKING,
			  PANIC_ON_OOM " is 2: memory.max would end this machine");
	if (!file_write(OOM_SCORE_ADJ, "-1000"))
		bench_die(BENCH_LACKING, "cannot write -1000 to " OOM_SCORE_ADJ ": %s",
			  strerror(errno));
	/*
	 * The kernel logs much about the kill, which takes time on a console.
	 */
	setting_must_pin(PRINTK, "1");
}

/* Returns true if the kernel met the whole request. */
static bool demote(const struct options *o)
{
	uint64_t bytes = o->run.total_bytes;

	if (o->pressure == PRESSURE_RECLAIM)
		return cgroup_reclaim(bytes);
	cgroup_limit("memory.high", -(int64_t)bytes);
	return true;
}

static void report_sample(const struct options *o, const struct sample *s)
{
	moved_begin("demotion", s->variant, s->folio_bytes, s->round,
		    s->placement.to_bytes, s->elapsed_ns);
	json_str("method", pressure_names[o->pressure]);
	json_u64("left_bytes", s->placement.from_bytes);
	json_bool("complete", s->complete);
	json_u64_or_null("moving_ns", s->moving_known, s->moving_ns);
	json_u64_or_null("stall_some_us", s->stall_known, s->stall.some_us);
	json_u64_or_null("stall_full_us", s->stall_known, s->stall.full_us);
	counters_report(&s->demoted);
	counters_report(&s->copied);
	json_u64_or_null("split_folios", s->split_known, s->nr_split);
	verified_end();
}

static void measure_reclaim(const struct run *t, const struct variant *v,
			    size_t folio_bytes, unsigned int round)
{
	struct sample sample = {
		.variant = v,
		.folio_bytes = folio_bytes,
		.demoted.names = counters,
		.copied = COPIES_FOR("demotion"),
		.round = round,
	}, *s = &sample;
	const struct options *o = &opts;
	uint64_t seed = run_seed();
	struct stall before;
	struct region r, spacer;

	region_allocate(&r, t->total_bytes, s->folio_bytes, t->from, seed);
	spacer_take(&spacer, s->folio_bytes, t->to);
	engine_select(s->variant);
	make_cold(&r);
	counters_read(&s->demoted, false);
	counters_read(&s->copied, false);
	s->stall_known = cgroup_stall(&before);
	if (o->pressure == PRESSURE_MAX) {
		s->complete = demote_by_max(&r, s);
	} else {
		last_move_arm(getpid(), s->folio_bytes == PMD_BYTES);
		s->start_ns = bench_now_ns();
		s->complete = demote(o);
		s->elapsed_ns = bench_now_ns() - s->start_ns;
	}
	if (o->pressure == PRESSURE_HIGH)
		cgroup_write("memory.high", "max");
	moving_read(s);
	s->stall_known = s->stall_known && cgroup_stall(&s->stall);
	if (s->stall_known) {
		s->stall.some_us -= before.some_us;
		s->stall.full_us -= before.full_us;
	}
	counters_read(&s->copied, true);
	counters_read(&s->demoted, true);
	placement_read(&r, t, &s->placement);
	if (!s->placement.to_bytes)
		bench_die(BENCH_LACKING,
			  "%s of a cgroup demoted nothing from node %d to node %d: is node %d of a slower tier (see /sys/devices/virtual/memory_tiering)?",
			  pressure_names[o->pressure], t->from, t->to, t->to);
	s->split_known = region_count_split(&r, &s->nr_split);
	region_sabotage(&r, t->sabotage, t->from);
	region_check_content(&r, seed, s->variant->engine, s->round);
	region_unmap(&spacer);
	region_unmap(&r);
	report_sample(o, s);
}

static void run_calls(const struct options *o, unsigned int round)
{
	size_t nr = ARRAY_SIZE(call_cases);

	for (size_t v = 0; v < o->run.nr_variants; v++) {
		for (size_t i = 0; i < nr; i++) {
			const struct call_case *c = &call_cases[(i + round) % nr];

			if (!c->huge || folio_size_supported(PMD_BYTES))
				measure_calls(o, c, run_turn(&o->run, v, round),
					      round);
		}
	}
}

int main(int argc, char **argv)
{
	struct run *r = &opts.run;
	struct stall stall;
	bool calls, reclaim;

	run_begin(r, &program, argc, argv);
	run_check_nodes(r, opts.call_bytes);
	calls = has_word(&opts.parts, PART_CALLS);
	reclaim = has_word(&opts.parts, PART_RECLAIM);
	if (reclaim) {
		cgroup_open();
		last_move_open();
	}
	run_environment(r, "demotion");
	tiers_report();
	json_bool("psi", reclaim && cgroup_stall(&stall));
	json_end();
	run_prepare(r);
	if (reclaim)
		setting_must_pin(DEMOTION_ENABLED, "true");
	if (reclaim && opts.pressure == PRESSURE_MAX)
		prepare_to_kill();
	run_on_cpu(r, r->cpu);
	for (unsigned int round = 0; round <= r->rounds; round++) {
		if (calls)
			run_calls(&opts, round);
		if (reclaim)
			run_round(r, round, measure_reclaim);
	}
	run_done();
	return BENCH_OK;
}
