// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls of the copy engine that is active: in general, or for some reason to
 * migrate.
 *
 * It is found through a pointer under SRCU: that of its reason, or else that of
 * all which have none.  To take an engine out of use, the pointer is changed, and
 * synchronize_srcu() waits for the last batch that may have seen it.  Afterwards no
 * code of the engine runs.
 */

#include <linux/sched.h>
#include <linux/srcu.h>

#include "../internal.h"
#include "hooks.h"
#include "promote.h"
#include "registry.h"

/* Serialises registering, unregistering and selecting. */
DEFINE_MUTEX(migrate_engines_lock);

/* Protects the pointers, and the engines themselves, for readers. */
DEFINE_SRCU(migrate_engines_srcu);
static struct migrate_engine __rcu *slots[MIGRATE_NR_ENGINE_SLOTS];

/* In a slot of a reason: no engine, whatever there is in general. */
static const struct migrate_engine_ops no_engine_ops = { .name = "none" };
struct migrate_engine migrate_no_engine = { .ops = &no_engine_ops };

/* Would the engine take a batch of up to so many bytes? */
bool migrate_engine_wants(const struct migrate_engine *engine, int dst_nid,
			  size_t bytes)
{
	const struct migrate_engine_ops *ops = engine->ops;

	return !ops->wants || ops->wants(dst_nid, bytes);
}

/*
 * Enter the section in which the active engine stays.  Returns the one for this
 * reason, or NULL; migrate_engine_exit() is due in both cases.
 */
struct migrate_engine *migrate_engine_enter(int reason, int *idx)
	__acquires(&migrate_engines_srcu)
{
	struct migrate_engine *engine;

	*idx = srcu_read_lock(&migrate_engines_srcu);
	if (!(BIT(reason) & MIGRATE_OFFLOAD_REASONS_ALL))
		return NULL;
	engine = srcu_dereference(slots[reason], &migrate_engines_srcu);
	if (!engine)
		engine = srcu_dereference(slots[MIGRATE_ENGINE_IN_GENERAL],
					  &migrate_engines_srcu);
	return engine == &migrate_no_engine ? NULL : engine;
}

void migrate_engine_exit(int idx)
	__releases(&migrate_engines_srcu)
{
	srcu_read_unlock(&migrate_engines_srcu, idx);
}

struct migrate_offload_stats *
migrate_engine_stats(const struct migrate_engine *engine)
{
	return engine->stats;
}

static int cpu_submit(struct migrate_copy_stream *stream,
		      struct migrate_copy_batch *batch)
{
	unsigned int i;

	for (i = 0; i < batch->nr_pairs; i++) {
		struct migrate_copy_pair *pair = &batch->pairs[i];

		pair->result = migrate_offload_mc_copy(pair->dst, pair->src);
		if (migrate_rule(RESCHED, true))
			cond_resched();
	}
	return 0;
}

const struct migrate_engine_ops migrate_cpu_engine_ops = {
	.name = "cpu",
	.submit = cpu_submit,
};

/*
 * What is known of how long windows of the engine take.  NULL for the built-in
 * one: it is the CPU, whose times are kept apart.
 */
struct migrate_pace *migrate_engine_paces(const struct migrate_engine *engine)
{
	return engine->ops == &migrate_cpu_engine_ops ? NULL :
							engine->stats->paces;
}

/* In the section, as are those below.  Does it copy while the task goes on? */
bool migrate_engine_streams(const struct migrate_engine *engine)
{
	return engine->ops->reap;
}

int migrate_engine_open(struct migrate_engine *engine,
			struct migrate_copy_stream *stream)
{
	stream->ops = engine->ops;
	return engine->ops->open(stream);
}

int migrate_engine_submit(struct migrate_engine *engine,
			  struct migrate_copy_stream *stream,
			  struct migrate_copy_batch *batch)
{
	stream->ops = engine->ops;
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
bool migrate_engine_stays(const struct migrate_engine *engine, int reason)
{
	const struct migrate_engine *own = rcu_access_pointer(slots[reason]);

	return engine == (own ?: rcu_access_pointer(slots[MIGRATE_ENGINE_IN_GENERAL]));
}

/* For sysfs, in the section: the name of what is in a slot, or NULL. */
const char *migrate_engine_name_in(unsigned int slot)
{
	struct migrate_engine *engine = srcu_dereference(slots[slot],
							 &migrate_engines_srcu);

	return engine ? engine->ops->name : NULL;
}

/* What is in a slot, for those who may change it. */
struct migrate_engine *migrate_engine_in(unsigned int slot)
{
	return rcu_dereference_protected(slots[slot],
					 lockdep_is_held(&migrate_engines_lock));
}

/* Only what is active costs anything. */
static bool migrate_engine_is_active(const struct migrate_engine *engine)
{
	return engine && engine != &migrate_no_engine;
}

/*
 * Put an engine in a slot, or nothing: NULL.  Its module has been pinned for
 * that.  When this returns, nothing that went by this slot copies with the engine
 * that it led to before, and nothing will: for a reason without an engine of its
 * own, that was the one in general.
 */
void migrate_engine_put_in(unsigned int slot, struct migrate_engine *engine)
{
	struct migrate_engine *old = migrate_engine_in(slot);
	bool general = slot == MIGRATE_ENGINE_IN_GENERAL;

	if (migrate_engine_is_active(engine)) {
		migrate_limit_prepare();
		migrate_promote_prepare();
		static_branch_inc(&migrate_offload_key);
	}
	rcu_assign_pointer(slots[slot], engine);
	synchronize_srcu(&migrate_engines_srcu);
	/*
	 * Maybe nobody is promoted later any more: see to those who wait for it.
	 * If there was no engine in general, nobody waits.
	 */
	if (general ? !!old : slot == MR_NUMA_MISPLACED)
		__migrate_promote_flush();
	/* After that: a long list is in windows only while this is on. */
	if (migrate_engine_is_active(old))
		static_branch_dec(&migrate_offload_key);
}
