/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * mtcopy: what the caller and its helpers share.  See main.c for how they work
 * together.
 */
#ifndef _MTCOPY_H
#define _MTCOPY_H

#include <linux/atomic.h>
#include <linux/cpumask.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/migrate_copy_offload.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

/* The caller and its helpers. */
#define MTCOPY_MAX_THREADS 32

/* The core asks for no more pairs at once. */
#define MTCOPY_MAX_PAIRS 512

#define MTCOPY_MAX_CHUNKS 256

/*
 * A batch is cut into chunks of so many bytes, as far as MTCOPY_MAX_CHUNKS allows.
 * At the end of a batch the caller waits for what helpers are at.
 */
#define MTCOPY_CHUNK_BYTES SZ_64K

/* A thread takes this many bytes at once, or one chunk if that is more. */
#define MTCOPY_SHARE_BYTES SZ_128K

/* How long to spin for a helper: what takes longer has been preempted. */
#define MTCOPY_SPIN_NS (100 * NSEC_PER_USEC)

/* A pair of a batch. */
struct mtcopy_pair {
	struct llist_node node;		/* in mtcopy_stream.done */
	atomic_long_t bytes_left;
	unsigned int index;
};

/* A batch being copied. */
struct mtcopy_job {
	struct list_head list;		/* in .ready or .spare of the stream */
	struct migrate_copy_batch *batch;
	unsigned int next_chunk;	/* under the lock of the stream */
	unsigned int nr_chunks;
	unsigned int nr_pairs;
	unsigned int nr_left;		/* pairs, not yet reported */
	size_t chunk_bytes;
	struct migrate_copy_pos starts[MTCOPY_MAX_CHUNKS];
	struct mtcopy_pair pairs[MTCOPY_MAX_PAIRS];
};

/* Chunks of a job that follow each other: what somebody is at. */
struct mtcopy_share {
	struct mtcopy_job *job;
	unsigned int first_chunk;
	unsigned int nr_chunks;
};

struct mtcopy_stream;

struct mtcopy_helper {
	struct work_struct work;
	struct mtcopy_stream *stream;
	int cpu;
	bool busy;			/* set by the caller, cleared by it */
};

struct mtcopy_stream {
	/* Protects the next three; the caller reads the last two without it. */
	spinlock_t lock;
	struct list_head ready;		/* jobs with chunks to take */
	size_t ready_bytes;		/* about, of them */
	unsigned int nr_helpers;	/* that will look at @ready again */

	struct llist_head done;		/* pairs to report, the latest first */
	wait_queue_head_t wait;		/* the caller, for @done */
	bool closing;			/* nothing will come any more */
	struct migrate_copy_stream *core; /* which this is the private part of */

	int nid;			/* of the last batch */
	u64 asked_ns;			/* for CPUs, the last time */
	size_t submitted;		/* bytes */
	unsigned int nr_pairs;		/* in flight */
	struct list_head spare;		/* jobs to use again */
	struct cpumask allowed;		/* by the caller's cpuset */
	struct cpumask cpus;
	struct mtcopy_helper helpers[MTCOPY_MAX_THREADS - 1];
};

/* main.c */
extern struct workqueue_struct *mtcopy_wq;

/* helper.c */
bool mtcopy_take(struct mtcopy_stream *stream, struct mtcopy_share *share);
void mtcopy_copy_share(struct mtcopy_stream *stream,
		       const struct mtcopy_share *share);
void mtcopy_init_helpers(struct mtcopy_stream *stream);
unsigned int mtcopy_find_cpus(struct mtcopy_stream *stream, int nid,
			      unsigned int wanted);
void mtcopy_start_helpers(struct mtcopy_stream *stream);
void mtcopy_end_helpers(struct mtcopy_stream *stream);

#endif /* _MTCOPY_H */
