/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * mtcopy: data that the migrating task and its helpers share.  main.c describes
 * how they cooperate.
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

/* The migrating task and its helpers. */
#define MTCOPY_MAX_THREADS 32

/* The core puts at most this many pairs into a batch. */
#define MTCOPY_MAX_PAIRS 512

#define MTCOPY_MAX_CHUNKS 256

/*
 * Size of a chunk, unless a batch would have more than MTCOPY_MAX_CHUNKS then.
 * The task waits for helpers at the end of a batch, so chunks are small.
 */
#define MTCOPY_CHUNK_BYTES SZ_64K

/* A thread takes this many bytes at once, or one chunk if that is more. */
#define MTCOPY_SHARE_BYTES SZ_128K

/* Spin this long for a helper.  A helper that takes longer was preempted. */
#define MTCOPY_SPIN_NS (100 * NSEC_PER_USEC)

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
	unsigned int nr_left;		/* pairs not yet reported */
	size_t chunk_bytes;
	struct migrate_copy_pos starts[MTCOPY_MAX_CHUNKS];
	struct mtcopy_pair pairs[MTCOPY_MAX_PAIRS];
};

/* Consecutive chunks of a job, for one thread to copy. */
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
	bool busy;			/* set by the task, cleared by helper */
};

struct mtcopy_stream {
	/* Protects the next three.  The task reads the last two unlocked. */
	spinlock_t lock;
	struct list_head ready;		/* jobs with chunks to take */
	size_t ready_bytes;		/* approximate size of @ready */
	unsigned int nr_helpers;	/* that will check @ready again */

	struct llist_head done;		/* pairs to report, the latest first */
	wait_queue_head_t wait;		/* the task waits for @done */
	bool closing;			/* no batch will follow */
	struct migrate_copy_stream *core; /* the core's part of this stream */

	int nid;			/* destination of the last batch */
	u64 asked_ns;			/* time of the last search for CPUs */
	size_t submitted;		/* bytes */
	unsigned int nr_pairs;		/* in flight */
	struct list_head spare;		/* jobs to use again */
	struct cpumask allowed;		/* by the task's cpuset */
	struct cpumask cpus;
	struct mtcopy_helper helpers[MTCOPY_MAX_THREADS - 1];
};

/* main.c */
extern struct workqueue_struct *mtcopy_wq;

/* helper.c */
bool mtcopy_copy_share(struct mtcopy_stream *stream);
void mtcopy_init_helpers(struct mtcopy_stream *stream);
unsigned int mtcopy_find_cpus(struct mtcopy_stream *stream, int nid,
			      unsigned int wanted);
void mtcopy_start_helpers(struct mtcopy_stream *stream);
void mtcopy_end_helpers(struct mtcopy_stream *stream);

#endif /* _MTCOPY_H */
