// SPDX-License-Identifier: GPL-2.0-only
/*
 * The streaming mode of the test engine, as a device with a queue.  A work item
 * copies batches side by side, and reports pairs one by one.
 *
 * Files in /sys/kernel/debug/migrate_offload_test/ that differ, or are new:
 *
 *   decline		refuse every stream
 *   decline_submit	refuse every batch
 *   decline_nth	refuse the nth batch from now on
 *   delay_us		time from the submission of a batch to the copy of its
 *			first pair; batches do not wait for each other
 *   submit_delay_us	time to submit a batch, during which the caller waits
 *   pair_delay_us	time for each pair, one after the other
 *   report_early	in submit(), wait for all earlier batches, and report
 *			them at once
 *   order		fifo, reverse or random: the order of pairs within a
 *			batch, and of batches that are ready
 *   fail_nth, lie_nth, hold_nth
 *			as in the other modes; folios count at submission,
 *			whatever the order of their copies
 *   report_now		in submit(), also wait for the new batch
 *   unneeded_waits	how often the core wanted to wait without reading early
 *			reports first, or with nothing in flight
 *   helper_ms		report this much CPU time of helpers with the next batch
 *   streams		number of streams so far
 *   max_in_flight	the largest number of batches that a stream had in
 *			flight; can be set
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/mempool.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "test_engine.h"

/* The core puts at most this many pairs into a batch. */
#define TEST_MAX_PAIRS 512

/* Memory is reserved for this many streams and batches in flight. */
#define TEST_MIN_STREAMS 4
#define TEST_MIN_JOBS 16

/* A verdict beside the results of test_look_at(): hold the pair. */
#define TEST_HOLD 2

struct test_pair {
	struct llist_node node;		/* in test_stream.done */
	unsigned short index;
	short verdict;
};

/* A batch in flight. */
struct test_job {
	struct list_head list;		/* in test_stream.jobs */
	struct migrate_copy_batch *batch;
	u64 ready_ns;
	unsigned int nr_pairs;
	unsigned int nr_copied;		/* used by the work item */
	unsigned int nr_left;		/* pairs to report, for the caller */
	unsigned short order[TEST_MAX_PAIRS];
	struct test_pair pairs[TEST_MAX_PAIRS];
};

struct test_stream {
	struct work_struct work;
	spinlock_t lock;		/* protects @jobs */
	struct list_head jobs;		/* with pairs to copy, oldest first */
	struct llist_head done;		/* pairs to report, the latest first */
	wait_queue_head_t wait;		/* the caller waits for @done */
	unsigned int nr_in_flight;	/* batches; used by the caller */
	bool reported_early;		/* since the last reap */
};

static struct workqueue_struct *test_wq;
static mempool_t *test_streams;
static mempool_t *test_jobs;

static bool decline_submit;
static atomic_t decline_nth;
static u32 submit_delay_us;
static u32 pair_delay_us;
static bool report_early;
static bool report_now;
static atomic_t nr_unneeded_waits;
static atomic_t helper_ms;
static atomic_t nr_streams;
static atomic_t max_in_flight;

enum test_order {
	TEST_FIFO,
	TEST_REVERSE,
	TEST_RANDOM,
};

static const char * const test_order_names[] = {
	[TEST_FIFO] = "fifo",
	[TEST_REVERSE] = "reverse",
	[TEST_RANDOM] = "random",
};

static enum test_order test_order;

/*
 * Pick a batch that is ready: the first, the last, or any.  Sets @wait_ns to
 * the time until the next batch gets ready, or to U64_MAX.
 */
static struct test_job *test_pick_job(struct test_stream *stream, u64 *wait_ns)
{
	enum test_order order = READ_ONCE(test_order);
	struct test_job *job, *picked = NULL;
	u64 now = ktime_get_ns();
	unsigned int nr = 0;

	*wait_ns = U64_MAX;
	spin_lock(&stream->lock);
	list_for_each_entry(job, &stream->jobs, list) {
		if (job->ready_ns > now) {
			*wait_ns = min(*wait_ns, job->ready_ns - now);
			continue;
		}
		nr++;
		if (!picked || order == TEST_REVERSE ||
		    (order == TEST_RANDOM && !get_random_u32_below(nr)))
			picked = job;
	}
	spin_unlock(&stream->lock);
	return picked;
}

/* The job may be freed after its last pair is reported. */
static void test_copy_next(struct test_stream *stream, struct test_job *job)
{
	struct test_pair *pair = &job->pairs[job->order[job->nr_copied]];
	struct folio *src = job->batch->pairs[pair->index].src;
	struct migrate_copy_pos pos = { .pair = pair->index };

	test_sleep(&pair_delay_us);
	if (pair->verdict == 1)
		migrate_copy_range(job->batch, pos, folio_size(src));
	test_pair_copied(src, !job->nr_copied, job->nr_pairs > 1);

	if (++job->nr_copied == job->nr_pairs) {
		test_batch_copied();
		spin_lock(&stream->lock);
		list_del(&job->list);
		spin_unlock(&stream->lock);
	}
	llist_add(&pair->node, &stream->done);
	wake_up(&stream->wait);
}

static void test_stream_work(struct work_struct *work)
{
	struct test_stream *stream = container_of(work, struct test_stream,
						  work);
	struct test_job *job;
	u64 wait_ns;

	for (;;) {
		job = test_pick_job(stream, &wait_ns);
		if (job)
			test_copy_next(stream, job);
		else if (wait_ns != U64_MAX)
			fsleep(DIV_ROUND_UP_ULL(wait_ns, NSEC_PER_USEC));
		else
			break;
		cond_resched();
	}
}

static int test_stream_open(struct migrate_copy_stream *copy_stream)
{
	struct test_stream *stream;

	if (READ_ONCE(test_decline)) {
		atomic_inc(&test_batches);
		return -EOPNOTSUPP;
	}
	stream = mempool_alloc(test_streams, __GFP_NOWARN);
	if (!stream)
		return -EBUSY;

	INIT_WORK(&stream->work, test_stream_work);
	spin_lock_init(&stream->lock);
	INIT_LIST_HEAD(&stream->jobs);
	init_llist_head(&stream->done);
	init_waitqueue_head(&stream->wait);
	stream->nr_in_flight = 0;
	stream->reported_early = false;
	copy_stream->private = stream;
	atomic_inc(&nr_streams);
	return 0;
}

static void test_shuffle(struct test_job *job)
{
	enum test_order order = READ_ONCE(test_order);
	unsigned int i, other, last = job->nr_pairs - 1;

	for (i = 0; i <= last; i++)
		job->order[i] = order == TEST_REVERSE ? last - i : i;
	for (i = last; order == TEST_RANDOM && i; i--) {
		other = get_random_u32_below(i + 1);
		swap(job->order[i], job->order[other]);
	}
}

static void test_fill_job(struct test_job *job,
			  struct migrate_copy_batch *batch)
{
	unsigned int i;

	job->batch = batch;
	job->ready_ns = ktime_get_ns() +
			(u64)READ_ONCE(test_delay_us) * NSEC_PER_USEC;
	job->nr_pairs = batch->nr_pairs;
	job->nr_left = batch->nr_pairs;
	job->nr_copied = 0;
	for (i = 0; i < batch->nr_pairs; i++) {
		struct test_pair *pair = &job->pairs[i];

		pair->index = i;
		pair->verdict = test_wants_hold() ? TEST_HOLD :
				test_look_at(batch->pairs[i].src);
		/* If test_hold() holds another pair, this one fails. */
		batch->pairs[i].result = pair->verdict == TEST_HOLD ? -EIO :
					 min(pair->verdict, 0);
	}
	test_shuffle(job);
}

static void test_report(struct test_stream *stream)
{
	struct llist_node *done = llist_del_all(&stream->done);
	struct test_pair *pair, *next;

	done = llist_reverse_order(done);
	llist_for_each_entry_safe(pair, next, done, node) {
		struct test_job *job =
			container_of(pair - pair->index, struct test_job,
				     pairs[0]);

		if (pair->verdict == TEST_HOLD)
			test_hold(&job->batch->pairs[pair->index]);
		migrate_copy_done(job->batch, pair->index);
		if (--job->nr_left)
			continue;
		mempool_free(job, test_jobs);
		stream->nr_in_flight--;
		atomic_dec(&test_in_copy);
	}
}

static void test_report_early(struct test_stream *stream)
{
	while (stream->nr_in_flight) {
		wait_event(stream->wait, !llist_empty(&stream->done));
		test_report(stream);
		stream->reported_early = true;
	}
}

static int test_stream_submit(struct migrate_copy_stream *copy_stream,
			      struct migrate_copy_batch *batch)
{
	struct test_stream *stream = copy_stream->private;
	struct test_job *job;

	atomic_inc(&test_batches);
	if (READ_ONCE(decline_submit) || batch->nr_pairs > TEST_MAX_PAIRS ||
	    atomic_dec_if_positive(&decline_nth) == 0)
		return -EOPNOTSUPP;
	if (READ_ONCE(report_early))
		test_report_early(stream);
	test_sleep(&submit_delay_us);
	job = mempool_alloc(test_jobs, __GFP_NOWARN);
	if (!job)
		return -EBUSY;

	migrate_copy_note_helpers(copy_stream, atomic_xchg(&helper_ms, 0) *
				  (u64)NSEC_PER_MSEC);
	atomic_inc(&test_in_copy);
	test_fill_job(job, batch);
	/* Another stream may race, and overwrite a larger number at worst. */
	if (++stream->nr_in_flight > atomic_read(&max_in_flight))
		atomic_set(&max_in_flight, stream->nr_in_flight);
	spin_lock(&stream->lock);
	list_add_tail(&job->list, &stream->jobs);
	spin_unlock(&stream->lock);
	queue_work(test_wq, &stream->work);
	if (READ_ONCE(report_now))
		test_report_early(stream);
	return 0;
}

static void test_stream_reap(struct migrate_copy_stream *copy_stream,
			     u64 wait_ns)
{
	struct test_stream *stream = copy_stream->private;

	if (wait_ns && (stream->reported_early || !stream->nr_in_flight))
		atomic_inc(&nr_unneeded_waits);
	stream->reported_early = false;
	if (wait_ns && stream->nr_in_flight)
		wait_event_hrtimeout(stream->wait, !llist_empty(&stream->done),
				     min(wait_ns, (u64)KTIME_MAX));
	if (!llist_empty(&stream->done))
		test_report(stream);
}

static void test_stream_close(struct migrate_copy_stream *copy_stream)
{
	struct test_stream *stream = copy_stream->private;

	WARN_ON(stream->nr_in_flight);
	cancel_work_sync(&stream->work);
	mempool_free(stream, test_streams);
}

const struct migrate_engine_ops test_stream_engine = {
	.name = "test",
	.owner = THIS_MODULE,
	.open = test_stream_open,
	.submit = test_stream_submit,
	.reap = test_stream_reap,
	.close = test_stream_close,
};

static ssize_t order_read(struct file *file, char __user *ubuf, size_t count,
			  loff_t *ppos)
{
	char line[16];
	int len;

	len = scnprintf(line, sizeof(line), "%s\n",
			test_order_names[READ_ONCE(test_order)]);
	return simple_read_from_buffer(ubuf, count, ppos, line, len);
}

static ssize_t order_write(struct file *file, const char __user *ubuf,
			   size_t count, loff_t *ppos)
{
	char line[16];
	int order;

	if (count >= sizeof(line))
		return -EINVAL;
	if (copy_from_user(line, ubuf, count))
		return -EFAULT;
	line[count] = '\0';
	order = sysfs_match_string(test_order_names, line);
	if (order < 0)
		return order;
	WRITE_ONCE(test_order, order);
	return count;
}

static const struct file_operations order_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = order_read,
	.write = order_write,
};

void test_stream_create_files(struct dentry *dir)
{
	debugfs_create_bool("decline_submit", 0600, dir, &decline_submit);
	debugfs_create_atomic_t("decline_nth", 0600, dir, &decline_nth);
	debugfs_create_u32("submit_delay_us", 0600, dir, &submit_delay_us);
	debugfs_create_u32("pair_delay_us", 0600, dir, &pair_delay_us);
	debugfs_create_bool("report_early", 0600, dir, &report_early);
	debugfs_create_bool("report_now", 0600, dir, &report_now);
	debugfs_create_atomic_t("unneeded_waits", 0400, dir, &nr_unneeded_waits);
	debugfs_create_file("order", 0600, dir, NULL, &order_fops);
	debugfs_create_atomic_t("helper_ms", 0600, dir, &helper_ms);
	debugfs_create_atomic_t("streams", 0400, dir, &nr_streams);
	debugfs_create_atomic_t("max_in_flight", 0600, dir, &max_in_flight);
}

int test_stream_init(void)
{
	/* A caller that reclaims memory may wait for this work. */
	test_wq = alloc_workqueue("migrate_offload_test",
				  WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	if (!test_wq)
		return -ENOMEM;
	test_streams = mempool_create_kmalloc_pool(TEST_MIN_STREAMS,
						   sizeof(struct test_stream));
	test_jobs = mempool_create_kmalloc_pool(TEST_MIN_JOBS,
						sizeof(struct test_job));
	if (test_streams && test_jobs)
		return 0;
	test_stream_exit();
	return -ENOMEM;
}

void test_stream_exit(void)
{
	mempool_destroy(test_jobs);
	mempool_destroy(test_streams);
	destroy_workqueue(test_wq);
}
