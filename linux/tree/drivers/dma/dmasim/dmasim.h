/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dmasim, a simulated DMA engine: data that its files and its tests share.
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
#include <linux/leafops.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

struct dentry;

#define DMASIM_NAME "dmasim"

/* Faults of a descriptor.  A descriptor can have several. */
enum dmasim_fault {
	/* completes with an error, after half of its bytes */
	DMASIM_FAIL,
	/* neither writes nor completes; in order, later ones do not either */
	DMASIM_STALL,
	/* writes and completes late_ms after its time */
	DMASIM_LATE,
	/* completes, but the channel does not interrupt */
	DMASIM_LOSE_IRQ,
	/* copies half of its bytes, and completes as if without an error */
	DMASIM_HIDE_ERROR,
	/* calls back with DMA_TRANS_ABORTED, and writes late_ms later */
	DMASIM_ABORT,
	/* prep returns NULL */
	DMASIM_REFUSE,
	/* submit calls back with an error, and returns an error */
	DMASIM_REJECT,
	DMASIM_NR_FAULTS,
};

/* Selects the descriptors that a fault hits. */
struct dmasim_trigger {
	atomic_t nth;		/* the nth from now on, once; 0: none */
	u32 every;		/* and each time after this many; 0: never */
	u32 seen;		/* since the last hit of "every" */
};

/* Default of late_ms, as clients of DMA engines often wait for seconds. */
#define DMASIM_LATE_MS 100

/* Results of a client's attempt to terminate transfers. */
enum dmasim_terminate {
	DMASIM_TERMINATE_STOP,	/* the transfers stop */
	DMASIM_TERMINATE_ERROR,	/* returns an error, the transfers continue */
	DMASIM_TERMINATE_LIE,	/* returns success, the transfers continue */
	DMASIM_TERMINATE_EARLY,	/* also, their end completes a later one */
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
	bool in_flight;		/* submitted, not completed or terminated */
	bool terminated;	/* by the client: no callback */
	bool stop;		/* the copy must stop */
};

/* The channel remembers the cookies of this many failed descriptors. */
#define DMASIM_NR_FAILED 32

struct dmasim_stats {
	u64 descriptors;	/* completed without error */
	u64 bytes;		/* of those */
	u64 errors;		/* completed with an error */
	u64 refused;		/* preps that returned NULL */
	u64 terminated;		/* before they completed */
	u64 late;		/* completed or written late */
	u64 lost_irqs;
	u64 unheard;		/* written after they had been terminated */
	u64 hidden;		/* errors that the fault hide_error hid */
	u64 early;		/* completed by the end of a terminated one */
	u64 interrupts;
	u32 in_flight;		/* submitted, not completed or terminated */
};

/*
 * Each descriptor is on one list of its channel.  The lock protects all
 * fields.  Interrupt handlers of clients may take it; copies and callbacks run
 * without it.
 */
struct dmasim_chan {
	struct dma_chan chan;
	spinlock_t lock;		/* see above */
	struct list_head free;
	wait_queue_head_t free_wq;	/* prep waits, with prep_waits */
	struct list_head prepared;
	struct list_head submitted;
	struct list_head active;
	struct list_head done;
	struct list_head copying;	/* only dmasim_step() changes it */
	struct dmasim_desc *descs;
	ktime_t busy_until;	/* end of the last active transfer */
	bool gone;		/* the device has vanished */
	bool left;		/* dmasim_leave(); d->unregister_lock */
	bool dead;
	u32 bandwidth_mbps;	/* 0: as fast as the CPU copies */
	u32 latency_us;
	u32 coalesce_us;
	u32 terminate;		/* enum dmasim_terminate */
	u32 late_ms;
	struct dmasim_trigger triggers[DMASIM_NR_FAULTS];
	struct dmasim_stats stats;
	/* A ring, as dmaengine remembers only the last complete cookie. */
	dma_cookie_t failed[DMASIM_NR_FAILED];
	unsigned int nr_failed;
	struct hrtimer timer;		/* until the next descriptor is due */
	struct kthread_work work;	/* copies, if dmasim_worker runs */
	struct tasklet_struct tasklet;	/* callbacks of a device that is gone */
};

struct dmasim_dev {
	struct dma_device dma;
	struct kref ref;	/* the driver and dmaengine have one each */
	struct work_struct free_work;
	struct mutex unregister_lock;	/* protects ->unregistered */
	bool unregistered;
	bool out_of_order;
	bool prep_waits;
	size_t max_copy_bytes;
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
int dmasim_leave(struct dmasim_chan *c);

/* chan.c: operations that clients call */
int dmasim_chan_init(struct dmasim_chan *c, unsigned int nr_descs, int node);
void dmasim_chan_destroy(struct dmasim_chan *c);
void dmasim_chan_vanish(struct dmasim_chan *c);
void dmasim_set_ops(struct dma_device *dma, bool can_terminate);
bool __dmasim_triggered(struct dmasim_trigger *t);
void dmasim_complete(struct dmasim_chan *c, struct dmasim_desc *desc);
void dmasim_release(struct dmasim_chan *c, struct dmasim_desc *desc);
void dmasim_interrupt(struct dmasim_chan *c);

/*
 * Returns true if the fault is in use.  Inline, as a simulated channel should
 * take no more CPU time than a real one.
 */
static inline bool dmasim_asked_for(const struct dmasim_trigger *t)
{
	return atomic_read(&t->nth) || READ_ONCE(t->every);
}

/* Returns true if a fault hits this descriptor.  Called with c->lock held. */
static inline bool dmasim_triggered(struct dmasim_chan *c,
				    enum dmasim_fault fault)
{
	struct dmasim_trigger *t = &c->triggers[fault];

	return unlikely(dmasim_asked_for(t)) && __dmasim_triggered(t);
}

/* engine.c: time and copying */
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
