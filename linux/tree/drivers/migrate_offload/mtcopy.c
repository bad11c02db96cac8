// SPDX-License-Identifier: GPL-2.0-only
/*
 * mtcopy: copy migrating folios with several CPUs.
 *
 * A batch is cut into chunks of bytes, so that a single large folio and many
 * small ones spread alike.  Whoever is free takes the next chunk: the caller,
 * and helpers on CPUs that were idle when the batch came.  The caller can do
 * it all alone, so it never waits for a helper to start: when no chunk is left
 * it cancels helpers that have not begun, and waits for those that are in the
 * middle of a chunk: a moment in which it spins, as they will soon be done, and
 * then asleep.
 *
 * Where helpers would not pay, because the batch is small or no CPU is idle,
 * the batch is declined and the ordinary path copies it.
 *
 * Helpers run from a workqueue with a rescuer, and nothing is allocated with
 * reclaim: the caller may be reclaiming memory itself.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/mempool.h>
#include <linux/migrate_copy_offload.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

/* The caller and its helpers. */
#define MTCOPY_MAX_THREADS 32

/*
 * Chunks for each thread: enough that a helper which starts late, or is
 * preempted, leaves most of its share to the others.
 */
#define MTCOPY_CHUNKS_PER_THREAD 4
#define MTCOPY_MAX_CHUNKS (MTCOPY_MAX_THREADS * MTCOPY_CHUNKS_PER_THREAD)

/*
 * And no larger than this, as far as MTCOPY_MAX_CHUNKS allows.  When the caller
 * has nothing left to do, it waits for the chunks that helpers are at; if other
 * work comes to a helper's CPU, that is how much is held up.  At 10 GB/s it
 * takes 7 us, against one atomic operation to take it.
 */
#define MTCOPY_MAX_CHUNK_BYTES SZ_64K

/*
 * How long to spin for helpers at the end.  To sleep and be woken takes longer
 * than most chunks; what takes longer than this has been preempted.
 */
#define MTCOPY_SPIN_NS (100 * NSEC_PER_USEC)

/* Batches that are copied at the same time without any allocation. */
#define MTCOPY_POOL_MIN 4

struct mtcopy_job;

struct mtcopy_helper {
	struct work_struct work;
	struct completion done;
	struct mtcopy_job *job;
};

/* One batch being copied.  Belongs to the caller, which outlives its helpers. */
struct mtcopy_job {
	struct migrate_copy_batch *batch;
	atomic_t next_chunk;
	unsigned int nr_chunks;
	size_t chunk_bytes;
	struct migrate_copy_pos starts[MTCOPY_MAX_CHUNKS];
	struct mtcopy_helper helpers[MTCOPY_MAX_THREADS - 1];
	struct cpumask cpus;
};

static unsigned int max_threads;
module_param(max_threads, uint, 0644);
MODULE_PARM_DESC(max_threads,
		 "CPUs that copy one batch, the caller's included; 0: as many as are idle, at most 32; 1: decline all batches");

/*
 * To wake an idle CPU and to wait for it takes some ten microseconds.  At
 * 10 GB/s a share of 256 KiB takes 26.
 */
static unsigned int min_thread_bytes = SZ_256K;
module_param(min_thread_bytes, uint, 0644);
MODULE_PARM_DESC(min_thread_bytes,
		 "bytes that each CPU gets to copy at least, default 262144; batches of less than twice as much are declined");

static struct workqueue_struct *mtcopy_wq;
static mempool_t *mtcopy_jobs;

/* Take chunks until there are no more.  Any number of CPUs do this at once. */
static void mtcopy_work_off(struct mtcopy_job *job)
{
	unsigned int chunk;

	while ((chunk = atomic_fetch_inc(&job->next_chunk)) < job->nr_chunks)
		migrate_copy_range(job->batch, job->starts[chunk],
				   job->chunk_bytes);
}

static void mtcopy_helper_fn(struct work_struct *work)
{
	struct mtcopy_helper *helper = container_of(work, struct mtcopy_helper,
						    work);

	mtcopy_work_off(helper->job);
	/* The job may be gone as soon as the caller sees this. */
	complete(&helper->done);
}

/*
 * After this the helper does not touch the job, nor any folio.  A worker does
 * not look at a work item again after it has called its function.
 */
static void mtcopy_finish_helper(struct mtcopy_helper *helper, u64 spin_until)
{
	if (cancel_work(&helper->work))
		return;		/* has not begun, and will not */

	while (!completion_done(&helper->done)) {
		if (need_resched() || local_clock() > spin_until) {
			wait_for_completion(&helper->done);
			return;
		}
		cpu_relax();
	}
}

/* How many CPUs would this batch keep busy, if they were idle? */
static unsigned int mtcopy_wanted_threads(size_t bytes)
{
	unsigned int limit = READ_ONCE(max_threads) ?: MTCOPY_MAX_THREADS;
	size_t share = max(READ_ONCE(min_thread_bytes), PAGE_SIZE);

	limit = min(limit, MTCOPY_MAX_THREADS);
	return min_t(size_t, limit, bytes / share);
}

static unsigned int mtcopy_wanted_chunks(size_t bytes, unsigned int nr_threads)
{
	size_t nr = max_t(size_t, nr_threads * MTCOPY_CHUNKS_PER_THREAD,
			  DIV_ROUND_UP(bytes, MTCOPY_MAX_CHUNK_BYTES));

	return min_t(size_t, nr, MTCOPY_MAX_CHUNKS);
}

static unsigned int mtcopy_start_helpers(struct mtcopy_job *job)
{
	unsigned int nr = 0;
	int cpu;

	for_each_cpu(cpu, &job->cpus) {
		struct mtcopy_helper *helper = &job->helpers[nr++];

		helper->job = job;
		init_completion(&helper->done);
		INIT_WORK(&helper->work, mtcopy_helper_fn);
		queue_work_on(cpu, mtcopy_wq, &helper->work);
	}
	return nr;
}

static bool mtcopy_wants(int dst_nid, size_t bytes)
{
	return mtcopy_wanted_threads(bytes) >= 2 && migrate_any_idle_cpu();
}

static int mtcopy_copy(struct migrate_copy_batch *batch)
{
	unsigned int i, nr_helpers, nr_threads;
	struct mtcopy_job *job;
	u64 spin_until;

	nr_threads = mtcopy_wanted_threads(batch->bytes);
	if (nr_threads < 2)
		return -EOPNOTSUPP;

	/* No reclaim, no wakeup of kswapd, no reserves: see mempool_alloc(). */
	job = mempool_alloc(mtcopy_jobs, __GFP_NOWARN);
	if (!job)
		return -EBUSY;

	nr_helpers = migrate_pick_idle_cpus(batch->dst_nid, nr_threads - 1,
					    &job->cpus);
	if (!nr_helpers) {
		mempool_free(job, mtcopy_jobs);
		return -EBUSY;
	}

	for (i = 0; i < batch->nr_pairs; i++)
		batch->pairs[i].result = 0;
	job->batch = batch;
	atomic_set(&job->next_chunk, 0);
	job->nr_chunks = mtcopy_wanted_chunks(batch->bytes, nr_helpers + 1);
	job->nr_chunks = migrate_copy_split(batch, job->nr_chunks, job->starts,
					    &job->chunk_bytes);

	/* The queue's lock orders what is set above before the helpers. */
	nr_helpers = mtcopy_start_helpers(job);
	mtcopy_work_off(job);
	spin_until = local_clock() + MTCOPY_SPIN_NS;
	for (i = 0; i < nr_helpers; i++)
		mtcopy_finish_helper(&job->helpers[i], spin_until);

	mempool_free(job, mtcopy_jobs);
	return 0;
}

static const struct migrate_engine_ops mtcopy_ops = {
	.version = MIGRATE_ENGINE_VERSION,
	.name = "mtcopy",
	.owner = THIS_MODULE,
	.copy = mtcopy_copy,
	.wants = mtcopy_wants,
};

static int __init mtcopy_init(void)
{
	int ret = -ENOMEM;

	mtcopy_wq = alloc_workqueue("mtcopy", WQ_MEM_RECLAIM | WQ_CPU_INTENSIVE,
				    0);
	if (!mtcopy_wq)
		return ret;
	mtcopy_jobs = mempool_create_kmalloc_pool(MTCOPY_POOL_MIN,
						  sizeof(struct mtcopy_job));
	if (!mtcopy_jobs)
		goto destroy_wq;
	ret = migrate_engine_register(&mtcopy_ops);
	if (ret)
		goto destroy_jobs;
	return 0;

destroy_jobs:
	mempool_destroy(mtcopy_jobs);
destroy_wq:
	destroy_workqueue(mtcopy_wq);
	return ret;
}
module_init(mtcopy_init);

static void __exit mtcopy_exit(void)
{
	migrate_engine_unregister(&mtcopy_ops);
	mempool_destroy(mtcopy_jobs);
	destroy_workqueue(mtcopy_wq);
}
module_exit(mtcopy_exit);

MODULE_DESCRIPTION("Copy migrating folios with several CPUs");
MODULE_LICENSE("GPL");
