/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Batch copy of migrating folios: what a copy engine implements and calls.
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
 *	field.  All folios are locked, unmapped, and held by nobody else.  Runs
 *	in task context, may sleep, must not allocate with GFP_KERNEL: the
 *	caller may be reclaiming memory, and holds the locks of all folios.
 *	Neither list may be changed, and when it returns nothing may still be
 *	reading from @src_list or writing to @dst_list.
 *	Returns 0 only when every folio was copied, -EOPNOTSUPP or -EBUSY to
 *	decline the batch, or another negative errno when copying failed.  On
 *	any error the CPU copies the batch.
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
 * @result: -EINPROGRESS when the engine is called.  The engine sets 0 after
 *	all of @src has been copied without error, or a negative errno.  With
 *	-EHWPOISON a CPU has taken a machine check for @src, as in
 *	migrate_copy_range(): nobody reads it again.
 * @held: a device that could not be stopped may still use both folios.  Set by
 *	migrate_copy_hold() only.
 * @done: migrate_copy_done() was called for it.
 * @nth_done: of the pair at place n: the index of the pair that was the nth to
 *	be done.  Core's.
 * @tried: it could not be moved once.  Core's.
 * @content: where its content is.  Core's.
 * @unmapped_ns: when the folio went out of reach.  Core's.
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
 * @reason: why they migrate.
 * @mode: how the migration was asked for.
 * @dst_nid: the node of the first destination.  Usually that of all.
 * @nr_pairs: how many @pairs there are, at least one.  A folio is of 1 GiB at
 *	most.
 * @nr_done: for how many of them migrate_copy_done() was called.
 * @bytes: the sum of their sizes.
 * @private: the engine's, from @submit until the last pair is done.
 * @src_list: core's list of all sources, in the order of @pairs.  With the next
 *	one for struct migrator only.
 * @dst_list: core's list of all destinations, likewise.
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
 * @reason: why the folios migrate.
 * @mode: how the migration was asked for.
 * @dst_nid: the node of the first destination.  Usually that of all.
 * @bytes: how much there is to migrate, in all batches: not all of it may come.
 * @private: the engine's, from @open to @close.
 * @task: who migrates.  Core's.
 * @helper_ns: CPU time that others have spent on it and that was not charged
 *	yet, see migrate_copy_note_helpers().  Core's.
 *
 * While an engine with @reap is at one batch, the core unmaps the folios of the
 * next and moves those of the one before.  A stream belongs to one task, which
 * makes all calls for it.
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
 *	@dst_nid, or NUMA_NO_NODE if that is not known yet, now?  Asked before
 *	anything is done for the batch, so that one that is declined costs next
 *	to nothing.  Must be quick; a wrong answer does no harm.  Same context as
 *	@submit.
 * @submit: copy a batch.  Called under the rules of migrator.offload_copy.  No
 *	context that it depends on may wait for memory, neither with GFP_KERNEL
 *	nor for CMA: a task that does may wait for migration, and so for this
 *	engine.  Returns 0, -EOPNOTSUPP or -EBUSY to decline the batch, or
 *	another negative errno, after which no result is believed.  A pair that
 *	was held stays so, whatever it returns.
 *
 *	An engine without @reap has copied the batch, and set the result of each
 *	pair, when this returns.  An engine with @reap starts the copy: after 0
 *	it reports each pair by migrate_copy_done(), once, here or in @reap, in
 *	any order, after its result was set or it was held.  After an error it
 *	reports nothing, and no device touches any folio.
 * @open: only with @reap, as are the following; either all three are there or
 *	none.  Get ready for batches.  Returns 0, -EOPNOTSUPP or -EBUSY to
 *	decline, or another negative errno.  Same context as @submit.
 * @reap: take all batches of the stream forward, and report the pairs that are
 *	done.  When there is nothing to report, wait for up to @wait_ns until
 *	there is, or copy a share with the CPU meanwhile; 0 means not to wait.
 *	May return sooner without a report.  The engine's own timeouts bound it
 *	even if @wait_ns does not: U64_MAX.
 * @close: the end of the stream.  All pairs of all batches have been reported.
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
void migrate_allowed_cpus(struct cpumask *allowed);
unsigned int migrate_pick_idle_cpus(int nid, unsigned int max_cpus,
				    const struct cpumask *allowed,
				    struct cpumask *picked);
bool migrate_any_idle_cpu(void);
bool migrate_may_use_helpers(void);
bool migrate_copy_may_help(const struct migrate_copy_stream *stream);
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
