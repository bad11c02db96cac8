// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the sizes of windows. mm/migrate_offload/limit.c includes this
 * file, which gives access to static functions.
 */

#include <kunit/test.h>

static const struct migrate_plan mo_plan = {
	.limit_ns = 1000000,
	.max_windows = 2,
	.streaming = true,
};

/* Note the times of a window of small folios. */
static void mo_note_window(struct migrate_pace *paces,
			   const struct migrate_plan *plan, unsigned int nr,
			   u64 own_ns, u64 copy_ns)
{
	migrate_pace_note_window(migrate_pace_of(paces, 0), plan, nr, own_ns,
				 copy_ns);
}

/*
 * Run @nr_windows windows.  A copy takes @fixed_ns, and @folio_ns for each
 * folio.  Returns the folios of the next window.
 */
static unsigned int mo_run_windows(struct kunit *test,
				   struct migrate_pace *paces,
				   const struct migrate_plan *plan,
				   unsigned int nr_windows, u64 fixed_ns,
				   u64 folio_ns)
{
	unsigned int nr = max(paces[0].folios, 1U);

	while (nr_windows--) {
		u64 copy_ns = fixed_ns + nr * folio_ns;

		/* Unmapping and moving take a quarter of the copy's time. */
		mo_note_window(paces, plan, nr, copy_ns * 5 / 4,
			       copy_ns);
		KUNIT_ASSERT_LE(test, paces[0].folios, 2 * nr);
		/* 0: the pace has not been written yet. */
		nr = max(paces[0].folios, 1U);
	}
	return nr;
}

static u64 mo_window_ns(unsigned int nr, u64 fixed_ns, u64 folio_ns)
{
	u64 copy_ns = fixed_ns + nr * folio_ns;

	/* The window waits for the copy of another one of its size. */
	return copy_ns + copy_ns * 5 / 4;
}

/* Windows grow from one folio until they use the limit. */
static void mo_test_pace_grows(struct kunit *test)
{
	static const u64 fixed_ns[] = { 0, 20000, 100000 };
	int i;

	for (i = 0; i < ARRAY_SIZE(fixed_ns); i++) {
		struct migrate_pace pace = {};
		unsigned int nr = mo_run_windows(test, &pace, &mo_plan, 60,
						 fixed_ns[i], 2000);
		u64 ns = mo_window_ns(nr, fixed_ns[i], 2000);

		KUNIT_EXPECT_LE(test, ns, mo_plan.limit_ns);
		KUNIT_EXPECT_GE(test, ns, mo_plan.limit_ns * 3 / 4);
	}
}

/*
 * The engine becomes ten times slower.  After a few windows they keep the
 * limit.
 */
static void mo_test_pace_shrinks(struct kunit *test)
{
	struct migrate_pace pace = {};
	unsigned int nr;

	mo_run_windows(test, &pace, &mo_plan, 60, 1000, 2000);
	nr = mo_run_windows(test, &pace, &mo_plan, 5, 10000, 20000);
	KUNIT_EXPECT_LE(test, mo_window_ns(nr, 10000, 20000), mo_plan.limit_ns);
	nr = mo_run_windows(test, &pace, &mo_plan, 60, 10000, 20000);
	KUNIT_EXPECT_LE(test, mo_window_ns(nr, 10000, 20000), mo_plan.limit_ns);
	KUNIT_EXPECT_GT(test, nr, 10);
}

/* The expected time follows the engine, also while window sizes change. */
static void mo_test_pace_own(struct kunit *test)
{
	struct migrate_pace pace = {};
	unsigned int nr;
	int i;

	for (i = 0; i < 30; i++) {
		nr = max(pace.folios, 1U);
		/* Each window has another size. */
		mo_note_window(&pace, &mo_plan, nr,
			       nr * (2500 + 10 * (i % 3)), nr * 2000);
	}
	for (i = 0; i < 4; i++) {
		nr = max(pace.folios, 1U);
		mo_note_window(&pace, &mo_plan, nr,
			       nr * (25000 + 100 * (i % 3)), nr * 20000);
	}
	KUNIT_EXPECT_GE(test, pace.own.ns, pace.folios * 24000);
	KUNIT_EXPECT_LE(test, pace.own.ns, pace.folios * 26000);
}

/* A window has at least one folio.  The pace tells if even this is too late. */
static void mo_test_pace_least(struct kunit *test)
{
	struct migrate_plan plan = mo_plan;
	struct migrate_pace pace = {};

	plan.limit_ns = 1000;
	KUNIT_EXPECT_EQ(test, 1, mo_run_windows(test, &pace, &plan, 10, 0, 2000));
	plan.own_ns = pace.own.ns;
	KUNIT_EXPECT_EQ(test, migrate_plan_late_ns(&plan, 0), 2500 - 1000);
	KUNIT_EXPECT_EQ(test, migrate_plan_late_ns(&plan, 700), 2500 - 300);
	plan.limit_ns = 2500;
	KUNIT_EXPECT_EQ(test, migrate_plan_late_ns(&plan, 0), 0);
	/* Without a limit no window is late. */
	plan.limit_ns = 0;
	KUNIT_EXPECT_EQ(test, migrate_plan_late_ns(&plan, U64_MAX / 2), 0);
}

/* For all times and limits, nothing overflows, and no time becomes 0. */
static void mo_test_pace_extremes(struct kunit *test)
{
	static const u64 times_ns[] = { 0, 1, 1000, 3600ULL * NSEC_PER_SEC };
	static const u64 limits_us[] = { 1, 1000, UINT_MAX };
	struct migrate_plan plan = mo_plan;
	int t, l, i;

	for (l = 0; l < ARRAY_SIZE(limits_us); l++) {
		for (t = 0; t < ARRAY_SIZE(times_ns); t++) {
			struct migrate_pace pace = {};

			plan.limit_ns = limits_us[l] * NSEC_PER_USEC;
			for (i = 0; i < 18; i++) {
				unsigned int nr = max(pace.folios, 1U);

				mo_note_window(&pace, &plan, nr,
					       times_ns[t], times_ns[t]);
				KUNIT_ASSERT_GE(test, pace.own.ns, 1);
				KUNIT_ASSERT_LE(test, pace.folios, 2 * nr);
			}
			/*
			 * Windows use the whole limit, or consist of one folio.
			 */
			if (times_ns[t] * 4 > plan.limit_ns)
				KUNIT_EXPECT_LE(test, pace.folios, 1);
			else
				KUNIT_EXPECT_GT(test, pace.folios, 1);
		}
	}
}

/* Make windows of an engine whose times are not known. */
static struct migrate_windows *mo_windows(struct kunit *test)
{
	struct migrate_windows *w;

	w = kunit_kzalloc(test, sizeof(*w), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, w);
	w->session.paces = kunit_kcalloc(test, NR_PAGE_ORDERS,
					 sizeof(*w->session.paces), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, w->session.paces);
	return w;
}

/* Set a limit as the administrator does.  Returns the limit before. */
static u64 mo_set_limit(u64 limit_ns)
{
	u64 was_ns = limit_is_fixed ? (u64)max_unmapped_us * NSEC_PER_USEC :
				      U64_MAX;

	limit_is_fixed = limit_ns != U64_MAX;
	max_unmapped_us = limit_is_fixed ? div_u64(limit_ns, NSEC_PER_USEC) : 0;
	return was_ns;
}

/* Make a pace of small folios: to unmap, copy and map one takes 2.5 us. */
static struct migrate_pace mo_small_pace(u64 fixed_ns)
{
	return (struct migrate_pace) {
		.since = nr_limits_set,
		.prep.ns = 1000,
		.copy.ns = 500,
		.fixed_ns = fixed_ns,
	};
}

/* The fixed part takes half of the smallest window's time, or less. */
static void mo_test_least(struct kunit *test)
{
	struct migrate_pace pace = mo_small_pace(0);

	KUNIT_EXPECT_EQ(test, migrate_pace_least(&pace, 500), 1);
	pace = mo_small_pace(2500);
	KUNIT_EXPECT_EQ(test, migrate_pace_least(&pace, 500), 1);
	pace = mo_small_pace(250000);
	KUNIT_EXPECT_EQ(test, migrate_pace_least(&pace, 500), 100);
	/* A slow copy by a busy helper counts as a copy by the CPU. */
	pace.copy.ns = 10 * NSEC_PER_MSEC;
	KUNIT_EXPECT_EQ(test, migrate_pace_least(&pace, 500), 100);
	/* A large folio takes more time of its own. */
	KUNIT_EXPECT_EQ(test, migrate_pace_least(&pace, 512 * 500), 1);
	/* Without known times, no division by 0 occurs. */
	pace = (struct migrate_pace){};
	KUNIT_EXPECT_EQ(test, migrate_pace_least(&pace, 0), 1);
	pace.fixed_ns = U64_MAX;
	KUNIT_EXPECT_EQ(test, migrate_pace_least(&pace, 0), UINT_MAX);
}

/*
 * A flush takes ten times the limit.  Windows must not shrink to one folio.
 * The core counts them as over the limit, and lets them overlap, as waiting
 * does not help.
 */
static void mo_test_limit_cannot_be_met(struct kunit *test)
{
	u64 limit_ns = mo_set_limit(100000);
	const u64 copy_2m_ns = usual_copy_ns;
	struct migrate_windows *w;
	unsigned int nr = 1;
	int i;

	w = mo_windows(test);
	usual_copy_ns = 512 * 500;
	w->session.paces[0] = mo_small_pace(0);
	for (i = 0; i < 40; i++) {
		migrate_plan_init(&w->plan, w->session.paces, 0);
		nr = w->plan.folios;
		w->fill_folios = nr;
		migrate_windows_prepared(w, nr * 1000, false);
		migrate_windows_handed(w, nr, 1000000, 5000);
		mo_note_window(w->session.paces, &w->plan, nr,
			       1000000 + nr * 2500, nr * 500);
	}
	KUNIT_EXPECT_GE(test, nr, 390);
	KUNIT_EXPECT_LE(test, nr, 410);
	migrate_plan_init(&w->plan, w->session.paces, 0);
	KUNIT_EXPECT_TRUE(test, migrate_plan_is_over(&w->plan));
	KUNIT_EXPECT_EQ(test, migrate_plan_hold_ns(&w->plan,
						   w->plan.early_ns), 0);
	/*
	 * The flush becomes short: windows keep the limit, and none counts as
	 * over it.
	 */
	for (i = 0; i < 200; i++) {
		migrate_plan_init(&w->plan, w->session.paces, 0);
		nr = w->plan.folios;
		w->fill_folios = nr;
		migrate_windows_prepared(w, nr * 1000, false);
		migrate_windows_handed(w, nr, 1000, 1000);
		mo_note_window(w->session.paces, &w->plan, nr,
			       2000 + nr * 2500, nr * 500);
	}
	KUNIT_EXPECT_LE(test, 2000 + nr * 3000, 100000);
	KUNIT_EXPECT_GE(test, nr, 20);
	KUNIT_EXPECT_FALSE(test, migrate_plan_is_over(&w->plan));
	usual_copy_ns = copy_2m_ns;
	mo_set_limit(limit_ns);
}

struct mo_late_case {
	const char *name;
	unsigned int order;
	u64 fixed_ns, copy_ns;	/* of a window, and of a folio */
	bool wants_cpu;
};

/* The limit is 1 ms.  The CPU copies 4K in 1 us, and 2M in 512 us. */
static const struct mo_late_case mo_late_cases[] = {
	{ "in time", 0, 1000, 10000, false },
	{ "the copy of one folio is late", 0, 1000, 1200000, true },
	{ "the flush is late", 0, 2000000, 1000, false },
	{ "both are late", 0, 2000000, 1200000, false },
	{ "a 2M folio", 9, 1000, 1200000, true },
	{ "a 2M folio, and the CPU would be late", 9, 600000, 1200000, false },
};

KUNIT_ARRAY_PARAM_DESC(mo_late, mo_late_cases, name);

/* The CPU copies if the engine is late with one folio, and the CPU is not. */
static void mo_test_late(struct kunit *test)
{
	const struct mo_late_case *param = test->param_value;
	unsigned int order = param->order;
	u64 limit_ns = mo_set_limit(1000000);
	const u64 copy_2m_ns = usual_copy_ns;
	struct migrate_windows *w = mo_windows(test);
	struct migrate_pace *paces = w->session.paces;
	int i;

	usual_copy_ns = 512 * 1000;
	w->order = order;
	for (i = 0; i < 40; i++) {
		migrate_plan_init(&w->plan, paces, order);
		migrate_windows_handed(w, 1, param->fixed_ns, 0);
		migrate_pace_note_window(migrate_pace_of(paces, order),
					 &w->plan, w->plan.folios,
					 param->fixed_ns +
					 w->plan.folios * param->copy_ns,
					 w->plan.folios * param->copy_ns);
	}
	KUNIT_EXPECT_EQ(test, migrate_windows_want_cpu(w), param->wants_cpu);
	w->declined = true;
	KUNIT_EXPECT_FALSE(test, migrate_windows_want_cpu(w));
	usual_copy_ns = copy_2m_ns;
	mo_set_limit(limit_ns);
}

/*
 * Note a window with @folios that took @prep_ns.  Returns the next lead time.
 */
static u64 mo_early_ns(struct migrate_windows *w, unsigned int folios,
		       u64 prep_ns, bool held_back, bool idle)
{
	w->session.paces[0].folios = folios;
	w->fill_folios = folios;
	w->held_back = held_back;
	migrate_windows_prepared(w, prep_ns, idle);
	migrate_plan_init(&w->plan, w->session.paces, 0);
	return w->plan.early_ns;
}

/*
 * The core starts windows so early that the engine seldom waits, and not much
 * earlier.  It never breaks the limit for this, and starts at once without a
 * limit.
 */
static void mo_test_early(struct kunit *test)
{
	u64 limit_ns = mo_set_limit(1000000), last_ns;
	struct migrate_windows *w;
	int i;

	w = mo_windows(test);

	/* Without known times, start as early as the limit allows. */
	migrate_plan_init(&w->plan, w->session.paces, 0);
	KUNIT_EXPECT_EQ(test, migrate_plan_hold_ns(&w->plan, 1000000), 0);
	KUNIT_EXPECT_EQ(test, mo_early_ns(w, 1, 10000, false, false), 20000);
	KUNIT_EXPECT_EQ(test, migrate_plan_hold_ns(&w->plan, 20000), 0);
	KUNIT_EXPECT_EQ(test, migrate_plan_hold_ns(&w->plan, 50000), 30000);
	w->plan.own_ns = 990000;
	KUNIT_EXPECT_EQ(test, migrate_plan_hold_ns(&w->plan, 15000), 5000);
	/* In a larger window, each folio adds to the lead time. */
	KUNIT_EXPECT_EQ(test, mo_early_ns(w, 8, 80000, false, true), 160000);

	/* The engine became idle, so the lead time grows. */
	KUNIT_EXPECT_EQ(test, mo_early_ns(w, 1, 10000, true, true), 30000);
	KUNIT_EXPECT_EQ(test, mo_early_ns(w, 1, 10000, true, true), 45000);
	for (i = 0; i < 20; i++)
		last_ns = mo_early_ns(w, 1, 10000, true, true);
	KUNIT_EXPECT_EQ(test, last_ns, 320000);
	/* The engine was busy all the time, so the lead time shrinks slowly. */
	for (i = 0; i < 10; i++) {
		u64 ns = mo_early_ns(w, 1, 10000, true, false);

		KUNIT_EXPECT_LT(test, ns, last_ns);
		last_ns = ns;
	}
	KUNIT_EXPECT_GT(test, last_ns, 160000);
	for (i = 0; i < 200; i++)
		last_ns = mo_early_ns(w, 1, 10000, true, false);
	KUNIT_EXPECT_EQ(test, last_ns, 10000);
	/* The lead time is at least a part of the copy's time. */
	w->session.paces[0].copy.ns = 100000;
	last_ns = mo_early_ns(w, 1, 10000, true, false);
	KUNIT_EXPECT_EQ(test, last_ns, 33333);

	/* The time of the flush adds to the lead time. */
	w->session.paces[0].fixed_ns = 5000;
	last_ns = mo_early_ns(w, 1, 10000, true, false);
	KUNIT_EXPECT_EQ(test, last_ns, 38333);

	mo_set_limit(0);
	KUNIT_EXPECT_EQ(test, mo_early_ns(w, 1, 10000, true, true), 0);
	KUNIT_EXPECT_EQ(test, migrate_plan_hold_ns(&w->plan, U64_MAX / 2), 0);
	mo_set_limit(limit_ns);
}

/* A window that was not full says nothing about full windows. */
static void mo_test_pace_partial(struct kunit *test)
{
	struct migrate_pace pace = {};
	unsigned int nr = mo_run_windows(test, &pace, &mo_plan, 60, 0, 2000);
	struct migrate_pace before = pace;

	mo_note_window(&pace, &mo_plan, nr / 4, 2500, 2000);
	KUNIT_EXPECT_EQ(test, pace.folios, before.folios);
	KUNIT_EXPECT_EQ(test, pace.own.ns, before.own.ns);
}

/*
 * Windows are in time alone, and late when one overlaps another.  After a late
 * window, many smaller ones come before the next of its size.
 */
static void mo_test_pace_careful(struct kunit *test)
{
	struct migrate_plan plan = mo_plan;
	unsigned int most, nr, nr_late = 0;
	struct migrate_windows *w;
	int i;

	w = mo_windows(test);
	plan.max_windows = 1;
	w->plan = plan;
	for (i = 0; i < 1000; i++) {
		struct migrate_times took = { .backlog_ns = 250000 };

		nr = max(w->session.paces[0].folios, 1U);
		took.nr = nr;
		took.nr_by_engine = nr;
		took.copied_ns = took.backlog_ns + nr * 2000;
		/* Alone, the window takes at most 80% of the limit. */
		took.worst_ns = took.backlog_ns + nr * 2500;
		nr_late += took.worst_ns > plan.limit_ns;
		migrate_times_learn(w, 0, &took);
	}
	KUNIT_EXPECT_GE(test, nr_late, 1);
	/* Each time two windows are late: an eighth less is still too many. */
	KUNIT_EXPECT_LE(test, nr_late, 2 * (1 + 1000 / MIGRATE_CAREFUL_WINDOWS));
	/* Windows are nevertheless as large as possible. */
	most = (plan.limit_ns - 250000) / 2500;
	KUNIT_EXPECT_GE(test, nr, most * 3 / 4);
}

/*
 * The engine continues while the task waits for a CPU, so its copies seem to
 * take less time than they do.  After long waits, the core believes longer
 * times, and no shorter ones.
 */
static void mo_test_pace_stood(struct kunit *test)
{
	struct migrate_times took = {
		.nr = 8,
		.nr_by_engine = 8,
		.launched_ns = 1000,
		.copied_ns = 81000,
		.worst_ns = 100000,
	};
	struct migrate_windows *w;
	int i;

	/* There is no limit here: a limit would let windows grow. */
	w = mo_windows(test);
	migrate_times_learn(w, 0, &took);
	KUNIT_EXPECT_EQ(test, w->session.paces[0].copy.ns, 10000);
	KUNIT_EXPECT_EQ(test, w->session.paces[0].own.ns, 100000);

	took.stood_ns = 70000;
	took.copied_ns = 11000;
	took.worst_ns = 30000;
	for (i = 0; i < 20; i++)
		migrate_times_learn(w, 0, &took);
	KUNIT_EXPECT_EQ(test, w->session.paces[0].copy.ns, 10000);
	/* A short wait does not matter. */
	took.stood_ns = 100;
	for (i = 0; i < 20; i++)
		migrate_times_learn(w, 0, &took);
	KUNIT_EXPECT_LE(test, w->session.paces[0].copy.ns, 2000);
	took.stood_ns = 70000;
	took.copied_ns = 161000;
	took.worst_ns = 180000;
	for (i = 0; i < 2; i++)
		migrate_times_learn(w, 0, &took);
	KUNIT_EXPECT_EQ(test, w->session.paces[0].copy.ns, 20000);
}

static struct kunit_case migrate_limit_test_cases[] = {
	KUNIT_CASE(mo_test_pace_grows),
	KUNIT_CASE(mo_test_pace_shrinks),
	KUNIT_CASE(mo_test_pace_own),
	KUNIT_CASE(mo_test_pace_least),
	KUNIT_CASE(mo_test_pace_extremes),
	KUNIT_CASE(mo_test_early),
	KUNIT_CASE(mo_test_pace_partial),
	KUNIT_CASE(mo_test_pace_careful),
	KUNIT_CASE(mo_test_pace_stood),
	KUNIT_CASE(mo_test_least),
	KUNIT_CASE(mo_test_limit_cannot_be_met),
	KUNIT_CASE_PARAM(mo_test_late, mo_late_gen_params),
	{}
};

static struct kunit_suite migrate_limit_test_suite = {
	.name = "migrate_limit",
	.test_cases = migrate_limit_test_cases,
};

kunit_test_suite(migrate_limit_test_suite);
