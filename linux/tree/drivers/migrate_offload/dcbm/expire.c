// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: leases that expire while their task does not run.
 *
 * A task may be throttled (cpu.max), or wait for a CPU, while its stream has
 * channels that other tasks want, or whose driver is being unbound.  A worker
 * then collects the stream's pieces, which unmaps them, and gives back all
 * channels with nothing in flight.  The task reports the folios when it runs
 * again: only the task may do that.
 *
 * ->inside says that a context works with the stream: its task, or the worker.
 * dcbm_lock protects this field.  A task that is throttled inside keeps its
 * channels, so it leaves whenever it waits, and while it copies.
 */

#include <linux/jiffies.h>
#include <linux/wait.h>

#include "dcbm.h"

static bool dcbm_try_enter(struct dcbm_stream *stream)
{
	bool free;

	spin_lock(&dcbm_lock);
	free = !stream->inside;
	stream->inside = true;
	spin_unlock(&dcbm_lock);
	return free;
}

/* The task wants to work with its stream.  A worker may be inside. */
void dcbm_enter(struct dcbm_stream *stream)
{
	wait_event(dcbm_idle_wq, dcbm_try_enter(stream));
}

void dcbm_leave(struct dcbm_stream *stream)
{
	spin_lock(&dcbm_lock);
	stream->inside = false;
	stream->left_at = jiffies;
	spin_unlock(&dcbm_lock);
}

/* The worker is inside.  Afterwards the task finds an event. */
static void dcbm_help(struct dcbm_stream *stream)
{
	stream->helped = true;
	dcbm_collect(stream);
	dcbm_check(stream);
	stream->helped = false;
	atomic_add(DCBM_URGENT, &stream->nr_events);
	wake_up(&stream->wq);
}

void dcbm_expire_fn(struct work_struct *work)
{
	struct dcbm_chan *chan, *next;
	struct dcbm_stream *stream;

	spin_lock(&dcbm_lock);
	while ((stream = dcbm_expired())) {
		stream->inside = true;
		spin_unlock(&dcbm_lock);
		dcbm_help(stream);
		spin_lock(&dcbm_lock);
		list_for_each_entry_safe(chan, next, &stream->chans, lease)
			if (!chan->nr_flying)
				dcbm_chan_give_back(stream, chan);
		stream->inside = false;
		stream->left_at = jiffies;
		/* Its task waits, and dcbm_chan_take_out() for a channel. */
		wake_up_all(&dcbm_idle_wq);
	}
	dcbm_count_usable();
	spin_unlock(&dcbm_lock);
}
