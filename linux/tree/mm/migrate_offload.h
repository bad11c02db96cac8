/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Batch copy of migrating folios: what migrate_pages_batch() calls, and what
 * the files of the core share.
 */
#ifndef _MM_MIGRATE_OFFLOAD_H
#define _MM_MIGRATE_OFFLOAD_H

#include <linux/jump_label.h>
#include <linux/kobject.h>
#include <linux/migrate.h>
#include <linux/migrate_copy_offload.h>
#include <linux/mm.h>
#include <linux/percpu.h>

/* What is counted, for each reason and for each engine. */
enum migrate_offload_counter {
	MO_BATCHES,		/* batches in which a folio was offered */
	MO_OFFERED_FOLIOS,	/* handed to an engine */
	MO_OFFERED_BYTES,
	MO_ENGINE_FOLIOS,	/* copied by it, and its copy accepted */
	MO_ENGINE_BYTES,
	MO_CPU_FOLIOS,		/* left to the CPU, for any cause below */
	MO_CPU_BYTES,
	MO_NOT_ELIGIBLE_FOLIOS,	/* content could have changed */
	MO_DECLINED_FOLIOS,	/* the engine did not want the batch */
	MO_TOO_SMALL_FOLIOS,	/* the batch was below min_batch_bytes */
	MO_FAILED_FOLIOS,	/* the engine failed */
	MO_HELD_FOLIOS,		/* a device could not be stopped: not moved */
	MO_RETRIED_FOLIOS,	/* copied by the engine, but the move failed */
	MO_MISMATCHED_FOLIOS,	/* verify found a wrong copy */
	NR_MO_COUNTERS,
};

struct migrate_offload_counts {
	u64 nr[NR_MO_COUNTERS];
};

/*
 * The counters of one reason or one engine.  Never freed: an engine that comes
 * back finds what it had counted before, so that no counter ever shrinks.
 * Counted per CPU: with NUMA balancing each fault may be a batch.
 */
struct migrate_offload_stats {
	struct kobject kobj;
	struct list_head list;
	struct migrate_offload_counts __percpu *counts;
	char name[MIGRATOR_NAME_LEN];
};

/* Where the content of a folio is when its turn to be moved comes. */
enum migrate_content {
	MIGRATE_CONTENT_SRC,	/* in the source: copy it, as ever */
	MIGRATE_CONTENT_DST,	/* in the destination already */
	MIGRATE_CONTENT_HELD,	/* a device may write to the destination */
};

/* The course of one batch.  Lives on the stack of migrate_pages_batch(). */
struct migrate_offload_ctx {
	struct migrate_offload_stats *engine;	/* NULL: none was asked */
	u64 start_ns;				/* these: only when traced */
	u64 unmapped_ns;
	u64 flushed_ns;
	u64 copied_ns;
	u64 bytes;
	unsigned int nr_folios;
	unsigned int nr_engine;			/* of them, copied by engine */
	unsigned int nr_copied;			/* of those, not moved yet */
	unsigned int nr_held;			/* behind them, not to be moved */
	enum migrate_mode mode;
	int reason;
	bool begun;
	bool copy_phase_done;
	bool timed;
	bool moved_first;
};

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD

/* On while an engine is active, and while somebody traces batches. */
DECLARE_STATIC_KEY_FALSE(migrate_offload_key);

void __migrate_offload_begin(struct migrate_offload_ctx *ctx,
			     enum migrate_mode mode, int reason);
void __migrate_offload_unmapped(struct migrate_offload_ctx *ctx);
void __migrate_offload_copy(struct migrate_offload_ctx *ctx,
			    struct list_head *src_folios,
			    struct list_head *dst_folios);
void __migrate_offload_moved(struct migrate_offload_ctx *ctx,
			     enum migrate_content content, int rc);
void __migrate_offload_end(struct migrate_offload_ctx *ctx);

#define migrate_offload_on() static_branch_unlikely(&migrate_offload_key)
#else
#define migrate_offload_on() false

static inline void __migrate_offload_begin(struct migrate_offload_ctx *ctx,
					   enum migrate_mode mode, int reason)
{
}

static inline void __migrate_offload_unmapped(struct migrate_offload_ctx *ctx)
{
}

static inline void __migrate_offload_copy(struct migrate_offload_ctx *ctx,
					  struct list_head *src_folios,
					  struct list_head *dst_folios)
{
}

static inline void __migrate_offload_moved(struct migrate_offload_ctx *ctx,
					   enum migrate_content content,
					   int rc)
{
}

static inline void __migrate_offload_end(struct migrate_offload_ctx *ctx)
{
}
#endif /* CONFIG_MIGRATION_COPY_OFFLOAD */

/*
 * Switches that break one safety rule each, so that a test can show that it
 * would notice.  Constant false in every kernel but a test kernel.
 */
enum migrate_offload_rule {
	MO_RULE_REFCOUNT,	/* an excess reference is not eligible */
	MO_RULE_RETRY,		/* a copy is good for one attempt */
	MO_RULE_BUFFERS,	/* a folio with buffers is not eligible */
	MO_RULE_MAPPING,	/* nor one with a callback of its own */
	MO_RULE_POISON,		/* poison ends as in the ordinary path */
	MO_RULE_RESULT,		/* the result of each folio counts */
	MO_RULE_RESCHED,	/* copying gives way to others */
	MO_RULE_ORDER,		/* both lists keep the same order */
	MO_RULE_HOLD,		/* nobody writes where a device still may */
	NR_MO_RULES,
};

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_DEBUG
bool migrate_offload_broken(enum migrate_offload_rule rule);
bool migrate_offload_bad_page(struct page *page);
int migrate_offload_mc_copy(struct folio *dst, struct folio *src);
bool migrate_offload_unsafe(struct address_space *mapping, struct folio *src);
int migrate_offload_move_unsafe(struct address_space *mapping,
				struct folio *dst, struct folio *src,
				enum migrate_mode mode);
#else
static inline bool migrate_offload_broken(enum migrate_offload_rule rule)
{
	return false;
}

static inline bool migrate_offload_bad_page(struct page *page)
{
	return false;
}

static inline int migrate_offload_mc_copy(struct folio *dst, struct folio *src)
{
	return folio_mc_copy(dst, src);
}

static inline bool migrate_offload_unsafe(struct address_space *mapping,
					  struct folio *src)
{
	return false;
}

static inline int migrate_offload_move_unsafe(struct address_space *mapping,
					      struct folio *dst,
					      struct folio *src,
					      enum migrate_mode mode)
{
	return -EAGAIN;
}
#endif /* CONFIG_MIGRATION_COPY_OFFLOAD_DEBUG */

/* A batch starts: nothing has been unmapped yet. */
static inline void migrate_offload_begin(struct migrate_offload_ctx *ctx,
					 enum migrate_mode mode, int reason)
{
	if (migrate_offload_on())
		__migrate_offload_begin(ctx, mode, reason);
}

/* All folios are unmapped; their TLB entries have not been flushed yet. */
static inline void migrate_offload_unmapped(struct migrate_offload_ctx *ctx)
{
	if (migrate_offload_on())
		__migrate_offload_unmapped(ctx);
}

/*
 * Let the active engine copy what it may.  Pairs that were copied come to the
 * head of both lists, those that are held behind them; migrate_offload_take()
 * will say how many they are.
 */
static inline void migrate_offload_copy(struct migrate_offload_ctx *ctx,
					struct list_head *src_folios,
					struct list_head *dst_folios)
{
	if (migrate_offload_on())
		__migrate_offload_copy(ctx, src_folios, dst_folios);
}

/*
 * Where is the content of the next pair?  To be asked once for each pair that
 * is moved, in the order of the lists.  In the first pass over the lists the
 * answer is "copied" for the leading pairs and "held" for those behind them;
 * after that it is always "in the source".  A pair whose move fails is met
 * again only after all leading pairs have been taken, so what the engine copied
 * is trusted for one attempt; and a held pair is not met again.
 *
 * This does not look at the static key.  If offloading is switched off and on
 * again while the lists are being worked through, the count must still belong
 * to the pairs that it was made for.
 */
static inline enum migrate_content
migrate_offload_take(struct migrate_offload_ctx *ctx)
{
	if (ctx->nr_copied) {
		ctx->nr_copied--;
		return MIGRATE_CONTENT_DST;
	}
	if (ctx->nr_held) {
		ctx->nr_held--;
		return MIGRATE_CONTENT_HELD;
	}
	if (migrate_offload_broken(MO_RULE_RETRY) && ctx->nr_engine &&
	    ctx->nr_engine == ctx->nr_folios)
		return MIGRATE_CONTENT_DST;
	return MIGRATE_CONTENT_SRC;
}

/* One pair was moved, or could not be. */
static inline void migrate_offload_moved(struct migrate_offload_ctx *ctx,
					 enum migrate_content content, int rc)
{
	if (migrate_offload_on())
		__migrate_offload_moved(ctx, content, rc);
}

/* The batch is over. */
static inline void migrate_offload_end(struct migrate_offload_ctx *ctx)
{
	if (migrate_offload_on())
		__migrate_offload_end(ctx);
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD
/* mm/migrate_offload_sysfs.c */
extern unsigned long migrate_offload_reasons;
extern unsigned long migrate_offload_min_batch_bytes;
extern bool migrate_offload_verify;
extern struct migrate_offload_stats *migrate_offload_reason_stats[MR_TYPES];

int migrate_offload_parse_reasons(const char *text, unsigned long *reasons);
struct migrate_offload_stats *migrate_offload_engine_stats(const char *name);

static inline void migrate_offload_count(struct migrate_offload_stats *stats,
					 enum migrate_offload_counter what,
					 u64 nr)
{
	if (nr)
		this_cpu_add(stats->counts->nr[what], nr);
}

/* mm/migrate_offload_engine.c */
struct migrate_engine;
struct migrate_offload_stats *
migrate_engine_stats(const struct migrate_engine *engine);
struct migrate_engine *migrate_engine_enter(int *idx);
void migrate_engine_exit(int idx);
int migrate_engine_copy(struct migrate_copy_batch *batch);
bool migrate_engine_wants(const struct migrate_engine *engine, int dst_nid,
			  size_t bytes);
int migrate_engine_select(const char *name);
int migrate_engine_name(char *buf);
int migrate_engine_names(char *buf);

/* mm/migrate_offload_eligible.c */
bool migrate_offload_eligible(struct folio *src, struct folio *dst);

/* mm/migrate_offload_helpers.c */
unsigned long migrate_copy_nr_held(void);
void migrate_copy_release(struct folio *src, struct folio *dst);

/* mm/migrate_offload.c */
struct migrate_copy_batch *migrate_batch_alloc(void);
void migrate_batch_free(struct migrate_copy_batch *batch);
int migrate_batch_pool_init(void);
#endif /* CONFIG_MIGRATION_COPY_OFFLOAD */

#endif /* _MM_MIGRATE_OFFLOAD_H */
