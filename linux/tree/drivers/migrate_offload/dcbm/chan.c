// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: acquiring and releasing channels.
 *
 * dcbm requests channels when an administrator switches offloading on, and
 * keeps them.  A request takes the global lock of dmaengine, and lets the
 * driver allocate.  A task that holds locks of folios must not do that.
 *
 * dcbm_admin_lock serialises administrators.  dcbm_chans_lock protects the list
 * of channels, for tasks that may sleep.  Changes also take dcbm_lock, under
 * which streams search the list.  Notifiers release channels that go away, see
 * watch.c.  They take only dcbm_chans_lock.  A task that registers a notifier
 * waits under dcbm_admin_lock for running notifiers.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitmap.h>
#include <linux/delay.h>
#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/leafops.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "dcbm.h"

#define DCBM_STUCK_RETRY_MS 200

/* The comment at the top says what these two protect. */
DEFINE_MUTEX(dcbm_admin_lock);
static DEFINE_MUTEX(dcbm_chans_lock);

/* Stuck channels: each pins the module.  dcbm_chans_lock protects the list. */
static LIST_HEAD(dcbm_stuck_chans);

/*
 * dcbm_admin_lock protects the first two.  dcbm_nr_chans changes under
 * dcbm_chans_lock.
 */
unsigned int dcbm_wanted_chans = 16;
static bool dcbm_on;
static unsigned int dcbm_nr_chans;

bool dcbm_is_on(void)
{
	return READ_ONCE(dcbm_on);
}

static size_t dcbm_dma_chan_max_piece(struct dma_chan *dma)
{
	struct device *dev = dmaengine_get_dma_device(dma);
	unsigned int said = dev->dma_parms ?
			    dev->dma_parms->max_segment_size : 0;

	return dcbm_max_piece(dcbm_max_seg(said, dev_is_pci(dev)),
			      dma->device->copy_align,
			      dma_opt_mapping_size(dev));
}

/* Devices that have given a channel in this round, by their number. */
#define DCBM_HAD_BITS 256

/*
 * Returns true if the channel has a device.  The caller has the lock of
 * dmaengine, whose list also has channels that come or go.  Registration lists a
 * channel before it has a device, and counts it at the end.  Unregistration
 * counts it no more before its device is freed, and takes it off the list later.
 * So all listed channels have devices if there are no more than are counted.  If
 * a provider is about to free a channel, its device no longer points to it.
 */
bool dcbm_is_registered(const struct dma_chan *dma)
{
	struct dma_device *provider = dma->device;

	return provider->chancnt &&
		list_count_nodes(&provider->channels) <= provider->chancnt &&
		dma->dev->chan;
}

/*
 * dmaengine calls this under its lock.  dcbm has given the channels of a driver
 * back when the driver is being unbound, and must not take them again.
 */
static bool dcbm_chan_filter(struct dma_chan *dma, void *had)
{
	return dcbm_is_registered(dma) &&
		READ_ONCE(dma->device->dev->links.status) != DL_DEV_UNBINDING &&
		dcbm_may_take(dma->device->dev) &&
		!test_bit(dma->device->dev_id % DCBM_HAD_BITS, had) &&
		dcbm_dma_chan_max_piece(dma);
}

static struct dcbm_chan *dcbm_chan_new(struct dma_chan *dma)
{
	struct dcbm_chan *chan = kzalloc(sizeof(*chan), GFP_KERNEL);
	int i;

	if (!chan)
		return NULL;
	chan->dma = dma;
	/* A stuck channel may outlive both devices, so keep their structs. */
	chan->dev = get_device(dmaengine_get_dma_device(dma));
	chan->provider = get_device(dma->device->dev);
	chan->nid = dev_to_node(chan->provider);
	chan->first_max_piece = dcbm_dma_chan_max_piece(dma);
	chan->ordered = !dma_has_cap(DMA_COMPLETION_NO_ORDER,
				     dma->device->cap_mask);
	dcbm_chan_trust(chan);
	chan->state = DCBM_IDLE;
	spin_lock_init(&chan->lock);
	INIT_LIST_HEAD(&chan->spare);
	INIT_LIST_HEAD(&chan->free);
	INIT_LIST_HEAD(&chan->done);
	INIT_LIST_HEAD(&chan->late);
	INIT_LIST_HEAD(&chan->kept);
	INIT_WORK(&chan->late_work, dcbm_late_work);
	for (i = 0; i < DCBM_SLOTS; i++) {
		chan->slots[i].chan = chan;
		list_add_tail(&chan->slots[i].node, &chan->spare);
	}
	kobject_init(&chan->kobj, &dcbm_chan_ktype);
	return chan;
}

static int dcbm_chan_add(struct dma_chan *dma)
{
	struct dcbm_chan *chan = dcbm_chan_new(dma);
	int ret = -ENOMEM;

	lockdep_assert_held(&dcbm_chans_lock);

	if (!chan)
		goto release;
	ret = kobject_add(&chan->kobj, dcbm_chans_kobj, "%s",
			  dma_chan_name(dma));
	if (ret)
		goto put;
	spin_lock(&dcbm_lock);
	list_add_tail(&chan->node, &dcbm_chans);
	spin_unlock(&dcbm_lock);
	WRITE_ONCE(dcbm_nr_chans, dcbm_nr_chans + 1);
	pr_debug("%s: node %d, pieces of %zu bytes\n",
		 kobject_name(&chan->kobj), chan->nid, chan->first_max_piece);
	return 0;

put:
	kobject_put(&chan->kobj);
release:
	dma_release_channel(dma);
	return ret;
}

/* Release a channel that is on no list, and has no callback due. */
static void dcbm_chan_release(struct dcbm_chan *chan)
{
	unsigned int nr_kept;

	/* Wait for tasks that write to the files: they may end kept transfers. */
	kobject_del(&chan->kobj);
	nr_kept = dcbm_chan_leak(chan);
	if (nr_kept)
		pr_warn("%s is given back with %u transfers that never ended; their pages stay out of use\n",
			kobject_name(&chan->kobj), nr_kept);
	dma_release_channel(chan->dma);
	kobject_put(&chan->kobj);
}

/* Keep streams from taking the channel, and wait until none has it. */
static void dcbm_chan_take_out(struct dcbm_chan *chan)
{
	lockdep_assert_held(&dcbm_chans_lock);

	spin_lock(&dcbm_lock);
	WRITE_ONCE(chan->leaving, true);
	spin_unlock(&dcbm_lock);
	while (!wait_event_timeout(dcbm_idle_wq,
				   READ_ONCE(chan->state) != DCBM_BUSY,
				   msecs_to_jiffies(dcbm_lease_ms)))
		queue_work(system_dfl_wq, &dcbm_expire_work);

	/* Late callbacks may still come, so wait for one timeout. */
	if (READ_ONCE(chan->nr_away))
		wait_event_timeout(dcbm_idle_wq, !READ_ONCE(chan->nr_away),
				   msecs_to_jiffies(READ_ONCE(dcbm_timeout_ms)));
}

/*
 * Release a channel, unless its device may still use pages.  If the device is
 * @going, it has no next user, and nothing ends the doubt about kept transfers.
 */
static void dcbm_chan_drop(struct dcbm_chan *chan, bool going)
{
	spin_lock(&dcbm_lock);
	list_del(&chan->node);
	spin_unlock(&dcbm_lock);
	WRITE_ONCE(dcbm_nr_chans, dcbm_nr_chans - 1);
	if (dcbm_chan_settle(chan, going)) {
		pr_warn("%s cannot be given back: it has transfers that never ended, and its driver does not stop them; its file terminate_stops remains\n",
			kobject_name(&chan->kobj));
		/* The driver may call back at any time, so keep the code. */
		__module_get(THIS_MODULE);
		list_add(&chan->node, &dcbm_stuck_chans);
		return;
	}
	dcbm_chan_release(chan);
}

/* Retry to release a stuck channel. */
static bool dcbm_chan_unstick(struct dcbm_chan *chan, bool going)
{
	if (dcbm_chan_settle(chan, going))
		return false;
	list_del(&chan->node);
	dcbm_chan_release(chan);
	module_put(THIS_MODULE);
	return true;
}

/* Retry to release stuck channels.  Returns true if none is left. */
static bool dcbm_drop_stuck(void)
{
	struct dcbm_chan *chan, *next;
	bool done;

	mutex_lock(&dcbm_chans_lock);
	list_for_each_entry_safe(chan, next, &dcbm_stuck_chans, node)
		dcbm_chan_unstick(chan, false);
	done = list_empty(&dcbm_stuck_chans);
	mutex_unlock(&dcbm_chans_lock);
	return done;
}

/* A late callback has come.  Perhaps a stuck channel waited for it. */
void dcbm_stuck_fn(struct work_struct *work)
{
	dcbm_drop_stuck();
}

/*
 * The module is being unloaded, but must stay while a callback may come.  So
 * wait until the device or its driver has ended all transfers.  If a driver
 * cannot end transfers, each late transfer pins the module instead.
 */
void dcbm_wait_for_stuck(void)
{
	while (!dcbm_drop_stuck()) {
		pr_warn_once("waiting for transfers that never ended\n");
		msleep(DCBM_STUCK_RETRY_MS);
	}
	/* No channel is left that could queue the works again. */
	cancel_work_sync(&dcbm_stuck_work);
	cancel_work_sync(&dcbm_expire_work);
}

static bool dcbm_chan_is_of(const struct dcbm_chan *chan,
			    const struct device *dev)
{
	return chan->provider == dev || &chan->dma->dev->device == dev;
}

/*
 * @dev goes away: a provider, or the device of a channel in /sys/class/dma/.  Its
 * driver may free the channels afterwards, so never touch them again.
 */
void dcbm_device_leaves(struct device *dev)
{
	struct dcbm_chan *chan, *next;

	mutex_lock(&dcbm_chans_lock);
	list_for_each_entry_safe(chan, next, &dcbm_chans, node) {
		if (!dcbm_chan_is_of(chan, dev))
			continue;
		pr_info("%s goes away\n", kobject_name(&chan->kobj));
		dcbm_chan_take_out(chan);
		dcbm_chan_drop(chan, true);
	}
	list_for_each_entry_safe(chan, next, &dcbm_stuck_chans, node) {
		if (!dcbm_chan_is_of(chan, dev) ||
		    dcbm_chan_unstick(chan, true))
			continue;
		/* The driver may call back until it is gone: keep the code. */
		list_del(&chan->node);
		kobject_del(&chan->kobj);
	}
	mutex_unlock(&dcbm_chans_lock);
}

/*
 * Acquire channels until there are @nr.  In each round every device gives one,
 * which spreads a small number over all devices, and hence over nodes.
 */
static int dcbm_acquire(unsigned int nr)
{
	DECLARE_BITMAP(had, DCBM_HAD_BITS) = {};
	struct dma_chan *dma;
	dma_cap_mask_t mask;
	int ret;

	dma_cap_zero(mask);
	dma_cap_set(DMA_MEMCPY, mask);
	ret = dcbm_watch(&mask);

	/* A channel that goes away meanwhile waits until it is on the list. */
	mutex_lock(&dcbm_chans_lock);
	while (!ret && dcbm_nr_chans < nr) {
		dma = dma_request_channel(mask, dcbm_chan_filter, had);
		if (dma) {
			__set_bit(dma->device->dev_id % DCBM_HAD_BITS, had);
			ret = dcbm_chan_add(dma);
			continue;
		}
		if (bitmap_empty(had, DCBM_HAD_BITS))
			break;
		bitmap_zero(had, DCBM_HAD_BITS);
	}
	if (dcbm_nr_chans)
		ret = 0;
	else
		ret = ret ?: -ENODEV;
	mutex_unlock(&dcbm_chans_lock);
	return ret;
}

/* Release channels until at most @nr are left. */
static void dcbm_give_back(unsigned int nr)
{
	struct dcbm_chan *chan, *next;

	mutex_lock(&dcbm_chans_lock);
	list_for_each_entry_safe_reverse(chan, next, &dcbm_chans, node) {
		if (dcbm_nr_chans <= nr)
			break;
		dcbm_chan_take_out(chan);
		dcbm_chan_drop(chan, false);
	}
	mutex_unlock(&dcbm_chans_lock);
	dcbm_drop_stuck();
}

int dcbm_start(void)
{
	int ret;

	lockdep_assert_held(&dcbm_admin_lock);

	if (dcbm_on)
		return 0;
	ret = dcbm_acquire(dcbm_wanted_chans);
	if (ret) {
		if (ret == -ENODEV)
			pr_warn("no free channel of a driver that the parameter devices names; public ones are taken while some other user has called dmaengine_get()\n");
		return ret;
	}
	dcbm_open(true);
	WRITE_ONCE(dcbm_on, true);
	return 0;
}

void dcbm_stop(void)
{
	lockdep_assert_held(&dcbm_admin_lock);

	WRITE_ONCE(dcbm_on, false);
	dcbm_open(false);
	dcbm_give_back(0);
}

int dcbm_resize(unsigned int nr)
{
	int ret = 0;

	lockdep_assert_held(&dcbm_admin_lock);

	dcbm_wanted_chans = nr;
	if (!dcbm_on)
		return 0;
	dcbm_give_back(nr);
	if (READ_ONCE(dcbm_nr_chans) < nr)
		ret = dcbm_acquire(nr);
	return ret;
}
