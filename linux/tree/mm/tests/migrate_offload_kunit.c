// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the batch copy.  Included by mm/migrate_offload.c, so that
 * static functions are within reach.
 */

#include <kunit/test.h>

#include "migrate_offload_kunit.h"

/*
 * Partition.  Ten pairs, of which every third cannot be copied early.  After
 * each step source i and destination i must be at the same place of their
 * lists; ->index tells which they are.
 */
#define MO_NR_PAIRS 10

struct mo_lists {
	struct list_head src, dst;
	struct migrate_batch_lists to;
	struct folio *src_folios[MO_NR_PAIRS], *dst_folios[MO_NR_PAIRS];
	struct migrate_copy_batch *batch;
};

static bool mo_pair_is_busy(int i)
{
	return i % 3 == 0;
}

static struct mo_lists *mo_lists_init(struct kunit *test)
{
	struct mo_lists *lists = kunit_kzalloc(test, sizeof(*lists), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, lists);
	INIT_LIST_HEAD(&lists->src);
	INIT_LIST_HEAD(&lists->dst);
	migrate_pair_lists_init(&lists->to.done);
	migrate_pair_lists_init(&lists->to.held);
	migrate_pair_lists_init(&lists->to.rest);
	lists->batch = migrate_batch_alloc();
	KUNIT_ASSERT_NOT_NULL(test, lists->batch);

	for (i = 0; i < MO_NR_PAIRS; i++) {
		struct folio *src = mo_test_folio(test, 0);
		struct folio *dst = mo_test_folio(test, 0);

		src->index = i;
		dst->index = i;
		if (mo_pair_is_busy(i))
			folio_get(src);
		list_add_tail(&src->lru, &lists->src);
		list_add_tail(&dst->lru, &lists->dst);
		lists->src_folios[i] = src;
		lists->dst_folios[i] = dst;
	}
	return lists;
}

static void mo_lists_exit(struct mo_lists *lists)
{
	int i;

	for (i = 0; i < MO_NR_PAIRS; i++) {
		if (mo_pair_is_busy(i))
			folio_put(lists->src_folios[i]);
		mo_test_folio_free(lists->src_folios[i]);
		mo_test_folio_free(lists->dst_folios[i]);
	}
	migrate_batch_free(lists->batch);
}

/* Both lists have just these pairs, in this order; -1 ends @want. */
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

static void mo_test_partition(struct kunit *test)
{
	static const int eligible[] = { 1, 2, 4, 5, 7, 8, -1 };
	static const int busy[] = { 0, 3, 6, 9, -1 };
	static const int done[] = { 1, 4, 5, 8, -1 };
	static const int rest[] = { 0, 3, 6, 9, 2, 7, -1 };
	static const int none[] = { -1 };
	struct migrate_batch_outcome outcome = {};
	struct mo_lists *lists = mo_lists_init(test);
	struct migrate_copy_batch *batch = lists->batch;
	unsigned int i;

	migrate_batch_fill(batch, &lists->src, &lists->dst, &lists->to.rest,
			   &outcome);
	mo_expect_lists(test, &lists->src, &lists->dst, none);
	mo_expect_lists(test, &batch->src_list, &batch->dst_list, eligible);
	mo_expect_lists(test, &lists->to.rest.src, &lists->to.rest.dst, busy);
	KUNIT_EXPECT_EQ(test, batch->nr_pairs, 6);
	KUNIT_EXPECT_EQ(test, batch->bytes, 6 * PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, outcome.folios[MO_NOT_ELIGIBLE_FOLIOS], 4);
	KUNIT_EXPECT_EQ(test, outcome.cpu_bytes, 4 * PAGE_SIZE);

	/* The engine forgets pair 2, and fails at 7. */
	for (i = 0; i < batch->nr_pairs; i++) {
		struct migrate_copy_pair *pair = &batch->pairs[i];

		KUNIT_EXPECT_EQ(test, pair->result, -EINPROGRESS);
		KUNIT_EXPECT_PTR_EQ(test, pair->src,
				    lists->src_folios[eligible[i]]);
		KUNIT_EXPECT_PTR_EQ(test, pair->dst,
				    lists->dst_folios[eligible[i]]);
		/* No mark in the folio. */
		KUNIT_EXPECT_NULL(test, pair->dst->private);
		if (eligible[i] == 7)
			pair->result = -EIO;
		else if (eligible[i] != 2)
			pair->result = 0;
	}
	migrate_batch_drain(batch, MO_ENGINE_FOLIOS, &lists->to, &outcome);
	mo_expect_lists(test, &lists->to.done.src, &lists->to.done.dst, done);
	mo_expect_lists(test, &lists->to.rest.src, &lists->to.rest.dst, rest);
	KUNIT_EXPECT_EQ(test, outcome.folios[MO_ENGINE_FOLIOS], 4);
	KUNIT_EXPECT_EQ(test, outcome.folios[MO_FAILED_FOLIOS], 2);
	KUNIT_EXPECT_EQ(test, outcome.engine_bytes, 4 * PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, outcome.cpu_bytes, 6 * PAGE_SIZE);
	mo_lists_exit(lists);
}

/* A batch that was not copied at all believes no result. */
static void mo_test_partition_undone(struct kunit *test)
{
	static const int rest[] = { 0, 3, 6, 9, 1, 2, 4, 5, 7, 8, -1 };
	static const int none[] = { -1 };
	struct migrate_batch_outcome outcome = {};
	struct mo_lists *lists = mo_lists_init(test);
	struct migrate_copy_batch *batch = lists->batch;
	unsigned int i;

	migrate_batch_fill(batch, &lists->src, &lists->dst, &lists->to.rest,
			   &outcome);
	for (i = 0; i < batch->nr_pairs; i++)
		batch->pairs[i].result = 0;
	migrate_batch_drain(batch, MO_DECLINED_FOLIOS, &lists->to, &outcome);
	mo_expect_lists(test, &lists->to.done.src, &lists->to.done.dst, none);
	mo_expect_lists(test, &lists->to.rest.src, &lists->to.rest.dst, rest);
	KUNIT_EXPECT_EQ(test, outcome.folios[MO_DECLINED_FOLIOS], 6);
	mo_lists_exit(lists);
}

/*
 * The engine gave up on pair 4, whatever it says of the others: nobody copies
 * it, it stands between those that are copied and the rest, and its folios are
 * referenced until the device is done.
 */
static void mo_test_partition_held(struct kunit *test)
{
	static const int done[] = { 1, 2, 5, 7, 8, -1 };
	static const int held[] = { 4, -1 };
	unsigned long nr_before = migrate_copy_nr_held();
	struct migrate_batch_outcome outcome = {};
	struct mo_lists *lists = mo_lists_init(test);
	struct migrate_copy_batch *batch = lists->batch;
	struct migrate_copy_pair *pair = &batch->pairs[2];
	unsigned int i;

	migrate_batch_fill(batch, &lists->src, &lists->dst, &lists->to.rest,
			   &outcome);
	for (i = 0; i < batch->nr_pairs; i++)
		batch->pairs[i].result = 0;
	migrate_copy_hold(pair);
	KUNIT_EXPECT_EQ(test, pair->result, -ETIMEDOUT);
	KUNIT_EXPECT_EQ(test, migrate_copy_nr_held(), nr_before + 1);
	KUNIT_EXPECT_EQ(test, folio_ref_count(pair->src), 2);
	KUNIT_EXPECT_EQ(test, folio_ref_count(pair->dst), 2);

	migrate_batch_drain(batch, MO_ENGINE_FOLIOS, &lists->to, &outcome);
	mo_expect_lists(test, &lists->to.done.src, &lists->to.done.dst, done);
	mo_expect_lists(test, &lists->to.held.src, &lists->to.held.dst, held);
	KUNIT_EXPECT_EQ(test, outcome.folios[MO_HELD_FOLIOS], 1);
	KUNIT_EXPECT_EQ(test, outcome.folios[MO_FAILED_FOLIOS], 0);
	KUNIT_EXPECT_EQ(test, outcome.engine_bytes, 5 * PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, outcome.cpu_bytes, 4 * PAGE_SIZE);

	migrate_copy_unhold(pair->src, pair->dst);
	KUNIT_EXPECT_EQ(test, migrate_copy_nr_held(), nr_before);
	KUNIT_EXPECT_EQ(test, folio_ref_count(pair->src), 1);
	KUNIT_EXPECT_EQ(test, folio_ref_count(pair->dst), 1);
	mo_lists_exit(lists);
}

/* A batch that failed as a whole does not make a held pair free again. */
static void mo_test_partition_held_failed(struct kunit *test)
{
	static const int held[] = { 1, -1 };
	static const int rest[] = { 0, 3, 6, 9, 2, 4, 5, 7, 8, -1 };
	struct migrate_batch_outcome outcome = {};
	struct mo_lists *lists = mo_lists_init(test);
	struct migrate_copy_batch *batch = lists->batch;
	struct migrate_copy_pair *pair = &batch->pairs[0];

	migrate_batch_fill(batch, &lists->src, &lists->dst, &lists->to.rest,
			   &outcome);
	migrate_copy_hold(pair);
	migrate_batch_drain(batch, MO_FAILED_FOLIOS, &lists->to, &outcome);
	mo_expect_lists(test, &lists->to.held.src, &lists->to.held.dst, held);
	mo_expect_lists(test, &lists->to.rest.src, &lists->to.rest.dst, rest);
	KUNIT_EXPECT_EQ(test, outcome.folios[MO_HELD_FOLIOS], 1);
	KUNIT_EXPECT_EQ(test, outcome.folios[MO_FAILED_FOLIOS], 5);
	migrate_copy_unhold(pair->src, pair->dst);
	mo_lists_exit(lists);
}

/*
 * The copy phase as a whole, with more pairs than an engine sees at once, and
 * the built-in engine.  Afterwards the eligible pairs stand in front, in their
 * order and with the content of their sources, and the others behind, in
 * theirs.
 */
#define MO_NR_MANY (MIGRATE_BATCH_MAX_PAIRS + 100)

static void mo_check_copied(struct kunit *test, struct list_head *src_list,
			    struct list_head *dst_list, unsigned int nr_done)
{
	struct folio *dst = list_first_entry(dst_list, struct folio, lru);
	int nr = 0, last_index = -1;
	struct folio *src;

	list_for_each_entry(src, src_list, lru) {
		int index = src->index;

		if (nr == nr_done)
			last_index = -1;
		KUNIT_ASSERT_FALSE(test, list_entry_is_head(dst, dst_list, lru));
		KUNIT_EXPECT_EQ(test, index, (int)dst->index);
		KUNIT_EXPECT_GT(test, index, last_index);
		KUNIT_EXPECT_EQ(test, mo_pair_is_busy(index), nr >= nr_done);
		KUNIT_EXPECT_EQ(test, *(int *)folio_address(dst),
				nr < nr_done ? index : -1);
		last_index = index;
		dst = list_next_entry(dst, lru);
		nr++;
	}
	KUNIT_EXPECT_EQ(test, nr, MO_NR_MANY);
	KUNIT_EXPECT_TRUE(test, list_entry_is_head(dst, dst_list, lru));
}

static void mo_test_copy_phase(struct kunit *test)
{
	unsigned long reasons = migrate_offload_reasons;
	struct migrate_offload_ctx ctx = { .reason = MR_SYSCALL };
	/* As for sysfs: a page of its own. */
	char *was_active = kunit_kzalloc(test, PAGE_SIZE, GFP_KERNEL);
	struct migrate_engine *engine;
	struct folio *folio, *next;
	LIST_HEAD(src);
	LIST_HEAD(dst);
	int i, idx;

	KUNIT_ASSERT_NOT_NULL(test, was_active);
	migrate_engine_name(was_active);
	if (migrate_engine_select("cpu"))
		kunit_skip(test, "an engine is active that cannot be replaced");
	/* Others may migrate meanwhile: this engine is not for them. */
	WRITE_ONCE(migrate_offload_reasons, 0);

	for (i = 0; i < MO_NR_MANY; i++) {
		folio = mo_test_folio(test, 0);
		folio->index = i;
		*(int *)folio_address(folio) = i;
		if (mo_pair_is_busy(i))
			folio_get(folio);
		list_add_tail(&folio->lru, &src);
		folio = mo_test_folio(test, 0);
		folio->index = i;
		*(int *)folio_address(folio) = -1;
		list_add_tail(&folio->lru, &dst);
	}

	engine = migrate_engine_enter(&idx);
	migrate_offload_copy_batch(&ctx, engine, &src, &dst);
	migrate_engine_exit(idx);
	KUNIT_EXPECT_EQ(test, ctx.nr_copied,
			MO_NR_MANY - DIV_ROUND_UP(MO_NR_MANY, 3));
	KUNIT_EXPECT_EQ(test, ctx.nr_held, 0);
	mo_check_copied(test, &src, &dst, ctx.nr_copied);

	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select(strim(was_active)));
	WRITE_ONCE(migrate_offload_reasons, reasons);
	list_for_each_entry_safe(folio, next, &src, lru) {
		if (mo_pair_is_busy(folio->index))
			folio_put(folio);
		mo_test_folio_free(folio);
	}
	list_for_each_entry_safe(folio, next, &dst, lru)
		mo_test_folio_free(folio);
}

/*
 * Retry.  Of six pairs three are copied, and one is held.  The first pass takes
 * all six, and say that pairs 0, 2 and 5 have to be retried: none of them is
 * taken for copied then.
 */
static void mo_test_take_once(struct kunit *test)
{
	struct migrate_offload_ctx ctx = {
		.nr_folios = 6,
		.nr_engine = 3,
		.nr_copied = 3,
		.nr_held = 1,
	};
	int i;

	for (i = 0; i < 3; i++)
		KUNIT_EXPECT_EQ(test, migrate_offload_take(&ctx),
				MIGRATE_CONTENT_DST);
	KUNIT_EXPECT_EQ(test, migrate_offload_take(&ctx), MIGRATE_CONTENT_HELD);
	for (i = 0; i < 5; i++)
		KUNIT_EXPECT_EQ(test, migrate_offload_take(&ctx),
				MIGRATE_CONTENT_SRC);
}

/*
 * Splitting: whatever the sizes of the folios, the chunks cover the batch from
 * start to end without gap or overlap, start at whole pages, and have the same
 * size but for the last.
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

	/* One more than allowed: nothing may be written there. */
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
	struct migrate_copy_batch *batch = migrate_batch_alloc();
	int p;

	KUNIT_ASSERT_NOT_NULL(test, batch);
	for (p = 0; p < param->nr_pairs; p++)
		migrate_batch_add(batch, mo_test_folio(test, param->orders[p]),
				  mo_test_folio(test, param->orders[p]));

	mo_check_split(test, param, batch);

	for (p = 0; p < param->nr_pairs; p++) {
		mo_test_folio_free(batch->pairs[p].src);
		mo_test_folio_free(batch->pairs[p].dst);
	}
	migrate_batch_free(batch);
}

/* Copying a batch chunk by chunk, last chunk first, copies all of it. */
static void mo_test_copy_range(struct kunit *test)
{
	static const unsigned int orders[] = { 0, 3, 0, 2 };
	struct migrate_copy_batch *batch = migrate_batch_alloc();
	struct migrate_copy_pos starts[5];
	size_t chunk_bytes, offset;
	unsigned int nr;
	int p;

	KUNIT_ASSERT_NOT_NULL(test, batch);
	for (p = 0; p < ARRAY_SIZE(orders); p++) {
		struct folio *src = mo_test_folio(test, orders[p]);
		struct folio *dst = mo_test_folio(test, orders[p]);

		for (offset = 0; offset < folio_size(src); offset += 8)
			*(u64 *)(folio_address(src) + offset) = p + offset;
		memset(folio_address(dst), 0xff, folio_size(dst));
		migrate_batch_add(batch, src, dst);
	}

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
	migrate_batch_free(batch);
}

static struct kunit_case migrate_offload_test_cases[] = {
	KUNIT_CASE(mo_test_partition),
	KUNIT_CASE(mo_test_partition_undone),
	KUNIT_CASE(mo_test_partition_held),
	KUNIT_CASE(mo_test_partition_held_failed),
	KUNIT_CASE(mo_test_copy_phase),
	KUNIT_CASE(mo_test_take_once),
	KUNIT_CASE_PARAM(mo_test_split, mo_split_gen_params),
	KUNIT_CASE(mo_test_copy_range),
	{}
};

static struct kunit_suite migrate_offload_test_suite = {
	.name = "migrate_offload",
	.test_cases = migrate_offload_test_cases,
};

kunit_test_suite(migrate_offload_test_suite);
