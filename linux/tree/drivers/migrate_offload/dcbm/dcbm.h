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

/* Descriptors that one channel may have in flight. */
#define DCBM_SLOTS		32

/* Folios of one batch; the core hands over no more. */
#define DCBM_MAX_PAIRS		512

struct dcbm_job;

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
	enum dcbm_slot_state state;	/* under chan->lock */
	int error;
};

enum dcbm_chan_state {
	DCBM_IDLE,
	DCBM_BUSY,		/* on the list of one job */
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

	/* Only for the job whose list it is on. */
	struct list_head lease;
	unsigned int nr_flying;
	bool full;			/* until a descriptor comes back */
	bool dead;			/* for this job */
	bool unissued;
	u64 progress_ns;		/* the last sign of life */
	u64 first_ns;
	u64 lease_bytes;
	unsigned int failures;		/* in a row */
	u64 ns_per_mib;			/* 0: not known yet */

	/* Under lock, which the callback takes, in whatever context it runs. */
	spinlock_t lock;
	struct list_head free;
	struct list_head done;
	struct list_head late;
	unsigned int nr_away;		/* slots neither free nor flying */
	dma_cookie_t last_cookie;	/* the newest that was called back */
	struct dcbm_slot slots[DCBM_SLOTS];

	struct work_struct late_work;

	atomic64_t bytes;
	atomic64_t errors;
	atomic64_t timeouts;
};

/* One folio of a job.  Outlives the batch when a device keeps hold of it. */
struct dcbm_pair {
	struct folio *src;
	struct folio *dst;
	atomic_t nr_flying;	/* descriptors that are not accounted for */
	int error;
	bool held;
};

/*
 * A batch on its way.  dcbm_submit() and dcbm_reap() take it forward;
 * whoever calls them owns the job and the channels on its list.  Each held
 * slot has a reference of its own.
 */
struct dcbm_job {
	struct kref ref;
	struct migrate_copy_batch *batch;
	unsigned int nr_pairs;
	unsigned int nr_flying;
	struct list_head chans;
	unsigned int nr_chans;
	size_t piece;			/* bytes of a descriptor at most */
	unsigned int next_pair;		/* what to submit next */
	size_t next_offset;
	u64 start_ns;
	u64 expected_ns;
	wait_queue_head_t wq;
	atomic_t nr_done;		/* callbacks since the last reap */
	unsigned int wake_at;		/* when there were so many, wake up */
	struct dcbm_pair pairs[DCBM_MAX_PAIRS];
};

/* main.c */
extern const struct migrate_engine_ops dcbm_ops;
extern atomic64_t dcbm_folios_migrated;
extern atomic64_t dcbm_folios_failed;
extern atomic64_t dcbm_batches_small;
extern atomic64_t dcbm_batches_busy;
extern atomic64_t dcbm_folios_held;
extern atomic_t dcbm_folios_held_now;
extern unsigned int dcbm_timeout_ms;
extern unsigned int dcbm_poll_us;
extern unsigned int dcbm_max_failures;
extern struct workqueue_struct *dcbm_wq;

struct dcbm_job *dcbm_job_new(struct migrate_copy_batch *batch);
void dcbm_job_put(struct dcbm_job *job);
void dcbm_job_run(struct dcbm_job *job);

/* sysfs.c */
extern const struct kobj_type dcbm_chan_ktype;
extern struct kobject *dcbm_chans_kobj;
int dcbm_sysfs_init(void);
void dcbm_sysfs_exit(void);

/* chan.c: who has which channel; admin_lock is held by all callers but one */
extern struct mutex dcbm_admin_lock;
extern spinlock_t dcbm_lock;
extern struct list_head dcbm_chans;
extern unsigned int dcbm_wanted_chans;

bool dcbm_is_on(void);
int dcbm_start(void);
void dcbm_stop(void);
int dcbm_resize(unsigned int nr);
void dcbm_wait_for_stuck(void);
void dcbm_chan_heard_of(struct dcbm_chan *chan);
void dcbm_late_work(struct work_struct *work);

/* lease.c */
extern wait_queue_head_t dcbm_idle_wq;
void dcbm_open(bool open);
bool dcbm_any_idle(void);
unsigned int dcbm_nr_usable(void);
int dcbm_lease(struct dcbm_job *job, int nid, u64 wait_ns);
void dcbm_unlease(struct dcbm_job *job);
void dcbm_chan_retire(struct dcbm_chan *chan, const char *why);
void dcbm_chan_judge(struct dcbm_chan *chan);
int dcbm_chan_reset(struct dcbm_chan *chan);

/* copy.c */
void dcbm_submit(struct dcbm_job *job);
bool dcbm_next_piece(struct dcbm_job *job);
void dcbm_slot_unmap(struct dcbm_slot *slot);

/* reap.c */
void dcbm_callback(void *param, const struct dmaengine_result *result);
bool dcbm_reap(struct dcbm_job *job);
void dcbm_pair_done(struct dcbm_pair *pair);
bool dcbm_can_terminate(const struct dcbm_chan *chan);
int dcbm_chan_settle(struct dcbm_chan *chan);
unsigned int dcbm_chan_forget(struct dcbm_chan *chan, bool stopped);

/* learn.c */
bool dcbm_pays(unsigned int nr_pairs, size_t bytes);
u64 dcbm_worth_waiting_ns(const struct migrate_copy_batch *batch);
void dcbm_learn(void);
void dcbm_learn_sometimes(void);
void dcbm_unlearn(void);
void dcbm_learn_exit(void);
size_t dcbm_fixed_threshold(void);
void dcbm_fix_threshold(size_t bytes);
void dcbm_learned(struct dcbm_thresholds *out);

#endif /* _DCBM_H */
