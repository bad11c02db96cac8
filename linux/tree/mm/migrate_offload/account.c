// SPDX-License-Identifier: GPL-2.0-only
/*
 * Account for a migration: counters, tracepoints, and the CPU time of helpers.
 */

#include <linux/atomic.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/bandwidth.h>

#include "../internal.h"
#include "hooks.h"
#include "internal.h"

#define CREATE_TRACE_POINTS
#include <trace/events/migrate_offload.h>

int migrate_offload_trace_reg(void)
{
	static_branch_inc(&migrate_offload_key);
	return 0;
}

void migrate_offload_trace_unreg(void)
{
	static_branch_dec(&migrate_offload_key);
}

/*
 * The engine's time for a part begins at submit.  If the engine is still busy
 * with earlier parts, the time begins when the engine has copied those parts.
 */
void migrate_part_note_engine(struct migrate_part *part)
{
	const struct migrate_times *took = &part->took;

	if (part->by_engine)
		part->outcome.engine_ns = took->copied_ns -
			(took->backlog_ns ? took->launched_ns + took->backlog_ns :
					    part->begun_ns);
}

static const enum migrate_offload_counter counter_of[NR_VERDICTS] = {
	[VERDICT_ENGINE] = MO_ENGINE_FOLIOS,
	[VERDICT_NOT_ELIGIBLE] = MO_NOT_ELIGIBLE_FOLIOS,
	[VERDICT_DECLINED] = MO_DECLINED_FOLIOS,
	[VERDICT_TOO_SLOW] = MO_TOO_SLOW_FOLIOS,
	[VERDICT_FAILED] = MO_FAILED_FOLIOS,
	[VERDICT_MISMATCHED] = MO_MISMATCHED_FOLIOS,
	[VERDICT_HELD] = MO_HELD_FOLIOS,
};

static bool is_by_cpu(enum migrate_verdict verdict)
{
	return verdict != VERDICT_ENGINE && verdict != VERDICT_HELD;
}

static void migrate_part_count_to(struct migrate_offload_stats *stats,
				  const struct migrate_part *part)
{
	const struct migrate_batch_outcome *outcome = &part->outcome;
	enum migrate_verdict verdict;
	unsigned int nr_cpu = 0;

	migrate_offload_count(stats, MO_BATCHES,
			      outcome->nr_offered ||
			      outcome->folios[VERDICT_TOO_SLOW]);
	migrate_offload_count(stats, MO_OFFERED_FOLIOS, outcome->nr_offered);
	migrate_offload_count(stats, MO_OFFERED_BYTES, outcome->offered_bytes);
	migrate_offload_count(stats, MO_ENGINE_BYTES, outcome->engine_bytes);
	migrate_offload_count(stats, MO_ENGINE_NS, outcome->engine_ns);
	for (verdict = 0; verdict < NR_VERDICTS; verdict++) {
		migrate_offload_count(stats, counter_of[verdict],
				      outcome->folios[verdict]);
		if (is_by_cpu(verdict))
			nr_cpu += outcome->folios[verdict];
	}
	migrate_offload_count(stats, MO_RETRIED_FOLIOS, outcome->nr_retried);
	migrate_offload_count(stats, MO_CPU_FOLIOS, nr_cpu);
	migrate_offload_count(stats, MO_CPU_BYTES, outcome->cpu_bytes);
}

void migrate_part_count(struct migrate_session *s,
			const struct migrate_part *part)
{
	if (!s->engine)
		return;
	s->payers.engine_ns += part->outcome.engine_ns;
	migrate_part_count_to(migrate_offload_reason_stats[s->reason], part);
	migrate_part_count_to(s->engine_stats, part);
}

/*
 * Charge the CPU time of helpers to the task's cgroup (cpu.max).  The charge
 * may throttle the task for several periods, so no folio may be unmapped here.
 */
void migrate_session_charge(struct migrate_session *s)
{
	u64 ns = atomic64_xchg(&s->stream.helper_ns, 0);

	if (!ns)
		return;
	cfs_bandwidth_charge(current, ns);
	s->payers.helper_ns += ns;
	migrate_offload_count(migrate_offload_reason_stats[s->reason],
			      MO_HELPER_NS, ns);
	migrate_offload_count(s->engine_stats, MO_HELPER_NS, ns);
}

/*
 * Charge the last CPU time of helpers, and count the list in memory.stat.  The
 * engine has completed all batches, so helpers add no more time.
 */
void migrate_session_settle(struct migrate_session *s)
{
	migrate_session_charge(s);
	migrate_payers_settle(&s->payers);
}

/*
 * Count folios that the CPU will copy without a part.  migrate_part_count()
 * counts the folios of parts.
 */
void migrate_session_count_cpu(const struct migrate_session *s,
			       enum migrate_verdict why,
			       unsigned int nr_folios, u64 bytes)
{
	struct migrate_offload_stats *stats[] = {
		migrate_offload_reason_stats[s->reason],
		s->engine_stats,
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(stats); i++) {
		migrate_offload_count(stats[i], counter_of[why], nr_folios);
		migrate_offload_count(stats[i], MO_CPU_FOLIOS, nr_folios);
		migrate_offload_count(stats[i], MO_CPU_BYTES, bytes);
	}
}

/* Count a whole list that the core does not offer to the engine. */
void migrate_session_count_unasked(struct migrate_session *s,
				   const struct list_head *from,
				   bool hugetlb, unsigned int nr_folios,
				   enum migrate_verdict why)
{
	migrate_session_count_cpu(s, why, nr_folios, s->total_bytes);
	migrate_payers_add_list(&s->payers, from, hugetlb);
	migrate_payers_settle(&s->payers);
}

/*
 * Count folios of a window that would exceed the time limit at any size, or a
 * hugetlb folio that would.
 */
void migrate_session_count_over(const struct migrate_session *s,
				unsigned int nr_folios)
{
	migrate_offload_count(migrate_offload_reason_stats[s->reason],
			      MO_OVER_LIMIT_FOLIOS, nr_folios);
	migrate_offload_count(s->engine_stats, MO_OVER_LIMIT_FOLIOS, nr_folios);
}

static const char *migrate_session_engine(const struct migrate_session *s)
{
	return s->engine ? s->engine_stats->name : "none";
}

/* Called when a folio is mapped again, at its source or its destination. */
void migrate_trace_folio(struct migrate_session *s, size_t bytes,
			 u64 unmapped_ns, bool copied, int rc)
{
	const char *reason = migrate_reason_names[s->reason];

	trace_mm_migrate_folio(reason, migrate_session_engine(s), bytes,
			       unmapped_ns, copied, rc);
	if (rc)
		return;
	if (!s->last_ns)
		trace_mm_migrate_first_folio(reason, migrate_session_engine(s),
					     s->now_ns - s->start_ns);
	s->last_ns = s->now_ns;
}

void migrate_trace_last(const struct migrate_session *s)
{
	if (s->last_ns)
		trace_mm_migrate_last_folio(migrate_reason_names[s->reason],
					    migrate_session_engine(s),
					    s->last_ns - s->start_ns);
}

void migrate_trace_part(const struct migrate_session *s,
			const struct migrate_part *part)
{
	if (!part->nr_all)
		return;
	trace_mm_migrate_batch(migrate_reason_names[s->reason], s->mode,
			       migrate_session_engine(s), part->nr_all,
			       part->bytes,
			       part->outcome.folios[VERDICT_ENGINE],
			       part->full_ns - part->start_ns,
			       part->flushed_ns - part->full_ns,
			       part->copied_ns - part->flushed_ns,
			       s->now_ns - part->copied_ns);
}

bool migrate_being_traced(void)
{
	return trace_mm_migrate_batch_enabled() ||
		trace_mm_migrate_folio_enabled() ||
		trace_mm_migrate_first_folio_enabled() ||
		trace_mm_migrate_last_folio_enabled();
}
