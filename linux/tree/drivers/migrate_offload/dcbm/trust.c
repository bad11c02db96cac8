// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: which drivers it uses, and what it believes of them.
 *
 * Some drivers report an error of the device as success: ptdma and zynqmp_dma
 * call back without a result, and dw-axi-dmac leaves the result at its default.
 * Others report success before the device has written, for example after a
 * transfer of an earlier client.  So dcbm believes success only of drivers that
 * are known to report errors.  For all others, it changes the last word of a
 * piece's destination in advance, and looks whether the device has written it.
 *
 * This test finds a device that stops at an error, or that has not finished, if
 * it writes a piece from its start to its end.  The test does not find a device
 * that leaves out bytes and continues, or that writes other bytes than it should.
 * The debugging switch "verify" finds these.
 */

#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/highmem.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "dcbm.h"

/*
 * Engines that copy memory and do little else.  Other drivers of DMA_MEMCPY
 * serve audio or serial ports, whose users would find no channel.
 */
static char *devices =
	"ioatdma,idxd,ptdma,ae4dma,sdxi,xilinx-zynqmp-dma,dmasim";
module_param(devices, charp, 0444);
MODULE_PARM_DESC(devices, "names of drivers, separated by commas, whose channels may be taken");

/*
 * In Linux 6.12, idxd checks the status that the device writes for each
 * descriptor.  The channel of ioat halts at an error, and the driver reports
 * that descriptor with the error, and all later ones as aborted.
 */
static char *trust_errors = "ioatdma,idxd";
module_param(trust_errors, charp, 0444);
MODULE_PARM_DESC(trust_errors, "names of drivers, separated by commas, that report each error of the device");

/*
 * A driver may have device_terminate_all(), but not stop the device: ptdma and
 * zynqmp_dma only drop their descriptors, and the device continues to write.
 * Others do not check whether it has stopped.  ioat reports transfers as aborted
 * before it stops the device.  So an administrator who knows the driver has to
 * say so, here or for each channel.
 */
static char *trust_terminate;
module_param(trust_terminate, charp, 0444);
MODULE_PARM_DESC(trust_terminate, "names of drivers, separated by commas, whose terminated or aborted transfers have stopped");

/*
 * These channels get one transfer at a time, until an administrator says how
 * many they take.  The prep of idxd waits without a limit while the queue is
 * full.  If the device halts, nobody wakes the task, which has locked folios and
 * is the one that acts on timeouts.  In Linux 7.3, ae4dma starts one transfer for
 * each issue_pending(), and leaves the others of a batch behind.
 */
#define DCBM_SINGLE	"idxd,ae4dma"

/*
 * An interrupt of these drivers ends all older transfers, with a callback and a
 * result for each.  So only the last of several needs to interrupt.  ptdma takes
 * the wish of the newest prep for the whole queue, and stops after a transfer
 * that does not interrupt.  Some other drivers then never call back.
 */
#define DCBM_BATCHING	"ioatdma,dmasim"

/* Returns true if @names has the driver of @dev. */
static bool dcbm_has_driver(const char *names, const struct device *dev)
{
	const char *name = dev->driver ? dev->driver->name : "";
	size_t len;

	for (; names && *names; names += len + (names[len] == ',')) {
		len = strcspn(names, ",");
		if (len && len == strlen(name) && !strncmp(names, name, len))
			return true;
	}
	return false;
}

bool dcbm_may_take(const struct device *provider)
{
	return dcbm_has_driver(devices, provider);
}

bool dcbm_can_terminate(const struct dcbm_chan *chan)
{
	return chan->dma->device->device_terminate_all &&
		chan->dma->device->device_synchronize;
}

/* Called once for a new channel. */
void dcbm_chan_trust(struct dcbm_chan *chan)
{
	chan->believed = dcbm_has_driver(trust_errors, chan->provider);
	chan->stops = dcbm_can_terminate(chan) &&
		      dcbm_has_driver(trust_terminate, chan->provider);
	chan->batches = chan->ordered &&
			dcbm_has_driver(DCBM_BATCHING, chan->provider);
	chan->max_transfers = dcbm_has_driver(DCBM_SINGLE, chan->provider) ?
			      1 : DCBM_SLOTS;
}

/*
 * Returns the last word of a piece, which needs kunmap_local().  @folio is the
 * first of the piece on one side.
 */
static u64 *dcbm_map_tail(const struct dcbm_slot *slot, struct folio *folio)
{
	size_t at = slot->start.offset + slot->bytes - sizeof(u64);
	unsigned long pfn = folio_pfn(folio) + (at >> PAGE_SHIFT);

	return kmap_local_page(pfn_to_page(pfn)) + offset_in_page(at);
}

/*
 * Make the last word of the destination differ from the source, before the
 * device maps it.  Returns -EHWPOISON if the source cannot be read.
 */
int dcbm_tail_mark(struct dcbm_slot *slot)
{
	const struct dcbm_pair *pair = &slot->job->pairs[slot->start.pair];
	u64 *src = dcbm_map_tail(slot, pair->src);
	u64 *dst = dcbm_map_tail(slot, pair->dst);
	int rc = 0;

	if (copy_mc_to_kernel(&slot->tail, src, sizeof(slot->tail)))
		rc = -EHWPOISON;
	else
		*dst = ~slot->tail;
	kunmap_local(dst);
	kunmap_local(src);
	return rc;
}

/* Returns true if the device has written the last word of the piece. */
bool dcbm_tail_written(const struct dcbm_slot *slot)
{
	bool written;
	u64 *dst;

	/* The word may be in a bounce buffer, or stale in a cache. */
	dma_sync_single_range_for_cpu(slot->chan->dev, slot->dst,
				      slot->bytes - sizeof(u64), sizeof(u64),
				      DMA_FROM_DEVICE);
	dst = dcbm_map_tail(slot, slot->job->pairs[slot->start.pair].dst);
	written = READ_ONCE(*dst) == slot->tail;
	kunmap_local(dst);
	return written;
}

/*
 * A callback has come.  Returns true if the device no longer uses the piece:
 * the driver is known to say so, or the piece is there.
 */
bool dcbm_slot_is_over(const struct dcbm_slot *slot)
{
	const struct dcbm_chan *chan = slot->chan;

	if (!slot->job)
		return true;
	if (slot->error == DCBM_ABORTED)
		return READ_ONCE(chan->stops);
	return slot->error || chan->believed || dcbm_tail_written(slot);
}
