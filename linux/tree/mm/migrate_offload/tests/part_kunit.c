// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of parts: which pairs the engine gets, and whose copy counts.
 * mm/migrate_offload/part.c includes this file, which gives access to static
 * functions.
 */

#include <kunit/test.h>

#include "kunit.h"

/*
 * Pairs 0, 3, 6 and 9 are not eligible.  Source i and destination i must keep
 * the same place in the lists and in the array.  ->index identifies both.
 */
#define MO_NR_PAIRS 10

struct mo_pairs {
	struct migrate_part *part;
	struct folio *src[MO_NR_PAIRS];
	struct folio *dst[MO_NR_PAIRS];
};

static bool mo_pair_is_busy(int i)
{
	return i % 3 == 0;
}

static struct mo_pairs *mo_pairs_init(struct kunit *test)
{
	struct mo_pairs *pairs = kunit_kzalloc(test, sizeof(*pairs), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, pairs);
	pairs->part = migrate_part_alloc();
	KUNIT_ASSERT_NOT_NULL(test, pairs->part);
	migrate_part_init(pairs->part);

	for (i = 0; i < MO_NR_PAIRS; i++) {
		struct folio *src = mo_test_folio(test, 0);
		struct folio *dst = mo_test_folio(test, 0);

		src->index = i;
		dst->index = i;
		if (mo_pair_is_busy(i))
			folio_get(src);
		pairs->src[i] = src;
		pairs->dst[i] = dst;
		migrate_part_add(pairs->part, src, dst, 0);
	}
	return pairs;
}

static void mo_pairs_exit(struct mo_pairs *pairs)
{
	int i;

	for (i = 0; i < MO_NR_PAIRS; i++) {
		if (mo_pair_is_busy(i))
			folio_put(pairs->src[i]);
		mo_test_folio_free(pairs->src[i]);
		mo_test_folio_free(pairs->dst[i]);
	}
	migrate_part_free(pairs->part);
}

/* Both lists must have exactly these pairs in this order; -1 ends @want. */
static void mo_expect_lists(struct kunit *test, struct list_head *src_list,
			    struct list_head *dst_list, const int *want)
{
	struct folio *dst = list_first_entry(dst_list, struct folio, lru);
	struct folio *src;

	list_for_each_entry(src, src_list, lru) {
		KUNIT_ASSERT_FALSE(test, list_entry_is_head(dst, dst_list, lru));
		KUNIT_EXPECT_EQ(test, *want, (int)src->index);
		KUNIT_EXPECT_EQ(test, *want, (int)dst->index);
		dst = list_next_entry(dst, lru);
		if (*want >= 0)
			want++;
	}
	KUNIT_EXPECT_EQ(test, *want, -1);
	KUNIT_EXPECT_TRUE(test, list_entry_is_head(dst, dst_list, lru));
}

/* The array must start with these pairs in this order; -1 ends @want. */
static void mo_expect_pairs(struct kunit *test, const struct migrate_part *part,
			    const int *want)
{
	unsigned int i;

	for (i = 0; i < part->nr_all && want[i] >= 0; i++) {
		const struct migrate_copy_pair *pair = &part->copy.pairs[i];

		KUNIT_EXPECT_EQ(test, want[i], (int)pair->src->index);
		KUNIT_EXPECT_EQ(test, want[i], (int)pair->dst->index);
		KUNIT_EXPECT_EQ(test, pair->result, -EINPROGRESS);
		/* The destination must not carry a mark. */
		KUNIT_EXPECT_NULL(test, pair->dst->private);
	}
	KUNIT_EXPECT_EQ(test, want[i], -1);
}

/* A session without an engine. */
static struct migrate_session mo_session;

static void mo_test_partition(struct kunit *test)
{
	static const int eligible[] = { 1, 2, 4, 5, 7, 8, -1 };
	static const int busy[] = { 0, 3, 6, 9, -1 };
	static const int all[] = { 1, 2, 4, 5, 7, 8, 6, 0, 3, 9, -1 };
	struct mo_pairs *pairs = mo_pairs_init(test);
	struct migrate_part *part = pairs->part;

	KUNIT_EXPECT_EQ(test, part->nr_all, MO_NR_PAIRS);
	KUNIT_EXPECT_EQ(test, part->nr_open, MO_NR_PAIRS);
	KUNIT_EXPECT_EQ(test, part->bytes, MO_NR_PAIRS * PAGE_SIZE);
	migrate_part_sort(&mo_session, part);
	mo_expect_lists(test, &part->copy.src_list, &part->copy.dst_list,
			eligible);
	mo_expect_lists(test, &part->rest_src, &part->rest_dst, busy);
	mo_expect_pairs(test, part, all);
	KUNIT_EXPECT_EQ(test, part->copy.nr_pairs, 6);
	KUNIT_EXPECT_EQ(test, part->copy.bytes, 6 * PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, part->outcome.folios[VERDICT_NOT_ELIGIBLE], 4);
	KUNIT_EXPECT_EQ(test, part->outcome.nr_offered, 6);
	KUNIT_EXPECT_EQ(test, part->outcome.cpu_bytes, 4 * PAGE_SIZE);
	mo_pairs_exit(pairs);
}

/*
 * The core must not trust the copies of pairs 2, 3 and 7.  The engine forgets the
 * first, memory of the second has failed meanwhile, and the engine reports a
 * failure for the last.
 */
static void mo_test_judge(struct kunit *test)
{
	struct mo_pairs *pairs = mo_pairs_init(test);
	struct migrate_copy_pair *pair = pairs->part->copy.pairs;
	int i;

	for (i = 0; i < MO_NR_PAIRS; i++)
		if (i != 2)
			pair[i].result = i == 7 ? -EIO : 0;
	SetPageHWPoison(folio_page(pair[3].src, 0));
	for (i = 0; i < MO_NR_PAIRS; i++)
		KUNIT_EXPECT_EQ(test,
				migrate_pair_judge(&pair[i], VERDICT_ENGINE),
				i == 2 || i == 3 || i == 7 ? VERDICT_FAILED :
							     VERDICT_ENGINE);
	ClearPageHWPoison(folio_page(pair[3].src, 0));
	/*
	 * If the engine declined the batch, the results of pairs do not count.
	 */
	KUNIT_EXPECT_EQ(test, migrate_pair_judge(&pair[0], VERDICT_DECLINED),
			VERDICT_DECLINED);
	mo_pairs_exit(pairs);
}

/*
 * The engine holds pair 4.  The core must not copy this pair, nor use the
 * engine's copy.  Both folios keep a reference until the engine releases the
 * pair.
 */
static void mo_test_held(struct kunit *test)
{
	unsigned long nr_before = migrate_copy_nr_held();
	struct mo_pairs *pairs = mo_pairs_init(test);
	struct migrate_copy_pair *pair = &pairs->part->copy.pairs[4];

	migrate_copy_hold(pair);
	KUNIT_EXPECT_EQ(test, pair->result, -ETIMEDOUT);
	KUNIT_EXPECT_EQ(test, migrate_copy_nr_held(), nr_before + 1);
	KUNIT_EXPECT_EQ(test, folio_ref_count(pair->src), 2);
	KUNIT_EXPECT_EQ(test, folio_ref_count(pair->dst), 2);
	KUNIT_EXPECT_EQ(test, migrate_pair_judge(pair, VERDICT_ENGINE),
			VERDICT_HELD);
	/* The pair stays held if the engine reports an error for the batch. */
	KUNIT_EXPECT_EQ(test, migrate_pair_judge(pair, VERDICT_FAILED),
			VERDICT_HELD);

	migrate_copy_unhold(pair->src, pair->dst);
	KUNIT_EXPECT_EQ(test, migrate_copy_nr_held(), nr_before);
	KUNIT_EXPECT_EQ(test, folio_ref_count(pair->src), 1);
	KUNIT_EXPECT_EQ(test, folio_ref_count(pair->dst), 1);
	mo_pairs_exit(pairs);
}

/* The core remembers the order in which pairs are reported. */
static void mo_test_done_order(struct kunit *test)
{
	static const unsigned int order[] = { 7, 0, 9, 3 };
	struct mo_pairs *pairs = mo_pairs_init(test);
	struct migrate_copy_batch *copy = &pairs->part->copy;
	unsigned int i;

	copy->nr_pairs = MO_NR_PAIRS;
	for (i = 0; i < ARRAY_SIZE(order); i++)
		migrate_copy_done(copy, order[i]);
	KUNIT_EXPECT_EQ(test, copy->nr_done, ARRAY_SIZE(order));
	for (i = 0; i < ARRAY_SIZE(order); i++) {
		KUNIT_EXPECT_EQ(test, copy->pairs[i].nth_done, order[i]);
		KUNIT_EXPECT_TRUE(test, copy->pairs[order[i]].done);
	}
	KUNIT_EXPECT_FALSE(test, copy->pairs[1].done);
	mo_pairs_exit(pairs);
}

/*
 * For all folio sizes, the chunks must cover the batch without gap or overlap,
 * and start at whole pages.  All chunks but the last have one size.
 */
struct mo_split_case {
	const char *name;
	unsigned int nr_pairs, max_chunks;
	unsigned int orders[6];
};

static const struct mo_split_case mo_split_cases[] = {
	{ "one small folio", 1, 8, { 0 } },
	{ "one large folio, one chunk", 1, 1, { 9 } },
	{ "one large folio", 1, 8, { 9 } },
	{ "remainder", 1, 7, { 9 } },
	{ "more chunks than pages", 3, 100, { 0, 0, 0 } },
	{ "small ones", 6, 4, { 0, 0, 0, 0, 0, 0 } },
	{ "mixed", 6, 5, { 0, 4, 2, 0, 9, 3 } },
	{ "large last", 3, 16, { 0, 0, 9 } },
};

KUNIT_ARRAY_PARAM_DESC(mo_split, mo_split_cases, name);

static void mo_check_split(struct kunit *test,
			   const struct mo_split_case *param,
			   const struct migrate_copy_batch *batch)
{
	struct migrate_copy_pos *starts;
	size_t chunk_bytes, place;
	unsigned int i, nr;
	int p;

	/* The additional entry must stay unwritten. */
	starts = kunit_kcalloc(test, param->max_chunks + 1, sizeof(*starts),
			       GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, starts);
	starts[param->max_chunks].offset = SIZE_MAX;

	nr = migrate_copy_split(batch, param->max_chunks, starts, &chunk_bytes);
	KUNIT_EXPECT_LE(test, nr, param->max_chunks);
	KUNIT_ASSERT_GE(test, nr, 1);
	KUNIT_EXPECT_EQ(test, starts[param->max_chunks].offset, SIZE_MAX);
	KUNIT_EXPECT_TRUE(test, PAGE_ALIGNED(chunk_bytes));
	KUNIT_EXPECT_GE(test, nr * chunk_bytes, batch->bytes);
	KUNIT_EXPECT_LT(test, (nr - 1) * chunk_bytes, batch->bytes);

	for (i = 0; i < nr; i++) {
		KUNIT_ASSERT_LT(test, starts[i].pair, batch->nr_pairs);
		KUNIT_EXPECT_LT(test, starts[i].offset,
				folio_size(batch->pairs[starts[i].pair].src));
		place = starts[i].offset;
		for (p = 0; p < starts[i].pair; p++)
			place += folio_size(batch->pairs[p].src);
		KUNIT_EXPECT_EQ(test, place, i * chunk_bytes);
	}
}

static void mo_test_split(struct kunit *test)
{
	const struct mo_split_case *param = test->param_value;
	struct migrate_part *part = migrate_part_alloc();
	struct migrate_copy_batch *batch = &part->copy;
	int p;

	KUNIT_ASSERT_NOT_NULL(test, part);
	migrate_part_init(part);
	for (p = 0; p < param->nr_pairs; p++)
		migrate_part_add(part, mo_test_folio(test, param->orders[p]),
				 mo_test_folio(test, param->orders[p]), 0);
	migrate_part_sort(&mo_session, part);

	mo_check_split(test, param, batch);

	for (p = 0; p < param->nr_pairs; p++) {
		mo_test_folio_free(batch->pairs[p].src);
		mo_test_folio_free(batch->pairs[p].dst);
	}
	migrate_part_free(part);
}

/* Copying a batch in chunks, from last to first, copies all of it. */
static void mo_test_copy_range(struct kunit *test)
{
	static const unsigned int orders[] = { 0, 3, 0, 2 };
	struct migrate_part *part = migrate_part_alloc();
	struct migrate_copy_batch *batch = &part->copy;
	struct migrate_copy_pos starts[5];
	size_t chunk_bytes, offset;
	unsigned int nr;
	int p;

	KUNIT_ASSERT_NOT_NULL(test, part);
	migrate_part_init(part);
	for (p = 0; p < ARRAY_SIZE(orders); p++) {
		struct folio *src = mo_test_folio(test, orders[p]);
		struct folio *dst = mo_test_folio(test, orders[p]);

		for (offset = 0; offset < folio_size(src); offset += 8)
			*(u64 *)(folio_address(src) + offset) = p + offset;
		memset(folio_address(dst), 0xff, folio_size(dst));
		migrate_part_add(part, src, dst, 0);
	}
	migrate_part_sort(&mo_session, part);

	nr = migrate_copy_split(batch, ARRAY_SIZE(starts), starts, &chunk_bytes);
	while (nr--)
		migrate_copy_range(batch, starts[nr], chunk_bytes);

	for (p = 0; p < batch->nr_pairs; p++) {
		struct migrate_copy_pair *pair = &batch->pairs[p];

		KUNIT_EXPECT_EQ(test, pair->result, -EINPROGRESS);
		KUNIT_EXPECT_EQ(test, 0, memcmp(folio_address(pair->src),
						folio_address(pair->dst),
						folio_size(pair->src)));
		mo_test_folio_free(pair->src);
		mo_test_folio_free(pair->dst);
	}
	migrate_part_free(part);
}

/* Without a pool of windows, lists have no windows. */
static void mo_test_no_pool(struct kunit *test)
{
	mempool_t *pool = migrate_windows_pool;
	struct migrate_offload_section section = {};
	struct migrate_windows *w = NULL;
	LIST_HEAD(none);

	/* An active engine means that other tasks may need the pool. */
	if (!static_key_enabled(&migrate_offload_key)) {
		migrate_windows_pool = NULL;
		KUNIT_EXPECT_EQ(test,
				__migrate_offload_begin(&w, &section, &none,
							MR_SYSCALL),
				MIGRATE_STOCK_BATCH_PAGES);
		KUNIT_EXPECT_NULL(test, w);
		migrate_windows_pool = pool;
	}
	/*
	 * No engine gets folios of failing memory, whichever engine is active.
	 */
	KUNIT_EXPECT_EQ(test,
			__migrate_offload_begin(&w, &section, &none,
						MR_MEMORY_FAILURE),
			MIGRATE_STOCK_BATCH_PAGES);
	KUNIT_EXPECT_NOT_NULL(test, w);
	migrate_offload_end(w);
}

/* The task clock stops while the task waits for a CPU, and never goes back. */
static void mo_test_task_clock(struct kunit *test)
{
	struct migrate_session *s;
	struct migrate_part *part;
	u64 waited_ns;

	s = kunit_kzalloc(test, sizeof(*s), GFP_KERNEL);
	part = kunit_kzalloc(test, sizeof(*part), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, s);
	KUNIT_ASSERT_NOT_NULL(test, part);

	migrate_session_clock_is(s, 5000, 1000);
	KUNIT_EXPECT_EQ(test, s->now_ns, 5000);
	KUNIT_EXPECT_EQ(test, s->task_ns, 4000);
	migrate_part_begin(part, s);
	migrate_session_clock_is(s, 5600, 1000);
	KUNIT_EXPECT_EQ(test, migrate_part_task_ns(s, part, 600), 600);
	/* The reported wait is longer than the elapsed time. */
	migrate_session_clock_is(s, 9600, 5010);
	KUNIT_EXPECT_EQ(test, s->now_ns, 9600);
	KUNIT_EXPECT_EQ(test, s->task_ns, 4600);
	KUNIT_EXPECT_EQ(test, migrate_part_task_ns(s, part, 4600), 600);
	/*
	 * The core unmaps a folio after the wait, and offers it to the engine.
	 */
	part->begun_ns = s->task_ns;
	migrate_session_clock_is(s, 9700, 5010);
	KUNIT_EXPECT_EQ(test, s->task_ns, 4690);
	KUNIT_EXPECT_EQ(test, migrate_part_task_ns(s, part, 110), 0);
	KUNIT_EXPECT_EQ(test, migrate_pair_task_ns(s, part, 110), 90);
	KUNIT_EXPECT_EQ(test, migrate_pair_task_ns(s, part, 4700), 690);
	/* The reported wait exceeds all time since the clock was first set. */
	migrate_session_clock_is(s, 9800, 10000);
	KUNIT_EXPECT_EQ(test, s->task_ns, 4690);

	/* The clock subtracts the scheduler's wait time. */
	s->task_ns = 0;
	waited_ns = migrate_task_waited_ns();
	migrate_session_clock(s);
	KUNIT_EXPECT_GE(test, s->now_ns - s->task_ns, waited_ns);
	KUNIT_EXPECT_LE(test, s->now_ns - s->task_ns, migrate_task_waited_ns());
}

static struct kunit_case migrate_offload_test_cases[] = {
	KUNIT_CASE(mo_test_partition),
	KUNIT_CASE(mo_test_judge),
	KUNIT_CASE(mo_test_held),
	KUNIT_CASE(mo_test_done_order),
	KUNIT_CASE_PARAM(mo_test_split, mo_split_gen_params),
	KUNIT_CASE(mo_test_copy_range),
	KUNIT_CASE(mo_test_no_pool),
	KUNIT_CASE(mo_test_task_clock),
	{}
};

static struct kunit_suite migrate_offload_test_suite = {
	.name = "migrate_offload",
	.test_cases = migrate_offload_test_cases,
};

kunit_test_suite(migrate_offload_test_suite);
