// SPDX-License-Identifier: GPL-2.0-only
/*
 * dmasim: when a transfer is due, and the copying.
 *
 * dmasim computes time and does not measure it.  An issued descriptor is due
 * when the channel has transferred all earlier ones, and then its own bytes,
 * at its rate.  A timer for each channel expires then, copies in one go, and
 * completes the descriptor.  A late timer does not slow the channel down, as
 * long as the CPUs copy faster than all channels together should.
 *
 * The timer copies in softirq context, because clients poll.  Without
 * preemption of a client, a thread would wait until the client gives up.
 *
 * Unlike a device, the timer takes CPU time from the running task.  If a CPU is
 * free, the user can name it with the parameter "cpu".  Then one thread on that
 * CPU copies for all channels, and the timers expire on that CPU, too.
 *
 * Each descriptor takes a timer, an interrupt and, with the thread, a wakeup.
 * With coalesce_us, a channel coalesces interrupts as devices do.  The channel
 * waits for other descriptors in flight, copies all in one go, and interrupts
 * once.  A descriptor without DMA_PREP_INTERRUPT takes no interrupt.
 */

#include <linux/bitops.h>
#include <linux/dma-direct.h>
#include <linux/highmem.h>
#include <linux/hrtimer.h>
#include <linux/iommu.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/random.h>

#include "../dmaengine.h"
#include "dmasim.h"

/* The thread of the CPU that "cpu" names, or NULL. */
struct kthread_worker *dmasim_worker;

/*
 * With out_of_order, each descriptor has a random delay: at most this time,
 * plus this many times the transfer time.  About one descriptor in five then
 * overtakes its predecessor.
 */
#define DMASIM_JITTER_NS (20 * NSEC_PER_USEC)
#define DMASIM_JITTER_TRANSFERS 3

/* At most this many descriptors that are due at once share an interrupt. */
#define DMASIM_STEP_DESCS 16

static u64 dmasim_transfer_ns(struct dmasim_chan *c, size_t bytes)
{
	u32 mbps = READ_ONCE(c->bandwidth_mbps);

	return mbps ? div_u64((u64)bytes * 1000, mbps) : 0;
}

/* Returns the faults in use that hit issued descriptors. */
static unsigned long dmasim_faults_asked_for(const struct dmasim_chan *c)
{
	enum dmasim_fault fault;
	unsigned long mask = 0;

	for (fault = 0; fault < DMASIM_REFUSE; fault++)
		if (dmasim_asked_for(&c->triggers[fault]))
			mask |= BIT(fault);
	return mask;
}

/* Decide when a descriptor is due, and which faults of @asked_for it has. */
static void dmasim_start(struct dmasim_chan *c, struct dmasim_desc *desc,
			 unsigned long asked_for, ktime_t now)
{
	u64 transfer_ns = dmasim_transfer_ns(c, desc->bytes);
	unsigned int fault;
	u64 delay_ns;

	for_each_set_bit(fault, &asked_for, DMASIM_REFUSE)
		if (dmasim_triggered(c, fault))
			desc->faults |= BIT(fault);

	if (ktime_before(c->busy_until, now))
		c->busy_until = now;
	c->busy_until = ktime_add_ns(c->busy_until, transfer_ns);

	/* Latencies overlap, as with any device that has a queue. */
	delay_ns = (u64)READ_ONCE(c->latency_us) * NSEC_PER_USEC;
	if (to_dmasim_dev(c)->out_of_order)
		delay_ns += mul_u64_u32_shr(DMASIM_JITTER_NS +
					    DMASIM_JITTER_TRANSFERS * transfer_ns,
					    get_random_u32(), 32);
	if (desc->faults & BIT(DMASIM_LATE))
		delay_ns += (u64)READ_ONCE(c->late_ms) * NSEC_PER_MSEC;
	desc->due = ktime_add_ns(c->busy_until, delay_ns);
}

/*
 * Returns the descriptor that completes next, or NULL.  Without out_of_order,
 * the first one completes next.  If it stalls, no descriptor completes.
 */
static struct dmasim_desc *dmasim_next(struct dmasim_chan *c)
{
	struct dmasim_desc *desc, *next = NULL;

	if (READ_ONCE(c->dead) || c->gone)
		return NULL;

	if (!to_dmasim_dev(c)->out_of_order) {
		desc = list_first_entry_or_null(&c->active, struct dmasim_desc,
						node);
		return !desc || desc->faults & BIT(DMASIM_STALL) ? NULL : desc;
	}

	list_for_each_entry(desc, &c->active, node) {
		if (desc->faults & BIT(DMASIM_STALL))
			continue;
		if (!next || ktime_before(desc->due, next->due))
			next = desc;
	}
	return next;
}

/*
 * Returns when to complete @next.  To coalesce, wait for the descriptor that
 * was issued last.  With out_of_order, another one may be due a bit later.
 */
static ktime_t dmasim_wake_at(struct dmasim_chan *c, struct dmasim_desc *next)
{
	struct dmasim_desc *last = list_last_entry(&c->active,
						   struct dmasim_desc, node);
	ktime_t latest = ktime_add_us(next->due, READ_ONCE(c->coalesce_us));

	if (!ktime_after(last->due, next->due))
		return next->due;
	return ktime_before(last->due, latest) ? last->due : latest;
}

/*
 * Start the timer or the worker for the next descriptor.  Called with c->lock
 * held, whenever another descriptor may have become the next one.
 */
void dmasim_arm(struct dmasim_chan *c)
{
	struct dmasim_desc *desc = dmasim_next(c);
	ktime_t now = ktime_get();

	if (!desc)
		return;
	if (!dmasim_worker)
		/* Not in the past, or the softirq would run only this timer. */
		hrtimer_start(&c->timer,
			      ktime_after(desc->due, now) ?
			      dmasim_wake_at(c, desc) : now,
			      HRTIMER_MODE_ABS_SOFT);
	else if (current == dmasim_worker->task && ktime_after(desc->due, now))
		hrtimer_start(&c->timer, dmasim_wake_at(c, desc),
			      HRTIMER_MODE_ABS_PINNED_SOFT);
	else
		/* If the worker starts a timer, it expires on the same CPU. */
		kthread_queue_work(dmasim_worker, &c->work);
}

/* Start all submitted descriptors.  Called with c->lock held. */
void dmasim_start_all(struct dmasim_chan *c)
{
	unsigned long asked_for = dmasim_faults_asked_for(c);
	/* Without out_of_order, the first active one is armed or stalled. */
	bool armed = !to_dmasim_dev(c)->out_of_order && !list_empty(&c->active);
	ktime_t now = ktime_get();
	struct dmasim_desc *desc;

	list_for_each_entry(desc, &c->submitted, node)
		dmasim_start(c, desc, asked_for, now);
	list_splice_tail_init(&c->submitted, &c->active);
	if (!armed)
		dmasim_arm(c);
}

/*
 * Stop the timer, and wait for copies that are running.  If anything is left to
 * copy, the caller has to arm the channel again.
 */
void dmasim_disarm(struct dmasim_chan *c)
{
	hrtimer_cancel(&c->timer);
	if (!dmasim_worker)
		return;
	kthread_cancel_work_sync(&c->work);
	/* Timer and work may have started each other. */
	hrtimer_cancel(&c->timer);
	kthread_cancel_work_sync(&c->work);
}

/*
 * Take descriptors that are due: one, or several for one interrupt.  A
 * descriptor that loses its interrupt is taken alone, and the interrupt of a
 * later one runs its callback.  If no descriptor is due, this arms the channel
 * again, and returns false.
 */
static bool dmasim_take(struct dmasim_chan *c)
{
	unsigned int nr = READ_ONCE(c->coalesce_us) ? DMASIM_STEP_DESCS : 1;
	struct dmasim_desc *desc;
	bool alone = false, taken;
	ktime_t now;

	spin_lock_irq(&c->lock);
	now = ktime_get();
	while (nr-- && !alone && (desc = dmasim_next(c))) {
		alone = desc->faults & BIT(DMASIM_LOSE_IRQ);
		if (ktime_before(now, desc->due) ||
		    (alone && !list_empty(&c->copying)))
			break;
		list_move_tail(&desc->node, &c->copying);
	}
	taken = !list_empty(&c->copying);
	if (!taken)
		dmasim_arm(c);
	spin_unlock_irq(&c->lock);
	return taken;
}

/*
 * Resolve a DMA address as the IOMMU does, or the bus of a device without one.
 * The address may be in a bounce buffer.  Then bytes get there and back only if
 * the client synchronises.
 */
static struct page *dmasim_page(struct dmasim_chan *c, dma_addr_t addr)
{
	struct device *dev = c->chan.device->dev;
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);
	phys_addr_t phys = domain ? iommu_iova_to_phys(domain, addr) :
				    dma_to_phys(dev, addr);

	/* The IOMMU has no mapping. */
	if (domain && !phys)
		return NULL;
	return pfn_valid(PHYS_PFN(phys)) ? pfn_to_page(PHYS_PFN(phys)) : NULL;
}

/*
 * Copy real bytes.  If the memory no longer belongs to the client, this
 * corrupts it as a device would.  KASAN may report that.
 */
static void dmasim_copy(struct dmasim_chan *c, struct dmasim_desc *desc)
{
	bool fail = desc->faults & BIT(DMASIM_FAIL);
	bool hide = desc->faults & BIT(DMASIM_HIDE_ERROR);
	size_t end = fail || hide ? desc->bytes / 2 : desc->bytes;
	struct page *src, *dst;
	size_t pos = 0, n;

	desc->result.result = fail ? DMA_TRANS_WRITE_FAILED :
				     DMA_TRANS_NOERROR;
	if (desc->faults & BIT(DMASIM_ABORT)) {
		desc->result.result = DMA_TRANS_ABORTED;
		end = 0;
	}
	while (pos < end) {
		size_t src_off = offset_in_page(desc->src + pos);
		size_t dst_off = offset_in_page(desc->dst + pos);

		if (READ_ONCE(desc->stop)) {
			desc->result.result = DMA_TRANS_ABORTED;
			break;
		}
		src = dmasim_page(c, desc->src + pos);
		dst = dmasim_page(c, desc->dst + pos);
		if (!src || !dst) {
			desc->result.result = src ? DMA_TRANS_WRITE_FAILED :
						    DMA_TRANS_READ_FAILED;
			break;
		}
		n = min(end - pos, PAGE_SIZE - max(src_off, dst_off));
		memcpy_page(dst, dst_off, src, src_off, n);
		pos += n;
	}
	desc->result.residue = hide ? 0 : desc->bytes - pos;
}

/*
 * A terminated transfer has ended.  With terminate=early, its interrupt
 * completes the transfer that the driver has started since, whose bytes are
 * then not there yet.  They never come, so that every client notices.  Called
 * with c->lock held.  Returns true if there was such a transfer.
 */
static bool dmasim_complete_early(struct dmasim_chan *c)
{
	struct dmasim_desc *desc;

	if (READ_ONCE(c->terminate) != DMASIM_TERMINATE_EARLY)
		return false;
	list_for_each_entry(desc, &c->active, node) {
		if (desc->terminated)
			continue;
		list_del_init(&desc->node);
		desc->result.result = DMA_TRANS_NOERROR;
		desc->result.residue = 0;
		c->stats.early++;
		dmasim_complete(c, desc);
		return true;
	}
	return false;
}

/*
 * Without DMA_PREP_INTERRUPT, a device interrupts only to report an error.  The
 * next interrupt runs the callback, as with ioat.
 */
static bool dmasim_interrupts(const struct dmasim_desc *desc)
{
	if (desc->faults & BIT(DMASIM_LOSE_IRQ))
		return false;
	return desc->tx.flags & DMA_PREP_INTERRUPT ||
		desc->result.result != DMA_TRANS_NOERROR;
}

/* Complete what was copied.  Returns true if the channel interrupts. */
static bool dmasim_finish(struct dmasim_chan *c)
{
	struct dmasim_desc *desc, *next;
	bool interrupt = false;

	spin_lock_irq(&c->lock);
	list_for_each_entry_safe(desc, next, &c->copying, node) {
		list_del_init(&desc->node);
		if (desc->faults & BIT(DMASIM_LATE))
			c->stats.late++;
		if (!desc->terminated) {
			interrupt |= dmasim_interrupts(desc);
			c->stats.hidden += !!(desc->faults &
					      BIT(DMASIM_HIDE_ERROR));
			dmasim_complete(c, desc);
		} else {
			if (!desc->stop) {
				c->stats.unheard++;
				interrupt |= dmasim_complete_early(c);
			}
			dmasim_release(c, desc);
		}
	}
	c->stats.interrupts += interrupt;
	dmasim_arm(c);
	spin_unlock_irq(&c->lock);
	return interrupt;
}

/* Copy and complete what is due, and arm the channel for the next. */
static void dmasim_step(struct dmasim_chan *c)
{
	struct dmasim_desc *desc;

	if (!dmasim_take(c))
		return;
	/* No other context changes the list. */
	list_for_each_entry(desc, &c->copying, node)
		dmasim_copy(c, desc);
	if (!dmasim_finish(c))
		return;
	/* Clients expect softirqs disabled in callbacks, also in the thread. */
	local_bh_disable();
	dmasim_interrupt(c);
	local_bh_enable();
}

enum hrtimer_restart dmasim_timer(struct hrtimer *timer)
{
	struct dmasim_chan *c = container_of(timer, struct dmasim_chan, timer);

	if (dmasim_worker)
		kthread_queue_work(dmasim_worker, &c->work);
	else
		dmasim_step(c);
	return HRTIMER_NORESTART;
}

void dmasim_work(struct kthread_work *work)
{
	dmasim_step(container_of(work, struct dmasim_chan, work));
}
