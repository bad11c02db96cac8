/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A simulated DMA engine: what its parts, and its tests, share.
 */
#ifndef _DMASIM_H
#define _DMASIM_H

#include <linux/atomic.h>
#include <linux/dmaengine.h>
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/kref.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

struct dentry;

#define DMASIM_NAME "dmasim"

/* What can go wrong with a descriptor.  A descriptor can have several. */
enum dmasim_fault {
	/* half of it is written, then it completes with an error */
	DMASIM_FAIL,
	/* it neither completes nor writes; in order, nor do those behind it */
	DMASIM_STALL,
	/* it completes, and writes, late_ms after its time */
	DMASIM_LATE,
	/* it completes, but the channel does not interrupt */
	DMASIM_LOSE_IRQ,
	/* it cannot be had: prep returns NULL */
	DMASIM_REFUSE,
	DMASIM_NR_FAULTS,
};

/* Which descriptors a fault hits. */
struct dmasim_trigger {
	atomic_t nth;		/* the nth from now on, once; 0: none */
	u32 every;		/* and every so many; 0: none */
	u32 seen;		/* since the last that "every" hit */
};

/* By default; clients of DMA engines like to wait for seconds. */
#define DMASIM_LATE_MS 100

/* What becomes of transfers that a client terminates. */
enum dmasim_terminate {
	DMASIM_TERMINATE_STOP,	/* they stop */
	DMASIM_TERMINATE_ERROR,	/* an error is returned, they go on */
	DMASIM_TERMINATE_LIE,	/* success is returned, they go on, unheard */
};

struct dmasim_desc {
	struct dma_async_tx_descriptor tx;
	struct list_head node;
	dma_addr_t src;
	dma_addr_t dst;
	size_t bytes;
	ktime_t due;		/* when it completes */
	unsigned long faults;	/* mask of enum dmasim_fault */
	struct dmaengine_result result;
	bool in_flight;		/* submitted, and neither over nor taken back */
	bool terminated;	/* by the client: no callback */
	bool stop;		/* do not go on copying it */
};

/* Failed descriptors whose cookies are remembered. */
#define DMASIM_NR_FAILED 32

struct dmasim_stats {
	u64 descriptors;	/* completed without error */
	u64 bytes;		/* of those */
	u64 errors;		/* completed with an error */
	u64 refused;		/* preps that returned NULL */
	u64 terminated;		/* taken back before they completed */
	u64 late;		/* completed or written late */
	u64 lost_irqs;
	u64 unheard;		/* written after they had been terminated */
	u64 interrupts;
	u32 in_flight;		/* submitted, not completed or taken back */
};

/*
 * A descriptor is on one list of its channel.  All of it is under ->lock, which
 * clients' interrupt handlers may take; the copying itself and callbacks are not.
 */
struct dmasim_chan {
	struct dma_chan chan;
	spinlock_t lock;		/* see above */
	struct list_head free;
	struct list_head prepared;
	struct list_head submitted;
	struct list_head active;
	struct list_head done;
	struct list_head copying;	/* changed only by whoever copies */
	struct dmasim_desc *descs;
	ktime_t busy_until;	/* when all that is active has been transferred */
	bool gone;		/* the device has vanished */
	bool dead;
	u32 bandwidth_mbps;	/* 0: as fast as the CPU copies */
	u32 latency_us;
	u32 coalesce_us;
	u32 terminate;		/* enum dmasim_terminate */
	u32 late_ms;
	struct dmasim_trigger triggers[DMASIM_NR_FAULTS];
	struct dmasim_stats stats;
	/* A ring of the last ones, as the core remembers only what completed. */
	dma_cookie_t failed[DMASIM_NR_FAILED];
	unsigned int nr_failed;
	struct hrtimer timer;		/* for when the next one is due */
	struct kthread_work work;	/* with dmasim_worker, to copy it */
	struct tasklet_struct tasklet;	/* for callbacks after it vanished */
};

struct dmasim_dev {
	struct dma_device dma;
	struct kref ref;	/* one of the driver's, one of dmaengine's */
	struct work_struct free_work;
	struct mutex unregister_lock;	/* for ->unregistered, and to wait */
	bool unregistered;
	bool out_of_order;
	struct dentry *dir;
	unsigned int nr_chans;
	struct dmasim_chan chans[] __counted_by(nr_chans);
};

static inline struct dmasim_chan *to_dmasim_chan(struct dma_chan *chan)
{
	return container_of(chan, struct dmasim_chan, chan);
}

static inline struct dmasim_dev *to_dmasim_dev(struct dmasim_chan *c)
{
	return container_of(c->chan.device, struct dmasim_dev, dma);
}

/* main.c: parameters, devices */
void dmasim_unregister(struct dmasim_dev *d);

/* chan.c: what a client of a channel sees */
int dmasim_chan_init(struct dmasim_chan *c, unsigned int nr_descs, int node);
void dmasim_chan_destroy(struct dmasim_chan *c);
void dmasim_chan_vanish(struct dmasim_chan *c);
void dmasim_set_ops(struct dma_device *dma, bool can_terminate);
bool __dmasim_triggered(struct dmasim_trigger *t);
void dmasim_complete(struct dmasim_chan *c, struct dmasim_desc *desc);
void dmasim_release(struct dmasim_chan *c, struct dmasim_desc *desc);
void dmasim_interrupt(struct dmasim_chan *c);

/* Mostly not, and what a channel does is to cost no more than a real one's. */
static inline bool dmasim_asked_for(const struct dmasim_trigger *t)
{
	return atomic_read(&t->nth) || READ_ONCE(t->every);
}

/* Does a fault hit what is being done now?  Called with c->lock held. */
static inline bool dmasim_triggered(struct dmasim_chan *c,
				    enum dmasim_fault fault)
{
	struct dmasim_trigger *t = &c->triggers[fault];

	return unlikely(dmasim_asked_for(t)) && __dmasim_triggered(t);
}

/* engine.c: time, and the copying */
extern struct kthread_worker *dmasim_worker;
void dmasim_start_all(struct dmasim_chan *c);
void dmasim_arm(struct dmasim_chan *c);
void dmasim_disarm(struct dmasim_chan *c);
enum hrtimer_restart dmasim_timer(struct hrtimer *timer);
void dmasim_work(struct kthread_work *work);

/* debugfs.c: faults and counters */
extern const char * const dmasim_fault_names[DMASIM_NR_FAULTS];

void dmasim_debugfs_init(void);
void dmasim_debugfs_exit(void);
void dmasim_debugfs_add(struct dmasim_dev *d, const char *name);

#endif /* _DMASIM_H */
