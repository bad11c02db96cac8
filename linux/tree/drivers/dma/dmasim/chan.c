// SPDX-License-Identifier: GPL-2.0-only
/*
 * dmasim: the operations of a channel that clients call.
 */

#include <linux/array_size.h>
#include <linux/bits.h>
#include <linux/dma-mapping.h>
#include <linux/hrtimer.h>
#include <linux/slab.h>

#include "../dmaengine.h"
#include "dmasim.h"

/* An interrupt collects this many callbacks before it calls them. */
#define DMASIM_INTERRUPT_DESCS 8

static struct dmasim_desc *to_dmasim_desc(struct dma_async_tx_descriptor *tx)
{
	return container_of(tx, struct dmasim_desc, tx);
}

/* dmasim_triggered() calls this if the fault is in use. */
bool __dmasim_triggered(struct dmasim_trigger *t)
{
	bool hit = atomic_dec_if_positive(&t->nth) == 0;
	u32 every = READ_ONCE(t->every);

	if (every && ++t->seen >= every) {
		t->seen = 0;
		hit = true;
	}
	return hit;
}

/* Give a descriptor back to the pool.  Called with c->lock held. */
void dmasim_release(struct dmasim_chan *c, struct dmasim_desc *desc)
{
	if (desc->in_flight) {
		desc->in_flight = false;
		c->stats.in_flight--;
		c->stats.terminated++;
	}
	dma_descriptor_unmap(&desc->tx);
	list_move_tail(&desc->node, &c->free);
	if (to_dmasim_dev(c)->prep_waits)
		wake_up(&c->free_wq);
}

/*
 * The client has heard that this descriptor was aborted, but the device writes
 * nevertheless, as one does that its driver resets only afterwards.  Called
 * with c->lock held.
 */
static void dmasim_write_later(struct dmasim_chan *c, struct dmasim_desc *desc)
{
	desc->faults = 0;
	desc->terminated = true;
	desc->due = ktime_add_ms(ktime_get(), READ_ONCE(c->late_ms));
	list_move(&desc->node, &c->active);
	dmasim_arm(c);
}

/*
 * Complete a descriptor with desc->result.  The next interrupt runs its
 * callback.  Called with c->lock held, and with the descriptor on no list.
 */
void dmasim_complete(struct dmasim_chan *c, struct dmasim_desc *desc)
{
	if (desc->result.result == DMA_TRANS_NOERROR) {
		c->stats.descriptors++;
		c->stats.bytes += desc->bytes;
	} else {
		c->stats.errors++;
		c->failed[c->nr_failed++ % DMASIM_NR_FAILED] = desc->tx.cookie;
	}
	desc->in_flight = false;
	c->stats.in_flight--;
	dma_cookie_complete(&desc->tx);
	list_add_tail(&desc->node, &c->done);

	if (desc->faults & BIT(DMASIM_LOSE_IRQ))
		c->stats.lost_irqs++;
}

/*
 * Run callbacks, as an interrupt handler does.  The timer or the worker calls
 * this function, or the tasklet when the device is gone.
 */
void dmasim_interrupt(struct dmasim_chan *c)
{
	struct {
		struct dmaengine_desc_callback cb;
		struct dmaengine_result result;
	} over[DMASIM_INTERRUPT_DESCS];
	struct dmasim_desc *desc;
	unsigned int i, nr;
	unsigned long flags;

	do {
		spin_lock_irqsave(&c->lock, flags);
		for (nr = 0; nr < ARRAY_SIZE(over) && !list_empty(&c->done); nr++) {
			desc = list_first_entry(&c->done, struct dmasim_desc,
						node);
			dmaengine_desc_get_callback(&desc->tx, &over[nr].cb);
			over[nr].result = desc->result;
			/* The callback may need a free descriptor. */
			if (desc->faults & BIT(DMASIM_ABORT))
				dmasim_write_later(c, desc);
			else
				dmasim_release(c, desc);
		}
		spin_unlock_irqrestore(&c->lock, flags);
		for (i = 0; i < nr; i++)
			dmaengine_desc_callback_invoke(&over[i].cb,
						       &over[i].result);
	} while (nr == ARRAY_SIZE(over));
}

static void dmasim_tasklet(struct tasklet_struct *t)
{
	struct dmasim_chan *c = from_tasklet(c, t, tasklet);

	dmasim_interrupt(c);
}

static dma_cookie_t dmasim_tx_submit(struct dma_async_tx_descriptor *tx)
{
	struct dmasim_chan *c = to_dmasim_chan(tx->chan);
	struct dmasim_desc *desc = to_dmasim_desc(tx);
	dma_cookie_t cookie;
	unsigned long flags;
	bool reject;

	spin_lock_irqsave(&c->lock, flags);
	cookie = dma_cookie_assign(tx);
	desc->in_flight = true;
	c->stats.in_flight++;
	reject = dmasim_triggered(c, DMASIM_REJECT);
	if (reject) {
		list_del_init(&desc->node);
		desc->result.result = DMA_TRANS_WRITE_FAILED;
		desc->result.residue = desc->bytes;
		dmasim_complete(c, desc);
	} else {
		list_move_tail(&desc->node, &c->submitted);
		/* As idxd does.  Else a waiting prep would wait for ever. */
		if (to_dmasim_dev(c)->prep_waits)
			dmasim_start_all(c);
	}
	spin_unlock_irqrestore(&c->lock, flags);
	if (!reject)
		return cookie;
	/* The callback runs here, before the client knows of the error. */
	local_bh_disable();
	dmasim_interrupt(c);
	local_bh_enable();
	return -EIO;
}

/* Returns true if the device can do this transfer. */
static bool dmasim_can(struct dmasim_chan *c, dma_addr_t dst, dma_addr_t src,
		       size_t bytes)
{
	struct dma_device *dma = c->chan.device;

	return bytes && bytes <= dma_get_max_seg_size(dma->dev) &&
		bytes <= to_dmasim_dev(c)->max_copy_bytes &&
		is_dma_copy_aligned(dma, src, dst, bytes);
}

static struct dma_async_tx_descriptor *
dmasim_prep_memcpy(struct dma_chan *chan, dma_addr_t dst, dma_addr_t src,
		   size_t bytes, unsigned long tx_flags)
{
	struct dmasim_chan *c = to_dmasim_chan(chan);
	struct dmasim_desc *desc = NULL;
	unsigned long flags;

	/* One client uses the channel, so no other takes the descriptor. */
	if (to_dmasim_dev(c)->prep_waits &&
	    wait_event_interruptible(c->free_wq, READ_ONCE(c->gone) ||
				     !list_empty_careful(&c->free)))
		return NULL;

	spin_lock_irqsave(&c->lock, flags);
	if (!c->gone && !READ_ONCE(c->dead) && dmasim_can(c, dst, src, bytes) &&
	    !dmasim_triggered(c, DMASIM_REFUSE))
		desc = list_first_entry_or_null(&c->free, struct dmasim_desc,
						node);
	if (!desc) {
		c->stats.refused++;
		spin_unlock_irqrestore(&c->lock, flags);
		return NULL;
	}
	desc->tx.flags = tx_flags;
	desc->tx.callback = NULL;
	desc->tx.callback_result = NULL;
	desc->src = src;
	desc->dst = dst;
	desc->bytes = bytes;
	desc->faults = 0;
	desc->terminated = false;
	desc->stop = false;
	list_move_tail(&desc->node, &c->prepared);
	spin_unlock_irqrestore(&c->lock, flags);
	return &desc->tx;
}

/* Abort all descriptors of a list.  Called with c->lock held. */
static void dmasim_abort(struct dmasim_chan *c, struct list_head *list)
{
	struct dmasim_desc *desc, *next;

	list_for_each_entry_safe(desc, next, list, node) {
		list_del_init(&desc->node);
		if (desc->terminated) {
			dmasim_release(c, desc);
			continue;
		}
		desc->faults = 0;
		desc->result.result = DMA_TRANS_ABORTED;
		desc->result.residue = desc->bytes;
		dmasim_complete(c, desc);
	}
	tasklet_schedule(&c->tasklet);
}

static void dmasim_issue_pending(struct dma_chan *chan)
{
	struct dmasim_chan *c = to_dmasim_chan(chan);
	unsigned long flags;

	spin_lock_irqsave(&c->lock, flags);
	if (c->gone) {
		/* With prep_waits, submitted descriptors are active at once. */
		dmasim_abort(c, &c->active);
		dmasim_abort(c, &c->submitted);
	} else if (!list_empty(&c->submitted)) {
		dmasim_start_all(c);
	}
	spin_unlock_irqrestore(&c->lock, flags);
}

/*
 * Returns true if descriptors are complete whose callbacks only wait for the
 * next interrupt.  Called with c->lock held.
 */
static bool dmasim_may_clean(const struct dmasim_chan *c)
{
	const struct dmasim_desc *desc;

	list_for_each_entry(desc, &c->done, node)
		if (desc->faults & BIT(DMASIM_LOSE_IRQ))
			return false;
	return !list_empty(&c->done);
}

static enum dma_status dmasim_tx_status(struct dma_chan *chan,
					dma_cookie_t cookie,
					struct dma_tx_state *state)
{
	struct dmasim_chan *c = to_dmasim_chan(chan);
	enum dma_status status;
	unsigned long flags;
	unsigned int i;
	bool clean;

	spin_lock_irqsave(&c->lock, flags);
	status = dma_cookie_status(chan, cookie, state);
	/* Without an order, one cookie does not tell which are complete. */
	if (to_dmasim_dev(c)->out_of_order)
		status = DMA_OUT_OF_ORDER;
	for (i = 0; i < min(c->nr_failed, DMASIM_NR_FAILED); i++)
		if (c->failed[i] == cookie)
			status = DMA_ERROR;
	clean = dmasim_may_clean(c);
	spin_unlock_irqrestore(&c->lock, flags);
	/* ioat also runs the callbacks here of all that is complete. */
	if (clean) {
		local_bh_disable();
		dmasim_interrupt(c);
		local_bh_enable();
	}
	return status;
}

/*
 * Terminate all descriptors, so that no callback comes.  With @unheard, the
 * device still copies issued descriptors when they are due.
 */
static void dmasim_take_back(struct dmasim_chan *c, bool unheard)
{
	struct dmasim_desc *desc, *next;
	unsigned long flags;
	LIST_HEAD(list);

	spin_lock_irqsave(&c->lock, flags);
	list_for_each_entry(desc, &c->copying, node) {
		desc->terminated = true;
		if (!unheard)
			WRITE_ONCE(desc->stop, true);
	}
	list_for_each_entry_safe(desc, next, &c->active, node) {
		desc->terminated = true;
		if (!unheard || desc->faults & BIT(DMASIM_STALL))
			list_move_tail(&desc->node, &list);
	}
	if (list_empty(&c->active))
		c->busy_until = 0;
	list_splice_tail_init(&c->submitted, &list);
	list_splice_tail_init(&c->prepared, &list);
	list_splice_tail_init(&c->done, &list);
	list_for_each_entry_safe(desc, next, &list, node)
		dmasim_release(c, desc);
	/* A stalled descriptor may have blocked others. */
	dmasim_arm(c);
	spin_unlock_irqrestore(&c->lock, flags);
}

static int dmasim_terminate_all(struct dma_chan *chan)
{
	struct dmasim_chan *c = to_dmasim_chan(chan);
	u32 how = READ_ONCE(c->terminate);

	if (how == DMASIM_TERMINATE_ERROR)
		return -EIO;
	dmasim_take_back(c, how != DMASIM_TERMINATE_STOP);
	return 0;
}

static void dmasim_synchronize(struct dma_chan *chan)
{
	struct dmasim_chan *c = to_dmasim_chan(chan);
	unsigned long flags;

	/* Wait for copies and callbacks that are running. */
	dmasim_disarm(c);
	tasklet_kill(&c->tasklet);

	spin_lock_irqsave(&c->lock, flags);
	dmasim_arm(c);
	spin_unlock_irqrestore(&c->lock, flags);
}

static int dmasim_alloc_chan_resources(struct dma_chan *chan)
{
	struct dmasim_chan *c = to_dmasim_chan(chan);
	unsigned long flags;
	int nr_descs;

	spin_lock_irqsave(&c->lock, flags);
	dma_cookie_init(chan);
	c->nr_failed = 0;
	nr_descs = list_count_nodes(&c->free);
	spin_unlock_irqrestore(&c->lock, flags);
	return nr_descs;
}

static void dmasim_free_chan_resources(struct dma_chan *chan)
{
	struct dmasim_chan *c = to_dmasim_chan(chan);

	/* The client leaves.  A device that cannot stop continues to write. */
	dmasim_take_back(c, READ_ONCE(c->terminate) != DMASIM_TERMINATE_STOP);
	dmasim_synchronize(chan);
}

/* The device disappears.  Clients may still hold the channel. */
void dmasim_chan_vanish(struct dmasim_chan *c)
{
	struct dmasim_desc *desc;

	spin_lock_irq(&c->lock);
	WRITE_ONCE(c->gone, true);
	list_for_each_entry(desc, &c->copying, node)
		WRITE_ONCE(desc->stop, true);
	spin_unlock_irq(&c->lock);
	wake_up_all(&c->free_wq);

	dmasim_disarm(c);

	spin_lock_irq(&c->lock);
	dmasim_abort(c, &c->active);
	dmasim_abort(c, &c->submitted);
	spin_unlock_irq(&c->lock);
}

void dmasim_set_ops(struct dma_device *dma, bool can_terminate)
{
	dma->device_alloc_chan_resources = dmasim_alloc_chan_resources;
	dma->device_free_chan_resources = dmasim_free_chan_resources;
	dma->device_prep_dma_memcpy = dmasim_prep_memcpy;
	dma->device_issue_pending = dmasim_issue_pending;
	dma->device_tx_status = dmasim_tx_status;
	dma->device_synchronize = dmasim_synchronize;
	if (can_terminate)
		dma->device_terminate_all = dmasim_terminate_all;
}

int dmasim_chan_init(struct dmasim_chan *c, unsigned int nr_descs, int node)
{
	unsigned int i;

	c->late_ms = DMASIM_LATE_MS;
	spin_lock_init(&c->lock);
	init_waitqueue_head(&c->free_wq);
	INIT_LIST_HEAD(&c->free);
	INIT_LIST_HEAD(&c->prepared);
	INIT_LIST_HEAD(&c->submitted);
	INIT_LIST_HEAD(&c->active);
	INIT_LIST_HEAD(&c->copying);
	INIT_LIST_HEAD(&c->done);
	hrtimer_setup(&c->timer, dmasim_timer, CLOCK_MONOTONIC,
		      HRTIMER_MODE_ABS_SOFT);
	kthread_init_work(&c->work, dmasim_work);
	tasklet_setup(&c->tasklet, dmasim_tasklet);

	c->descs = kvcalloc_node(nr_descs, sizeof(*c->descs), GFP_KERNEL, node);
	if (!c->descs)
		return -ENOMEM;
	for (i = 0; i < nr_descs; i++) {
		struct dmasim_desc *desc = &c->descs[i];

		dma_async_tx_descriptor_init(&desc->tx, &c->chan);
		desc->tx.tx_submit = dmasim_tx_submit;
		list_add_tail(&desc->node, &c->free);
	}
	return 0;
}

void dmasim_chan_destroy(struct dmasim_chan *c)
{
	dmasim_disarm(c);
	tasklet_kill(&c->tasklet);
	kvfree(c->descs);
}
