// SPDX-License-Identifier: GPL-2.0-only
/*
 * Registry of copy engines: which are available, and which are active, in
 * general and for each reason to migrate.
 *
 * An engine is a struct migrate_engine_ops.  Registration makes an engine
 * available, and an administrator makes it active.  The core wraps a struct
 * migrator in an engine.  Registration also makes a migrator active, and fails
 * while another engine is active.
 *
 * An active engine pins its module.  mm/migrate_offload/call.c makes sure that
 * no code of an inactive engine runs.
 */

#define pr_fmt(fmt) "migrate_offload: " fmt

#include <linux/ctype.h>
#include <linux/leafops.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/slab.h>
#include <linux/srcu.h>
#include <linux/suspend.h>
#include <linux/sysfs.h>

#include "../internal.h"
#include "registry.h"

/* Changes need migrate_engines_lock; migrate_engines_srcu is enough to read. */
static LIST_HEAD(engines);

/* Returns the engine for reasons without an engine of their own. */
static struct migrate_engine *engine_active(void)
{
	lockdep_assert_held(&migrate_engines_lock);
	return migrate_engine_in(MIGRATE_ENGINE_IN_GENERAL);
}

static struct migrate_engine *engine_find(const char *name)
{
	struct migrate_engine *engine;

	list_for_each_entry(engine, &engines, list)
		if (!strcmp(engine->ops->name, name))
			return engine;
	return NULL;
}

static struct migrate_engine *engine_of(const struct migrate_engine_ops *ops)
{
	struct migrate_engine *engine;

	list_for_each_entry(engine, &engines, list)
		if (engine->ops == ops)
			return engine;
	return NULL;
}

/* The caller has pinned the module of @engine. */
static void engine_put_in(unsigned int slot, struct migrate_engine *engine)
{
	struct migrate_engine *old = migrate_engine_in(slot);

	lockdep_assert_held(&migrate_engines_lock);
	migrate_engine_put_in(slot, engine);
	if (old)
		module_put(old->ops->owner);
	pr_debug("%s is active instead of %s%s%s\n",
		 engine ? engine->ops->name : "none", old ? old->ops->name : "none",
		 slot < MR_TYPES ? " for " : "",
		 slot < MR_TYPES ? migrate_reason_names[slot] : "");
}

/*
 * Remove an engine, or all engines if NULL, from all slots.  When this returns,
 * no code of the engine runs.  Slots with migrate_no_engine stay as they are,
 * so that the administrator's exclusion of a reason lasts.
 */
static void engine_deactivate(const struct migrate_engine *engine)
{
	unsigned int slot;

	for (slot = 0; slot < MIGRATE_NR_ENGINE_SLOTS; slot++) {
		const struct migrate_engine *old = migrate_engine_in(slot);

		if (old && old != &migrate_no_engine &&
		    (!engine || old == engine))
			engine_put_in(slot, NULL);
	}
}

static bool engine_name_ok(const char *name)
{
	size_t i, len = strnlen(name, MIGRATOR_NAME_LEN);

	if (!len || len == MIGRATOR_NAME_LEN || !strcmp(name, "none") ||
	    !strcmp(name, "default"))
		return false;
	for (i = 0; i < len; i++)
		if (!isalnum(name[i]) && name[i] != '-' && name[i] != '_')
			return false;
	return true;
}

static int engine_add(struct migrate_engine *engine, bool activate)
{
	struct migrate_offload_stats *stats;
	int ret = -EBUSY;

	if (!engine_name_ok(engine->ops->name))
		return -EINVAL;

	mutex_lock(&migrate_engines_lock);
	if (activate && engine_active())
		goto unlock;
	ret = -EEXIST;
	if (engine_find(engine->ops->name))
		goto unlock;

	stats = migrate_offload_engine_stats(engine->ops->name);
	if (IS_ERR(stats)) {
		ret = PTR_ERR(stats);
		goto unlock;
	}
	engine->stats = stats;

	ret = -ENODEV;
	if (activate && !try_module_get(engine->ops->owner))
		goto unlock;
	if (activate)
		engine_put_in(MIGRATE_ENGINE_IN_GENERAL, engine);
	list_add_tail_rcu(&engine->list, &engines);
	ret = 0;
unlock:
	mutex_unlock(&migrate_engines_lock);
	return ret;
}

/* Exactly one of @ops and @m is set. */
static int engine_remove(const struct migrate_engine_ops *ops,
			 const struct migrator *m)
{
	struct migrate_engine *engine, *found = NULL;

	mutex_lock(&migrate_engines_lock);
	list_for_each_entry(engine, &engines, list)
		if (m ? engine->migrator == m : engine->ops == ops)
			found = engine;
	if (!found) {
		mutex_unlock(&migrate_engines_lock);
		return -EINVAL;
	}
	engine_deactivate(found);
	list_del_rcu(&found->list);
	/* Wait for readers of the list, in migrate_engine_names(). */
	synchronize_srcu(&migrate_engines_srcu);
	mutex_unlock(&migrate_engines_lock);
	kfree(found);
	return 0;
}

/* A migrator has one result for all folios of a batch. */
static int migrator_submit(struct migrate_copy_stream *stream,
			   struct migrate_copy_batch *batch)
{
	struct migrate_engine *engine =
		container_of(stream->ops, struct migrate_engine, migrator_ops);
	unsigned int i;
	int rc;

	rc = engine->migrator->offload_copy(&batch->dst_list, &batch->src_list,
					    batch->nr_pairs);
	for (i = 0; i < batch->nr_pairs; i++)
		batch->pairs[i].result = rc;
	return rc;
}

/**
 * migrate_offload_register - make a migrator the active copy engine
 * @m: the migrator.  Must stay until migrate_offload_unregister().
 *
 * Context: may sleep.
 * Return: 0, -EINVAL when @m lacks a valid name or a function, -EBUSY when an
 * engine is active, -EEXIST when an engine of this name is registered, -ENODEV
 * when the module is going away or the core could not start, or -ENOMEM.
 */
int migrate_offload_register(struct migrator *m)
{
	struct migrate_engine *engine;
	int ret;

	if (!m || !m->offload_copy)
		return -EINVAL;

	engine = kzalloc_obj(*engine, GFP_KERNEL);
	if (!engine)
		return -ENOMEM;
	engine->migrator = m;
	engine->migrator_ops = (struct migrate_engine_ops) {
		.name = m->name,
		.owner = m->owner,
		.submit = migrator_submit,
	};
	engine->ops = &engine->migrator_ops;
	ret = engine_add(engine, true);
	if (ret)
		kfree(engine);
	return ret;
}
EXPORT_SYMBOL_GPL(migrate_offload_register);

/**
 * migrate_offload_unregister - unregister a migrator
 * @m: the migrator that was registered.
 *
 * When this returns, the last copy has ended and @m is not used any more.
 *
 * Context: may sleep, until the copies in flight have ended.
 * Return: 0, or -EINVAL when @m is not registered.
 */
int migrate_offload_unregister(struct migrator *m)
{
	return m ? engine_remove(NULL, m) : -EINVAL;
}
EXPORT_SYMBOL_GPL(migrate_offload_unregister);

static bool engine_ops_ok(const struct migrate_engine_ops *ops)
{
	if (!ops || !ops->name || !ops->submit)
		return false;
	/* Either all three are set, or none. */
	return !ops->open == !ops->reap && !ops->open == !ops->close;
}

/**
 * migrate_engine_register - make a copy engine available
 * @ops: the engine.  Must stay until migrate_engine_unregister().
 *
 * The engine becomes active when an administrator writes its name to
 * /sys/kernel/mm/migrate_offload/engine.
 *
 * Context: may sleep.
 * Return: 0, -EINVAL when @ops lacks a valid name or a function, -EEXIST when
 * an engine of this name is registered, -ENODEV when the core could not start,
 * or -ENOMEM.
 */
int migrate_engine_register(const struct migrate_engine_ops *ops)
{
	struct migrate_engine *engine;
	int ret;

	if (!engine_ops_ok(ops))
		return -EINVAL;

	engine = kzalloc_obj(*engine, GFP_KERNEL);
	if (!engine)
		return -ENOMEM;
	engine->ops = ops;
	ret = engine_add(engine, false);
	if (ret)
		kfree(engine);
	return ret;
}
EXPORT_SYMBOL_GPL(migrate_engine_register);

/**
 * migrate_engine_unregister - unregister a copy engine
 * @ops: the engine that was registered.
 *
 * When this returns, the last copy has ended and @ops is not used any more.
 *
 * Context: may sleep, until the copies in flight have ended.
 * Return: 0, or -EINVAL when @ops is not registered.
 */
int migrate_engine_unregister(const struct migrate_engine_ops *ops)
{
	return ops ? engine_remove(ops, NULL) : -EINVAL;
}
EXPORT_SYMBOL_GPL(migrate_engine_unregister);

/**
 * migrate_engine_activate - make an engine active, unless another one is
 * @ops: the engine that was registered.
 *
 * For drivers with a switch of their own.  The driver does not overrule an
 * administrator who has chosen another engine.
 *
 * Context: may sleep.
 * Return: 0, also when the engine is active already.  -EBUSY when another
 * engine is active, -EINVAL when @ops is not registered, or -ENODEV when the
 * module is going away.
 */
int migrate_engine_activate(const struct migrate_engine_ops *ops)
{
	struct migrate_engine *engine;
	int ret = -EINVAL;

	mutex_lock(&migrate_engines_lock);
	engine = engine_of(ops);
	if (!engine)
		goto unlock;
	ret = engine_active() && engine_active() != engine ? -EBUSY : 0;
	if (ret || engine_active())
		goto unlock;
	ret = -ENODEV;
	if (!try_module_get(engine->ops->owner))
		goto unlock;
	engine_put_in(MIGRATE_ENGINE_IN_GENERAL, engine);
	ret = 0;
unlock:
	mutex_unlock(&migrate_engines_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(migrate_engine_activate);

/**
 * migrate_engine_deactivate - switch an engine off for all reasons
 * @ops: the engine that was registered.
 *
 * When this returns, no copy of this engine is in flight.
 *
 * Context: may sleep, until the copies in flight have ended.
 */
void migrate_engine_deactivate(const struct migrate_engine_ops *ops)
{
	struct migrate_engine *engine;

	mutex_lock(&migrate_engines_lock);
	engine = engine_of(ops);
	if (engine)
		engine_deactivate(engine);
	mutex_unlock(&migrate_engines_lock);
}
EXPORT_SYMBOL_GPL(migrate_engine_deactivate);

/*
 * Make the engine of this name active in general.  "none" deactivates all
 * engines, for all reasons.  An active migrator must first be switched off, by
 * "none" or by its driver.
 */
int migrate_engine_select(const char *name)
{
	struct migrate_engine *engine, *old;
	int ret = 0;

	mutex_lock(&migrate_engines_lock);
	if (!strcmp(name, "none")) {
		engine_deactivate(NULL);
		goto unlock;
	}
	old = engine_active();
	engine = engine_find(name);
	if (!engine) {
		ret = -EINVAL;
		goto unlock;
	}
	if (engine == old)
		goto unlock;
	if (old && old->migrator) {
		ret = -EBUSY;
		goto unlock;
	}
	/* Pin the new engine first: if this fails, the old one stays active. */
	if (!try_module_get(engine->ops->owner)) {
		ret = -ENODEV;
		goto unlock;
	}
	engine_put_in(MIGRATE_ENGINE_IN_GENERAL, engine);
unlock:
	mutex_unlock(&migrate_engines_lock);
	return ret;
}

/*
 * Make the engine of this name active for a reason.  With "none" the CPU
 * copies; "default" is the engine that is active in general.
 */
int migrate_engine_select_for(int reason, const char *name)
{
	struct migrate_engine *engine = NULL;
	int ret = 0;

	mutex_lock(&migrate_engines_lock);
	if (!strcmp(name, "none"))
		engine = &migrate_no_engine;
	else if (strcmp(name, "default"))
		engine = engine_find(name);
	if (!engine && strcmp(name, "default"))
		ret = -EINVAL;
	else if (engine == migrate_engine_in(reason))
		goto unlock;
	else if (engine && !try_module_get(engine->ops->owner))
		ret = -ENODEV;
	else
		engine_put_in(reason, engine);
unlock:
	mutex_unlock(&migrate_engines_lock);
	return ret;
}

/*
 * Read under SRCU: a task may hold migrate_engines_lock until copies have
 * ended.
 */
static int engine_emit_name(char *buf, unsigned int slot, const char *nothing)
{
	int idx, len;

	idx = srcu_read_lock(&migrate_engines_srcu);
	len = sysfs_emit(buf, "%s\n", migrate_engine_name_in(slot) ?: nothing);
	srcu_read_unlock(&migrate_engines_srcu, idx);
	return len;
}

int migrate_engine_name(char *buf)
{
	return engine_emit_name(buf, MIGRATE_ENGINE_IN_GENERAL, "none");
}

int migrate_engine_name_for(int reason, char *buf)
{
	return engine_emit_name(buf, reason, "default");
}

int migrate_engine_names(char *buf)
{
	struct migrate_engine *engine;
	int idx, len;

	len = sysfs_emit(buf, "none");
	idx = srcu_read_lock(&migrate_engines_srcu);
	list_for_each_entry_srcu(engine, &engines, list,
				 srcu_read_lock_held(&migrate_engines_srcu))
		len += sysfs_emit_at(buf, len, " %s", engine->ops->name);
	srcu_read_unlock(&migrate_engines_srcu, idx);
	len += sysfs_emit_at(buf, len, "\n");
	return len;
}

static int engines_pm_event(struct notifier_block *nb, unsigned long event,
			    void *unused)
{
	switch (event) {
	case PM_HIBERNATION_PREPARE:
	case PM_SUSPEND_PREPARE:
	case PM_RESTORE_PREPARE:
		migrate_engines_pause(true);
		break;
	case PM_POST_HIBERNATION:
	case PM_POST_SUSPEND:
	case PM_POST_RESTORE:
		migrate_engines_pause(false);
		break;
	}
	return NOTIFY_DONE;
}

static struct notifier_block engines_pm_nb = {
	.notifier_call = engines_pm_event,
};

static int __init migrate_engine_init(void)
{
	int ret = register_pm_notifier(&engines_pm_nb);

	if (ret)
		return ret;
	return migrate_engine_register(&migrate_cpu_engine_ops);
}
device_initcall(migrate_engine_init);

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/registry_kunit.c"
#endif
