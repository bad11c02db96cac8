// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test mm/migrate_offload/plan.c in user space, with many random engines.
 *
 * plan_test SEED NR
 *
 * Prints "SEED: ..." with the seed of the engine for which a property fails, and
 * exits with 1.
 */
#include <stdio.h>
#include <stdlib.h>

#include "plan.h"

#define MAX_FOLIOS 512U
/* Windows until a plan is steady: it doubles from 1 to 512 folios, and settles. */
#define NR_SETTLE 40
#define NR_STEADY 100

static u64 seed, state;

/* xorshift64*: S. Vigna, "An experimental exploration of Marsaglia's xorshift
 * generators, scrambled", 2016.
 */
static u64 random_below(u64 end)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 2685821657736338717ULL % end;
}

static void require(bool ok, const char *what, u64 found)
{
	if (ok)
		return;
	printf("%llu: %s: %llu\n", (unsigned long long)seed, what,
	       (unsigned long long)found);
	exit(1);
}

/* An engine that copies each folio in @folio_ns, and each window in @fixed_ns more. */
struct engine {
	u64 folio_ns, fixed_ns, prep_ns;
};

static u64 copy_ns_of(const struct engine *engine, unsigned int nr)
{
	return engine->fixed_ns + nr * engine->folio_ns;
}

/* The unmapped time of the window's slowest folio, with all windows in flight. */
static u64 unmapped_ns_of(const struct engine *engine,
			  const struct migrate_plan *plan, unsigned int nr)
{
	return nr * engine->prep_ns + plan->max_windows * copy_ns_of(engine, nr);
}

/* Migrate one window, and return its number of folios. */
static unsigned int run_window(const struct engine *engine,
			       struct migrate_pace *pace,
			       struct migrate_plan *plan)
{
	unsigned int nr, was = max(pace->folios, 1U);
	u64 copy_ns;

	migrate_plan_fill(plan, pace, MAX_FOLIOS, engine->folio_ns, true);
	nr = plan->folios;
	require(nr >= 1 && nr <= MAX_FOLIOS, "folios of a window", nr);
	require(plan->least >= 1 && plan->least <= MAX_FOLIOS,
		"smallest window", plan->least);
	copy_ns = copy_ns_of(engine, nr);
	migrate_pace_prepared(pace, nr, nr * engine->prep_ns,
			      random_below(2), random_below(2));
	migrate_pace_handed(pace, nr, engine->fixed_ns, nr * engine->prep_ns / 2);
	migrate_pace_learn(pace, plan, &(struct migrate_times){
		.nr = nr,
		.nr_by_engine = nr,
		.launched_ns = 1000,
		.copied_ns = 1000 + plan->max_windows * copy_ns,
		.backlog_ns = (plan->max_windows - 1) * copy_ns,
		.worst_ns = unmapped_ns_of(engine, plan, nr),
	});
	/* The plan of the next window limits it to MAX_FOLIOS. */
	require(pace->folios <= 2 * was, "growth of a window", pace->folios);
	return nr;
}

/* Windows grow until they nearly use the limit, and stay within it. */
static void test_steady(void)
{
	struct engine engine = {
		.folio_ns = 50 + random_below(100000),
		.fixed_ns = random_below(20000),
		.prep_ns = 50 + random_below(2000),
	};
	struct migrate_plan plan = {
		.limit_ns = 1000 + random_below(20000000),
		.max_windows = 1 + random_below(4),
		.streaming = true,
	};
	struct migrate_pace pace = {};
	unsigned int i, nr = 0, nr_late = 0;

	for (i = 0; i < NR_SETTLE; i++)
		nr = run_window(&engine, &pace, &plan);
	for (i = 0; i < NR_STEADY; i++) {
		nr = run_window(&engine, &pace, &plan);
		nr_late += nr > plan.least &&
			   unmapped_ns_of(&engine, &plan, nr) > plan.limit_ns;
	}
	require(nr_late <= 1, "late windows of a steady engine", nr_late);
	/* A window of one folio more would use more than half of the limit. */
	require(nr == MAX_FOLIOS ||
		2 * unmapped_ns_of(&engine, &plan, 2 * nr) > plan.limit_ns,
		"folios that leave most of the limit unused", nr);
}

/* An engine that becomes ten times slower is late for a few windows only. */
static void test_slowdown(void)
{
	struct engine engine = {
		.folio_ns = 200 + random_below(2000),
		.prep_ns = 100,
	};
	struct migrate_plan plan = {
		.limit_ns = 100000 + random_below(1000000),
		.max_windows = 2,
		.streaming = true,
	};
	struct migrate_pace pace = {};
	unsigned int i, nr, nr_late = 0;

	for (i = 0; i < NR_SETTLE; i++)
		run_window(&engine, &pace, &plan);
	engine.folio_ns *= 10;
	for (i = 0; i < NR_STEADY; i++) {
		nr = run_window(&engine, &pace, &plan);
		nr_late += unmapped_ns_of(&engine, &plan, nr) > plan.limit_ns;
	}
	require(nr_late <= 3, "late windows after a slowdown", nr_late);
}

/* A window begins neither late nor long before the engine needs it. */
static void test_hold(void)
{
	struct migrate_plan plan = {
		.limit_ns = random_below(2) * random_below(1000000),
		.own_ns = random_below(1000000),
		.early_ns = random_below(2) * random_below(1000000),
		.folios = 1 + random_below(MAX_FOLIOS),
		.least = 1 + random_below(MAX_FOLIOS),
		.max_windows = 2,
	};
	u64 backlog_ns = random_below(3000000);
	u64 hold_ns = migrate_plan_hold_ns(&plan, backlog_ns), left_ns;

	require(hold_ns <= backlog_ns || migrate_plan_late_ns(&plan, 0),
		"time to hold a window back without a backlog", hold_ns);
	left_ns = backlog_ns - min(backlog_ns, hold_ns);
	require(!migrate_plan_late_ns(&plan, left_ns) ||
		migrate_plan_late_ns(&plan, 0),
		"work left, so that the window is late", left_ns);
	require(!plan.early_ns || left_ns <= plan.early_ns,
		"work left when the window begins", left_ns);
}

/* Any times at all leave a plan that makes sense. */
static void test_any_times(void)
{
	struct migrate_pace pace = {};
	unsigned int i;

	for (i = 0; i < 20; i++) {
		struct migrate_plan plan = {
			.limit_ns = random_below(1ULL << random_below(50)),
			.max_windows = 1 + random_below(16),
		};
		struct engine engine = {
			.folio_ns = random_below(1ULL << random_below(36)),
			.fixed_ns = random_below(1ULL << random_below(36)),
			.prep_ns = random_below(1ULL << random_below(36)),
		};

		run_window(&engine, &pace, &plan);
	}
}

int main(int argc, char **argv)
{
	u64 end;

	if (argc != 3)
		return 2;
	seed = strtoull(argv[1], NULL, 0);
	for (end = seed + strtoull(argv[2], NULL, 0); seed < end; seed++) {
		state = seed * 0x9e3779b97f4a7c15ULL | 1;
		test_steady();
		test_slowdown();
		test_hold();
		test_any_times();
	}
	printf("passed\n");
	return 0;
}
