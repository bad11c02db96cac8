// SPDX-License-Identifier: GPL-2.0-only
/*
 * Allocates large blocks of one node in the slow path, and measures the time.
 * The benchmark of compaction cannot do this from user space: a page fault may
 * fall back to small pages, and always clears its memory.
 *
 * Documentation/ABI/testing/debugfs-migrate-compact-test describes the files in
 * /sys/kernel/debug/migrate_compact_test/.
 *
 * The module is safe for the machine: it uses neither reserves nor the OOM
 * killer, and a part of the node stays free.  A signal stops an allocation.
 * All pages are freed at the latest when the module is unloaded.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/debugfs.h>
#include <linux/gfp.h>
#include <linux/kstrtox.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

/* As page faults for huge pages: one attempt, without long waits. */
#define COMPACT_TEST_GFP \
	(GFP_TRANSHUGE | __GFP_THISNODE | __GFP_NORETRY | __GFP_NOWARN)

/* Take only free blocks. */
#define COMPACT_TEST_GFP_FREE (COMPACT_TEST_GFP & ~__GFP_RECLAIM)

/* This part of the node stays free: 1/32. */
#define COMPACT_TEST_KEEP_SHIFT 5

/* As in mm/compaction.c: at this limit compaction scans all blocks again. */
#define COMPACT_TEST_DEFER_SHIFT 6

/* Attempts in a row, as compaction ends early when its locks are contended. */
#define COMPACT_TEST_TRIES 16

enum compact_test_end {
	COMPACT_TEST_NONE,
	COMPACT_TEST_COUNT,
	COMPACT_TEST_MEMORY,
	COMPACT_TEST_RESERVE,
	COMPACT_TEST_SIGNAL,
};

static const char * const compact_test_ends[] = {
	[COMPACT_TEST_NONE] = "none",
	[COMPACT_TEST_COUNT] = "count",
	[COMPACT_TEST_MEMORY] = "memory",
	[COMPACT_TEST_RESERVE] = "reserve",
	[COMPACT_TEST_SIGNAL] = "signal",
};

/* Protects all variables below. */
static DEFINE_MUTEX(test_lock);

static LIST_HEAD(held_pages);
static unsigned int held_order;
static u64 nr_held;

static u64 test_node;
static u64 test_order = HPAGE_PMD_ORDER;
static u64 test_count;
static u64 nr_allocated;
static u64 nr_drained;
static u64 nr_passes;
static u64 elapsed_ns;
static enum compact_test_end test_end;

static struct dentry *test_dir;

static unsigned long node_free_pages(int nid)
{
	unsigned long sum = 0;
	int i;

	for (i = 0; i < MAX_NR_ZONES; i++)
		sum += zone_page_state(&NODE_DATA(nid)->node_zones[i],
				       NR_FREE_PAGES);
	return sum;
}

/* Returns the free memory to keep: with less, kswapd would start soon. */
static unsigned long node_reserve_pages(int nid)
{
	unsigned long managed = 0, marks = 0;
	int i;

	for (i = 0; i < MAX_NR_ZONES; i++) {
		struct zone *zone = &NODE_DATA(nid)->node_zones[i];

		managed += zone_managed_pages(zone);
		marks += high_wmark_pages(zone);
	}
	return max(managed >> COMPACT_TEST_KEEP_SHIFT, marks);
}

/*
 * Compaction remembers its position and the blocks to skip, which would
 * influence this run.  Reset both, as compaction does after many failures.
 * Compaction, too, changes these fields without a lock.
 */
static void test_forget(int nid)
{
	int i;

	for (i = 0; i < MAX_NR_ZONES; i++) {
		struct zone *zone = &NODE_DATA(nid)->node_zones[i];

		if (!populated_zone(zone))
			continue;
		zone->compact_init_migrate_pfn = zone->zone_start_pfn;
		zone->compact_init_free_pfn = zone_end_pfn(zone) - 1;
		zone->compact_blockskip_flush = true;
		zone->compact_order_failed = held_order;
		zone->compact_defer_shift = COMPACT_TEST_DEFER_SHIFT;
		zone->compact_considered = 1U << COMPACT_TEST_DEFER_SHIFT;
	}
	nr_passes++;
}

/*
 * After a reset, compaction searches its start from both ends of a zone towards
 * the middle.  If one half has nothing to offer, compaction starts in the
 * middle.  While a zone counts as restarting, compaction repeats this search,
 * and never begins at the ends.  So end the restart of each zone.
 */
static void test_begin(int nid)
{
	int i;

	for (i = 0; i < MAX_NR_ZONES; i++) {
		struct zone *zone = &NODE_DATA(nid)->node_zones[i];

		zone->compact_considered = 0;
		zone->compact_defer_shift = 0;
	}
}

/*
 * When compaction has scanned the whole node, start it again, as kswapd would.
 */
static struct page *test_compact(int nid, bool *forgot)
{
	struct page *page;
	int i;

	for (i = 0; i < COMPACT_TEST_TRIES; i++) {
		page = alloc_pages_node(nid, COMPACT_TEST_GFP, held_order);
		if (page) {
			*forgot = false;
			return page;
		}
		if (*forgot)
			test_begin(nid);
		else
			test_forget(nid);
		*forgot = !*forgot;
		cond_resched();
	}
	return NULL;
}

static u64 test_allocate(int nid, bool compact, u64 count)
{
	unsigned long reserve = node_reserve_pages(nid);
	bool forgot = compact;	/* run_set() has called test_forget() */
	struct page *page;
	u64 nr = 0;

	lockdep_assert_held(&test_lock);

	test_end = COMPACT_TEST_COUNT;
	for (; nr < count; nr++) {
		if (signal_pending(current)) {
			test_end = COMPACT_TEST_SIGNAL;
			break;
		}
		if (node_free_pages(nid) < reserve + (1UL << held_order)) {
			test_end = COMPACT_TEST_RESERVE;
			break;
		}
		page = compact ? test_compact(nid, &forgot) :
				 alloc_pages_node(nid, COMPACT_TEST_GFP_FREE,
						  held_order);
		if (!page) {
			test_end = COMPACT_TEST_MEMORY;
			break;
		}
		list_add(&page->lru, &held_pages);
		nr_held++;
		cond_resched();
	}
	return nr;
}

static void test_free(void)
{
	struct page *page, *next;

	lockdep_assert_held(&test_lock);

	list_for_each_entry_safe(page, next, &held_pages, lru) {
		list_del(&page->lru);
		__free_pages(page, held_order);
		cond_resched();
	}
	nr_held = 0;
	nr_allocated = 0;
	nr_drained = 0;
}

/* All held pages have one order. */
static int test_prepare(void)
{
	lockdep_assert_held(&test_lock);

	if (test_node >= MAX_NUMNODES || !node_state(test_node, N_MEMORY))
		return -ENODEV;
	if (nr_held && held_order != test_order)
		return -EBUSY;
	held_order = test_order;
	return 0;
}

static int run_set(void *data, u64 value)
{
	u64 start_ns;
	int ret;

	if (value != 1)
		return -EINVAL;
	if (mutex_lock_interruptible(&test_lock))
		return -EINTR;
	ret = test_prepare();
	if (!ret) {
		nr_passes = 0;
		test_forget(test_node);
		start_ns = ktime_get_ns();
		nr_allocated = test_allocate(test_node, true, test_count);
		elapsed_ns = ktime_get_ns() - start_ns;
	}
	mutex_unlock(&test_lock);
	return ret;
}

DEFINE_DEBUGFS_ATTRIBUTE(run_fops, NULL, run_set, "%llu\n");

/* Take all free blocks, so that the next run has to compact. */
static int drain_set(void *data, u64 value)
{
	int ret;

	if (value != 1)
		return -EINVAL;
	if (mutex_lock_interruptible(&test_lock))
		return -EINTR;
	ret = test_prepare();
	if (!ret)
		nr_drained = test_allocate(test_node, false, U64_MAX);
	mutex_unlock(&test_lock);
	return ret;
}

DEFINE_DEBUGFS_ATTRIBUTE(drain_fops, NULL, drain_set, "%llu\n");

static int free_set(void *data, u64 value)
{
	if (value != 1)
		return -EINVAL;
	mutex_lock(&test_lock);
	test_free();
	mutex_unlock(&test_lock);
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(free_fops, NULL, free_set, "%llu\n");

static int value_get(void *data, u64 *value)
{
	mutex_lock(&test_lock);
	*value = *(u64 *)data;
	mutex_unlock(&test_lock);
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(counter_fops, value_get, NULL, "%llu\n");

static int setting_set(void *data, u64 value)
{
	int ret = 0;

	mutex_lock(&test_lock);
	if (data == &test_order && value > MAX_PAGE_ORDER)
		ret = -EINVAL;
	else if (data == &test_node && value >= MAX_NUMNODES)
		ret = -EINVAL;
	else
		*(u64 *)data = value;
	mutex_unlock(&test_lock);
	return ret;
}

DEFINE_DEBUGFS_ATTRIBUTE(setting_fops, value_get, setting_set, "%llu\n");

static ssize_t ended_read(struct file *file, char __user *ubuf, size_t count,
			  loff_t *ppos)
{
	char line[16];
	int len;

	len = scnprintf(line, sizeof(line), "%s\n",
			compact_test_ends[READ_ONCE(test_end)]);
	return simple_read_from_buffer(ubuf, count, ppos, line, len);
}

static const struct file_operations ended_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = ended_read,
};

static int __init migrate_compact_test_init(void)
{
	static const struct {
		const char *name;
		u64 *value;
		bool setting;
	} files[] = {
		{ "node", &test_node, true },
		{ "order", &test_order, true },
		{ "count", &test_count, true },
		{ "allocated", &nr_allocated, false },
		{ "drained", &nr_drained, false },
		{ "passes", &nr_passes, false },
		{ "elapsed_ns", &elapsed_ns, false },
	};
	int i;

	test_node = first_memory_node;
	test_dir = debugfs_create_dir("migrate_compact_test", NULL);
	for (i = 0; i < ARRAY_SIZE(files); i++)
		debugfs_create_file_unsafe(files[i].name,
					   files[i].setting ? 0600 : 0400,
					   test_dir, files[i].value,
					   files[i].setting ? &setting_fops :
							      &counter_fops);
	debugfs_create_file("ended", 0400, test_dir, NULL, &ended_fops);
	debugfs_create_file_unsafe("run", 0200, test_dir, NULL, &run_fops);
	debugfs_create_file_unsafe("drain", 0200, test_dir, NULL, &drain_fops);
	debugfs_create_file_unsafe("free", 0200, test_dir, NULL, &free_fops);
	return 0;
}
module_init(migrate_compact_test_init);

static void __exit migrate_compact_test_exit(void)
{
	/* Waits for tasks that use one of its files. */
	debugfs_remove(test_dir);
	mutex_lock(&test_lock);
	test_free();
	mutex_unlock(&test_lock);
}
module_exit(migrate_compact_test_exit);

MODULE_DESCRIPTION("Large allocations from the slow path, for benchmarks of compaction");
MODULE_LICENSE("GPL");
