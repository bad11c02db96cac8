// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: /sys/module/dcbm/channels/, the files of each channel.
 *
 * Documentation/ABI/testing/sysfs-module-dcbm describes the files.
 */

#include <linux/device.h>
#include <linux/kstrtox.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "dcbm.h"

struct kobject *dcbm_chans_kobj;

static struct dcbm_chan *to_chan(struct kobject *kobj)
{
	return container_of(kobj, struct dcbm_chan, kobj);
}

#define DCBM_CHAN_NUMBER(name, mode, value)				\
static ssize_t name##_show(struct kobject *kobj,			\
			   struct kobj_attribute *attr, char *buf)	\
{									\
	struct dcbm_chan *chan = to_chan(kobj);				\
									\
	return sysfs_emit(buf, "%lld\n", (long long)(value));		\
}									\
static struct kobj_attribute name##_attr = __ATTR_##mode(name)

DCBM_CHAN_NUMBER(bytes, RO, atomic64_read(&chan->bytes));
DCBM_CHAN_NUMBER(errors, RO, atomic64_read(&chan->errors));
DCBM_CHAN_NUMBER(timeouts, RO, atomic64_read(&chan->timeouts));
DCBM_CHAN_NUMBER(descriptors, RO, READ_ONCE(chan->descriptors));
DCBM_CHAN_NUMBER(interrupts, RO, READ_ONCE(chan->interrupts));
DCBM_CHAN_NUMBER(node, RO, chan->nid);
DCBM_CHAN_NUMBER(in_doubt, RO, READ_ONCE(chan->nr_away));

static ssize_t state_show(struct kobject *kobj, struct kobj_attribute *attr,
			  char *buf)
{
	static const char *const names[] = {
		[DCBM_IDLE] = "idle",
		[DCBM_BUSY] = "busy",
		[DCBM_RETIRED] = "retired",
	};
	const struct dcbm_chan *chan = to_chan(kobj);

	return sysfs_emit(buf, "%s\n", READ_ONCE(chan->leaving) ? "leaving" :
			  names[READ_ONCE(chan->state)]);
}

static struct kobj_attribute state_attr = __ATTR_RO(state);

static ssize_t max_transfers_store(struct kobject *kobj,
				   struct kobj_attribute *attr,
				   const char *buf, size_t count)
{
	unsigned int nr;
	int ret;

	ret = kstrtouint(buf, 0, &nr);
	if (ret)
		return ret;
	if (!nr || nr > DCBM_SLOTS)
		return -EINVAL;
	WRITE_ONCE(to_chan(kobj)->max_transfers, nr);
	return count;
}

DCBM_CHAN_NUMBER(max_transfers, RW, READ_ONCE(chan->max_transfers));

static ssize_t terminate_stops_store(struct kobject *kobj,
				     struct kobj_attribute *attr,
				     const char *buf, size_t count)
{
	struct dcbm_chan *chan = to_chan(kobj);
	bool stops;
	int ret;

	ret = kstrtobool(buf, &stops);
	if (ret)
		return ret;
	if (stops && !dcbm_can_terminate(chan))
		return -EOPNOTSUPP;
	spin_lock_irq(&chan->lock);
	WRITE_ONCE(chan->stops, stops);
	dcbm_chan_pin(chan);
	spin_unlock_irq(&chan->lock);
	/* The channel may be stuck, and can be released now. */
	dcbm_chan_heard_of(chan);
	return count;
}

DCBM_CHAN_NUMBER(terminate_stops, RW, READ_ONCE(chan->stops));

/* Not dcbm_admin_lock: its holder may wait for the users of these files. */
static DEFINE_MUTEX(dcbm_reset_lock);

static ssize_t reset_store(struct kobject *kobj, struct kobj_attribute *attr,
			   const char *buf, size_t count)
{
	bool reset;
	int ret;

	ret = kstrtobool(buf, &reset);
	if (ret)
		return ret;
	if (!reset)
		return -EINVAL;
	mutex_lock(&dcbm_reset_lock);
	ret = dcbm_chan_reset(to_chan(kobj));
	mutex_unlock(&dcbm_reset_lock);
	return ret ? ret : count;
}

static struct kobj_attribute reset_attr = __ATTR_WO(reset);

static struct attribute *dcbm_chan_attrs[] = {
	&bytes_attr.attr,
	&errors_attr.attr,
	&timeouts_attr.attr,
	&descriptors_attr.attr,
	&interrupts_attr.attr,
	&node_attr.attr,
	&state_attr.attr,
	&in_doubt_attr.attr,
	&max_transfers_attr.attr,
	&terminate_stops_attr.attr,
	&reset_attr.attr,
	NULL
};
ATTRIBUTE_GROUPS(dcbm_chan);

static void dcbm_chan_free(struct kobject *kobj)
{
	struct dcbm_chan *chan = to_chan(kobj);

	put_device(chan->dev);
	put_device(chan->provider);
	kfree(chan);
}

const struct kobj_type dcbm_chan_ktype = {
	.sysfs_ops = &kobj_sysfs_ops,
	.release = dcbm_chan_free,
	.default_groups = dcbm_chan_groups,
};
