// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: dividing jobs into pieces and submitting them.
 *
 * A piece is a range of one folio, or of several that are next to each other on
 * both sides.  Each piece has a mapping for the device that copies it, one
 * descriptor and one callback.  So source and destination match with any IOMMU,
 * and different devices can copy parts of one folio.  A piece is unmapped as soon
 * as its callback has come.
 */

#include <linux/dma-mapping.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/math.h>
#include <linux/mm.h>
#include <linux/sched.h>

#include "dcbm.h"

static int dcbm_slot_map(struct dcbm_slot *slot)
{
	const struct dcbm_pair *pair = &slot->job->pairs[slot->start.pair];
	struct device *dev = slot->chan->dev;
	size_t nr = slot->start.offset >> PAGE_SHIFT;
	size_t offset = offset_in_page(slot->start.offset);
	int rc = slot->chan->believed ? 0 : dcbm_tail_mark(slot);

	if (rc)
		return rc;
	slot->src = dma_map_page(dev, folio_page(pair->src, nr), offset,
				 slot->bytes, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, slot->src))
		return -ENOMEM;
	slot->dst = dma_map_page(dev, folio_page(pair->dst, nr), offset,
				 slot->bytes, DMA_FROM_DEVICE);
	if (dma_mapping_error(dev, slot->dst)) {
		dma_unmap_page(dev, slot->src, slot->bytes, DMA_TO_DEVICE);
		return -ENOMEM;
	}
	return 0;
}

static struct dcbm_slot *dcbm_slot_get(struct dcbm_chan *chan)
{
	struct dcbm_slot *slot;
	unsigned long flags;

	if (list_empty(&chan->spare)) {
		spin_lock_irqsave(&chan->lock, flags);
		list_splice_init(&chan->free, &chan->spare);
		spin_unlock_irqrestore(&chan->lock, flags);
	}
	slot = list_first_entry_or_null(&chan->spare, struct dcbm_slot, node);
	if (slot)
		list_del_init(&slot->node);
	return slot;
}

/* Returns where the channels' part of a folio ends. */
static size_t dcbm_end_of(const struct dcbm_job *job, unsigned int nr)
{
	return nr == job->limit.pair ? job->limit.offset : job->pairs[nr].bytes;
}

/* Returns true if the next folio of the job can be in the same piece. */
static bool dcbm_adjoins(const struct dcbm_pair *pair)
{
	unsigned long nr_pages = pair->bytes >> PAGE_SHIFT;
	const struct dcbm_pair *next = pair + 1;

	return !next->error &&
		folio_pfn(pair->src) + nr_pages == folio_pfn(next->src) &&
		folio_pfn(pair->dst) + nr_pages == folio_pfn(next->dst);
}

/* Let a piece begin at the next place, and have at most @most bytes. */
static void dcbm_slot_size(struct dcbm_slot *slot, size_t most)
{
	const struct dcbm_job *job = slot->job;
	struct migrate_copy_pos end = job->next;

	slot->start = job->next;
	for (slot->bytes = 0;; end.pair++, end.offset = 0) {
		size_t part = min(dcbm_end_of(job, end.pair) - end.offset,
				  most - slot->bytes);

		end.offset += part;
		slot->bytes += part;
		slot->end = end;
		if (slot->bytes == most || end.pair == job->limit.pair ||
		    !dcbm_end_of(job, end.pair + 1) ||
		    !dcbm_adjoins(&job->pairs[end.pair]))
			break;
	}
}

/* Find the next piece.  Returns false if there is none. */
static bool dcbm_next_piece(struct dcbm_job *job)
{
	while (job->next.pair <= job->limit.pair) {
		/* The core copies all of a failed folio, so skip the rest. */
		if (!job->pairs[job->next.pair].error &&
		    job->next.offset < dcbm_end_of(job, job->next.pair))
			return true;
		if (job->next.pair == job->limit.pair)
			break;
		job->next.pair++;
		job->next.offset = 0;
	}
	return false;
}

/* Returns the first job with something left to submit, or NULL. */
static struct dcbm_job *dcbm_next_job(const struct dcbm_stream *stream)
{
	struct dcbm_job *job;

	list_for_each_entry(job, &stream->jobs, node)
		if (dcbm_next_piece(job))
			return job;
	return NULL;
}

static void dcbm_chan_failed(struct dcbm_chan *chan)
{
	atomic64_inc(&chan->errors);
	chan->failures++;
}

/* A driver without a limit for segments takes at least this much. */
#define DCBM_SAFE_PIECE SZ_64K

/*
 * The driver returned no descriptor for @bytes.  If pieces are in flight, its
 * pool may be empty, so wait until one comes back.  Otherwise @bytes may be too
 * many.  If not, the channel takes nothing more of this batch.
 */
static void dcbm_chan_refused(struct dcbm_chan *chan, size_t bytes)
{
	if (chan->nr_flying) {
		chan->full = true;
	} else if (bytes > DCBM_SAFE_PIECE) {
		chan->max_piece = max_t(size_t, DCBM_SAFE_PIECE,
					rounddown(bytes / 2, PAGE_SIZE));
	} else {
		chan->dead = true;
		dcbm_chan_failed(chan);
	}
}

/* Returns how many transfers the channel has in flight and in doubt. */
static unsigned int dcbm_nr_used(const struct dcbm_chan *chan)
{
	return chan->nr_flying + READ_ONCE(chan->nr_away);
}

/*
 * Submit a mapped piece.  The callback may come before dmaengine_submit()
 * returns, so fill the slot first.  Some drivers hold a lock from prep to
 * submit, so do not sleep or call the driver in between.
 *
 * If @more pieces follow at once, the last of them may interrupt for all.  But
 * the channel must take it, so only if as many were in flight before.
 */
static int dcbm_slot_fly(struct dcbm_slot *slot, bool more)
{
	struct dcbm_chan *chan = slot->chan;
	bool quiet = more && chan->batches &&
		     dcbm_nr_used(chan) + 1 < chan->nr_most;
	struct dma_async_tx_descriptor *tx;
	unsigned int nr_used = chan->nr_flying - READ_ONCE(chan->nr_done);
	unsigned long nr_sleeps = current->nvcsw;
	unsigned long flags;
	bool called_back;

	tx = dmaengine_prep_dma_memcpy(chan->dma, slot->dst, slot->src,
				       slot->bytes, DMA_CTRL_ACK |
				       (quiet ? 0 : DMA_PREP_INTERRUPT));
	/* The driver waited because the queue was full.  Never fill it again. */
	if (current->nvcsw != nr_sleeps && nr_used)
		WRITE_ONCE(chan->max_transfers,
			   clamp(nr_used / 2, 1U, chan->max_transfers));
	if (!tx)
		return -EAGAIN;

	tx->callback_result = dcbm_callback;
	tx->callback_param = slot;
	slot->error = 0;
	slot->cookie = 0;
	WRITE_ONCE(slot->state, DCBM_SLOT_FLYING);
	WRITE_ONCE(slot->cookie, dmaengine_submit(tx));
	if (!dma_submit_error(slot->cookie)) {
		chan->quiet = quiet;
		WRITE_ONCE(chan->descriptors, chan->descriptors + 1);
		WRITE_ONCE(chan->interrupts, chan->interrupts + !quiet);
		return 0;
	}

	/*
	 * The device never starts this piece.  If the driver has called back
	 * nevertheless, the slot is on chan->done: dcbm_chan_collect() ends it.
	 * Otherwise use this slot last, as idxd may call back even now, if its
	 * interrupt thread had the descriptor.
	 */
	spin_lock_irqsave(&chan->lock, flags);
	called_back = slot->state != DCBM_SLOT_FLYING;
	if (called_back) {
		slot->error = -EIO;
	} else {
		WRITE_ONCE(slot->state, DCBM_SLOT_FREE);
		list_add_tail(&slot->node, &chan->free);
	}
	spin_unlock_irqrestore(&chan->lock, flags);
	return called_back ? 0 : -EIO;
}

/*
 * Returns the channel with the fewest bytes in flight, or NULL if none takes
 * more.  Each may have up to @most bytes in flight, see dcbm_max_flying().
 */
static struct dcbm_chan *dcbm_pick(const struct dcbm_stream *stream,
				   size_t most)
{
	struct dcbm_chan *chan, *best = NULL;

	list_for_each_entry(chan, &stream->chans, lease) {
		if (chan->full || chan->dead || chan->parting ||
		    dcbm_nr_used(chan) >= READ_ONCE(chan->max_transfers))
			continue;
		if (chan->flying_bytes < most) {
			most = chan->flying_bytes;
			best = chan;
		}
	}
	return best;
}

/*
 * Submit one more piece of at most @run bytes to the channel, or note that the
 * channel refuses it.  Returns the rest of the run: 0 if the run is over.
 */
static size_t dcbm_feed_one(struct dcbm_job *job, struct dcbm_chan *chan,
			    size_t run)
{
	struct dcbm_slot *slot = dcbm_slot_get(chan);
	unsigned int nr = job->next.pair;
	int rc;

	if (!slot) {
		dcbm_chan_refused(chan, 0);
		return 0;
	}
	slot->job = job;
	dcbm_slot_size(slot, min(run, chan->max_piece));
	rc = dcbm_slot_map(slot);
	if (rc) {
		/*
		 * The IOMMU or bounce buffers are full, so the core copies the
		 * first folio.  Or the last one is poisoned, and the core must
		 * not read it again.  The next piece has the others.
		 */
		if (rc == -EHWPOISON)
			nr = slot->end.pair;
		list_add(&slot->node, &chan->spare);
		goto fail;
	}
	/* Set the time before the submission: the callback may come at once. */
	if (!chan->nr_flying)
		chan->progress_ns = ktime_get_ns();
	job->next = slot->end;
	run -= slot->bytes;
	if (dcbm_nr_used(chan) + 1 >= READ_ONCE(chan->max_transfers) ||
	    !dcbm_next_piece(job))
		run = 0;
	rc = dcbm_slot_fly(slot, run);
	if (!rc) {
		chan->nr_flying++;
		chan->nr_most = max(chan->nr_most, dcbm_nr_used(chan));
		chan->flying_bytes += slot->bytes;
		chan->unissued = true;
		job->stream->nr_flying++;
		for (nr = slot->start.pair; nr <= slot->end.pair; nr++)
			job->pairs[nr].nr_flying++;
		return run;
	}
	job->next = slot->start;
	dcbm_slot_unmap(slot);
	if (rc == -EAGAIN) {
		list_add(&slot->node, &chan->spare);
		dcbm_chan_refused(chan, slot->bytes);
		return 0;
	}
	dcbm_chan_failed(chan);
fail:
	dcbm_pair_fail(job, nr, rc);
	dcbm_pair_check(job, nr);
	return 0;
}

/* Cut the first job if its time is over.  Later jobs have not begun theirs. */
static void dcbm_cut_if_late(struct dcbm_stream *stream)
{
	struct dcbm_job *job = list_first_entry_or_null(&stream->jobs,
							struct dcbm_job, node);
	u64 timeout_ns = dcbm_timeout_ns();

	if (job && dcbm_next_piece(job) && ktime_get_ns() - job->start_ns >
	    timeout_ns + dcbm_extra_ns(job->batch->bytes, timeout_ns))
		dcbm_job_cut(job);
}

/*
 * Start the channels, and set when each wants more pieces.  A channel must not
 * run dry before the task wakes up, but the task must not wake for each piece.
 */
static void dcbm_issue(struct dcbm_stream *stream)
{
	struct dcbm_chan *chan;

	list_for_each_entry(chan, &stream->chans, lease) {
		WRITE_ONCE(chan->hungry_at, DIV_ROUND_UP(chan->nr_flying, 2));
		if (!chan->unissued)
			continue;
		dma_async_issue_pending(chan->dma);
		chan->unissued = false;
		/* The last piece of a run was refused, so none interrupts. */
		if (chan->quiet)
			stream->check_at = jiffies;
	}
}

/*
 * Returns true if a channel has completed half of its pieces, and more can be
 * submitted.  A callback that came before ->hungry was set counted no event for
 * this, so check before the task sleeps.
 */
bool dcbm_is_hungry(const struct dcbm_stream *stream)
{
	struct dcbm_chan *chan;

	if (!stream->hungry)
		return false;
	list_for_each_entry(chan, &stream->chans, lease)
		if (chan->nr_flying &&
		    READ_ONCE(chan->nr_done) >= chan->hungry_at)
			return true;
	return false;
}

/*
 * Submit as much as the channels take, one job after the other.  The task calls
 * this again after dcbm_collect() has found completed pieces.
 */
void dcbm_feed(struct dcbm_stream *stream)
{
	size_t most = dcbm_max_flying(dcbm_timeout_ns());
	struct dcbm_chan *chan;
	struct dcbm_job *job;
	size_t run;

	dcbm_cut_if_late(stream);
	do {
		while ((job = dcbm_next_job(stream))) {
			chan = dcbm_pick(stream, most);
			if (!chan)
				break;
			run = job->pairs[job->next.pair].bytes < DCBM_MIN_PIECE ?
			      job->run : job->piece;
			while (run)
				run = dcbm_feed_one(job, chan, run);
		}
	} while (!job && dcbm_share_take(stream));
	dcbm_issue(stream);
	WRITE_ONCE(stream->hungry, job || dcbm_share_left(stream));
	/* A callback sees ->hungry, or dcbm_is_hungry() sees its ->nr_done. */
	smp_mb();

	/* No channel takes a piece or will call back: the core copies them. */
	while (!stream->nr_flying && (job = dcbm_next_job(stream)))
		dcbm_job_cut(job);
}
