// SPDX-License-Identifier: GPL-2.0-only
/*
 * Batch copy of migrating folios.
 *
 * migrate_pages_batch() unmaps many folios, flushes the TLBs once, and then
 * moves the folios one after the other, copying each.  This file gets between
 * the flush and the first move.  It picks the folios whose content cannot
 * change any more, has the active engine copy them all at once, and puts those
 * that were copied in front, so that the move of each can skip its own copy.
 * Everything else takes the ordinary way, folio by folio.
 *
 * What keeps the data safe:
 *
 * - Only content that cannot change is copied early: see
 *   mm/migrate_offload_eligible.c.
 * - Nothing marks a folio as copied but its place on the list and a number on
 *   the caller's stack, which counts down as the first pass over the list goes
 *   on.  So a copy is good for one attempt, and there is no mark to leak.
 * - The reference count is frozen in the move, as ever: an engine's copy does
 *   not replace any check that the move makes.
 *
 * Documentation/mm/migrate_offload.rst has the whole story.
 */

#define pr_fmt(fmt) "migrate_offload: " fmt

#include <linux/highmem.h>
#include <linux/ktime.h>
#include <linux/mempool.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/uaccess.h>

#include "internal.h"
#include "migrate_offload.h"

#define CREATE_TRACE_POINTS
#include <trace/events/migrate_offload.h>

DEFINE_STATIC_KEY_FALSE(migrate_offload_key);

/*
 * An engine sees at most this many folios at once; a longer batch is handed
 * over in parts.  On x86 a batch of small folios is just so long.
 */
#define MIGRATE_BATCH_MAX_PAIRS 512

/* Batches that are copied at the same time without any allocation. */
#define MIGRATE_BATCH_POOL_MIN 4

static mempool_t *migrate_batch_pool;

int __init migrate_batch_pool_init(void)
{
	struct migrate_copy_batch *batch;

	migrate_batch_pool =
		mempool_create_kmalloc_pool(MIGRATE_BATCH_POOL_MIN,
					    struct_size(batch, pairs,
							MIGRATE_BATCH_MAX_PAIRS));
	return migrate_batch_pool ? 0 : -ENOMEM;
}

/*
 * May be called while reclaiming memory and with folio locks held: no reclaim,
 * no wakeup of kswapd, and (mempool sees to it) no use of reserves.
 */
struct migrate_copy_batch *migrate_batch_alloc(void)
{
	struct migrate_copy_batch *batch;

	batch = mempool_alloc(migrate_batch_pool, __GFP_NOWARN);
	if (!batch)
		return NULL;
	batch->nr_pairs = 0;
	batch->bytes = 0;
	INIT_LIST_HEAD(&batch->src_list);
	INIT_LIST_HEAD(&batch->dst_list);
	return batch;
}

void migrate_batch_free(struct migrate_copy_batch *batch)
{
	mempool_free(batch, migrate_batch_pool);
}

int migrate_offload_trace_reg(void)
{
	static_branch_inc(&migrate_offload_key);
	return 0;
}

void migrate_offload_trace_unreg(void)
{
	static_branch_dec(&migrate_offload_key);
}

/* Add a pair to the batch, and to the tail of the lists of the batch. */
static void migrate_batch_add(struct migrate_copy_batch *batch,
			      struct folio *src, struct folio *dst)
{
	struct migrate_copy_pair *pair = &batch->pairs[batch->nr_pairs++];

	if (batch->nr_pairs == 1)
		batch->dst_nid = folio_nid(dst);
	pair->src = src;
	pair->dst = dst;
	pair->result = -EINPROGRESS;
	pair->held = false;
	batch->bytes += folio_size(src);
	list_move_tail(&src->lru, &batch->src_list);
	if (migrate_offload_broken(MO_RULE_ORDER))
		list_move(&dst->lru, &batch->dst_list);
	else
		list_move_tail(&dst->lru, &batch->dst_list);
}

/* Two lists of folios that are kept parallel. */
struct migrate_pair_lists {
	struct list_head src;
	struct list_head dst;
};

/* Where the pairs of a batch go: in this order they will be moved. */
struct migrate_batch_lists {
	struct migrate_pair_lists done;
	struct migrate_pair_lists held;
	struct migrate_pair_lists rest;
};

/* What one part of a batch came to. */
struct migrate_batch_outcome {
	u64 folios[NR_MO_COUNTERS];
	u64 engine_bytes;
	u64 cpu_bytes;
};

/*
 * Take pairs off the head of two parallel lists until the batch is full or the
 * lists are empty: eligible pairs go to the batch, the others to the tail of
 * @rest.
 */
static void migrate_batch_fill(struct migrate_copy_batch *batch,
			       struct list_head *src_folios,
			       struct list_head *dst_folios,
			       struct migrate_pair_lists *rest,
			       struct migrate_batch_outcome *outcome)
{
	while (!list_empty(src_folios) &&
	       batch->nr_pairs < MIGRATE_BATCH_MAX_PAIRS) {
		struct folio *src = list_first_entry(src_folios, struct folio,
						     lru);
		struct folio *dst = list_first_entry(dst_folios, struct folio,
						     lru);

		if (migrate_offload_eligible(src, dst)) {
			migrate_batch_add(batch, src, dst);
			continue;
		}
		outcome->folios[MO_NOT_ELIGIBLE_FOLIOS]++;
		outcome->cpu_bytes += folio_size(src);
		list_move_tail(&src->lru, &rest->src);
		list_move_tail(&dst->lru, &rest->dst);
	}
}

/*
 * Is the content of both folios the same?  Reads the source with care: poison
 * that an engine did not see must not bring the machine down here.
 */
static enum migrate_offload_counter
migrate_batch_verify(const struct migrate_copy_pair *pair)
{
	enum migrate_offload_counter end = MO_ENGINE_FOLIOS;
	long i, nr = folio_nr_pages(pair->src);
	char buf[256];
	size_t offset;

	for (i = 0; i < nr && end == MO_ENGINE_FOLIOS; i++) {
		char *src = kmap_local_page(folio_page(pair->src, i));
		char *dst = kmap_local_page(folio_page(pair->dst, i));

		for (offset = 0; offset < PAGE_SIZE; offset += sizeof(buf)) {
			if (copy_mc_to_kernel(buf, src + offset, sizeof(buf)))
				end = MO_FAILED_FOLIOS;
			else if (memcmp(buf, dst + offset, sizeof(buf)))
				end = MO_MISMATCHED_FOLIOS;
			if (end != MO_ENGINE_FOLIOS)
				break;
		}
		kunmap_local(dst);
		kunmap_local(src);
		cond_resched();
	}
	return end;
}

/*
 * May the engine's copy of this pair be used?  Its own word comes first.  Then
 * look for poison again: a machine check may have been taken meanwhile, and
 * the ordinary copy knows how to deal with it.
 */
static enum migrate_offload_counter
migrate_batch_judge(const struct migrate_copy_pair *pair)
{
	if (pair->result && !migrate_offload_broken(MO_RULE_RESULT))
		return MO_FAILED_FOLIOS;
	if (folio_contain_hwpoisoned_page(pair->src) &&
	    !migrate_offload_broken(MO_RULE_POISON))
		return MO_FAILED_FOLIOS;
	if (READ_ONCE(migrate_offload_verify))
		return migrate_batch_verify(pair);
	return MO_ENGINE_FOLIOS;
}

/* Is the pair out of bounds for everybody? */
static bool migrate_batch_is_held(struct migrate_copy_pair *pair)
{
	if (!pair->held)
		return false;
	if (!migrate_offload_broken(MO_RULE_HOLD))
		return true;
	/* As a core would that knows nothing of slow devices. */
	migrate_copy_release(pair->src, pair->dst);
	pair->held = false;
	return false;
}

/*
 * Empty the batch: pairs that were copied go to the tail of @lists->done, those
 * that a device may still be using to @lists->held, the others to @lists->rest.
 * @why tells what became of all that are not held, or is MO_ENGINE_FOLIOS when
 * each has a result of its own.
 */
static void migrate_batch_drain(struct migrate_copy_batch *batch,
				enum migrate_offload_counter why,
				struct migrate_batch_lists *lists,
				struct migrate_batch_outcome *outcome)
{
	unsigned int i;

	for (i = 0; i < batch->nr_pairs; i++) {
		struct migrate_copy_pair *pair = &batch->pairs[i];
		struct migrate_pair_lists *to = &lists->rest;
		enum migrate_offload_counter end = why;

		if (migrate_batch_is_held(pair))
			end = MO_HELD_FOLIOS;
		else if (end == MO_ENGINE_FOLIOS)
			end = migrate_batch_judge(pair);

		outcome->folios[end]++;
		if (end == MO_HELD_FOLIOS) {
			to = &lists->held;
		} else if (end == MO_ENGINE_FOLIOS) {
			to = &lists->done;
			outcome->engine_bytes += folio_size(pair->src);
		} else {
			outcome->cpu_bytes += folio_size(pair->src);
		}
		list_move_tail(&pair->src->lru, &to->src);
		list_move_tail(&pair->dst->lru, &to->dst);
	}
}

/* Have the engine copy the batch, or find out why not. */
static enum migrate_offload_counter
migrate_batch_run(struct migrate_copy_batch *batch)
{
	int rc;

	if (batch->bytes < READ_ONCE(migrate_offload_min_batch_bytes))
		return MO_TOO_SMALL_FOLIOS;

	rc = migrate_engine_copy(batch);
	if (!rc)
		return MO_ENGINE_FOLIOS;
	return rc == -EOPNOTSUPP || rc == -EBUSY ? MO_DECLINED_FOLIOS :
						   MO_FAILED_FOLIOS;
}

static void migrate_batch_count(struct migrate_offload_stats *stats,
				const struct migrate_copy_batch *batch,
				const struct migrate_batch_outcome *outcome)
{
	static const enum migrate_offload_counter why_not[] = {
		MO_NOT_ELIGIBLE_FOLIOS, MO_TOO_SMALL_FOLIOS, MO_DECLINED_FOLIOS,
		MO_FAILED_FOLIOS, MO_MISMATCHED_FOLIOS,
	};
	u64 nr_cpu = 0;
	int i;

	migrate_offload_count(stats, MO_BATCHES, !!batch->nr_pairs);
	if (!outcome->folios[MO_TOO_SMALL_FOLIOS]) {
		migrate_offload_count(stats, MO_OFFERED_FOLIOS, batch->nr_pairs);
		migrate_offload_count(stats, MO_OFFERED_BYTES, batch->bytes);
	}
	migrate_offload_count(stats, MO_ENGINE_FOLIOS,
			      outcome->folios[MO_ENGINE_FOLIOS]);
	migrate_offload_count(stats, MO_ENGINE_BYTES, outcome->engine_bytes);
	for (i = 0; i < ARRAY_SIZE(why_not); i++) {
		migrate_offload_count(stats, why_not[i],
				      outcome->folios[why_not[i]]);
		nr_cpu += outcome->folios[why_not[i]];
	}
	/* Nobody copies these: not the engine's, and not the CPU's. */
	migrate_offload_count(stats, MO_HELD_FOLIOS,
			      outcome->folios[MO_HELD_FOLIOS]);
	migrate_offload_count(stats, MO_CPU_FOLIOS, nr_cpu);
	migrate_offload_count(stats, MO_CPU_BYTES, outcome->cpu_bytes);
}

/* All folios are left to the CPU, and @why, without a look at any of them. */
static void migrate_batch_count_unasked(struct migrate_offload_stats *stats,
					const struct migrate_offload_ctx *ctx,
					enum migrate_offload_counter why)
{
	migrate_offload_count(stats, why, ctx->nr_folios);
	migrate_offload_count(stats, MO_CPU_FOLIOS, ctx->nr_folios);
	migrate_offload_count(stats, MO_CPU_BYTES, ctx->bytes);
}

static void migrate_pair_lists_init(struct migrate_pair_lists *lists)
{
	INIT_LIST_HEAD(&lists->src);
	INIT_LIST_HEAD(&lists->dst);
}

/* Put @lists in front of two parallel lists. */
static void migrate_pair_lists_splice(const struct migrate_pair_lists *lists,
				      struct list_head *src_folios,
				      struct list_head *dst_folios)
{
	list_splice(&lists->src, src_folios);
	list_splice(&lists->dst, dst_folios);
}

/*
 * Work through all folios, in parts that an engine can see at once, and leave
 * them in the order in which they will be moved.
 */
static void migrate_offload_copy_parts(struct migrate_offload_ctx *ctx,
				       struct migrate_copy_batch *batch,
				       struct list_head *src_folios,
				       struct list_head *dst_folios)
{
	struct migrate_offload_stats *by_reason =
		migrate_offload_reason_stats[ctx->reason];
	struct migrate_batch_lists lists;

	migrate_pair_lists_init(&lists.done);
	migrate_pair_lists_init(&lists.held);
	migrate_pair_lists_init(&lists.rest);

	while (!list_empty(src_folios)) {
		struct migrate_batch_outcome outcome = {};
		enum migrate_offload_counter why;

		batch->nr_pairs = 0;
		batch->bytes = 0;
		migrate_batch_fill(batch, src_folios, dst_folios, &lists.rest,
				   &outcome);
		if (batch->nr_pairs) {
			why = migrate_batch_run(batch);
			migrate_batch_drain(batch, why, &lists, &outcome);
		}
		migrate_batch_count(by_reason, batch, &outcome);
		migrate_batch_count(ctx->engine, batch, &outcome);
		ctx->nr_engine += outcome.folios[MO_ENGINE_FOLIOS];
		ctx->nr_held += outcome.folios[MO_HELD_FOLIOS];
	}

	migrate_pair_lists_splice(&lists.rest, src_folios, dst_folios);
	migrate_pair_lists_splice(&lists.held, src_folios, dst_folios);
	migrate_pair_lists_splice(&lists.done, src_folios, dst_folios);
	ctx->nr_copied = ctx->nr_engine;
}

/*
 * Would it be in vain to put a batch together?  Asked first, as looking at
 * each folio costs more than anything else here.  What is eligible can only be
 * less than all.
 */
static bool migrate_batch_in_vain(const struct migrate_offload_ctx *ctx,
				  const struct migrate_engine *engine,
				  int dst_nid,
				  enum migrate_offload_counter *why)
{
	*why = MO_TOO_SMALL_FOLIOS;
	if (ctx->bytes < READ_ONCE(migrate_offload_min_batch_bytes))
		return true;
	*why = MO_DECLINED_FOLIOS;
	return !migrate_engine_wants(engine, dst_nid, ctx->bytes);
}

/*
 * The copy phase, with an engine that nobody can take away meanwhile.  Leaves
 * the pairs that are copied at the head of the two lists, then those that are
 * held, and counts both in @ctx.
 */
static void migrate_offload_copy_batch(struct migrate_offload_ctx *ctx,
				       const struct migrate_engine *engine,
				       struct list_head *src_folios,
				       struct list_head *dst_folios)
{
	struct migrate_offload_stats *by_reason =
		migrate_offload_reason_stats[ctx->reason];
	enum migrate_offload_counter why = MO_DECLINED_FOLIOS;
	struct migrate_copy_batch *batch = NULL;
	struct folio *folio;

	folio = list_first_entry_or_null(dst_folios, struct folio, lru);
	if (!folio)
		return;

	ctx->engine = migrate_engine_stats(engine);
	if (!migrate_batch_in_vain(ctx, engine, folio_nid(folio), &why))
		batch = migrate_batch_alloc();
	if (!batch) {
		migrate_batch_count_unasked(by_reason, ctx, why);
		migrate_batch_count_unasked(ctx->engine, ctx, why);
		return;
	}
	batch->reason = ctx->reason;
	batch->mode = ctx->mode;
	migrate_offload_copy_parts(ctx, batch, src_folios, dst_folios);
	migrate_batch_free(batch);
}

static u64 migrate_offload_now(const struct migrate_offload_ctx *ctx)
{
	return ctx->timed ? ktime_get_ns() : 0;
}

void __migrate_offload_begin(struct migrate_offload_ctx *ctx,
			     enum migrate_mode mode, int reason)
{
	ctx->mode = mode;
	ctx->reason = reason;
	ctx->begun = true;
	ctx->timed = trace_mm_migrate_batch_enabled() ||
		     trace_mm_migrate_first_folio_enabled();
	ctx->start_ns = migrate_offload_now(ctx);
}

void __migrate_offload_unmapped(struct migrate_offload_ctx *ctx)
{
	ctx->unmapped_ns = migrate_offload_now(ctx);
}

void __migrate_offload_copy(struct migrate_offload_ctx *ctx,
			    struct list_head *src_folios,
			    struct list_head *dst_folios)
{
	struct migrate_engine *engine;
	struct folio *folio;
	int idx;

	/* Switched on after this batch had begun: from the next one on. */
	if (!ctx->begun)
		return;

	ctx->flushed_ns = migrate_offload_now(ctx);
	list_for_each_entry(folio, src_folios, lru) {
		ctx->nr_folios++;
		ctx->bytes += folio_size(folio);
	}

	engine = migrate_engine_enter(&idx);
	if (engine && (READ_ONCE(migrate_offload_reasons) & BIT(ctx->reason)))
		migrate_offload_copy_batch(ctx, engine, src_folios, dst_folios);
	migrate_engine_exit(idx);
	ctx->copied_ns = migrate_offload_now(ctx);
	ctx->copy_phase_done = true;
}

static const char *migrate_offload_ctx_engine(struct migrate_offload_ctx *ctx)
{
	return ctx->engine ? ctx->engine->name : "none";
}

void __migrate_offload_moved(struct migrate_offload_ctx *ctx,
			     enum migrate_content content, int rc)
{
	if (!ctx->copy_phase_done)
		return;

	if (content == MIGRATE_CONTENT_DST && rc == -EAGAIN) {
		migrate_offload_count(ctx->engine, MO_RETRIED_FOLIOS, 1);
		migrate_offload_count(migrate_offload_reason_stats[ctx->reason],
				      MO_RETRIED_FOLIOS, 1);
	}
	if (rc == MIGRATEPAGE_SUCCESS && !ctx->moved_first && ctx->timed) {
		ctx->moved_first = true;
		trace_mm_migrate_first_folio(migrate_reason_names[ctx->reason],
					     migrate_offload_ctx_engine(ctx),
					     ktime_get_ns() - ctx->start_ns);
	}
}

void __migrate_offload_end(struct migrate_offload_ctx *ctx)
{
	/* If offloading went off and on meanwhile, some time may be missing. */
	if (!ctx->copy_phase_done || !ctx->timed || !ctx->nr_folios ||
	    !ctx->unmapped_ns)
		return;

	trace_mm_migrate_batch(migrate_reason_names[ctx->reason], ctx->mode,
			       migrate_offload_ctx_engine(ctx), ctx->nr_folios,
			       ctx->bytes, ctx->nr_engine,
			       ctx->unmapped_ns - ctx->start_ns,
			       ctx->flushed_ns - ctx->unmapped_ns,
			       ctx->copied_ns - ctx->flushed_ns,
			       ktime_get_ns() - ctx->copied_ns);
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/migrate_offload_kunit.c"
#endif
