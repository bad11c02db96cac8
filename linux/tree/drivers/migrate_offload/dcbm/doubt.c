// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: transfers that a device may not have ended.
 *
 * The device may read and write at any later time.  So dcbm holds both folios
 * and their mappings: neither is freed or written to, and the folio does not
 * migrate.
 *
 * - A held transfer has no callback yet.  The callback ends the doubt.  If only
 *   its interrupt was lost, no folio is held, but the slot stays reserved.
 * - A kept transfer was called back, but is not over: see dcbm_slot_is_over().
 *   No other callback comes.  On a channel that works in order, the end of a
 *   newer transfer ends the doubt.
 *
 * A driver that is known to stop the device ends both: see dcbm_chan_settle().
 */

#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/module.h>

#include "dcbm.h"

atomic64_t dcbm_folios_held;
atomic_t dcbm_folios_held_now;

/*
 * Unmap with a sync.  The sync copies data out of a bounce buffer, and makes
 * the writes of a device that is not coherent visible to CPUs.
 */
void dcbm_slot_unmap(struct dcbm_slot *slot)
{
	struct device *dev = slot->chan->dev;

	dma_unmap_page(dev, slot->src, slot->bytes, DMA_TO_DEVICE);
	dma_unmap_page(dev, slot->dst, slot->bytes, DMA_FROM_DEVICE);
}

/* A device may not use the folio for this reason any more.  Perhaps for none. */
void dcbm_pair_put(struct dcbm_pair *pair)
{
	if (!atomic_dec_and_test(&pair->nr_holds))
		return;
	migrate_copy_unhold(pair->src, pair->dst);
	atomic_dec(&dcbm_folios_held_now);
}

/* Hold the folios of a piece in flight, because a device may still use them. */
void dcbm_slot_hold(const struct dcbm_slot *slot)
{
	struct dcbm_job *job = slot->job;
	unsigned int nr;

	kref_get(&job->ref);
	for (nr = slot->start.pair; nr <= slot->end.pair; nr++) {
		struct dcbm_pair *pair = &job->pairs[nr];

		if (pair->held) {
			atomic_inc(&pair->nr_holds);
			continue;
		}
		/* One is for this piece.  dcbm_slot_landed() drops the other. */
		atomic_set(&pair->nr_holds, 2);
		pair->held = true;
		dcbm_pair_fail(job, nr, -ETIMEDOUT);
		migrate_copy_hold(&job->batch->pairs[nr]);
		atomic64_inc(&dcbm_folios_held);
		atomic_inc(&dcbm_folios_held_now);
	}
}

/* The device no longer uses this piece, which was held. */
void dcbm_slot_unhold(const struct dcbm_slot *slot)
{
	unsigned int nr;

	for (nr = slot->start.pair; nr <= slot->end.pair; nr++)
		dcbm_pair_put(&slot->job->pairs[nr]);
	dcbm_job_put(slot->job);
}

/*
 * Keep the module while a callback may come that dcbm has no right to prevent,
 * or while only an administrator can end the doubt.  Called with chan->lock held,
 * when one of the conditions may have changed.
 */
void dcbm_chan_pin(struct dcbm_chan *chan)
{
	bool pin = (chan->nr_held || !list_empty(&chan->kept)) && !chan->stops;

	lockdep_assert_held(&chan->lock);

	if (pin == chan->pinned)
		return;
	chan->pinned = pin;
	if (pin)
		__module_get(THIS_MODULE);
	else
		module_put(THIS_MODULE);
}

/* A piece of the stream was called back, but is not over. */
void dcbm_slot_keep(struct dcbm_slot *slot)
{
	struct dcbm_chan *chan = slot->chan;

	dcbm_slot_hold(slot);
	atomic64_inc(&chan->errors);
	spin_lock_irq(&chan->lock);
	WRITE_ONCE(slot->state, DCBM_SLOT_KEPT);
	list_move_tail(&slot->node, &chan->kept);
	WRITE_ONCE(chan->nr_away, chan->nr_away + 1);
	dcbm_chan_pin(chan);
	spin_unlock_irq(&chan->lock);
}

/* The device no longer uses these pieces, which were held or kept. */
static void dcbm_end_all(struct dcbm_chan *chan, struct list_head *over)
{
	struct dcbm_slot *slot;
	unsigned int nr = 0;

	list_for_each_entry(slot, over, node) {
		nr++;
		if (!slot->job)
			continue;
		dcbm_slot_unmap(slot);
		dcbm_slot_unhold(slot);
	}
	spin_lock_irq(&chan->lock);
	list_for_each_entry(slot, over, node)
		WRITE_ONCE(slot->state, DCBM_SLOT_FREE);
	list_splice(over, &chan->free);
	WRITE_ONCE(chan->nr_away, chan->nr_away - nr);
	dcbm_chan_pin(chan);
	spin_unlock_irq(&chan->lock);
}

/*
 * The piece with this cookie is complete.  A device that works in order has
 * ended all older ones before.  A late piece counts, too: its channel is
 * retired, so no newer piece comes.
 */
void dcbm_kept_end(struct dcbm_chan *chan, dma_cookie_t cookie)
{
	struct dcbm_slot *slot, *next;
	LIST_HEAD(over);

	/* The next piece finds what another context adds meanwhile. */
	if (likely(list_empty_careful(&chan->kept)) || !chan->ordered)
		return;
	spin_lock_irq(&chan->lock);
	list_for_each_entry_safe(slot, next, &chan->kept, node)
		if (cookie - slot->cookie > 0)
			list_move_tail(&slot->node, &over);
	spin_unlock_irq(&chan->lock);
	dcbm_end_all(chan, &over);
}

/* Callbacks of held slots have come. */
void dcbm_late_work(struct work_struct *work)
{
	struct dcbm_chan *chan = container_of(work, struct dcbm_chan,
					      late_work);
	struct dcbm_slot *slot, *next;
	LIST_HEAD(late);
	LIST_HEAD(kept);

	spin_lock_irq(&chan->lock);
	list_splice_init(&chan->late, &late);
	spin_unlock_irq(&chan->lock);
	list_for_each_entry_safe(slot, next, &late, node) {
		if (!dcbm_slot_is_over(slot))
			list_move_tail(&slot->node, &kept);
		else if (!slot->error)
			dcbm_kept_end(chan, slot->cookie);
	}
	spin_lock_irq(&chan->lock);
	list_for_each_entry(slot, &kept, node)
		WRITE_ONCE(slot->state, DCBM_SLOT_KEPT);
	list_splice(&kept, &chan->kept);
	spin_unlock_irq(&chan->lock);
	dcbm_end_all(chan, &late);
	dcbm_chan_heard_of(chan);
}

/* The device has stopped, and no callback comes: nothing is held or kept. */
void dcbm_chan_forget(struct dcbm_chan *chan)
{
	LIST_HEAD(over);
	int i;

	spin_lock_irq(&chan->lock);
	for (i = 0; i < DCBM_SLOTS; i++)
		if (chan->slots[i].state == DCBM_SLOT_HELD) {
			/* Only this context ends it: two may call this at once. */
			WRITE_ONCE(chan->slots[i].state, DCBM_SLOT_KEPT);
			list_add(&chan->slots[i].node, &over);
		}
	list_splice_init(&chan->kept, &over);
	chan->nr_held = 0;
	spin_unlock_irq(&chan->lock);
	dcbm_end_all(chan, &over);
}

/*
 * Make sure that no callback comes to a channel that has no stream.  Returns
 * -EBUSY if the driver is not known to stop the device.  A driver that forgets
 * its descriptors may crash when the device ends them, or may take the end of
 * one for that of another.  Only a channel that @may_keep may have kept transfers
 * afterwards.
 */
int dcbm_chan_settle(struct dcbm_chan *chan, bool may_keep)
{
	bool stops = READ_ONCE(chan->stops), held, kept;

	/* A late callback may turn a held transfer into a kept one. */
	flush_work(&chan->late_work);
	spin_lock_irq(&chan->lock);
	held = chan->nr_held;
	kept = !list_empty(&chan->kept);
	spin_unlock_irq(&chan->lock);
	if (held && !stops)
		return -EBUSY;
	if (stops && (held || kept)) {
		if (dmaengine_terminate_sync(chan->dma))
			return -EBUSY;
		dcbm_chan_forget(chan);
	}
	flush_work(&chan->late_work);
	return may_keep || list_empty_careful(&chan->kept) ? 0 : -EBUSY;
}

/*
 * The channel is about to be released, so nothing will end the doubt about kept
 * transfers: their folios and mappings stay.  Returns how many there are.
 */
unsigned int dcbm_chan_leak(struct dcbm_chan *chan)
{
	struct dcbm_slot *slot;
	unsigned int nr = 0;

	/* No stream and no work uses the list any more. */
	list_for_each_entry(slot, &chan->kept, node) {
		dcbm_job_put(slot->job);
		nr++;
	}
	/* No code uses these slots any more. */
	if (chan->pinned) {
		chan->pinned = false;
		module_put(THIS_MODULE);
	}
	return nr;
}
