// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: notices when channels go away.
 *
 * The bus of a provider tells when its driver is about to be unbound.  At that
 * time the driver still works, so transfers in flight end.  The class of
 * dmaengine tells before a driver frees a channel, whatever its bus is.  idxd
 * frees a channel alone, when its work queue is unbound.  But ioat has reset its
 * device then, and dmaengine warns of clients that still have channels.
 *
 * dcbm watches until the module is removed, because a channel may be stuck after
 * dcbm has given back the others.
 */

#include <linux/array_size.h>
#include <linux/device.h>
#include <linux/device/bus.h>
#include <linux/device/class.h>
#include <linux/notifier.h>
#include <linux/pci.h>
#include <linux/platform_device.h>

#include "dcbm.h"

static int dcbm_bus_event(struct notifier_block *nb, unsigned long event,
			  void *dev)
{
	if (event == BUS_NOTIFY_UNBIND_DRIVER)
		dcbm_device_leaves(dev);
	return NOTIFY_DONE;
}

static struct {
	const struct bus_type *bus;
	struct notifier_block nb;
} dcbm_buses[] = {
	{ &platform_bus_type, { .notifier_call = dcbm_bus_event } },
#ifdef CONFIG_PCI
	{ &pci_bus_type, { .notifier_call = dcbm_bus_event } },
#endif
};

/* ->class is set while all are registered; dcbm_admin_lock protects it. */
static struct class_interface dcbm_class = {
	.remove_dev = dcbm_device_leaves,
};

/* Only a channel tells which class it has.  Take none of them. */
static bool dcbm_find_class(struct dma_chan *dma, void *class)
{
	if (dcbm_is_registered(dma))
		*(const struct class **)class = dma->dev->device.class;
	return false;
}

/* Start before dcbm has a channel.  @mask: the capabilities of any channel. */
int dcbm_watch(const dma_cap_mask_t *mask)
{
	int i, ret;

	lockdep_assert_held(&dcbm_admin_lock);

	if (dcbm_class.class)
		return 0;
	dma_request_channel(*mask, dcbm_find_class, &dcbm_class.class);
	ret = class_interface_register(&dcbm_class);
	if (ret) {
		dcbm_class.class = NULL;
		return ret;
	}
	for (i = 0; i < ARRAY_SIZE(dcbm_buses); i++)
		bus_register_notifier(dcbm_buses[i].bus, &dcbm_buses[i].nb);
	return 0;
}

/* The module is being removed, and has no channels. */
void dcbm_unwatch(void)
{
	int i;

	if (!dcbm_class.class)
		return;
	for (i = 0; i < ARRAY_SIZE(dcbm_buses); i++)
		bus_unregister_notifier(dcbm_buses[i].bus, &dcbm_buses[i].nb);
	class_interface_unregister(&dcbm_class);
}
