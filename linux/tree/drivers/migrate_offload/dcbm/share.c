// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm: the share of a batch that the CPU copies.
 *
 * A task that waits for channels can copy meanwhile.  So dcbm sets aside the
 * end of each batch for it, as much as each channel gets.  The CPU starts at
 * the end and copies backwards, a few pages at a time.  The channels take over
 * the part that the CPU does not reach.
 */

#include <kunit/visibility.h>
#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/sched.h>
#include <linux/sched/stat.h>

#include "dcbm.h"

/* The CPU copies this much before it looks at the channels again. */
#define DCBM_SHARE_CHUNK max_t(size_t, SZ_16K, PAGE_SIZE)

/* Channels take nothing from a smaller share while the CPU copies it. */
#define DCBM_SHARE_MIN_TAKEN (4 * DCBM_SHARE_CHUNK)

bool dcbm_share_on = true;
EXPORT_SYMBOL_IF_KUNIT(dcbm_share_on);
module_param_named(cpu_share, dcbm_share_on, bool, 0644);
MODULE_PARM_DESC(cpu_share, "let a CPU that would have to wait copy a share itself, default Y");

atomic64_t dcbm_cpu_share_bytes;
EXPORT_SYMBOL_IF_KUNIT(dcbm_cpu_share_bytes);

/* Set aside the end of a new job for the CPU.  Returns its size. */
size_t dcbm_share_set(struct dcbm_job *job, unsigned int nr_chans)
{
	size_t left, share = 0;

	if (READ_ONCE(dcbm_share_on) && !job->stream->sparing)
		share = dcbm_cpu_share(job->batch->bytes, nr_chans);
	job->share = share;
	for (left = share; left; ) {
		size_t step = min(left, job->limit.offset);

		job->limit.offset -= step;
		left -= step;
		if (!job->limit.offset && job->limit.pair) {
			job->limit.pair--;
			job->limit.offset = job->pairs[job->limit.pair].bytes;
		}
	}
	return share;
}

/* Give up to @bytes of the CPU's share to the channels. */
static void dcbm_share_cede(struct dcbm_job *job, size_t bytes)
{
	struct migrate_copy_pos *limit = &job->limit;

	bytes = min(bytes, job->share);
	job->share -= bytes;
	while (bytes) {
		size_t end = limit->pair == job->end.pair ? job->end.offset :
			     job->pairs[limit->pair].bytes;
		size_t step = min(bytes, end - limit->offset);

		limit->offset += step;
		bytes -= step;
		if (limit->pair == job->end.pair)
			break;
		if (limit->offset == end) {
			limit->pair++;
			limit->offset = 0;
		}
	}
}

/*
 * If the channels have nothing to do, let them take from the CPU's share.
 * While the task waits, the CPU copies that share, so the channels take half of
 * the rest.  Returns true if the channels got something.
 */
bool dcbm_share_take(struct dcbm_stream *stream)
{
	struct dcbm_job *job;

	if (stream->nr_flying)
		return false;
	list_for_each_entry(job, &stream->jobs, node) {
		size_t bytes = job->share;

		if (stream->waits)
			bytes = bytes < DCBM_SHARE_MIN_TAKEN ?
				0 : PAGE_ALIGN(bytes / 2);
		if (!bytes)
			continue;
		dcbm_share_cede(job, bytes);
		return true;
	}
	return false;
}

/* Returns true if a share of any job is left. */
bool dcbm_share_left(const struct dcbm_stream *stream)
{
	struct dcbm_job *job;

	list_for_each_entry(job, &stream->jobs, node)
		if (job->share)
			return true;
	return false;
}

/* Another task wants the CPU, so give all shares to the channels. */
static void dcbm_share_drop(struct dcbm_stream *stream)
{
	struct dcbm_job *job;

	list_for_each_entry(job, &stream->jobs, node)
		dcbm_share_cede(job, job->share);
	dcbm_feed(stream);
}

/* Find the next chunk of a job's share, from the end.  Returns its size. */
static size_t dcbm_share_next(struct dcbm_job *job)
{
	struct migrate_copy_pos *end = &job->end;

	while (job->share) {
		struct dcbm_pair *pair = &job->pairs[end->pair];
		size_t start = end->pair == job->limit.pair ?
			       job->limit.offset : 0;
		size_t bytes = min(end->offset - start, DCBM_SHARE_CHUNK);

		/* The core copies failed folios.  Do not write to held ones. */
		if (pair->error)
			bytes = end->offset - start;
		end->offset -= bytes;
		job->share -= bytes;
		if (bytes && !pair->error)
			return bytes;
		if (end->pair == job->limit.pair)
			break;
		end->pair--;
		end->offset = job->pairs[end->pair].bytes;
	}
	job->share = 0;
	return 0;
}

static void dcbm_share_copy_chunk(struct dcbm_job *job, size_t bytes)
{
	struct migrate_copy_pos pos = job->end;
	int result;

	/* The task may be throttled while it copies. */
	dcbm_leave(job->stream);
	migrate_copy_range(job->batch, pos, bytes);
	dcbm_enter(job->stream);
	result = job->batch->pairs[pos.pair].result;
	dcbm_account(job, &job->pairs[pos.pair], bytes);
	if (result == -EHWPOISON) {
		dcbm_pair_fail(job, pos.pair, result);
		/* A channel may have failed before: the core must not read this. */
		job->pairs[pos.pair].error = result;
	}
	atomic64_add(bytes, &dcbm_cpu_share_bytes);
	dcbm_pair_check(job, pos.pair);
}

/*
 * Copy shares instead of waiting, until there is something to report, or to do
 * for the channels.  Returns false if nothing was copied: no share is left, or
 * another task wants the CPU.
 */
bool dcbm_share_copy(struct dcbm_stream *stream, u64 until)
{
	u64 nr_reported = stream->nr_reported;
	struct dcbm_job *job;
	bool copied = false;
	size_t bytes = 0;

	for (;;) {
		if (!dcbm_share_left(stream))
			break;
		if (need_resched() || !single_task_running()) {
			if (!copied)
				dcbm_share_drop(stream);
			break;
		}
		list_for_each_entry(job, &stream->jobs, node) {
			bytes = dcbm_share_next(job);
			if (bytes)
				break;
		}
		if (!bytes)
			break;
		dcbm_share_copy_chunk(job, bytes);
		copied = true;
		if (atomic_read(&stream->nr_events) ||
		    ktime_get_ns() >= until ||
		    stream->nr_reported != nr_reported)
			break;
	}
	return copied;
}
