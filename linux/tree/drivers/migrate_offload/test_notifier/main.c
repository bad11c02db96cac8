// SPDX-License-Identifier: GPL-2.0-only
/*
 * This module watches the memory of a process, as a device does that shares the
 * page table.  The module has an mmu_notifier and a shadow of the page table,
 * but no reference to pages.  Counters show how often the kernel breaks the
 * rules of mmu_notifiers.
 *
 * Documentation/ABI/testing/debugfs-migrate-notifier-test describes the files
 * in /sys/kernel/debug/migrate_notifier_test/.
 *
 * Each open of the file "watch" can start one device, which lives until that
 * file is closed.  The device is in device.c, and the callbacks of the notifier
 * are in shadow.c.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/debugfs.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/overflow.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "test_notifier.h"

static const char * const count_names[NR_NOTIFIER_COUNTS] = {
	[NOTIFIER_RANGES]	= "ranges",
	[NOTIFIER_DROPPED]	= "dropped",
	[NOTIFIER_FILLED]	= "filled",
	[NOTIFIER_ACCESSES]	= "accesses",
	[NOTIFIER_UNPAIRED]	= "unpaired",
	[NOTIFIER_IN_RANGE]	= "in_range",
	[NOTIFIER_STALE]	= "stale",
	[NOTIFIER_LOST]		= "lost",
};

static bool as_tlb;
static struct dentry *test_dir;

/* The state of an open file: its device, if it has one already. */
struct notifier_file {
	struct mutex lock;		/* serialises writers of the file */
	struct notifier_watch *watch;
};

static struct mm_struct *notifier_mm(int nr)
{
	struct mm_struct *mm = NULL;
	struct task_struct *task;
	struct pid *pid;

	pid = find_get_pid(nr);
	task = get_pid_task(pid, PIDTYPE_PID);
	put_pid(pid);
	if (task) {
		mm = get_task_mm(task);
		put_task_struct(task);
	}
	return mm;
}

static void notifier_free(struct notifier_watch *w)
{
	mmdrop(w->mm);
	kvfree(w);
}

/* The caller has a reference to the memory of @mm. */
static struct notifier_watch *notifier_new(struct mm_struct *mm,
					   unsigned long start,
					   unsigned long nr_pages,
					   unsigned int word)
{
	struct notifier_watch *w;
	int ret;

	w = kvzalloc(struct_size(w, pages, nr_pages), GFP_KERNEL);
	if (!w)
		return ERR_PTR(-ENOMEM);
	spin_lock_init(&w->lock);
	mmgrab(mm);
	w->mm = mm;
	w->start = start;
	w->nr_pages = nr_pages;
	w->word = word;
	w->as_tlb = READ_ONCE(as_tlb);
	ret = notifier_register(w);
	if (ret)
		goto free;
	w->thread = kthread_run(notifier_device, w, "migrate_notify");
	if (!IS_ERR(w->thread))
		return w;
	ret = PTR_ERR(w->thread);
	notifier_unregister(w);
free:
	notifier_free(w);
	return ERR_PTR(ret);
}

static int notifier_begin(struct notifier_file *f, const char *text)
{
	unsigned int word = NOTIFIER_NO_WORD;
	unsigned long start, bytes;
	struct notifier_watch *w;
	struct mm_struct *mm;
	int pid, nr;

	nr = sscanf(text, "%d %lx %lu %u", &pid, &start, &bytes, &word);
	if (nr < 3 || offset_in_page(start) || offset_in_page(bytes) || !bytes ||
	    bytes >> PAGE_SHIFT > NOTIFIER_MAX_PAGES)
		return -EINVAL;
	if (nr == 4 && word >= PAGE_SIZE / sizeof(u64))
		return -EINVAL;
	if (f->watch)
		return -EBUSY;
	mm = notifier_mm(pid);
	if (!mm)
		return -ESRCH;
	w = notifier_new(mm, start, bytes >> PAGE_SHIFT, word);
	mmput(mm);
	if (IS_ERR(w))
		return PTR_ERR(w);
	f->watch = w;
	return 0;
}

/* With @stop, the device makes no access after this returns. */
static int notifier_stop(struct notifier_file *f, bool stop)
{
	struct notifier_watch *w = f->watch;

	if (!w)
		return -ENODEV;
	spin_lock(&w->lock);
	WRITE_ONCE(w->stopped, stop);
	spin_unlock(&w->lock);
	return 0;
}

static int watch_open(struct inode *inode, struct file *file)
{
	struct notifier_file *f = kzalloc(sizeof(*f), GFP_KERNEL);

	if (!f)
		return -ENOMEM;
	mutex_init(&f->lock);
	file->private_data = f;
	return nonseekable_open(inode, file);
}

static ssize_t watch_write(struct file *file, const char __user *ubuf,
			   size_t count, loff_t *ppos)
{
	struct notifier_file *f = file->private_data;
	char buf[96], *text;
	int ret;

	if (count >= sizeof(buf))
		return -EINVAL;
	if (copy_from_user(buf, ubuf, count))
		return -EFAULT;
	buf[count] = '\0';
	text = strim(buf);

	mutex_lock(&f->lock);
	if (!strcmp(text, "stop"))
		ret = notifier_stop(f, true);
	else if (!strcmp(text, "go"))
		ret = notifier_stop(f, false);
	else
		ret = notifier_begin(f, text);
	mutex_unlock(&f->lock);
	return ret ?: count;
}

static int watch_release(struct inode *inode, struct file *file)
{
	struct notifier_file *f = file->private_data;

	if (f->watch) {
		kthread_stop(f->watch->thread);
		notifier_unregister(f->watch);
		notifier_free(f->watch);
	}
	kfree(f);
	return 0;
}

static const struct file_operations watch_fops = {
	.owner = THIS_MODULE,
	.open = watch_open,
	.write = watch_write,
	.release = watch_release,
};

static int count_get(void *data, u64 *value)
{
	*value = atomic64_read(data);
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(count_fops, count_get, NULL, "%llu\n");

static int __init migrate_notifier_test_init(void)
{
	int i;

	test_dir = debugfs_create_dir("migrate_notifier_test", NULL);
	for (i = 0; i < NR_NOTIFIER_COUNTS; i++)
		debugfs_create_file_unsafe(count_names[i], 0400, test_dir,
					   &notifier_counts[i], &count_fops);
	debugfs_create_u32("rest_us", 0600, test_dir, &notifier_rest_us);
	debugfs_create_bool("as_tlb", 0600, test_dir, &as_tlb);
	debugfs_create_bool("deaf", 0600, test_dir, &notifier_deaf);
	debugfs_create_file("watch", 0200, test_dir, NULL, &watch_fops);
	return 0;
}
module_init(migrate_notifier_test_init);

static void __exit migrate_notifier_test_exit(void)
{
	debugfs_remove(test_dir);
	/* Unregistered notifiers may still be in use under SRCU. */
	mmu_notifier_synchronize();
}
module_exit(migrate_notifier_test_exit);

MODULE_DESCRIPTION("A device that shares page tables, for tests of migration");
MODULE_LICENSE("GPL");
