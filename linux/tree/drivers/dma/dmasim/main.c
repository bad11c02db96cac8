// SPDX-License-Identifier: GPL-2.0-only
/*
 * dmasim: a simulated DMA engine that offers DMA_MEMCPY.
 *
 * dmasim is for tests of clients of DMA engines, on machines without a DMA
 * engine.  dmasim also fails on request, which no real DMA engine does.  The
 * CPU copies.  dmasim simulates the time of transfers, the order of completion,
 * and faults.
 *
 * Documentation/driver-api/dmaengine/dmasim.rst says which bugs of a client
 * dmasim reveals.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpumask.h>
#include <linux/debugfs.h>
#include <linux/dma-mapping.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/nodemask.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "dmasim.h"

#define DMASIM_MAX_DEVICES 16
#define DMASIM_MAX_CHANNELS 64
#define DMASIM_MAX_DESCRIPTORS 65536

static unsigned int devices = 1;
module_param(devices, uint, 0444);
MODULE_PARM_DESC(devices, "DMA devices, 1 (default) to 16");

static int nodes[DMASIM_MAX_DEVICES];
static unsigned int nr_nodes;
module_param_array(nodes, int, &nr_nodes, 0444);
MODULE_PARM_DESC(nodes, "the NUMA node of each device, separated by commas; those not named are on none");

static unsigned int channels = 4;
module_param(channels, uint, 0444);
MODULE_PARM_DESC(channels, "channels of each device, 1 to 64, default 4");

static bool private;
module_param(private, bool, 0444);
MODULE_PARM_DESC(private, "channels are for one client each (DMA_PRIVATE), default N: anybody may share them");

static unsigned int bandwidth_mbps;
module_param(bandwidth_mbps, uint, 0444);
MODULE_PARM_DESC(bandwidth_mbps, "rate of each channel in 1000000 bytes per second; 0 (default): as fast as a CPU copies");

static unsigned int latency_us;
module_param(latency_us, uint, 0444);
MODULE_PARM_DESC(latency_us, "microseconds from the last byte of a descriptor to its completion, default 0; other descriptors are not held up");

static unsigned int coalesce_us;
module_param(coalesce_us, uint, 0444);
MODULE_PARM_DESC(coalesce_us, "microseconds that a descriptor's completion waits for that of others, so that one interrupt is for all, default 0; not once nothing else is in flight");

static unsigned int descriptors = 64;
module_param(descriptors, uint, 0444);
MODULE_PARM_DESC(descriptors, "descriptors of each channel, 1 to 65536, default 64; when all are in use, prep returns NULL");

static unsigned int max_seg_bytes;
module_param(max_seg_bytes, uint, 0444);
MODULE_PARM_DESC(max_seg_bytes, "bytes that a descriptor can copy at most, enforced; 0 (default): 4294967295");

static unsigned int max_copy_bytes;
module_param(max_copy_bytes, uint, 0444);
MODULE_PARM_DESC(max_copy_bytes, "as max_seg_bytes, but clients are not told; 0 (default): no such limit");

static bool prep_waits;
module_param(prep_waits, bool, 0444);
MODULE_PARM_DESC(prep_waits, "when all descriptors are in use, prep waits for one, default N: it returns NULL");

static unsigned int copy_align;
module_param(copy_align, uint, 0444);
MODULE_PARM_DESC(copy_align, "log2 of what addresses and sizes must be a multiple of, enforced; 0 (default) to 12");

static unsigned int address_bits = 64;
module_param(address_bits, uint, 0444);
MODULE_PARM_DESC(address_bits, "bits of addresses that the devices reach, 24 to 64 (default); memory beyond is bounced, if the kernel has bounce buffers");

static bool out_of_order;
module_param(out_of_order, bool, 0444);
MODULE_PARM_DESC(out_of_order, "descriptors of a channel complete in any order (DMA_COMPLETION_NO_ORDER), default N");

static bool can_terminate = true;
module_param(can_terminate, bool, 0444);
MODULE_PARM_DESC(can_terminate, "transfers can be terminated, default Y; N: the driver has no such operation");

static bool pci;
module_param(pci, bool, 0444);
MODULE_PARM_DESC(pci, "simulate on the devices pci-testdev of QEMU, which can be behind an IOMMU, default N: on platform devices; \"devices\" and \"nodes\" have no effect then");

static int cpu = -1;
module_param(cpu, int, 0444);
MODULE_PARM_DESC(cpu, "the CPU that does the work of all devices, in a thread; default -1: whichever uses them, in softirq context");

static struct platform_device *dmasim_pdevs[DMASIM_MAX_DEVICES];
static struct workqueue_struct *dmasim_wq;

static bool dmasim_reject(struct dma_chan *chan, void *unused)
{
	return false;
}

/*
 * dma_release_channel() drops its reference on the device, and then accesses
 * the device once more, all under dmaengine's mutex.  So wait until that mutex
 * was free: a request takes the mutex, and the filter rejects all channels.
 */
static void dmasim_pass_core_mutex(void)
{
	dma_cap_mask_t mask;

	dma_cap_zero(mask);
	dma_cap_set(DMA_MEMCPY, mask);
	WARN_ON(dma_request_channel(mask, dmasim_reject, NULL));
}

static void dmasim_free_fn(struct work_struct *work)
{
	struct dmasim_dev *d = container_of(work, struct dmasim_dev, free_work);
	unsigned int i;

	dmasim_pass_core_mutex();
	for (i = 0; i < d->nr_chans; i++)
		dmasim_chan_destroy(&d->chans[i]);
	kvfree(d);
}

static void dmasim_last_put(struct kref *ref)
{
	struct dmasim_dev *d = container_of(ref, struct dmasim_dev, ref);

	queue_work(dmasim_wq, &d->free_work);
}

/* dmaengine calls this under its mutex. */
static void dmasim_device_release(struct dma_device *dma)
{
	struct dmasim_dev *d = container_of(dma, struct dmasim_dev, dma);

	kref_put(&d->ref, dmasim_last_put);
}

/*
 * Take the device away from its clients, even if they use it.  All descriptors
 * end with DMA_TRANS_ABORTED, and later preps return NULL.  The clients still
 * have to release their channels.
 */
void dmasim_unregister(struct dmasim_dev *d)
{
	unsigned int i;

	mutex_lock(&d->unregister_lock);
	if (!d->unregistered) {
		d->unregistered = true;
		dma_async_device_unregister(&d->dma);
		for (i = 0; i < d->nr_chans; i++)
			dmasim_chan_vanish(&d->chans[i]);
	}
	mutex_unlock(&d->unregister_lock);
}

/*
 * Take one channel away from its client, as the driver of Intel's DSA does when
 * a work queue is unbound.  A client has to release its channel when it hears
 * that the channel's device goes, as that driver then frees the channel.
 * Returns -EBUSY if the client still has the channel.
 */
int dmasim_leave(struct dmasim_chan *c)
{
	struct dmasim_dev *d = to_dmasim_dev(c);
	int ret = 0;

	mutex_lock(&d->unregister_lock);
	if (!d->unregistered && !c->left) {
		c->left = true;
		dma_async_device_channel_unregister(&d->dma, &c->chan);
		/* As in idxd, without dma_list_mutex, which is not exported. */
		list_del(&c->chan.device_node);
		dmasim_chan_vanish(c);
		ret = c->chan.client_count ? -EBUSY : 0;
	}
	mutex_unlock(&d->unregister_lock);
	return ret;
}

static int dmasim_setup_dma(struct device *dev)
{
	dma_set_max_seg_size(dev, max_seg_bytes ?: UINT_MAX);
	return dma_set_mask_and_coherent(dev, DMA_BIT_MASK(address_bits));
}

static void dmasim_setup_device(struct dmasim_dev *d, struct device *dev)
{
	struct dma_device *dma = &d->dma;
	unsigned int i;

	dma_cap_set(DMA_MEMCPY, dma->cap_mask);
	if (private)
		dma_cap_set(DMA_PRIVATE, dma->cap_mask);
	if (out_of_order)
		dma_cap_set(DMA_COMPLETION_NO_ORDER, dma->cap_mask);
	d->out_of_order = out_of_order;
	d->prep_waits = prep_waits;
	d->max_copy_bytes = max_copy_bytes ?: UINT_MAX;

	dma->dev = dev;
	dma->copy_align = copy_align;
	dma->directions = BIT(DMA_MEM_TO_MEM);
	dma->device_release = dmasim_device_release;
	dmasim_set_ops(dma, can_terminate);
	INIT_LIST_HEAD(&dma->channels);
	for (i = 0; i < d->nr_chans; i++) {
		struct dmasim_chan *c = &d->chans[i];

		c->bandwidth_mbps = bandwidth_mbps;
		c->latency_us = latency_us;
		c->coalesce_us = coalesce_us;
		c->chan.device = dma;
		list_add_tail(&c->chan.device_node, &dma->channels);
	}
}

static struct dmasim_dev *dmasim_alloc(struct device *dev)
{
	struct dmasim_dev *d;
	unsigned int i;
	int ret = 0;

	d = kvzalloc(struct_size(d, chans, channels), GFP_KERNEL);
	if (!d)
		return NULL;
	d->nr_chans = channels;
	kref_init(&d->ref);
	INIT_WORK(&d->free_work, dmasim_free_fn);
	mutex_init(&d->unregister_lock);
	for (i = 0; i < d->nr_chans; i++)
		ret = dmasim_chan_init(&d->chans[i], descriptors,
				       dev_to_node(dev)) ?: ret;
	if (ret) {
		kref_put(&d->ref, dmasim_last_put);
		return NULL;
	}
	return d;
}

/* @nr: in the name of the device's directory in debugfs. */
static int dmasim_probe(struct device *dev, unsigned int nr)
{
	struct dmasim_dev *d;
	char name[16];
	int ret;

	ret = dmasim_setup_dma(dev);
	if (ret)
		return ret;
	d = dmasim_alloc(dev);
	if (!d)
		return -ENOMEM;
	dmasim_setup_device(d, dev);
	kref_get(&d->ref);
	ret = dma_async_device_register(&d->dma);
	if (ret) {
		kref_put(&d->ref, dmasim_last_put);
		kref_put(&d->ref, dmasim_last_put);
		return ret;
	}
	dev_set_drvdata(dev, d);
	snprintf(name, sizeof(name), DMASIM_NAME ".%u", nr);
	dmasim_debugfs_add(d, name);
	return 0;
}

static void dmasim_remove(struct device *dev)
{
	struct dmasim_dev *d = dev_get_drvdata(dev);

	/* Wait for tasks that read or write the files. */
	debugfs_remove(d->dir);
	dmasim_unregister(d);
	kref_put(&d->ref, dmasim_last_put);
}

static int dmasim_platform_probe(struct platform_device *pdev)
{
	return dmasim_probe(&pdev->dev, pdev->id);
}

static void dmasim_platform_remove(struct platform_device *pdev)
{
	dmasim_remove(&pdev->dev);
}

static struct platform_driver dmasim_driver = {
	.driver.name = DMASIM_NAME,
	.probe = dmasim_platform_probe,
	.remove = dmasim_platform_remove,
};

/*
 * QEMU's pci-testdev has no driver of its own.  dmasim only maps memory for it.
 * Without MODULE_DEVICE_TABLE(), its presence does not load dmasim.
 */
static const struct pci_device_id dmasim_pci_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT, 0x0005) },
	{}
};

static int dmasim_pci_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct pci_dev *other = NULL;
	unsigned int nr = 0;
	int ret;

	/* Number the devices in the order of their addresses. */
	while ((other = pci_get_device(id->vendor, id->device, other)) &&
	       other != pdev)
		nr++;
	pci_dev_put(other);
	ret = pcim_enable_device(pdev);
	return ret ?: dmasim_probe(&pdev->dev, nr);
}

static void dmasim_pci_remove(struct pci_dev *pdev)
{
	dmasim_remove(&pdev->dev);
}

static struct pci_driver dmasim_pci_driver = {
	.name = DMASIM_NAME,
	.id_table = dmasim_pci_ids,
	.probe = dmasim_pci_probe,
	.remove = dmasim_pci_remove,
};

static int dmasim_check_params(void)
{
	unsigned int i;

	if (!devices || devices > DMASIM_MAX_DEVICES ||
	    !channels || channels > DMASIM_MAX_CHANNELS ||
	    !descriptors || descriptors > DMASIM_MAX_DESCRIPTORS ||
	    copy_align > PAGE_SHIFT || address_bits < 24 || address_bits > 64) {
		pr_err("a parameter is out of range, see modinfo\n");
		return -EINVAL;
	}
	if (max_seg_bytes && max_seg_bytes < 1U << copy_align) {
		pr_err("max_seg_bytes is less than copy_align demands\n");
		return -EINVAL;
	}
	if (nr_nodes > devices) {
		pr_err("%u nodes for %u devices\n", nr_nodes, devices);
		return -EINVAL;
	}
	if (cpu < -1 || (cpu >= 0 && (cpu >= nr_cpu_ids || !cpu_online(cpu)))) {
		pr_err("there is no CPU %d\n", cpu);
		return -EINVAL;
	}
	for (i = 0; i < nr_nodes; i++) {
		if (nodes[i] < 0 || nodes[i] >= MAX_NUMNODES ||
		    !node_online(nodes[i])) {
			pr_err("there is no node %d\n", nodes[i]);
			return -EINVAL;
		}
	}
	return 0;
}

static int dmasim_add_device(unsigned int i)
{
	struct platform_device *pdev;
	int ret;

	pdev = platform_device_alloc(DMASIM_NAME, i);
	if (!pdev)
		return -ENOMEM;
	set_dev_node(&pdev->dev, i < nr_nodes ? nodes[i] : NUMA_NO_NODE);
	ret = platform_device_add(pdev);
	if (ret) {
		platform_device_put(pdev);
		return ret;
	}
	dmasim_pdevs[i] = pdev;
	/* The probe failed, and the log has the reason. */
	if (!pdev->dev.driver)
		return -ENODEV;
	return 0;
}

static void dmasim_remove_devices(void)
{
	unsigned int i;

	if (pci) {
		pci_unregister_driver(&dmasim_pci_driver);
		return;
	}
	for (i = 0; i < DMASIM_MAX_DEVICES; i++)
		platform_device_unregister(dmasim_pdevs[i]);
	platform_driver_unregister(&dmasim_driver);
}

static int dmasim_add_devices(void)
{
	unsigned int i;
	int ret;

	if (pci) {
		if (pci_dev_present(dmasim_pci_ids))
			return pci_register_driver(&dmasim_pci_driver);
		pr_err("there is no pci-testdev, see QEMU's option -device\n");
		return -ENODEV;
	}
	ret = platform_driver_register(&dmasim_driver);
	for (i = 0; !ret && i < devices; i++) {
		ret = dmasim_add_device(i);
		if (ret)
			dmasim_remove_devices();
	}
	return ret;
}

static int dmasim_start_worker(void)
{
	struct kthread_worker *worker;

	if (cpu < 0)
		return 0;
	worker = kthread_run_worker_on_cpu(cpu, 0, DMASIM_NAME "/%u");
	if (IS_ERR(worker))
		return PTR_ERR(worker);
	/* The worker acts for devices, which do not wait for other tasks. */
	sched_set_fifo_low(worker->task);
	dmasim_worker = worker;
	return 0;
}

static void dmasim_stop_worker(void)
{
	if (dmasim_worker)
		kthread_destroy_worker(dmasim_worker);
}

static int __init dmasim_init(void)
{
	int ret;

	ret = dmasim_check_params();
	if (ret)
		return ret;
	dmasim_wq = alloc_workqueue(DMASIM_NAME, WQ_UNBOUND, 0);
	if (!dmasim_wq)
		return -ENOMEM;
	ret = dmasim_start_worker();
	if (ret)
		goto no_worker;
	dmasim_debugfs_init();
	ret = dmasim_add_devices();
	if (!ret)
		return 0;

	dmasim_debugfs_exit();
no_worker:
	destroy_workqueue(dmasim_wq);
	dmasim_stop_worker();
	return ret;
}
module_init(dmasim_init);

static void __exit dmasim_exit(void)
{
	dmasim_remove_devices();
	dmasim_debugfs_exit();
	/* Wait until the last device is freed. */
	destroy_workqueue(dmasim_wq);
	dmasim_stop_worker();
}
module_exit(dmasim_exit);

MODULE_DESCRIPTION("Simulated DMA engine, for tests");
MODULE_LICENSE("GPL");
