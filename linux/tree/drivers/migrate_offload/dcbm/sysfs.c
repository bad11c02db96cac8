// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: /sys/module/dcbm/.
 *
 * Documentation/ABI/testing/sysfs-module-dcbm describes the files.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/device.h>
#include <linux/kstrtox.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "dcbm.h"

struct kobject *dcbm_chans_kobj;

/* /sys/module/dcbm/, also when built in. */
static struct kobject *dcbm_kobj;

static ssize_t offloading_show(struct module_attribute *attr,
			       struct module_kobject *mk, char *buf)
{
	return sysfs_emit(buf, "%d\n", dcbm_is_on());
}

static ssize_t offloading_store(struct module_attribute *attr,
				struct module_kobject *mk, const char *buf,
				size_t count)
{
	bool on;
	int ret;

	ret = kstrtobool(buf, &on);
	if (ret)
		return ret;
	mutex_lock(&dcbm_admin_lock);
	if (on) {
		ret = dcbm_start();
		/* As posted.  If there is another engine, so be it. */
		if (!ret)
			migrate_engine_activate(&dcbm_ops);
	} else {
		migrate_engine_deactivate(&dcbm_ops);
		dcbm_stop();
	}
	mutex_unlock(&dcbm_admin_lock);
	return ret ? ret : count;
}

static struct module_attribute offloading_attr = __ATTR_RW(offloading);

static ssize_t nr_dma_chan_show(struct module_attribute *attr,
				struct module_kobject *mk, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(dcbm_wanted_chans));
}

static ssize_t nr_dma_chan_store(struct module_attribute *attr,
				 struct module_kobject *mk, const char *buf,
				 size_t count)
{
	unsigned int nr;
	int ret;

	ret = kstrtouint(buf, 0, &nr);
	if (ret)
		return ret;
	if (!nr || nr > DCBM_MAX_CHANNELS)
		return -EINVAL;
	mutex_lock(&dcbm_admin_lock);
	ret = dcbm_resize(nr);
	mutex_unlock(&dcbm_admin_lock);
	return ret ? ret : count;
}

static struct module_attribute nr_dma_chan_attr = __ATTR_RW(nr_dma_chan);

#define DCBM_COUNTER(name, counter)					\
static ssize_t name##_show(struct module_attribute *attr,		\
			   struct module_kobject *mk, char *buf)	\
{									\
	return sysfs_emit(buf, "%lld\n",				\
			  (long long)atomic64_read(&(counter)));	\
}									\
static struct module_attribute name##_attr = __ATTR_RO(name)

DCBM_COUNTER(folios_migrated, dcbm_folios_migrated);
DCBM_COUNTER(folios_failures, dcbm_folios_failed);
DCBM_COUNTER(busy_batches, dcbm_batches_busy);
DCBM_COUNTER(slow_batches, dcbm_batches_slow);
DCBM_COUNTER(held_folios, dcbm_folios_held);
DCBM_COUNTER(cpu_share_bytes, dcbm_cpu_share_bytes);

static ssize_t held_folios_now_show(struct module_attribute *attr,
				    struct module_kobject *mk, char *buf)
{
	return sysfs_emit(buf, "%d\n", atomic_read(&dcbm_folios_held_now));
}

static struct module_attribute held_folios_now_attr =
	__ATTR_RO(held_folios_now);

static struct attribute *dcbm_attrs[] = {
	&offloading_attr.attr,
	&nr_dma_chan_attr.attr,
	&folios_migrated_attr.attr,
	&folios_failures_attr.attr,
	&busy_batches_attr.attr,
	&slow_batches_attr.attr,
	&held_folios_attr.attr,
	&held_folios_now_attr.attr,
	&cpu_share_bytes_attr.attr,
	NULL
};

static const struct attribute_group dcbm_group = {
	.attrs = dcbm_attrs,
};

/* The files of each channel. */

static struct dcbm_chan *to_chan(struct kobject *kobj)
{
	return container_of(kobj, struct dcbm_chan, kobj);
}

static ssize_t bytes_show(struct kobject *kobj, struct kobj_attribute *attr,
			  char *buf)
{
	return sysfs_emit(buf, "%lld\n",
			  (long long)atomic64_read(&to_chan(kobj)->bytes));
}

static struct kobj_attribute bytes_attr = __ATTR_RO(bytes);

static ssize_t errors_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf)
{
	return sysfs_emit(buf, "%lld\n",
			  (long long)atomic64_read(&to_chan(kobj)->errors));
}

static struct kobj_attribute errors_attr = __ATTR_RO(errors);

static ssize_t timeouts_show(struct kobject *kobj, struct kobj_attribute *attr,
			     char *buf)
{
	return sysfs_emit(buf, "%lld\n",
			  (long long)atomic64_read(&to_chan(kobj)->timeouts));
}

static struct kobj_attribute timeouts_attr = __ATTR_RO(timeouts);

static ssize_t node_show(struct kobject *kobj, struct kobj_attribute *attr,
			 char *buf)
{
	return sysfs_emit(buf, "%d\n", to_chan(kobj)->nid);
}

static struct kobj_attribute node_attr = __ATTR_RO(node);

static ssize_t state_show(struct kobject *kobj, struct kobj_attribute *attr,
			  char *buf)
{
	static const char *const names[] = {
		[DCBM_IDLE] = "idle",
		[DCBM_BUSY] = "busy",
		[DCBM_RETIRED] = "retired",
	};

	return sysfs_emit(buf, "%s\n", names[READ_ONCE(to_chan(kobj)->state)]);
}

static struct kobj_attribute state_attr = __ATTR_RO(state);

static ssize_t in_doubt_show(struct kobject *kobj, struct kobj_attribute *attr,
			     char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(to_chan(kobj)->nr_away));
}

static struct kobj_attribute in_doubt_attr = __ATTR_RO(in_doubt);

static ssize_t terminate_stops_show(struct kobject *kobj,
				    struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", READ_ONCE(to_chan(kobj)->stops));
}

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
	if (stops && !(chan->dma->device->device_terminate_all &&
		       chan->dma->device->device_synchronize))
		return -EOPNOTSUPP;
	WRITE_ONCE(chan->stops, stops);
	return count;
}

static struct kobj_attribute terminate_stops_attr = __ATTR_RW(terminate_stops);

/* Not dcbm_admin_lock: who holds that may wait for us. */
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
	&node_attr.attr,
	&state_attr.attr,
	&in_doubt_attr.attr,
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

int dcbm_sysfs_init(void)
{
	int ret;

#ifdef MODULE
	dcbm_kobj = kobject_get(&THIS_MODULE->mkobj.kobj);
#else
	/* Made for the parameters. */
	dcbm_kobj = kset_find_obj(module_kset, KBUILD_MODNAME);
#endif
	if (!dcbm_kobj)
		return -ENODEV;
	ret = -ENOMEM;
	dcbm_chans_kobj = kobject_create_and_add("channels", dcbm_kobj);
	if (!dcbm_chans_kobj)
		goto put;
	ret = sysfs_create_group(dcbm_kobj, &dcbm_group);
	if (ret)
		goto put_chans;
	return 0;

put_chans:
	kobject_put(dcbm_chans_kobj);
put:
	kobject_put(dcbm_kobj);
	return ret;
}

void dcbm_sysfs_exit(void)
{
	/* Waits for those who are in a file. */
	sysfs_remove_group(dcbm_kobj, &dcbm_group);

	mutex_lock(&dcbm_admin_lock);
	dcbm_stop();
	mutex_unlock(&dcbm_admin_lock);
	dcbm_wait_for_stuck();
	kobject_put(dcbm_chans_kobj);
	kobject_put(dcbm_kobj);
}
