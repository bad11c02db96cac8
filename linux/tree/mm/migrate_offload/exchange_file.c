// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/debug/migrate_exchange: exchange two folios, given by the numbers
 * of their first page frames.
 *
 * Documentation/ABI/testing/debugfs-migrate_exchange describes the file.
 */

#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/memory_hotplug.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/swap.h>
#include <linux/uaccess.h>

#include "../internal.h"
#include "exchange.h"

/*
 * Isolate the folio that begins at a page frame.  By now, the page frame may
 * have another owner than the writer saw.  An exchange does not change what any
 * owner reads, so that does no harm.
 */
static struct folio *exchange_isolate(u64 pfn, struct list_head *list)
{
	struct page *page = pfn_to_online_page(pfn);
	struct folio *folio;
	bool isolated;

	if (!page)
		return ERR_PTR(-ENXIO);
	folio = folio_get_nontail_page(page);
	if (!folio)
		return ERR_PTR(-EBUSY);
	/* A folio in the batch of a CPU is not on an LRU list yet. */
	if (!folio_test_lru(folio))
		lru_add_drain_all();
	isolated = folio_test_lru(folio) && isolate_folio_to_list(folio, list);
	folio_put(folio);
	return isolated ? folio : ERR_PTR(-EBUSY);
}

/* The batch of a CPU may have a reference, so drain these before a retry. */
static int exchange_isolated(struct folio *a, struct folio *b)
{
	int rc = migrate_exchange_folios(a, b, MR_SYSCALL);

	if (rc != -EAGAIN)
		return rc;
	lru_add_drain_all();
	return migrate_exchange_folios(a, b, MR_SYSCALL);
}

static int exchange_pfns(u64 pfn_a, u64 pfn_b)
{
	struct folio *a, *b;
	LIST_HEAD(folios);
	int rc;

	a = exchange_isolate(pfn_a, &folios);
	b = exchange_isolate(pfn_b, &folios);
	if (IS_ERR(a))
		rc = PTR_ERR(a);
	else if (IS_ERR(b))
		rc = PTR_ERR(b);
	else
		rc = exchange_isolated(a, b);
	putback_movable_pages(&folios);
	/* Put both on their LRU lists now, so that the next write finds them. */
	lru_add_drain();
	return rc;
}

static ssize_t exchange_write(struct file *file, const char __user *ubuf,
			      size_t count, loff_t *ppos)
{
	char buf[64], end;
	u64 pfn_a, pfn_b;
	int rc;

	if (count >= sizeof(buf))
		return -EINVAL;
	if (copy_from_user(buf, ubuf, count))
		return -EFAULT;
	buf[count] = '\0';
	if (sscanf(buf, "%llu %llu %c", &pfn_a, &pfn_b, &end) != 2)
		return -EINVAL;
	rc = exchange_pfns(pfn_a, pfn_b);
	return rc ?: count;
}

static const struct file_operations exchange_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = exchange_write,
};

static int __init exchange_file_init(void)
{
	debugfs_create_file("migrate_exchange", 0200, NULL, NULL,
			    &exchange_fops);
	return 0;
}
late_initcall(exchange_file_init);
