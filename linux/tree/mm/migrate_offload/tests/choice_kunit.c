// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the choice between the engine and the CPU.
 * mm/migrate_offload/choice.c includes this file, which gives access to static
 * functions.
 */

#include <kunit/test.h>

/* The time of each side for a page, and the time that the lists have taken. */
struct mo_trade {
	unsigned int engine_ns;
	unsigned int cpu_ns;
	u64 engine_total_ns;
	u64 total_ns;
};

/* Migrate one list of 512 pages.  Returns true if the engine got the list. */
static bool mo_list(struct migrate_choice *choice, struct mo_trade *trade)
{
	struct migrate_attempt attempt = {};
	u64 ns;

	migrate_choice_pick(choice, &attempt);
	ns = 512ULL * (attempt.by_cpu ? trade->cpu_ns : trade->engine_ns);
	migrate_choice_note(choice, &attempt, ns, 512);
	trade->total_ns += ns;
	trade->engine_total_ns += attempt.by_cpu ? 0 : ns;
	return !attempt.by_cpu;
}

/* Choose for @nr lists.  Returns the engine's share of the time, in percent. */
static unsigned int mo_lists(struct migrate_choice *choice,
			     struct mo_trade *trade, unsigned int nr)
{
	trade->total_ns = 0;
	trade->engine_total_ns = 0;
	while (nr--)
		mo_list(choice, trade);
	return div64_u64(100 * trade->engine_total_ns, trade->total_ns);
}

/* Until both sides are known, they take turns that even out their time. */
static void mo_test_learns(struct kunit *test)
{
	struct mo_trade trade = { .engine_ns = 40000, .cpu_ns = 1000 };
	struct migrate_choice choice = {};
	u64 most_ns = 2ULL * MIGRATE_CHOICE_KNOWN_NS + 512 * 40000;

	while (!migrate_choice_is_known(&choice)) {
		mo_list(&choice, &trade);
		KUNIT_ASSERT_LE(test, trade.total_ns, most_ns);
	}
	KUNIT_EXPECT_LE(test, trade.engine_total_ns, trade.total_ns * 2 / 3);
}

/*
 * The slower side gets a 64th of the time.  So an engine that is forty times
 * slower costs no more than one that is barely slower.
 */
static void mo_test_loser_is_left_out(struct kunit *test)
{
	static const unsigned int engine_ns[] = { 960, 1000, 1100, 3000, 40000 };
	struct mo_trade trade = { .cpu_ns = 1000 };
	int i;

	for (i = 0; i < ARRAY_SIZE(engine_ns); i++) {
		struct migrate_choice choice = {};

		trade.engine_ns = engine_ns[i];
		mo_lists(&choice, &trade, 2000);
		KUNIT_EXPECT_LE(test, mo_lists(&choice, &trade, 20000), 2);
		/* The core still tries the engine. */
		KUNIT_EXPECT_GT(test, trade.engine_total_ns, 0);
	}
}

static void mo_test_winner_is_used(struct kunit *test)
{
	static const unsigned int engine_ns[] = { 10, 500, 900 };
	struct mo_trade trade = { .cpu_ns = 1000 };
	int i;

	for (i = 0; i < ARRAY_SIZE(engine_ns); i++) {
		struct migrate_choice choice = {};

		trade.engine_ns = engine_ns[i];
		mo_lists(&choice, &trade, 20000);
		KUNIT_EXPECT_GE(test, mo_lists(&choice, &trade, 20000), 97);
		KUNIT_EXPECT_LT(test, trade.engine_total_ns, trade.total_ns);
	}
}

/*
 * Tries show when the slower side becomes the faster one, in both directions.
 */
static void mo_test_changes(struct kunit *test)
{
	struct mo_trade trade = { .engine_ns = 4000, .cpu_ns = 1000 };
	struct migrate_choice choice = {};

	KUNIT_EXPECT_LE(test, mo_lists(&choice, &trade, 50000), 3);
	trade.engine_ns = 500;
	mo_lists(&choice, &trade, 500000);
	KUNIT_EXPECT_GE(test, mo_lists(&choice, &trade, 50000), 97);
	trade.engine_ns = 4000;
	mo_lists(&choice, &trade, 5000);
	KUNIT_EXPECT_LE(test, mo_lists(&choice, &trade, 50000), 3);
	/* Both sides become ten times slower, so the CPU stays faster. */
	trade.engine_ns = 40000;
	trade.cpu_ns = 10000;
	KUNIT_EXPECT_LE(test, mo_lists(&choice, &trade, 50000), 5);
}

/*
 * Load made both sides slower, and the CPU more so.  After the load, the CPU is
 * faster.  Its few tries show that after seconds of work, not minutes.
 */
static void mo_test_load_ends(struct kunit *test)
{
	struct mo_trade trade = { .engine_ns = 14000, .cpu_ns = 16000 };
	struct migrate_choice choice = {};

	KUNIT_EXPECT_GE(test, mo_lists(&choice, &trade, 20000), 97);
	trade.engine_ns = 3000;
	trade.cpu_ns = 1000;
	mo_lists(&choice, &trade, 5000);
	KUNIT_EXPECT_LE(test, trade.total_ns, 8ULL * NSEC_PER_SEC);
	KUNIT_EXPECT_LE(test, mo_lists(&choice, &trade, 20000), 2);
}

/* The choice copes with times of hours, and with lists that moved no page. */
static void mo_test_choice_extremes(struct kunit *test)
{
	struct migrate_attempt attempt = {};
	struct migrate_choice choice = {};
	int i;

	KUNIT_EXPECT_EQ(test, migrate_choice_cpu_ns(&choice, 9), 0);
	for (i = 0; i < 100; i++) {
		attempt.by_cpu = i & 1;
		attempt.on_credit = i & 2;
		migrate_choice_note(&choice, &attempt, 3600ULL * NSEC_PER_SEC,
				    i & 4 ? 0 : UINT_MAX >> 4);
		KUNIT_ASSERT_LE(test, choice.engine.ns,
				MIGRATE_CHOICE_MEAN_NS + MIGRATE_CHOICE_MOST_NS);
		KUNIT_ASSERT_LE(test, choice.credit_ns, 0);
	}
	/* A try of an hour counts for a limited time only. */
	KUNIT_EXPECT_EQ(test, choice.credit_ns, -MIGRATE_CHOICE_DEBT_NS);
	choice.credit_ns = 0;
	attempt.on_credit = true;
	migrate_choice_note(&choice, &attempt, 2 * NSEC_PER_SEC, 512);
	KUNIT_EXPECT_EQ(test, choice.credit_ns, -2 * NSEC_PER_SEC);
	/* A list of four seconds counts half, with half of its pages. */
	choice = (struct migrate_choice){};
	attempt = (struct migrate_attempt){};
	migrate_choice_note(&choice, &attempt, 4ULL * NSEC_PER_SEC, 512);
	KUNIT_EXPECT_EQ(test, choice.engine.pages, 256 / 2);
	KUNIT_EXPECT_EQ(test, choice.engine.ns, MIGRATE_CHOICE_MOST_NS / 2);
	/* The engine moves no page. */
	choice = (struct migrate_choice){
		.engine.ns = MIGRATE_CHOICE_KNOWN_NS,
		.cpu = { .ns = MIGRATE_CHOICE_KNOWN_NS, .pages = 1 },
	};
	KUNIT_EXPECT_FALSE(test, migrate_choice_pays(&choice));
}

/* Each kind of list has its own index, and no index is too large. */
static void mo_test_kinds(struct kunit *test)
{
	static const unsigned int orders[] = { 0, 1, 4, 9, 18 };
	static const size_t bytes[] = { SZ_4K, SZ_128K, SZ_4M };
	const unsigned int nr = MR_TYPES * MIGRATE_NR_SIZES * MIGRATE_NR_LENGTHS;
	unsigned long *seen = kunit_kcalloc(test, BITS_TO_LONGS(nr),
					    sizeof(long), GFP_KERNEL);
	unsigned int reason, i, j, index;

	KUNIT_ASSERT_NOT_NULL(test, seen);
	for (reason = 0; reason < MR_TYPES; reason++) {
		for (i = 0; i < ARRAY_SIZE(orders); i++) {
			for (j = 0; j < ARRAY_SIZE(bytes); j++) {
				index = migrate_choice_index(reason, orders[i],
							     bytes[j]);
				KUNIT_ASSERT_LT(test, index, nr);
				KUNIT_EXPECT_FALSE(test, test_bit(index, seen));
				__set_bit(index, seen);
			}
		}
	}
	KUNIT_EXPECT_EQ(test, migrate_choice_index(0, 0, SIZE_MAX),
			migrate_choice_index(0, 0, SZ_4M));
	/*
	 * A full block of compaction is of the same kind as a block that lacks
	 * a page.
	 */
	KUNIT_EXPECT_EQ(test, migrate_choice_index(MR_COMPACTION, 0, SZ_2M),
			migrate_choice_index(MR_COMPACTION, 0, SZ_2M - SZ_4K));
	KUNIT_EXPECT_EQ(test, migrate_choice_index(0, 10, SZ_2M),
			migrate_choice_index(0, 30, SZ_2M));
}

/* The kind of a list follows from its folios, however long the list is. */
static void mo_test_list_kinds(struct kunit *test)
{
	static const unsigned int nrs[] = { 31, 511, 512, 513, 600 };
	static const size_t alike[] = { SZ_4K, SZ_1M, SZ_2M, SZ_4M, SZ_64M };
	unsigned int i, n, order;
	struct folio *folios;
	size_t bytes;

	if (PAGE_SIZE != SZ_4K)
		kunit_skip(test, "for pages of 4K");
	folios = kunit_kcalloc(test, 600, sizeof(*folios), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, folios);
	for (i = 0; i < ARRAY_SIZE(nrs); i++) {
		LIST_HEAD(list);

		for (n = 0; n < nrs[i]; n++)
			list_add_tail(&folios[n].lru, &list);
		bytes = migrate_list_bytes(&list, MIGRATE_CHOICE_MANY_BYTES,
					   &order);
		KUNIT_EXPECT_EQ(test, order, 0);
		KUNIT_EXPECT_EQ(test, migrate_choice_index(0, 0, bytes),
				migrate_choice_index(0, 0, alike[i]));
	}
}

static struct kunit_case migrate_choice_test_cases[] = {
	KUNIT_CASE(mo_test_learns),
	KUNIT_CASE(mo_test_loser_is_left_out),
	KUNIT_CASE(mo_test_winner_is_used),
	KUNIT_CASE(mo_test_changes),
	KUNIT_CASE(mo_test_load_ends),
	KUNIT_CASE(mo_test_choice_extremes),
	KUNIT_CASE(mo_test_kinds),
	KUNIT_CASE(mo_test_list_kinds),
	{}
};

static struct kunit_suite migrate_choice_test_suite = {
	.name = "migrate_choice",
	.test_cases = migrate_choice_test_cases,
};

kunit_test_suite(migrate_choice_test_suite);
