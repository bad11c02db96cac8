/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Batch copy of migrating folios: what the files of the core share.  What other
 * files of mm/ call is in hooks.h.
 */
#ifndef _MM_MIGRATE_OFFLOAD_INTERNAL_H
#define _MM_MIGRATE_OFFLOAD_INTERNAL_H

#include <linux/kobject.h>
#include <linux/ktime.h>
#include <linux/migrate.h>
#include <linux/migrate_copy_offload.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/sizes.h>
#include <linux/swap.h>

#include "../migrate_run/run.h"
#include "break_rules.h"
#include "choice.h"
#include "limit.h"
#include "payers.h"

/* What is counted, for each reason and for each engine. */
enum migrate_offload_counter {
	MO_BATCHES,		/* with a folio offered, or too slow for it */
	MO_OFFERED_FOLIOS,	/* handed to an engine */
	MO_OFFERED_BYTES,
	MO_ENGINE_FOLIOS,	/* copied by it, and its copy accepted */
	MO_ENGINE_BYTES,
	MO_ENGINE_NS,		/* it was at them */
	MO_HELPER_NS,		/* CPU time of those who helped */
	MO_CPU_FOLIOS,		/* left to the CPU, for any cause below */
	MO_CPU_BYTES,
	MO_NOT_ELIGIBLE_FOLIOS,	/* content could have changed */
	MO_DECLINED_FOLIOS,	/* the engine did not want the batch */
	MO_TOO_SLOW_FOLIOS,	/* the engine; the CPU is sooner */
	MO_FAILED_FOLIOS,	/* the engine failed */
	MO_HELD_FOLIOS,		/* a device could not be stopped: not moved */
	MO_RETRIED_FOLIOS,	/* copied by the engine, but the move failed */
	MO_MISMATCHED_FOLIOS,	/* verify found a wrong copy */
	MO_OVER_LIMIT_FOLIOS,	/* the limit cannot be met */
	NR_MO_COUNTERS,
};

struct migrate_offload_counts {
	u64 nr[NR_MO_COUNTERS];
};

/* Whose copy of a folio is used, and why it is the CPU's if it is. */
enum migrate_verdict {
	VERDICT_ENGINE,		/* the engine's */
	VERDICT_NOT_ELIGIBLE,	/* its content could have changed */
	VERDICT_DECLINED,	/* the engine did not want the batch */
	VERDICT_TOO_SLOW,	/* the CPU is sooner than the engine */
	VERDICT_FAILED,		/* the engine failed */
	VERDICT_MISMATCHED,	/* a comparison found a wrong copy */
	VERDICT_HELD,		/* nobody's: a device may still write to it */
	NR_VERDICTS,
};

/* Histograms of times, kept for each reason. */
enum migrate_hist_kind {
	MIGRATE_HIST_UNMAPPED,	/* a folio was out of reach */
	MIGRATE_HIST_WAITED,	/* a thread waited for one */
	NR_MIGRATE_HISTS,
};

/* The first bucket is for less than this, the last for a second and more. */
#define MIGRATE_HIST_MIN_NS	1024
#define MIGRATE_HIST_SUB_SHIFT	3
#define MIGRATE_HIST_OCTAVES	20
#define MIGRATE_HIST_BUCKETS \
	(1 + (MIGRATE_HIST_OCTAVES << MIGRATE_HIST_SUB_SHIFT) + 1)

struct migrate_hist {
	u64 buckets[MIGRATE_HIST_BUCKETS];
	u64 sum_ns;
	u64 max_ns;
};

struct migrate_hists {
	struct migrate_hist of[NR_MIGRATE_HISTS];
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
	struct migrate_hists __percpu *hists;	/* reasons only */
	struct migrate_pace *paces;		/* engines only, by order */
	struct migrate_choice *choices;		/* engines only */
	char name[MIGRATOR_NAME_LEN];
};

struct migrate_stats_attribute {
	struct attribute attr;
	enum migrate_offload_counter counter;
	ssize_t (*show)(struct migrate_offload_stats *stats, char *buf);
};

/* What migrate_pages() does without any engine: pages of one batch. */
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
#define MIGRATE_STOCK_BATCH_PAGES HPAGE_PMD_NR
#else
#define MIGRATE_STOCK_BATCH_PAGES 512
#endif

/* What it hands over at once when windows keep most of it in reach: 256M. */
#define MIGRATE_WINDOWS_LIST_PAGES (SZ_256M >> PAGE_SHIFT)

#define MIGRATE_MAX_WINDOWS 16

/* One more than can be under way: there is always a free one. */
#define MIGRATE_NR_WINDOW_IDS (MIGRATE_MAX_WINDOWS + 1)

/* Of a part of a window, which an engine sees at once.  On x86, of a whole one. */
#define MIGRATE_PART_MAX_PAIRS 512

/* What became of the folios of a part. */
struct migrate_batch_outcome {
	unsigned int folios[NR_VERDICTS];
	unsigned int nr_offered;	/* to the engine */
	unsigned int nr_retried;	/* copied by it, but the move failed */
	u64 offered_bytes;
	u64 engine_bytes;
	u64 engine_ns;
	u64 cpu_bytes;
};

struct migrate_part {
	struct list_head node;
	struct list_head rest_src;	/* not for the engine */
	struct list_head rest_dst;
	struct migrate_batch_outcome outcome;
	struct migrate_times took;
	struct migrate_times before;	/* parts of its window that are over */
	size_t bytes;
	u64 start_ns;			/* its first folio is to be unmapped */
	u64 start_task_ns;		/* then, by the clock of the task */
	u64 full_ns;			/* all are unmapped */
	u64 flushed_ns;
	u64 begun_ns;			/* it is offered, by the clock of the task */
	u64 launched_stood_ns;		/* by then that clock had stood */
	u64 copied_ns;
	bool by_engine;
	unsigned int nr_all;		/* folios in it */
	unsigned int nr_open;		/* of them, out of reach */
	unsigned int nr_retry;		/* of those, could not be moved once */
	unsigned int nr_collected;	/* the engine's, seen to be done */
	unsigned int order;		/* of its first folio */
	unsigned int window;		/* which it belongs to */
	int pass;			/* attempts to move them, all at once */
	/* Its first nr_pairs are the engine's, the others behind them are not. */
	struct migrate_copy_batch copy;
};

struct migrate_engine;
struct migrate_pages_stats;

/* The use that one list of migrating folios makes of an engine: see session.c. */
struct migrate_session {
	bool on;			/* the list needs a session */
	bool held;			/* the engine cannot unregister */
	bool open;			/* the stream */
	bool streams;			/* the engine has streams */
	bool leaving;			/* give nothing more to the engine */
	bool by_cpu;			/* because the CPU is faster than the engine */
	bool traced;

	/* The caller sets these. */
	enum migrate_mode mode;
	int reason;
	u64 total_bytes;		/* hugetlb alone may have more than 4 GiB */

	int srcu_idx;
	struct migrate_engine *engine;	/* NULL: the CPU copies.  Gone if not held */
	struct migrate_offload_stats *engine_stats;	/* never gone */
	struct migrate_pace *paces;	/* of the engine, unless that is the CPU */
	struct migrate_copy_stream stream;
	struct migrate_payers payers;
	size_t flying_bytes;		/* the engine copies them, or will */

	u64 now_ns;			/* by ktime_get_ns(), as are these two: */
	u64 start_ns;
	u64 last_ns;			/* the last folio was moved */

	u64 task_ns;			/* now, by the clock of the task */
	u64 progress_ns;		/* the engine's last sign of life, likewise */
};

/*
 * The folios that one call of migrate_pages_batch() has unmapped.  migrate_pages()
 * allocates it: reclaim and compaction, which nest, have little stack left.
 */
struct migrate_windows {
	struct migrate_session session;
	bool is_long;			/* the list exceeds a batch of stock Linux */
	bool declined;			/* the engine declined the last window */
	bool held_back;			/* the window being filled was */

	/* The arguments of the call. */
	int nr_pass;
	free_folio_t *put_new_folio;
	unsigned long private;
	struct list_head *ret_folios;
	struct migrate_pages_stats *stats;
	struct migrate_run *run;

	/* Pairs of one part that the run has moved, and not mapped yet. */
	unsigned short moved[MIGRATE_RUN_MAX];
	unsigned int nr_moved;

	int nr_failed;
	struct migrate_plan plan;	/* for the window that is being filled */

	struct list_head filling;	/* parts that are not flushed yet */
	struct list_head flying;	/* parts that are */
	const struct folio *admitted;	/* to be unmapped; may be gone */
	struct migrate_part *part;	/* for that folio */
	unsigned int fill_folios;
	unsigned long fill_pages;
	unsigned int order;		/* of the first of them */
	unsigned int window;		/* the number that it will have */
	unsigned int nr_windows;	/* that have parts */
	unsigned int nr_parts_of[MIGRATE_NR_WINDOW_IDS];
	u64 submit_ns;			/* to give the last window to the engine */
	u64 unmap_ns;			/* the last folio was admitted then */
	u64 copied_ns;			/* a part was copied, by the clock of the task */
};

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD
/* mm/migrate_offload/stats.c */
extern struct migrate_offload_stats *migrate_offload_reason_stats[MR_TYPES];
struct migrate_offload_stats *migrate_offload_engine_stats(const char *name);
int migrate_stats_add_reasons(struct kobject *parent);
int migrate_stats_add_engines(struct kobject *parent);

static inline void migrate_offload_count(struct migrate_offload_stats *stats,
					 enum migrate_offload_counter what,
					 u64 nr)
{
	if (nr)
		this_cpu_add(stats->counts->nr[what], nr);
}

/* mm/migrate_offload/call.c */
/*
 * A folio that migrates because its memory fails is read once, with care, by
 * the CPU: never offloaded.
 */
#define MIGRATE_OFFLOAD_REASONS_ALL \
	(GENMASK(MR_TYPES - 1, 0) & ~BIT(MR_MEMORY_FAILURE))

struct migrate_offload_stats *
migrate_engine_stats(const struct migrate_engine *engine);
struct migrate_pace *migrate_engine_paces(const struct migrate_engine *engine);
struct migrate_engine *migrate_engine_enter(int reason, int *idx);
void migrate_engine_exit(int idx);
bool migrate_engine_wants(const struct migrate_engine *engine, int dst_nid,
			  size_t bytes);
bool migrate_engine_stays(const struct migrate_engine *engine, int reason);
bool migrate_engine_streams(const struct migrate_engine *engine);
int migrate_engine_open(struct migrate_engine *engine,
			struct migrate_copy_stream *stream);
int migrate_engine_submit(struct migrate_engine *engine,
			  struct migrate_copy_stream *stream,
			  struct migrate_copy_batch *batch);
void migrate_engine_reap(struct migrate_engine *engine,
			 struct migrate_copy_stream *stream, u64 wait_ns);
void migrate_engine_close(struct migrate_engine *engine,
			  struct migrate_copy_stream *stream);

/* mm/migrate_offload/registry.c */
int migrate_engine_select(const char *name);
int migrate_engine_select_for(int reason, const char *name);
int migrate_engine_name(char *buf);
int migrate_engine_name_for(int reason, char *buf);
int migrate_engine_names(char *buf);

/* mm/migrate_offload/eligible.c */
bool migrate_offload_eligible(struct folio *src, struct folio *dst);

/* mm/migrate_offload/lib.c */
unsigned long migrate_copy_nr_held(void);
void migrate_copy_release(struct folio *src, struct folio *dst);
bool migrate_on_any_cpu(void);

/* mm/migrate_offload/hist.c */
extern unsigned int migrate_measure;
extern const struct attribute_group migrate_hist_group;

unsigned int migrate_hist_bucket(u64 ns);
u64 migrate_hist_lower_ns(unsigned int bucket);
void migrate_offload_note_unmapped(int reason, u64 ns);
void migrate_offload_note_reason(const struct folio *folio, int reason);
void migrate_offload_forget_reason(const struct folio *folio);
bool migrate_measuring(void);
void migrate_measure_set(unsigned int on);

/* mm/migrate_offload/move.c */
void migrate_part_retry(struct migrate_windows *w, struct migrate_part *part);
void migrate_part_judge(struct migrate_session *s, struct migrate_part *part,
			struct migrate_copy_pair *pair,
			enum migrate_verdict why);
void migrate_part_move_range(struct migrate_windows *w,
			     struct migrate_part *part,
			     unsigned int from, unsigned int to);
void migrate_part_collect(struct migrate_windows *w, struct migrate_part *part);
void migrate_windows_move_now(struct migrate_windows *w, struct folio *src,
			      struct folio *dst);

/* mm/migrate_offload/session.c */
void migrate_session_begin(struct migrate_session *s,
			   const struct list_head *from, bool hugetlb,
			   unsigned int nr_folios, bool needed);
enum migrate_verdict
migrate_session_why_not(const struct migrate_session *s, int dst_nid);
bool migrate_session_hold(struct migrate_session *s);
void migrate_session_release(struct migrate_session *s);
enum migrate_verdict
migrate_part_submit(struct migrate_session *s, struct migrate_part *part);
void migrate_part_leave(struct migrate_session *s, struct migrate_part *part,
			enum migrate_verdict why);

/* mm/migrate_offload/window.c */
void migrate_windows_unmapping(struct migrate_windows *w);

/* mm/migrate_run/ptes.c */
extern struct kobj_attribute migrate_batch_ptes_attr;

/* mm/migrate_offload/part.c */
struct migrate_windows *migrate_windows_alloc(void);
int migrate_pools_init(void);
struct migrate_part *migrate_part_alloc(void);
void migrate_part_free(struct migrate_part *part);
void migrate_part_init(struct migrate_part *part);
void migrate_part_add(struct migrate_part *part, struct folio *src,
		      struct folio *dst, u64 unmapped_ns);
void migrate_part_sort(struct migrate_session *s, struct migrate_part *part);

/* mm/migrate_offload/verdict.c */
extern unsigned int migrate_offload_verify;
enum migrate_verdict migrate_pair_judge(struct migrate_copy_pair *pair,
					enum migrate_verdict why);
enum migrate_verdict migrate_copy_why(int rc);

/* mm/migrate_offload/account.c */
bool migrate_being_traced(void);
void migrate_part_note_engine(struct migrate_part *part);
void migrate_part_count(struct migrate_session *s,
			const struct migrate_part *part);
void migrate_session_charge(struct migrate_session *s);
void migrate_session_settle(struct migrate_session *s);
void migrate_session_count_cpu(const struct migrate_session *s,
			       enum migrate_verdict why,
			       unsigned int nr_folios, u64 bytes);
void migrate_session_count_unasked(struct migrate_session *s,
				   const struct list_head *from,
				   bool hugetlb, unsigned int nr_folios,
				   enum migrate_verdict why);
void migrate_session_count_over(const struct migrate_session *s,
				unsigned int nr_folios);
void migrate_trace_folio(struct migrate_session *s, size_t bytes,
			 u64 unmapped_ns, bool copied, int rc);
void migrate_trace_last(const struct migrate_session *s);
void migrate_trace_part(const struct migrate_session *s,
			const struct migrate_part *part);
#endif /* CONFIG_MIGRATION_COPY_OFFLOAD */

#endif /* _MM_MIGRATE_OFFLOAD_INTERNAL_H */
