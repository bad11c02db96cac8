// SPDX-License-Identifier: GPL-2.0-only
/*
 * Batch copy of migrating folios: which folios an engine gets.
 *
 * migrate_pages_batch() unmaps folios, flushes the TLBs, and then moves the
 * folios one after the other, copying each.  Between the flush and the first
 * move the active engine may copy many of them at once.  This file picks those
 * whose content cannot change any more.  verdict.c says afterwards which copies
 * are to be believed, so that the move of these can skip its own.  The CPU
 * copies all others, folio by folio.  window.c decides when each of these things
 * happens.
 *
 * The data is safe for three reasons:
 *
 * - Only content that cannot change is copied early: see eligible.c.
 * - Nothing in a folio says that it was copied.  An entry in an array of ours
 *   does, for one attempt to move it: there is no mark to leak.
 * - The move freezes the reference count, as in stock Linux: an engine's copy
 *   does not replace any check that the move makes.
 */

#include <linux/ktime.h>
#include <linux/mempool.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "../internal.h"
#include "hooks.h"
#include "internal.h"

/* Parts that are in use at the same time without any allocation. */
#define MIGRATE_PART_POOL_MIN 8

static mempool_t *migrate_part_pool;

/* Windows likewise: each call of migrate_pages() needs one. */
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
 * A cache, as parts are too large for kmalloc() to keep any at hand: to free a
 * block of some pages can make the page allocator free all that it keeps for
 * this CPU, which takes as long as to copy 2 MiB.
 *
 * Windows come last: where there is a pool of these, there is one of parts.
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
 * May be called while reclaiming memory and with folio locks held: no reclaim,
 * no wakeup of kswapd, and (mempool sees to it) no use of reserves.
 */
struct migrate_part *migrate_part_alloc(void)
{
	return mempool_alloc(migrate_part_pool, __GFP_NOWARN);
}

/* All but the array, which is as long as it is filled. */
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

/* One more pair, whose source has just been unmapped. */
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

/*
 * Pairs that the engine may copy come first, among them those that somebody is
 * waiting for.  Each pair is moved once or twice, however many there are: while they
 * are sorted, all of them are out of reach.
 */
enum migrate_pair_class {
	MIGRATE_PAIR_AWAITED,
	MIGRATE_PAIR_ELIGIBLE,
	MIGRATE_PAIR_REST,
};

static enum migrate_pair_class
migrate_pair_class(const struct migrate_copy_pair *pair)
{
	if (!migrate_offload_eligible(pair->src, pair->dst))
		return MIGRATE_PAIR_REST;
	return folio_test_waiters(pair->src) ? MIGRATE_PAIR_AWAITED :
					       MIGRATE_PAIR_ELIGIBLE;
}

/*
 * Decide on each pair, and put the array and the lists in order for an engine.
 * Not before the TLBs were flushed: see migrate_offload_eligible().
 */
void migrate_part_sort(struct migrate_session *s, struct migrate_part *part)
{
	struct migrate_copy_batch *copy = &part->copy;
	unsigned int i, nr_awaited = 0;

	copy->nr_pairs = 0;
	copy->bytes = 0;
	for (i = 0; i < part->nr_all; i++) {
		struct migrate_copy_pair *pair = &copy->pairs[i];
		size_t bytes = folio_size(pair->src);

		switch (migrate_pair_class(pair)) {
		case MIGRATE_PAIR_REST:
			part->outcome.folios[VERDICT_NOT_ELIGIBLE]++;
			part->outcome.cpu_bytes += bytes;
			migrate_payers_add(&s->payers, pair->src, false);
			continue;
		case MIGRATE_PAIR_AWAITED:
			swap(*pair, copy->pairs[copy->nr_pairs]);
			swap(copy->pairs[copy->nr_pairs],
			     copy->pairs[nr_awaited]);
			nr_awaited++;
			break;
		case MIGRATE_PAIR_ELIGIBLE:
			swap(*pair, copy->pairs[copy->nr_pairs]);
			break;
		}
		copy->nr_pairs++;
		copy->bytes += bytes;
	}

	for (i = 0; i < copy->nr_pairs; i++) {
		struct migrate_copy_pair *pair = &copy->pairs[i];

		list_move_tail(&pair->src->lru, &copy->src_list);
		if (migrate_rule(ORDER, true))
			list_move_tail(&pair->dst->lru, &copy->dst_list);
		else
			list_move(&pair->dst->lru, &copy->dst_list);
	}
	if (copy->nr_pairs)
		copy->dst_nid = folio_nid(copy->pairs[0].dst);
	part->outcome.nr_offered = copy->nr_pairs;
	part->outcome.offered_bytes = copy->bytes;
}

/* NULL without memory for it, or before there is a pool. */
struct migrate_windows *migrate_windows_alloc(void)
{
	if (!migrate_windows_pool)
		return NULL;
	return mempool_alloc(migrate_windows_pool, __GFP_NOWARN);
}

void migrate_offload_end(struct migrate_windows *w)
{
	if (w)
		mempool_free(w, migrate_windows_pool);
}

/* A batch begins: nothing has been unmapped yet. */
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
	 * A list that is longer than ever has to be in windows, whoever copies.
	 * The last folio of a batch may go beyond the cap.
	 */
	w->is_long = w->session.total_bytes > 2 * MIGRATE_STOCK_BATCH_PAGES * PAGE_SIZE;
	migrate_session_begin(&w->session, from, false, nr_folios, w->is_long);
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "clock.h"
#include "tests/part_kunit.c"
#endif
