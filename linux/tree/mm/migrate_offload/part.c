// SPDX-License-Identifier: GPL-2.0-only
/*
 * Batch copy of migrating folios: which folios an engine gets, and what becomes
 * of them.
 *
 * migrate_pages_batch() unmaps folios, flushes the TLBs, and then moves the
 * folios one after the other, copying each.  Between the flush and the first
 * move the active engine may copy many of them at once.  This file picks those
 * whose content cannot change any more, and says afterwards which copies are to
 * be believed, so that the move of these can skip its own.  Everything else
 * takes the ordinary way, folio by folio.  mm/migrate_offload/window.c decides
 * when each of these things happens.
 *
 * What keeps the data safe:
 *
 * - Only content that cannot change is copied early: see
 *   mm/migrate_offload/eligible.c.
 * - Nothing in a folio says that it was copied.  An entry in an array of ours
 *   does, for one attempt to move it: there is no mark to leak.
 * - The reference count is frozen in the move, as ever: an engine's copy does
 *   not replace any check that the move makes.
 *
 * Documentation/mm/migrate_offload.rst has the whole story.
 */

#define pr_fmt(fmt) "migrate_offload: " fmt

#include <linux/highmem.h>
#include <linux/ktime.h>
#include <linux/mempool.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/bandwidth.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "../internal.h"
#include "hooks.h"
#include "internal.h"

#define CREATE_TRACE_POINTS
#include <trace/events/migrate_offload.h>

DEFINE_STATIC_KEY_FALSE(migrate_offload_key);

unsigned int migrate_offload_verify;

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

int migrate_offload_trace_reg(void)
{
	static_branch_inc(&migrate_offload_key);
	return 0;
}

void migrate_offload_trace_unreg(void)
{
	static_branch_dec(&migrate_offload_key);
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
void migrate_part_sort(struct migrate_windows *w, struct migrate_part *part)
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
			part->outcome.folios[MO_NOT_ELIGIBLE_FOLIOS]++;
			part->outcome.cpu_bytes += bytes;
			migrate_payers_add(&w->payers, pair->src, false);
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
		if (migrate_offload_broken(MO_RULE_ORDER))
			list_move(&pair->dst->lru, &copy->dst_list);
		else
			list_move_tail(&pair->dst->lru, &copy->dst_list);
	}
	if (copy->nr_pairs)
		copy->dst_nid = folio_nid(copy->pairs[0].dst);
	part->outcome.folios[MO_OFFERED_FOLIOS] = copy->nr_pairs;
	part->outcome.offered_bytes = copy->bytes;
}

/*
 * Is the content of both folios the same?  Reads the source with care: poison
 * that an engine did not see must not bring the machine down here.
 */
static enum migrate_offload_counter
migrate_pair_verify(const struct migrate_copy_pair *pair)
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

/* Is the pair out of bounds for everybody? */
static bool migrate_pair_is_held(struct migrate_copy_pair *pair)
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
 * May the engine's copy of this pair be used?  What became of the whole batch
 * comes first, @why: MO_ENGINE_FOLIOS when each pair has a result of its own.
 * Then look for poison again: a machine check may have been taken meanwhile, and
 * the ordinary copy knows how to deal with it.
 */
enum migrate_offload_counter
migrate_pair_judge(struct migrate_copy_pair *pair,
		   enum migrate_offload_counter why)
{
	if (migrate_pair_is_held(pair))
		return MO_HELD_FOLIOS;
	if (why != MO_ENGINE_FOLIOS)
		return why;
	if (pair->result && !migrate_offload_broken(MO_RULE_RESULT))
		return MO_FAILED_FOLIOS;
	if (folio_contain_hwpoisoned_page(pair->src) &&
	    !migrate_offload_broken(MO_RULE_POISON))
		return MO_FAILED_FOLIOS;
	if (READ_ONCE(migrate_offload_verify))
		return migrate_pair_verify(pair);
	return MO_ENGINE_FOLIOS;
}

/* What an engine's answer means for the whole batch. */
enum migrate_offload_counter migrate_copy_why(int rc)
{
	if (!rc)
		return MO_ENGINE_FOLIOS;
	return rc == -EOPNOTSUPP || rc == -EBUSY ? MO_DECLINED_FOLIOS :
						   MO_FAILED_FOLIOS;
}

/*
 * Would it be in vain to offer something to the engine now?  Asked first, as to
 * look at the folios costs more.  Returns MO_ENGINE_FOLIOS if not.
 */
enum migrate_offload_counter
migrate_windows_why_not(const struct migrate_windows *w, int dst_nid)
{
	if (!w->engine || w->leaving)
		return MO_DECLINED_FOLIOS;
	if (w->by_cpu)
		return MO_TOO_SLOW_FOLIOS;
	/* Once it has begun it is up to @submit. */
	if (!w->open &&
	    !migrate_engine_wants(w->engine, dst_nid,
				  min_t(u64, w->total_bytes, SIZE_MAX)))
		return MO_DECLINED_FOLIOS;
	return MO_ENGINE_FOLIOS;
}

/*
 * The engine's time for a part begins when those before it are copied.  To submit
 * it while they are being copied took no time of its own.
 */
void migrate_part_note_engine(struct migrate_part *part)
{
	const struct migrate_times *took = &part->took;

	if (part->by_engine)
		part->outcome.engine_ns = took->copied_ns -
			(took->backlog_ns ? took->launched_ns + took->backlog_ns :
					    part->begun_ns);
}

static void migrate_part_count_to(struct migrate_offload_stats *stats,
				  const struct migrate_part *part)
{
	static const enum migrate_offload_counter why_not[] = {
		MO_NOT_ELIGIBLE_FOLIOS, MO_DECLINED_FOLIOS,
		MO_TOO_SLOW_FOLIOS, MO_FAILED_FOLIOS, MO_MISMATCHED_FOLIOS,
	};
	const struct migrate_batch_outcome *outcome = &part->outcome;
	unsigned int i, nr_cpu = 0;

	migrate_offload_count(stats, MO_BATCHES,
			      outcome->folios[MO_OFFERED_FOLIOS] ||
			      outcome->folios[MO_TOO_SLOW_FOLIOS]);
	migrate_offload_count(stats, MO_OFFERED_FOLIOS,
			      outcome->folios[MO_OFFERED_FOLIOS]);
	migrate_offload_count(stats, MO_OFFERED_BYTES, outcome->offered_bytes);
	migrate_offload_count(stats, MO_ENGINE_FOLIOS,
			      outcome->folios[MO_ENGINE_FOLIOS]);
	migrate_offload_count(stats, MO_ENGINE_BYTES, outcome->engine_bytes);
	migrate_offload_count(stats, MO_ENGINE_NS, outcome->engine_ns);
	for (i = 0; i < ARRAY_SIZE(why_not); i++) {
		migrate_offload_count(stats, why_not[i],
				      outcome->folios[why_not[i]]);
		nr_cpu += outcome->folios[why_not[i]];
	}
	/* Nobody copies these: not the engine's, and not the CPU's. */
	migrate_offload_count(stats, MO_HELD_FOLIOS,
			      outcome->folios[MO_HELD_FOLIOS]);
	migrate_offload_count(stats, MO_RETRIED_FOLIOS,
			      outcome->folios[MO_RETRIED_FOLIOS]);
	migrate_offload_count(stats, MO_CPU_FOLIOS, nr_cpu);
	migrate_offload_count(stats, MO_CPU_BYTES, outcome->cpu_bytes);
}

/* All that became of a part is known. */
void migrate_part_count(struct migrate_windows *w,
			const struct migrate_part *part)
{
	if (!w->engine)
		return;
	w->payers.engine_ns += part->outcome.engine_ns;
	migrate_part_count_to(migrate_offload_reason_stats[w->reason], part);
	migrate_part_count_to(w->engine_stats, part);
}

/*
 * Helpers have noted what they spent.  If that is more than the limit of this task
 * has left, it will be stopped, for many periods maybe: not while any folio of its
 * is out of reach.
 */
void migrate_windows_charge(struct migrate_windows *w)
{
	u64 ns = atomic64_xchg(&w->stream.helper_ns, 0);

	if (!ns)
		return;
	cfs_bandwidth_charge(current, ns);
	w->payers.helper_ns += ns;
	migrate_offload_count(migrate_offload_reason_stats[w->reason],
			      MO_HELPER_NS, ns);
	migrate_offload_count(w->engine_stats, MO_HELPER_NS, ns);
}

/* The engine is done with all that it was given: no helper notes any more. */
void migrate_windows_settle(struct migrate_windows *w)
{
	migrate_windows_charge(w);
	migrate_payers_settle(&w->payers);
}

/* Folios are left to the CPU, without a look at any of them. */
void migrate_windows_count_cpu(const struct migrate_windows *w,
			       enum migrate_offload_counter why,
			       unsigned int nr_folios, u64 bytes)
{
	struct migrate_offload_stats *stats[] = {
		migrate_offload_reason_stats[w->reason],
		w->engine_stats,
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(stats); i++) {
		migrate_offload_count(stats[i], why, nr_folios);
		migrate_offload_count(stats[i], MO_CPU_FOLIOS, nr_folios);
		migrate_offload_count(stats[i], MO_CPU_BYTES, bytes);
	}
}

/* All of a list are. */
static void migrate_windows_count_unasked(struct migrate_windows *w,
					  const struct list_head *from,
					  bool hugetlb, unsigned int nr_folios,
					  enum migrate_offload_counter why)
{
	migrate_windows_count_cpu(w, why, nr_folios, w->total_bytes);
	migrate_payers_add_list(&w->payers, from, hugetlb);
	migrate_payers_settle(&w->payers);
}

/* They will be out of reach for longer than the limit, however few they are. */
void migrate_windows_count_over(const struct migrate_windows *w,
				unsigned int nr_folios)
{
	migrate_offload_count(migrate_offload_reason_stats[w->reason],
			      MO_OVER_LIMIT_FOLIOS, nr_folios);
	migrate_offload_count(w->engine_stats, MO_OVER_LIMIT_FOLIOS, nr_folios);
}

static const char *migrate_windows_engine(const struct migrate_windows *w)
{
	return w->engine ? w->engine_stats->name : "none";
}

/* A folio is in reach again, moved or not. */
void migrate_trace_folio(struct migrate_windows *w, size_t bytes,
			 u64 unmapped_ns, bool copied, int rc)
{
	const char *reason = migrate_reason_names[w->reason];

	trace_mm_migrate_folio(reason, migrate_windows_engine(w), bytes,
			       unmapped_ns, copied, rc);
	if (rc)
		return;
	if (!w->last_ns)
		trace_mm_migrate_first_folio(reason, migrate_windows_engine(w),
					     w->now_ns - w->start_ns);
	w->last_ns = w->now_ns;
}

void migrate_trace_last(const struct migrate_windows *w)
{
	if (w->last_ns)
		trace_mm_migrate_last_folio(migrate_reason_names[w->reason],
					    migrate_windows_engine(w),
					    w->last_ns - w->start_ns);
}

void migrate_trace_part(const struct migrate_windows *w,
			const struct migrate_part *part)
{
	if (!part->nr_all)
		return;
	trace_mm_migrate_batch(migrate_reason_names[w->reason], w->mode,
			       migrate_windows_engine(w), part->nr_all,
			       part->bytes,
			       part->outcome.folios[MO_ENGINE_FOLIOS],
			       part->full_ns - part->start_ns,
			       part->flushed_ns - part->full_ns,
			       part->copied_ns - part->flushed_ns,
			       w->now_ns - part->copied_ns);
}

static bool migrate_being_traced(void)
{
	return trace_mm_migrate_batch_enabled() ||
		trace_mm_migrate_folio_enabled() ||
		trace_mm_migrate_first_folio_enabled() ||
		trace_mm_migrate_last_folio_enabled();
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

/*
 * A list begins, of @nr_folios folios and as many bytes as @w says.  If the engine
 * does not want it, nobody wants to know how long it takes, and it is not
 * @needed for another reason, @w is not on.
 *
 * The engine is not held yet: what comes first may wait for memory, or a disk.
 */
void migrate_windows_enter(struct migrate_windows *w,
			   const struct list_head *from, bool hugetlb,
			   unsigned int nr_folios, bool needed)
{
	enum migrate_offload_counter why = MO_ENGINE_FOLIOS;
	struct migrate_engine *engine;
	int idx;

	w->traced = migrate_being_traced();
	needed |= w->traced || migrate_measuring();
	needed |= w->by_cpu && migrate_limit_is_fixed();

	engine = migrate_engine_enter(w->reason, &idx);
	if (engine) {
		w->engine = engine;
		w->engine_stats = migrate_engine_stats(engine);
		w->paces = migrate_engine_paces(engine);
		w->streams = migrate_engine_streams(engine);
		why = migrate_windows_why_not(w, NUMA_NO_NODE);
	}
	migrate_engine_exit(idx);
	w->on = needed || (w->engine && why == MO_ENGINE_FOLIOS);
	if (w->engine && !w->on)
		migrate_windows_count_unasked(w, from, hugetlb, nr_folios, why);
	w->start_ns = ktime_get_ns();
}

/* A batch begins: nothing has been unmapped yet. */
void __migrate_windows_begin(struct migrate_windows *w, struct list_head *from)
{
	unsigned int nr_folios = 0;
	struct folio *folio;

	list_for_each_entry(folio, from, lru) {
		w->total_bytes += folio_size(folio);
		nr_folios++;
	}
	INIT_LIST_HEAD(&w->filling);
	INIT_LIST_HEAD(&w->flying);
	/*
	 * A list that is longer than ever has to be in windows, whoever copies.
	 * The last folio of a batch may go beyond the cap.
	 */
	w->is_long = w->total_bytes > 2 * MIGRATE_STOCK_BATCH_PAGES * PAGE_SIZE;
	migrate_windows_enter(w, from, false, nr_folios, w->is_long);
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "clock.h"
#include "tests/part_kunit.c"
#endif
