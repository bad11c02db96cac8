// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: which stream has which channels.
 *
 * One stream uses a channel at a time.  So an error of a channel concerns one
 * stream, and the driver may terminate all transfers of a channel.  A stream
 * alone gets all channels that its size is worth.  When other streams want
 * channels, the stream keeps only its share from its next batch on.  The stream
 * submits nothing to its other channels, and gives each back as soon as nothing
 * is in flight there.  When the other streams have ended, the stream takes more
 * channels.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <kunit/visibility.h>
#include <linux/jiffies.h>
#include <linux/leafops.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/moduleparam.h>

#include "dcbm.h"

/* dcbm_chan_take_out() waits here until a channel is idle. */
DECLARE_WAIT_QUEUE_HEAD(dcbm_idle_wq);

DEFINE_SPINLOCK(dcbm_lock);
LIST_HEAD(dcbm_chans);
EXPORT_SYMBOL_IF_KUNIT(dcbm_chans);

/* Retries to release channels that are stuck: dcbm_stuck_fn(). */
struct work_struct dcbm_stuck_work;

/* Takes channels from tasks that do not run, see expire.c. */
struct work_struct dcbm_expire_work;

/* After this time outside of dcbm, a task may lose its channels. */
unsigned int dcbm_lease_ms = 100;
EXPORT_SYMBOL_IF_KUNIT(dcbm_lease_ms);

unsigned int dcbm_max_failures = 16;
module_param_named(max_failures, dcbm_max_failures, uint, 0444);
MODULE_PARM_DESC(max_failures, "take a channel out of use after so many errors in a row, default 16");

/* dcbm_lock protects all of these. */
static bool dcbm_is_open;
static unsigned int dcbm_nr_idle;	/* a hint without the lock */
static unsigned int dcbm_nr_streams;	/* that have channels */

/* The number of streams that wanted channels at the last contention. */
static unsigned int dcbm_recent;
/* dcbm_share() uses dcbm_recent until this time, in jiffies. */
static unsigned long dcbm_recent_until = INITIAL_JIFFIES;

/* A late callback of the channel has come.  May run in any context. */
void dcbm_chan_heard_of(struct dcbm_chan *chan)
{
	wake_up_all(&dcbm_idle_wq);
	if (READ_ONCE(chan->leaving))
		/* Not dcbm_wq: a task may flush it under dcbm_chans_lock. */
		queue_work(system_dfl_wq, &dcbm_stuck_work);
}

static bool dcbm_chan_usable(const struct dcbm_chan *chan)
{
	return !chan->leaving && !chan->retiring;
}

unsigned int dcbm_count_usable(void)
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

void dcbm_open(bool open)
{
	spin_lock(&dcbm_lock);
	WRITE_ONCE(dcbm_is_open, open);
	dcbm_count_usable();
	spin_unlock(&dcbm_lock);
}

/* Returns a stream whose lease has expired, or NULL. */
struct dcbm_stream *dcbm_expired(void)
{
	unsigned long span = msecs_to_jiffies(READ_ONCE(dcbm_lease_ms));
	struct dcbm_chan *chan;

	lockdep_assert_held(&dcbm_lock);

	list_for_each_entry(chan, &dcbm_chans, node)
		if (chan->stream && !chan->stream->inside &&
		    time_after(jiffies, chan->stream->left_at + span))
			return chan->stream;
	return NULL;
}

/* If this were shorter, a task that migrates seldom would find no channel. */
#define DCBM_RECENT_SPAN (HZ / 5)

/*
 * A stream got no channels, or ends while others continue.  In both cases its
 * task will probably open a stream again soon.
 */
static void dcbm_note_contention(unsigned int nr_streams)
{
	lockdep_assert_held(&dcbm_lock);

	dcbm_recent = nr_streams;
	dcbm_recent_until = jiffies + DCBM_RECENT_SPAN;
	if (dcbm_expired())
		queue_work(system_dfl_wq, &dcbm_expire_work);
}

static bool dcbm_contended(void)
{
	return time_before(jiffies, dcbm_recent_until);
}

/* Returns how many channels each stream gets when there are too few for all. */
static unsigned int dcbm_share(unsigned int nr_usable)
{
	unsigned int nr = max(dcbm_nr_streams, 1U);

	if (dcbm_contended())
		nr = max(nr, dcbm_recent);
	return max(nr_usable / nr, 1U);
}

/* The core asks before it opens a stream.  The answer is a hint. */
bool dcbm_wants(int dst_nid, size_t bytes)
{
	if (!READ_ONCE(dcbm_is_open))
		return false;
	if (READ_ONCE(dcbm_nr_idle))
		return true;
	/* Make a stream with more than its share give channels back. */
	spin_lock(&dcbm_lock);
	dcbm_note_contention(dcbm_nr_streams + 1);
	spin_unlock(&dcbm_lock);
	return false;
}

static void dcbm_chan_to_stream(struct dcbm_chan *chan,
				struct dcbm_stream *stream)
{
	WRITE_ONCE(chan->state, DCBM_BUSY);
	chan->stream = stream;
	chan->full = false;
	chan->dead = false;
	chan->parting = false;
	chan->unissued = false;
	/* Memory may have been short when the driver refused longer pieces. */
	chan->max_piece = chan->first_max_piece;
	list_add_tail(&chan->lease, &stream->chans);
	stream->nr_chans++;
}

/* Give the stream @nr more idle channels, those of its node first. */
static void dcbm_take(struct dcbm_stream *stream, unsigned int nr)
{
	struct dcbm_chan *chan;
	int pass;

	for (pass = 0; pass < 2; pass++) {
		list_for_each_entry(chan, &dcbm_chans, node) {
			if (!nr)
				return;
			if (!dcbm_chan_usable(chan) || chan->state != DCBM_IDLE ||
			    (!pass && chan->nid != stream->nid))
				continue;
			dcbm_chan_to_stream(chan, stream);
			nr--;
		}
	}
}

/*
 * Give channels to a new stream.  Returns 0, -EBUSY if other streams have all
 * channels, or -EOPNOTSUPP if there is no channel.
 */
int dcbm_lease(struct dcbm_stream *stream)
{
	unsigned int nr_usable, nr;
	int ret = 0;

	spin_lock(&dcbm_lock);
	dcbm_nr_streams++;
	nr_usable = dcbm_count_usable();
	if (dcbm_is_open && nr_usable) {
		nr = min(dcbm_share(nr_usable),
			 dcbm_wanted(stream->bytes, nr_usable));
		dcbm_take(stream, nr);
		dcbm_count_usable();
		if (!stream->nr_chans) {
			dcbm_note_contention(dcbm_nr_streams);
			ret = -EBUSY;
		}
	} else {
		ret = -EOPNOTSUPP;
	}
	if (ret)
		dcbm_nr_streams--;
	spin_unlock(&dcbm_lock);
	return ret;
}

static void dcbm_wake_waiting(void)
{
	if (wq_has_sleeper(&dcbm_idle_wq))
		wake_up_all(&dcbm_idle_wq);
}

/* The channel has nothing in flight. */
void dcbm_chan_give_back(struct dcbm_stream *stream, struct dcbm_chan *chan)
{
	lockdep_assert_held(&dcbm_lock);

	list_del(&chan->lease);
	chan->stream = NULL;
	WRITE_ONCE(chan->state, chan->retiring ? DCBM_RETIRED : DCBM_IDLE);
	stream->nr_chans--;
}

/* The stream ends, and has nothing in flight. */
void dcbm_unlease(struct dcbm_stream *stream)
{
	struct dcbm_chan *chan, *next;

	spin_lock(&dcbm_lock);
	list_for_each_entry_safe(chan, next, &stream->chans, lease)
		dcbm_chan_give_back(stream, chan);
	if (dcbm_nr_streams > 1)
		dcbm_note_contention(dcbm_nr_streams);
	dcbm_nr_streams--;
	dcbm_count_usable();
	spin_unlock(&dcbm_lock);
	dcbm_wake_waiting();
}

/*
 * Give back channels that leave, that have failed, or that other streams
 * should have.  Take more channels if this stream should have more.  Returns
 * true if it gave some back.
 */
static bool dcbm_balance_locked(struct dcbm_stream *stream)
{
	unsigned int nr_usable = dcbm_count_usable();
	unsigned int nr_staying = 0, most;
	struct dcbm_chan *chan, *next;
	bool given = false;

	most = dcbm_wanted(stream->bytes, nr_usable);
	if (dcbm_contended())
		most = min(most, dcbm_share(nr_usable));

	stream->parts = false;
	list_for_each_entry_safe(chan, next, &stream->chans, lease) {
		chan->parting = !dcbm_chan_usable(chan) || nr_staying >= most;
		nr_staying += !chan->parting;
		if (chan->parting && !chan->nr_flying) {
			dcbm_chan_give_back(stream, chan);
			given = true;
		}
		stream->parts |= chan->parting && chan->nr_flying;
	}
	if (dcbm_is_open && nr_staying < most)
		dcbm_take(stream, most - nr_staying);
	dcbm_count_usable();
	return given;
}

/* Called before each batch, and while the stream has channels to part with. */
void dcbm_balance(struct dcbm_stream *stream)
{
	bool given;

	spin_lock(&dcbm_lock);
	given = dcbm_balance_locked(stream);
	spin_unlock(&dcbm_lock);
	if (given)
		dcbm_wake_waiting();
}

/*
 * Take a channel out of use: it gets no pieces any more.  Its stream gives it
 * back before the next batch, or at the end of the stream.
 */
void dcbm_chan_retire(struct dcbm_chan *chan, const char *why)
{
	chan->dead = true;
	spin_lock(&dcbm_lock);
	chan->retiring = true;
	spin_unlock(&dcbm_lock);
	pr_warn("%s is taken out of use: %s\n", kobject_name(&chan->kobj), why);
}

/* Returns true if transfers in doubt leave no room for others. */
static bool dcbm_chan_clogged(const struct dcbm_chan *chan)
{
	return !chan->nr_flying && READ_ONCE(chan->nr_away) >=
		READ_ONCE(chan->max_transfers);
}

/* Retire the channel if it has failed too often, or takes nothing any more. */
void dcbm_chan_judge(struct dcbm_chan *chan)
{
	if (chan->retiring)
		return;
	if (chan->failures >= dcbm_max_failures)
		dcbm_chan_retire(chan, "too many errors in a row");
	else if (dcbm_chan_clogged(chan))
		dcbm_chan_retire(chan, "too many transfers have not ended");
}

/*
 * An administrator puts a retired channel back into use.  Returns -EBUSY while
 * a device may still use pages.
 */
int dcbm_chan_reset(struct dcbm_chan *chan)
{
	int ret;

	/* Only this function changes the state of a retired channel. */
	if (READ_ONCE(chan->state) != DCBM_RETIRED)
		return 0;
	ret = dcbm_chan_settle(chan, true);
	if (!ret && dcbm_chan_clogged(chan))
		ret = -EBUSY;
	if (ret)
		return ret;

	spin_lock(&dcbm_lock);
	WRITE_ONCE(chan->state, DCBM_IDLE);
	chan->retiring = false;
	chan->failures = 0;
	dcbm_count_usable();
	spin_unlock(&dcbm_lock);
	wake_up_all(&dcbm_idle_wq);
	return 0;
}
