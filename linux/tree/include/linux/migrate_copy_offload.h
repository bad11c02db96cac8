/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Batch copy of migrating folios: the interface of copy engines.
 *
 * Documentation/driver-api/migrate_copy_engine.rst says what an engine has to
 * do, Documentation/mm/migrate_offload.rst why the early copy is safe.
 */
#ifndef _LINUX_MIGRATE_COPY_OFFLOAD_H
#define _LINUX_MIGRATE_COPY_OFFLOAD_H

#include <linux/errno.h>
#include <linux/list.h>
#include <linux/migrate_mode.h>
#include <linux/types.h>

struct cpumask;
struct folio;
struct module;
struct task_struct;

#define MIGRATOR_NAME_LEN 32

/**
 * struct migrator - a copy engine that copies a whole batch, or nothing
 * @name: shown in sysfs, in counters and in traces.  Letters, digits, '-' and
 *	'_' only.
 * @offload_copy: copy each of the @folio_cnt folios on @src_list to the folio
 *	at the same place of @dst_list.  The folios are linked by their lru
 *	field.  All folios are locked and unmapped, and no other user has a
 *	reference.  Runs in task context and may sleep.  Must not allocate with
 *	GFP_KERNEL: the caller may be reclaiming memory, and holds the locks of
 *	all folios.  Must not change the lists.  After the return, no device or
 *	CPU may read from @src_list or write to @dst_list.  Returns 0 only when
 *	every folio was copied, -EOPNOTSUPP or -EBUSY to decline the batch, or
 *	another negative errno when copying failed.  On any error the CPU copies
 *	the batch.
 * @owner: the module, pinned while this migrator is active.  NULL when built
 *	in.
 */
struct migrator {
	char name[MIGRATOR_NAME_LEN];
	int (*offload_copy)(struct list_head *dst_list,
			    struct list_head *src_list,
			    unsigned int folio_cnt);
	struct module *owner;
};

/**
 * struct migrate_copy_pair - one folio to copy
 * @src: the folio to read.
 * @dst: the folio to write, of the same size.
 * @result: -EINPROGRESS when the engine is called.  The engine sets 0 after all
 *	of @src has been copied without error, or a negative errno.  After
 *	-EHWPOISON the core does not read @src again: a CPU has taken a machine
 *	check, as in migrate_copy_range().
 * @held: a device that could not be stopped may still use both folios.  Set by
 *	migrate_copy_hold() only.
 * @done: migrate_copy_done() was called for this pair.
 * @nth_done: pairs[n].nth_done is the index of the pair that was the nth to be
 *	done, from 0.  Private to the core.
 * @tried: an attempt to move the folio failed.  Private to the core.
 * @content: where the folio's content is.  Private to the core.
 * @unmapped_ns: when the folio was unmapped.  Private to the core.
 */
struct migrate_copy_pair {
	struct folio *src;
	struct folio *dst;
	int result;
	bool held;
	bool done;
	bool tried;
	u8 content;
	unsigned short nth_done;
	u64 unmapped_ns;
};

/**
 * struct migrate_copy_batch - folios that an engine is asked to copy
 * @reason: the reason of the migration.
 * @mode: the mode of the migration.
 * @dst_nid: the node of the first destination, usually of all.
 * @nr_pairs: the number of @pairs, at least 1.  A folio has at most 1 GiB.
 * @nr_done: the number of pairs for which migrate_copy_done() was called.
 * @bytes: the size of all sources together.
 * @private: for the engine, from @submit until the last pair is done.
 * @src_list: all sources, in the order of @pairs.  The core uses both lists for
 *	struct migrator only.
 * @dst_list: all destinations, in the same order.
 * @pairs: the folios.
 */
struct migrate_copy_batch {
	enum migrate_reason reason;
	enum migrate_mode mode;
	int dst_nid;
	unsigned int nr_pairs;
	unsigned int nr_done;
	size_t bytes;
	void *private;
	struct list_head src_list;
	struct list_head dst_list;
	struct migrate_copy_pair pairs[];
};

/**
 * struct migrate_copy_stream - the batches of one migration
 * @ops: the engine that copies them.
 * @reason: the reason of the migration.
 * @mode: the mode of the migration.
 * @dst_nid: the node of the first destination, usually of all.
 * @bytes: the bytes of the whole list.  The engine may get fewer.
 * @private: for the engine, from @open to @close.
 * @task: the migrating task.  Private to the core.
 * @helper_ns: CPU time of helpers that the core has not charged yet, see
 *	migrate_copy_note_helpers().  Private to the core.
 *
 * While an engine with @reap copies one batch, the core unmaps the folios of
 * the next and moves those of the one before.  A stream belongs to one task,
 * which makes all calls for it.
 */
struct migrate_copy_stream {
	const struct migrate_engine_ops *ops;
	enum migrate_reason reason;
	enum migrate_mode mode;
	int dst_nid;
	size_t bytes;
	void *private;
	struct task_struct *task;
	atomic64_t helper_ns;
};

/**
 * struct migrate_engine_ops - a copy engine with a result for each folio
 * @name: as in struct migrator.
 * @owner: as in struct migrator.
 * @wants: optional.  Would the engine take a batch of up to @bytes for node
 *	@dst_nid now?  NUMA_NO_NODE: the node is not known yet.  The core asks
 *	before it works on a batch, so that a declined batch costs little.  Runs
 *	in task context, but must not sleep: the caller may hold a page table
 *	lock.  Must be quick; a wrong answer does no harm.
 * @submit: copy a batch, under the rules of migrator.offload_copy.  No context
 *	that the copy depends on may wait for memory, neither with GFP_KERNEL
 *	nor for CMA.  An allocation may wait for migration, and so for this
 *	engine.  Returns 0, -EOPNOTSUPP or -EBUSY to decline the batch, or
 *	another negative errno, after which the core ignores all results.  A
 *	held pair stays held, whatever @submit returns.
 *
 *	An engine without @reap has copied the batch, and set the result of each
 *	pair, when this returns.  An engine with @reap starts the copy.  On
 *	success the engine reports each pair once, by migrate_copy_done(), here
 *	or in @reap and in any order.  Before the report, the engine sets the
 *	pair's result or holds the pair.  After an error the engine reports
 *	nothing, and no device touches any folio.
 * @open: get ready for batches.  An engine has all of @open, @reap and @close,
 *	or none.  Returns 0, -EOPNOTSUPP or -EBUSY to decline, or another
 *	negative errno.  Same context as @submit.
 * @reap: make progress with all batches of the stream, and report the pairs
 *	that are done.  If none is done, wait for one for up to @wait_ns, or
 *	copy a share with the CPU meanwhile; 0 means not to wait.  May return
 *	early without a report.  With U64_MAX the engine's own timeouts limit
 *	the wait.
 * @close: end the stream.  The engine has reported all pairs of all batches.
 */
struct migrate_engine_ops {
	const char *name;
	struct module *owner;
	bool (*wants)(int dst_nid, size_t bytes);
	int (*submit)(struct migrate_copy_stream *stream,
		      struct migrate_copy_batch *batch);
	int (*open)(struct migrate_copy_stream *stream);
	void (*reap)(struct migrate_copy_stream *stream, u64 wait_ns);
	void (*close)(struct migrate_copy_stream *stream);
};

/**
 * struct migrate_copy_pos - a place in the bytes of a batch
 * @pair: index into migrate_copy_batch.pairs.
 * @offset: bytes into that pair, a multiple of PAGE_SIZE.
 */
struct migrate_copy_pos {
	unsigned int pair;
	size_t offset;
};

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD
int migrate_offload_register(struct migrator *m);
int migrate_offload_unregister(struct migrator *m);
int migrate_engine_register(const struct migrate_engine_ops *ops);
int migrate_engine_unregister(const struct migrate_engine_ops *ops);
int migrate_engine_activate(const struct migrate_engine_ops *ops);
void migrate_engine_deactivate(const struct migrate_engine_ops *ops);

/* Helpers for engines. */
unsigned int migrate_copy_split(const struct migrate_copy_batch *batch,
				unsigned int max_chunks,
				struct migrate_copy_pos *starts,
				size_t *chunk_bytes);
void migrate_copy_range(struct migrate_copy_batch *batch,
			struct migrate_copy_pos pos, size_t bytes);
void migrate_copy_range_atomic(struct migrate_copy_batch *batch,
			       struct migrate_copy_pos pos, size_t bytes);
void migrate_allowed_cpus(struct cpumask *allowed);
unsigned int migrate_pick_idle_cpus(int nid, unsigned int max_cpus,
				    const struct cpumask *allowed,
				    struct cpumask *picked);
bool migrate_any_idle_cpu(void);
bool migrate_may_use_helpers(void);
bool migrate_copy_may_help(const struct migrate_copy_stream *stream);
bool migrate_copy_reserve(const struct migrate_copy_stream *stream, u64 ns);
void migrate_copy_unreserve(const struct migrate_copy_stream *stream, u64 ns);
u64 migrate_helper_cpu_ns(void);
void migrate_copy_note_helpers(struct migrate_copy_stream *stream, u64 ns);
void migrate_copy_done(struct migrate_copy_batch *batch, unsigned int pair);
void migrate_copy_hold(struct migrate_copy_pair *pair);
void migrate_copy_unhold(struct folio *src, struct folio *dst);
#else
static inline int migrate_offload_register(struct migrator *m)
{
	return -EOPNOTSUPP;
}

static inline int migrate_offload_unregister(struct migrator *m)
{
	return -EOPNOTSUPP;
}

static inline int
migrate_engine_register(const struct migrate_engine_ops *ops)
{
	return -EOPNOTSUPP;
}

static inline int
migrate_engine_unregister(const struct migrate_engine_ops *ops)
{
	return -EOPNOTSUPP;
}
#endif /* CONFIG_MIGRATION_COPY_OFFLOAD */

#endif /* _LINUX_MIGRATE_COPY_OFFLOAD_H */
