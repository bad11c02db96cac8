// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: cutting jobs into pieces and submitting them.
 *
 * Each piece is a part of one folio, is mapped on its own for the device that
 * copies it, and is one descriptor with one callback.  So source and
 * destination always belong together, whatever an IOMMU makes of them, devices
 * of any kind can work on one folio, and what a piece needed is undone as soon
 * as it is through.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/dma-mapping.h>
#include <linux/ktime.h>
#include <linux/mm.h>

#include "dcbm.h"

/* To look for the first one takes longer than to map it. */
static struct page *dcbm_page(struct folio *folio, size_t offset)
{
	return offset < PAGE_SIZE ? &folio->page :
				    folio_page(folio, offset >> PAGE_SHIFT);
}

static int dcbm_slot_map(struct dcbm_slot *slot, const struct dcbm_pair *pair,
			 size_t offset)
{
	struct device *dev = slot->chan->dev;

	slot->src = dma_map_page(dev, dcbm_page(pair->src, offset),
				 offset_in_page(offset), slot->bytes,
				 DMA_TO_DEVICE);
	if (dma_mapping_error(dev, slot->src))
		return -ENOMEM;
	slot->dst = dma_map_page(dev, dcbm_page(pair->dst, offset),
				 offset_in_page(offset), slot->bytes,
				 DMA_FROM_DEVICE);
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

/* It did not fly. */
static void dcbm_slot_put(struct dcbm_slot *slot)
{
	list_add(&slot->node, &slot->chan->spare);
}

/* Where does the part of the channels end, of the folio that is next? */
static size_t dcbm_next_end(const struct dcbm_job *job)
{
	if (job->next.pair == job->limit.pair)
		return job->limit.offset;
	return job->pairs[job->next.pair].bytes;
}

/* How long is the next piece, if its channel takes any? */
static size_t dcbm_next_bytes(const struct dcbm_job *job)
{
	return dcbm_next_len(dcbm_next_end(job), job->next.offset, job->piece,
			     SIZE_MAX);
}

/* Find the next piece.  False when there is none. */
static bool dcbm_next_piece(struct dcbm_job *job)
{
	while (job->next.pair <= job->limit.pair) {
		/* The CPU will copy all of it: no use in going on. */
		if (!job->pairs[job->next.pair].error &&
		    job->next.offset < dcbm_next_end(job))
			return true;
		if (job->next.pair == job->limit.pair)
			break;
		job->next.pair++;
		job->next.offset = 0;
	}
	return false;
}

/* The first job of which something is left to submit, or NULL. */
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

/* What a driver takes that has said nothing about segments. */
#define DCBM_SAFE_PIECE SZ_64K

/*
 * The channel did not take a descriptor of so many bytes.  As long as some are
 * in flight, its pool may just be empty: go on when one comes back.  With
 * nothing in flight it may be too long.  If not, there is no use in waiting.
 * Returns true if it is worth another try at once.
 */
static bool dcbm_chan_refused(struct dcbm_chan *chan, size_t bytes)
{
	if (chan->nr_flying) {
		chan->full = true;
		return false;
	}
	if (bytes > DCBM_SAFE_PIECE) {
		chan->max_piece = DCBM_SAFE_PIECE;
		return true;
	}
	chan->dead = true;
	dcbm_chan_failed(chan);
	return false;
}

/*
 * Submit a mapped piece.  From here on the callback may come at any time, and
 * some devices start right away, so the slot is ready before.  Nothing must
 * come between prep and submit: some drivers hold a lock from one to the other.
 */
static int dcbm_slot_fly(struct dcbm_slot *slot)
{
	struct dcbm_chan *chan = slot->chan;
	struct dma_async_tx_descriptor *tx;
	unsigned long flags;

	tx = dmaengine_prep_dma_memcpy(chan->dma, slot->dst, slot->src,
				       slot->bytes,
				       DMA_PREP_INTERRUPT | DMA_CTRL_ACK);
	if (!tx)
		return -EAGAIN;

	tx->callback_result = dcbm_callback;
	tx->callback_param = slot;
	slot->error = 0;
	slot->cookie = 0;
	WRITE_ONCE(slot->state, DCBM_SLOT_FLYING);
	WRITE_ONCE(slot->cookie, dmaengine_submit(tx));
	if (!dma_submit_error(slot->cookie))
		return 0;

	/* It was never started, and its callback will not come. */
	spin_lock_irqsave(&chan->lock, flags);
	WRITE_ONCE(slot->state, DCBM_SLOT_FREE);
	spin_unlock_irqrestore(&chan->lock, flags);
	return -EIO;
}

/*
 * The channel that has the least in flight; NULL when none takes any.  None has
 * more than @most, see dcbm_max_flying().
 */
static struct dcbm_chan *dcbm_pick(const struct dcbm_stream *stream,
				   size_t most)
{
	struct dcbm_chan *chan, *best = NULL;

	list_for_each_entry(chan, &stream->chans, lease) {
		if (chan->full || chan->dead || chan->parting)
			continue;
		if (chan->flying_bytes < most) {
			most = chan->flying_bytes;
			best = chan;
		}
	}
	return best;
}

/* The piece flies. */
static void dcbm_flies(struct dcbm_job *job, struct dcbm_slot *slot)
{
	struct dcbm_chan *chan = slot->chan;
	struct dcbm_pair *pair = &job->pairs[slot->pair];

	chan->nr_flying++;
	chan->flying_bytes += slot->bytes;
	chan->unissued = true;
	pair->nr_flying++;
	job->stream->nr_flying++;
	job->next.offset += slot->bytes;
}

/* Give the channel one more piece, or find that it does not take any. */
static void dcbm_feed_one(struct dcbm_job *job, struct dcbm_chan *chan)
{
	unsigned int nr = job->next.pair;
	struct dcbm_pair *pair = &job->pairs[nr];
	struct dcbm_slot *slot = dcbm_slot_get(chan);
	int rc;

	if (!slot) {
		dcbm_chan_refused(chan, 0);
		return;
	}
	slot->job = job;
	slot->pair = nr;
	slot->bytes = min(dcbm_next_bytes(job), chan->max_piece);
	rc = dcbm_slot_map(slot, pair, job->next.offset);
	if (rc) {
		/* No room in an IOMMU or among bounce buffers: to the CPU. */
		dcbm_slot_put(slot);
		dcbm_pair_fail(job, nr, rc);
		dcbm_pair_check(job, nr);
		return;
	}
	/* Before a callback can come. */
	if (!chan->nr_flying)
		chan->progress_ns = ktime_get_ns();
	atomic_inc(&pair->nr_users);
	rc = dcbm_slot_fly(slot);
	if (!rc) {
		dcbm_flies(job, slot);
		return;
	}
	atomic_dec(&pair->nr_users);
	dcbm_slot_unmap(slot);
	dcbm_slot_put(slot);
	if (rc == -EAGAIN) {
		dcbm_chan_refused(chan, slot->bytes);
		return;
	}
	dcbm_chan_failed(chan);
	dcbm_pair_fail(job, nr, rc);
	dcbm_pair_check(job, nr);
}

/* When this much of the job's time is over, nothing new is started. */
static bool dcbm_out_of_time(const struct dcbm_job *job)
{
	u64 timeout_ns = dcbm_timeout_ns();

	return ktime_get_ns() - job->start_ns >
		timeout_ns + dcbm_extra_ns(job->batch->bytes, timeout_ns);
}

/* The time of the first job runs; that of the others has not begun. */
static void dcbm_cut_if_late(struct dcbm_stream *stream)
{
	struct dcbm_job *job = list_first_entry_or_null(&stream->jobs,
							struct dcbm_job, node);

	if (job && dcbm_next_piece(job) && dcbm_out_of_time(job))
		dcbm_job_cut(job);
}

/*
 * Let the channels begin, and say when each is to be fed again: a channel must
 * not run dry before we are there, and we are not to come for every piece.
 */
static void dcbm_issue(struct dcbm_stream *stream)
{
	struct dcbm_chan *chan;

	list_for_each_entry(chan, &stream->chans, lease) {
		WRITE_ONCE(chan->hungry_at, DIV_ROUND_UP(chan->nr_flying, 2));
		if (chan->unissued)
			dma_async_issue_pending(chan->dma);
		chan->unissued = false;
	}
}

/*
 * A channel of a hungry stream has got through half of what it had.  Whoever
 * sets ->hungry asks this, as a callback that came before has not told.
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
 * Submit as much as the channels take, of one job after the other.  To be
 * called again after dcbm_collect() found that pieces came back.
 */
void dcbm_feed(struct dcbm_stream *stream)
{
	size_t most = dcbm_max_flying(dcbm_timeout_ns());
	struct dcbm_chan *chan;
	struct dcbm_job *job;

	dcbm_cut_if_late(stream);
	do {
		while ((job = dcbm_next_job(stream))) {
			chan = dcbm_pick(stream, most);
			if (!chan)
				break;
			dcbm_feed_one(job, chan);
		}
	} while (!job && dcbm_share_take(stream));
	dcbm_issue(stream);
	WRITE_ONCE(stream->hungry, job || dcbm_share_left(stream));
	/* Either a callback sees that we are hungry, or we that it came. */
	smp_mb();

	/* Nobody takes anything, and nothing is to come back. */
	while (!stream->nr_flying && (job = dcbm_next_job(stream)))
		dcbm_job_cut(job);
}
