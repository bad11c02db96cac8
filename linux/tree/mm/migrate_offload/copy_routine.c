// SPDX-License-Identifier: GPL-2.0-only
/* Set the routine that copies large folios. */

#include <linux/cpufeature.h>
#include <linux/jump_label.h>
#include <linux/kobject.h>
#include <linux/mutex.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "copy.h"

enum migrate_copy_routine migrate_copy_routine;
DEFINE_STATIC_KEY_FALSE(migrate_copy_key);

/* Serialises changes of both. */
static DEFINE_MUTEX(migrate_copy_lock);

static const char * const migrate_copy_names[NR_MIGRATE_COPY_ROUTINES] = {
	[MIGRATE_COPY_PAGES]		= "pages",
	[MIGRATE_COPY_NONTEMPORAL]	= "nontemporal",
	[MIGRATE_COPY_DIRECT]		= "direct",
};

/* Does this machine have the routine? */
bool migrate_copy_has(enum migrate_copy_routine routine)
{
	return routine != MIGRATE_COPY_DIRECT ||
		boot_cpu_has(X86_FEATURE_MOVDIR64B);
}

/* The caller holds migrate_copy_lock, or is a test. */
void migrate_copy_use(enum migrate_copy_routine routine)
{
	WRITE_ONCE(migrate_copy_routine, routine);
	if (routine == MIGRATE_COPY_PAGES)
		static_branch_disable(&migrate_copy_key);
	else
		static_branch_enable(&migrate_copy_key);
}

static ssize_t copy_routine_show(struct kobject *kobj,
				 struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n",
			  migrate_copy_names[READ_ONCE(migrate_copy_routine)]);
}

static ssize_t copy_routine_store(struct kobject *kobj,
				  struct kobj_attribute *attr,
				  const char *buf, size_t count)
{
	int routine = sysfs_match_string(migrate_copy_names, buf);

	if (routine < 0)
		return routine;
	if (!migrate_copy_has(routine))
		return -EOPNOTSUPP;
	mutex_lock(&migrate_copy_lock);
	migrate_copy_use(routine);
	mutex_unlock(&migrate_copy_lock);
	return count;
}

struct kobj_attribute migrate_copy_routine_attr = __ATTR_RW(copy_routine);
