// SPDX-License-Identifier: GPL-2.0-only
/*
 * Does a page cost the same however many move, however many movers there are,
 * and however long the machine runs?
 *
 * In a QEMU guest with "-accel tcg -icount shift=0,sleep=off", a nanosecond of
 * guest time is one instruction of any CPU, also of one that waits in a loop.
 * So the time for a page is what all CPUs spend on it.  Elsewhere the figures
 * are plain nanoseconds.
 *
 * sizes:  one list of 4K pages in one call, and the same list in many calls.
 * movers: processes or threads that each move their own memory to and fro.
 * life:   rounds of short processes, and the memory in use before and after.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/footprint.h"
#include "common/tiers.h"

#define MAX_NUMBERS 16
#define MAX_MOVERS 64
#define ENGINE_ALWAYS OFFLOAD_DEBUG_DIR "/engine_always"
#define LOCK_STAT "/proc/lock_stat"
#define MOST_LOCKS 3
/* A round of life moves this much memory in base pages, and one 2M folio. */
#define LIFE_BYTES (512UL << 10)
#define LIFE_CALLS 4
/* Counts of memory in use, of all rounds. */
#define LIFE_SAMPLES 64

enum part { PART_SIZES, PART_MOVERS, PART_LIFE };
static const char *const part_names[] = { "sizes", "movers", "life", NULL };

struct numbers {
	uint64_t at[MAX_NUMBERS];
	size_t nr;
};

static struct {
	struct variant variant;
	struct modules modules;
	struct word_list parts;
	struct numbers sizes, movers;
	uint64_t call_pages, mover_pages, learn_ms, repeats, rounds, pause_ms;
} opts = {
	.variant = { .engine = "off", .threads = 1 },
	.parts = { { PART_SIZES, PART_MOVERS, PART_LIFE }, 3 },
	.sizes = { { 64UL << 20, 256UL << 20, 1UL << 30, 4UL << 30,
		     16UL << 30 }, 5 },
	.movers = { { 1, 2, 4, 8, 16, 32, 64 }, 7 },
	.call_pages = 256,
	.mover_pages = 65536,
	.learn_ms = 12000,
	.repeats = 3,
	.rounds = 3600,
	.pause_ms = 1000,
};

static void set_numbers(const struct option_row *row, const char *text)
{
	struct numbers *numbers = row->to;
	char words[MAX_NUMBERS][64];

	numbers->nr = parse_list(text, words, MAX_NUMBERS);
	if (!numbers->nr)
		option_invalid(row->name, text);
	for (size_t i = 0; i < numbers->nr; i++) {
		uint64_t *number = &numbers->at[i];

		if (!parse_bytes(words[i], number) || *number < row->min ||
		    *number > row->max)
			option_invalid(row->name, words[i]);
	}
}

static const struct option_row rows[] = {
	ROW_ENGINE(&opts.variant),
	ROW_MODULE(&opts.modules),
	{ "parts", "LIST", "sizes, movers, life (default all)", set_words,
	  &opts.parts, 0, 0, part_names },
	{ "sizes", "LIST", "bytes of a list (default 64M,256M,1G,4G,16G)",
	  set_numbers, &opts.sizes, PMD_BYTES, 1UL << 40, NULL },
	{ "movers", "LIST", "movers at once (default 1,2,4,8,16,32,64)",
	  set_numbers, &opts.movers, 1, MAX_MOVERS, NULL },
	{ "call-pages", "N", "pages of each of many calls (default 256)",
	  set_u64, &opts.call_pages, 1, 1 << 20, NULL },
	{ "mover-pages", "N",
	  "that all movers move together, about (default 65536)", set_u64,
	  &opts.mover_pages, 1, 1 << 30, NULL },
	{ "learn-ms", "MS",
	  "of moves before those of movers count (default 12000)", set_u64,
	  &opts.learn_ms, 0, 1 << 20, NULL },
	{ "repeats", "N", "measurements of movers (default 3)", set_u64,
	  &opts.repeats, 1, 1000, NULL },
	{ "rounds", "N", "of the long life (default 3600)", set_u64,
	  &opts.rounds, 4, 1 << 30, NULL },
	{ "pause-ms", "MS", "after each of these (default 1000)", set_u64,
	  &opts.pause_ms, 0, 1 << 20, NULL },
	{ 0 },
};

static const struct program program = {
	.name = "scale",
	.about = "Moves long lists of pages, moves with many movers, and moves for long,\n"
		 "between nodes 0 and 1, and prints the nanoseconds: instructions of all\n"
		 "CPUs, under QEMU's icount. Can be /init.",
	.example = "--parts sizes --sizes 64M,1G",
	.options = rows,
};

static struct counters work;

static void line_begin(const char *type, uint64_t moved_bytes,
		       uint64_t elapsed_ns)
{
	counters_read(&work, true);
	json_begin(type);
	json_str("engine", opts.variant.engine);
	json_u64("moved_bytes", moved_bytes);
	json_u64("elapsed_ns", elapsed_ns);
	json_u64_or_null("engine_bytes", work.known[ENGINE_BYTES],
			 work.value[ENGINE_BYTES]);
}

/* Should the engine get all copies, or only those where it pays? */
static void engine_always(bool always)
{
	if (!access(ENGINE_ALWAYS, F_OK))
		setting_must_pin(ENGINE_ALWAYS, always ? "1" : "0");
}

static uint64_t must_move(const struct region *r, int node)
{
	uint64_t elapsed_ns;
	long ret = region_move(r, node, &elapsed_ns);

	if (ret)
		bench_die(BENCH_FAILED,
			  "move_pages(2) of %zu bytes to node %d returned %ld: not every page moved",
			  r->bytes, node, ret);
	return elapsed_ns;
}

/* The largest of @bytes, a half, a quarter and so on that fits both nodes. */
static uint64_t fitting(uint64_t bytes)
{
	for (int node = 0; node < 2; node++) {
		uint64_t free = 0;

		node_free_bytes(node, &free);
		while (bytes > PMD_BYTES && node_needs(bytes) > free)
			bytes /= 2;
	}
	return bytes;
}

/*
 * Move a list of @bytes, in calls of @per_call entries or in one.  Memory that
 * fits is moved there and back, in two passes.  A longer list names less memory
 * several times, for either node in turn: the way back is in the same list.
 */
static uint64_t list_move(struct region *r, uint64_t bytes, uint64_t per_call,
			  uint64_t *moved_bytes)
{
	uint64_t elapsed_ns;

	r->turns = bytes / r->bytes;
	r->per_call = per_call;
	elapsed_ns = must_move(r, 1);
	if (r->turns == 1)
		elapsed_ns += must_move(r, 0);
	*moved_bytes = r->bytes * (r->turns == 1 ? 2 : r->turns);
	return elapsed_ns;
}

static void measure_list(uint64_t bytes, bool counts)
{
	const uint64_t seed = bytes + 2;
	uint64_t per_call = 0, moved_bytes, elapsed_ns;
	struct region r;

	region_map(&r, fitting(bytes), page_bytes(), 0);
	region_fill(&r, seed);
	for (int many = 0; many < 2; many++, per_call = opts.call_pages) {
		counters_read(&work, false);
		elapsed_ns = list_move(&r, bytes, per_call, &moved_bytes);
		region_check(&r, 0, seed, opts.variant.engine, 0);
		if (!counts)
			continue;
		line_begin("sizes", moved_bytes, elapsed_ns);
		json_u64("size_bytes", bytes);
		json_u64("region_bytes", r.bytes);
		json_u64("call_pages", per_call);
		verified_end();
	}
	region_unmap(&r);
}

/*
 * Each CPU keeps free pages, up to an eighth of a node in all.  The pages of a
 * short list fit there, and cost 350 instructions less than others.  So have
 * these lists short, for pages of all lists to cost the same.
 */
static void measure_sizes(void)
{
	char found[32];

	setting_value(PCP_FRACTION, found, sizeof(found));
	setting_must_pin(PCP_FRACTION, "1000000");
	/* The first pass fills caches and free lists. */
	measure_list(opts.sizes.at[0], false);
	for (size_t i = 0; i < opts.sizes.nr; i++)
		measure_list(opts.sizes.at[i], true);
	setting_must_pin(PCP_FRACTION, found);
}

struct mover {
	struct region region;
	uint64_t passes;
	pthread_t thread;
	volatile pid_t pid;
};

/*
 * Movers write a byte to @up when they are ready, and when they are done.  They
 * go on when the other end of @go is closed, and of @leave.
 */
static struct {
	int up[2], go[2], leave[2];
} gate;

static void gate_open(int *ends)
{
	if (pipe(ends))
		bench_die(BENCH_LACKING, "cannot make a pipe");
}

static void gate_tell(void)
{
	if (write(gate.up[1], "", 1) != 1)
		bench_die(BENCH_FAILED, "a mover cannot write to its pipe");
}

static void gate_wait(const int *ends)
{
	char ignored;

	while (read(ends[0], &ignored, 1) < 0)
		;
}

/* Wait for a byte of each mover, and end the program if one has ended. */
static void movers_wait(size_t nr)
{
	struct pollfd up = { .fd = gate.up[0], .events = POLLIN };
	char ignored[MAX_MOVERS];

	while (nr) {
		siginfo_t ended = { 0 };

		if (poll(&up, 1, 1000) > 0)
			nr -= (size_t)read(gate.up[0], ignored, nr);
		else if (!waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) &&
			 ended.si_pid)
			bench_die(BENCH_FAILED, "a mover ended early");
	}
}

static void *mover_run(void *arg)
{
	struct mover *m = arg;

	gate_tell();
	gate_wait(gate.go);
	for (uint64_t pass = 0; pass < m->passes; pass++)
		must_move(&m->region, pass % 2 ? 0 : 1);
	gate_tell();
	gate_wait(gate.leave);
	return NULL;
}

static uint64_t mover_seed(const struct mover *m)
{
	return 2 * (uint64_t)(uintptr_t)m;
}

static void mover_map(struct mover *m)
{
	region_map(&m->region, opts.call_pages * page_bytes(), page_bytes(), 0);
	m->region.turns = 1;
	region_fill(&m->region, mover_seed(m));
}

static void mover_check(struct mover *m)
{
	region_check(&m->region, 0, mover_seed(m), opts.variant.engine, 0);
	region_unmap(&m->region);
}

static void mover_start(struct mover *m, bool threads)
{
	if (threads) {
		mover_map(m);
		thread_start(&m->thread, mover_run, m);
		return;
	}
	if (settings_fork(&m->pid))
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(gate.go[1]);
	close(gate.leave[1]);
	mover_map(m);
	mover_run(m);
	mover_check(m);
	_exit(BENCH_OK);
}

/* Threads cannot verify themselves: the query of nodes has one buffer. */
static void mover_end(struct mover *m, bool threads)
{
	int status;

	if (threads) {
		pthread_join(m->thread, NULL);
		mover_check(m);
	} else if (waitpid(m->pid, &status, 0) != m->pid || status) {
		bench_die(BENCH_FAILED, "a mover failed");
	}
}

/* The locks for which CPUs waited most often: "name number, name number". */
static char locks[MOST_LOCKS * 64];

/* Returns false if the kernel has no statistics of locks. */
static bool locks_read(void)
{
	FILE *file = fopen(LOCK_STAT, "re");
	size_t nr = 0, used = 0;
	char line[512];

	if (!file)
		return false;
	locks[0] = '\0';
	while (nr < MOST_LOCKS && fgets(line, sizeof(line), file)) {
		char *colon = strrchr(line, ':');
		unsigned long long bounces, contentions;

		/* Other lines are headers, and places in the code. */
		if (strstr(line, "[<") || !colon ||
		    sscanf(colon + 1, "%llu %llu", &bounces, &contentions) != 2 ||
		    !contentions)
			continue;
		*colon = '\0';
		used += (size_t)snprintf(locks + used, sizeof(locks) - used,
					 "%s%.40s %llu", nr++ ? ", " : "",
					 line + strspn(line, " "), contentions);
	}
	fclose(file);
	return true;
}

/* Returns the time from the start of all movers to the end of the last. */
static uint64_t movers_move(size_t nr, uint64_t passes, bool threads,
			    bool *knows_locks)
{
	static struct mover movers[MAX_MOVERS];
	uint64_t start, elapsed_ns;

	gate_open(gate.up);
	gate_open(gate.go);
	gate_open(gate.leave);
	for (size_t i = 0; i < nr; i++) {
		movers[i].passes = passes;
		mover_start(&movers[i], threads);
	}
	movers_wait(nr);
	file_write(LOCK_STAT, "0");
	start = bench_now_ns();
	close(gate.go[1]);
	movers_wait(nr);
	elapsed_ns = bench_now_ns() - start;
	*knows_locks = locks_read();
	close(gate.leave[1]);
	for (size_t i = 0; i < nr; i++)
		mover_end(&movers[i], threads);
	close(gate.up[0]);
	close(gate.up[1]);
	close(gate.go[0]);
	close(gate.leave[0]);
	return elapsed_ns;
}

static uint64_t measure_movers_once(size_t nr, bool threads, bool counts)
{
	uint64_t each = opts.mover_pages / nr / opts.call_pages;
	/* There and back. */
	uint64_t passes = each < 2 ? 2 : each / 2 * 2, elapsed_ns;
	bool knows_locks;

	counters_read(&work, false);
	elapsed_ns = movers_move(nr, passes, threads, &knows_locks);
	if (!counts)
		return elapsed_ns;
	line_begin("movers", nr * passes * opts.call_pages * page_bytes(),
		   elapsed_ns);
	json_u64("movers", nr);
	json_str("together", threads ? "threads" : "processes");
	json_u64("call_pages", opts.call_pages);
	if (knows_locks)
		json_str("locks", locks);
	else
		json_null("locks");
	verified_end();
	return elapsed_ns;
}

/*
 * Let the kernel learn whether the engine pays.  Costs that it has learnt from
 * many movers do not hold for one, and fade in seconds.
 */
static void movers_learn(bool threads)
{
	bool learns = strcmp(opts.variant.engine, "stock") &&
		      strcmp(opts.variant.engine, "off");
	uint64_t ns = 0;

	do
		ns += measure_movers_once(opts.movers.at[0], threads, false);
	while (learns && ns < opts.learn_ms * 1000000);
}

static void measure_movers(void)
{
	engine_always(false);
	for (int threads = 0; threads < 2; threads++) {
		movers_learn(threads);
		for (size_t i = 0; i < opts.movers.nr; i++)
			for (uint64_t j = 0; j < opts.repeats; j++)
				measure_movers_once(opts.movers.at[i], threads,
						    true);
	}
	engine_always(true);
}

static void life_move(size_t bytes, size_t folio_bytes, uint64_t seed)
{
	struct region r;

	region_allocate(&r, bytes, folio_bytes, 0, seed);
	r.turns = 1;
	for (int node = 1; node >= 0; node--) {
		must_move(&r, node);
		region_check(&r, node, seed, opts.variant.engine, 0);
	}
	region_unmap(&r);
}

/* A short process, as those of a machine that runs for long. */
static void life_round(uint64_t round)
{
	if (!settings_fork(&settings_child)) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		life_move(LIFE_BYTES, page_bytes(), 4 * round + 2);
		life_move(PMD_BYTES, PMD_BYTES, 4 * round + 4);
		_exit(BENCH_OK);
	}
	settings_child_wait();
}

/* The two values, if they are known. */
static void report_growth(const char *name, bool known, uint64_t before,
			  uint64_t after)
{
	if (known)
		json_u64_array(name, (uint64_t[]){ before, after }, 2);
	else
		json_null(name);
}

/*
 * Compare the memory in use in the second quarter of all rounds with that in
 * the last.  The first quarter fills caches, which have objects of each CPU.  So
 * each round has the next CPU.
 */
static void measure_life(void)
{
	uint64_t nr_cpus = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t every = opts.rounds < LIFE_SAMPLES ?
				 1 : opts.rounds / LIFE_SAMPLES;
	struct footprint of[4];
	uint64_t start;

	memset(of, 0xff, sizeof(of));
	/* Here, so that no child has to restore the setting. */
	folio_size_select(PMD_BYTES);
	counters_read(&work, false);
	start = bench_now_ns();
	for (uint64_t round = 0; round < opts.rounds; round++) {
		struct footprint now;

		pin_to_cpu((int)(round % nr_cpus));
		life_round(round);
		bench_sleep_ns(opts.pause_ms * 1000000);
		if (round % every)
			continue;
		footprint_read(&now);
		footprint_least(&of[4 * round / opts.rounds], &now);
	}
	line_begin("life", 2 * opts.rounds * (LIFE_BYTES + PMD_BYTES),
		   bench_now_ns() - start);
	json_u64("rounds", opts.rounds);
	json_u64("calls", opts.rounds * LIFE_CALLS);
	report_growth("used_bytes", true, of[1].used_bytes, of[3].used_bytes);
	report_growth("slab_bytes", true, of[1].slab_bytes, of[3].slab_bytes);
	report_growth("percpu_bytes", true, of[1].percpu_bytes,
		      of[3].percpu_bytes);
	report_growth("pool_objects", of[3].knows_pools, of[1].pool_objects,
		      of[3].pool_objects);
	verified_end();
}

int main(int argc, char **argv)
{
	become_init();
	options_parse(&program, argc, argv);
	for (int node = 0; node < 2; node++)
		node_check_free(node, 2 * MAX_MOVERS * PMD_BYTES);
	modules_load(&opts.modules);
	engine_check(&opts.variant);

	settings_restore_on_exit();
	settings_on_interrupt();
	json_begin("environment");
	json_str("bench", "scale");
	machine_report();
	engine_report();
	machine_quiet();
	json_end();

	work = engine_counters(&opts.variant);
	engine_prepare();
	engine_select(&opts.variant);
	if (has_word(&opts.parts, PART_SIZES))
		measure_sizes();
	if (has_word(&opts.parts, PART_MOVERS))
		measure_movers();
	if (has_word(&opts.parts, PART_LIFE))
		measure_life();
	run_done();
	return BENCH_OK;
}
