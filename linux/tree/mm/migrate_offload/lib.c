// SPDX-License-Identifier: GPL-2.0-only
/*
 * What copy engines for migrating folios need in order to copy: cutting a
 * batch into chunks, copying one, finding CPUs that have nothing to do, and
 * keeping folios that a device may still be using.
 */

#include <linux/atomic.h>
#include <linux/cpumask.h>
#include <linux/cpuset.h>
#include <linux/export.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/bandwidth.h>
#include <linux/sched/cputime.h>
#include <linux/sched/isolation.h>
#include <linux/topology.h>

#include "../internal.h"
#include "internal.h"

/**
 * migrate_copy_split - cut a batch into chunks of the same size
 * @batch: the batch.
 * @max_chunks: how many at most, at least 1.
 * @starts: room for @max_chunks places: where each chunk starts.  A chunk may
 *	start inside a folio, and may span many.
 * @chunk_bytes: the size of all chunks but the last, which may be shorter; a
 *	multiple of PAGE_SIZE.
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

static int migrate_copy_page(struct page *dst, struct page *src)
{
	if (migrate_offload_bad_page(src))
		return -EHWPOISON;
	return copy_mc_highpage(dst, src) ? -EHWPOISON : 0;
}

/**
 * migrate_copy_range - copy part of a batch with the current CPU
 * @batch: the batch.
 * @pos: where to start.
 * @bytes: how much, a multiple of PAGE_SIZE.  What goes beyond the end of the
 *	batch is ignored.
 *
 * Where reading memory raises a machine check that can be survived, the result
 * of that folio becomes -EHWPOISON and the copy goes on with the next folio.
 * Results are not touched otherwise: several CPUs may copy parts of one folio
 * at the same time.
 *
 * Context: may sleep; gives way to others after each page.
 */
void migrate_copy_range(struct migrate_copy_batch *batch,
			struct migrate_copy_pos pos, size_t bytes)
{
	while (bytes && pos.pair < batch->nr_pairs) {
		struct migrate_copy_pair *pair = &batch->pairs[pos.pair];
		size_t end = min(folio_size(pair->src), pos.offset + bytes);

		bytes -= end - pos.offset;
		for (; pos.offset < end; pos.offset += PAGE_SIZE) {
			long i = pos.offset >> PAGE_SHIFT;
			int rc = migrate_copy_page(folio_page(pair->dst, i),
						   folio_page(pair->src, i));

			if (rc) {
				WRITE_ONCE(pair->result, rc);
				break;
			}
			if (migrate_rule(RESCHED, true))
				cond_resched();
		}
		pos.pair++;
		pos.offset = 0;
	}
}
EXPORT_SYMBOL_GPL(migrate_copy_range);

/* Could this CPU help now, without being in anybody's way? */
static bool cpu_can_help(int cpu)
{
	return cpu_online(cpu) && !cpu_is_isolated(cpu) &&
		available_idle_cpu(cpu);
}

/* Of the CPUs in @near, pick idle ones until @max_cpus are in @picked. */
static void pick_idle(const struct cpumask *near, const struct cpumask *allowed,
		      int this_cpu, unsigned int max_cpus,
		      struct cpumask *picked)
{
	int cpu;

	for_each_cpu_and(cpu, near, allowed) {
		if (cpumask_weight(picked) >= max_cpus)
			return;
		if (cpu != this_cpu && !cpumask_test_cpu(cpu, picked) &&
		    cpu_can_help(cpu))
			__cpumask_set_cpu(cpu, picked);
	}
}

/**
 * migrate_allowed_cpus - where may others copy for the current task?
 * @allowed: those of its cpuset.  What the task itself was bound to, by
 *	sched_setaffinity(), does not bind others.
 *
 * Context: task; takes a spinlock of cpusets.
 */
void migrate_allowed_cpus(struct cpumask *allowed)
{
	cpuset_cpus_allowed(current, allowed);
}
EXPORT_SYMBOL_GPL(migrate_allowed_cpus);

/*
 * May somebody do the work of the current task who runs on any CPU, but for
 * isolated ones?  Not if its cpuset leaves some out, nor if there is no memory to
 * find out.  What the task was bound to, by sched_setaffinity(), does not bind
 * others: but if it is on all CPUs so is its cpuset, and nobody has to wait for a
 * lock to know.
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
	/* As the caller may hold locks, and is not to use up what is short. */
	if (!alloc_cpumask_var(&allowed, __GFP_NOWARN | __GFP_NOMEMALLOC))
		return false;
	migrate_allowed_cpus(allowed);
	/* In the mask of who is in no partition there are no CPUs of partitions. */
	for_each_cpu_andnot(cpu, cpu_online_mask, allowed)
		all &= cpu_is_isolated(cpu);
	free_cpumask_var(allowed);
	return all;
}

/**
 * migrate_may_use_helpers - may others spend CPU time for the current task?
 *
 * Context: task; the result is a hint.
 * Return: whether what cpu.max allows its cgroup is not used up.
 */
bool migrate_may_use_helpers(void)
{
	return cfs_bandwidth_is_left(current, 0);
}
EXPORT_SYMBOL_GPL(migrate_may_use_helpers);

/**
 * migrate_copy_may_help - may others go on to copy for a task?
 * @stream: for what.
 *
 * For helpers to ask after each piece of work, and for the task before it has
 * others help.
 *
 * Context: any but NMI; the result is a hint.
 * Return: whether what cpu.max allows the cgroup of the task is not used up,
 * what helpers have spent on this stream included.
 */
bool migrate_copy_may_help(const struct migrate_copy_stream *stream)
{
	return cfs_bandwidth_is_left(stream->task,
				     atomic64_read(&stream->helper_ns));
}
EXPORT_SYMBOL_GPL(migrate_copy_may_help);

/**
 * migrate_helper_cpu_ns - how much CPU time has the current task used?
 *
 * For a helper, which is to say what it spends.  Unlike a clock this stands still
 * while others have the CPU.
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
 * migrate_copy_note_helpers - others have spent CPU time for a task
 * @stream: for what.
 * @ns: how much, by migrate_helper_cpu_ns().
 *
 * It will be taken from what cpu.max allows the cgroup of the task, which asked
 * for it, and be counted for the cgroups whose memory migrates.  Not before
 * nothing of that memory is out of reach: what is not there to be taken has the
 * task stopped.  To be called often: what was not noted is not limited.
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
 * @nid: the node to be near to, usually the destination's.  It may have no
 *	CPUs; then those of the nearest node that has some come first.
 * @max_cpus: how many at most.
 * @allowed: pick no others, see migrate_allowed_cpus().
 * @picked: the CPUs, which were idle a moment ago.
 *
 * Isolated CPUs (isolcpus=, nohz_full=, isolated cpuset partitions) are left
 * alone, and so is the one that the caller runs on.
 *
 * Context: any but NMI; the caller may migrate, the result is a hint.
 * Return: the number of CPUs in @picked.
 */
unsigned int migrate_pick_idle_cpus(int nid, unsigned int max_cpus,
				    const struct cpumask *allowed,
				    struct cpumask *picked)
{
	const struct cpumask *near;
	int this_cpu = raw_smp_processor_id();

	cpumask_clear(picked);
	if (!max_cpus)
		return 0;

	/* The scheduler knows no hops from a node without CPUs. */
	nid = IS_ENABLED(CONFIG_NUMA) ? numa_nearest_node(nid, N_CPU) :
					NUMA_NO_NODE;

	rcu_read_lock();
	for_each_numa_hop_mask(near, nid) {
		pick_idle(near, allowed, this_cpu, max_cpus, picked);
		if (cpumask_weight(picked) >= max_cpus)
			break;
	}
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

	/* The caller may be reclaiming memory.  Without any, all are allowed. */
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
 * migrate_copy_done - a pair of a batch is done
 * @batch: what migrate_engine_ops.submit was given.
 * @pair: its place in @batch.  It has its result, or is held, and no device and
 *	no CPU is at it any more, unless it is held.
 *
 * From then on the pair is the core's again.  The source may be freed, and be a
 * part of another folio of any size, while the engine is at other pairs: what it
 * needs to know of a folio, such as its size, it has to remember itself.  When
 * the last pair was reported, so is @batch.
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

/* Pairs that are held now. */
static atomic_long_t nr_held_pairs;

unsigned long migrate_copy_nr_held(void)
{
	return atomic_long_read(&nr_held_pairs);
}

/**
 * migrate_copy_hold - keep both folios of a pair from being used again
 * @pair: the pair.
 *
 * For an engine that gives up on a device which it cannot stop: the device may
 * read the source and write to the destination at any later time.  References
 * keep both from being freed.  The migration of this folio fails: the source
 * goes back to its owner, and nobody will ever see the destination.  A source
 * that is held cannot be migrated again.
 *
 * The DMA mappings have to stay as well, until migrate_copy_unhold(), which is
 * due when the device has stopped, and never, if it never does.
 *
 * Context: in migrate_engine_ops.submit or reap.  Once for each pair at most.
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

/* Undo migrate_copy_hold(), whatever the device may do. */
void migrate_copy_release(struct folio *src, struct folio *dst)
{
	atomic_long_dec(&nr_held_pairs);
	folio_put(dst);
	folio_put(src);
}

/**
 * migrate_copy_unhold - the device is done with a pair after all
 * @src: the source of a pair that was held.
 * @dst: its destination.
 *
 * Not before the device has completed the transfer, or was stopped and will
 * not touch either folio again.
 *
 * Context: task or softirq; any time after migrate_engine_ops.submit returned.
 */
void migrate_copy_unhold(struct folio *src, struct folio *dst)
{
	/* With the rule broken, the core has done so long ago. */
	if (migrate_rule(HOLD, true))
		migrate_copy_release(src, dst);
}
EXPORT_SYMBOL_GPL(migrate_copy_unhold);
