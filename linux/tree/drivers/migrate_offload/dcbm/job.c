// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: jobs, which are the records of batches, and when each folio is done.
 *
 * This file does not depend on channels.  A folio is done when none of its
 * pieces is in flight, and none is left to submit.
 */

#include <linux/ktime.h>
#include <linux/mempool.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "dcbm.h"

atomic64_t dcbm_folios_migrated;
atomic64_t dcbm_folios_failed;

/* A cache, because kmalloc() keeps none for objects as large as a job. */
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

/* Must not reclaim memory, so returns NULL if none is free. */
struct dcbm_job *dcbm_job_new(struct dcbm_stream *stream,
			      struct migrate_copy_batch *batch)
{
	/* These flags exclude reclaim, kswapd and reserves: mempool_alloc(). */
	struct dcbm_job *job = mempool_alloc(dcbm_jobs, __GFP_NOWARN);
	unsigned int i;

	if (!job)
		return NULL;
	kref_init(&job->ref);
	job->stream = stream;
	job->batch = batch;
	job->nr_pairs = batch->nr_pairs;
	job->nr_reported = 0;
	job->nr_failed = 0;
	job->next.pair = 0;
	job->next.offset = 0;
	for (i = 0; i < batch->nr_pairs; i++) {
		struct dcbm_pair *pair = &job->pairs[i];

		pair->src = batch->pairs[i].src;
		pair->dst = batch->pairs[i].dst;
		pair->bytes = folio_size(pair->src);
		atomic_set(&pair->bytes_left, pair->bytes);
		pair->nr_flying = 0;
		pair->error = 0;
		pair->held = false;
	}
	job->end.pair = job->nr_pairs - 1;
	job->end.offset = job->pairs[job->end.pair].bytes;
	job->limit = job->end;
	return job;
}

/* All pairs of the job have been reported. */
static void dcbm_job_finish(struct dcbm_job *job)
{
	struct dcbm_stream *stream = job->stream;
	struct dcbm_job *next = list_is_last(&job->node, &stream->jobs) ?
				NULL : list_next_entry(job, node);

	/* The time limit of the next job starts now. */
	if (next && list_is_first(&job->node, &stream->jobs))
		next->start_ns = ktime_get_ns();
	list_del(&job->node);
	stream->open_bytes -= job->batch->bytes;
	atomic64_add(job->nr_pairs - job->nr_failed, &dcbm_folios_migrated);
	atomic64_add(job->nr_failed, &dcbm_folios_failed);
	/* Held slots may keep the job, but must not use these two. */
	job->stream = NULL;
	job->batch = NULL;
	dcbm_job_put(job);
}

/* Account for bytes of a folio that no callback will report. */
void dcbm_account(struct dcbm_job *job, struct dcbm_pair *pair, size_t bytes)
{
	if (bytes && atomic_sub_and_test(bytes, &pair->bytes_left))
		atomic_inc(&job->stream->nr_events);
}

/* Returns how many bytes of a folio neither a channel nor the CPU has taken. */
static size_t dcbm_pair_unsubmitted(const struct dcbm_job *job,
				    unsigned int nr)
{
	size_t end = job->pairs[nr].bytes, start = 0;

	if (nr < job->next.pair || nr > job->end.pair)
		return 0;
	if (nr == job->next.pair)
		start = job->next.offset;
	if (nr == job->end.pair)
		end = job->end.offset;
	return end - start;
}

/*
 * Let the core copy the folio, whatever happens to its pieces in flight.  The
 * caller has to call dcbm_pair_check() afterwards.
 */
void dcbm_pair_fail(struct dcbm_job *job, unsigned int nr, int error)
{
	struct dcbm_pair *pair = &job->pairs[nr];

	if (pair->error)
		return;
	dcbm_account(job, pair, dcbm_pair_unsubmitted(job, nr));
	pair->error = error;
}

/*
 * Report a folio if nothing is left to do.  The last report may free the job,
 * so a caller that uses the job afterwards needs a reference.
 */
void dcbm_pair_check(struct dcbm_job *job, unsigned int nr)
{
	struct migrate_copy_pair *reported = &job->batch->pairs[nr];
	struct dcbm_pair *pair = &job->pairs[nr];

	if (pair->nr_flying ||
	    (!pair->error && dcbm_pair_unsubmitted(job, nr)))
		return;
	/* A held pair has its result already. */
	if (!pair->held)
		reported->result = pair->error;
	job->nr_failed += !!pair->error;
	job->stream->nr_open--;
	job->stream->nr_reported++;
	migrate_copy_done(job->batch, nr);
	if (++job->nr_reported == job->nr_pairs)
		dcbm_job_finish(job);
}

/* Submit nothing more of this job: the core copies the rest. */
void dcbm_job_cut(struct dcbm_job *job)
{
	unsigned int i;

	kref_get(&job->ref);
	job->share = 0;
	for (i = job->next.pair; i <= job->end.pair; i++) {
		if (job->pairs[i].error || !dcbm_pair_unsubmitted(job, i))
			continue;
		dcbm_pair_fail(job, i, -EBUSY);
		dcbm_pair_check(job, i);
	}
	job->limit = job->next;
	dcbm_job_put(job);
}

int dcbm_job_init(void)
{
	dcbm_job_cache = KMEM_CACHE(dcbm_job, 0);
	if (!dcbm_job_cache)
		return -ENOMEM;
	dcbm_jobs = mempool_create_slab_pool(DCBM_POOL_MIN, dcbm_job_cache);
	if (dcbm_jobs)
		return 0;
	dcbm_job_exit();
	return -ENOMEM;
}

void dcbm_job_exit(void)
{
	mempool_destroy(dcbm_jobs);
	kmem_cache_destroy(dcbm_job_cache);
}
