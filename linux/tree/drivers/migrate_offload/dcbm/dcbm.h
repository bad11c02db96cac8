/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dcbm: data and functions that its files share.
 */
#ifndef _DCBM_H
#define _DCBM_H

#include <linux/atomic.h>
#include <linux/dmaengine.h>
#include <linux/kobject.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/migrate_copy_offload.h>
#include <linux/mutex.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "math.h"

#define DCBM_MAX_CHANNELS	64

/*
 * Descriptors that a channel may have in flight: enough for the two windows of
 * small folios that compaction moves at once.  With fewer, the task wakes up to
 * submit the rest, which takes longer than many transfers.
 */
#define DCBM_SLOTS		256

/* The core puts at most this many pairs into a batch. */
#define DCBM_MAX_PAIRS		512

struct dcbm_job;
struct dcbm_stream;

/*
 * A slot keeps the data of one descriptor until its callback comes.  The slot
 * belongs to the channel, because the callback may come after the end of the
 * job.
 */
enum dcbm_slot_state {
	DCBM_SLOT_FREE,
	DCBM_SLOT_FLYING,	/* submitted; the callback reports to the job */
	DCBM_SLOT_DONE,		/* called back; on chan->done */
	DCBM_SLOT_HELD,		/* given up, or its interrupt was lost */
	DCBM_SLOT_LATE,		/* was held, called back; on chan->late */
	DCBM_SLOT_KEPT,		/* called back, but not over; on chan->kept */
};

/* slot->error: the driver says that it has aborted the transfer. */
#define DCBM_ABORTED	(-ECANCELED)

struct dcbm_slot {
	struct list_head node;
	struct dcbm_chan *chan;
	struct dcbm_job *job;		/* NULL if its interrupt was lost */
	dma_addr_t src;
	dma_addr_t dst;
	struct migrate_copy_pos start;	/* of the piece in the job */
	struct migrate_copy_pos end;	/* in the last folio of the piece */
	size_t bytes;
	u64 tail;			/* the source's last word */
	dma_cookie_t cookie;
	enum dcbm_slot_state state;	/* chan->lock while a callback is due */
	int error;
};

enum dcbm_chan_state {
	DCBM_IDLE,
	DCBM_BUSY,		/* on the list of one stream */
	DCBM_RETIRED,		/* failed; an administrator may reset it */
};

struct dcbm_chan {
	struct kobject kobj;
	struct list_head node;		/* dcbm_chans */
	struct dma_chan *dma;
	struct device *dev;		/* for mappings; referenced */
	struct device *provider;	/* bound to the driver; referenced */
	int nid;
	size_t first_max_piece;		/* by what the driver says */
	size_t max_piece;		/* less after the driver refused */
	bool ordered;			/* completes in the order of cookies */
	bool stops;			/* what is terminated has stopped */
	bool believed;			/* its driver reports each error */
	bool batches;			/* one interrupt ends all older pieces */
	unsigned int max_transfers;	/* in flight or in doubt */

	/* dcbm_lock protects these. */
	enum dcbm_chan_state state;
	struct dcbm_stream *stream;	/* that has it, or NULL */
	bool leaving;			/* no stream may get it */
	bool retiring;			/* is retired, or will be */

	/* Only the task whose stream has the channel uses these. */
	struct list_head lease;
	struct list_head spare;		/* free slots, without any lock */
	unsigned int nr_flying;
	unsigned int nr_most;		/* the most that were in flight */
	size_t flying_bytes;
	bool quiet;			/* the newest piece does not interrupt */
	bool full;			/* until a descriptor comes back */
	bool dead;			/* takes nothing more of this batch */
	bool parting;			/* gets no pieces, and is given back */
	bool unissued;
	u64 progress_ns;		/* last news, or start of work */
	unsigned int failures;		/* in a row */
	unsigned int hungry_at;		/* wants pieces at this ->nr_done */
	unsigned long descriptors;	/* submitted; only grows */
	unsigned long interrupts;	/* asked for; only grows */

	/* The lock protects these.  The callback takes it in any context. */
	spinlock_t lock;
	struct list_head free;		/* slots to move to ->spare */
	struct list_head done;
	struct list_head late;
	struct list_head kept;
	unsigned int nr_done;		/* on ->done */
	unsigned int nr_away;		/* slots neither free nor flying */
	unsigned int nr_held;		/* of these, DCBM_SLOT_HELD */
	bool pinned;			/* has a reference to the module */
	struct dcbm_slot slots[DCBM_SLOTS];

	struct work_struct late_work;

	atomic64_t bytes;
	atomic64_t errors;
	atomic64_t timeouts;
};

/*
 * One folio of a job.  While a device holds the folio, this record exists
 * longer than the batch.  @bytes is a copy of the size, because the core may
 * free a source after its report.  The source may then become part of a larger
 * folio before the job ends.
 */
struct dcbm_pair {
	struct folio *src;
	struct folio *dst;
	size_t bytes;
	atomic_t nr_holds;	/* if @held: pieces in doubt, and 1 for others */
	atomic_t bytes_left;	/* neither copied nor given up */
	unsigned int nr_flying;	/* descriptors in flight, not given up */
	int error;
	bool held;
};

/*
 * The record of a batch.  The migrating task drops its reference after the last
 * report, and each held slot has a reference of its own.
 */
struct dcbm_job {
	struct kref ref;
	struct list_head node;		/* dcbm_stream.jobs */
	struct dcbm_stream *stream;
	struct migrate_copy_batch *batch;
	unsigned int nr_pairs;
	unsigned int nr_reported;
	unsigned int nr_failed;		/* of the reported pairs */
	size_t piece;			/* of a large folio, at most */
	size_t run;			/* of small folios, at once */
	struct migrate_copy_pos next;	/* the next piece to submit */
	struct migrate_copy_pos limit;	/* end of the channels' part */
	struct migrate_copy_pos end;	/* end of the CPU's share */
	size_t share;			/* of the CPU, from limit to end */
	u64 start_ns;			/* when it became the first job */
	struct dcbm_pair pairs[DCBM_MAX_PAIRS];
};

/*
 * A queue of jobs, and the channels that copy them.  Only the migrating task
 * uses a stream, except for the fields that callbacks use.
 */
struct dcbm_stream {
	struct list_head chans;
	unsigned int nr_chans;
	struct list_head jobs;		/* with pairs that are not reported */
	unsigned int nr_open;		/* pairs not reported, of all jobs */
	unsigned int nr_flying;
	int nid;
	size_t open_bytes;		/* of all jobs */
	size_t bytes;			/* decides how many channels it gets */
	bool sparing;			/* leaves the CPU to other tasks */
	u64 nr_reported;
	bool waits;			/* dcbm_stream_reap() waits */
	u64 waits_since_ns;
	bool parts;			/* has busy channels to give back */
	unsigned long check_at;		/* next dcbm_check(), in jiffies */

	/* See expire.c.  dcbm_lock protects the first two. */
	bool inside;			/* a context works with the stream */
	unsigned long left_at;		/* in jiffies */
	bool helped;			/* the context is the worker */
	bool unreported;		/* the worker has ended pieces */

	/* Callbacks count events, and wake the task when there are @wake_at. */
	wait_queue_head_t wq;
	atomic_t nr_events;
	int wake_at;
	bool hungry;			/* has more to submit */
};

/* At least this many streams and jobs can exist when memory is short. */
#define DCBM_POOL_MIN 4

/*
 * A channel that is about to run dry counts as this many events.  A job has
 * fewer pairs, so the task wakes up even if it waits for a whole job.
 */
#define DCBM_URGENT	0x10000

/* main.c */
extern const struct migrate_engine_ops dcbm_ops;

/* job.c */
extern atomic64_t dcbm_folios_migrated;
extern atomic64_t dcbm_folios_failed;
int dcbm_job_init(void);
void dcbm_job_exit(void);
struct dcbm_job *dcbm_job_new(struct dcbm_stream *stream,
			      struct migrate_copy_batch *batch);
void dcbm_job_put(struct dcbm_job *job);
void dcbm_job_cut(struct dcbm_job *job);
void dcbm_account(struct dcbm_job *job, struct dcbm_pair *pair, size_t bytes);
void dcbm_pair_fail(struct dcbm_job *job, unsigned int nr, int error);
void dcbm_pair_check(struct dcbm_job *job, unsigned int nr);

/* stream.c */
extern atomic64_t dcbm_batches_busy;
int dcbm_stream_init(void);
void dcbm_stream_exit(void);
int dcbm_stream_open(struct migrate_copy_stream *s);
int dcbm_stream_submit(struct migrate_copy_stream *s,
		       struct migrate_copy_batch *batch);
void dcbm_stream_reap(struct migrate_copy_stream *s, u64 wait_ns);
void dcbm_stream_close(struct migrate_copy_stream *s);

/* sysfs.c */
int dcbm_sysfs_init(void);
void dcbm_sysfs_exit(void);

/* chan_sysfs.c */
extern const struct kobj_type dcbm_chan_ktype;
extern struct kobject *dcbm_chans_kobj;

/* chan.c: acquiring and releasing channels */
extern struct mutex dcbm_admin_lock;
extern unsigned int dcbm_wanted_chans;

bool dcbm_is_on(void);
int dcbm_start(void);
void dcbm_stop(void);
int dcbm_resize(unsigned int nr);
void dcbm_stuck_fn(struct work_struct *work);
void dcbm_wait_for_stuck(void);
void dcbm_device_leaves(struct device *dev);
bool dcbm_is_registered(const struct dma_chan *dma);

/* watch.c: notices when channels go away */
int dcbm_watch(const dma_cap_mask_t *mask);
void dcbm_unwatch(void);

/* lease.c: which stream has which channels */
extern spinlock_t dcbm_lock;
extern struct list_head dcbm_chans;
extern struct work_struct dcbm_stuck_work;
extern struct work_struct dcbm_expire_work;
extern unsigned int dcbm_lease_ms;
extern unsigned int dcbm_max_failures;
extern wait_queue_head_t dcbm_idle_wq;
void dcbm_open(bool open);
bool dcbm_wants(int dst_nid, size_t bytes);
unsigned int dcbm_count_usable(void);
struct dcbm_stream *dcbm_expired(void);
void dcbm_chan_give_back(struct dcbm_stream *stream, struct dcbm_chan *chan);
int dcbm_lease(struct dcbm_stream *stream);
void dcbm_unlease(struct dcbm_stream *stream);
void dcbm_balance(struct dcbm_stream *stream);
void dcbm_chan_heard_of(struct dcbm_chan *chan);
void dcbm_chan_retire(struct dcbm_chan *chan, const char *why);
void dcbm_chan_judge(struct dcbm_chan *chan);
int dcbm_chan_reset(struct dcbm_chan *chan);

/* expire.c: leases that expire */
void dcbm_enter(struct dcbm_stream *stream);
void dcbm_leave(struct dcbm_stream *stream);
void dcbm_expire_fn(struct work_struct *work);

/* copy.c */
void dcbm_feed(struct dcbm_stream *stream);
bool dcbm_is_hungry(const struct dcbm_stream *stream);

/* share.c: the share that the CPU copies */
extern atomic64_t dcbm_cpu_share_bytes;
extern bool dcbm_share_on;
size_t dcbm_share_set(struct dcbm_job *job, unsigned int nr_chans);
bool dcbm_share_take(struct dcbm_stream *stream);
bool dcbm_share_left(const struct dcbm_stream *stream);
bool dcbm_share_copy(struct dcbm_stream *stream, u64 until);

/* reap.c */
extern unsigned int dcbm_timeout_ms;
extern struct workqueue_struct *dcbm_wq;

static inline u64 dcbm_timeout_ns(void)
{
	return (u64)READ_ONCE(dcbm_timeout_ms) * NSEC_PER_MSEC;
}

void dcbm_callback(void *param, const struct dmaengine_result *result);
void dcbm_collect(struct dcbm_stream *stream);
void dcbm_check(struct dcbm_stream *stream);

/* doubt.c: the end of pieces, and transfers that may not be over */
extern atomic64_t dcbm_folios_held;
extern atomic_t dcbm_folios_held_now;
void dcbm_slot_unmap(struct dcbm_slot *slot);
void dcbm_slot_hold(const struct dcbm_slot *slot);
void dcbm_slot_unhold(const struct dcbm_slot *slot);
void dcbm_pair_put(struct dcbm_pair *pair);
void dcbm_chan_pin(struct dcbm_chan *chan);
void dcbm_slot_keep(struct dcbm_slot *slot);
void dcbm_kept_end(struct dcbm_chan *chan, dma_cookie_t cookie);
void dcbm_late_work(struct work_struct *work);
void dcbm_chan_forget(struct dcbm_chan *chan);
int dcbm_chan_settle(struct dcbm_chan *chan, bool may_keep);
unsigned int dcbm_chan_leak(struct dcbm_chan *chan);

/* trust.c: which drivers are used, and what is believed of them */
bool dcbm_may_take(const struct device *provider);
bool dcbm_can_terminate(const struct dcbm_chan *chan);
void dcbm_chan_trust(struct dcbm_chan *chan);
int dcbm_tail_mark(struct dcbm_slot *slot);
bool dcbm_tail_written(const struct dcbm_slot *slot);
bool dcbm_slot_is_over(const struct dcbm_slot *slot);

#endif /* _DCBM_H */
