// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: cutting a job into pieces and submitting them.
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

/*
 * With the full sync, which is what brings the data out of a bounce buffer, or
 * makes it visible to CPUs when the device is not coherent.
 */
void dcbm_slot_unmap(struct dcbm_slot *slot)
{
	struct device *dev = slot->chan->dev;

	dma_unmap_page(dev, slot->src, slot->bytes, DMA_TO_DEVICE);
	dma_unmap_page(dev, slot->dst, slot->bytes, DMA_FROM_DEVICE);
}

static int dcbm_slot_map(struct dcbm_slot *slot, const struct dcbm_pair *pair,
			 size_t offset)
{
	struct device *dev = slot->chan->dev;
	unsigned long i = offset >> PAGE_SHIFT;

	slot->src = dma_map_page(dev, folio_page(pair->src, i),
				 offset_in_page(offset), slot->bytes,
				 DMA_TO_DEVICE);
	if (dma_mapping_error(dev, slot->src))
		return -ENOMEM;
	slot->dst = dma_map_page(dev, folio_page(pair->dst, i),
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

	spin_lock_irqsave(&chan->lock, flags);
	slot = list_first_entry_or_null(&chan->free, struct dcbm_slot, node);
	if (slot)
		list_del_init(&slot->node);
	spin_unlock_irqrestore(&chan->lock, flags);
	return slot;
}

static void dcbm_slot_put(struct dcbm_slot *slot)
{
	struct dcbm_chan *chan = slot->chan;
	unsigned long flags;

	spin_lock_irqsave(&chan->lock, flags);
	slot->state = DCBM_SLOT_FREE;
	list_add(&slot->node, &chan->free);
	spin_unlock_irqrestore(&chan->lock, flags);
}

/* Find the next piece.  False when there is none. */
bool dcbm_next_piece(struct dcbm_job *job)
{
	while (job->next_pair < job->nr_pairs) {
		struct dcbm_pair *pair = &job->pairs[job->next_pair];

		/* The CPU will copy all of it: no use in going on. */
		if (!pair->error && job->next_offset < folio_size(pair->src))
			return true;
		job->next_pair++;
		job->next_offset = 0;
	}
	return false;
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
	slot->cookie = dmaengine_submit(tx);
	if (!dma_submit_error(slot->cookie))
		return 0;

	/* It was never started, and its callback will not come. */
	spin_lock_irqsave(&chan->lock, flags);
	slot->state = DCBM_SLOT_FREE;
	spin_unlock_irqrestore(&chan->lock, flags);
	return -EIO;
}

/* Give the channel one more piece.  False when it does not take any. */
static bool dcbm_feed(struct dcbm_job *job, struct dcbm_chan *chan)
{
	struct dcbm_pair *pair;
	struct dcbm_slot *slot;
	int rc;

	if (chan->full || chan->dead || !dcbm_next_piece(job))
		return false;
	slot = dcbm_slot_get(chan);
	if (!slot)
		return dcbm_chan_refused(chan, 0);

	pair = &job->pairs[job->next_pair];
	slot->job = job;
	slot->pair = job->next_pair;
	slot->bytes = dcbm_next_len(folio_size(pair->src), job->next_offset,
				    job->piece, chan->max_piece);
	rc = dcbm_slot_map(slot, pair, job->next_offset);
	if (rc) {
		/* No room in an IOMMU or among bounce buffers: to the CPU. */
		pair->error = rc;
		dcbm_slot_put(slot);
		return true;
	}
	rc = dcbm_slot_fly(slot);
	if (rc) {
		dcbm_slot_unmap(slot);
		dcbm_slot_put(slot);
		if (rc == -EAGAIN)
			return dcbm_chan_refused(chan, slot->bytes);
		pair->error = rc;
		dcbm_chan_failed(chan);
		return true;
	}

	if (!chan->nr_flying)
		chan->progress_ns = ktime_get_ns();
	if (!chan->first_ns)
		chan->first_ns = chan->progress_ns;
	chan->nr_flying++;
	chan->unissued = true;
	atomic_inc(&pair->nr_flying);
	job->nr_flying++;
	job->next_offset += slot->bytes;
	return true;
}

/* When this much of the job's time is over, nothing new is started. */
static bool dcbm_out_of_time(const struct dcbm_job *job)
{
	return ktime_get_ns() - job->start_ns >
		(u64)READ_ONCE(dcbm_timeout_ms) * NSEC_PER_MSEC;
}

/*
 * Submit as much as the channels take, one piece to each in turn.  To be called
 * again after dcbm_reap() said that pieces came back.
 */
void dcbm_submit(struct dcbm_job *job)
{
	struct dcbm_chan *chan;
	bool fed;

	if (!dcbm_next_piece(job) || dcbm_out_of_time(job))
		return;
	do {
		fed = false;
		list_for_each_entry(chan, &job->chans, lease)
			fed |= dcbm_feed(job, chan);
	} while (fed);

	list_for_each_entry(chan, &job->chans, lease) {
		if (!chan->unissued)
			continue;
		chan->unissued = false;
		dma_async_issue_pending(chan->dma);
	}
}
