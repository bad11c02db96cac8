// SPDX-License-Identifier: GPL-2.0-only
/*
 * A copy engine that misbehaves, and holders of references at the worst moment.
 * Tests of the batch copy need both, and user space cannot provide them.
 *
 * The engine "test" copies in the caller's context, and follows the switches in
 * /sys/kernel/debug/migrate_offload_test/:
 *
 *   decline	decline every batch
 *   unwilling	tell the core beforehand that no batch is wanted; not with the
 *		module parameters below
 *   delay_us	sleep this long after a copy; a smaller value ends the sleep
 *   fail_nth	fail the nth folio from now on with -EIO
 *   lie_nth	report the nth folio from now on as copied, without a copy
 *   hold_nth	give up on the nth folio from now on, as for a device that
 *		cannot be stopped.  After late_ms, or at a write to late_now,
 *		overwrite the destination and release both folios.  One folio at
 *		a time
 *
 * The directory also has counters: batches, seen_folios, seen_poisoned,
 * late_writes, and seen_secret, for folios that the kernel must not read.
 * in_copy is not zero during a copy.
 *
 * With the module parameter posted=1 the engine is a struct migrator, with one
 * result for the whole batch.  With stream=1 the engine copies batches side by
 * side, in its own context; stream.c describes the differences.
 *
 * The loaded module uses a tracepoint of the batch copy, so the core traces all
 * migration, also without an active engine.
 *
 * The holders are files, too.  Holders take the reference when the file is
 * written, unless described otherwise.  They drop the reference as described,
 * or when the file is closed:
 *
 *   pin		"ADDRESS BYTE": hold the page at ADDRESS of the writing
 *		process.  After the copy of the next batch, fill the page with
 *		BYTE and drop the reference, as a device does at the end of I/O.
 *   grab	"BYTE": after its copy, hold the first folio of the next batch.
 *		So the first attempt to move this folio fails.  When the next
 *		folio has moved, fill the first page of the held one with BYTE
 *		and drop the reference.  A hugetlb folio is released when it is
 *		mapped again.
 *   hold_bh	"PATH BLOCK BYTE": hold a buffer head of a block device.  After
 *		the copy of the next batch, fill the block with BYTE, mark the
 *		buffer dirty and release it, as a file system does.
 *
 * contig.c describes a file that allocates physical memory in one piece.
 * writeback.c describes a file that imitates a disk without an answer.
 *
 * BYTE is written without the folio lock on purpose: the lock does not exclude
 * the writers that the tests imitate.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/kstrtox.h>
#include <linux/ktime.h>
#include <linux/leafops.h>
#include <linux/migrate_copy_offload.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>
#include <trace/events/migrate_offload.h>

#include "test_engine.h"

static bool posted;
module_param(posted, bool, 0444);
MODULE_PARM_DESC(posted, "register as a struct migrator, with one result for a batch");

static bool stream;
module_param(stream, bool, 0444);
MODULE_PARM_DESC(stream, "copy batches side by side, and later");

/* The interval between two looks at a switch that delays. */
#define TEST_DELAY_STEP_US 1000

static struct dentry *test_dir;

bool test_decline;
static bool unwilling;
u32 test_delay_us;
static atomic_t fail_nth;
static atomic_t lie_nth;
static atomic_t hold_nth;
static u32 late_ms = 100;

atomic_t test_batches;
static atomic_t seen_folios;
static atomic_t seen_poisoned;
static atomic_t seen_secret;
static atomic_t late_writes;
atomic_t test_in_copy;

/*
 * The held objects.  A thread that clears a pointer by xchg() owns the
 * reference and drops it.  The byte is set before its pointer.
 */
static struct page *pinned_page;
static struct folio *grabbed_folio;
static struct buffer_head *held_bh;
static u8 pin_byte, grab_byte, bh_byte;
static atomic_t grab_next;

static void finish_pin(void)
{
	struct page *page = xchg(&pinned_page, NULL);

	if (!page)
		return;
	memset_page(page, 0, pin_byte, PAGE_SIZE);
	folio_mark_dirty(page_folio(page));
	put_page(page);
}

static void finish_bh(void)
{
	struct buffer_head *bh = xchg(&held_bh, NULL);

	if (!bh)
		return;
	memset(bh->b_data, bh_byte, bh->b_size);
	mark_buffer_dirty(bh);
	brelse(bh);
}

static void finish_grab(void *data, const char *reason, const char *engine,
			u64 bytes, u64 unmapped_ns, bool copied, int rc)
{
	struct folio *folio = xchg(&grabbed_folio, NULL);

	if (!folio)
		return;
	memset_page(folio_page(folio, 0), 0, grab_byte, PAGE_SIZE);
	folio_mark_dirty(folio);
	folio_put(folio);
}

/*
 * finish_grab() drops the reference when another folio moves, so the batch has
 * to have a second folio.  A hugetlb folio alone suffices, because each attempt
 * to move a hugetlb folio counts as a move.
 */
static void test_grab(struct folio *first, bool of_many)
{
	if ((of_many || folio_test_hugetlb(first)) &&
	    atomic_dec_if_positive(&grab_next) == 0) {
		folio_get(first);
		if (cmpxchg(&grabbed_folio, NULL, first))
			folio_put(first);
	}
}

void test_batch_copied(void)
{
	finish_pin();
	finish_bh();
}

/*
 * The core may move this folio before the rest of the batch is copied.  Drop
 * the references of the holders now, or the folio cannot move.
 */
void test_pair_copied(struct folio *src, bool first, bool of_many)
{
	struct buffer_head *bh = READ_ONCE(held_bh);
	struct page *page = READ_ONCE(pinned_page);

	if (first)
		test_grab(src, of_many);
	if (page && page_folio(page) == src)
		finish_pin();
	if (bh && bh->b_folio == src)
		finish_bh();
}

/*
 * Tests compare a delay with ktime.  Linux calibrates the timer tick at boot,
 * and on a busy host the tick may be too fast.  Then msleep() ends early.
 */
void test_sleep(const u32 *for_us)
{
	ktime_t begin = ktime_get();
	s64 left_us;

	while ((left_us = READ_ONCE(*for_us) -
			  ktime_us_delta(ktime_get(), begin)) > 0)
		fsleep(min_t(s64, left_us, TEST_DELAY_STEP_US));
}

static void test_copied(struct folio *first, unsigned int nr_folios)
{
	test_grab(first, nr_folios > 1);
	test_batch_copied();
	test_sleep(&test_delay_us);
}

/* Some memory, such as that of memfd_secret(2), has no kernel mapping. */
static bool test_is_secret(struct folio *folio)
{
	u8 byte;

	return !folio_test_highmem(folio) &&
		copy_from_kernel_nofault(&byte, folio_address(folio), 1);
}

int test_look_at(struct folio *src)
{
	atomic_inc(&seen_folios);
	if (folio_contain_hwpoisoned_page(src))
		atomic_inc(&seen_poisoned);
	if (test_is_secret(src)) {
		atomic_inc(&seen_secret);
		return -EFAULT;
	}
	if (atomic_dec_if_positive(&fail_nth) == 0)
		return -EIO;
	return atomic_dec_if_positive(&lie_nth) != 0;
}

/* A device that was not stopped writes this byte to the destination later. */
#define TEST_LATE_BYTE 0xee

static struct folio *late_src, *late_dst;

static void test_write_late(struct work_struct *work)
{
	long i, nr = folio_nr_pages(late_dst);

	for (i = 0; i < nr; i++)
		memset_page(folio_page(late_dst, i), 0, TEST_LATE_BYTE,
			    PAGE_SIZE);
	migrate_copy_unhold(late_src, late_dst);
	atomic_inc(&late_writes);
}

static DECLARE_DELAYED_WORK(late_work, test_write_late);

/* Start the pending late write now. */
static int late_now_set(void *data, u64 value)
{
	if (cancel_delayed_work(&late_work))
		mod_delayed_work(system_percpu_wq, &late_work, 0);
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(late_now_fops, NULL, late_now_set, "%llu\n");

bool test_wants_hold(void)
{
	return atomic_dec_if_positive(&hold_nth) == 0;
}

void test_hold(struct migrate_copy_pair *pair)
{
	if (delayed_work_pending(&late_work))
		return;
	migrate_copy_hold(pair);
	late_src = pair->src;
	late_dst = pair->dst;
	schedule_delayed_work(&late_work, msecs_to_jiffies(READ_ONCE(late_ms)));
}

static int test_submit(struct migrate_copy_stream *stream,
		       struct migrate_copy_batch *batch)
{
	unsigned int i;

	atomic_inc(&test_batches);
	if (READ_ONCE(test_decline))
		return -EOPNOTSUPP;

	atomic_inc(&test_in_copy);
	for (i = 0; i < batch->nr_pairs; i++) {
		struct migrate_copy_pair *pair = &batch->pairs[i];
		struct migrate_copy_pos pos = { .pair = i };
		int rc;

		if (test_wants_hold()) {
			test_hold(pair);
			continue;
		}
		rc = test_look_at(pair->src);
		pair->result = min(rc, 0);
		if (rc > 0)
			migrate_copy_range(batch, pos, folio_size(pair->src));
	}
	test_copied(batch->pairs[0].src, batch->nr_pairs);
	atomic_dec(&test_in_copy);
	return 0;
}

static bool test_wants(int dst_nid, size_t bytes)
{
	return !READ_ONCE(unwilling);
}

static const struct migrate_engine_ops test_engine = {
	.name = "test",
	.owner = THIS_MODULE,
	.submit = test_submit,
	.wants = test_wants,
};

static int test_copy_lists(struct list_head *dst_list,
			   struct list_head *src_list)
{
	struct folio *src, *dst = list_first_entry(dst_list, struct folio, lru);

	list_for_each_entry(src, src_list, lru) {
		int rc = test_look_at(src);

		/* Lists that differ would make the copy run past their end. */
		if (list_entry_is_head(dst, dst_list, lru) ||
		    folio_order(src) != folio_order(dst))
			return -EINVAL;
		if (rc > 0)
			rc = folio_mc_copy(dst, src);
		if (rc)
			return rc;
		dst = list_next_entry(dst, lru);
	}
	return 0;
}

static int test_offload_copy(struct list_head *dst_list,
			     struct list_head *src_list,
			     unsigned int folio_cnt)
{
	int rc;

	atomic_inc(&test_batches);
	if (READ_ONCE(test_decline))
		return -EOPNOTSUPP;

	atomic_inc(&test_in_copy);
	rc = test_copy_lists(dst_list, src_list);
	test_copied(list_first_entry(src_list, struct folio, lru), folio_cnt);
	atomic_dec(&test_in_copy);
	return rc;
}

static struct migrator test_migrator = {
	.name = "test",
	.offload_copy = test_offload_copy,
	.owner = THIS_MODULE,
};

/* A holder takes one line in one write, and holds one object. */
#define TEST_LINE_MAX 128

static int test_get_line(char *line, const char __user *ubuf, size_t count)
{
	if (count >= TEST_LINE_MAX)
		return -EINVAL;
	if (copy_from_user(line, ubuf, count))
		return -EFAULT;
	line[count] = '\0';
	return 0;
}

static ssize_t pin_write(struct file *file, const char __user *ubuf,
			 size_t count, loff_t *ppos)
{
	char line[TEST_LINE_MAX];
	unsigned long addr;
	struct page *page;
	int ret, byte;

	ret = test_get_line(line, ubuf, count);
	if (ret)
		return ret;
	if (sscanf(line, "%lx %i", &addr, &byte) != 2)
		return -EINVAL;

	ret = get_user_pages_fast(addr, 1, FOLL_WRITE, &page);
	if (ret != 1)
		return ret < 0 ? ret : -EFAULT;
	pin_byte = byte;
	if (cmpxchg(&pinned_page, NULL, page)) {
		put_page(page);
		return -EBUSY;
	}
	return count;
}

static int pin_release(struct inode *inode, struct file *file)
{
	struct page *page = xchg(&pinned_page, NULL);

	if (page)
		put_page(page);
	return 0;
}

static const struct file_operations pin_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = pin_write,
	.release = pin_release,
};

static ssize_t grab_write(struct file *file, const char __user *ubuf,
			  size_t count, loff_t *ppos)
{
	int ret = kstrtou8_from_user(ubuf, count, 0, &grab_byte);

	if (ret)
		return ret;
	atomic_set(&grab_next, 1);
	return count;
}

static int grab_release(struct inode *inode, struct file *file)
{
	struct folio *folio;

	atomic_set(&grab_next, 0);
	folio = xchg(&grabbed_folio, NULL);
	if (folio)
		folio_put(folio);
	return 0;
}

static const struct file_operations grab_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = grab_write,
	.release = grab_release,
};

static ssize_t hold_bh_write(struct file *file, const char __user *ubuf,
			     size_t count, loff_t *ppos)
{
	char line[TEST_LINE_MAX], path[64];
	unsigned long long block;
	struct buffer_head *bh;
	struct file *bdev_file;
	int ret, byte;

	ret = test_get_line(line, ubuf, count);
	if (ret)
		return ret;
	if (sscanf(line, "%63s %llu %i", path, &block, &byte) != 3)
		return -EINVAL;
	if (file->private_data)
		return -EBUSY;

	bdev_file = bdev_file_open_by_path(path, BLK_OPEN_READ | BLK_OPEN_WRITE,
					   NULL, NULL);
	if (IS_ERR(bdev_file))
		return PTR_ERR(bdev_file);
	bh = __bread(file_bdev(bdev_file), block,
		     block_size(file_bdev(bdev_file)));
	if (!bh) {
		bdev_fput(bdev_file);
		return -EIO;
	}
	bh_byte = byte;
	if (cmpxchg(&held_bh, NULL, bh)) {
		brelse(bh);
		bdev_fput(bdev_file);
		return -EBUSY;
	}
	file->private_data = bdev_file;
	return count;
}

static int hold_bh_release(struct inode *inode, struct file *file)
{
	if (file->private_data) {
		brelse(xchg(&held_bh, NULL));
		bdev_fput(file->private_data);
	}
	return 0;
}

static const struct file_operations hold_bh_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = hold_bh_write,
	.release = hold_bh_release,
};

static void test_create_files(void)
{
	test_dir = debugfs_create_dir(KBUILD_MODNAME, NULL);
	debugfs_create_bool("decline", 0600, test_dir, &test_decline);
	debugfs_create_bool("unwilling", 0600, test_dir, &unwilling);
	debugfs_create_u32("delay_us", 0600, test_dir, &test_delay_us);
	debugfs_create_atomic_t("fail_nth", 0600, test_dir, &fail_nth);
	debugfs_create_atomic_t("lie_nth", 0600, test_dir, &lie_nth);
	debugfs_create_atomic_t("hold_nth", 0600, test_dir, &hold_nth);
	debugfs_create_u32("late_ms", 0600, test_dir, &late_ms);
	debugfs_create_file_unsafe("late_now", 0200, test_dir, NULL,
				   &late_now_fops);
	debugfs_create_atomic_t("late_writes", 0400, test_dir, &late_writes);
	debugfs_create_atomic_t("batches", 0400, test_dir, &test_batches);
	debugfs_create_atomic_t("seen_folios", 0400, test_dir, &seen_folios);
	debugfs_create_atomic_t("seen_poisoned", 0400, test_dir, &seen_poisoned);
	debugfs_create_atomic_t("seen_secret", 0400, test_dir, &seen_secret);
	debugfs_create_atomic_t("in_copy", 0400, test_dir, &test_in_copy);
	debugfs_create_file("pin", 0200, test_dir, NULL, &pin_fops);
	debugfs_create_file("grab", 0200, test_dir, NULL, &grab_fops);
	debugfs_create_file("hold_bh", 0200, test_dir, NULL, &hold_bh_fops);
	test_contig_create_files(test_dir);
	test_writeback_create_files(test_dir);
	if (stream)
		test_stream_create_files(test_dir);
}

/* The tracepoint of a moved folio. */
static struct tracepoint *folio_tp;

static void find_folio_tp(struct tracepoint *tp, void *priv)
{
	check_trace_callback_type_mm_migrate_folio(finish_grab);
	if (!strcmp(tp->name, "mm_migrate_folio"))
		folio_tp = tp;
}

static void test_remove_probe(void)
{
	tracepoint_probe_unregister(folio_tp, finish_grab, NULL);
	tracepoint_synchronize_unregister();
}

static int test_register(void)
{
	if (posted)
		return migrate_offload_register(&test_migrator);
	return migrate_engine_register(stream ? &test_stream_engine :
						&test_engine);
}

static void test_unregister(void)
{
	if (posted)
		migrate_offload_unregister(&test_migrator);
	else
		migrate_engine_unregister(stream ? &test_stream_engine :
						   &test_engine);
}

static int __init test_init(void)
{
	int ret;

	if (posted && stream)
		return -EINVAL;
	for_each_kernel_tracepoint(find_folio_tp, NULL);
	if (!folio_tp)
		return -ENODEV;
	ret = tracepoint_probe_register(folio_tp, finish_grab, NULL);
	if (ret)
		return ret;
	ret = test_stream_init();
	if (ret)
		goto remove_probe;
	ret = test_register();
	if (ret)
		goto stream_exit;
	test_create_files();
	return 0;

stream_exit:
	test_stream_exit();
remove_probe:
	test_remove_probe();
	return ret;
}
module_init(test_init);

static void __exit test_exit(void)
{
	/* From now on, no process can become a holder. */
	debugfs_remove(test_dir);
	test_unregister();
	flush_delayed_work(&late_work);
	test_stream_exit();
	test_remove_probe();
}
module_exit(test_exit);

MODULE_DESCRIPTION("Copy engine that misbehaves, for tests");
MODULE_LICENSE("GPL");
