// SPDX-License-Identifier: GPL-2.0-only
/*
 * mtcopy: copy migrating folios with several CPUs.
 *
 * mtcopy divides a batch into chunks of bytes, so that one large folio and many
 * small folios occupy several CPUs alike.  The migrating task and its helpers
 * copy.  Each of them takes a share, a few chunks, of the oldest batch.
 * Helpers run on CPUs that were idle when the task submitted a batch.
 *
 * Helpers stay with a stream, because waking an idle CPU takes time.  After a
 * batch, helpers spin for a moment until the next one comes.  A helper leaves
 * when no batch comes, when another task wants its CPU, or at close().
 *
 * The task can copy a batch alone, so it never waits for a helper to start, and
 * waits only for helpers that are copying a share: first it spins, then it
 * sleeps.  So a helper may leave after any share.  Helpers also leave when the
 * cgroup of the task has used up its cpu.max quota.  mtcopy declines a batch if
 * helpers would not pay: the batch is small, or no CPU is idle.  The task may
 * be reclaiming memory.  So helpers run from a workqueue with a rescuer, and
 * mtcopy allocates without reclaim.
 *
 * Access rules:
 *
 * - The lock of the stream protects the assignment of shares.  A thread may
 *   access the job, batch and folios of its share until it accounts for the
 *   last byte.  Until then, a pair of the job is not done.  The task may free a
 *   job when all pairs are done.
 * - A helper may access the stream, and the core's part of it, until it clears
 *   mtcopy_helper.busy as its last access.  The task frees the stream when no
 *   helper is busy.  All other fields of a stream belong to the task, unless
 *   their comments say otherwise.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/leafops.h>
#include <linux/mempool.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "mtcopy.h"

/*
 * If helpers have left and there is still work, look for idle CPUs again after
 * this time.  A batch may be one folio of 1 GiB.
 */
#define MTCOPY_ASK_NS (4 * NSEC_PER_MSEC)

/* At least this many streams can be open when memory is short. */
#define MTCOPY_POOL_MIN 4

static unsigned int max_threads;
module_param(max_threads, uint, 0644);
MODULE_PARM_DESC(max_threads,
		 "CPUs that copy one batch, the caller's included; 0: as many as are idle, at most 32; 1: decline all batches");

/* Waking an idle CPU takes some 10 us.  At 10 GB/s, 256 KiB take 26 us. */
static unsigned int min_thread_bytes = SZ_256K;
module_param(min_thread_bytes, uint, 0444);
MODULE_PARM_DESC(min_thread_bytes,
		 "bytes that each CPU gets to copy at least, default 262144; less than twice as much in all is declined");

struct workqueue_struct *mtcopy_wq;
static mempool_t *mtcopy_streams;
static mempool_t *mtcopy_jobs;

/* Returns how many CPUs @bytes would keep busy, if they were idle. */
static unsigned int mtcopy_wanted_threads(size_t bytes)
{
	unsigned int limit = READ_ONCE(max_threads) ?: MTCOPY_MAX_THREADS;
	size_t share = max(min_thread_bytes, PAGE_SIZE);

	limit = min(limit, MTCOPY_MAX_THREADS);
	return min_t(size_t, limit, bytes / share);
}

static bool mtcopy_wants(int dst_nid, size_t bytes)
{
	return mtcopy_wanted_threads(bytes) >= 2 && migrate_may_use_helpers() &&
		migrate_any_idle_cpu();
}

static int mtcopy_open(struct migrate_copy_stream *copy_stream)
{
	struct mtcopy_stream *stream;

	if (mtcopy_wanted_threads(copy_stream->bytes) < 2)
		return -EOPNOTSUPP;

	/* These flags exclude reclaim, kswapd and reserves: mempool_alloc(). */
	stream = mempool_alloc(mtcopy_streams, __GFP_NOWARN);
	if (!stream)
		return -EBUSY;

	memset(stream, 0, sizeof(*stream));
	spin_lock_init(&stream->lock);
	INIT_LIST_HEAD(&stream->ready);
	INIT_LIST_HEAD(&stream->spare);
	init_waitqueue_head(&stream->wait);
	mtcopy_init_helpers(stream);
	migrate_allowed_cpus(&stream->allowed);
	stream->core = copy_stream;
	copy_stream->private = stream;
	return 0;
}

static struct mtcopy_job *mtcopy_get_job(struct mtcopy_stream *stream)
{
	struct mtcopy_job *job;

	job = list_first_entry_or_null(&stream->spare, struct mtcopy_job, list);
	if (job)
		list_del(&job->list);
	else
		job = mempool_alloc(mtcopy_jobs, __GFP_NOWARN);
	return job;
}

static void mtcopy_fill_job(struct mtcopy_job *job,
			    struct migrate_copy_batch *batch)
{
	size_t nr_chunks = DIV_ROUND_UP(batch->bytes, MTCOPY_CHUNK_BYTES);
	unsigned int i;

	job->batch = batch;
	job->nr_pairs = batch->nr_pairs;
	job->nr_left = batch->nr_pairs;
	for (i = 0; i < batch->nr_pairs; i++) {
		batch->pairs[i].result = 0;
		job->pairs[i].index = i;
		atomic_long_set(&job->pairs[i].bytes_left,
				folio_size(batch->pairs[i].src));
	}
	job->next_chunk = 0;
	job->nr_chunks = migrate_copy_split(batch,
					    min(nr_chunks, MTCOPY_MAX_CHUNKS),
					    job->starts, &job->chunk_bytes);
}

/* Returns how many CPUs should copy once the task has submitted this batch. */
static unsigned int mtcopy_threads_for(const struct mtcopy_stream *stream,
				       size_t stream_bytes, size_t batch_bytes)
{
	size_t now = READ_ONCE(stream->ready_bytes) + batch_bytes;
	unsigned int nr = mtcopy_wanted_threads(now);

	/* One helper pays if the rest of the stream is large enough. */
	if (nr < 2 && stream_bytes > stream->submitted)
		nr = min(mtcopy_wanted_threads(stream_bytes - stream->submitted),
			 2);
	return nr;
}

/*
 * Declines a batch if no helper is there and none can start: the task alone is
 * no faster than the core.  Helpers may be there for the next batch.
 */
static int mtcopy_submit(struct migrate_copy_stream *copy_stream,
			 struct migrate_copy_batch *batch)
{
	struct mtcopy_stream *stream = copy_stream->private;
	unsigned int nr_helpers, nr_threads;
	struct mtcopy_job *job;

	if (batch->nr_pairs > MTCOPY_MAX_PAIRS)
		return -EOPNOTSUPP;
	if (!migrate_copy_may_help(copy_stream))
		return -EBUSY;

	nr_threads = mtcopy_threads_for(stream, copy_stream->bytes,
					batch->bytes);
	nr_helpers = mtcopy_find_cpus(stream, batch->dst_nid,
				      max(nr_threads, 1) - 1);
	if (!nr_helpers)
		return nr_threads < 2 ? -EOPNOTSUPP : -EBUSY;
	job = mtcopy_get_job(stream);
	if (!job)
		return -EBUSY;

	stream->nid = batch->dst_nid;
	stream->asked_ns = local_clock();
	mtcopy_fill_job(job, batch);
	stream->submitted += batch->bytes;
	stream->nr_pairs += job->nr_pairs;
	spin_lock(&stream->lock);
	list_add_tail(&job->list, &stream->ready);
	WRITE_ONCE(stream->ready_bytes,
		   stream->ready_bytes + job->nr_chunks * job->chunk_bytes);
	spin_unlock(&stream->lock);
	mtcopy_start_helpers(stream);
	return 0;
}

/* Tell the core which pairs are done.  Returns false when none is. */
static bool mtcopy_report(struct mtcopy_stream *stream)
{
	struct mtcopy_pair *pair, *next;
	struct llist_node *done;

	if (llist_empty(&stream->done))
		return false;

	done = llist_reverse_order(llist_del_all(&stream->done));
	llist_for_each_entry_safe(pair, next, done, node) {
		struct mtcopy_job *job =
			container_of(pair - pair->index, struct mtcopy_job,
				     pairs[0]);

		migrate_copy_done(job->batch, pair->index);
		stream->nr_pairs--;
		if (!--job->nr_left)
			list_add(&job->list, &stream->spare);
	}
	return true;
}

/* No chunk is left to take.  Wait for a helper to complete a pair. */
static void mtcopy_wait(struct mtcopy_stream *stream, u64 wait_ns)
{
	u64 waited, begin = local_clock();

	while (llist_empty(&stream->done)) {
		waited = local_clock() - begin;
		if (waited >= wait_ns)
			return;
		if (need_resched() || waited > MTCOPY_SPIN_NS) {
			/* KTIME_MAX means no limit, as U64_MAX did. */
			wait_ns = min(wait_ns - waited, (u64)KTIME_MAX);
			wait_event_hrtimeout(stream->wait,
					     !llist_empty(&stream->done),
					     wait_ns);
			return;
		}
		cpu_relax();
	}
}

/* Look for idle CPUs again, if the last search was some time ago. */
static void mtcopy_ask_again(struct migrate_copy_stream *copy_stream)
{
	struct mtcopy_stream *stream = copy_stream->private;
	unsigned int nr_threads;
	u64 now = local_clock();

	if (now - stream->asked_ns < MTCOPY_ASK_NS)
		return;
	stream->asked_ns = now;
	nr_threads = mtcopy_wanted_threads(READ_ONCE(stream->ready_bytes));
	if (nr_threads >= 2 && migrate_copy_may_help(copy_stream) &&
	    mtcopy_find_cpus(stream, stream->nid, nr_threads - 1))
		mtcopy_start_helpers(stream);
}

static void mtcopy_reap(struct migrate_copy_stream *copy_stream, u64 wait_ns)
{
	struct mtcopy_stream *stream = copy_stream->private;
	u64 begin;

	if (mtcopy_report(stream) || !wait_ns || !stream->nr_pairs)
		return;

	begin = local_clock();
	while (mtcopy_copy_share(stream)) {
		if (mtcopy_report(stream) || local_clock() - begin >= wait_ns)
			return;
		mtcopy_ask_again(copy_stream);
	}
	mtcopy_wait(stream, wait_ns);
	mtcopy_report(stream);
}

static void mtcopy_close(struct migrate_copy_stream *copy_stream)
{
	struct mtcopy_stream *stream = copy_stream->private;
	struct mtcopy_job *job, *next;

	mtcopy_end_helpers(stream);
	list_for_each_entry_safe(job, next, &stream->spare, list)
		mempool_free(job, mtcopy_jobs);
	mempool_free(stream, mtcopy_streams);
}

static const struct migrate_engine_ops mtcopy_ops = {
	.name = "mtcopy",
	.owner = THIS_MODULE,
	.wants = mtcopy_wants,
	.open = mtcopy_open,
	.submit = mtcopy_submit,
	.reap = mtcopy_reap,
	.close = mtcopy_close,
};

static int __init mtcopy_init(void)
{
	int ret = -ENOMEM;

	mtcopy_wq = alloc_workqueue("mtcopy", WQ_PERCPU | WQ_MEM_RECLAIM |
				    WQ_CPU_INTENSIVE, 0);
	if (!mtcopy_wq)
		return -ENOMEM;
	mtcopy_streams = mempool_create_kmalloc_pool(MTCOPY_POOL_MIN,
						     sizeof(struct mtcopy_stream));
	mtcopy_jobs = mempool_create_kmalloc_pool(2 * MTCOPY_POOL_MIN,
						  sizeof(struct mtcopy_job));
	if (!mtcopy_streams || !mtcopy_jobs)
		goto destroy;
	ret = migrate_engine_register(&mtcopy_ops);
	if (!ret)
		return 0;
destroy:
	mempool_destroy(mtcopy_jobs);
	mempool_destroy(mtcopy_streams);
	destroy_workqueue(mtcopy_wq);
	return ret;
}
module_init(mtcopy_init);

static void __exit mtcopy_exit(void)
{
	migrate_engine_unregister(&mtcopy_ops);
	mempool_destroy(mtcopy_jobs);
	mempool_destroy(mtcopy_streams);
	destroy_workqueue(mtcopy_wq);
}
module_exit(mtcopy_exit);

MODULE_DESCRIPTION("Copy migrating folios with several CPUs");
MODULE_LICENSE("GPL");
