// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measures how soon hot memory is on the fast tier, and what that costs.
 *
 * The memory of the program is larger than the fast node.  A part that nothing
 * uses fills that node, and a part of known pages on the slow node is in use.
 * Policies take turns within each round: nothing, NUMA balancing with demotion by
 * reclaim, damo, and pageferry tier.  The program knows what it accesses.  Twice a
 * second it asks move_pages(2) where a sample of the latest accesses went.
 *
 * Each measurement has fresh memory.  Afterwards the program undoes the writes of
 * its thread, and compares every byte.
 */
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "common/hot_set.h"
#include "common/tiers.h"

#define LOOK_MS 500
#define MAX_SECONDS 3600
#define MAX_LOOKS (MAX_SECONDS * 1000 / LOOK_MS)
#define FOLLOWED 2048
/* With --until-settled, so many looks find so much on the fast node at the end. */
#define SETTLED_LOOKS 6
#define SETTLED_PERMILLE 950
/* So much of the fast node stays free, for kernel and policies. */
#define SPARE_PART 32
#define SPARE_BYTES (40UL << 20)
#define PRESSURE "/proc/pressure/memory"

enum { NOTHING, BALANCING, DAMO, TIER, NR_POLICIES };
static const char *const policy_names[] = { "nothing", "balancing", "damo",
					    "tier", NULL };
enum memory { MEMORY_ANON, MEMORY_FILE };
static const char *const memory_names[] = { "anon", "file", NULL };

static struct policy policies[NR_POLICIES] = {
	[NOTHING] = { .name = "nothing" },
	[BALANCING] = { .name = "balancing", .balancing = true },
	[DAMO] = { .name = "damo" },
	[TIER] = { .name = "tier", .serves = true },
};

static struct options {
	struct run run;
	struct word_list policies, loads, memories;
	uint64_t seconds;
	size_t cold_bytes;
	bool until_settled;
	bool left_out[NR_POLICIES];
} opts = {
	.run = { RUN_DEFAULTS(1, 0, "stock"), .sizes_text = "4K",
		 .total_bytes = 128UL << 20 },
	.policies = { .at = { NOTHING, BALANCING }, .nr = 2 },
	.loads = { .at = { LOAD_STATIC }, .nr = 1 },
	.memories = { .at = { MEMORY_ANON }, .nr = 1 },
	.seconds = 60,
};

static const struct option_row rows[] = {
	ROWS_NODES(&opts.run, 1, 0),
	ROW_SIZES(&opts.run, "4K to 2M (default 4K)"),
	ROW_TOTAL(&opts.run, "that is hot, a multiple of 2M (default 128M)"),
	ROW_ROUNDS(&opts.run.rounds),
	{ "policies", "LIST", "of nothing, balancing, damo and tier\n"
	  "(default nothing,balancing)", set_words, &opts.policies, 0, 0,
	  policy_names },
	{ "damo", "COMMAND", "for a shell, that starts damo's kdamonds",
	  set_text, &policies[DAMO].command, 0, 0, NULL },
	{ "tier", "COMMAND", "the same for pageferry tier; the parent of the\n"
	  "shell is this program", set_text, &policies[TIER].command, 0, 0,
	  NULL },
	{ "loads", "LIST", "of static, moving and growing (default static)",
	  set_words, &opts.loads, 0, 0, load_names },
	{ "memory", "LIST", "of anon and file, a file of tmpfs in base pages\n"
	  "(default anon)", set_words, &opts.memories, 0, 0, memory_names },
	{ "seconds", "N", "of each measurement (default 60)", set_u64,
	  &opts.seconds, 4, MAX_SECONDS, NULL },
	{ "until-settled", NULL, "end each measurement when its last phase has settled",
	  set_true, &opts.until_settled, 0, 0, NULL },
	ROW_MODULE(&opts.run.modules),
	ROW_SABOTAGE(&opts.run.sabotage, ""),
	{ 0 },
};

static const struct program program = {
	.name = "tiers",
	.about = "Uses memory of a slow NUMA node while policies move what is hot to the fast\n"
		 "one, verifies it, and prints one JSON object per measurement.",
	.example = "--policies nothing,balancing --loads moving --seconds 120",
	.options = rows,
};

static const char *const counters[] = {
	"pgmigrate_success",	/* by all reasons, DAMON's too */
	"pgpromote_success",
	"pgdemote_kswapd",
	"pgdemote_direct",
	"pgdemote_khugepaged",
	/* Newer kernels have these. */
	"pgdemote_proactive",
	NULL
};

struct sample {
	const struct policy *policy;
	enum load load;
	enum memory memory;
	size_t folio_bytes;
	unsigned int round;
	uint64_t seed;
	struct region cold, warm;	/* fast node, slow node */
	struct hot_set hot;
	struct followed followed[FOLLOWED];
	struct turns turns;
	uint64_t phases_ms[MAX_PHASES];
	uint64_t at_ms[MAX_LOOKS], permille[MAX_LOOKS];
	size_t nr_looks;
	uint64_t elapsed_ns, stall_us;
	bool stall_known, goals;
	struct counters moved;
};

static bool stall_read(uint64_t *us)
{
	char text[512];

	return file_read(PRESSURE, text, sizeof(text)) &&
	       stall_parse(text, "some ", us);
}

/*
 * Allocate both parts, and then forget where: no policy moves memory that its
 * owner has bound.  The cold part may have smaller folios, as its node gets full.
 */
static void memory_make(struct sample *s)
{
	const struct run *r = &opts.run;
	size_t warm_bytes = 2 * r->total_bytes;

	if (s->memory == MEMORY_FILE) {
		region_map_shared(&s->cold, opts.cold_bytes, r->to);
		region_map_shared(&s->warm, warm_bytes, r->from);
		region_fill(&s->warm, s->seed);
	} else {
		region_prepare(&s->cold, opts.cold_bytes, s->folio_bytes, r->to);
		region_allocate(&s->warm, warm_bytes, s->folio_bytes, r->from,
				s->seed);
	}
	region_fill(&s->cold, s->seed);
	memory_unbind(s->cold.base, s->cold.bytes);
	memory_unbind(s->warm.base, s->warm.bytes);
}

/* Spread the followed pages over both parts. */
static void follow(struct sample *s)
{
	size_t all = s->cold.bytes + s->warm.bytes;
	size_t pages = all / page_bytes();

	for (size_t i = 0; i < FOLLOWED; i++) {
		size_t off = pages * i / FOLLOWED * page_bytes();
		bool cold = off < s->cold.bytes;

		s->followed[i] = (struct followed){
			.page = cold ? s->cold.base + off :
				       s->warm.base + (off - s->cold.bytes),
			.node = cold ? opts.run.to : opts.run.from,
		};
	}
}

static void look(struct sample *s, uint64_t begin_ns)
{
	int permille = hot_set_permille(&s->hot, opts.run.to);

	followed_look_all(s->followed, FOLLOWED, opts.run.to, &s->turns);
	if (permille < 0)
		return;
	s->at_ms[s->nr_looks] = (bench_now_ns() - begin_ns) / 1000000;
	s->permille[s->nr_looks++] = (uint64_t)permille;
}

/* Whether all looks of the last seconds found hot memory on the fast node. */
static bool has_settled(const struct sample *s, size_t nr_looks)
{
	if (nr_looks < SETTLED_LOOKS)
		return false;
	for (size_t i = s->nr_looks - SETTLED_LOOKS; i < s->nr_looks; i++)
		if (s->permille[i] < SETTLED_PERMILLE)
			return false;
	return true;
}

/* A look at the end of a phase belongs to that phase. */
static void watch(struct sample *s)
{
	size_t nr = opts.seconds * 1000 / LOOK_MS;
	size_t nr_phase = nr / load_phases(s->load);
	uint64_t begin_ns = bench_now_ns();
	size_t before = 0, last_phase = load_phases(s->load) - 1;

	hot_set_start(&s->hot);
	for (size_t i = 1; i <= nr; i++) {
		uint64_t at_ns = begin_ns + i * LOOK_MS * 1000000ULL;
		uint64_t now_ns = bench_now_ns();
		size_t phase = i / nr_phase;

		if (at_ns > now_ns)
			bench_sleep_ns(at_ns - now_ns);
		look(s, begin_ns);
		if (opts.until_settled &&
		    atomic_load(&s->hot.phase) == last_phase &&
		    has_settled(s, s->nr_looks - before))
			break;
		if (i % nr_phase || phase > last_phase)
			continue;
		before = s->nr_looks;
		s->phases_ms[phase] = (bench_now_ns() - begin_ns) / 1000000;
		atomic_store(&s->hot.phase, (unsigned int)phase);
	}
	hot_set_stop(&s->hot);
	s->elapsed_ns = bench_now_ns() - begin_ns;
}

static void report_sample(const struct sample *s)
{
	const struct variant as = { .threads = 1 };
	struct variant v = as;

	snprintf(v.engine, sizeof(v.engine), "%s", s->policy->name);
	moved_begin("tiers", &v, s->folio_bytes, s->round,
		    s->moved.value[0] * page_bytes(), s->elapsed_ns);
	json_str("load", load_names[s->load]);
	json_str("memory", memory_names[s->memory]);
	json_u64("hot_bytes", opts.run.total_bytes);
	json_u64("program_bytes", s->cold.bytes + s->warm.bytes);
	json_u64("accesses", s->hot.accesses);
	json_u64("longest_access_ns", s->hot.longest_ns);
	json_u64_or_null("stall_some_us", s->stall_known, s->stall_us);
	json_u64_array("phases_ms", s->phases_ms, load_phases(s->load));
	json_u64_array("at_ms", s->at_ms, s->nr_looks);
	json_u64_array("fast_permille", s->permille, s->nr_looks);
	json_u64("followed_pages", FOLLOWED);
	json_u64("up_pages", s->turns.up);
	json_u64("down_pages", s->turns.down);
	json_u64("ping_pong_pages", s->turns.ping_pong);
	if (s->policy->command)
		json_bool("goals", s->goals);
	counters_report(&s->moved);
	verified_end();
}

static void verify(struct sample *s)
{
	if (!hot_set_undo(&s->hot, s->seed))
		bench_die(BENCH_FAILED, "%s, %s, round %u: a write was lost",
			  s->policy->name, load_names[s->load], s->round);
	region_sabotage(&s->warm, opts.run.sabotage, opts.run.from);
	region_check_content(&s->warm, s->seed, s->policy->name, s->round);
	region_check_content(&s->cold, s->seed, s->policy->name, s->round);
}

static void leave_out(const struct policy *p, const char *why)
{
	opts.left_out[p - policies] = true;
	json_begin("left_out");
	json_str("engine", p->name);
	json_str("reason", why);
	json_end();
}

/* The caller has set what is to be measured. */
static void measure(struct sample *s)
{
	uint64_t stalled_us = 0;
	char why[256];

	s->seed = run_seed();
	s->moved.names = counters;
	s->hot.region = &s->warm;
	s->hot.load = s->load;
	s->hot.cpu = opts.run.cpu;
	memory_make(s);
	follow(s);
	counters_flush();
	counters_read(&s->moved, false);
	s->stall_known = stall_read(&stalled_us);
	if (!policy_start(s->policy, &opts.run.cpus, why, sizeof(why))) {
		leave_out(s->policy, why);
	} else {
		watch(s);
		s->stall_known = s->stall_known && stall_read(&s->stall_us);
		s->stall_us -= stalled_us;
		counters_flush();
		counters_read(&s->moved, true);
		s->goals = policy_has_goals();
		policy_stop(s->policy);
		verify(s);
		report_sample(s);
	}
	region_unmap(&s->warm);
	region_unmap(&s->cold);
}

/* All policies in turn, each first in another round. */
static void run_policies(const struct sample *what)
{
	static struct sample s;

	for (size_t i = 0; i < opts.policies.nr; i++) {
		size_t at = (i + what->round) % opts.policies.nr;

		if (opts.left_out[opts.policies.at[at]])
			continue;
		s = *what;
		s.policy = &policies[opts.policies.at[at]];
		measure(&s);
	}
}

static void run_loads(unsigned int round)
{
	static struct sample what;

	what.round = round;
	for (size_t l = 0; l < opts.loads.nr; l++) {
		for (size_t m = 0; m < opts.memories.nr; m++) {
			for (size_t i = 0; i < opts.run.nr_sizes; i++) {
				what.load = opts.loads.at[l];
				what.memory = opts.memories.at[m];
				what.folio_bytes = opts.run.sizes[i];
				if (what.memory == MEMORY_ANON ||
				    what.folio_bytes == page_bytes())
					run_policies(&what);
			}
		}
	}
}

/* Check options, and how much memory fills the fast node. */
static void prepare(struct options *o)
{
	struct run *r = &o->run;
	uint64_t free, spare;

	for (size_t i = 0; i < o->policies.nr; i++) {
		unsigned int at = o->policies.at[i];

		if (at >= DAMO && !policies[at].command)
			bench_die(BENCH_USAGE, "policy %s needs --%s COMMAND",
				  policies[at].name, policies[at].name);
	}
	run_check_nodes(r, r->total_bytes);
	node_check_free(r->from, 2 * r->total_bytes);
	policies_open(KDAMONDS);
	node_free_bytes(r->to, &free);
	spare = free / SPARE_PART;
	if (spare < SPARE_BYTES)
		spare = SPARE_BYTES;
	if (free < r->total_bytes + spare)
		bench_die(BENCH_LACKING,
			  "node %d has %llu bytes free, too few for %llu hot ones: use less (--hot)",
			  r->to, (unsigned long long)free,
			  (unsigned long long)r->total_bytes);
	o->cold_bytes = (free - spare) / PMD_BYTES * PMD_BYTES;
}

int main(int argc, char **argv)
{
	struct run *r = &opts.run;
	int other;

	options_parse(&program, argc, argv);
	run_check(r);
	prepare(&opts);
	run_start(r);
	other = tiers_choose_cpus(r);
	run_environment(r, "tiers");
	tiers_report();
	json_u64("cold_bytes", opts.cold_bytes);
	json_u64("hot_bytes", r->total_bytes);
	json_u64("seconds", opts.seconds);
	json_end();
	run_prepare(r);
	setting_must_pin(DEMOTION_ENABLED, "false");
	run_on_cpu(r, other);
	for (unsigned int round = 1; round <= r->rounds; round++)
		run_loads(round);
	run_done();
	return BENCH_OK;
}
