// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: what comes back from the channels, what does not, and when to say so.
 *
 * A descriptor ends in one of these ways:
 *
 * - Its callback comes, with a result: the piece is accounted for.
 * - The driver says that it is complete, but no callback comes: an interrupt
 *   was lost.  The data is in place; the slot stays reserved, as the callback
 *   may still come.
 * - Nothing is heard of it until the timeout, and the driver can stop the
 *   device: it is stopped, and the CPU copies the folio.
 * - The same, but nothing can stop the device, which may go on reading and
 *   writing for as long as it likes.  Then both folios are held, with their
 *   mapping: neither is freed or written to, and the folio does not migrate.
 *   The channel is retired.  Should the callback ever come, they are let go.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/dma-mapping.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>

#include "dcbm.h"

/* Time between questions to a driver whose device has been silent. */
#define DCBM_ASK_DIVISOR 8

/* With less, a busy CPU would look like a dead device. */
#define DCBM_MIN_TIMEOUT_NS (10ULL * NSEC_PER_MSEC)

bool dcbm_can_terminate(const struct dcbm_chan *chan)
{
	return chan->dma->device->device_terminate_all &&
		chan->dma->device->device_synchronize;
}

/* Full barriers on both sides: it sees our count, or we its threshold. */
static void dcbm_job_heard_of(struct dcbm_job *job)
{
	if (atomic_inc_return(&job->nr_done) >= READ_ONCE(job->wake_at))
		wake_up(&job->wq);
}

static bool dcbm_job_has_done(const struct dcbm_job *job)
{
	return atomic_read(&job->nr_done) >= job->wake_at;
}

/*
 * Whatever context the driver likes.  The job is there as long as it has a
 * slot that flies: to get at the slot, its owner takes the lock that we hold.
 */
void dcbm_callback(void *param, const struct dmaengine_result *result)
{
	struct dcbm_slot *slot = param;
	struct dcbm_chan *chan = slot->chan;
	bool unpin = false;
	unsigned long flags;

	spin_lock_irqsave(&chan->lock, flags);
	if (result && result->result != DMA_TRANS_NOERROR)
		slot->error = -EIO;
	if (slot->cookie)
		chan->last_cookie = slot->cookie;
	switch (slot->state) {
	case DCBM_SLOT_FLYING:
		slot->state = DCBM_SLOT_DONE;
		list_add_tail(&slot->node, &chan->done);
		dcbm_job_heard_of(slot->job);
		break;
	case DCBM_SLOT_HELD:
		slot->state = DCBM_SLOT_LATE;
		list_add_tail(&slot->node, &chan->late);
		queue_work(dcbm_wq, &chan->late_work);
		break;
	case DCBM_SLOT_LOST:
		slot->state = DCBM_SLOT_FREE;
		list_add_tail(&slot->node, &chan->free);
		chan->nr_away--;
		unpin = !dcbm_can_terminate(chan);
		dcbm_chan_heard_of(chan);
		break;
	default:
		WARN_ONCE(1, "%s called back twice\n",
			  kobject_name(&chan->kobj));
	}
	spin_unlock_irqrestore(&chan->lock, flags);
	if (unpin)
		module_put(THIS_MODULE);
}

/* One more piece of the folio is accounted for, here or by dcbm_late_work(). */
void dcbm_pair_done(struct dcbm_pair *pair)
{
	/* Held when it was counted, so this cannot be seen too late. */
	if (!atomic_dec_and_test(&pair->nr_flying) || !pair->held)
		return;
	migrate_copy_unhold(pair->src, pair->dst);
	atomic_dec(&dcbm_folios_held_now);
}

/* The device has nothing to do with this piece any more. */
static void dcbm_slot_end(struct dcbm_job *job, struct dcbm_slot *slot,
			  int error)
{
	struct dcbm_chan *chan = slot->chan;
	struct dcbm_pair *pair = &job->pairs[slot->pair];

	dcbm_slot_unmap(slot);
	chan->nr_flying--;
	job->nr_flying--;
	if (error) {
		if (!pair->error)
			pair->error = error;
		atomic64_inc(&chan->errors);
		chan->failures += error != -ETIMEDOUT;
	} else {
		chan->lease_bytes += slot->bytes;
		atomic64_add(slot->bytes, &chan->bytes);
		chan->failures = 0;
	}
	dcbm_pair_done(pair);
}

/* Account for what was called back.  True if there was something. */
static bool dcbm_chan_reap(struct dcbm_job *job, struct dcbm_chan *chan)
{
	struct dcbm_slot *slot;
	unsigned long flags;
	LIST_HEAD(done);

	spin_lock_irqsave(&chan->lock, flags);
	list_splice_init(&chan->done, &done);
	spin_unlock_irqrestore(&chan->lock, flags);
	if (list_empty(&done))
		return false;

	list_for_each_entry(slot, &done, node)
		dcbm_slot_end(job, slot, slot->error);

	spin_lock_irqsave(&chan->lock, flags);
	list_for_each_entry(slot, &done, node)
		slot->state = DCBM_SLOT_FREE;
	list_splice(&done, &chan->free);
	spin_unlock_irqrestore(&chan->lock, flags);

	chan->full = false;
	chan->progress_ns = ktime_get_ns();
	dcbm_chan_judge(chan);
	return true;
}

/*
 * Ask the driver about one piece whose callback has not come.  Its word counts
 * when the channel completes in order, and only for what is newer than all
 * that was called back: what was passed over may just have been dropped.
 */
static bool dcbm_slot_is_complete(struct dcbm_chan *chan,
				  struct dcbm_slot *slot)
{
	dma_cookie_t last = READ_ONCE(chan->last_cookie);

	if (!chan->ordered || (last && slot->cookie - last <= 0))
		return false;
	/* May call back right here. */
	return dma_async_is_tx_complete(chan->dma, slot->cookie, NULL, NULL) ==
		DMA_COMPLETE;
}

/* If the state is still what it was, change it, and keep the slot. */
static bool dcbm_slot_claim(struct dcbm_slot *slot, enum dcbm_slot_state state)
{
	struct dcbm_chan *chan = slot->chan;
	bool claimed = false;
	unsigned long flags;

	spin_lock_irqsave(&chan->lock, flags);
	if (slot->state == DCBM_SLOT_FLYING) {
		slot->state = state;
		if (state == DCBM_SLOT_FREE)
			list_add(&slot->node, &chan->free);
		else
			chan->nr_away++;
		claimed = true;
	}
	spin_unlock_irqrestore(&chan->lock, flags);
	return claimed;
}

/*
 * An interrupt may have been lost: ask the driver.  A callback that this
 * provokes is found in the ordinary way.
 */
static void dcbm_chan_ask(struct dcbm_job *job, struct dcbm_chan *chan)
{
	bool lost = false;
	int i;

	for (i = 0; i < DCBM_SLOTS; i++) {
		struct dcbm_slot *slot = &chan->slots[i];
		struct dcbm_slot copy;

		if (READ_ONCE(slot->state) != DCBM_SLOT_FLYING ||
		    !dcbm_slot_is_complete(chan, slot))
			continue;
		/* Once it is claimed a callback may give it to others. */
		copy = *slot;
		if (!dcbm_can_terminate(chan))
			__module_get(THIS_MODULE);
		if (!dcbm_slot_claim(slot, DCBM_SLOT_LOST)) {
			if (!dcbm_can_terminate(chan))
				module_put(THIS_MODULE);
			continue;
		}
		dcbm_slot_end(job, &copy, 0);
		lost = true;
	}
	if (!lost)
		return;
	atomic64_inc(&chan->errors);
	chan->failures++;
	chan->progress_ns = ktime_get_ns();
	pr_warn_ratelimited("%s: complete, but nobody said so; lost interrupt?\n",
			    kobject_name(&chan->kobj));
}

/* The driver has terminated everything: no callback will come any more. */
static void dcbm_chan_stopped(struct dcbm_job *job, struct dcbm_chan *chan)
{
	int i;

	for (i = 0; i < DCBM_SLOTS; i++) {
		struct dcbm_slot *slot = &chan->slots[i];
		struct dcbm_slot copy = *slot;

		if (dcbm_slot_claim(slot, DCBM_SLOT_FREE))
			dcbm_slot_end(job, &copy, -ETIMEDOUT);
	}
	dcbm_chan_forget(chan, true);
}

/*
 * Nothing can stop the device.  Each folio that it may be at is held, once,
 * before the slot is marked: from then on the callback may let go of it.
 */
static unsigned int dcbm_chan_hold(struct dcbm_job *job, struct dcbm_chan *chan)
{
	unsigned int i, nr = 0;

	for (i = 0; i < DCBM_SLOTS; i++) {
		struct dcbm_slot *slot = &chan->slots[i];
		struct dcbm_pair *pair;

		if (READ_ONCE(slot->state) != DCBM_SLOT_FLYING)
			continue;
		pair = &job->pairs[slot->pair];
		if (!pair->held) {
			pair->held = true;
			pair->error = -ETIMEDOUT;
			migrate_copy_hold(&job->batch->pairs[slot->pair]);
			atomic64_inc(&dcbm_folios_held);
			atomic_inc(&dcbm_folios_held_now);
		}
		kref_get(&job->ref);
		if (!dcbm_can_terminate(chan))
			__module_get(THIS_MODULE);
		if (dcbm_slot_claim(slot, DCBM_SLOT_HELD)) {
			chan->nr_flying--;
			job->nr_flying--;
			nr++;
			continue;
		}
		/* Called back just now; the next reap ends it, and the hold. */
		dcbm_job_put(job);
		if (!dcbm_can_terminate(chan))
			module_put(THIS_MODULE);
	}
	return nr;
}

/* The time is over. */
static void dcbm_chan_give_up(struct dcbm_job *job, struct dcbm_chan *chan)
{
	unsigned int nr_held;

	dcbm_chan_ask(job, chan);
	dcbm_chan_reap(job, chan);
	if (!chan->nr_flying)
		return;

	/* Two in a row are too many, however many errors are allowed. */
	chan->failures += DIV_ROUND_UP(READ_ONCE(dcbm_max_failures), 2);
	atomic64_inc(&chan->timeouts);
	if (READ_ONCE(chan->stops) && !dmaengine_terminate_sync(chan->dma)) {
		dcbm_chan_reap(job, chan);
		dcbm_chan_stopped(job, chan);
		chan->full = false;
		chan->progress_ns = ktime_get_ns();
		dcbm_chan_judge(chan);
		return;
	}

	nr_held = dcbm_chan_hold(job, chan);
	dcbm_chan_reap(job, chan);
	if (!nr_held || chan->retiring)
		return;
	atomic64_add(nr_held, &chan->errors);
	dcbm_chan_retire(chan, "a transfer did not end; its pages are out of use until it does");
}

/* We look only so often; the limit is to hold nevertheless. */
static u64 dcbm_limit_ns(void)
{
	u64 limit_ns = (u64)READ_ONCE(dcbm_timeout_ms) * NSEC_PER_MSEC;

	limit_ns = max(limit_ns, DCBM_MIN_TIMEOUT_NS);
	return limit_ns - limit_ns / DCBM_ASK_DIVISOR;
}

/* Look at channels from which nothing has been heard for a while. */
static void dcbm_check(struct dcbm_job *job)
{
	u64 now = ktime_get_ns();
	u64 limit_ns = dcbm_limit_ns();
	bool expired = now - job->start_ns > 2 * limit_ns;
	struct dcbm_chan *chan;

	list_for_each_entry(chan, &job->chans, lease) {
		u64 silent_ns = now - chan->progress_ns;

		if (!chan->nr_flying || chan->progress_ns > now)
			continue;
		if (silent_ns >= limit_ns || expired)
			dcbm_chan_give_up(job, chan);
		else if (silent_ns >= limit_ns / DCBM_ASK_DIVISOR &&
			 silent_ns >= 2 * job->expected_ns)
			dcbm_chan_ask(job, chan);
	}
}

/*
 * To sleep and be woken takes longer than many transfers, so spin for as long
 * as this one is expected to take, unless somebody else wants the CPU.
 */
static void dcbm_poll(struct dcbm_job *job)
{
	u64 max_ns = (u64)READ_ONCE(dcbm_poll_us) * NSEC_PER_USEC;
	u64 until;

	/* One that takes long is worth a context switch. */
	if (job->expected_ns > max_ns)
		return;
	until = job->start_ns + job->expected_ns + job->expected_ns / 2;
	while (!dcbm_job_has_done(job)) {
		if (need_resched() || ktime_get_ns() > until)
			return;
		cpu_relax();
	}
}

static unsigned long dcbm_wait_jiffies(void)
{
	return max(msecs_to_jiffies(READ_ONCE(dcbm_timeout_ms)) /
		   DCBM_ASK_DIVISOR, 1UL);
}

/*
 * Wait until something comes back, or for a part of the timeout, and account
 * for it.  Returns false when nothing is in flight any more.
 */
bool dcbm_reap(struct dcbm_job *job)
{
	struct dcbm_chan *chan;
	bool silent;

	if (!job->nr_flying)
		return false;
	/* Be woken once at the end, and before channels run dry until then. */
	WRITE_ONCE(job->wake_at, dcbm_next_piece(job) ?
		   DIV_ROUND_UP(job->nr_flying, 2) : job->nr_flying);
	dcbm_poll(job);
	silent = !wait_event_timeout(job->wq, dcbm_job_has_done(job),
				     dcbm_wait_jiffies());
	/* What is counted after this is reaped now, or wakes us too early. */
	atomic_set(&job->nr_done, 0);
	list_for_each_entry(chan, &job->chans, lease)
		dcbm_chan_reap(job, chan);
	if (silent)
		dcbm_check(job);
	return true;
}

static void dcbm_late_end(struct dcbm_slot *slot)
{
	struct dcbm_job *job = slot->job;

	dcbm_slot_unmap(slot);
	dcbm_pair_done(&job->pairs[slot->pair]);
	dcbm_job_put(job);
}

/* Callbacks that nobody had hoped for any more. */
void dcbm_late_work(struct work_struct *work)
{
	struct dcbm_chan *chan = container_of(work, struct dcbm_chan,
					      late_work);
	struct dcbm_slot *slot, *next;
	unsigned int nr = 0;
	LIST_HEAD(late);

	spin_lock_irq(&chan->lock);
	list_splice_init(&chan->late, &late);
	spin_unlock_irq(&chan->lock);
	list_for_each_entry_safe(slot, next, &late, node) {
		dcbm_late_end(slot);
		nr++;
	}
	spin_lock_irq(&chan->lock);
	list_for_each_entry(slot, &late, node)
		slot->state = DCBM_SLOT_FREE;
	list_splice(&late, &chan->free);
	chan->nr_away -= nr;
	spin_unlock_irq(&chan->lock);
	dcbm_chan_heard_of(chan);

	/* Whoever unloads us waits for this work. */
	if (!dcbm_can_terminate(chan))
		while (nr--)
			module_put(THIS_MODULE);
}

/*
 * The driver has forgotten all descriptors of the channel, so slots whose
 * callback was awaited are free again.  Unless the device was stopped, held
 * pages and their mappings stay as they are for ever.  Returns how many pieces
 * that were.
 */
unsigned int dcbm_chan_forget(struct dcbm_chan *chan, bool stopped)
{
	unsigned int nr_kept = 0;
	int i;

	for (i = 0; i < DCBM_SLOTS; i++) {
		struct dcbm_slot *slot = &chan->slots[i];
		enum dcbm_slot_state state;

		spin_lock_irq(&chan->lock);
		state = slot->state;
		if (state == DCBM_SLOT_LOST || state == DCBM_SLOT_HELD) {
			slot->state = DCBM_SLOT_FREE;
			list_add(&slot->node, &chan->free);
			chan->nr_away--;
		}
		spin_unlock_irq(&chan->lock);
		if (state != DCBM_SLOT_HELD)
			continue;
		if (stopped) {
			dcbm_late_end(slot);
		} else {
			dcbm_job_put(slot->job);
			nr_kept++;
		}
	}
	return nr_kept;
}

/*
 * Make sure that nothing is out any more on a channel that no job has.  -EBUSY
 * when that is not for us to say.
 */
int dcbm_chan_settle(struct dcbm_chan *chan)
{
	bool held = false;
	int i;

	if (!READ_ONCE(chan->nr_away))
		return 0;
	for (i = 0; i < DCBM_SLOTS; i++)
		held |= READ_ONCE(chan->slots[i].state) == DCBM_SLOT_HELD;
	if (!dcbm_can_terminate(chan) || (held && !READ_ONCE(chan->stops)) ||
	    dmaengine_terminate_sync(chan->dma))
		return -EBUSY;
	dcbm_chan_forget(chan, true);
	flush_work(&chan->late_work);
	return READ_ONCE(chan->nr_away) ? -EBUSY : 0;
}
