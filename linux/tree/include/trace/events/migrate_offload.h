/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM migrate

#if !defined(_TRACE_MIGRATE_OFFLOAD_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_MIGRATE_OFFLOAD_H

#include <linux/tracepoint.h>

#ifndef _MIGRATE_OFFLOAD_TRACE_REG
#define _MIGRATE_OFFLOAD_TRACE_REG
/* While a probe is attached, events also come without an engine. */
int migrate_offload_trace_reg(void);
void migrate_offload_trace_unreg(void);
#endif

/*
 * One part of a window, from the first folio that was unmapped to the last that
 * was moved.  Times are in nanoseconds, and follow each other without a gap.
 * Windows overlap.
 */
TRACE_EVENT_FN(mm_migrate_batch,

	TP_PROTO(const char *reason, int mode, const char *engine,
		 unsigned int nr_folios, u64 bytes, unsigned int nr_engine,
		 u64 unmap_ns, u64 flush_ns, u64 copy_ns, u64 move_ns),

	TP_ARGS(reason, mode, engine, nr_folios, bytes, nr_engine,
		unmap_ns, flush_ns, copy_ns, move_ns),

	TP_STRUCT__entry(
		__string(reason,	reason)
		__field(int,		mode)
		__string(engine,	engine)
		__field(unsigned int,	nr_folios)
		__field(u64,		bytes)
		__field(unsigned int,	nr_engine)
		__field(u64,		unmap_ns)
		__field(u64,		flush_ns)
		__field(u64,		copy_ns)
		__field(u64,		move_ns)
	),

	TP_fast_assign(
		__assign_str(reason);
		__entry->mode		= mode;
		__assign_str(engine);
		__entry->nr_folios	= nr_folios;
		__entry->bytes		= bytes;
		__entry->nr_engine	= nr_engine;
		__entry->unmap_ns	= unmap_ns;
		__entry->flush_ns	= flush_ns;
		__entry->copy_ns	= copy_ns;
		__entry->move_ns	= move_ns;
	),

	TP_printk("reason=%s mode=%d engine=%s folios=%u bytes=%llu engine_folios=%u unmap_ns=%llu flush_ns=%llu copy_ns=%llu move_ns=%llu",
		  __get_str(reason), __entry->mode,
		  __get_str(engine), __entry->nr_folios, __entry->bytes,
		  __entry->nr_engine, __entry->unmap_ns, __entry->flush_ns,
		  __entry->copy_ns, __entry->move_ns),

	migrate_offload_trace_reg, migrate_offload_trace_unreg
);

/*
 * The first or the last folio of a list has moved and is mapped again.  The
 * time counts from the start of the list, before the first folio is unmapped.
 */
DECLARE_EVENT_CLASS(mm_migrate_one_folio,

	TP_PROTO(const char *reason, const char *engine, u64 since_start_ns),

	TP_ARGS(reason, engine, since_start_ns),

	TP_STRUCT__entry(
		__string(reason,	reason)
		__string(engine,	engine)
		__field(u64,		since_start_ns)
	),

	TP_fast_assign(
		__assign_str(reason);
		__assign_str(engine);
		__entry->since_start_ns	= since_start_ns;
	),

	TP_printk("reason=%s engine=%s since_start_ns=%llu",
		  __get_str(reason), __get_str(engine),
		  __entry->since_start_ns)
);

DEFINE_EVENT_FN(mm_migrate_one_folio, mm_migrate_first_folio,
	TP_PROTO(const char *reason, const char *engine, u64 since_start_ns),
	TP_ARGS(reason, engine, since_start_ns),
	migrate_offload_trace_reg, migrate_offload_trace_unreg);

DEFINE_EVENT_FN(mm_migrate_one_folio, mm_migrate_last_folio,
	TP_PROTO(const char *reason, const char *engine, u64 since_start_ns),
	TP_ARGS(reason, engine, since_start_ns),
	migrate_offload_trace_reg, migrate_offload_trace_unreg);

/*
 * A folio is mapped again after unmapped_ns, at its source if rc is not 0.
 * With copied, the engine had copied the folio.
 */
TRACE_EVENT_FN(mm_migrate_folio,

	TP_PROTO(const char *reason, const char *engine, u64 bytes,
		 u64 unmapped_ns, bool copied, int rc),

	TP_ARGS(reason, engine, bytes, unmapped_ns, copied, rc),

	TP_STRUCT__entry(
		__string(reason,	reason)
		__string(engine,	engine)
		__field(u64,		bytes)
		__field(u64,		unmapped_ns)
		__field(bool,		copied)
		__field(int,		rc)
	),

	TP_fast_assign(
		__assign_str(reason);
		__assign_str(engine);
		__entry->bytes		= bytes;
		__entry->unmapped_ns	= unmapped_ns;
		__entry->copied		= copied;
		__entry->rc		= rc;
	),

	TP_printk("reason=%s engine=%s bytes=%llu unmapped_ns=%llu copied=%d rc=%d",
		  __get_str(reason), __get_str(engine), __entry->bytes,
		  __entry->unmapped_ns, __entry->copied, __entry->rc),

	migrate_offload_trace_reg, migrate_offload_trace_unreg
);

#endif /* _TRACE_MIGRATE_OFFLOAD_H */

/* trace/events/migrate.h has the other events of system "migrate". */
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE migrate_offload

/* This part must be outside protection */
#include <trace/define_trace.h>
