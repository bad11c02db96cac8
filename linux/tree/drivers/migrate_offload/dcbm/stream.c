// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: streams, and the jobs in them.
 *
 * A stream has channels, and a queue of jobs.  A channel that has got through
 * half of what it had gets more, of the same job or of the next, so that no
 * channel stands still between two batches.  A folio is reported as soon as
 * nothing of it is left to do, whatever else is in its batch.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/mempool.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "dcbm.h"

/* A task that waits spins for so long, and then sleeps. */
#define DCBM_POLL_NS (200ULL * NSEC_PER_USEC)

static mempool_t *dcbm_streams;

/*
 * Channels that took nothing of an earlier batch may do so now.  How many are
 * there?  One that takes nothing is judged here, as it is met nowhere else.
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

/*
 * Put a batch into the queue.  Returns 0, or -EBUSY, after which nothing was
 * begun.
 */
int dcbm_stream_submit(struct dcbm_stream *stream,
		       struct migrate_copy_batch *batch)
{
	struct dcbm_job *job;
	unsigned int nr_chans;
	size_t bytes;

	dcbm_collect(stream);
	/* So much together is worth more channels. */
	stream->bytes = max(stream->bytes, stream->open_bytes + batch->bytes);
	dcbm_balance(stream);
	nr_chans = dcbm_stream_revive(stream);
	job = nr_chans ? dcbm_job_new(stream, batch) : NULL;
	if (!job)
		return -EBUSY;

	bytes = batch->bytes - dcbm_share_set(job, nr_chans);
	job->piece = dcbm_piece(bytes, nr_chans);
	job->start_ns = ktime_get_ns();
	list_add_tail(&job->node, &stream->jobs);
	stream->nr_open += job->nr_pairs;
	stream->open_bytes += batch->bytes;
	dcbm_feed(stream);
	return 0;
}

static unsigned long dcbm_check_jiffies(void)
{
	return max(msecs_to_jiffies(READ_ONCE(dcbm_timeout_ms)) / 8, 1UL);
}

/* Take all jobs forward, as far as that goes without waiting. */
static void dcbm_stream_progress(struct dcbm_stream *stream)
{
	dcbm_collect(stream);
	if (time_after_eq(jiffies, stream->check_at)) {
		dcbm_check(stream);
		stream->check_at = jiffies + dcbm_check_jiffies();
	}
	if (stream->parts)
		dcbm_balance(stream);
	if (stream->hungry)
		dcbm_feed(stream);
}

static bool dcbm_stream_has_news(const struct dcbm_stream *stream)
{
	return atomic_read(&stream->nr_events) >= stream->wake_at;
}

/*
 * To sleep and be woken takes longer than many transfers, so spin for a while,
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

/* Wait until something comes back, or for a part of the timeout. */
static void dcbm_stream_wait(struct dcbm_stream *stream, u64 until)
{
	struct dcbm_job *job = list_first_entry_or_null(&stream->jobs,
							struct dcbm_job, node);
	unsigned long most = dcbm_check_jiffies();
	u64 now;

	/* The last one was cut short when no channel took what was left. */
	if (!job)
		return;
	if (dcbm_is_hungry(stream) || dcbm_poll(stream, until))
		return;
	now = ktime_get_ns();
	if (now >= until)
		return;
	/* A task that leaves the CPU to others sleeps until all of the job is done. */
	WRITE_ONCE(stream->wake_at, stream->sparing ?
				    job->nr_pairs - job->nr_reported : 1);
	if (until - now >= jiffies_to_nsecs(most))
		wait_event_timeout(stream->wq, dcbm_stream_has_news(stream),
				   most);
	else
		wait_event_hrtimeout(stream->wq, dcbm_stream_has_news(stream),
				     ns_to_ktime(until - now));
	/* Until we sleep again, nobody needs to look whether we do. */
	WRITE_ONCE(stream->wake_at, INT_MAX);
}

/*
 * Take all jobs forward until there is something to report, but for no longer
 * than @wait_ns.
 */
void dcbm_stream_reap(struct dcbm_stream *stream, u64 wait_ns)
{
	u64 nr_reported = stream->nr_reported;
	u64 now, until = U64_MAX;

	if (!wait_ns && !atomic_read(&stream->nr_events))
		return;
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

/*
 * A stream that has channels, or NULL and -EBUSY or -EOPNOTSUPP.  @sparing: it
 * leaves the CPU alone.
 */
struct dcbm_stream *dcbm_stream_open(int nid, size_t bytes, bool sparing,
				     int *error)
{
	/* As in dcbm_job_new(). */
	struct dcbm_stream *stream = mempool_alloc(dcbm_streams, __GFP_NOWARN);

	*error = -EBUSY;
	if (!stream)
		return NULL;
	memset(stream, 0, sizeof(*stream));
	INIT_LIST_HEAD(&stream->chans);
	INIT_LIST_HEAD(&stream->jobs);
	stream->nid = nid;
	stream->bytes = bytes;
	stream->sparing = sparing;
	stream->check_at = jiffies + dcbm_check_jiffies();
	init_waitqueue_head(&stream->wq);
	stream->wake_at = INT_MAX;
	*error = dcbm_lease(stream);
	if (!*error)
		return stream;
	mempool_free(stream, dcbm_streams);
	return NULL;
}

/* All pairs of all its batches have been reported. */
void dcbm_stream_close(struct dcbm_stream *stream)
{
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
