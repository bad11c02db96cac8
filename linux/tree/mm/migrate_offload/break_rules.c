// SPDX-License-Identifier: GPL-2.0-only
/*
 * Break single safety rules of the batch copy, of runs, of exchanges, and of
 * large folios that are unmapped in one step.  A test breaks a rule to show that
 * it detects the failure.  Only for kernels that run nothing but tests.
 *
 * Files in /sys/kernel/debug/migrate_offload/:
 * - break_rules: rules to break, separated by commas; "none" restores all.
 * - bad_pfn: a copy of this page frame ends as after a machine check; 0: none.
 * - bad_reads: the number of copies that ended so.
 */

#define pr_fmt(fmt) "migrate_offload: " fmt

#include <linux/atomic.h>
#include <linux/buffer_head.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "../internal.h"
#include "copy.h"
#include "internal.h"

static const char * const rule_names[NR_MO_RULES] = {
	[MO_RULE_REFCOUNT]	= "refcount",
	[MO_RULE_RETRY]		= "retry",
	[MO_RULE_BUFFERS]	= "buffers",
	[MO_RULE_MAPPING]	= "mapping",
	[MO_RULE_POISON]	= "poison",
	[MO_RULE_RESULT]	= "result",
	[MO_RULE_RESCHED]	= "resched",
	[MO_RULE_ORDER]		= "order",
	[MO_RULE_HOLD]		= "hold",
	[MO_RULE_RUN_HINTS]	= "run_hints",
	[MO_RULE_RUN_PAGE]	= "run_page",
	[MO_RULE_RUN_EXCLUSIVE]	= "run_exclusive",
	[MO_RULE_RUN_POISON]	= "run_poison",
	[MO_RULE_RUN_PIN]	= "run_pin",
	[MO_RULE_RUN_FLUSH]	= "run_flush",
	[MO_RULE_RUN_JUDGE]	= "run_judge",
	[MO_RULE_RUN_ENTRY]	= "run_entry",
	[MO_RULE_RUN_SHARED]	= "run_shared",
	[MO_RULE_RUN_LOCKED]	= "run_locked",
	[MO_RULE_RUN_REST]	= "run_rest",
	[MO_RULE_RUN_NOTIFY]	= "run_notify",
	[MO_RULE_RUN_NOTIFY_END] = "run_notify_end",
	[MO_RULE_FILE_REFS]	= "file_refs",
	[MO_RULE_PTES_PIN]	= "ptes_pin",
	[MO_RULE_PTES_POISON]	= "ptes_poison",
	[MO_RULE_PTES_FLUSH]	= "ptes_flush",
	[MO_RULE_EXCHANGE_PIN]	= "exchange_pin",
	[MO_RULE_EXCHANGE_POISON] = "exchange_poison",
	[MO_RULE_EXCHANGE_FLUSH] = "exchange_flush",
	[MO_RULE_EXCHANGE_UNDO]	= "exchange_undo",
};

static unsigned long broken_rules;
static u64 bad_pfn;
static atomic_t bad_reads;

bool migrate_offload_broken(enum migrate_offload_rule rule)
{
	return unlikely(READ_ONCE(broken_rules) & BIT(rule));
}

/*
 * Returns how many of @bytes a copy from @page on can read: those before the
 * page frame bad_pfn.
 */
size_t migrate_offload_readable(struct page *page, size_t bytes)
{
	u64 pfn = READ_ONCE(bad_pfn), first = page_to_pfn(page);

	if (likely(!pfn || pfn < first || pfn >= first + (bytes >> PAGE_SHIFT)))
		return bytes;
	atomic_inc(&bad_reads);
	return (pfn - first) << PAGE_SHIFT;
}

/* For KUnit tests.  Returns how many copies ended at a bad page so far. */
int migrate_offload_set_bad_pfn(unsigned long pfn)
{
	WRITE_ONCE(bad_pfn, pfn);
	return atomic_read(&bad_reads);
}

/* The longest wait for another thread's TLB flush. */
#define JUDGE_LATE_US 100000

/*
 * Break the rule run_judge: let one of the cleared entries decide for all.
 * pte_accessible() depends on another thread's flush, so ask after that flush.
 */
bool migrate_offload_judge_late(struct mm_struct *mm, const pte_t *old,
				unsigned int nr)
{
	pte_t sample = old[0];
	unsigned int i;

	for (i = 1; i < nr; i++)
		if (!pte_accessible(mm, sample))
			sample = old[i];
	for (i = 0; i < JUDGE_LATE_US && mm_tlb_flush_pending(mm); i++)
		udelay(1);
	return pte_accessible(mm, sample);
}

/* Like migrate_copy_folio(), but also fails for bad_pfn. */
int migrate_offload_mc_copy(struct folio *dst, struct folio *src)
{
	return migrate_copy_span(dst, src, 0, folio_size(src),
				 migrate_rule(RESCHED, true));
}

/*
 * Does the mapping's callback do more than __migrate_folio()?  A folio of this
 * mapping was copied early only with a broken rule.  Do not check which rule:
 * the test may have restored the rule since.
 */
bool migrate_offload_unsafe(struct address_space *mapping, struct folio *src)
{
	if (!mapping || mapping->a_ops->migrate_folio == filemap_migrate_folio)
		return false;
	if (folio_test_private(src))
		return true;
	return mapping->a_ops->migrate_folio != migrate_folio &&
		mapping->a_ops->migrate_folio != buffer_migrate_folio &&
		mapping->a_ops->migrate_folio != buffer_migrate_folio_norefs;
}

/*
 * Move a folio that was copied early because a rule is broken.  Simulate a
 * callback whose copy is skipped: let the callback do everything, then restore
 * the early copy.
 */
int migrate_offload_move_unsafe(struct address_space *mapping,
				struct folio *dst, struct folio *src,
				enum migrate_mode mode)
{
	size_t size = folio_size(src);
	void *early;
	int rc;

	if (!mapping->a_ops->migrate_folio)
		return -EAGAIN;
	early = kmalloc(size, GFP_KERNEL);
	if (!early)
		return -EAGAIN;
	memcpy_from_folio(early, dst, 0, size);
	rc = mapping->a_ops->migrate_folio(mapping, dst, src, mode);
	if (!rc)
		memcpy_to_folio(dst, 0, early, size);
	kfree(early);
	return rc;
}

static int break_rules_show(struct seq_file *m, void *unused)
{
	unsigned long rules = READ_ONCE(broken_rules);
	int rule;

	if (!rules)
		seq_puts(m, "none");
	for_each_set_bit(rule, &rules, NR_MO_RULES) {
		seq_puts(m, rule_names[rule]);
		rules &= ~BIT(rule);
		if (rules)
			seq_putc(m, ',');
	}
	seq_putc(m, '\n');
	return 0;
}

static ssize_t break_rules_write(struct file *file, const char __user *ubuf,
				 size_t count, loff_t *ppos)
{
	unsigned long rules = 0;
	char buf[128], *rest, *word;
	int rule;

	if (count >= sizeof(buf))
		return -EINVAL;
	if (copy_from_user(buf, ubuf, count))
		return -EFAULT;
	buf[count] = '\0';

	rest = strim(buf);
	if (strcmp(rest, "none")) {
		while ((word = strsep(&rest, ","))) {
			rule = match_string(rule_names, NR_MO_RULES, word);
			if (rule < 0)
				return -EINVAL;
			rules |= BIT(rule);
		}
	}
	WRITE_ONCE(broken_rules, rules);
	return count;
}

static int break_rules_open(struct inode *inode, struct file *file)
{
	return single_open(file, break_rules_show, NULL);
}

static const struct file_operations break_rules_fops = {
	.owner = THIS_MODULE,
	.open = break_rules_open,
	.read = seq_read,
	.write = break_rules_write,
	.llseek = seq_lseek,
	.release = single_release,
};

void __init migrate_break_rules_add_files(struct dentry *dir)
{
	debugfs_create_file("break_rules", 0600, dir, NULL, &break_rules_fops);
	debugfs_create_u64("bad_pfn", 0600, dir, &bad_pfn);
	debugfs_create_atomic_t("bad_reads", 0400, dir, &bad_reads);
}
