/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Batch copy of migrating folios: declarations that the files of the core
 * share.  hooks.h has those for other files of mm/.
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

/* Counters, for each reason and for each engine. */
enum migrate_offload_counter {
	MO_BATCHES,		/* offered parts, and too slow ones */
	MO_OFFERED_FOLIOS,	/* given to the engine */
	MO_OFFERED_BYTES,
	MO_ENGINE_FOLIOS,	/* the core accepted the engine's copy */
	MO_ENGINE_BYTES,
	MO_ENGINE_NS,		/* the engine's work on offered folios */
	MO_HELPER_NS,		/* CPU time of helpers */
	MO_CPU_FOLIOS,		/* copied by the CPU, for any cause below */
	MO_CPU_BYTES,
	MO_NOT_ELIGIBLE_FOLIOS,	/* the content could have changed */
	MO_DECLINED_FOLIOS,	/* the engine declined the batch */
	MO_TOO_SLOW_FOLIOS,	/* the engine is slower, or misses the limit */
	MO_FAILED_FOLIOS,	/* the engine failed */
	MO_HELD_FOLIOS,		/* not moved: a device may still write */
	MO_RETRIED_FOLIOS,	/* the engine copied, but the move failed */
	MO_MISMATCHED_FOLIOS,	/* "verify" found a wrong copy */
	MO_OVER_LIMIT_FOLIOS,	/* smaller windows would be late, too */
	NR_MO_COUNTERS,
};

struct migrate_offload_counts {
	u64 nr[NR_MO_COUNTERS];
};

/* Whether the engine's copy of a folio counts, or why it does not. */
enum migrate_verdict {
	VERDICT_ENGINE,		/* the engine's copy counts */
	VERDICT_NOT_ELIGIBLE,	/* the content could have changed */
	VERDICT_DECLINED,	/* the engine declined the batch */
	VERDICT_TOO_SLOW,	/* the engine is slower, or misses the limit */
	VERDICT_FAILED,		/* the engine or the memory failed */
	VERDICT_MISMATCHED,	/* "verify" found a wrong copy */
	VERDICT_HELD,		/* no copy counts: a device may still write */
	NR_VERDICTS,
};

/* Histograms of times, kept for each reason. */
enum migrate_hist_kind {
	MIGRATE_HIST_UNMAPPED,	/* how long a folio was unmapped */
	MIGRATE_HIST_WAITED,	/* how long a thread waited for a folio */
	NR_MIGRATE_HISTS,
};

/* The first bucket is for times below this, the last for 2^30 ns and more. */
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
 * The counters of one reason or one engine.  The core never frees a counter: an
 * engine that registers again continues to count.  Counters are per CPU,
 * because NUMA balancing may migrate a list in each page fault.
 */
struct migrate_offload_stats {
	struct kobject kobj;
	struct list_head list;
	struct migrate_offload_counts __percpu *counts;
	struct migrate_hists __percpu *hists;	/* reasons only */
	struct migrate_pace *paces;		/* engines only, by size */
	struct migrate_choice *choices;		/* engines only */
	char name[MIGRATOR_NAME_LEN];
};

struct migrate_stats_attribute {
	struct attribute attr;
	enum migrate_offload_counter counter;
	ssize_t (*show)(struct migrate_offload_stats *stats, char *buf);
};

/* Stock Linux ends a batch once it has at least this number of pages. */
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
#define MIGRATE_STOCK_BATCH_PAGES HPAGE_PMD_NR
#else
#define MIGRATE_STOCK_BATCH_PAGES 512
#endif

/* A list with windows may be longer: only some windows are unmapped at once. */
#define MIGRATE_WINDOWS_LIST_PAGES (SZ_256M >> PAGE_SHIFT)

#define MIGRATE_MAX_WINDOWS 16

/* One ID more than windows in flight, so that the next window finds one. */
#define MIGRATE_NR_WINDOW_IDS (MIGRATE_MAX_WINDOWS + 1)

/* The most pairs of a part.  On x86, a default window is one part. */
#define MIGRATE_PART_MAX_PAIRS 512

/* The results of a part. */
struct migrate_batch_outcome {
	unsigned int folios[NR_VERDICTS];
	unsigned int nr_offered;	/* given to the engine */
	unsigned int nr_retried;	/* copied by the engine, not moved */
	u64 offered_bytes;
	u64 engine_bytes;
	u64 engine_ns;
	u64 cpu_bytes;
};

struct migrate_part {
	struct list_head node;
	struct list_head rest_src;	/* pairs that the CPU copies */
	struct list_head rest_dst;
	struct migrate_batch_outcome outcome;
	struct migrate_times took;
	struct migrate_times before;	/* finished parts of the window */
	size_t bytes;
	u64 start_ns;			/* before the first folio is unmapped */
	u64 start_task_ns;		/* start_ns by the task's clock */
	u64 full_ns;			/* when the window was unmapped */
	u64 flushed_ns;
	u64 begun_ns;			/* when offered, by the task's clock */
	u64 launched_stood_ns;		/* how long the clock stood at launch */
	u64 copied_ns;
	bool by_engine;
	unsigned int nr_all;		/* folios of the part */
	unsigned int nr_open;		/* folios that are still unmapped */
	unsigned int nr_retry;		/* open folios whose move failed */
	unsigned int nr_collected;	/* pairs judged after their report */
	unsigned int order;		/* of the first folio */
	unsigned int window;		/* the ID of the part's window */
	int pass;			/* retries of failed moves */
	/* The first nr_pairs pairs are the engine's, the others the CPU's. */
	struct migrate_copy_batch copy;
};

struct migrate_engine;
struct migrate_pages_stats;

/* The use that one list makes of an engine: see session.c. */
struct migrate_session {
	bool on;			/* the list needs a session */
	bool held;			/* the engine cannot unregister */
	bool open;			/* the stream is open */
	bool streams;			/* the engine has streams */
	bool leaving;			/* give nothing more to the engine */
	bool by_cpu;			/* the CPU copies the rest of the list */
	bool traced;

	/* The caller sets these. */
	enum migrate_mode mode;
	int reason;
	u64 total_bytes;		/* a hugetlb list may exceed 4 GiB */

	int srcu_idx;
	struct migrate_engine *engine;	/* NULL: none; valid while held */
	struct migrate_offload_stats *engine_stats;	/* never freed */
	struct migrate_pace *paces;	/* NULL: the engine is "cpu" */
	struct migrate_copy_stream stream;
	struct migrate_payers payers;
	size_t flying_bytes;		/* submitted, but not collected */

	u64 now_ns;			/* these three: ktime_get_ns() */
	u64 start_ns;
	u64 last_ns;			/* when the last folio moved */

	u64 task_ns;			/* now, by the task's clock */
	u64 progress_ns;		/* last collect, or submit while idle */
};

/*
 * The windows of one list.  The core allocates them from a pool: reclaim and
 * compaction may nest, and leave little stack.
 */
struct migrate_windows {
	struct migrate_session session;
	bool is_long;			/* longer than any stock list */
	bool declined;			/* the engine declined the last part */
	bool held_back;			/* the core delayed this window */

	/* The arguments of the call. */
	int nr_pass;
	free_folio_t *put_new_folio;
	unsigned long private;
	struct list_head *ret_folios;
	struct migrate_pages_stats *stats;
	struct migrate_run *run;

	/* Indices and sizes of moved pairs that the run has not mapped yet. */
	unsigned short moved[MIGRATE_RUN_MAX];
	unsigned int moved_bytes[MIGRATE_RUN_MAX];
	unsigned int nr_moved;

	int nr_failed;
	struct migrate_plan plan;	/* of the window being filled */

	struct list_head filling;	/* parts that are not flushed yet */
	struct list_head flying;	/* parts that are flushed */
	const struct folio *admitted;	/* about to be unmapped; may be freed */
	struct migrate_part *part;	/* for the admitted folio */
	unsigned int fill_folios;
	unsigned long fill_pages;
	unsigned int order;		/* of the window's first folio */
	unsigned int window;		/* the ID of the window being filled */
	unsigned int nr_windows;	/* windows that have parts */
	unsigned int nr_parts_of[MIGRATE_NR_WINDOW_IDS];
	u64 submit_ns;			/* time to submit the last window */
	u64 unmap_ns;			/* when the last unmapping began */
	u64 copied_ns;			/* last copy of a part, by task_ns */
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
/* Engines never copy failing memory: only migrate_copy_folio() reads it. */
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
bool migrate_offload_has_tags(struct folio *folio);
bool migrate_offload_mapping_ok(struct address_space *mapping,
				struct folio *src);
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
void migrate_offload_note_unmapped(int reason, u64 ns, unsigned int nr);
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
