// SPDX-License-Identifier: GPL-2.0-only
/*
 * Unit tests of dcbm's streams: batches to copy.
 */

#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/nodemask.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "stream_test.h"

static void test_fill(struct folio *folio, u8 seed)
{
	long i;

	for (i = 0; i < folio_nr_pages(folio); i++)
		memset(page_address(folio_page(folio, i)), seed + i, PAGE_SIZE);
}

/* Allocate an empty batch with room for @nr folios. */
static struct migrate_copy_batch *test_batch_new(struct kunit *test,
						 unsigned int nr)
{
	struct migrate_copy_batch *batch;

	batch = kzalloc(struct_size(batch, pairs, nr), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, batch);
	batch->dst_nid = first_memory_node;
	INIT_LIST_HEAD(&batch->src_list);
	INIT_LIST_HEAD(&batch->dst_list);
	return batch;
}

/* Allocate a batch of @nr folios.  dcbm_stream_test_exit() frees it. */
struct migrate_copy_batch *test_batch(struct kunit *test, int which,
				      unsigned int nr, unsigned int order)
{
	struct migrate_copy_batch *batch = test_batch_new(test, nr);
	struct test_ctx *ctx = test->priv;

	ctx->batches[which] = batch;
	while (batch->nr_pairs < nr) {
		struct migrate_copy_pair *pair = &batch->pairs[batch->nr_pairs];

		pair->src = folio_alloc(GFP_KERNEL | __GFP_COMP, order);
		KUNIT_ASSERT_NOT_NULL(test, pair->src);
		pair->dst = folio_alloc(GFP_KERNEL | __GFP_COMP, order);
		if (!pair->dst)
			folio_put(pair->src);
		KUNIT_ASSERT_NOT_NULL(test, pair->dst);
		pair->result = -EINPROGRESS;
		test_fill(pair->src, 16 * which + batch->nr_pairs);
		test_fill(pair->dst, 0xee);
		batch->nr_pairs++;
		batch->bytes += folio_size(pair->src);
	}
	return batch;
}

/*
 * Allocate a batch of small folios, each next to the one before.
 * dcbm_stream_test_exit() frees it.
 */
struct migrate_copy_batch *test_batch_adjacent(struct kunit *test, int which,
					       unsigned int order)
{
	struct migrate_copy_batch *batch = test_batch_new(test, 1U << order);
	struct page *src = alloc_pages(GFP_KERNEL, order);
	struct page *dst = alloc_pages(GFP_KERNEL, order);
	struct test_ctx *ctx = test->priv;

	ctx->batches[which] = batch;
	if (!src || !dst) {
		if (src)
			__free_pages(src, order);
		if (dst)
			__free_pages(dst, order);
		KUNIT_FAIL_AND_ABORT(test, "no memory");
	}
	split_page(src, order);
	split_page(dst, order);
	for (; batch->nr_pairs < 1U << order; batch->nr_pairs++) {
		struct migrate_copy_pair *pair = &batch->pairs[batch->nr_pairs];

		pair->src = page_folio(src + batch->nr_pairs);
		pair->dst = page_folio(dst + batch->nr_pairs);
		pair->result = -EINPROGRESS;
		test_fill(pair->src, batch->nr_pairs);
		test_fill(pair->dst, 0xee);
	}
	batch->bytes = PAGE_SIZE << order;
	return batch;
}

void test_batch_free(struct migrate_copy_batch *batch)
{
	unsigned int i;

	if (!batch)
		return;
	for (i = 0; i < batch->nr_pairs; i++) {
		folio_put(batch->pairs[i].src);
		folio_put(batch->pairs[i].dst);
	}
	kfree(batch);
}

struct migrate_copy_batch *test_batch_to_grow(struct kunit *test,
					      unsigned int nr)
{
	struct migrate_copy_batch *batch = test_batch_new(test, nr);
	struct test_ctx *ctx = test->priv;

	ctx->growing = batch;
	for (; batch->nr_pairs < nr; batch->nr_pairs++) {
		struct migrate_copy_pair *pair = &batch->pairs[batch->nr_pairs];
		struct page *src = alloc_pages(GFP_KERNEL, TEST_GROWN_ORDER);
		struct page *dst = alloc_pages(GFP_KERNEL, TEST_GROWN_ORDER);

		if (!src || !dst) {
			if (src)
				__free_pages(src, TEST_GROWN_ORDER);
			if (dst)
				__free_pages(dst, TEST_GROWN_ORDER);
			KUNIT_FAIL_AND_ABORT(test, "no memory");
		}
		pair->src = page_folio(src);
		pair->dst = page_folio(dst);
		pair->result = -EINPROGRESS;
		memset(page_address(src), 0x11 + batch->nr_pairs,
		       PAGE_SIZE << TEST_GROWN_ORDER);
		memset(page_address(dst), 0xee, PAGE_SIZE << TEST_GROWN_ORDER);
		batch->bytes += folio_size(pair->src);
	}
	return batch;
}

/* Turn the folio into the head of a larger one, as if it had been freed. */
void test_grow(struct folio *folio)
{
	__set_bit(PG_head, folio_flags(folio, 0));
	folio->_flags_1 |= TEST_GROWN_ORDER;
}

static void test_shrink(struct folio *folio)
{
	if (!__test_and_clear_bit(PG_head, folio_flags(folio, 0)))
		return;
	folio->_flags_1 &= ~0xffUL;
}

void test_batch_grown_free(struct migrate_copy_batch *batch)
{
	unsigned int i;

	if (!batch)
		return;
	for (i = 0; i < batch->nr_pairs; i++) {
		test_shrink(batch->pairs[i].src);
		__free_pages(folio_page(batch->pairs[i].src, 0),
			     TEST_GROWN_ORDER);
		__free_pages(folio_page(batch->pairs[i].dst, 0),
			     TEST_GROWN_ORDER);
	}
	kfree(batch);
}
