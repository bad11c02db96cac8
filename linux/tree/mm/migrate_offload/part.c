// SPDX-License-Identifier: GPL-2.0-only
/*
 * Batch copy of migrating folios: choose the folios that an engine copies.
 *
 * Stock migrate_pages_batch() unmaps folios, flushes the TLBs, and then copies
 * and moves one folio at a time.  Between the flush and the first move, the
 * active engine may copy many folios at once.  This file picks folios whose
 * content cannot change any more.  verdict.c then decides which copies count,
 * and the move of these folios does not copy.  The CPU copies all other folios
 * when they move.  window.c decides when each step happens.
 *
 * The data is safe for three reasons:
 *
 * - The engine copies only content that cannot change: see eligible.c.
 * - No flag of a folio records the copy, so no flag can leak.  The core records
 *   the copy in its array of pairs, for one attempt to move the folio.
 * - The move freezes the reference count, as in stock Linux.  An engine's copy
 *   replaces no check of the move.
 */

#include <linux/ktime.h>
#include <linux/mempool.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "../internal.h"
#include "hooks.h"
#include "internal.h"

/* Each pool keeps this number of elements in reserve. */
#define MIGRATE_PART_POOL_MIN 8

static mempool_t *migrate_part_pool;

/* Each call of migrate_pages() takes one element. */
static mempool_t *migrate_windows_pool;

static mempool_t * __init migrate_pool_create(const char *name, size_t bytes)
{
	struct kmem_cache *cache = kmem_cache_create(name, bytes, 0, 0, NULL);
	mempool_t *pool;

	if (!cache)
		return NULL;
	pool = mempool_create_slab_pool(MIGRATE_PART_POOL_MIN, cache);
	if (!pool)
		kmem_cache_destroy(cache);
	return pool;
}

/*
 * Parts need a cache: they are so large that kmalloc() and kfree() would call
 * the page allocator.  Freeing a part could then drain this CPU's lists of free
 * pages, which takes as long as to copy 2 MiB.
 *
 * Create the pool of windows last: migrate_windows_alloc() checks only this
 * pool, and only windows use the pool of parts.
 */
int __init migrate_pools_init(void)
{
	struct migrate_part *part;

	migrate_part_pool =
		migrate_pool_create("migrate_part",
				    struct_size(part, copy.pairs,
						MIGRATE_PART_MAX_PAIRS));
	if (migrate_part_pool)
		migrate_windows_pool =
			migrate_pool_create("migrate_windows",
					    sizeof(struct migrate_windows));
	return migrate_windows_pool ? 0 : -ENOMEM;
}

/*
 * The caller may be reclaiming memory, and holds folio locks.  So do not
 * reclaim, nor wake kswapd.  mempool_alloc() uses no memory reserves.
 */
struct migrate_part *migrate_part_alloc(void)
{
	return mempool_alloc(migrate_part_pool, __GFP_NOWARN);
}

/* migrate_part_add() initialises each pair. */
void migrate_part_init(struct migrate_part *part)
{
	memset(part, 0, offsetof(struct migrate_part, copy.pairs));
	INIT_LIST_HEAD(&part->node);
	INIT_LIST_HEAD(&part->rest_src);
	INIT_LIST_HEAD(&part->rest_dst);
	INIT_LIST_HEAD(&part->copy.src_list);
	INIT_LIST_HEAD(&part->copy.dst_list);
}

void migrate_part_free(struct migrate_part *part)
{
	mempool_free(part, migrate_part_pool);
}

/* Add a pair, whose source was unmapped at @unmapped_ns. */
void migrate_part_add(struct migrate_part *part, struct folio *src,
		      struct folio *dst, u64 unmapped_ns)
{
	struct migrate_copy_pair *pair = &part->copy.pairs[part->nr_all++];

	pair->src = src;
	pair->dst = dst;
	pair->result = -EINPROGRESS;
	pair->held = false;
	pair->done = false;
	pair->tried = false;
	pair->content = MIGRATE_CONTENT_SRC;
	pair->unmapped_ns = unmapped_ns;
	part->bytes += folio_size(src);
	part->nr_open++;
	list_move_tail(&src->lru, &part->rest_src);
	list_add_tail(&dst->lru, &part->rest_dst);
}

/* Put the folios of the batch on the engine's lists, in the order of pairs. */
static void migrate_part_list(struct migrate_part *part)
{
	struct migrate_copy_batch *copy = &part->copy;
	unsigned int i;

	if (copy->nr_pairs == part->nr_all && migrate_rule(ORDER, true)) {
		list_splice_tail_init(&part->rest_src, &copy->src_list);
		list_splice_tail_init(&part->rest_dst, &copy->dst_list);
		return;
	}
	for (i = 0; i < copy->nr_pairs; i++) {
		struct migrate_copy_pair *pair = &copy->pairs[i];

		list_move_tail(&pair->src->lru, &copy->src_list);
		if (migrate_rule(ORDER, true))
			list_move_tail(&pair->dst->lru, &copy->dst_list);
		else
			list_move(&pair->dst->lru, &copy->dst_list);
	}
}

/*
 * Put the eligible pairs first, and their folios on the engine's lists.  All
 * folios are unmapped meanwhile, so this takes linear time.  Call it only after
 * the TLB flush: see migrate_offload_eligible().
 */
void migrate_part_sort(struct migrate_session *s, struct migrate_part *part)
{
	struct migrate_copy_batch *copy = &part->copy;
	unsigned int i;

	copy->nr_pairs = 0;
	copy->bytes = 0;
	for (i = 0; i < part->nr_all; i++) {
		struct migrate_copy_pair *pair = &copy->pairs[i];
		size_t bytes = folio_size(pair->src);

		if (migrate_offload_eligible(pair->src, pair->dst)) {
			if (copy->nr_pairs != i)
				swap(*pair, copy->pairs[copy->nr_pairs]);
			copy->nr_pairs++;
			copy->bytes += bytes;
			continue;
		}
		part->outcome.folios[VERDICT_NOT_ELIGIBLE]++;
		part->outcome.cpu_bytes += bytes;
		migrate_payers_add(&s->payers, pair->src, false);
	}
	migrate_part_list(part);
	if (copy->nr_pairs)
		copy->dst_nid = folio_nid(copy->pairs[0].dst);
	part->outcome.nr_offered = copy->nr_pairs;
	part->outcome.offered_bytes = copy->bytes;
}

/* Returns NULL without memory or without a pool. */
struct migrate_windows *migrate_windows_alloc(void)
{
	if (!migrate_windows_pool)
		return NULL;
	return mempool_alloc(migrate_windows_pool, __GFP_NOWARN);
}

void __migrate_offload_end(struct migrate_windows *w)
{
	mempool_free(w, migrate_windows_pool);
}

/* Begin a list, of which no folio is unmapped yet. */
void __migrate_windows_begin(struct migrate_windows *w, struct list_head *from)
{
	unsigned int nr_folios = 0;
	struct folio *folio;

	list_for_each_entry(folio, from, lru) {
		w->session.total_bytes += folio_size(folio);
		nr_folios++;
	}
	INIT_LIST_HEAD(&w->filling);
	INIT_LIST_HEAD(&w->flying);
	/*
	 * A list that is longer than any of stock Linux needs windows, even if
	 * the CPU copies.  The last folio of a stock list may exceed the batch,
	 * so compare with twice the pages of a batch.
	 */
	w->is_long = w->session.total_bytes > 2 * MIGRATE_STOCK_BATCH_PAGES * PAGE_SIZE;
	migrate_session_begin(&w->session, from, false, nr_folios, w->is_long);
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "clock.h"
#include "tests/part_kunit.c"
#endif
