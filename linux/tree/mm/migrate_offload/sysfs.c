// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/mm/migrate_offload/: which engine copies migrating folios, for
 * which reasons, and how many it copied.
 *
 * Documentation/ABI/testing/sysfs-kernel-mm-migrate-offload describes each
 * file.
 */

#define pr_fmt(fmt) "migrate_offload: " fmt

#include <linux/init.h>
#include <linux/mm.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "../internal.h"
#include "copy.h"
#include "internal.h"
#include "promote.h"

static ssize_t engine_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf)
{
	return migrate_engine_name(buf);
}

static ssize_t engine_store(struct kobject *kobj, struct kobj_attribute *attr,
			    const char *buf, size_t count)
{
	/* With room for the newline after the longest name. */
	char name[MIGRATOR_NAME_LEN + 1];
	int ret;

	if (strscpy(name, buf) < 0)
		return -EINVAL;
	ret = migrate_engine_select(strim(name));
	return ret ? ret : count;
}

static struct kobj_attribute engine_attr = __ATTR_RW(engine);

static ssize_t available_engines_show(struct kobject *kobj,
				      struct kobj_attribute *attr, char *buf)
{
	return migrate_engine_names(buf);
}

static struct kobj_attribute available_engines_attr =
	__ATTR_RO(available_engines);

static ssize_t held_folios_show(struct kobject *kobj,
				struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lu\n", migrate_copy_nr_held());
}

static struct kobj_attribute held_folios_attr = __ATTR_RO(held_folios);

static struct attribute *migrate_offload_attrs[] = {
	&engine_attr.attr,
	&available_engines_attr.attr,
	&held_folios_attr.attr,
#ifdef CONFIG_MIGRATE_COPY_ROUTINES
	&migrate_copy_routine_attr.attr,
	&migrate_copy_routine_reason_attr.attr,
#endif
#ifdef CONFIG_MIGRATE_BATCH_PTES
	&migrate_batch_ptes_attr.attr,
#endif
	NULL
};

static const struct attribute_group migrate_offload_group = {
	.attrs = migrate_offload_attrs,
};

/* A file for each reason shows and sets its engine. */
static struct kobj_attribute engine_of_attrs[MR_TYPES];

static ssize_t engine_of_show(struct kobject *kobj, struct kobj_attribute *attr,
			      char *buf)
{
	return migrate_engine_name_for(attr - engine_of_attrs, buf);
}

static ssize_t engine_of_store(struct kobject *kobj, struct kobj_attribute *attr,
			       const char *buf, size_t count)
{
	char name[MIGRATOR_NAME_LEN + 1];
	int ret;

	if (strscpy(name, buf) < 0)
		return -EINVAL;
	ret = migrate_engine_select_for(attr - engine_of_attrs, strim(name));
	return ret ? ret : count;
}

static int __init add_engines_of_reasons(struct kobject *root)
{
	struct kobject *parent = kobject_create_and_add("engine_of", root);
	int reason, ret = parent ? 0 : -ENOMEM;

	for (reason = 0; reason < MR_TYPES && !ret; reason++) {
		struct kobj_attribute *attr = &engine_of_attrs[reason];

		if (!(BIT(reason) & MIGRATE_OFFLOAD_REASONS_ALL))
			continue;
		sysfs_attr_init(&attr->attr);
		attr->attr.name = migrate_reason_names[reason];
		attr->attr.mode = 0644;
		attr->show = engine_of_show;
		attr->store = engine_of_store;
		ret = sysfs_create_file(parent, &attr->attr);
	}
	return ret;
}

/*
 * If this fails, no engine can register, and folios migrate as without an
 * engine.  Files that exist by then stay.
 */
static int __init migrate_offload_init(void)
{
	struct kobject *root, *stats, *reasons;
	int ret = migrate_pools_init();

	if (ret)
		return ret;

	root = kobject_create_and_add("migrate_offload", mm_kobj);
	if (!root)
		return -ENOMEM;
	stats = kobject_create_and_add("stats", root);
	reasons = stats ? kobject_create_and_add("reasons", stats) : NULL;
	if (!reasons)
		return -ENOMEM;
	ret = migrate_stats_add_reasons(reasons);
	if (ret)
		return ret;
	ret = sysfs_create_group(root, &migrate_offload_group);
	if (!ret)
		ret = sysfs_create_group(root, &migrate_limit_group);
	if (!ret)
		ret = add_engines_of_reasons(root);
	if (!ret && IS_ENABLED(CONFIG_MIGRATE_PROMOTE))
		ret = sysfs_create_group(root, &migrate_promote_group);
	if (ret)
		return ret;
	return migrate_stats_add_engines(stats);
}
subsys_initcall(migrate_offload_init);
