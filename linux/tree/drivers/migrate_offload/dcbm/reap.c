// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: callbacks, missing callbacks and timeouts.
 *
 * A descriptor ends in one of these ways:
 *
 * - Its callback comes with a result, and dcbm accounts for the piece.
 * - Its callback comes, but the device may not have ended: doubt.c.
 * - The driver says that it is complete, but no callback comes, because an
 *   interrupt was lost.  The data is in place.  The slot stays reserved, as the
 *   callback may still come.
 * - No callback comes before the timeout, and the driver can stop the device.
 *   dcbm has it stopped, and the core copies the folio.
 * - No callback comes, and nothing can stop the device: doubt.c.  The channel is
 *   retired.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <kunit/visibility.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>

#include "dcbm.h"

/* Ask the driver of a device that was silent for this part of the timeout. */
#define DCBM_ASK_DIVISOR 8

/* With a shorter timeout, a busy CPU would look like a dead device. */
#define DCBM_MIN_TIMEOUT_NS (10ULL * NSEC_PER_MSEC)

unsigned int dcbm_timeout_ms = 1000;
module_param_named(timeout_ms, dcbm_timeout_ms, uint, 0644);
MODULE_PARM_DESC(timeout_ms, "give up a channel that has been silent for so long, default 1000");
EXPORT_SYMBOL_IF_KUNIT(dcbm_timeout_ms);

struct workqueue_struct *dcbm_wq;

/* Returns how many bytes of pair @nr are in the piece. */
static size_t dcbm_part(const struct dcbm_slot *slot, unsigned int nr)
{
	size_t start = nr == slot->start.pair ? slot->start.offset : 0;

	return (nr == slot->end.pair ? slot->end.offset :
		slot->job->pairs[nr].bytes) - start;
}

/*
 * Count an event if the callback is the last one of a folio, or if its
 * channel is about to run dry while pieces wait.  The job and the stream still
 * exist: see dcbm_callback().  The task sets ->wake_at, and then checks the
 * count when it sleeps.  Both sides have a full barrier, so the task sees the
 * new count, or this function sees ->wake_at.
 */
static void dcbm_heard_of(struct dcbm_slot *slot)
{
	struct dcbm_job *job = slot->job;
	struct dcbm_stream *stream = job->stream;
	struct dcbm_chan *chan = slot->chan;
	unsigned int nr;
	int events = 0;

	for (nr = slot->start.pair; nr <= slot->end.pair; nr++) {
		struct dcbm_pair *pair = &job->pairs[nr];
		size_t part = dcbm_part(slot, nr);

		/* No other context counts down a folio that is in one piece. */
		events += part == pair->bytes ||
			  atomic_sub_and_test(part, &pair->bytes_left);
	}
	/* The task sees ->nr_done in dcbm_is_hungry(), or ->hungry is set here. */
	smp_mb();
	if (READ_ONCE(stream->hungry) &&
	    chan->nr_done >= READ_ONCE(chan->hungry_at))
		events += DCBM_URGENT;
	if (events && atomic_add_return(events, &stream->nr_events) >=
	    READ_ONCE(stream->wake_at))
		wake_up(&stream->wq);
}

/*
 * The driver calls this in any context.  A job and its stream exist while one
 * of their slots is in flight.  The task takes chan->lock before it ends a
 * slot, so both exist until this function releases the lock.
 */
void dcbm_callback(void *param, const struct dmaengine_result *result)
{
	struct dcbm_slot *slot = param;
	struct dcbm_chan *chan = slot->chan;
	unsigned long flags;

	spin_lock_irqsave(&chan->lock, flags);
	if (result && result->result != DMA_TRANS_NOERROR)
		slot->error = result->result == DMA_TRANS_ABORTED ?
			      DCBM_ABORTED : -EIO;
	switch (slot->state) {
	case DCBM_SLOT_FLYING:
		WRITE_ONCE(slot->state, DCBM_SLOT_DONE);
		list_add_tail(&slot->node, &chan->done);
		WRITE_ONCE(chan->nr_done, chan->nr_done + 1);
		dcbm_heard_of(slot);
		break;
	case DCBM_SLOT_HELD:
		WRITE_ONCE(slot->state, DCBM_SLOT_LATE);
		list_add_tail(&slot->node, &chan->late);
		chan->nr_held--;
		dcbm_chan_pin(chan);
		queue_work(dcbm_wq, &chan->late_work);
		break;
	case DCBM_SLOT_FREE:
		/* A late word of idxd about a submission that failed. */
		break;
	default:
		WARN_ONCE(1, "%s called back twice\n",
			  kobject_name(&chan->kobj));
	}
	spin_unlock_irqrestore(&chan->lock, flags);
}

/* The piece is no longer in flight.  This may free its job. */
static void dcbm_slot_landed(struct dcbm_slot *slot)
{
	struct dcbm_job *job = slot->job;
	unsigned int nr;

	slot->chan->nr_flying--;
	slot->chan->flying_bytes -= slot->bytes;
	job->stream->nr_flying--;
	for (nr = slot->start.pair; nr <= slot->end.pair; nr++) {
		struct dcbm_pair *pair = &job->pairs[nr];

		if (--pair->nr_flying)
			continue;
		if (pair->held)
			dcbm_pair_put(pair);
		/*
		 * Only the task may report: see expire.c.  Only the report of
		 * the last folio frees the job.
		 */
		if (job->stream->helped)
			job->stream->unreported = true;
		else
			dcbm_pair_check(job, nr);
	}
}

/* The device no longer uses this piece. */
static void dcbm_slot_end(struct dcbm_slot *slot, int error)
{
	struct dcbm_chan *chan = slot->chan;
	unsigned int nr;

	dcbm_slot_unmap(slot);
	if (error) {
		for (nr = slot->start.pair; nr <= slot->end.pair; nr++)
			dcbm_pair_fail(slot->job, nr, error);
		atomic64_inc(&chan->errors);
		chan->failures += error != -ETIMEDOUT;
	} else {
		atomic64_add(slot->bytes, &chan->bytes);
		chan->failures = 0;
	}
	dcbm_slot_landed(slot);
}

/* Account for the pieces that were called back. */
static void dcbm_chan_collect(struct dcbm_chan *chan)
{
	struct dcbm_slot *slot, *next;
	unsigned long flags;
	bool kept = false;
	LIST_HEAD(done);

	if (!READ_ONCE(chan->nr_done))
		return;
	spin_lock_irqsave(&chan->lock, flags);
	list_splice_init(&chan->done, &done);
	WRITE_ONCE(chan->nr_done, 0);
	spin_unlock_irqrestore(&chan->lock, flags);

	chan->progress_ns = ktime_get_ns();
	list_for_each_entry_safe(slot, next, &done, node) {
		if (unlikely(!dcbm_slot_is_over(slot))) {
			dcbm_slot_keep(slot);
			dcbm_slot_landed(slot);
			kept = true;
			continue;
		}
		if (!slot->error)
			dcbm_kept_end(chan, slot->cookie);
		dcbm_slot_end(slot, slot->error);
		/* Its callback has come, so no other context uses the slot. */
		WRITE_ONCE(slot->state, DCBM_SLOT_FREE);
	}
	list_splice(&done, &chan->spare);

	chan->failures += kept;
	chan->full = false;
	dcbm_chan_judge(chan);
}

/* Account for the pieces of a stream that were called back. */
void dcbm_collect(struct dcbm_stream *stream)
{
	struct dcbm_chan *chan;

	/* Reset the count first: events during the collection stay counted. */
	atomic_xchg(&stream->nr_events, 0);
	list_for_each_entry(chan, &stream->chans, lease)
		dcbm_chan_collect(chan);
}

/*
 * Ask the driver about a piece whose callback has not come.  Trust the answer
 * only if the channel completes in order, and the piece's last word is there: the
 * driver may count a piece that was dropped, failed or aborted as complete.
 */
static bool dcbm_slot_is_complete(struct dcbm_chan *chan,
				  struct dcbm_slot *slot)
{
	/* The driver may run the callback here. */
	return chan->ordered &&
		dma_async_is_tx_complete(chan->dma, slot->cookie, NULL, NULL) ==
		DMA_COMPLETE && !chan->believed && dcbm_tail_written(slot);
}

/*
 * Claim a slot in flight: it is free, or held for @job.  Returns false if its
 * callback came.
 */
static bool dcbm_slot_claim(struct dcbm_slot *slot, enum dcbm_slot_state state,
			    struct dcbm_job *job)
{
	struct dcbm_chan *chan = slot->chan;
	bool claimed = false;
	unsigned long flags;

	spin_lock_irqsave(&chan->lock, flags);
	if (slot->state == DCBM_SLOT_FLYING) {
		WRITE_ONCE(slot->state, state);
		if (state == DCBM_SLOT_FREE) {
			list_add(&slot->node, &chan->free);
		} else {
			slot->job = job;
			WRITE_ONCE(chan->nr_away, chan->nr_away + 1);
			chan->nr_held++;
			dcbm_chan_pin(chan);
		}
		claimed = true;
	}
	spin_unlock_irqrestore(&chan->lock, flags);
	return claimed;
}

/* No callback reports this claimed piece.  @slot is a copy. */
static void dcbm_slot_account(const struct dcbm_slot *slot)
{
	unsigned int nr;

	for (nr = slot->start.pair; nr <= slot->end.pair; nr++)
		dcbm_account(slot->job, &slot->job->pairs[nr],
			     dcbm_part(slot, nr));
}

/*
 * An interrupt may have been lost, so ask the driver.  If the driver runs the
 * callback now, dcbm_chan_collect() finds it as usual.
 */
static void dcbm_chan_ask(struct dcbm_chan *chan)
{
	unsigned int failures = chan->failures;
	bool lost = false;
	int i;

	for (i = 0; i < DCBM_SLOTS; i++) {
		struct dcbm_slot *slot = &chan->slots[i];
		struct dcbm_slot copy;

		if (READ_ONCE(slot->state) != DCBM_SLOT_FLYING ||
		    !dcbm_slot_is_complete(chan, slot))
			continue;
		/*
		 * Copy the slot before the claim, as its callback may free the
		 * slot afterwards.  A callback before the claim changes only
		 * fields that are not used here.
		 */
		copy = data_race(*slot);
		if (!dcbm_slot_claim(slot, DCBM_SLOT_HELD, NULL))
			continue;
		dcbm_slot_account(&copy);
		dcbm_slot_end(&copy, 0);
		lost = true;
	}
	if (!lost)
		return;
	chan->full = false;
	chan->progress_ns = ktime_get_ns();
	/* Nothing was lost if none of the pieces had to interrupt. */
	if (chan->quiet)
		return;
	atomic64_inc(&chan->errors);
	/* dcbm_slot_end() cleared ->failures, as the copy is complete. */
	chan->failures = failures + 1;
	pr_warn_ratelimited("%s: complete, but nobody said so; lost interrupt?\n",
			    kobject_name(&chan->kobj));
	dcbm_chan_judge(chan);
}

/* The driver has terminated all transfers, so no callback will come. */
static void dcbm_chan_stopped(struct dcbm_chan *chan)
{
	int i;

	for (i = 0; i < DCBM_SLOTS; i++) {
		struct dcbm_slot *slot = &chan->slots[i];
		/* Only the copy of a slot in flight is used. */
		struct dcbm_slot copy = data_race(*slot);

		if (!dcbm_slot_claim(slot, DCBM_SLOT_FREE, NULL))
			continue;
		dcbm_slot_account(&copy);
		dcbm_slot_end(&copy, -ETIMEDOUT);
	}
	dcbm_chan_forget(chan);
}

/*
 * Nothing can stop the device, so hold each folio that the device may use.
 * Hold the folio before claiming its slot: after the claim, the callback may
 * end the hold.  Returns the number of claimed slots.
 */
static unsigned int dcbm_chan_hold(struct dcbm_chan *chan)
{
	unsigned int i, nr = 0;

	for (i = 0; i < DCBM_SLOTS; i++) {
		struct dcbm_slot *slot = &chan->slots[i];
		/* As in dcbm_chan_ask(), a callback changes no field in use. */
		struct dcbm_slot copy = data_race(*slot);

		if (READ_ONCE(slot->state) != DCBM_SLOT_FLYING)
			continue;
		dcbm_slot_hold(&copy);
		if (dcbm_slot_claim(slot, DCBM_SLOT_HELD, copy.job)) {
			dcbm_slot_account(&copy);
			dcbm_slot_landed(&copy);
			nr++;
			continue;
		}
		/* The callback came just now.  Collecting it ends the hold. */
		dcbm_slot_unhold(&copy);
	}
	return nr;
}

/* The channel was silent for too long, or the time of a job is over. */
static void dcbm_chan_give_up(struct dcbm_chan *chan)
{
	unsigned int nr_held;

	dcbm_chan_ask(chan);
	dcbm_chan_collect(chan);
	if (!chan->nr_flying)
		return;

	/* Two timeouts in a row retire a channel, whatever max_failures is. */
	chan->failures += DIV_ROUND_UP(dcbm_max_failures, 2);
	atomic64_inc(&chan->timeouts);
	if (READ_ONCE(chan->stops) && !dmaengine_terminate_sync(chan->dma)) {
		dcbm_chan_collect(chan);
		dcbm_chan_stopped(chan);
		chan->full = false;
		chan->progress_ns = ktime_get_ns();
		dcbm_chan_judge(chan);
		return;
	}

	nr_held = dcbm_chan_hold(chan);
	dcbm_chan_collect(chan);
	if (!nr_held)
		return;
	atomic64_add(nr_held, &chan->errors);
	dcbm_chan_retire(chan, "a transfer did not end; its pages are out of use until it does");
}

/* dcbm_check() runs at intervals, so act one interval before the timeout. */
static u64 dcbm_limit_ns(void)
{
	u64 limit_ns = max(dcbm_timeout_ns(), DCBM_MIN_TIMEOUT_NS);

	return limit_ns - limit_ns / DCBM_ASK_DIVISOR;
}

static bool dcbm_chan_has(struct dcbm_chan *chan, const struct dcbm_job *job)
{
	int i;

	for (i = 0; i < DCBM_SLOTS; i++)
		if (READ_ONCE(chan->slots[i].state) == DCBM_SLOT_FLYING &&
		    chan->slots[i].job == job)
			return true;
	return false;
}

/*
 * Check channels that have been silent for a while, and those that copy a job
 * whose time is over.  Later jobs lose only their pieces on the same channels.
 */
void dcbm_check(struct dcbm_stream *stream)
{
	struct dcbm_job *job = list_first_entry_or_null(&stream->jobs,
							struct dcbm_job, node);
	u64 limit_ns = dcbm_limit_ns();
	u64 now = ktime_get_ns();
	struct dcbm_chan *chan;
	bool expired;

	if (!job)
		return;
	/* dcbm_chan_give_up() may end the job. */
	kref_get(&job->ref);
	expired = now - job->start_ns > 2 * limit_ns +
		  dcbm_extra_ns(job->batch->bytes, dcbm_timeout_ns());
	list_for_each_entry(chan, &stream->chans, lease) {
		u64 silent_ns = now - chan->progress_ns;

		if (!chan->nr_flying || chan->progress_ns > now)
			continue;
		if (silent_ns >= limit_ns ||
		    (expired && dcbm_chan_has(chan, job)))
			dcbm_chan_give_up(chan);
		else if (chan->quiet || silent_ns >= limit_ns / DCBM_ASK_DIVISOR)
			dcbm_chan_ask(chan);
		if (chan->quiet)
			stream->check_at = jiffies + 1;
	}
	dcbm_job_put(job);
}
