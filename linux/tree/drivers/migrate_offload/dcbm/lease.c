// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: which stream has which channels.
 *
 * A stream has its channels for itself.  So what goes wrong on a channel
 * concerns one stream, and a driver may be told to terminate all that is on it.
 * A stream alone gets all channels that its size is worth.  When others want
 * some, it goes on with its share from its next batch on: it feeds the rest no
 * more, and gives each back as soon as nothing is in flight there.  When they are
 * gone, it gets more.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <kunit/visibility.h>
#include <linux/jiffies.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/moduleparam.h>

#include "dcbm.h"

/* For those who wait until a channel is idle. */
DECLARE_WAIT_QUEUE_HEAD(dcbm_idle_wq);

DEFINE_SPINLOCK(dcbm_lock);
LIST_HEAD(dcbm_chans);
EXPORT_SYMBOL_IF_KUNIT(dcbm_chans);

/* Gives back channels that could not be, see chan.c. */
struct work_struct dcbm_stuck_work;

unsigned int dcbm_max_failures = 16;
module_param_named(max_failures, dcbm_max_failures, uint, 0444);
MODULE_PARM_DESC(max_failures, "take a channel out of use after so many errors in a row, default 16");

/* All of these under dcbm_lock. */
static bool dcbm_is_open;
static unsigned int dcbm_nr_idle;	/* a hint for those without the lock */
static unsigned int dcbm_nr_streams;	/* that have channels */

/* So many wanted channels at once the last time that some had too few, */
static unsigned int dcbm_recent;
/* And are likely to until then; in jiffies. */
static unsigned long dcbm_recent_until = INITIAL_JIFFIES;

/* Any context. */
void dcbm_chan_heard_of(struct dcbm_chan *chan)
{
	wake_up_all(&dcbm_idle_wq);
	if (READ_ONCE(chan->leaving))
		/* Not on dcbm_wq: a task that waits for dcbm_wq may hold the lock. */
		queue_work(system_unbound_wq, &dcbm_stuck_work);
}

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
}

/* Those who migrate now and then would never find an idle channel with less. */
#define DCBM_RECENT_SPAN (HZ / 5)

/*
 * A task was turned away, or leaves where others stay.  In both cases it is
 * likely to be back with its next batch.
 */
static void dcbm_note_contention(unsigned int nr_streams)
{
	lockdep_assert_held(&dcbm_lock);

	dcbm_recent = nr_streams;
	dcbm_recent_until = jiffies + DCBM_RECENT_SPAN;
}

static bool dcbm_contended(void)
{
	return time_before(jiffies, dcbm_recent_until);
}

/* What each gets when there are not enough for all. */
static unsigned int dcbm_share(unsigned int nr_usable)
{
	unsigned int nr = max(dcbm_nr_streams, 1U);

	if (dcbm_contended())
		nr = max(nr, dcbm_recent);
	return max(nr_usable / nr, 1U);
}

/* A task did not even ask for channels, as none was idle. */
void dcbm_note_missed(void)
{
	spin_lock(&dcbm_lock);
	dcbm_note_contention(dcbm_nr_streams + 1);
	spin_unlock(&dcbm_lock);
}

static void dcbm_chan_to_stream(struct dcbm_chan *chan,
				struct dcbm_stream *stream)
{
	chan->state = DCBM_BUSY;
	chan->full = false;
	chan->dead = false;
	chan->parting = false;
	chan->unissued = false;
	list_add_tail(&chan->lease, &stream->chans);
	stream->nr_chans++;
}

/* Give the stream so many more idle channels, those of its node first. */
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
 * Give a new stream some channels.  Returns 0, -EBUSY when others have all of
 * them, or -EOPNOTSUPP when there are none.
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

/* Nothing is in flight on it. */
static void dcbm_chan_give_back(struct dcbm_stream *stream,
				struct dcbm_chan *chan)
{
	lockdep_assert_held(&dcbm_lock);

	list_del(&chan->lease);
	chan->state = chan->retiring ? DCBM_RETIRED : DCBM_IDLE;
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
 * Part with channels that are going away or failed, and with those that others
 * are to have; take more when there are some to be had.  Returns true if some
 * were given back.
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
 * Take a channel out of use.  Nobody submits anything to it any more, and its
 * stream gives it back before its next batch, or when it ends.
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
	if (chan->failures >= dcbm_max_failures && !chan->retiring)
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
