// SPDX-License-Identifier: GPL-2.0-only
/*
 * mtcopy: copy migrating folios with several CPUs.
 *
 * A batch is cut into chunks of bytes, so that a single large folio and many
 * small ones spread alike.  Whoever is free takes the next chunk of the oldest
 * batch: helpers, on CPUs that were idle when a batch came, and the caller,
 * when it has nothing better to do.
 *
 * Helpers stay with a stream.  When a batch has no chunk left they go on with
 * the next, and when there is none they linger for a moment, as another one may
 * come: to wake a CPU takes longer.  They go when nothing comes, when somebody
 * else wants their CPU, and when the stream ends.
 *
 * The caller can do it all alone, so it never waits for a helper to start, only
 * for those in the middle of a chunk: first spinning, as that is a moment, and
 * then asleep.  Where helpers would not pay, because there is little to copy or
 * no CPU is idle, a batch is declined and the ordinary path copies it.  Helpers
 * run from a workqueue with a rescuer, and nothing is allocated with reclaim:
 * the caller may be reclaiming memory itself.
 *
 * Who may touch what:
 *
 * - Chunks are handed out under the lock of the stream.  Who has one may touch
 *   its job, the batch and the folios until it has accounted for the last byte
 *   of the chunk, as till then a pair of the job is not done; afterwards nothing
 *   but the stream.  So the caller may let go of a job when all its pairs are
 *   done, without asking who was at it.
 * - A helper may touch the stream until it clears mtcopy_helper.busy, which is
 *   the last thing it does.  The caller lets go of the stream when no helper is
 *   busy.  All else in a stream is the caller's, unless it says otherwise.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/cpumask.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/mempool.h>
#include <linux/migrate_copy_offload.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/stat.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

/* The caller and its helpers. */
#define MTCOPY_MAX_THREADS 32

/* The core asks for no more pairs at once. */
#define MTCOPY_MAX_PAIRS 512

/*
 * Chunks for each thread: enough that a helper which starts late, or is
 * preempted, leaves most of its share to the others.
 */
#define MTCOPY_CHUNKS_PER_THREAD 4
#define MTCOPY_MAX_CHUNKS 256

/*
 * And no larger than this, as far as MTCOPY_MAX_CHUNKS allows.  When the caller
 * has nothing left to do, it waits for the chunks that helpers are at; if other
 * work comes to a helper's CPU, that is how much is held up.  At 10 GB/s it
 * takes 7 us, against taking a lock that is rarely held.
 */
#define MTCOPY_MAX_CHUNK_BYTES SZ_64K

/* How long to spin for a helper: what takes longer has been preempted. */
#define MTCOPY_SPIN_NS (100 * NSEC_PER_USEC)

/*
 * How long a helper stays when there is nothing to copy: as long as it has been
 * copying, so that it is of use at least half of the time, within these.  The
 * lower one is about what it takes to wake it again.
 */
#define MTCOPY_LINGER_MIN_NS (50 * NSEC_PER_USEC)
#define MTCOPY_LINGER_MAX_NS NSEC_PER_MSEC

/* Streams that there can be at the same time without any allocation. */
#define MTCOPY_POOL_MIN 4

/* A pair of a batch. */
struct mtcopy_pair {
	struct llist_node node;		/* in mtcopy_stream.done */
	atomic_long_t bytes_left;
	unsigned int index;
};

/* A batch being copied. */
struct mtcopy_job {
	struct list_head list;		/* in .ready or .spare of the stream */
	struct migrate_copy_batch *batch;
	unsigned int next_chunk;	/* under the lock of the stream */
	unsigned int nr_chunks;
	unsigned int nr_pairs;
	unsigned int nr_left;		/* pairs, not yet reported */
	size_t chunk_bytes;
	struct migrate_copy_pos starts[MTCOPY_MAX_CHUNKS];
	struct mtcopy_pair pairs[MTCOPY_MAX_PAIRS];
};

struct mtcopy_stream;

struct mtcopy_helper {
	struct work_struct work;
	struct mtcopy_stream *stream;
	int cpu;
	bool alone;			/* on its CPU, when it left */
	bool busy;			/* set by the caller, cleared by it */
};

struct mtcopy_stream {
	spinlock_t lock;		/* protects the next three */
	struct list_head ready;		/* jobs with chunks to take */
	size_t ready_bytes;		/* about, of them */
	unsigned int nr_helpers;	/* that will look at @ready again */

	struct llist_head done;		/* pairs to report, the latest first */
	wait_queue_head_t wait;		/* the caller, for @done */
	bool closing;			/* nothing will come any more */

	size_t submitted;		/* bytes */
	unsigned int nr_pairs;		/* in flight */
	struct list_head spare;		/* jobs to use again */
	struct cpumask cpus;
	struct mtcopy_helper helpers[MTCOPY_MAX_THREADS - 1];
};

static unsigned int max_threads;
module_param(max_threads, uint, 0644);
MODULE_PARM_DESC(max_threads,
		 "CPUs that copy one batch, the caller's included; 0: as many as are idle, at most 32; 1: decline all batches");

/* To wake an idle CPU takes some ten us; at 10 GB/s, 256 KiB take 26. */
static unsigned int min_thread_bytes = SZ_256K;
module_param(min_thread_bytes, uint, 0644);
MODULE_PARM_DESC(min_thread_bytes,
		 "bytes that each CPU gets to copy at least, default 262144; less than twice as much in all is declined");

static struct workqueue_struct *mtcopy_wq;
static mempool_t *mtcopy_streams;
static mempool_t *mtcopy_jobs;

/* Take the next chunk of the oldest job.  Returns the job, or NULL. */
static struct mtcopy_job *mtcopy_take(struct mtcopy_stream *stream,
				      unsigned int *chunk)
{
	struct mtcopy_job *job;

	spin_lock(&stream->lock);
	job = list_first_entry_or_null(&stream->ready, struct mtcopy_job, list);
	if (job) {
		*chunk = job->next_chunk++;
		stream->ready_bytes -= job->chunk_bytes;
		if (job->next_chunk == job->nr_chunks)
			list_del(&job->list);
	}
	spin_unlock(&stream->lock);
	return job;
}

/* A part of a pair is copied.  If it was the last one, tell the caller. */
static void mtcopy_account(struct mtcopy_stream *stream,
			   struct mtcopy_pair *pair, size_t bytes)
{
	if (atomic_long_sub_return(bytes, &pair->bytes_left))
		return;

	/* The job may be gone as soon as the caller sees this. */
	llist_add(&pair->node, &stream->done);
	/* Adding is a full barrier, as is what the caller does to sleep. */
	if (waitqueue_active(&stream->wait))
		wake_up(&stream->wait);
}

/* Any number of CPUs do this at once, each with a chunk of its own. */
static void mtcopy_copy_chunk(struct mtcopy_stream *stream,
			      struct mtcopy_job *job, unsigned int chunk)
{
	struct migrate_copy_batch *batch = job->batch;
	struct migrate_copy_pos pos = job->starts[chunk];
	unsigned int nr_pairs = job->nr_pairs;
	size_t left = job->chunk_bytes;

	while (left && pos.pair < nr_pairs) {
		struct mtcopy_pair *pair = &job->pairs[pos.pair];
		size_t size = folio_size(batch->pairs[pos.pair].src);
		size_t part = min(left, size - pos.offset);

		migrate_copy_range(batch, pos, part);
		left -= part;
		pos.pair++;
		pos.offset = 0;
		/* After the last one both @job and @batch may be gone. */
		mtcopy_account(stream, pair, part);
	}
}

/* Wait for more to do.  Returns false when it is time to go. */
static bool mtcopy_linger(struct mtcopy_stream *stream, u64 linger_ns)
{
	u64 until = local_clock() + linger_ns;

	while (list_empty(&stream->ready)) {
		if (READ_ONCE(stream->closing) || !single_task_running() ||
		    local_clock() > until)
			return false;
		cpu_relax();
	}
	return true;
}

/*
 * Go, unless there is something to do after all: a batch that was submitted
 * counts on those who were there.  Only who is not alone goes in any case.
 */
static bool mtcopy_leave(struct mtcopy_stream *stream, bool alone)
{
	bool leaves;

	spin_lock(&stream->lock);
	leaves = !alone || list_empty(&stream->ready);
	stream->nr_helpers -= leaves;
	spin_unlock(&stream->lock);
	return leaves;
}

static void mtcopy_helper_fn(struct work_struct *work)
{
	struct mtcopy_helper *helper =
		container_of(work, struct mtcopy_helper, work);
	struct mtcopy_stream *stream = helper->stream;
	u64 ns, begin = local_clock();
	struct mtcopy_job *job;
	unsigned int chunk;

	for (;;) {
		while ((job = mtcopy_take(stream, &chunk))) {
			mtcopy_copy_chunk(stream, job, chunk);
			if (!single_task_running())
				break;
		}
		ns = clamp(local_clock() - begin, MTCOPY_LINGER_MIN_NS,
			   MTCOPY_LINGER_MAX_NS);
		if (!job && mtcopy_linger(stream, ns)) {
			begin = local_clock();
			continue;
		}
		helper->alone = single_task_running();
		if (mtcopy_leave(stream, helper->alone))
			break;
	}
	/* The stream may be gone as soon as the caller sees this. */
	smp_store_release(&helper->busy, false);
}

static bool mtcopy_is_busy(struct mtcopy_helper *helper)
{
	/* Pairs with the release in mtcopy_helper_fn(). */
	return smp_load_acquire(&helper->busy);
}

/*
 * After this the helper does not touch the stream.  A worker does not look at a
 * work item again after it has called its function.
 */
static void mtcopy_end_helper(struct mtcopy_helper *helper, u64 spin_until)
{
	if (cancel_work(&helper->work))
		return;		/* has not begun, and will not */

	while (mtcopy_is_busy(helper)) {
		if (need_resched() || local_clock() > spin_until) {
			flush_work(&helper->work);
			return;
		}
		cpu_relax();
	}
}

/* How many CPUs would so many bytes keep busy, if they were idle? */
static unsigned int mtcopy_wanted_threads(size_t bytes)
{
	unsigned int limit = READ_ONCE(max_threads) ?: MTCOPY_MAX_THREADS;
	size_t share = max(READ_ONCE(min_thread_bytes), PAGE_SIZE);

	limit = min(limit, MTCOPY_MAX_THREADS);
	return min_t(size_t, limit, bytes / share);
}

static bool mtcopy_wants(int dst_nid, size_t bytes)
{
	return mtcopy_wanted_threads(bytes) >= 2 && migrate_any_idle_cpu();
}

static int mtcopy_open(struct migrate_copy_stream *copy_stream)
{
	struct mtcopy_stream *stream;
	unsigned int i;

	if (mtcopy_wanted_threads(copy_stream->bytes) < 2)
		return -EOPNOTSUPP;

	/* No reclaim, no wakeup of kswapd, no reserves: see mempool_alloc(). */
	stream = mempool_alloc(mtcopy_streams, __GFP_NOWARN);
	if (!stream)
		return -EBUSY;

	memset(stream, 0, sizeof(*stream));
	spin_lock_init(&stream->lock);
	INIT_LIST_HEAD(&stream->ready);
	INIT_LIST_HEAD(&stream->spare);
	init_waitqueue_head(&stream->wait);
	for (i = 0; i < ARRAY_SIZE(stream->helpers); i++) {
		INIT_WORK(&stream->helpers[i].work, mtcopy_helper_fn);
		stream->helpers[i].stream = stream;
		stream->helpers[i].cpu = -1;
	}
	copy_stream->private = stream;
	return 0;
}

/*
 * Find CPUs, so that there can be @wanted helpers.  Returns how many there will
 * be, and in @stream->cpus where they have to be started.
 */
static unsigned int mtcopy_find_cpus(struct mtcopy_stream *stream, int nid,
				     unsigned int wanted)
{
	unsigned int i, nr_helpers = READ_ONCE(stream->nr_helpers);
	struct mtcopy_helper *helper = stream->helpers;
	struct cpumask *cpus = &stream->cpus;

	cpumask_clear(cpus);
	if (nr_helpers >= wanted)
		return nr_helpers;

	migrate_pick_idle_cpus(nid, wanted - nr_helpers, cpus);
	for (i = 0; i < ARRAY_SIZE(stream->helpers); i++, helper++) {
		/* A CPU is idle also when its helper is about to begin... */
		if (mtcopy_is_busy(helper)) {
			__cpumask_clear_cpu(helper->cpu, cpus);
			continue;
		}
		/* ...and not yet when it just left because of nothing to do. */
		if (helper->alone &&
		    nr_helpers + cpumask_weight(cpus) < wanted)
			__cpumask_set_cpu(helper->cpu, cpus);
		helper->alone = false;
	}
	return nr_helpers + cpumask_weight(cpus);
}

static void mtcopy_start_helpers(struct mtcopy_stream *stream)
{
	unsigned int i = 0;
	int cpu;

	for_each_cpu(cpu, &stream->cpus) {
		struct mtcopy_helper *helper;

		/* Some have left, but are not gone yet. */
		while (i < ARRAY_SIZE(stream->helpers) &&
		       mtcopy_is_busy(&stream->helpers[i]))
			i++;
		if (i == ARRAY_SIZE(stream->helpers))
			break;
		helper = &stream->helpers[i];
		helper->cpu = cpu;
		helper->busy = true;
		spin_lock(&stream->lock);
		stream->nr_helpers++;
		spin_unlock(&stream->lock);
		queue_work_on(cpu, mtcopy_wq, &helper->work);
	}
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
			    struct migrate_copy_batch *batch,
			    unsigned int nr_threads)
{
	size_t nr_chunks = max_t(size_t, nr_threads * MTCOPY_CHUNKS_PER_THREAD,
				 DIV_ROUND_UP(batch->bytes,
					      MTCOPY_MAX_CHUNK_BYTES));
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

/* How many CPUs should be at work after this batch was submitted? */
static unsigned int mtcopy_threads_for(const struct mtcopy_stream *stream,
				       size_t stream_bytes, size_t batch_bytes)
{
	size_t now = READ_ONCE(stream->ready_bytes) + batch_bytes;
	unsigned int nr = mtcopy_wanted_threads(now);

	/* One helper pays if there is enough to come for it. */
	if (nr < 2 && stream_bytes > stream->submitted)
		nr = min(mtcopy_wanted_threads(stream_bytes - stream->submitted),
			 2);
	return nr;
}

/*
 * What comes when there is no helper, and none can be had, is declined: the
 * caller is no faster than the ordinary path.  The next may have better luck.
 */
static int mtcopy_submit(struct migrate_copy_stream *copy_stream,
			 struct migrate_copy_batch *batch)
{
	struct mtcopy_stream *stream = copy_stream->private;
	unsigned int nr_helpers, nr_threads;
	struct mtcopy_job *job;

	if (batch->nr_pairs > MTCOPY_MAX_PAIRS)
		return -EOPNOTSUPP;

	nr_threads = mtcopy_threads_for(stream, copy_stream->bytes,
					batch->bytes);
	nr_helpers = mtcopy_find_cpus(stream, batch->dst_nid,
				      max(nr_threads, 1) - 1);
	if (!nr_helpers)
		return nr_threads < 2 ? -EOPNOTSUPP : -EBUSY;
	job = mtcopy_get_job(stream);
	if (!job)
		return -EBUSY;

	mtcopy_fill_job(job, batch, nr_helpers + 1);
	stream->submitted += batch->bytes;
	stream->nr_pairs += job->nr_pairs;
	spin_lock(&stream->lock);
	list_add_tail(&job->list, &stream->ready);
	stream->ready_bytes += job->nr_chunks * job->chunk_bytes;
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

/* All chunks are taken, and some not done: wait for those who are at them. */
static void mtcopy_wait(struct mtcopy_stream *stream, u64 wait_ns)
{
	u64 waited, begin = local_clock();

	while (llist_empty(&stream->done)) {
		waited = local_clock() - begin;
		if (waited >= wait_ns)
			return;
		if (need_resched() || waited > MTCOPY_SPIN_NS) {
			/* KTIME_MAX, which is no limit, is less than U64_MAX. */
			wait_ns = min(wait_ns - waited, (u64)KTIME_MAX);
			wait_event_hrtimeout(stream->wait,
					     !llist_empty(&stream->done),
					     wait_ns);
			return;
		}
		cpu_relax();
	}
}

static void mtcopy_reap(struct migrate_copy_stream *copy_stream, u64 wait_ns)
{
	struct mtcopy_stream *stream = copy_stream->private;
	struct mtcopy_job *job;
	unsigned int chunk;
	u64 begin;

	if (mtcopy_report(stream) || !wait_ns || !stream->nr_pairs)
		return;

	begin = local_clock();
	while ((job = mtcopy_take(stream, &chunk))) {
		mtcopy_copy_chunk(stream, job, chunk);
		if (mtcopy_report(stream) || local_clock() - begin >= wait_ns)
			return;
	}
	mtcopy_wait(stream, wait_ns);
	mtcopy_report(stream);
}

static void mtcopy_close(struct migrate_copy_stream *copy_stream)
{
	struct mtcopy_stream *stream = copy_stream->private;
	struct mtcopy_job *job, *next;
	u64 spin_until;
	unsigned int i;

	WRITE_ONCE(stream->closing, true);
	spin_until = local_clock() + MTCOPY_SPIN_NS;
	for (i = 0; i < ARRAY_SIZE(stream->helpers); i++)
		if (mtcopy_is_busy(&stream->helpers[i]))
			mtcopy_end_helper(&stream->helpers[i], spin_until);

	list_for_each_entry_safe(job, next, &stream->spare, list)
		mempool_free(job, mtcopy_jobs);
	mempool_free(stream, mtcopy_streams);
}

static const struct migrate_engine_ops mtcopy_ops = {
	.version = MIGRATE_ENGINE_VERSION,
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

	mtcopy_wq = alloc_workqueue("mtcopy", WQ_MEM_RECLAIM | WQ_CPU_INTENSIVE,
				    0);
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
