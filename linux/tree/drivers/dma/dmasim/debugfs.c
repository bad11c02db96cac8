// SPDX-License-Identifier: GPL-2.0-only
/*
 * Faults of simulated DMA channels, and their counters:
 * /sys/kernel/debug/dmasim/<device>/<channel>/.
 */

#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "dmasim.h"

const char * const dmasim_fault_names[DMASIM_NR_FAULTS] = {
	[DMASIM_FAIL] = "fail",
	[DMASIM_STALL] = "stall",
	[DMASIM_LATE] = "late",
	[DMASIM_LOSE_IRQ] = "lose_irq",
	[DMASIM_HIDE_ERROR] = "hide_error",
	[DMASIM_ABORT] = "abort",
	[DMASIM_REFUSE] = "refuse",
	[DMASIM_REJECT] = "reject",
};

static const char * const dmasim_terminate_names[] = {
	[DMASIM_TERMINATE_STOP] = "stop",
	[DMASIM_TERMINATE_ERROR] = "error",
	[DMASIM_TERMINATE_LIE] = "lie",
	[DMASIM_TERMINATE_EARLY] = "early",
};

static struct dentry *dmasim_root;

static ssize_t terminate_read(struct file *file, char __user *ubuf,
			      size_t count, loff_t *ppos)
{
	struct dmasim_chan *c = file->private_data;
	char line[16];
	int len;

	len = scnprintf(line, sizeof(line), "%s\n",
			dmasim_terminate_names[READ_ONCE(c->terminate)]);
	return simple_read_from_buffer(ubuf, count, ppos, line, len);
}

static ssize_t terminate_write(struct file *file, const char __user *ubuf,
			       size_t count, loff_t *ppos)
{
	struct dmasim_chan *c = file->private_data;
	char word[16] = "";
	int ret;

	if (count >= sizeof(word))
		return -EINVAL;
	if (copy_from_user(word, ubuf, count))
		return -EFAULT;
	ret = sysfs_match_string(dmasim_terminate_names, word);
	if (ret < 0)
		return ret;
	WRITE_ONCE(c->terminate, ret);
	return count;
}

static const struct file_operations terminate_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = terminate_read,
	.write = terminate_write,
};

static int dead_get(void *data, u64 *val)
{
	struct dmasim_chan *c = data;

	*val = READ_ONCE(c->dead);
	return 0;
}

static int dead_set(void *data, u64 val)
{
	struct dmasim_chan *c = data;

	if (val > 1)
		return -EINVAL;
	spin_lock_irq(&c->lock);
	WRITE_ONCE(c->dead, val);
	dmasim_arm(c);
	spin_unlock_irq(&c->lock);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(dead_fops, dead_get, dead_set, "%llu\n");

static int vanish_set(void *data, u64 val)
{
	if (val != 1)
		return -EINVAL;
	dmasim_unregister(data);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(vanish_fops, NULL, vanish_set, "%llu\n");

static int leave_set(void *data, u64 val)
{
	return val == 1 ? dmasim_leave(data) : -EINVAL;
}
DEFINE_DEBUGFS_ATTRIBUTE(leave_fops, NULL, leave_set, "%llu\n");

static void dmasim_add_channel(struct dmasim_chan *c, struct dentry *parent,
			       unsigned int nr)
{
	struct dmasim_stats *s = &c->stats;
	enum dmasim_fault fault;
	struct dentry *dir;
	char name[32];

	snprintf(name, sizeof(name), "chan%u", nr);
	dir = debugfs_create_dir(name, parent);
	for (fault = 0; fault < DMASIM_NR_FAULTS; fault++) {
		struct dmasim_trigger *t = &c->triggers[fault];

		snprintf(name, sizeof(name), "%s_nth", dmasim_fault_names[fault]);
		debugfs_create_atomic_t(name, 0600, dir, &t->nth);
		snprintf(name, sizeof(name), "%s_every",
			 dmasim_fault_names[fault]);
		debugfs_create_u32(name, 0600, dir, &t->every);
	}
	debugfs_create_u32("bandwidth_mbps", 0600, dir, &c->bandwidth_mbps);
	debugfs_create_u32("latency_us", 0600, dir, &c->latency_us);
	debugfs_create_u32("coalesce_us", 0600, dir, &c->coalesce_us);
	debugfs_create_u32("late_ms", 0600, dir, &c->late_ms);
	debugfs_create_file("terminate", 0600, dir, c, &terminate_fops);
	debugfs_create_file_unsafe("dead", 0600, dir, c, &dead_fops);
	debugfs_create_file_unsafe("leave", 0200, dir, c, &leave_fops);

	debugfs_create_u64("descriptors", 0400, dir, &s->descriptors);
	debugfs_create_u64("bytes", 0400, dir, &s->bytes);
	debugfs_create_u64("errors", 0400, dir, &s->errors);
	debugfs_create_u64("refused", 0400, dir, &s->refused);
	debugfs_create_u64("terminated", 0400, dir, &s->terminated);
	debugfs_create_u64("late", 0400, dir, &s->late);
	debugfs_create_u64("lost_irqs", 0400, dir, &s->lost_irqs);
	debugfs_create_u64("unheard", 0400, dir, &s->unheard);
	debugfs_create_u64("hidden", 0400, dir, &s->hidden);
	debugfs_create_u64("early", 0400, dir, &s->early);
	debugfs_create_u64("interrupts", 0400, dir, &s->interrupts);
	debugfs_create_u32("in_flight", 0400, dir, &s->in_flight);
}

void dmasim_debugfs_add(struct dmasim_dev *d, const char *name)
{
	unsigned int i;

	d->dir = debugfs_create_dir(name, dmasim_root);
	debugfs_create_file_unsafe("vanish", 0200, d->dir, d, &vanish_fops);
	for (i = 0; i < d->nr_chans; i++)
		dmasim_add_channel(&d->chans[i], d->dir, i);
}

void dmasim_debugfs_init(void)
{
	dmasim_root = debugfs_create_dir(DMASIM_NAME, NULL);
}

void dmasim_debugfs_exit(void)
{
	debugfs_remove(dmasim_root);
}
