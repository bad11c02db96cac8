// SPDX-License-Identifier: GPL-2.0-only
/*
 * A caller that needs physical memory in one piece, as CMA, virtio-mem and huge
 * pages of 1 GiB do:
 *
 *   alloc_contig	"PFN NR": allocate these page frames, which migrates their
 *		content, and free them at once.  -EBUSY if a page cannot move,
 *		-EINVAL if the frames are not all of one zone
 */

#include <linux/debugfs.h>
#include <linux/gfp.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/uaccess.h>

#include "test_engine.h"

/* The test must not remove memory during this check. */
static bool contig_in_one_zone(unsigned long pfn, unsigned long nr)
{
	struct page *page, *first = pfn_to_online_page(pfn);
	unsigned long i;

	for (i = 0; i < nr; i++) {
		page = pfn_to_online_page(pfn + i);
		if (!page || page_zone(page) != page_zone(first))
			return false;
		cond_resched();
	}
	return nr;
}

static ssize_t contig_write(struct file *file, const char __user *user_buf,
			    size_t count, loff_t *pos)
{
	unsigned long pfn, nr;
	char buf[48] = {};
	int ret;

	if (count >= sizeof(buf))
		return -EINVAL;
	if (copy_from_user(buf, user_buf, count))
		return -EFAULT;
	if (sscanf(buf, "%lu %lu", &pfn, &nr) != 2 ||
	    !contig_in_one_zone(pfn, nr))
		return -EINVAL;
	ret = alloc_contig_range(pfn, pfn + nr, MIGRATE_MOVABLE, GFP_KERNEL);
	if (ret)
		return ret;
	free_contig_range(pfn, nr);
	return count;
}

static const struct file_operations contig_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = contig_write,
};

void test_contig_create_files(struct dentry *dir)
{
	debugfs_create_file("alloc_contig", 0200, dir, NULL, &contig_fops);
}
