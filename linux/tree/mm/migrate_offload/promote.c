// SPDX-License-Identifier: GPL-2.0-only
/*
 * Promote folios in batches.
 *
 * With memory tiers, NUMA balancing finds hot folios of a slow node in page
 * faults.  In stock Linux the faulting task migrates each folio and waits.
 * With an engine for this reason, the task isolates the folio and puts it on a
 * queue of the target node.  The task continues to use the folio where it is.
 * A worker migrates the queue as one list when it has enough for a batch, or
 * after a short time.
 *
 * Isolated folios are hidden from other migration and from reclaim.  So a queue
 * is short, in pages and in time, and lru_add_drain_all() empties it.
 *
 * The worker acts for the task, and must respect the limits of the task.  The
 * target node is in the task's cpuset, and mpol_misplaced() asked the memory
 * policy before the folio was isolated.  Tasks with limited CPU time or CPUs do
 * not queue folios, as the worker would ignore these limits.  Like the task,
 * the worker allocates only above the high watermark, and does not reclaim.
 *
 * Locks: a queue's lock nests inside page table locks, with no lock inside.
 * Only tasks take the lock of a queue.
 */

#define pr_fmt(fmt) "migrate_offload: " fmt

#include <linux/cpuset.h>
#include <linux/gfp.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/memcontrol.h>
#include <linux/memory-tiers.h>
#include <linux/migrate.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/nodemask.h>
#include <linux/sched/bandwidth.h>
#include <linux/sched/sysctl.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/swap.h>
#include <linux/sysfs.h>
#include <linux/vmstat.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "../internal.h"
#include "hooks.h"
#include "internal.h"
#include "promote.h"

/*
 * A batch of this size is enough for an engine.  The faulting task migrates a
 * folio of this size itself.
 */
#define MIGRATE_PROMOTE_BATCH_PAGES (SZ_2M >> PAGE_SHIFT)

/* Limit for one node: a batch gathers while the worker migrates another. */
#define MIGRATE_PROMOTE_MAX_PAGES (2 * MIGRATE_PROMOTE_BATCH_PAGES)

/* The worker starts after this time, even if there is no full batch. */
#define MIGRATE_PROMOTE_WAIT_MS 5

/* The longest wait of a flush for the worker, which may wait for a device. */
#define MIGRATE_PROMOTE_FLUSH_MS 2000

/* A destination that the worker allocated, and the cgroup of its source. */
struct migrate_promotion {
	struct folio *dst;		/* may be freed once it is mapped */
	struct mem_cgroup *memcg;
	unsigned int nr_pages;
};

struct migrate_promote_queue {
	int nid;
	struct delayed_work work;
	wait_queue_head_t ended;
	spinlock_t lock;		/* protects all up to met_folios */
	struct list_head waiting;	/* isolated, each with a reference */
	unsigned int nr_waiting;	/* pages on @waiting */
	unsigned int nr_pages;		/* @waiting plus the worker's pages */
	unsigned int nr_folios;		/* entries of @folios */
	unsigned int nr_moving;		/* the worker's, first in @folios */
	struct folio *folios[MIGRATE_PROMOTE_MAX_PAGES];
	u64 nr_begun;			/* batches that the worker began */
	u64 nr_ended;			/* batches that are done */
	u64 since_ns;			/* start of the first folio's wait */
	u64 max_waited_ns;
	u64 queued_folios;
	u64 moved_folios;
	u64 returned_folios;
	u64 met_folios;

	/* Only the worker uses these. */
	int short_order;		/* order without memory; -1: none */
	unsigned int nr_promotions;
	struct migrate_promotion promotions[MIGRATE_PROMOTE_MAX_PAGES];
};

/* Allocated when an engine becomes active, and never freed. */
static struct migrate_promote_queue *promote_queues[MAX_NUMNODES];
static struct workqueue_struct *promote_wq;

static struct migrate_promote_queue *migrate_promote_queue(int nid)
{
	/* Pairs with the release in migrate_promote_prepare(). */
	return smp_load_acquire(&promote_queues[nid]);
}

static void migrate_promote_kick(struct migrate_promote_queue *q)
{
	mod_delayed_work(promote_wq, &q->work, 0);
}

/*
 * May the worker migrate the folio for this task?  If the cpuset changes later,
 * lru_cache_disable() flushes the queue before do_migrate_pages() moves memory
 * to the new nodes.
 */
static bool migrate_promote_may_defer(const struct folio *folio, int nid)
{
	if (!(sysctl_numa_balancing_mode & NUMA_BALANCING_MEMORY_TIERING) ||
	    node_is_toptier(folio_nid(folio)) || !node_is_toptier(nid))
		return false;
	if (folio_nr_pages(folio) >= MIGRATE_PROMOTE_BATCH_PAGES)
		return false;
	return node_isset(nid, cpuset_current_mems_allowed) &&
		!cfs_bandwidth_limits(current);
}

/*
 * Queue a folio.  Returns false if the queue is full, or after
 * lru_cache_disable().  lru_cache_disable() sets a flag, waits for RCU sections
 * like this one, and then flushes.  So this section sees the flag, or the flush
 * finds the folio.
 */
static bool migrate_promote_add(struct migrate_promote_queue *q,
				struct folio *folio)
{
	unsigned int nr = folio_nr_pages(folio);
	bool room, first = false, full = false;

	rcu_read_lock();
	spin_lock(&q->lock);
	room = !lru_cache_disabled() &&
		q->nr_pages + nr <= MIGRATE_PROMOTE_MAX_PAGES;
	if (room) {
		first = !q->nr_waiting;
		full = q->nr_waiting < MIGRATE_PROMOTE_BATCH_PAGES &&
			q->nr_waiting + nr >= MIGRATE_PROMOTE_BATCH_PAGES;
		if (first)
			q->since_ns = ktime_get_ns();
		list_add_tail(&folio->lru, &q->waiting);
		q->folios[q->nr_folios++] = folio;
		q->nr_waiting += nr;
		q->nr_pages += nr;
		q->queued_folios++;
	}
	spin_unlock(&q->lock);
	rcu_read_unlock();

	if (full)
		migrate_promote_kick(q);
	else if (first)
		/*
		 * queue_delayed_work() keeps an earlier kick of another task.
		 */
		queue_delayed_work(promote_wq, &q->work,
				   msecs_to_jiffies(MIGRATE_PROMOTE_WAIT_MS));
	return room;
}

/*
 * Is a batch worth while?  Not if the engine would decline it: a worker would
 * then use a CPU for work that the task can do.  While a batch waits or moves,
 * the engine may be busy with that, and new folios form the next batch.
 */
static bool migrate_promote_pays(const struct migrate_promote_queue *q,
				 const struct migrate_engine *engine)
{
	return READ_ONCE(q->nr_pages) ||
		migrate_engine_wants(engine, q->nid,
				     (size_t)MIGRATE_PROMOTE_BATCH_PAGES << PAGE_SHIFT);
}

/*
 * See migrate_promote_defer().  Queue folios only inside the SRCU section, so
 * that a flush after synchronize_srcu() finds all folios of a deactivated
 * engine.
 */
bool __migrate_promote_defer(struct folio *folio, int nid)
{
	struct migrate_promote_queue *q = migrate_promote_queue(nid);
	struct migrate_engine *engine;
	bool deferred = false;
	int idx;

	if (!q || !migrate_promote_may_defer(folio, nid))
		return false;
	engine = migrate_engine_enter(MR_NUMA_MISPLACED, &idx);
	if (engine && migrate_promote_pays(q, engine) &&
	    migrate_on_any_cpu())
		deferred = migrate_promote_add(q, folio);
	migrate_engine_exit(idx);
	return deferred;
}

/* See migrate_promote_waits(). */
bool __migrate_promote_waits(const struct folio *folio, int *nid)
{
	bool found = false;
	unsigned int i;
	int to;

	for_each_node(to) {
		struct migrate_promote_queue *q = migrate_promote_queue(to);

		if (!q || !READ_ONCE(q->nr_pages))
			continue;
		spin_lock(&q->lock);
		for (i = 0; i < q->nr_folios && !found; i++)
			found = q->folios[i] == folio;
		q->met_folios += found;
		spin_unlock(&q->lock);
		if (found) {
			*nid = to;
			break;
		}
	}
	return found;
}

/*
 * Allocate a destination for migrate_pages(), and note it.  The node had room
 * when the task isolated the folio, but other folios may have taken the room
 * since.
 */
static struct folio *migrate_promote_alloc(struct folio *src,
					   unsigned long private)
{
	struct migrate_promote_queue *q = (void *)private;
	unsigned int nr = folio_nr_pages(src);
	struct folio *dst = NULL;

	if (!WARN_ON_ONCE(q->nr_promotions == MIGRATE_PROMOTE_MAX_PAGES) &&
	    migrate_balanced_pgdat(NODE_DATA(q->nid), nr))
		dst = alloc_misplaced_dst_folio(src, q->nid);
	if (!dst) {
		q->short_order = folio_order(src);
		return NULL;
	}
	q->promotions[q->nr_promotions++] = (struct migrate_promotion){
		.dst = dst,
		.memcg = get_mem_cgroup_from_folio(src),
		.nr_pages = nr,
	};
	return dst;
}

/*
 * Free a destination that was not needed.  Search backwards: an older entry may
 * be stale, as a promoted folio may have been freed and allocated again.
 */
static void migrate_promote_free(struct folio *dst, unsigned long private)
{
	struct migrate_promote_queue *q = (void *)private;
	unsigned int i = q->nr_promotions;

	while (i--) {
		if (q->promotions[i].dst != dst)
			continue;
		mem_cgroup_put(q->promotions[i].memcg);
		q->nr_promotions--;
		memmove(&q->promotions[i], &q->promotions[i + 1],
			(q->nr_promotions - i) * sizeof(q->promotions[i]));
		break;
	}
	folio_put(dst);
}

/*
 * Count promoted folios: destinations that were not given back.  The count of
 * migrate_pages() includes folios that were freed meanwhile.
 */
static void migrate_promote_count(struct migrate_promote_queue *q)
{
	unsigned int i, next, nr_pages, nr_all = 0;

	for (i = 0; i < q->nr_promotions; i = next) {
		struct mem_cgroup *memcg = q->promotions[i].memcg;

		nr_pages = 0;
		/* Count neighbours of the same cgroup together. */
		for (next = i; next < q->nr_promotions &&
		     q->promotions[next].memcg == memcg; next++)
			nr_pages += q->promotions[next].nr_pages;
		count_memcg_events(memcg, NUMA_PAGE_MIGRATE, nr_pages);
		mod_lruvec_state(mem_cgroup_lruvec(memcg, NODE_DATA(q->nid)),
				 PGPROMOTE_SUCCESS, nr_pages);
		nr_all += nr_pages;
		for (; i < next; i++)
			mem_cgroup_put(memcg);
	}
	count_vm_numa_events(NUMA_PAGE_MIGRATE, nr_all);
}

/* Put folios of this order and larger ones back on LRU lists. */
static unsigned int migrate_promote_return(struct list_head *folios, int order)
{
	struct folio *folio, *next;
	unsigned int nr = 0;
	LIST_HEAD(back);

	list_for_each_entry_safe(folio, next, folios, lru) {
		if (folio_order(folio) < order)
			continue;
		list_move_tail(&folio->lru, &back);
		nr++;
	}
	putback_movable_pages(&back);
	return nr;
}

/*
 * Migrate a list, and put back the folios that did not move.  migrate_pages()
 * stops at the first folio that finds no memory.  In stock Linux each fault
 * promotes its own folio, so a large folio must not hold up smaller ones.  Each
 * round leaves out the order that found no memory, and larger ones.  Returns
 * how many folios went back.
 */
static unsigned int migrate_promote_list(struct migrate_promote_queue *q,
					 struct list_head *folios)
{
	unsigned int nr_returned = 0;

	q->nr_promotions = 0;
	do {
		q->short_order = -1;
		migrate_pages(folios, migrate_promote_alloc,
			      migrate_promote_free, (unsigned long)q,
			      MIGRATE_ASYNC, MR_NUMA_MISPLACED, NULL);
		nr_returned += migrate_promote_return(folios,
						      max(q->short_order, 0));
	} while (!list_empty(folios));
	return nr_returned;
}

/* Take all waiting folios.  Returns their number of pages. */
static unsigned int migrate_promote_take(struct migrate_promote_queue *q,
					 bool move, struct list_head *folios)
{
	unsigned int nr_pages = 0;

	spin_lock(&q->lock);
	if (q->nr_waiting) {
		list_splice_init(&q->waiting, folios);
		swap(nr_pages, q->nr_waiting);
		if (move) {
			q->nr_moving = q->nr_folios;
			q->nr_begun++;
		} else {
			q->nr_folios = q->nr_moving;
		}
		q->max_waited_ns = max(q->max_waited_ns,
				       ktime_get_ns() - q->since_ns);
	}
	spin_unlock(&q->lock);
	return nr_pages;
}

static void migrate_promote_done(struct migrate_promote_queue *q, bool move,
				 unsigned int nr_pages, unsigned int nr_moved,
				 unsigned int nr_returned)
{
	spin_lock(&q->lock);
	if (move) {
		q->nr_folios -= q->nr_moving;
		memmove(q->folios, q->folios + q->nr_moving,
			q->nr_folios * sizeof(*q->folios));
		q->nr_moving = 0;
		q->nr_ended++;
	}
	q->nr_pages -= nr_pages;
	q->moved_folios += nr_moved;
	q->returned_folios += nr_returned;
	spin_unlock(&q->lock);
	wake_up_all(&q->ended);
}

static void migrate_promote_work(struct work_struct *work)
{
	struct migrate_promote_queue *q =
		container_of(to_delayed_work(work),
			     struct migrate_promote_queue, work);
	unsigned int nr_pages, nr_returned;
	LIST_HEAD(folios);

	nr_pages = migrate_promote_take(q, true, &folios);
	/* The queue is empty: an earlier run took a full or flushed batch. */
	if (!nr_pages)
		return;
	nr_returned = migrate_promote_list(q, &folios);
	migrate_promote_count(q);
	migrate_promote_done(q, true, nr_pages, q->nr_promotions, nr_returned);
}

/* Put waiting folios back on LRU lists. */
static void migrate_promote_give_up(struct migrate_promote_queue *q)
{
	unsigned int nr_pages, nr_returned;
	LIST_HEAD(folios);

	nr_pages = migrate_promote_take(q, false, &folios);
	if (!nr_pages)
		return;
	nr_returned = migrate_promote_return(&folios, 0);
	migrate_promote_done(q, false, nr_pages, 0, nr_returned);
}

static bool migrate_promote_ended(struct migrate_promote_queue *q, u64 nr)
{
	bool ended;

	spin_lock(&q->lock);
	ended = !q->nr_pages || q->nr_ended >= nr;
	spin_unlock(&q->lock);
	return ended;
}

/*
 * Wait until the worker has migrated the folios that are queued now.  At
 * @until, put the folios back that still wait.
 */
static void migrate_promote_settle(struct migrate_promote_queue *q,
				   unsigned long until)
{
	long left = max((long)(until - jiffies), 0L);
	u64 nr;

	spin_lock(&q->lock);
	nr = q->nr_begun + !!q->nr_waiting;
	spin_unlock(&q->lock);
	migrate_promote_kick(q);
	if (!wait_event_timeout(q->ended, migrate_promote_ended(q, nr), left))
		migrate_promote_give_up(q);
}

/*
 * The caller must be able to wait for migration.  Migration waits for locks of
 * the reverse mapping, but not for folio locks or memory.  Callers that may
 * allocate with GFP_KERNEL can wait, because reclaim migrates, too, to demote.
 *
 * Migration may also wait for a device, and a bad driver may let its device
 * wait for the caller.  So there is a timeout.  After the timeout no folio
 * waits, and the worker moves the rest as if tasks promoted them.
 */
void __migrate_promote_flush(void)
{
	unsigned long until = jiffies +
		msecs_to_jiffies(MIGRATE_PROMOTE_FLUSH_MS);
	int nid;

	for_each_node(nid) {
		struct migrate_promote_queue *q = migrate_promote_queue(nid);

		if (q && READ_ONCE(q->nr_pages))
			migrate_promote_settle(q, until);
	}
}

static struct migrate_promote_queue *migrate_promote_queue_new(int nid)
{
	struct migrate_promote_queue *q = kvzalloc_node(sizeof(*q), GFP_KERNEL,
							nid);

	if (!q)
		return NULL;
	q->nid = nid;
	INIT_DELAYED_WORK(&q->work, migrate_promote_work);
	init_waitqueue_head(&q->ended);
	spin_lock_init(&q->lock);
	INIT_LIST_HEAD(&q->waiting);
	return q;
}

/*
 * Allocate a queue for each node that memory may be promoted to: NUMA balancing
 * promotes to the node of the faulting CPU.  The caller holds
 * migrate_engines_lock.  Faults promote to a node without a queue as without an
 * engine.
 */
void migrate_promote_prepare(void)
{
	int nid;

	if (!promote_wq)
		promote_wq = alloc_workqueue("migrate_promote",
					     WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!promote_wq)
		return;
	for_each_node_state(nid, N_CPU) {
		if (!node_state(nid, N_MEMORY) || promote_queues[nid])
			continue;
		/* Pairs with the acquire in migrate_promote_queue(). */
		smp_store_release(&promote_queues[nid],
				  migrate_promote_queue_new(nid));
	}
}

static ssize_t migrate_promote_show(char *buf, size_t member, u64 unit, bool sum)
{
	u64 all = 0;
	int nid;

	for_each_node(nid) {
		struct migrate_promote_queue *q = migrate_promote_queue(nid);
		u64 one;

		if (!q)
			continue;
		spin_lock(&q->lock);
		one = *(u64 *)((void *)q + member);
		spin_unlock(&q->lock);
		all = sum ? all + one : max(all, one);
	}
	return sysfs_emit(buf, "%llu\n", div64_u64(all, unit));
}

#define PROMOTE_ATTR(_name, _member, _unit, _sum)			\
static ssize_t _name##_show(struct kobject *kobj,			\
			    struct kobj_attribute *attr, char *buf)	\
{									\
	return migrate_promote_show(buf,				\
		offsetof(struct migrate_promote_queue, _member),	\
		_unit, _sum);						\
}									\
static struct kobj_attribute _name##_attr = __ATTR_RO(_name)

PROMOTE_ATTR(queued_folios, queued_folios, 1, true);
PROMOTE_ATTR(moved_folios, moved_folios, 1, true);
PROMOTE_ATTR(returned_folios, returned_folios, 1, true);
PROMOTE_ATTR(met_folios, met_folios, 1, true);
PROMOTE_ATTR(max_waited_us, max_waited_ns, NSEC_PER_USEC, false);

static struct attribute *migrate_promote_attrs[] = {
	&queued_folios_attr.attr,
	&moved_folios_attr.attr,
	&returned_folios_attr.attr,
	&met_folios_attr.attr,
	&max_waited_us_attr.attr,
	NULL
};

const struct attribute_group migrate_promote_group = {
	.name = "promotion",
	.attrs = migrate_promote_attrs,
};
