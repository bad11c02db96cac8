// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: copy migrating folios with DMAengine channels.
 *
 * dcbm uses drivers that offer DMA_MEMCPY, and divides a batch into pieces
 * of bytes.  So one large folio and many small folios occupy all channels
 * alike.
 *
 * dcbm copies a batch without allocations that reclaim: the migrating task may
 * be reclaiming memory, and holds the locks of all folios.
 */

#include <kunit/visibility.h>
#include <linux/module.h>

#include "dcbm.h"

const struct migrate_engine_ops dcbm_ops = {
	.name = "dcbm",
	.owner = THIS_MODULE,
	.wants = dcbm_wants,
	.open = dcbm_stream_open,
	.submit = dcbm_stream_submit,
	.reap = dcbm_stream_reap,
	.close = dcbm_stream_close,
};
EXPORT_SYMBOL_IF_KUNIT(dcbm_ops);

static int __init dcbm_init(void)
{
	int ret = -ENOMEM;

	/* dcbm_late_work() frees held folios, so the queue needs a rescuer. */
	dcbm_wq = alloc_workqueue("dcbm", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!dcbm_wq)
		return ret;
	INIT_WORK(&dcbm_stuck_work, dcbm_stuck_fn);
	INIT_WORK(&dcbm_expire_work, dcbm_expire_fn);
	ret = dcbm_stream_init();
	if (ret)
		goto destroy_wq;
	ret = dcbm_sysfs_init();
	if (ret)
		goto exit_streams;
	ret = migrate_engine_register(&dcbm_ops);
	if (ret)
		goto exit_sysfs;
	return 0;

exit_sysfs:
	dcbm_sysfs_exit();
exit_streams:
	dcbm_stream_exit();
destroy_wq:
	destroy_workqueue(dcbm_wq);
	return ret;
}

/* If built in, dcbm starts after the kernel has created /sys/module/dcbm/. */
late_initcall(dcbm_init);

static void __exit dcbm_exit(void)
{
	migrate_engine_unregister(&dcbm_ops);
	/* After this, no administrator can acquire channels again. */
	dcbm_sysfs_exit();
	destroy_workqueue(dcbm_wq);
	dcbm_stream_exit();
}
module_exit(dcbm_exit);

MODULE_DESCRIPTION("Copy migrating folios with DMAengine channels");
MODULE_LICENSE("GPL");
