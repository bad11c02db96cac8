// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: copy migrating folios with DMAengine channels.
 *
 * The engine works on whatever driver offers DMA_MEMCPY.  A batch is cut into
 * pieces of bytes, so that one large folio and many small ones spread over the
 * channels alike.
 *
 *	main.c	the engine as the core sees it
 *	lease.c	which job gets which channels, and for how long
 *	copy.c	cutting a job into pieces, mapping and submitting them
 *	reap.c	what comes back, what does not, and when to give up
 *	learn.c	which batches are worth it
 *	math.c	the same, as far as it is arithmetic
 *	chan.c	getting channels, and giving them back
 *	sysfs.c	/sys/module/dcbm/
 *
 * Nothing on the way of a batch allocates with reclaim: the caller may be
 * reclaiming memory, and holds the locks of all folios.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/mempool.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>

#include "dcbm.h"

/* Batches that are copied at the same time without any allocation. */
#define DCBM_POOL_MIN 4

/* New speeds count for an eighth. */
#define DCBM_SPEED_SHIFT 3

atomic64_t dcbm_folios_migrated;
atomic64_t dcbm_folios_failed;
atomic64_t dcbm_batches_small;
atomic64_t dcbm_batches_busy;
atomic64_t dcbm_folios_held;
atomic_t dcbm_folios_held_now;

unsigned int dcbm_timeout_ms = 1000;
module_param_named(timeout_ms, dcbm_timeout_ms, uint, 0644);
MODULE_PARM_DESC(timeout_ms, "give up a channel that has been silent for so long, default 1000");

unsigned int dcbm_poll_us = 200;
module_param_named(poll_us, dcbm_poll_us, uint, 0644);
MODULE_PARM_DESC(poll_us, "spin for batches that take no longer than this, default 200; sleep for others");

unsigned int dcbm_max_failures = 16;
module_param_named(max_failures, dcbm_max_failures, uint, 0644);
MODULE_PARM_DESC(max_failures, "take a channel out of use after so many errors in a row, default 16");

struct workqueue_struct *dcbm_wq;
/* A cache, as jobs are too large for kmalloc() to keep some at hand. */
static struct kmem_cache *dcbm_job_cache;
static mempool_t *dcbm_jobs;

static void dcbm_job_free(struct kref *ref)
{
	mempool_free(container_of(ref, struct dcbm_job, ref), dcbm_jobs);
}

void dcbm_job_put(struct dcbm_job *job)
{
	kref_put(&job->ref, dcbm_job_free);
}

/* NULL when there is no memory without reclaiming any. */
struct dcbm_job *dcbm_job_new(struct migrate_copy_batch *batch)
{
	/* No reclaim, no wakeup of kswapd, no reserves: see mempool_alloc(). */
	struct dcbm_job *job = mempool_alloc(dcbm_jobs, __GFP_NOWARN);
	unsigned int i;

	if (!job)
		return NULL;
	kref_init(&job->ref);
	job->batch = batch;
	job->nr_pairs = batch->nr_pairs;
	job->nr_flying = 0;
	INIT_LIST_HEAD(&job->chans);
	job->nr_chans = 0;
	job->next_pair = 0;
	job->next_offset = 0;
	job->expected_ns = 0;
	init_waitqueue_head(&job->wq);
	atomic_set(&job->nr_done, 0);
	job->wake_at = 1;
	for (i = 0; i < batch->nr_pairs; i++) {
		struct dcbm_pair *pair = &job->pairs[i];

		pair->src = batch->pairs[i].src;
		pair->dst = batch->pairs[i].dst;
		atomic_set(&pair->nr_flying, 0);
		pair->error = 0;
		pair->held = false;
	}
	return job;
}

/* How long will it take, at the speed at which the channels went before? */
static u64 dcbm_expected_ns(const struct dcbm_job *job)
{
	struct dcbm_chan *chan;
	u64 sum = 0;

	list_for_each_entry(chan, &job->chans, lease) {
		if (!chan->ns_per_mib)
			return 0;
		sum += chan->ns_per_mib;
	}
	sum = div_u64(sum, job->nr_chans * job->nr_chans);
	return mul_u64_u64_div_u64(sum, job->batch->bytes, SZ_1M);
}

static void dcbm_note_speed(struct dcbm_chan *chan)
{
	u64 ns = chan->progress_ns - chan->first_ns;
	u64 sample;

	if (!chan->lease_bytes)
		return;
	sample = div64_u64(ns * SZ_1M, chan->lease_bytes);
	if (chan->ns_per_mib)
		sample = chan->ns_per_mib -
			(chan->ns_per_mib >> DCBM_SPEED_SHIFT) +
			(sample >> DCBM_SPEED_SHIFT);
	chan->ns_per_mib = max(sample, 1ULL);
}

/* Are the channels about equally fast, as far as is known? */
static bool dcbm_chans_are_even(const struct dcbm_job *job)
{
	u64 min_ns = U64_MAX, max_ns = 0;
	struct dcbm_chan *chan;

	list_for_each_entry(chan, &job->chans, lease) {
		if (!chan->ns_per_mib)
			return true;
		min_ns = min(min_ns, chan->ns_per_mib);
		max_ns = max(max_ns, chan->ns_per_mib);
	}
	return max_ns / 2 < min_ns;
}

/* Is it so fast that each descriptor counts? */
static bool dcbm_job_is_short(const struct dcbm_job *job)
{
	return job->expected_ns <= READ_ONCE(dcbm_poll_us) * NSEC_PER_USEC;
}

/*
 * Copy a job that has channels, and give them back.  When this returns, each
 * pair has its result, and no device is at any folio that is not held.
 */
void dcbm_job_run(struct dcbm_job *job)
{
	struct migrate_copy_pair *pairs = job->batch->pairs;
	struct dcbm_chan *chan;
	unsigned int i;

	job->expected_ns = dcbm_expected_ns(job);
	job->piece = dcbm_piece(job->batch->bytes, job->nr_chans,
				dcbm_job_is_short(job) &&
				dcbm_chans_are_even(job));
	job->start_ns = ktime_get_ns();

	dcbm_submit(job);
	while (dcbm_reap(job))
		dcbm_submit(job);

	list_for_each_entry(chan, &job->chans, lease) {
		dcbm_note_speed(chan);
		/* One that takes nothing is met nowhere else. */
		dcbm_chan_judge(chan);
	}
	dcbm_unlease(job);

	for (i = 0; i < job->nr_pairs; i++) {
		int error = job->pairs[i].error;

		/* Channels that take nothing, or the end of its time. */
		if (!error && (i > job->next_pair ||
			       (i == job->next_pair &&
				job->next_offset < folio_size(pairs[i].src))))
			error = -EBUSY;
		/* A held pair has its result already. */
		if (!pairs[i].held)
			pairs[i].result = error;
	}
}

static void dcbm_count_folios(const struct migrate_copy_batch *batch)
{
	unsigned int i, nr_failed = 0;

	for (i = 0; i < batch->nr_pairs; i++)
		nr_failed += !!batch->pairs[i].result;
	atomic64_add(batch->nr_pairs - nr_failed, &dcbm_folios_migrated);
	atomic64_add(nr_failed, &dcbm_folios_failed);
}

static int dcbm_copy(struct migrate_copy_batch *batch)
{
	struct dcbm_job *job;
	int ret;

	if (!dcbm_is_on() || batch->nr_pairs > DCBM_MAX_PAIRS)
		return -EOPNOTSUPP;
	dcbm_learn_sometimes();
	if (!dcbm_pays(batch->nr_pairs, batch->bytes)) {
		atomic64_inc(&dcbm_batches_small);
		return -EOPNOTSUPP;
	}

	job = dcbm_job_new(batch);
	if (!job) {
		atomic64_inc(&dcbm_batches_busy);
		return -EBUSY;
	}
	ret = dcbm_lease(job, batch->dst_nid, dcbm_worth_waiting_ns(batch));
	if (!ret) {
		dcbm_job_run(job);
		dcbm_count_folios(batch);
	} else if (ret == -EBUSY) {
		atomic64_inc(&dcbm_batches_busy);
	}
	dcbm_job_put(job);
	return ret;
}

/* A hint: asked before a batch is put together. */
static bool dcbm_wants(int dst_nid, size_t bytes)
{
	return dcbm_is_on() && dcbm_any_idle() && dcbm_pays(1, bytes);
}

const struct migrate_engine_ops dcbm_ops = {
	.version = MIGRATE_ENGINE_VERSION,
	.name = "dcbm",
	.owner = THIS_MODULE,
	.copy = dcbm_copy,
	.wants = dcbm_wants,
};

static int __init dcbm_init(void)
{
	int ret = -ENOMEM;

	/* Late callbacks let go of memory. */
	dcbm_wq = alloc_workqueue("dcbm", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!dcbm_wq)
		return ret;
	dcbm_job_cache = KMEM_CACHE(dcbm_job, 0);
	if (!dcbm_job_cache)
		goto destroy_wq;
	dcbm_jobs = mempool_create_slab_pool(DCBM_POOL_MIN, dcbm_job_cache);
	if (!dcbm_jobs)
		goto destroy_cache;
	ret = dcbm_sysfs_init();
	if (ret)
		goto destroy_jobs;
	ret = migrate_engine_register(&dcbm_ops);
	if (ret)
		goto exit_sysfs;
	return 0;

exit_sysfs:
	dcbm_sysfs_exit();
destroy_jobs:
	mempool_destroy(dcbm_jobs);
destroy_cache:
	kmem_cache_destroy(dcbm_job_cache);
destroy_wq:
	destroy_workqueue(dcbm_wq);
	return ret;
}

/* When built in: after the files of the module have been made. */
late_initcall(dcbm_init);

static void __exit dcbm_exit(void)
{
	migrate_engine_unregister(&dcbm_ops);
	dcbm_learn_exit();
	/* Closes the door to administrators, and gives the channels back. */
	dcbm_sysfs_exit();
	destroy_workqueue(dcbm_wq);
	mempool_destroy(dcbm_jobs);
	kmem_cache_destroy(dcbm_job_cache);
}
module_exit(dcbm_exit);

MODULE_DESCRIPTION("Copy migrating folios with DMAengine channels");
MODULE_LICENSE("GPL");
