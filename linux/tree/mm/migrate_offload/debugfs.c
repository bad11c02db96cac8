// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/debug/migrate_offload/: settings for comparisons and tests.
 *
 * Documentation/ABI/testing/debugfs-migrate_offload describes each file.
 */

#include <linux/debugfs.h>
#include <linux/init.h>
#include <linux/module.h>

#include "../internal.h"
#include "break_rules.h"
#include "choice.h"
#include "internal.h"
#include "limit.h"

static const struct migrate_debug_setting {
	const char *name;
	unsigned int *value;
	unsigned int min, max;
	void (*set)(unsigned int value);	/* NULL: WRITE_ONCE() */
} settings[] = {
	{ "engine_always", &migrate_engine_always, 0, 1 },
	{ "max_batch_pages", &migrate_max_batch_pages,
	  1, MIGRATE_MAX_BATCH_PAGES },
	{ "max_windows", &migrate_max_windows, 1, MIGRATE_MAX_WINDOWS,
	  migrate_max_windows_set },
	{ "measure", &migrate_measure, 0, 1, migrate_measure_set },
	{ "streaming", &migrate_streaming, 0, 1 },
	{ "verify", &migrate_offload_verify, 0, 1 },
};

static int setting_get(void *data, u64 *value)
{
	const struct migrate_debug_setting *setting = data;

	*value = READ_ONCE(*setting->value);
	return 0;
}

static int setting_set(void *data, u64 value)
{
	const struct migrate_debug_setting *setting = data;

	if (value < setting->min || value > setting->max)
		return -EINVAL;
	if (setting->set)
		setting->set(value);
	else
		WRITE_ONCE(*setting->value, value);
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(setting_fops, setting_get, setting_set, "%llu\n");

static int __init migrate_debugfs_init(void)
{
	struct dentry *dir = debugfs_create_dir("migrate_offload", NULL);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(settings); i++)
		debugfs_create_file_unsafe(settings[i].name, 0644, dir,
					   (void *)&settings[i], &setting_fops);
	migrate_break_rules_add_files(dir);
	return 0;
}
late_initcall(migrate_debugfs_init);
