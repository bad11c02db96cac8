// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: which job gets which channels.
 *
 * A job has a channel for itself as long as it runs.  So what goes wrong on a
 * channel concerns one job, and a driver may be told to terminate all that is
 * on it.  A job alone gets all channels that its size is worth; when others
 * are there, or have just been turned away, it leaves them their share.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/topology.h>

#include "dcbm.h"

/* For those who wait for a channel, and those who wait for its job to end. */
DECLARE_WAIT_QUEUE_HEAD(dcbm_idle_wq);

/* All of these under dcbm_lock. */
static bool dcbm_is_open;
static unsigned int dcbm_nr_idle;	/* a hint for those without the lock */
static unsigned int dcbm_nr_jobs;	/* have channels, or wait for some */
static unsigned int dcbm_recent_jobs;	/* at most at the same time, lately */
static unsigned long dcbm_recent_until;	/* jiffies */

static bool dcbm_chan_usable(const struct dcbm_chan *chan)
{
	return !chan->leaving && !chan->retiring;
}

static unsigned int dcbm_count_usable(void)
{
	struct dcbm_chan *chan;
	unsigned int nr = 0, nr_idle = 0;

	lockdep_assert_held(&dcbm_lock);

	list_for_each_entry(chan, &dcbm_chans, node) {
		nr += dcbm_chan_usable(chan);
		nr_idle += dcbm_chan_usable(chan) && chan->state == DCBM_IDLE;
	}
	WRITE_ONCE(dcbm_nr_idle, dcbm_is_open ? nr_idle : 0);
	return nr;
}

unsigned int dcbm_nr_usable(void)
{
	unsigned int nr;

	spin_lock(&dcbm_lock);
	nr = dcbm_count_usable();
	spin_unlock(&dcbm_lock);
	return nr;
}

bool dcbm_any_idle(void)
{
	return READ_ONCE(dcbm_nr_idle);
}

void dcbm_open(bool open)
{
	spin_lock(&dcbm_lock);
	dcbm_is_open = open;
	dcbm_count_usable();
	spin_unlock(&dcbm_lock);
	wake_up_all(&dcbm_idle_wq);
}

/*
 * How many jobs have to get along?  Those that were turned away in the last
 * moments are likely to be back with their next batch.
 */
static unsigned int dcbm_nr_sharers(void)
{
	unsigned int nr = dcbm_nr_jobs;

	if (time_before(jiffies, dcbm_recent_until))
		nr = max(nr, dcbm_recent_jobs);
	else
		dcbm_recent_jobs = 0;
	return max(nr, 1U);
}

static void dcbm_note_contention(void)
{
	dcbm_recent_jobs = max(dcbm_recent_jobs, dcbm_nr_jobs);
	dcbm_recent_until = jiffies + max(HZ / 50, 2);
}

static int dcbm_chan_distance(const struct dcbm_chan *chan, int nid)
{
	/* A device that is nowhere is as far away from everything. */
	if (chan->nid == NUMA_NO_NODE || nid == NUMA_NO_NODE)
		return REMOTE_DISTANCE;
	return node_distance(chan->nid, nid);
}

static void dcbm_chan_to_job(struct dcbm_chan *chan, struct dcbm_job *job,
			     u64 now)
{
	chan->state = DCBM_BUSY;
	chan->full = false;
	chan->dead = false;
	chan->unissued = false;
	chan->first_ns = 0;
	chan->lease_bytes = 0;
	chan->progress_ns = now;
	list_add_tail(&chan->lease, &job->chans);
	job->nr_chans++;
}

/* Give the job idle channels, the nearest first, until it has @nr. */
static void dcbm_take_nearest(struct dcbm_job *job, int nid, unsigned int nr)
{
	int distance, next = 0;
	u64 now = ktime_get_ns();
	struct dcbm_chan *chan;

	do {
		distance = next;
		next = INT_MAX;
		list_for_each_entry(chan, &dcbm_chans, node) {
			int d = dcbm_chan_distance(chan, nid);

			if (!dcbm_chan_usable(chan) || chan->state != DCBM_IDLE)
				continue;
			if (d > distance)
				next = min(next, d);
			else if (d == distance && job->nr_chans < nr)
				dcbm_chan_to_job(chan, job, now);
		}
	} while (job->nr_chans < nr && next != INT_MAX);
}

/* One try.  True also when there is no use in trying again. */
static bool dcbm_try_lease(struct dcbm_job *job, int nid)
{
	unsigned int nr_usable, nr;
	bool done;

	spin_lock(&dcbm_lock);
	nr_usable = dcbm_count_usable();
	if (dcbm_is_open && nr_usable) {
		nr = DIV_ROUND_UP(nr_usable, dcbm_nr_sharers());
		nr = min(nr, dcbm_wanted(job->batch->bytes, nr_usable));
		dcbm_take_nearest(job, nid, nr);
		dcbm_count_usable();
	}
	done = job->nr_chans || !dcbm_is_open || !nr_usable;
	spin_unlock(&dcbm_lock);
	return done;
}

/*
 * Give the job some channels.  When all are busy wait for one, but no longer
 * than @wait_ns.  Returns 0, -EBUSY, or -EOPNOTSUPP when there are none.
 */
int dcbm_lease(struct dcbm_job *job, int nid, u64 wait_ns)
{
	spin_lock(&dcbm_lock);
	dcbm_nr_jobs++;
	spin_unlock(&dcbm_lock);

	if (!dcbm_try_lease(job, nid)) {
		spin_lock(&dcbm_lock);
		dcbm_note_contention();
		spin_unlock(&dcbm_lock);
		if (wait_ns)
			wait_event_hrtimeout(dcbm_idle_wq,
					     dcbm_try_lease(job, nid),
					     ns_to_ktime(wait_ns));
	}
	if (job->nr_chans)
		return 0;

	spin_lock(&dcbm_lock);
	dcbm_nr_jobs--;
	spin_unlock(&dcbm_lock);
	return dcbm_any_idle() || dcbm_nr_usable() ? -EBUSY : -EOPNOTSUPP;
}

/* The job has nothing in flight any more; its channels are for others. */
void dcbm_unlease(struct dcbm_job *job)
{
	struct dcbm_chan *chan, *next;

	spin_lock(&dcbm_lock);
	list_for_each_entry_safe(chan, next, &job->chans, lease) {
		list_del(&chan->lease);
		chan->state = chan->retiring ? DCBM_RETIRED : DCBM_IDLE;
	}
	job->nr_chans = 0;
	dcbm_nr_jobs--;
	dcbm_count_usable();
	spin_unlock(&dcbm_lock);
	if (wq_has_sleeper(&dcbm_idle_wq))
		wake_up_all(&dcbm_idle_wq);
}

/*
 * Take a channel out of use.  Its job keeps it on its list until it is done,
 * but neither it nor anybody else submits anything to it.
 */
void dcbm_chan_retire(struct dcbm_chan *chan, const char *why)
{
	chan->dead = true;
	spin_lock(&dcbm_lock);
	chan->retiring = true;
	spin_unlock(&dcbm_lock);
	pr_warn("%s is taken out of use: %s\n", kobject_name(&chan->kobj), why);
}

/* Has it failed too often? */
void dcbm_chan_judge(struct dcbm_chan *chan)
{
	if (chan->failures >= READ_ONCE(dcbm_max_failures) && !chan->retiring)
		dcbm_chan_retire(chan, "too many errors in a row");
}

/*
 * An administrator believes in it again.  -EBUSY while a device may still be at
 * some pages.
 */
int dcbm_chan_reset(struct dcbm_chan *chan)
{
	enum dcbm_chan_state state;
	int ret;

	spin_lock(&dcbm_lock);
	state = chan->state;
	spin_unlock(&dcbm_lock);
	/* It stays retired until we say otherwise. */
	if (state != DCBM_RETIRED)
		return 0;
	ret = dcbm_chan_settle(chan);
	if (ret)
		return ret;

	spin_lock(&dcbm_lock);
	chan->state = DCBM_IDLE;
	chan->retiring = false;
	chan->failures = 0;
	dcbm_count_usable();
	spin_unlock(&dcbm_lock);
	wake_up_all(&dcbm_idle_wq);
	return 0;
}
