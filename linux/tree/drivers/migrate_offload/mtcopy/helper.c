// SPDX-License-Identifier: GPL-2.0-only
/*
 * mtcopy: threads that copy shares.  One is the migrating task; the others are
 * helpers, which this file starts and stops.
 */

#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/stat.h>

#include "mtcopy.h"

/* A helper waits this long for work, as waking its CPU again takes time. */
#define MTCOPY_LINGER_NS (200 * NSEC_PER_USEC)

/* A helper reserves this much CPU time, and then reports what it has spent. */
#define MTCOPY_NOTE_NS NSEC_PER_MSEC

/* Take a share of the oldest job.  Returns false if no chunk is left. */
static bool mtcopy_take(struct mtcopy_stream *stream, struct mtcopy_share *share)
{
	struct mtcopy_job *job;
	unsigned int nr;

	spin_lock(&stream->lock);
	job = list_first_entry_or_null(&stream->ready, struct mtcopy_job, list);
	if (job) {
		share->first_chunk = job->next_chunk;
		nr = max(MTCOPY_SHARE_BYTES / job->chunk_bytes, 1);
		share->nr_chunks = min(nr, job->nr_chunks - job->next_chunk);
		job->next_chunk += share->nr_chunks;
		WRITE_ONCE(stream->ready_bytes, stream->ready_bytes -
			   share->nr_chunks * job->chunk_bytes);
		if (job->next_chunk == job->nr_chunks)
			list_del(&job->list);
	}
	spin_unlock(&stream->lock);
	share->job = job;
	return job;
}

/* Account for @bytes copied bytes.  Reports the pair after its last bytes. */
static void mtcopy_account(struct mtcopy_stream *stream,
			   struct mtcopy_pair *pair, size_t bytes)
{
	if (atomic_long_sub_return(bytes, &pair->bytes_left))
		return;

	/* The task may free the job as soon as it sees this pair. */
	llist_add(&pair->node, &stream->done);
	/* llist_add() is a full barrier, as is set_current_state(). */
	if (waitqueue_active(&stream->wait))
		wake_up(&stream->wait);
}

static void mtcopy_copy_part(struct mtcopy_stream *stream,
			     const struct mtcopy_share *share, bool brief)
{
	struct mtcopy_job *job = share->job;
	struct migrate_copy_batch *batch = job->batch;
	struct migrate_copy_pos pos = job->starts[share->first_chunk];
	unsigned int nr_pairs = job->nr_pairs;
	size_t left = share->nr_chunks * job->chunk_bytes;

	while (left && pos.pair < nr_pairs) {
		struct mtcopy_pair *pair = &job->pairs[pos.pair];
		size_t size = folio_size(batch->pairs[pos.pair].src);
		size_t part = min(left, size - pos.offset);

		if (brief)
			migrate_copy_range_atomic(batch, pos, part);
		else
			migrate_copy_range(batch, pos, part);
		left -= part;
		pos.pair++;
		pos.offset = 0;
		/* After the last pair, the task may free @job and @batch. */
		mtcopy_account(stream, pair, part);
	}
}

/*
 * Copy a share.  The task and its helpers call this at once.  Returns false if
 * no chunk is left.
 *
 * If a real-time task preempted a helper that has a share, its folios would stay
 * unmapped meanwhile, although the migrating task runs.  So take and copy short
 * shares without preemption.  Only shares of huge batches are longer.
 */
bool mtcopy_copy_share(struct mtcopy_stream *stream)
{
	bool brief = !IS_ENABLED(CONFIG_PREEMPT_RT);
	struct mtcopy_share share;
	bool taken;

	if (brief)
		preempt_disable();
	taken = mtcopy_take(stream, &share);
	if (brief && taken &&
	    share.nr_chunks * share.job->chunk_bytes > MTCOPY_SHARE_BYTES) {
		preempt_enable();
		brief = false;
	}
	if (taken)
		mtcopy_copy_part(stream, &share, brief);
	if (brief)
		preempt_enable();
	cond_resched();
	return taken;
}

/* Wait for more chunks.  Returns false if the helper should leave. */
static bool mtcopy_linger(struct mtcopy_stream *stream)
{
	u64 until = local_clock() + MTCOPY_LINGER_NS;

	while (list_empty(&stream->ready)) {
		if (READ_ONCE(stream->closing) || !single_task_running() ||
		    local_clock() > until)
			return false;
		cpu_relax();
	}
	return true;
}

/*
 * Leave, unless a job is ready: the task that submitted it may have counted on
 * this helper.  With @must, leave in any case.  Returns true if the helper has
 * left.
 */
static bool mtcopy_leave(struct mtcopy_stream *stream, bool must)
{
	bool leaves;

	spin_lock(&stream->lock);
	leaves = must || list_empty(&stream->ready);
	WRITE_ONCE(stream->nr_helpers, stream->nr_helpers - leaves);
	spin_unlock(&stream->lock);
	return leaves;
}

/* The CPU time of a helper at its last report, and when it has to reserve more. */
struct mtcopy_spent {
	u64 cpu_ns;
	u64 until_ns;
};

/*
 * Report the CPU time since the last report.  Other tasks may have run on this
 * CPU, so elapsed time would be wrong.
 */
static void mtcopy_note_spent(struct mtcopy_stream *stream,
			      struct mtcopy_spent *spent)
{
	u64 cpu_ns = migrate_helper_cpu_ns();

	migrate_copy_note_helpers(stream->core, cpu_ns - spent->cpu_ns);
	spent->cpu_ns = cpu_ns;
}

/*
 * Returns false if another task wants this CPU, or cpu.max is used up.  A report
 * takes the lock of the run queue, so do not report after each share.
 */
static bool mtcopy_may_go_on(struct mtcopy_stream *stream,
			     struct mtcopy_spent *spent)
{
	u64 now = local_clock();

	if (!single_task_running())
		return false;
	if (now < spent->until_ns)
		return true;
	mtcopy_note_spent(stream, spent);
	if (!migrate_copy_reserve(stream->core, MTCOPY_NOTE_NS))
		return false;
	spent->until_ns = now + MTCOPY_NOTE_NS;
	return true;
}

/* Copy until no chunk is left.  Returns false if the helper has to leave. */
static bool mtcopy_help(struct mtcopy_stream *stream, struct mtcopy_spent *spent)
{
	bool goes_on = true;

	while (goes_on && mtcopy_copy_share(stream))
		goes_on = mtcopy_may_go_on(stream, spent);
	return goes_on;
}

static void mtcopy_helper_fn(struct work_struct *work)
{
	struct mtcopy_helper *helper =
		container_of(work, struct mtcopy_helper, work);
	struct mtcopy_stream *stream = helper->stream;
	struct mtcopy_spent spent = {
		.cpu_ns = migrate_helper_cpu_ns(),
	};
	bool goes_on = mtcopy_may_go_on(stream, &spent);
	u64 now;

	for (;;) {
		if (goes_on)
			goes_on = mtcopy_help(stream, &spent);
		goes_on = goes_on && mtcopy_linger(stream);
		mtcopy_note_spent(stream, &spent);
		if (goes_on) {
			goes_on = mtcopy_may_go_on(stream, &spent);
			continue;
		}
		goes_on = mtcopy_may_go_on(stream, &spent);
		if (mtcopy_leave(stream, !goes_on))
			break;
	}
	mtcopy_note_spent(stream, &spent);
	now = local_clock();
	if (now < spent.until_ns)
		migrate_copy_unreserve(stream->core, spent.until_ns - now);
	/* The task may free the stream as soon as it sees this. */
	smp_store_release(&helper->busy, false);
}

static bool mtcopy_is_busy(struct mtcopy_helper *helper)
{
	/* Pairs with the release in mtcopy_helper_fn(). */
	return smp_load_acquire(&helper->busy);
}

/*
 * Wait until the helper no longer touches the stream.  After the function of a
 * work item has returned, its worker does not touch the item.
 */
static void mtcopy_end_helper(struct mtcopy_helper *helper, u64 spin_until)
{
	if (cancel_work(&helper->work))
		return;		/* it had not started */

	while (mtcopy_is_busy(helper)) {
		if (need_resched() || local_clock() > spin_until) {
			flush_work(&helper->work);
			return;
		}
		cpu_relax();
	}
}

void mtcopy_init_helpers(struct mtcopy_stream *stream)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(stream->helpers); i++) {
		INIT_WORK(&stream->helpers[i].work, mtcopy_helper_fn);
		stream->helpers[i].stream = stream;
		stream->helpers[i].cpu = -1;
	}
}

/* Make all helpers leave, and wait until none touches the stream. */
void mtcopy_end_helpers(struct mtcopy_stream *stream)
{
	u64 spin_until = local_clock() + MTCOPY_SPIN_NS;
	unsigned int i;

	WRITE_ONCE(stream->closing, true);
	for (i = 0; i < ARRAY_SIZE(stream->helpers); i++)
		if (mtcopy_is_busy(&stream->helpers[i]))
			mtcopy_end_helper(&stream->helpers[i], spin_until);
}

/*
 * Find idle CPUs, so that there can be @wanted helpers.  Returns the number of
 * helpers that there will be.  Sets @stream->cpus to the CPUs on which
 * mtcopy_start_helpers() starts new ones.
 */
unsigned int mtcopy_find_cpus(struct mtcopy_stream *stream, int nid,
			      unsigned int wanted)
{
	unsigned int i, nr_helpers = READ_ONCE(stream->nr_helpers);
	struct mtcopy_helper *helper = stream->helpers;
	struct cpumask *cpus = &stream->cpus;

	cpumask_clear(cpus);
	if (nr_helpers >= wanted)
		return nr_helpers;

	migrate_pick_idle_cpus(nid, wanted - nr_helpers, &stream->allowed, cpus);
	for (i = 0; i < ARRAY_SIZE(stream->helpers); i++, helper++) {
		/* A CPU still looks idle shortly before its helper starts. */
		if (mtcopy_is_busy(helper))
			__cpumask_clear_cpu(helper->cpu, cpus);
	}
	return nr_helpers + cpumask_weight(cpus);
}

void mtcopy_start_helpers(struct mtcopy_stream *stream)
{
	unsigned int i = 0;
	int cpu;

	for_each_cpu(cpu, &stream->cpus) {
		struct mtcopy_helper *helper;

		/* A helper stays busy for a moment after it has left. */
		while (i < ARRAY_SIZE(stream->helpers) &&
		       mtcopy_is_busy(&stream->helpers[i]))
			i++;
		if (i == ARRAY_SIZE(stream->helpers))
			break;
		helper = &stream->helpers[i];
		helper->cpu = cpu;
		helper->busy = true;
		spin_lock(&stream->lock);
		WRITE_ONCE(stream->nr_helpers, stream->nr_helpers + 1);
		spin_unlock(&stream->lock);
		queue_work_on(cpu, mtcopy_wq, &helper->work);
	}
}
