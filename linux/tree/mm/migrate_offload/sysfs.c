// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/mm/migrate_offload/: which engine copies migrating folios, for
 * whom, from which size on, and what came of it.
 *
 * Documentation/ABI/testing/sysfs-kernel-mm-migrate-offload describes each
 * file.
 */

#define pr_fmt(fmt) "migrate_offload: " fmt

#include <linux/init.h>
#include <linux/kstrtox.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "../internal.h"
#include "internal.h"
#include "promote.h"

/*
 * Parse "compaction,demotion", "all" or "none".  A trailing newline is fine.
 * -EINVAL for a word that is no reason, or one that is never offloaded; then
 * @reasons is left alone.
 */
int migrate_offload_parse_reasons(const char *text, unsigned long *reasons)
{
	unsigned long mask = 0;
	char *copy, *rest, *word;
	int ret = 0;

	if (sysfs_streq(text, "all")) {
		*reasons = MIGRATE_OFFLOAD_REASONS_ALL;
		return 0;
	}
	if (sysfs_streq(text, "none")) {
		*reasons = 0;
		return 0;
	}

	copy = kstrdup(text, GFP_KERNEL);
	if (!copy)
		return -ENOMEM;
	rest = strim(copy);
	while ((word = strsep(&rest, ",")) && !ret) {
		int reason = match_string(migrate_reason_names, MR_TYPES,
					  strim(word));

		if (reason < 0 || !(BIT(reason) & MIGRATE_OFFLOAD_REASONS_ALL))
			ret = -EINVAL;
		else
			mask |= BIT(reason);
	}
	kfree(copy);
	if (!ret)
		*reasons = mask;
	return ret;
}

static int emit_reasons(char *buf, unsigned long reasons, const char *between)
{
	int reason, len = 0;

	for_each_set_bit(reason, &reasons, MR_TYPES)
		len += sysfs_emit_at(buf, len, "%s%s", len ? between : "",
				     migrate_reason_names[reason]);
	return len + sysfs_emit_at(buf, len, "\n");
}

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

static ssize_t reasons_show(struct kobject *kobj, struct kobj_attribute *attr,
			    char *buf)
{
	unsigned long reasons = READ_ONCE(migrate_offload_reasons);

	if (reasons == MIGRATE_OFFLOAD_REASONS_ALL)
		return sysfs_emit(buf, "all\n");
	if (!reasons)
		return sysfs_emit(buf, "none\n");
	return emit_reasons(buf, reasons, ",");
}

static ssize_t reasons_store(struct kobject *kobj, struct kobj_attribute *attr,
			     const char *buf, size_t count)
{
	unsigned long reasons;
	int ret;

	ret = migrate_offload_parse_reasons(buf, &reasons);
	if (ret)
		return ret;
	WRITE_ONCE(migrate_offload_reasons, reasons);
	return count;
}

static struct kobj_attribute reasons_attr = __ATTR_RW(reasons);

static ssize_t available_reasons_show(struct kobject *kobj,
				      struct kobj_attribute *attr, char *buf)
{
	return emit_reasons(buf, MIGRATE_OFFLOAD_REASONS_ALL, " ");
}

static struct kobj_attribute available_reasons_attr =
	__ATTR_RO(available_reasons);

static ssize_t min_batch_bytes_show(struct kobject *kobj,
				    struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lu\n",
			  READ_ONCE(migrate_offload_min_batch_bytes));
}

static ssize_t min_batch_bytes_store(struct kobject *kobj,
				     struct kobj_attribute *attr,
				     const char *buf, size_t count)
{
	unsigned long bytes;
	int ret;

	ret = kstrtoul(buf, 0, &bytes);
	if (ret)
		return ret;
	WRITE_ONCE(migrate_offload_min_batch_bytes, bytes);
	return count;
}

static struct kobj_attribute min_batch_bytes_attr = __ATTR_RW(min_batch_bytes);

static ssize_t verify_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf)
{
	return sysfs_emit(buf, "%s\n",
			  READ_ONCE(migrate_offload_verify) ? "true" : "false");
}

static ssize_t verify_store(struct kobject *kobj, struct kobj_attribute *attr,
			    const char *buf, size_t count)
{
	bool verify;
	int ret;

	ret = kstrtobool(buf, &verify);
	if (ret)
		return ret;
	WRITE_ONCE(migrate_offload_verify, verify);
	return count;
}

static struct kobj_attribute verify_attr = __ATTR_RW(verify);

static ssize_t held_folios_show(struct kobject *kobj,
				struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lu\n", migrate_copy_nr_held());
}

static struct kobj_attribute held_folios_attr = __ATTR_RO(held_folios);

static struct attribute *migrate_offload_attrs[] = {
	&engine_attr.attr,
	&available_engines_attr.attr,
	&reasons_attr.attr,
	&available_reasons_attr.attr,
	&min_batch_bytes_attr.attr,
	&migrate_engine_always_attr.attr,
	&verify_attr.attr,
	&held_folios_attr.attr,
	&migrate_measure_attr.attr,
#ifdef CONFIG_MIGRATE_BATCH_PTES
	&migrate_batch_ptes_attr.attr,
#endif
	NULL
};

static const struct attribute_group migrate_offload_group = {
	.attrs = migrate_offload_attrs,
};

/* Of each reason: which engine it has. */
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
 * If this fails no engine can register, and the path stays as in an unpatched
 * kernel.  Files that were made until then stay, and have no effect.
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
