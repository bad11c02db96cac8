// SPDX-License-Identifier: GPL-2.0-only
/*
 * Call the active copy engine: the one of the reason to migrate, or else the
 * general one.
 *
 * Slots hold pointers to the active engines, and SRCU protects them.  To
 * deactivate an engine, the core changes its slots, and synchronize_srcu()
 * waits for the last batch that may have seen the engine.  No code of the
 * engine runs after that.
 */

#include <linux/sched.h>
#include <linux/srcu.h>

#include "../internal.h"
#include "hooks.h"
#include "promote.h"
#include "registry.h"

/* Serialises registering, unregistering and selecting. */
DEFINE_MUTEX(migrate_engines_lock);

/* Protects slots and engines for readers. */
DEFINE_SRCU(migrate_engines_srcu);
static struct migrate_engine __rcu *slots[MIGRATE_NR_ENGINE_SLOTS];

/* In a reason's slot: the CPU copies, even if a general engine is active. */
static const struct migrate_engine_ops no_engine_ops = { .name = "none" };
struct migrate_engine migrate_no_engine = { .ops = &no_engine_ops };

/* The system is about to sleep, or has not woken up yet. */
static bool engines_paused;

/*
 * Drivers suspend their devices while some threads still migrate: kdamond and
 * the workers of promotion are not frozen.  When this returns, no engine copies
 * until the pause is over.  A task that waits for an engine is never frozen.
 */
void migrate_engines_pause(bool pause)
{
	WRITE_ONCE(engines_paused, pause);
	if (pause)
		synchronize_srcu(&migrate_engines_srcu);
}

/* Would the engine take a batch of up to @bytes for node @dst_nid? */
bool migrate_engine_wants(const struct migrate_engine *engine, int dst_nid,
			  size_t bytes)
{
	const struct migrate_engine_ops *ops = engine->ops;

	return !ops->wants || ops->wants(dst_nid, bytes);
}

/*
 * Enter the SRCU section, which each use of engine->ops needs.  Returns the
 * engine for @reason, or NULL.  Call migrate_engine_exit() in both cases.
 */
struct migrate_engine *migrate_engine_enter(int reason, int *idx)
	__acquires(&migrate_engines_srcu)
{
	struct migrate_engine *engine;

	*idx = srcu_read_lock(&migrate_engines_srcu);
	if (!(BIT(reason) & MIGRATE_OFFLOAD_REASONS_ALL) ||
	    READ_ONCE(engines_paused))
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
 * Returns the times of the engine's windows.  NULL for the engine "cpu", whose
 * windows share the times of the CPU.
 */
struct migrate_pace *migrate_engine_paces(const struct migrate_engine *engine)
{
	return engine->ops == &migrate_cpu_engine_ops ? NULL :
							engine->stats->paces;
}

/* Does the engine copy while the task does other work? */
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

/* Is the engine still active?  If not, a task may wait for this SRCU reader. */
bool migrate_engine_stays(const struct migrate_engine *engine, int reason)
{
	const struct migrate_engine *own = rcu_access_pointer(slots[reason]);

	if (READ_ONCE(engines_paused))
		return false;
	return engine == (own ?: rcu_access_pointer(slots[MIGRATE_ENGINE_IN_GENERAL]));
}

/* Returns the name in a slot, or NULL.  The caller is in an SRCU section. */
const char *migrate_engine_name_in(unsigned int slot)
{
	struct migrate_engine *engine = srcu_dereference(slots[slot],
							 &migrate_engines_srcu);

	return engine ? engine->ops->name : NULL;
}

struct migrate_engine *migrate_engine_in(unsigned int slot)
{
	return rcu_dereference_protected(slots[slot],
					 lockdep_is_held(&migrate_engines_lock));
}

/* migrate_no_engine does not need the static key: the CPU copies. */
static bool migrate_engine_is_active(const struct migrate_engine *engine)
{
	return engine && engine != &migrate_no_engine;
}

/*
 * Put an engine, whose module the caller has pinned, or NULL into a slot.  When
 * this returns, no migration that uses this slot copies with the old engine.
 * The old engine of an empty slot of a reason is the general one.
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
	 * Folios may wait to be promoted with the old engine: flush them.  No
	 * folio waits for a general slot that was empty.
	 */
	if (general ? !!old : slot == MR_NUMA_MISPLACED)
		__migrate_promote_flush();
	/* Last: without the key lru_add_drain_all() flushes no promotions. */
	if (migrate_engine_is_active(old))
		static_branch_dec(&migrate_offload_key);
}
