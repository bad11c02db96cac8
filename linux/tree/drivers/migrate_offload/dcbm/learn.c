// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: which batches are worth it.
 *
 * When offloading is switched on, and then now and again while batches come, a
 * few copies are timed: one small folio, many small ones, and one large one,
 * with the channels and with the CPU.  From that follows what a batch will
 * cost either way, and those that the CPU does sooner are declined.  An
 * administrator can set the limit instead.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/nodemask.h>
#include <linux/seqlock.h>
#include <linux/slab.h>

#include "dcbm.h"

#define DCBM_LEARN_ROUNDS	7
#define DCBM_LEARN_MANY		64
#define DCBM_LEARN_LARGE_ORDER	get_order(SZ_2M)

/* A slow engine is not worth more of our time than this. */
#define DCBM_LEARN_MAX_NS	(200ULL * NSEC_PER_MSEC)

/* Channels are in use: wait for them so long, then do without measuring. */
#define DCBM_LEARN_WAIT_NS	(20ULL * NSEC_PER_MSEC)

/* A wait that is shorter than this ends in vain more often than not. */
#define DCBM_WAIT_MIN_NS	(50ULL * NSEC_PER_USEC)

static unsigned int relearn_s = 60;
module_param(relearn_s, uint, 0644);
MODULE_PARM_DESC(relearn_s, "measure again when this much later a batch comes, default 60; 0: never");

static int wait_us = -1;
module_param(wait_us, int, 0644);
MODULE_PARM_DESC(wait_us, "wait for a channel so long when all are busy; default -1: what measurements say is worth it");

/* The model, for copies: readers must not wait. */
static DEFINE_SEQLOCK(dcbm_model_lock);
static struct dcbm_model dcbm_model;
static unsigned int dcbm_model_chans;

static size_t dcbm_fixed_bytes;		/* 0: learn */
static unsigned long dcbm_learned_at;	/* jiffies */

static void dcbm_learn_work(struct work_struct *work);
static DECLARE_WORK(dcbm_learn_again, dcbm_learn_work);

/* Returns the number of channels it was made for; 0 when nothing is known. */
static unsigned int dcbm_model_get(struct dcbm_model *model)
{
	unsigned int seq, nr_chans;

	do {
		seq = read_seqbegin(&dcbm_model_lock);
		*model = dcbm_model;
		nr_chans = dcbm_model_chans;
	} while (read_seqretry(&dcbm_model_lock, seq));
	return model->cpu_ns_per_mib ? nr_chans : 0;
}

static void dcbm_model_set(const struct dcbm_model *model,
			   unsigned int nr_chans)
{
	write_seqlock(&dcbm_model_lock);
	dcbm_model = *model;
	dcbm_model_chans = nr_chans;
	write_sequnlock(&dcbm_model_lock);
}

/* Will the channels copy so many folios of so many bytes sooner than a CPU? */
bool dcbm_pays(unsigned int nr_pairs, size_t bytes)
{
	size_t fixed = READ_ONCE(dcbm_fixed_bytes);
	struct dcbm_model model;
	unsigned int nr_chans;

	if (fixed)
		return bytes >= fixed;
	nr_chans = dcbm_model_get(&model);
	/* Nothing could be measured: an administrator wanted it on. */
	return !nr_chans || dcbm_wins(&model, nr_pairs, bytes, nr_chans);
}

/*
 * How long may a batch of so many bytes wait for a channel, so that it is clearly better off
 * than with the CPU at once?  0: it is not.
 */
u64 dcbm_worth_waiting_ns(size_t bytes)
{
	u64 cpu_ns, engine_ns;
	struct dcbm_model model;
	unsigned int nr_chans = dcbm_model_get(&model);
	int fixed_us = READ_ONCE(wait_us);

	if (fixed_us >= 0)
		return (u64)fixed_us * NSEC_PER_USEC;
	if (!nr_chans)
		return 0;
	cpu_ns = dcbm_cpu_ns(&model, bytes);
	engine_ns = dcbm_engine_ns(&model, 1, bytes, nr_chans);
	if (cpu_ns / 2 < engine_ns + DCBM_WAIT_MIN_NS)
		return 0;
	return cpu_ns / 2 - engine_ns;
}

/* A batch of our own, whose folios nobody else knows. */
static struct migrate_copy_batch *dcbm_batch_new(unsigned int nr,
						 unsigned int order)
{
	int src_nid = first_memory_node, dst_nid = src_nid, nid;
	struct migrate_copy_batch *batch;
	gfp_t gfp = GFP_KERNEL | __GFP_NOWARN | __GFP_NORETRY;

	/* The last of the nodes: where there are tiers, a lower one. */
	for_each_node_state(nid, N_MEMORY)
		dst_nid = nid;
	batch = kzalloc(struct_size(batch, pairs, nr), GFP_KERNEL);
	if (!batch)
		return NULL;
	batch->dst_nid = dst_nid;
	for (; batch->nr_pairs < nr; batch->nr_pairs++) {
		struct migrate_copy_pair *pair = &batch->pairs[batch->nr_pairs];

		pair->src = __folio_alloc_node(gfp, order, src_nid);
		if (!pair->src)
			break;
		pair->dst = __folio_alloc_node(gfp, order, dst_nid);
		if (!pair->dst) {
			folio_put(pair->src);
			break;
		}
		batch->bytes += folio_size(pair->src);
	}
	return batch;
}

/* What a device holds on to stays until it lets go. */
static void dcbm_batch_free(struct migrate_copy_batch *batch)
{
	unsigned int i;

	if (!batch)
		return;
	for (i = 0; i < batch->nr_pairs; i++) {
		folio_put(batch->pairs[i].src);
		folio_put(batch->pairs[i].dst);
	}
	kfree(batch);
}

static int dcbm_time_engine(struct migrate_copy_batch *batch,
			    unsigned int nr_chans, u64 *best_ns)
{
	struct dcbm_stream *stream;
	u64 start = ktime_get_ns();
	unsigned int i;
	int ret;

	stream = dcbm_stream_open(batch->dst_nid, batch->bytes, false,
				  DCBM_LEARN_WAIT_NS, &ret);
	if (!stream)
		return ret;
	stream->learning = true;
	/* With a share of the channels, it would be their speed. */
	if (stream->nr_chans < dcbm_wanted(batch->bytes, nr_chans))
		ret = -EBUSY;

	batch->nr_done = 0;
	for (i = 0; i < batch->nr_pairs; i++)
		batch->pairs[i].done = false;
	if (!ret)
		ret = dcbm_stream_submit(stream, batch);
	while (!ret && batch->nr_done < batch->nr_pairs)
		dcbm_stream_reap(stream, U64_MAX);
	dcbm_stream_close(stream);
	for (i = 0; !ret && i < batch->nr_pairs; i++)
		ret = batch->pairs[i].result;
	if (!ret)
		*best_ns = min(*best_ns, ktime_get_ns() - start);
	return ret;
}

static int dcbm_time_cpu(struct migrate_copy_batch *batch, u64 *best_ns)
{
	u64 start = ktime_get_ns();
	unsigned int i;
	int ret = 0;

	for (i = 0; !ret && i < batch->nr_pairs; i++)
		ret = folio_mc_copy(batch->pairs[i].dst, batch->pairs[i].src);
	*best_ns = min(*best_ns, ktime_get_ns() - start);
	return ret;
}

/* The best of some rounds is what it takes when nobody disturbs. */
static int dcbm_measure(struct migrate_copy_batch *batch,
			unsigned int nr_chans, u64 *engine_ns, u64 *cpu_ns)
{
	u64 until = ktime_get_ns() + DCBM_LEARN_MAX_NS;
	int ret = 0;
	int i;

	*engine_ns = U64_MAX;
	*cpu_ns = U64_MAX;
	for (i = 0; !ret && i < DCBM_LEARN_ROUNDS; i++) {
		ret = dcbm_time_engine(batch, nr_chans, engine_ns);
		if (!ret)
			ret = dcbm_time_cpu(batch, cpu_ns);
		cond_resched();
		if (ktime_get_ns() > until)
			break;
	}
	return ret;
}

static int dcbm_sample(struct dcbm_samples *s)
{
	struct migrate_copy_batch *small, *many, *large;
	int ret = -ENOMEM;
	u64 unused_ns;

	small = dcbm_batch_new(1, 0);
	many = dcbm_batch_new(DCBM_LEARN_MANY, 0);
	large = dcbm_batch_new(1, DCBM_LEARN_LARGE_ORDER);
	if (large && !large->nr_pairs) {
		/* Memory is fragmented.  A sixteenth will do. */
		dcbm_batch_free(large);
		large = dcbm_batch_new(1, DCBM_LEARN_LARGE_ORDER - 4);
	}
	if (!small || !many || !large || !small->nr_pairs ||
	    many->nr_pairs < 2 || !large->nr_pairs)
		goto free;

	s->nr_chans = dcbm_nr_usable();
	s->small_bytes = small->bytes;
	s->nr_many = many->nr_pairs;
	s->large_bytes = large->bytes;
	ret = s->nr_chans ? 0 : -ENODEV;
	if (!ret)
		ret = dcbm_measure(small, s->nr_chans, &s->small_ns,
				   &unused_ns);
	if (!ret)
		ret = dcbm_measure(many, s->nr_chans, &s->many_ns, &unused_ns);
	if (!ret)
		ret = dcbm_measure(large, s->nr_chans, &s->large_ns,
				   &s->large_cpu_ns);
free:
	dcbm_batch_free(large);
	dcbm_batch_free(many);
	dcbm_batch_free(small);
	return ret;
}

/* All that is not fixed then is what the CPU's share will be. */
static void dcbm_learn_cpu(void)
{
	struct migrate_copy_batch *batch;
	u64 ns = U64_MAX;
	int i, ret = 0;

	batch = dcbm_batch_new(1, DCBM_LEARN_LARGE_ORDER - 4);
	if (!batch)
		return;
	for (i = 0; batch->nr_pairs && !ret && i < DCBM_LEARN_ROUNDS; i++)
		ret = dcbm_time_cpu(batch, &ns);
	if (batch->nr_pairs && !ret)
		dcbm_note_cpu_speed(div64_u64(ns * SZ_1M, batch->bytes));
	dcbm_batch_free(batch);
}

/* Keeps what it knew when nothing can be measured. */
void dcbm_learn(void)
{
	struct dcbm_samples s = {};
	struct dcbm_model model;
	int ret;

	lockdep_assert_held(&dcbm_admin_lock);

	WRITE_ONCE(dcbm_learned_at, jiffies);
	if (READ_ONCE(dcbm_fixed_bytes)) {
		dcbm_learn_cpu();
		return;
	}
	ret = dcbm_sample(&s);
	if (ret) {
		pr_debug("nothing learned: %d\n", ret);
		return;
	}
	dcbm_fit(&model, &s);
	dcbm_model_set(&model, s.nr_chans);
	dcbm_note_cpu_speed(model.cpu_ns_per_mib);
	pr_debug("fixed %llu ns, folio %llu ns, channel %llu ns/MiB, CPU %llu ns/MiB\n",
		 model.fixed_ns, model.folio_ns, model.chan_ns_per_mib,
		 model.cpu_ns_per_mib);
}

static void dcbm_learn_work(struct work_struct *work)
{
	/* Whoever has the lock may be waiting for us. */
	if (!mutex_trylock(&dcbm_admin_lock))
		return;
	if (dcbm_is_on())
		dcbm_learn();
	mutex_unlock(&dcbm_admin_lock);
}

/* From the path of a batch: only looks at the clock. */
void dcbm_learn_sometimes(void)
{
	unsigned int s = READ_ONCE(relearn_s);

	if (s && !READ_ONCE(dcbm_fixed_bytes) &&
	    time_after(jiffies, READ_ONCE(dcbm_learned_at) + s * HZ)) {
		WRITE_ONCE(dcbm_learned_at, jiffies);
		queue_work(system_unbound_wq, &dcbm_learn_again);
	}
}

void dcbm_unlearn(void)
{
	struct dcbm_model nothing = {};

	dcbm_model_set(&nothing, 0);
}

/* No batch comes any more. */
void dcbm_learn_exit(void)
{
	cancel_work_sync(&dcbm_learn_again);
}

size_t dcbm_fixed_threshold(void)
{
	return READ_ONCE(dcbm_fixed_bytes);
}

void dcbm_fix_threshold(size_t bytes)
{
	lockdep_assert_held(&dcbm_admin_lock);

	WRITE_ONCE(dcbm_fixed_bytes, bytes);
	if (!bytes && dcbm_is_on())
		dcbm_learn();
}

void dcbm_learned(struct dcbm_thresholds *out)
{
	struct dcbm_model model;
	unsigned int nr_chans = dcbm_model_get(&model);

	dcbm_compute_thresholds(&model, max(nr_chans, 1U), out);
}
