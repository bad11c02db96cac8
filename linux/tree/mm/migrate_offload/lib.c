// SPDX-License-Identifier: GPL-2.0-only
/*
 * Helpers for copy engines: divide a batch into chunks, copy a chunk, find idle
 * CPUs, and hold folios that a device may still use.
 */

#include <linux/atomic.h>
#include <linux/cpumask.h>
#include <linux/cpuset.h>
#include <linux/export.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/bandwidth.h>
#include <linux/sched/cputime.h>
#include <linux/sched/isolation.h>
#include <linux/topology.h>

#include "../internal.h"
#include "copy.h"
#include "internal.h"

/**
 * migrate_copy_split - divide a batch into chunks of the same size
 * @batch: the batch.
 * @max_chunks: the most chunks to make, at least 1.
 * @starts: array of @max_chunks places, set to the start of each chunk.  A
 *	chunk may start inside a folio, and may span several folios.
 * @chunk_bytes: set to the size of all chunks but the last, which may be
 *	shorter; a multiple of PAGE_SIZE.
 *
 * Return: the number of chunks.
 */
unsigned int migrate_copy_split(const struct migrate_copy_batch *batch,
				unsigned int max_chunks,
				struct migrate_copy_pos *starts,
				size_t *chunk_bytes)
{
	size_t step = PAGE_ALIGN(DIV_ROUND_UP(batch->bytes, max_chunks));
	size_t pair_start = 0, next = 0;
	unsigned int i, nr = 0;

	for (i = 0; i < batch->nr_pairs; i++) {
		size_t size = folio_size(batch->pairs[i].src);

		while (next < pair_start + size) {
			starts[nr].pair = i;
			starts[nr].offset = next - pair_start;
			nr++;
			next += step;
		}
		pair_start += size;
	}
	*chunk_bytes = step;
	return nr;
}
EXPORT_SYMBOL_GPL(migrate_copy_split);

static void copy_range(struct migrate_copy_batch *batch,
		       struct migrate_copy_pos pos, size_t bytes, bool resched)
{
	while (bytes && pos.pair < batch->nr_pairs) {
		struct migrate_copy_pair *pair = &batch->pairs[pos.pair];
		size_t part = min(folio_size(pair->src) - pos.offset, bytes);
		int rc = migrate_copy_span(pair->dst, pair->src, pos.offset,
					   part, resched);

		if (rc)
			WRITE_ONCE(pair->result, rc);
		if (resched)
			cond_resched();
		bytes -= part;
		pos.pair++;
		pos.offset = 0;
	}
}

/**
 * migrate_copy_range - copy part of a batch with the current CPU
 * @batch: the batch.
 * @pos: where to start.
 * @bytes: how many bytes to copy, a multiple of PAGE_SIZE.  Bytes beyond the
 *	end of the batch are ignored.
 *
 * After a machine check that the kernel survives, the folio's result becomes
 * -EHWPOISON, and the copy continues with the next folio.  The function sets no
 * other result: several CPUs may copy parts of one folio at the same time.
 *
 * Context: may sleep; calls cond_resched() after each page, or after 256 KiB.
 */
void migrate_copy_range(struct migrate_copy_batch *batch,
			struct migrate_copy_pos pos, size_t bytes)
{
	copy_range(batch, pos, bytes, migrate_rule(RESCHED, true));
}
EXPORT_SYMBOL_GPL(migrate_copy_range);

/**
 * migrate_copy_range_atomic - the same, where the CPU may not be given up
 * @batch: the batch.
 * @pos: where to start.
 * @bytes: how many bytes to copy, as in migrate_copy_range().
 *
 * Context: task, also with preemption disabled.
 */
void migrate_copy_range_atomic(struct migrate_copy_batch *batch,
			       struct migrate_copy_pos pos, size_t bytes)
{
	copy_range(batch, pos, bytes, false);
}
EXPORT_SYMBOL_GPL(migrate_copy_range_atomic);

static bool cpu_can_help(int cpu)
{
	return cpu_online(cpu) && !cpu_is_isolated(cpu) && idle_cpu(cpu) &&
		!vcpu_is_preempted(cpu);
}

/* Returns true if no sibling of the CPU's core works, or was picked. */
static bool core_is_idle(int cpu, const struct cpumask *picked)
{
	int sibling;

	for_each_cpu(sibling, topology_sibling_cpumask(cpu))
		if (cpumask_test_cpu(sibling, picked) || !idle_cpu(sibling))
			return false;
	return true;
}

/*
 * Pick idle CPUs of @near, until @max_cpus CPUs are in @picked.  With @cores,
 * pick one CPU of each core that is idle as a whole.
 */
static void pick_idle(const struct cpumask *near, const struct cpumask *allowed,
		      bool cores, unsigned int max_cpus,
		      struct cpumask *picked)
{
	int cpu, this_cpu = raw_smp_processor_id();

	for_each_cpu_and(cpu, near, allowed) {
		if (cpumask_weight(picked) >= max_cpus)
			return;
		if (cpu != this_cpu && !cpumask_test_cpu(cpu, picked) &&
		    cpu_can_help(cpu) && (!cores || core_is_idle(cpu, picked)))
			__cpumask_set_cpu(cpu, picked);
	}
}

/**
 * migrate_allowed_cpus - get the CPUs that may copy for the current task
 * @allowed: set to the CPUs of the task's cpuset.  The task's affinity, from
 *	sched_setaffinity(), does not bind helpers.
 *
 * Context: task; takes a spinlock of cpusets.
 */
void migrate_allowed_cpus(struct cpumask *allowed)
{
	cpuset_cpus_allowed(current, allowed);
}
EXPORT_SYMBOL_GPL(migrate_allowed_cpus);

/*
 * May a worker on any CPU that is not isolated work for the current task?
 * Returns false if the task's cpuset lacks one of these CPUs, or without memory
 * for a mask.  The task's affinity, from sched_setaffinity(), does not bind the
 * worker.  But if the affinity has all CPUs, so has the cpuset, and no lock is
 * needed.
 *
 * Context: task; takes a spinlock of cpusets.  The result is a hint.
 */
bool migrate_on_any_cpu(void)
{
	cpumask_var_t allowed;
	bool all = true;
	int cpu;

	if (cpumask_subset(cpu_online_mask, &current->cpus_mask))
		return true;
	/* The caller may hold spinlocks: do not sleep, and use no reserves. */
	if (!alloc_cpumask_var(&allowed, __GFP_NOWARN | __GFP_NOMEMALLOC))
		return false;
	migrate_allowed_cpus(allowed);
	/* CPUs of isolated partitions may be missing: no worker uses them. */
	for_each_cpu_andnot(cpu, cpu_online_mask, allowed)
		all &= cpu_is_isolated(cpu);
	free_cpumask_var(allowed);
	return all;
}

/**
 * migrate_may_use_helpers - may helpers spend CPU time for the current task?
 *
 * Context: task; the result is a hint.
 * Return: true if cpu.max leaves CPU time for the task's cgroup in this period.
 */
bool migrate_may_use_helpers(void)
{
	return cfs_bandwidth_is_left(current, 0);
}
EXPORT_SYMBOL_GPL(migrate_may_use_helpers);

/**
 * migrate_copy_may_help - may helpers start to copy for a task?
 * @stream: the stream of the task.
 *
 * The task asks before it starts helpers.
 *
 * Context: any but NMI; the result is a hint.
 * Return: true if cpu.max leaves more CPU time for the task's cgroup than
 * helpers have spent on this stream.
 */
bool migrate_copy_may_help(const struct migrate_copy_stream *stream)
{
	return cfs_bandwidth_is_left(stream->task,
				     atomic64_read(&stream->helper_ns));
}
EXPORT_SYMBOL_GPL(migrate_copy_may_help);

/**
 * migrate_copy_reserve - let a helper copy for a task
 * @stream: the stream of the task.
 * @ns: the CPU time that the helper may spend, a millisecond or so.
 *
 * A helper reserves time before it spends any, so that the helpers of all tasks
 * of a cgroup keep to its limit together.
 *
 * Context: any but NMI.
 * Return: true if cpu.max leaves that time for the task's cgroup.
 */
bool migrate_copy_reserve(const struct migrate_copy_stream *stream, u64 ns)
{
	return cfs_bandwidth_reserve(stream->task, ns);
}
EXPORT_SYMBOL_GPL(migrate_copy_reserve);

/**
 * migrate_copy_unreserve - give back time that a helper has not spent
 * @stream: the stream of the task.
 * @ns: the rest of migrate_copy_reserve().
 *
 * Context: any but NMI.
 */
void migrate_copy_unreserve(const struct migrate_copy_stream *stream, u64 ns)
{
	cfs_bandwidth_unreserve(stream->task, ns);
}
EXPORT_SYMBOL_GPL(migrate_copy_unreserve);

/**
 * migrate_helper_cpu_ns - how much CPU time has the current task used?
 *
 * Helpers report the difference of two calls.  Unlike a clock, the result does
 * not advance while the helper is preempted.
 *
 * Context: task; takes the lock of the run queue.
 * Return: nanoseconds since the task began.
 */
u64 migrate_helper_cpu_ns(void)
{
	return task_sched_runtime(current);
}
EXPORT_SYMBOL_GPL(migrate_helper_cpu_ns);

/**
 * migrate_copy_note_helpers - report CPU time that helpers have spent
 * @stream: the stream that the helpers copied for.
 * @ns: the time, by migrate_helper_cpu_ns().
 *
 * The core charges the time to the task's cgroup (cpu.max), and counts it for
 * the cgroups whose memory migrates.  A charge may throttle the task, so the
 * core waits until no folio is unmapped.  Call this often: cpu.max does not
 * limit time that is not reported yet.
 *
 * Context: any, until migrate_engine_ops.close of the stream returns.
 */
void migrate_copy_note_helpers(struct migrate_copy_stream *stream, u64 ns)
{
	atomic64_add(ns, &stream->helper_ns);
}
EXPORT_SYMBOL_GPL(migrate_copy_note_helpers);

/**
 * migrate_pick_idle_cpus - find idle CPUs near a node
 * @nid: take CPUs near this node first, usually the destination.  If the node
 *	has no CPUs, the nearest node with CPUs takes its place.
 * @max_cpus: the most CPUs to pick.
 * @allowed: pick only these CPUs, see migrate_allowed_cpus().
 * @picked: set to CPUs that were idle a moment ago.
 *
 * The function picks one CPU of each idle core first, also of other nodes.  The
 * sibling of a busy CPU slows down the task there.  It never picks isolated CPUs
 * (isolcpus=, nohz_full=, isolated cpuset partitions), nor the caller's CPU.
 *
 * Context: any but NMI; the caller may migrate, the result is a hint.
 * Return: the number of CPUs in @picked.
 */
unsigned int migrate_pick_idle_cpus(int nid, unsigned int max_cpus,
				    const struct cpumask *allowed,
				    struct cpumask *picked)
{
	const struct cpumask *near;
	int cores;

	cpumask_clear(picked);
	if (!max_cpus)
		return 0;

	/* The scheduler has distances only from nodes with CPUs. */
	nid = IS_ENABLED(CONFIG_NUMA) ? numa_nearest_node(nid, N_CPU) :
					NUMA_NO_NODE;

	rcu_read_lock();
	for (cores = 1; cores >= 0; cores--)
		for_each_numa_hop_mask(near, nid)
			pick_idle(near, allowed, cores, max_cpus, picked);
	rcu_read_unlock();
	return cpumask_weight(picked);
}
EXPORT_SYMBOL_GPL(migrate_pick_idle_cpus);

/**
 * migrate_any_idle_cpu - is there a CPU for migrate_pick_idle_cpus() to find?
 *
 * Context: task; takes a spinlock of cpusets.  The result is a hint.
 * Return: whether a CPU other than the caller's is idle, not isolated, and one
 * of migrate_allowed_cpus().
 */
bool migrate_any_idle_cpu(void)
{
	int cpu, this_cpu = raw_smp_processor_id();
	bool known, found = false;
	cpumask_var_t allowed;

	/* The caller may be reclaiming.  Without a mask, allow all CPUs. */
	known = alloc_cpumask_var(&allowed, __GFP_NOWARN | __GFP_NOMEMALLOC);
	if (known)
		migrate_allowed_cpus(allowed);
	for_each_online_cpu(cpu) {
		if (cpu == this_cpu ||
		    (known && !cpumask_test_cpu(cpu, allowed)))
			continue;
		found = cpu_can_help(cpu);
		if (found)
			break;
	}
	if (known)
		free_cpumask_var(allowed);
	return found;
}
EXPORT_SYMBOL_GPL(migrate_any_idle_cpu);

/**
 * migrate_copy_done - report that a pair of a batch is done
 * @batch: the batch from migrate_engine_ops.submit.
 * @pair: the index of the pair.  The engine has set its result or holds the
 *	pair.  No device and no CPU uses a pair that is not held.
 *
 * After the call the pair belongs to the core.  The core may free the source,
 * whose memory may become part of a folio of another size.  An engine must
 * remember what it needs of a folio, such as its size.  After the last pair,
 * @batch belongs to the core, too.
 *
 * Context: in migrate_engine_ops.submit or .reap of the same stream, so in one
 * task.  Once for each pair.
 */
void migrate_copy_done(struct migrate_copy_batch *batch, unsigned int pair)
{
	if (WARN_ON_ONCE(pair >= batch->nr_pairs || batch->pairs[pair].done))
		return;
	batch->pairs[pair].done = true;
	batch->pairs[batch->nr_done++].nth_done = pair;
}
EXPORT_SYMBOL_GPL(migrate_copy_done);

/* The number of pairs that are held now. */
static atomic_long_t nr_held_pairs;

unsigned long migrate_copy_nr_held(void)
{
	return atomic_long_read(&nr_held_pairs);
}

/**
 * migrate_copy_hold - keep both folios of a pair from being used again
 * @pair: the pair.
 *
 * For an engine that cannot stop a device: the device may read the source and
 * write to the destination at any later time.  A reference to each folio keeps
 * it from being freed.  The migration of the folio fails: its owner keeps the
 * source, and no program sees the destination.  A held source cannot migrate
 * again.
 *
 * The engine must keep the DMA mappings, too.  When the device has stopped, the
 * engine calls migrate_copy_unhold().
 *
 * Context: in migrate_engine_ops.submit or reap.  At most once for each pair.
 */
void migrate_copy_hold(struct migrate_copy_pair *pair)
{
	if (WARN_ON_ONCE(pair->held))
		return;
	folio_get(pair->src);
	folio_get(pair->dst);
	atomic_long_inc(&nr_held_pairs);
	pair->result = -ETIMEDOUT;
	pair->held = true;
}
EXPORT_SYMBOL_GPL(migrate_copy_hold);

/* Undo migrate_copy_hold(), even if the device has not stopped. */
void migrate_copy_release(struct folio *src, struct folio *dst)
{
	atomic_long_dec(&nr_held_pairs);
	folio_put(dst);
	folio_put(src);
}

/**
 * migrate_copy_unhold - release a pair that was held
 * @src: the source of the pair.
 * @dst: its destination.
 *
 * The device must have completed the transfer, or have stopped: it must not
 * touch either folio again.
 *
 * Context: task or softirq; any time after migrate_engine_ops.submit returned.
 */
void migrate_copy_unhold(struct folio *src, struct folio *dst)
{
	/* With the rule broken, the core has already released the pair. */
	if (migrate_rule(HOLD, true))
		migrate_copy_release(src, dst);
}
EXPORT_SYMBOL_GPL(migrate_copy_unhold);
