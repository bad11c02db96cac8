/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dcbm: copy migrating folios with DMAengine channels.  What its files share.
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
 * Descriptors that one channel may have in flight.  As many as the two windows of
 * small folios have that compaction moves at once: to be woken in the middle, in
 * order to submit the rest, takes longer than many transfers.
 */
#define DCBM_SLOTS		256

/* Folios of one batch; the core hands over no more. */
#define DCBM_MAX_PAIRS		512

struct dcbm_job;
struct dcbm_stream;

/*
 * A slot is what one descriptor needs until its callback has come.  It belongs
 * to the channel and not to the job: a callback may be later than anything.
 */
enum dcbm_slot_state {
	DCBM_SLOT_FREE,
	DCBM_SLOT_FLYING,	/* submitted; the callback reports to the job */
	DCBM_SLOT_DONE,		/* called back; on chan->done */
	DCBM_SLOT_LOST,		/* complete by tx_status, callback not seen */
	DCBM_SLOT_HELD,		/* given up, the device may still be at it */
	DCBM_SLOT_LATE,		/* was held, called back; on chan->late */
};

struct dcbm_slot {
	struct list_head node;
	struct dcbm_chan *chan;
	struct dcbm_job *job;
	dma_addr_t src;
	dma_addr_t dst;
	size_t bytes;
	unsigned int pair;
	dma_cookie_t cookie;
	enum dcbm_slot_state state;	/* while a callback may come: chan->lock */
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
	struct device *provider;	/* whose driver it is; referenced */
	int nid;
	size_t max_piece;
	bool ordered;			/* a cookie says what is complete */
	bool stops;			/* terminating stops the device */

	/* Under dcbm_lock. */
	enum dcbm_chan_state state;
	bool leaving;			/* not to be leased any more */
	bool retiring;			/* will be retired, or is */

	/* Only for the task of the stream whose list it is on. */
	struct list_head lease;
	struct list_head spare;		/* free slots, without any lock */
	unsigned int nr_flying;
	size_t flying_bytes;
	bool full;			/* until a descriptor comes back */
	bool dead;			/* for this batch */
	bool parting;			/* is fed no more, and then given back */
	bool unissued;
	u64 progress_ns;		/* the last sign of life */
	unsigned int failures;		/* in a row */
	unsigned int hungry_at;		/* with so many on ->done */

	/* Under lock, which the callback takes, in whatever context it runs. */
	spinlock_t lock;
	struct list_head free;		/* slots that others have freed */
	struct list_head done;
	struct list_head late;
	unsigned int nr_done;		/* on ->done */
	u64 heard_ns;			/* when the last callback came */
	unsigned int nr_away;		/* slots neither free nor flying */
	dma_cookie_t last_cookie;	/* the newest that was called back */
	struct dcbm_slot slots[DCBM_SLOTS];

	struct work_struct late_work;

	atomic64_t bytes;
	atomic64_t errors;
	atomic64_t timeouts;
};

/*
 * One folio of a job.  Outlives the batch when a device keeps hold of it.  Once
 * it is reported the source may be freed and be part of a larger folio, while
 * others of the job are still being copied: its size is remembered here.
 */
struct dcbm_pair {
	struct folio *src;
	struct folio *dst;
	size_t bytes;
	atomic_t nr_users;	/* descriptors that a device may still be at */
	atomic_t bytes_left;	/* neither called back nor given up */
	unsigned int nr_flying;	/* of the descriptors, those not given up */
	int error;
	bool held;
};

/*
 * A batch on its way.  Belongs to the task of its stream, and each held slot
 * has a reference of its own.
 */
struct dcbm_job {
	struct kref ref;
	struct list_head node;		/* dcbm_stream.jobs */
	struct dcbm_stream *stream;
	struct migrate_copy_batch *batch;
	unsigned int nr_pairs;
	unsigned int nr_reported;
	unsigned int nr_failed;		/* of those */
	size_t piece;			/* bytes of a descriptor at most */
	struct migrate_copy_pos next;	/* what to submit next, */
	struct migrate_copy_pos limit;	/* up to here; then comes the share, */
	struct migrate_copy_pos end;	/* of which this is the end */
	size_t share;			/* of the CPU, between the last two */
	u64 start_ns;			/* when it came to be the first */
	struct dcbm_pair pairs[DCBM_MAX_PAIRS];
};

/*
 * Jobs that are copied one after the other, and the channels that do it.  All
 * of it belongs to one task, which makes all calls, but for what callbacks use.
 */
struct dcbm_stream {
	struct list_head chans;
	unsigned int nr_chans;
	struct list_head jobs;		/* with pairs that are not reported */
	unsigned int nr_open;		/* pairs not reported, of all jobs */
	unsigned int nr_flying;
	int nid;
	size_t open_bytes;		/* of all jobs */
	size_t bytes;			/* what it is worth channels for */
	bool sparing;			/* does nothing that need not be done */
	u64 nr_reported;
	bool waits;			/* the task is in dcbm_stream_reap() */
	u64 waits_since_ns;
	bool parts;			/* with channels that are busy yet */
	unsigned long check_at;		/* jiffies */

	/* Callbacks count what is worth a look, and wake us up for so many. */
	wait_queue_head_t wq;
	atomic_t nr_events;
	int wake_at;
	bool hungry;			/* not all is submitted */
};

/* So many streams, and jobs, can do without any allocation. */
#define DCBM_POOL_MIN 4

/* As an event, a channel that runs dry outweighs any number of pairs. */
#define DCBM_URGENT	0x10000

/* main.c */
extern const struct migrate_engine_ops dcbm_ops;
extern atomic64_t dcbm_batches_busy;

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
int dcbm_stream_init(void);
void dcbm_stream_exit(void);
struct dcbm_stream *dcbm_stream_open(int nid, size_t bytes, bool sparing,
				     int *error);
int dcbm_stream_submit(struct dcbm_stream *stream,
		       struct migrate_copy_batch *batch);
void dcbm_stream_reap(struct dcbm_stream *stream, u64 wait_ns);
void dcbm_stream_close(struct dcbm_stream *stream);

/* sysfs.c */
int dcbm_sysfs_init(void);
void dcbm_sysfs_exit(void);

/* chan_sysfs.c */
extern const struct kobj_type dcbm_chan_ktype;
extern struct kobject *dcbm_chans_kobj;

/* chan.c: who has which channel; admin_lock is held by all callers but one */
extern struct mutex dcbm_admin_lock;
extern unsigned int dcbm_wanted_chans;

void dcbm_chan_init(void);
bool dcbm_is_on(void);
int dcbm_start(void);
void dcbm_stop(void);
int dcbm_resize(unsigned int nr);
void dcbm_wait_for_stuck(void);

/* lease.c: which stream has which channels */
extern spinlock_t dcbm_lock;
extern struct list_head dcbm_chans;
extern struct work_struct dcbm_stuck_work;
extern unsigned int dcbm_max_failures;
extern wait_queue_head_t dcbm_idle_wq;
void dcbm_open(bool open);
bool dcbm_any_idle(void);
void dcbm_note_missed(void);
int dcbm_lease(struct dcbm_stream *stream);
void dcbm_unlease(struct dcbm_stream *stream);
void dcbm_balance(struct dcbm_stream *stream);
void dcbm_chan_heard_of(struct dcbm_chan *chan);
void dcbm_chan_retire(struct dcbm_chan *chan, const char *why);
void dcbm_chan_judge(struct dcbm_chan *chan);
int dcbm_chan_reset(struct dcbm_chan *chan);

/* copy.c */
void dcbm_feed(struct dcbm_stream *stream);
bool dcbm_is_hungry(const struct dcbm_stream *stream);

/* share.c: what the CPU copies */
extern atomic64_t dcbm_cpu_share_bytes;
extern bool dcbm_share_on;
size_t dcbm_share_set(struct dcbm_job *job, unsigned int nr_chans);
bool dcbm_share_take(struct dcbm_stream *stream);
bool dcbm_share_left(const struct dcbm_stream *stream);
bool dcbm_share_copy(struct dcbm_stream *stream, u64 until);

/* reap.c */
extern atomic64_t dcbm_folios_held;
extern atomic_t dcbm_folios_held_now;
extern unsigned int dcbm_timeout_ms;
extern struct workqueue_struct *dcbm_wq;

static inline u64 dcbm_timeout_ns(void)
{
	return (u64)READ_ONCE(dcbm_timeout_ms) * NSEC_PER_MSEC;
}

void dcbm_slot_unmap(struct dcbm_slot *slot);
void dcbm_callback(void *param, const struct dmaengine_result *result);
void dcbm_late_work(struct work_struct *work);
void dcbm_collect(struct dcbm_stream *stream);
void dcbm_check(struct dcbm_stream *stream);
bool dcbm_can_terminate(const struct dcbm_chan *chan);
int dcbm_chan_settle(struct dcbm_chan *chan);
unsigned int dcbm_chan_forget(struct dcbm_chan *chan, bool stopped);

#endif /* _DCBM_H */
