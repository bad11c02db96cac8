// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/mm/migrate_offload/stats/: counters for each reason to migrate
 * and for each engine.
 */

#include <linux/err.h>
#include <linux/init.h>
#include <linux/kobject.h>
#include <linux/leafops.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "../internal.h"
#include "hooks.h"
#include "hugetlb.h"
#include "internal.h"

/* On while an engine is active, or while migration is measured or traced. */
DEFINE_STATIC_KEY_FALSE(migrate_offload_key);

struct migrate_offload_stats *migrate_offload_reason_stats[MR_TYPES];

static struct kobject *engines_kobj;

/*
 * Statistics of engines.  An engine that registers again finds them by its
 * name.
 */
static DEFINE_MUTEX(engine_stats_lock);
static LIST_HEAD(engine_stats);

#define STATS_ATTR(_name, _counter)					\
	static struct migrate_stats_attribute stats_##_name = {			\
		.attr = { .name = __stringify(_name), .mode = 0444 },	\
		.counter = _counter,					\
	}

STATS_ATTR(batches, MO_BATCHES);
STATS_ATTR(offered_folios, MO_OFFERED_FOLIOS);
STATS_ATTR(offered_bytes, MO_OFFERED_BYTES);
STATS_ATTR(engine_folios, MO_ENGINE_FOLIOS);
STATS_ATTR(engine_bytes, MO_ENGINE_BYTES);
STATS_ATTR(engine_ns, MO_ENGINE_NS);
STATS_ATTR(helper_ns, MO_HELPER_NS);
STATS_ATTR(cpu_folios, MO_CPU_FOLIOS);
STATS_ATTR(cpu_bytes, MO_CPU_BYTES);
STATS_ATTR(not_eligible_folios, MO_NOT_ELIGIBLE_FOLIOS);
STATS_ATTR(declined_folios, MO_DECLINED_FOLIOS);
STATS_ATTR(too_slow_folios, MO_TOO_SLOW_FOLIOS);
STATS_ATTR(failed_folios, MO_FAILED_FOLIOS);
STATS_ATTR(held_folios, MO_HELD_FOLIOS);
STATS_ATTR(retried_folios, MO_RETRIED_FOLIOS);
STATS_ATTR(mismatched_folios, MO_MISMATCHED_FOLIOS);
STATS_ATTR(over_limit_folios, MO_OVER_LIMIT_FOLIOS);

static struct attribute *stats_attrs[] = {
	&stats_batches.attr,
	&stats_offered_folios.attr,
	&stats_offered_bytes.attr,
	&stats_engine_folios.attr,
	&stats_engine_bytes.attr,
	&stats_engine_ns.attr,
	&stats_helper_ns.attr,
	&stats_cpu_folios.attr,
	&stats_cpu_bytes.attr,
	&stats_not_eligible_folios.attr,
	&stats_declined_folios.attr,
	&stats_too_slow_folios.attr,
	&stats_failed_folios.attr,
	&stats_held_folios.attr,
	&stats_retried_folios.attr,
	&stats_mismatched_folios.attr,
	&stats_over_limit_folios.attr,
	NULL
};
ATTRIBUTE_GROUPS(stats);

static ssize_t stats_show(struct kobject *kobj, struct attribute *attr,
			  char *buf)
{
	struct migrate_offload_stats *stats =
		container_of(kobj, struct migrate_offload_stats, kobj);
	struct migrate_stats_attribute *stats_attr =
		container_of(attr, struct migrate_stats_attribute, attr);
	u64 sum = 0;
	int cpu;

	if (stats_attr->show)
		return stats_attr->show(stats, buf);
	for_each_possible_cpu(cpu)
		sum += per_cpu_ptr(stats->counts, cpu)->nr[stats_attr->counter];
	return sysfs_emit(buf, "%llu\n", sum);
}

static const struct sysfs_ops stats_sysfs_ops = {
	.show = stats_show,
};

static void stats_free(struct migrate_offload_stats *stats)
{
	free_percpu(stats->counts);
	free_percpu(stats->hists);
	kfree(stats->paces);
	kfree(stats->choices);
	kfree(stats);
}

static void stats_release(struct kobject *kobj)
{
	stats_free(container_of(kobj, struct migrate_offload_stats, kobj));
}

static const struct kobj_type stats_ktype = {
	.release = stats_release,
	.sysfs_ops = &stats_sysfs_ops,
	.default_groups = stats_groups,
};

static struct migrate_offload_stats *stats_new(struct kobject *parent,
					       const char *name, bool of_reason)
{
	struct migrate_offload_stats *stats;
	int ret;

	stats = kzalloc_obj(*stats, GFP_KERNEL);
	if (!stats)
		return ERR_PTR(-ENOMEM);
	stats->counts = alloc_percpu(struct migrate_offload_counts);
	if (of_reason)
		stats->hists = alloc_percpu(struct migrate_hists);
	else
		stats->paces = kcalloc(MIGRATE_NR_PACES, sizeof(*stats->paces),
				       GFP_KERNEL);
	if (!of_reason)
		stats->choices = kcalloc(MIGRATE_NR_CHOICES,
					 sizeof(*stats->choices), GFP_KERNEL);
	strscpy(stats->name, name);
	if (!stats->counts ||
	    (!stats->hists && !(stats->paces && stats->choices))) {
		stats_free(stats);
		return ERR_PTR(-ENOMEM);
	}
	ret = kobject_init_and_add(&stats->kobj, &stats_ktype, parent, "%s",
				   name);
	if (ret) {
		kobject_put(&stats->kobj);
		return ERR_PTR(ret);
	}
	return stats;
}

/* Find or allocate an engine's statistics.  Returns an ERR_PTR() on failure. */
struct migrate_offload_stats *migrate_offload_engine_stats(const char *name)
{
	struct migrate_offload_stats *stats;

	/* migrate_offload_init() has failed. */
	if (!engines_kobj)
		return ERR_PTR(-ENODEV);

	mutex_lock(&engine_stats_lock);
	list_for_each_entry(stats, &engine_stats, list)
		if (!strcmp(stats->name, name))
			goto unlock;
	stats = stats_new(engines_kobj, name, false);
	if (!IS_ERR(stats))
		list_add_tail(&stats->list, &engine_stats);
unlock:
	mutex_unlock(&engine_stats_lock);
	return stats;
}

int __init migrate_stats_add_reasons(struct kobject *parent)
{
	int reason, ret;

	for (reason = 0; reason < MR_TYPES; reason++) {
		struct migrate_offload_stats *stats;

		if (!(BIT(reason) & MIGRATE_OFFLOAD_REASONS_ALL))
			continue;
		stats = stats_new(parent, migrate_reason_names[reason], true);
		if (IS_ERR(stats))
			return PTR_ERR(stats);
		ret = sysfs_create_group(&stats->kobj, &migrate_hist_group);
		if (ret)
			return ret;
		migrate_offload_reason_stats[reason] = stats;
	}
	return 0;
}

int __init migrate_stats_add_engines(struct kobject *parent)
{
	engines_kobj = kobject_create_and_add("engines", parent);
	return engines_kobj ? 0 : -ENOMEM;
}
