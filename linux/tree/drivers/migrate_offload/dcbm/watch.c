// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: notices when devices and channels go away.
 *
 * The bus of a provider tells when its driver is about to be unbound.  At that
 * time the driver still works, so transfers in flight end.  But a driver may
 * also unregister one channel alone: idxd does so when a work queue is unbound.
 * The class of dmaengine tells before the driver frees such a channel.
 *
 * dcbm watches until the module is removed, because a channel may be stuck after
 * dcbm has given back the others.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/device.h>
#include <linux/device/bus.h>
#include <linux/device/class.h>
#include <linux/notifier.h>

#include "dcbm.h"

/* Devices with DMA_MEMCPY sit on one or two kinds of buses. */
#define DCBM_MAX_BUSES 8

/* dcbm_admin_lock protects both. */
static struct dcbm_bus {
	const struct bus_type *bus;
	struct notifier_block nb;
} dcbm_buses[DCBM_MAX_BUSES];
static struct class_interface dcbm_class;

static int dcbm_bus_event(struct notifier_block *nb, unsigned long event,
			  void *data)
{
	if (event == BUS_NOTIFY_UNBIND_DRIVER)
		dcbm_device_leaves(data);
	return NOTIFY_DONE;
}

void dcbm_watch_bus(const struct bus_type *bus)
{
	int i;

	lockdep_assert_held(&dcbm_admin_lock);

	for (i = 0; bus && i < DCBM_MAX_BUSES; i++) {
		if (dcbm_buses[i].bus == bus)
			return;
		if (dcbm_buses[i].bus)
			continue;
		dcbm_buses[i].nb.notifier_call = dcbm_bus_event;
		if (!bus_register_notifier(bus, &dcbm_buses[i].nb))
			dcbm_buses[i].bus = bus;
		return;
	}
}

/* Only a channel tells which class it has.  Take none of them. */
static bool dcbm_find_class(struct dma_chan *dma, void *class)
{
	*(const struct class **)class = dma->dev->device.class;
	return false;
}

/* Watch all channels, before dcbm has the first.  @mask: capabilities of any. */
int dcbm_watch_channels(const dma_cap_mask_t *mask)
{
	int ret;

	lockdep_assert_held(&dcbm_admin_lock);

	if (dcbm_class.class)
		return 0;
	dma_request_channel(*mask, dcbm_find_class, &dcbm_class.class);
	dcbm_class.remove_dev = dcbm_device_leaves;
	ret = class_interface_register(&dcbm_class);
	if (ret)
		dcbm_class.class = NULL;
	return ret;
}

/* The module is being removed, and has no channels. */
void dcbm_unwatch(void)
{
	int i;

	for (i = 0; i < DCBM_MAX_BUSES; i++)
		if (dcbm_buses[i].bus)
			bus_unregister_notifier(dcbm_buses[i].bus,
						&dcbm_buses[i].nb);
	class_interface_unregister(&dcbm_class);
}
