// SPDX-License-Identifier: GPL-2.0-only
/*
 * A disk that does not answer:
 *
 *   writeback	"ADDRESS": the page of the writing process at ADDRESS is under
 *		writeback until the file is closed.  One at a time
 */

#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/kstrtox.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/uaccess.h>

#include "test_engine.h"

static ssize_t writeback_write(struct file *file, const char __user *ubuf,
			       size_t count, loff_t *ppos)
{
	struct folio *folio;
	unsigned long addr;
	struct page *page;
	int ret;

	ret = kstrtoul_from_user(ubuf, count, 16, &addr);
	if (ret)
		return ret;
	if (file->private_data)
		return -EBUSY;
	ret = get_user_pages_fast(addr, 1, FOLL_WRITE, &page);
	if (ret != 1)
		return ret < 0 ? ret : -EFAULT;
	folio = page_folio(page);
	folio_lock(folio);
	folio_start_writeback(folio);
	folio_unlock(folio);
	file->private_data = folio;
	return count;
}

/*
 * Drop the reference before the writeback ends.  A task that waits for the
 * writeback could not move the page otherwise.
 */
static int writeback_release(struct inode *inode, struct file *file)
{
	struct folio *folio = file->private_data;

	if (!folio)
		return 0;
	if (folio_ref_count(folio) > 1) {
		folio_put(folio);
		folio_end_writeback(folio);
	} else {
		/* The process has exited, so the put frees the folio. */
		folio_end_writeback(folio);
		folio_put(folio);
	}
	return 0;
}

static const struct file_operations writeback_fops = {
	.owner = THIS_MODULE,
	.open = nonseekable_open,
	.write = writeback_write,
	.release = writeback_release,
};

void test_writeback_create_files(struct dentry *dir)
{
	debugfs_create_file("writeback", 0200, dir, NULL, &writeback_fops);
}
