// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: copy migrating folios with DMAengine channels.
 *
 * dcbm uses drivers that offer DMA_MEMCPY, and divides a batch into pieces
 * of bytes.  So one large folio and many small folios occupy all channels
 * alike.
 *
 *	main.c	the engine's interface to the core
 *	stream.c	the queue of batches of one task
 *	job.c	one batch, and when each of its folios is done
 *	lease.c	which stream gets which channels, and for how long
 *	copy.c	divides jobs into pieces, maps and submits them
 *	reap.c	callbacks and timeouts
 *	doubt.c	transfers that a device may not have ended
 *	trust.c	which drivers are used, and what is believed of them
 *	share.c	the share that the CPU copies
 *	math.c	the arithmetic of dividing work
 *	chan.c	acquires and releases channels
 *	watch.c	notices when channels go away
 *	chan_sysfs.c	/sys/module/dcbm/channels/
 *	sysfs.c	/sys/module/dcbm/
 *
 * dcbm copies a batch without allocations that reclaim: the migrating task may
 * be reclaiming memory, and holds the locks of all folios.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <kunit/visibility.h>
#include <linux/module.h>

#include "dcbm.h"

atomic64_t dcbm_batches_busy;

static int dcbm_open_stream(struct migrate_copy_stream *stream)
{
	int ret;

	if (!dcbm_is_on())
		return -EOPNOTSUPP;
	/*
	 * Compaction runs on the CPU of any task that allocates memory.  Other
	 * tasks can use the CPU time that dcbm leaves there.
	 */
	stream->private = dcbm_stream_open(stream->dst_nid, stream->bytes,
					   stream->reason == MR_COMPACTION,
					   &ret);
	if (ret == -EBUSY)
		atomic64_inc(&dcbm_batches_busy);
	return ret;
}

static int dcbm_submit(struct migrate_copy_stream *stream,
		       struct migrate_copy_batch *batch)
{
	int ret;

	if (batch->nr_pairs > DCBM_MAX_PAIRS)
		return -EOPNOTSUPP;
	ret = dcbm_stream_submit(stream->private, batch);
	if (ret)
		atomic64_inc(&dcbm_batches_busy);
	return ret;
}

static void dcbm_reap(struct migrate_copy_stream *stream, u64 wait_ns)
{
	dcbm_stream_reap(stream->private, wait_ns);
}

static void dcbm_close(struct migrate_copy_stream *stream)
{
	dcbm_stream_close(stream->private);
}

/* The core asks before it opens a stream.  The answer is a hint. */
static bool dcbm_wants(int dst_nid, size_t bytes)
{
	if (!dcbm_is_on())
		return false;
	if (dcbm_any_idle())
		return true;
	/* Make a stream with more than its share give channels back. */
	dcbm_note_missed();
	return false;
}

const struct migrate_engine_ops dcbm_ops = {
	.name = "dcbm",
	.owner = THIS_MODULE,
	.wants = dcbm_wants,
	.open = dcbm_open_stream,
	.submit = dcbm_submit,
	.reap = dcbm_reap,
	.close = dcbm_close,
};
EXPORT_SYMBOL_IF_KUNIT(dcbm_ops);

static int __init dcbm_init(void)
{
	int ret = -ENOMEM;

	/* dcbm_late_work() frees held folios, so the queue needs a rescuer. */
	dcbm_wq = alloc_workqueue("dcbm", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!dcbm_wq)
		return ret;
	dcbm_chan_init();
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
