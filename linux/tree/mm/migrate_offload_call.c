// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls of the copy engine that is active.
 *
 * It is found through active_engine under SRCU, and called through a static
 * call where it copies at once.  To take it out of use, the pointer is cleared,
 * the call is pointed at nothing, and synchronize_srcu() waits for the last
 * batch that may have seen either.  So a batch that finds an engine calls this
 * engine or none, never another, and afterwards no code of the engine runs.
 */

#include <linux/sched.h>
#include <linux/srcu.h>
#include <linux/static_call.h>

#include "internal.h"
#include "migrate_offload_engine.h"

/* Protects the pointer, and the engines themselves, for readers. */
DEFINE_SRCU(migrate_engines_srcu);
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
	__acquires(&migrate_engines_srcu)
{
	*idx = srcu_read_lock(&migrate_engines_srcu);
	return srcu_dereference(active_engine, &migrate_engines_srcu);
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

/* Call the active engine's offload_copy(), and speak for each folio. */
static int migrator_copy(struct migrate_copy_batch *batch)
{
	struct migrate_engine *engine = srcu_dereference(active_engine,
							 &migrate_engines_srcu);
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

const struct migrate_engine_ops migrate_cpu_engine_ops = {
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
	return engine->ops == &migrate_cpu_engine_ops ? NULL :
							engine->stats->paces;
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

struct migrate_engine *migrate_engine_active(void)
{
	return rcu_dereference_protected(active_engine, 1);
}

/* None is active, and the module of this one has been pinned for it. */
void migrate_engine_start(struct migrate_engine *engine)
{
	migrate_limit_prepare();
	if (!engine->ops)
		static_call_update(migrate_engine_copy_call, migrator_copy);
	else if (!engine_streams(engine->ops))
		static_call_update(migrate_engine_copy_call,
				   engine->ops->copy);
	rcu_assign_pointer(active_engine, engine);
	static_branch_inc(&migrate_offload_key);
}

/* When this returns, no code of the active engine runs, and none will. */
void migrate_engine_stop(void)
{
	RCU_INIT_POINTER(active_engine, NULL);
	static_call_update(migrate_engine_copy_call, no_engine_copy);
	synchronize_srcu(&migrate_engines_srcu);
	/* After that: a long list is in windows only while this is on. */
	static_branch_dec(&migrate_offload_key);
}
