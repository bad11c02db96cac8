// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: streams, and the jobs in them.
 *
 * A stream has channels and a queue of jobs.  A channel that has completed half
 * of its pieces gets more, of the same job or of the next.  So no channel runs
 * dry between two batches.  dcbm reports a folio as soon as it is done, even if
 * other folios of its batch are not.
 */

#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/mempool.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "dcbm.h"

/* A task that waits spins for this time, and then sleeps. */
#define DCBM_POLL_NS (200ULL * NSEC_PER_USEC)

atomic64_t dcbm_batches_busy;

static mempool_t *dcbm_streams;

/*
 * Channels that refused an earlier batch may take this one.  Returns the number
 * of channels that may.  dcbm_collect() judges a channel after a callback.  A
 * channel that refuses everything has no callbacks, so judge it here.
 */
static unsigned int dcbm_stream_revive(struct dcbm_stream *stream)
{
	struct dcbm_chan *chan;
	unsigned int nr = 0;

	list_for_each_entry(chan, &stream->chans, lease) {
		dcbm_chan_judge(chan);
		chan->dead = chan->retiring;
		nr += !chan->dead && !chan->parting;
	}
	return nr;
}

/* Account for pieces, and report what the worker could not: see expire.c. */
static void dcbm_stream_collect(struct dcbm_stream *stream)
{
	struct dcbm_job *job, *next;
	unsigned int nr;

	dcbm_collect(stream);
	if (likely(!stream->unreported))
		return;
	stream->unreported = false;
	list_for_each_entry_safe(job, next, &stream->jobs, node) {
		/* The last report ends the job and its use of the batch. */
		kref_get(&job->ref);
		for (nr = 0; nr < job->nr_pairs && job->batch; nr++)
			if (!job->batch->pairs[nr].done)
				dcbm_pair_check(job, nr);
		dcbm_job_put(job);
	}
}

/* Add a batch to the queue.  Returns 0, or an error if nothing was started. */
int dcbm_stream_submit(struct migrate_copy_stream *s,
		       struct migrate_copy_batch *batch)
{
	struct dcbm_stream *stream = s->private;
	struct dcbm_job *job;
	unsigned int nr_chans;
	size_t bytes;

	if (batch->nr_pairs > DCBM_MAX_PAIRS)
		return -EOPNOTSUPP;
	dcbm_enter(stream);
	dcbm_stream_collect(stream);
	/* All open jobs together may be worth more channels. */
	stream->bytes = max(stream->bytes, stream->open_bytes + batch->bytes);
	dcbm_balance(stream);
	nr_chans = dcbm_stream_revive(stream);
	job = nr_chans ? dcbm_job_new(stream, batch) : NULL;
	if (!job) {
		dcbm_leave(stream);
		atomic64_inc(&dcbm_batches_busy);
		return -EBUSY;
	}

	bytes = batch->bytes - dcbm_share_set(job, nr_chans);
	job->piece = dcbm_piece(bytes, nr_chans);
	job->run = dcbm_run(bytes, nr_chans);
	job->start_ns = ktime_get_ns();
	list_add_tail(&job->node, &stream->jobs);
	stream->nr_open += job->nr_pairs;
	stream->open_bytes += batch->bytes;
	dcbm_feed(stream);
	dcbm_leave(stream);
	return 0;
}

static unsigned long dcbm_check_jiffies(void)
{
	return max(msecs_to_jiffies(READ_ONCE(dcbm_timeout_ms)) / 8, 1UL);
}

/* Advance all jobs without waiting. */
static void dcbm_stream_progress(struct dcbm_stream *stream)
{
	dcbm_stream_collect(stream);
	if (time_after_eq(jiffies, stream->check_at)) {
		stream->check_at = jiffies + dcbm_check_jiffies();
		dcbm_check(stream);
	}
	if (stream->parts)
		dcbm_balance(stream);
	if (stream->hungry)
		dcbm_feed(stream);
}

/*
 * Sleeping and waking up takes longer than many transfers, so spin for a while,
 * unless another task wants the CPU.  Returns true if there is something to do.
 */
static bool dcbm_poll(const struct dcbm_stream *stream, u64 until)
{
	if (stream->sparing)
		return false;
	until = min(until, stream->waits_since_ns + DCBM_POLL_NS);
	while (!atomic_read(&stream->nr_events)) {
		if (need_resched() || ktime_get_ns() > until)
			return false;
		cpu_relax();
	}
	return true;
}

/* Wait for an event, but at most until the next check of the channels. */
static void dcbm_stream_sleep(struct dcbm_stream *stream, u64 until, int wake_at)
{
	long most = max((long)(stream->check_at - jiffies), 1L);
	u64 now = ktime_get_ns();

	if (now >= until)
		return;
	WRITE_ONCE(stream->wake_at, wake_at);
	if (until - now >= jiffies_to_nsecs(most))
		wait_event_timeout(stream->wq,
				   atomic_read(&stream->nr_events) >= wake_at,
				   most);
	else
		wait_event_hrtimeout(stream->wq,
				     atomic_read(&stream->nr_events) >= wake_at,
				     ns_to_ktime(until - now));
	/* While the task is awake, callbacks do not have to wake it. */
	WRITE_ONCE(stream->wake_at, INT_MAX);
}

/* Wait outside, as the task may be throttled while it spins. */
static void dcbm_stream_wait(struct dcbm_stream *stream, u64 until)
{
	struct dcbm_job *job = list_first_entry_or_null(&stream->jobs,
							struct dcbm_job, node);
	int wake_at;

	/* dcbm_feed() cut the last job, as no channel took the rest. */
	if (!job || dcbm_is_hungry(stream))
		return;
	/* A sparing stream sleeps until the whole job is done. */
	wake_at = stream->sparing ? job->nr_pairs - job->nr_reported : 1;
	dcbm_leave(stream);
	if (!dcbm_poll(stream, until))
		dcbm_stream_sleep(stream, until, wake_at);
	dcbm_enter(stream);
}

static void dcbm_stream_advance(struct dcbm_stream *stream, u64 wait_ns)
{
	u64 nr_reported = stream->nr_reported;
	u64 now, until = U64_MAX;

	dcbm_stream_progress(stream);
	if (!wait_ns)
		return;
	if (!stream->nr_open || stream->nr_reported != nr_reported)
		return;
	stream->waits_since_ns = ktime_get_ns();
	stream->waits = true;
	if (wait_ns != U64_MAX)
		until = stream->waits_since_ns + wait_ns;
	do {
		if (!dcbm_share_copy(stream, until))
			dcbm_stream_wait(stream, until);
		dcbm_stream_progress(stream);
		now = ktime_get_ns();
	} while (stream->nr_open && stream->nr_reported == nr_reported &&
		 now < until);
	stream->waits = false;
}

/* Advance all jobs until there is something to report, or for @wait_ns. */
void dcbm_stream_reap(struct migrate_copy_stream *s, u64 wait_ns)
{
	struct dcbm_stream *stream = s->private;

	/* Even a task that never waits has to notice what does not interrupt. */
	if (!wait_ns && !atomic_read(&stream->nr_events) &&
	    time_before(jiffies, READ_ONCE(stream->check_at)))
		return;
	dcbm_enter(stream);
	dcbm_stream_advance(stream, wait_ns);
	dcbm_leave(stream);
}

/* Returns 0 if the stream has channels, or -EBUSY or -EOPNOTSUPP. */
int dcbm_stream_open(struct migrate_copy_stream *s)
{
	struct dcbm_stream *stream;
	int ret = -EBUSY;

	/* The flags exclude reclaim, as in dcbm_job_new(). */
	stream = mempool_alloc(dcbm_streams, __GFP_NOWARN);
	if (!stream)
		goto busy;
	memset(stream, 0, sizeof(*stream));
	INIT_LIST_HEAD(&stream->chans);
	INIT_LIST_HEAD(&stream->jobs);
	stream->nid = s->dst_nid;
	stream->bytes = s->bytes;
	/*
	 * Compaction runs on the CPU of any task that allocates memory.  Other
	 * tasks can use the CPU time that dcbm leaves there.
	 */
	stream->sparing = s->reason == MR_COMPACTION;
	stream->check_at = jiffies + dcbm_check_jiffies();
	stream->left_at = jiffies;
	init_waitqueue_head(&stream->wq);
	stream->wake_at = INT_MAX;
	s->private = stream;
	ret = dcbm_lease(stream);
	if (!ret)
		return 0;
	mempool_free(stream, dcbm_streams);
busy:
	if (ret == -EBUSY)
		atomic64_inc(&dcbm_batches_busy);
	return ret;
}

/* All pairs of all its batches have been reported. */
void dcbm_stream_close(struct migrate_copy_stream *s)
{
	struct dcbm_stream *stream = s->private;

	dcbm_enter(stream);
	WARN_ON_ONCE(stream->nr_open || stream->nr_flying);
	dcbm_stream_revive(stream);
	dcbm_unlease(stream);
	mempool_free(stream, dcbm_streams);
}

int dcbm_stream_init(void)
{
	int ret = dcbm_job_init();

	if (ret)
		return ret;
	dcbm_streams = mempool_create_kmalloc_pool(DCBM_POOL_MIN,
						   sizeof(struct dcbm_stream));
	if (dcbm_streams)
		return 0;
	dcbm_stream_exit();
	return -ENOMEM;
}

void dcbm_stream_exit(void)
{
	mempool_destroy(dcbm_streams);
	dcbm_job_exit();
}
