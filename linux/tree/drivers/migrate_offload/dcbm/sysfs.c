// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: /sys/module/dcbm/.
 *
 * Documentation/ABI/testing/sysfs-module-dcbm describes the files.
 */

#include <linux/kstrtox.h>
#include <linux/module.h>
#include <linux/sysfs.h>

#include "attr.h"
#include "dcbm.h"

/* /sys/module/dcbm/, which exists also if dcbm is built in. */
static struct kobject *dcbm_kobj;

#define DCBM_NUMBER(name, mode, value)					\
static DCBM_SHOW(name##_show)						\
{									\
	return sysfs_emit(buf, "%lld\n", (long long)(value));		\
}									\
static struct module_attribute name##_attr = __ATTR_##mode(name)

static DCBM_STORE(offloading_store)
{
	bool on;
	int ret;

	ret = kstrtobool(buf, &on);
	if (ret)
		return ret;
	mutex_lock(&dcbm_admin_lock);
	if (on) {
		ret = dcbm_start();
		/* It is no error if another engine stays active. */
		if (!ret)
			migrate_engine_activate(&dcbm_ops);
	} else {
		migrate_engine_deactivate(&dcbm_ops);
		dcbm_stop();
	}
	mutex_unlock(&dcbm_admin_lock);
	return ret ? ret : count;
}

DCBM_NUMBER(offloading, RW, dcbm_is_on());

static DCBM_STORE(nr_dma_chan_store)
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

DCBM_NUMBER(nr_dma_chan, RW, READ_ONCE(dcbm_wanted_chans));

DCBM_NUMBER(folios_migrated, RO, atomic64_read(&dcbm_folios_migrated));
DCBM_NUMBER(folios_failures, RO, atomic64_read(&dcbm_folios_failed));
DCBM_NUMBER(busy_batches, RO, atomic64_read(&dcbm_batches_busy));
DCBM_NUMBER(held_folios, RO, atomic64_read(&dcbm_folios_held));
DCBM_NUMBER(held_folios_now, RO, atomic_read(&dcbm_folios_held_now));
DCBM_NUMBER(cpu_share_bytes, RO, atomic64_read(&dcbm_cpu_share_bytes));

static struct attribute *dcbm_attrs[] = {
	&offloading_attr.attr,
	&nr_dma_chan_attr.attr,
	&folios_migrated_attr.attr,
	&folios_failures_attr.attr,
	&busy_batches_attr.attr,
	&held_folios_attr.attr,
	&held_folios_now_attr.attr,
	&cpu_share_bytes_attr.attr,
	NULL
};

static const struct attribute_group dcbm_group = {
	.attrs = dcbm_attrs,
};

int dcbm_sysfs_init(void)
{
	int ret;

#ifdef MODULE
	dcbm_kobj = kobject_get(&THIS_MODULE->mkobj.kobj);
#else
	/* The kernel made the directory for the parameters. */
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
	/* Wait for tasks that read or write the files. */
	sysfs_remove_group(dcbm_kobj, &dcbm_group);

	mutex_lock(&dcbm_admin_lock);
	dcbm_stop();
	mutex_unlock(&dcbm_admin_lock);
	dcbm_wait_for_stuck();
	dcbm_unwatch();
	kobject_put(dcbm_chans_kobj);
	kobject_put(dcbm_kobj);
}
