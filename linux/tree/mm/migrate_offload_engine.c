// SPDX-License-Identifier: GPL-2.0-only
/*
 * Copy engines for migrating folios: who is there, and which one is active.
 *
 * Two interfaces lead here.  A struct migrator copies a batch or none of it,
 * and becomes active by registering; only one can.  A struct migrate_engine_ops
 * has a result for each folio, becomes available by registering, and active
 * when an administrator says so.
 *
 * Life of an engine: the active one is found through active_engine under SRCU,
 * and called through a static call.  To take it out of use, the pointer is
 * cleared, the call is pointed at nothing, and synchronize_srcu() waits for
 * the last batch that may have seen either.  So a batch that finds an engine
 * calls this engine or none, never another, and after unregistering no code of
 * the engine runs.  The module is pinned while its engine is active.
 */

#define pr_fmt(fmt) "migrate_offload: " fmt

#include <linux/ctype.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/srcu.h>
#include <linux/static_call.h>
#include <linux/sysfs.h>

#include "internal.h"
#include "migrate_offload.h"

/* Exactly one of @ops and @migrator is set. */
struct migrate_engine {
	struct list_head list;
	const char *name;
	struct module *owner;
	const struct migrate_engine_ops *ops;
	struct migrator *migrator;
	struct migrate_offload_stats *stats;
};

/* Serialises registering, unregistering and selecting. */
static DEFINE_MUTEX(engines_lock);

/* Protects the two below, and the engines themselves, for readers. */
DEFINE_STATIC_SRCU(engines_srcu);
static LIST_HEAD(engines);
static struct migrate_engine __rcu *active_engine;

static int no_engine_copy(struct migrate_copy_batch *batch)
{
	return -EOPNOTSUPP;
}

DEFINE_STATIC_CALL(migrate_engine_copy_call, no_engine_copy);

int migrate_engine_copy(struct migrate_copy_batch *batch)
{
	return static_call(migrate_engine_copy_call)(batch);
}

/* Would the engine take a batch of up to so many bytes? */
bool migrate_engine_wants(const struct migrate_engine *engine, int dst_nid,
			  size_t bytes)
{
	const struct migrate_engine_ops *ops = engine->ops;

	/* One that was built for version 1 ends before this member. */
	return !ops || ops->version < 2 || !ops->wants ||
		ops->wants(dst_nid, bytes);
}

/*
 * Enter the section in which the active engine stays.  Returns it, or NULL;
 * migrate_engine_exit() is due in both cases.
 */
struct migrate_engine *migrate_engine_enter(int *idx)
	__acquires(&engines_srcu)
{
	*idx = srcu_read_lock(&engines_srcu);
	return srcu_dereference(active_engine, &engines_srcu);
}

void migrate_engine_exit(int idx)
	__releases(&engines_srcu)
{
	srcu_read_unlock(&engines_srcu, idx);
}

struct migrate_offload_stats *
migrate_engine_stats(const struct migrate_engine *engine)
{
	return engine->stats;
}

/* Call the active engine's offload_copy(), and speak for each folio. */
static int migrator_copy(struct migrate_copy_batch *batch)
{
	struct migrate_engine *engine = srcu_dereference(active_engine,
							 &engines_srcu);
	unsigned int i;
	int rc;

	/* Being taken out of use. */
	if (!engine || !engine->migrator)
		return -EOPNOTSUPP;

	rc = engine->migrator->offload_copy(&batch->dst_list, &batch->src_list,
					    batch->nr_pairs);
	for (i = 0; i < batch->nr_pairs; i++)
		batch->pairs[i].result = rc;
	return rc;
}

/* Does the engine take batches side by side? */
static bool engine_streams(const struct migrate_engine_ops *ops)
{
	/* One that was built for an older version ends before. */
	return ops->version >= 3 && ops->submit;
}

/* The built-in engine: the caller copies, but all folios in one go. */
static int cpu_copy(struct migrate_copy_batch *batch)
{
	unsigned int i;

	for (i = 0; i < batch->nr_pairs; i++) {
		struct migrate_copy_pair *pair = &batch->pairs[i];

		pair->result = migrate_offload_mc_copy(pair->dst, pair->src);
		if (!migrate_offload_broken(MO_RULE_RESCHED))
			cond_resched();
	}
	return 0;
}

static const struct migrate_engine_ops cpu_engine_ops = {
	.version = MIGRATE_ENGINE_VERSION,
	.name = "cpu",
	.copy = cpu_copy,
};

/*
 * What is known of how long windows of the engine take.  NULL for the built-in
 * one: it is the CPU, which is what it would be left out for if it were too slow.
 */
struct migrate_pace *migrate_engine_paces(const struct migrate_engine *engine)
{
	return engine->ops == &cpu_engine_ops ? NULL : engine->stats->paces;
}

static struct migrate_engine *engine_active(void)
{
	return rcu_dereference_protected(active_engine,
					 lockdep_is_held(&engines_lock));
}

static struct migrate_engine *engine_find(const char *name)
{
	struct migrate_engine *engine;

	list_for_each_entry(engine, &engines, list)
		if (!strcmp(engine->name, name))
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

/* What migrate_engine_open() was given, and those below, is in the section. */
bool migrate_engine_streams(const struct migrate_engine *engine)
{
	return engine->ops && engine_streams(engine->ops);
}

int migrate_engine_open(struct migrate_engine *engine,
			struct migrate_copy_stream *stream)
{
	return engine->ops->open(stream);
}

int migrate_engine_submit(struct migrate_engine *engine,
			  struct migrate_copy_stream *stream,
			  struct migrate_copy_batch *batch)
{
	return engine->ops->submit(stream, batch);
}

void migrate_engine_reap(struct migrate_engine *engine,
			 struct migrate_copy_stream *stream, u64 wait_ns)
{
	engine->ops->reap(stream, wait_ns);
}

void migrate_engine_close(struct migrate_engine *engine,
			  struct migrate_copy_stream *stream)
{
	engine->ops->close(stream);
}

/* Is it still the active one, or does somebody wait for us to leave it? */
bool migrate_engine_stays(const struct migrate_engine *engine)
{
	return rcu_access_pointer(active_engine) == engine;
}

/* The module of the engine has been pinned for it. */
static void engine_activate(struct migrate_engine *engine)
{
	lockdep_assert_held(&engines_lock);

	migrate_limit_prepare();
	if (!engine->ops)
		static_call_update(migrate_engine_copy_call, migrator_copy);
	else if (!engine_streams(engine->ops))
		static_call_update(migrate_engine_copy_call,
				   engine->ops->copy);
	rcu_assign_pointer(active_engine, engine);
	static_branch_inc(&migrate_offload_key);
	pr_debug("%s is active\n", engine->name);
}

/* When this returns, no code of the engine runs, and none will. */
static void engine_deactivate(struct migrate_engine *engine)
{
	lockdep_assert_held(&engines_lock);

	RCU_INIT_POINTER(active_engine, NULL);
	static_call_update(migrate_engine_copy_call, no_engine_copy);
	synchronize_srcu(&engines_srcu);
	/* After that: a long list is in windows only while this is on. */
	static_branch_dec(&migrate_offload_key);
	module_put(engine->owner);
	pr_debug("%s is no longer active\n", engine->name);
}

static bool engine_name_ok(const char *name)
{
	size_t i, len = strnlen(name, MIGRATOR_NAME_LEN);

	if (!len || len == MIGRATOR_NAME_LEN || !strcmp(name, "none"))
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

	if (!engine_name_ok(engine->name))
		return -EINVAL;

	mutex_lock(&engines_lock);
	if (activate && engine_active())
		goto unlock;
	ret = -EEXIST;
	if (engine_find(engine->name))
		goto unlock;

	stats = migrate_offload_engine_stats(engine->name);
	if (IS_ERR(stats)) {
		ret = PTR_ERR(stats);
		goto unlock;
	}
	engine->stats = stats;

	ret = -ENODEV;
	if (activate && !try_module_get(engine->owner))
		goto unlock;
	if (activate)
		engine_activate(engine);
	list_add_tail_rcu(&engine->list, &engines);
	ret = 0;
unlock:
	mutex_unlock(&engines_lock);
	return ret;
}

/* Exactly one of @ops and @m says which engine goes. */
static int engine_remove(const struct migrate_engine_ops *ops,
			 const struct migrator *m)
{
	struct migrate_engine *engine, *found = NULL;

	mutex_lock(&engines_lock);
	list_for_each_entry(engine, &engines, list)
		if (engine->ops == ops && engine->migrator == m)
			found = engine;
	if (!found) {
		mutex_unlock(&engines_lock);
		return -EINVAL;
	}
	if (engine_active() == found)
		engine_deactivate(found);
	list_del_rcu(&found->list);
	/* For those who read the names of engines. */
	synchronize_srcu(&engines_srcu);
	mutex_unlock(&engines_lock);
	kfree(found);
	return 0;
}

/**
 * migrate_offload_register - make a migrator the active copy engine
 * @m: the migrator.  Must stay until migrate_offload_unregister().
 *
 * Context: may sleep.
 * Return: 0, -EINVAL when @m lacks a name or a function, -EBUSY when an engine
 * is active already, -EEXIST when an engine of this name is there, -ENODEV when
 * the module is going away or the core could not start, or -ENOMEM.
 */
int migrate_offload_register(struct migrator *m)
{
	struct migrate_engine *engine;
	int ret;

	if (!m || !m->offload_copy)
		return -EINVAL;

	engine = kzalloc(sizeof(*engine), GFP_KERNEL);
	if (!engine)
		return -ENOMEM;
	engine->name = m->name;
	engine->owner = m->owner;
	engine->migrator = m;
	ret = engine_add(engine, true);
	if (ret)
		kfree(engine);
	return ret;
}
EXPORT_SYMBOL_GPL(migrate_offload_register);

/**
 * migrate_offload_unregister - take a migrator out of use for good
 * @m: what migrate_offload_register() was given.
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
	if (!ops || !ops->name || !ops->version ||
	    ops->version > MIGRATE_ENGINE_VERSION)
		return false;
	if (engine_streams(ops))
		return ops->open && ops->reap && ops->close;
	/* All of them or none. */
	if (ops->version >= 3 && (ops->open || ops->reap || ops->close))
		return false;
	return ops->copy;
}

/**
 * migrate_engine_register - make a copy engine available
 * @ops: the engine.  Must stay until migrate_engine_unregister().
 *
 * It becomes active when its name is written to
 * /sys/kernel/mm/migrate_offload/engine.
 *
 * Context: may sleep.
 * Return: 0, -EINVAL when @ops lacks something or has a version that this
 * kernel does not know, -EEXIST when an engine of this name is there, -ENODEV
 * when the core could not start, or -ENOMEM.
 */
int migrate_engine_register(const struct migrate_engine_ops *ops)
{
	struct migrate_engine *engine;
	int ret;

	if (!engine_ops_ok(ops))
		return -EINVAL;

	engine = kzalloc(sizeof(*engine), GFP_KERNEL);
	if (!engine)
		return -ENOMEM;
	engine->name = ops->name;
	engine->owner = ops->owner;
	engine->ops = ops;
	ret = engine_add(engine, false);
	if (ret)
		kfree(engine);
	return ret;
}
EXPORT_SYMBOL_GPL(migrate_engine_register);

/**
 * migrate_engine_unregister - take a copy engine out of use for good
 * @ops: what migrate_engine_register() was given.
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
 * migrate_engine_activate - make an engine the active one, if none is
 * @ops: what migrate_engine_register() was given.
 *
 * For drivers with a switch of their own.  An administrator who has chosen
 * another engine is not overruled.
 *
 * Context: may sleep.
 * Return: 0, also when it is active already, -EBUSY when another engine is,
 * -EINVAL when @ops is not registered, or -ENODEV when the module is going
 * away.
 */
int migrate_engine_activate(const struct migrate_engine_ops *ops)
{
	struct migrate_engine *engine;
	int ret = -EINVAL;

	mutex_lock(&engines_lock);
	engine = engine_of(ops);
	if (!engine)
		goto unlock;
	ret = engine_active() && engine_active() != engine ? -EBUSY : 0;
	if (ret || engine_active())
		goto unlock;
	ret = -ENODEV;
	if (!try_module_get(engine->owner))
		goto unlock;
	engine_activate(engine);
	ret = 0;
unlock:
	mutex_unlock(&engines_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(migrate_engine_activate);

/**
 * migrate_engine_deactivate - switch an engine off, if it is the active one
 * @ops: what migrate_engine_register() was given.
 *
 * When this returns, no copy of this engine is in flight.
 *
 * Context: may sleep, until the copies in flight have ended.
 */
void migrate_engine_deactivate(const struct migrate_engine_ops *ops)
{
	struct migrate_engine *engine;

	mutex_lock(&engines_lock);
	engine = engine_of(ops);
	if (engine && engine_active() == engine)
		engine_deactivate(engine);
	mutex_unlock(&engines_lock);
}
EXPORT_SYMBOL_GPL(migrate_engine_deactivate);

/*
 * Make the engine of this name the active one; "none" switches offloading off.
 * A migrator that its driver made active is not displaced: it must be switched
 * off first, here or in the driver.
 */
int migrate_engine_select(const char *name)
{
	struct migrate_engine *engine = NULL, *old;
	int ret = 0;

	mutex_lock(&engines_lock);
	old = engine_active();
	if (strcmp(name, "none")) {
		engine = engine_find(name);
		if (!engine) {
			ret = -EINVAL;
			goto unlock;
		}
	}
	if (engine == old)
		goto unlock;
	if (engine && old && old->migrator) {
		ret = -EBUSY;
		goto unlock;
	}
	/* Before the old one goes: if this fails, everything stays as it is. */
	if (engine && !try_module_get(engine->owner)) {
		ret = -ENODEV;
		goto unlock;
	}
	if (old)
		engine_deactivate(old);
	if (engine)
		engine_activate(engine);
unlock:
	mutex_unlock(&engines_lock);
	return ret;
}

/* For sysfs: takes no lock that a change of engines, or a copy, may hold. */
int migrate_engine_name(char *buf)
{
	struct migrate_engine *engine;
	int idx, len;

	engine = migrate_engine_enter(&idx);
	len = sysfs_emit(buf, "%s\n", engine ? engine->name : "none");
	migrate_engine_exit(idx);
	return len;
}

int migrate_engine_names(char *buf)
{
	struct migrate_engine *engine;
	int idx, len;

	len = sysfs_emit(buf, "none");
	idx = srcu_read_lock(&engines_srcu);
	list_for_each_entry_srcu(engine, &engines, list,
				 srcu_read_lock_held(&engines_srcu))
		len += sysfs_emit_at(buf, len, " %s", engine->name);
	srcu_read_unlock(&engines_srcu, idx);
	len += sysfs_emit_at(buf, len, "\n");
	return len;
}

static int __init migrate_engine_init(void)
{
	return migrate_engine_register(&cpu_engine_ops);
}
device_initcall(migrate_engine_init);

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/migrate_engine_kunit.c"
#endif
