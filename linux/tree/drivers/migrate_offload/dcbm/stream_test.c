// SPDX-License-Identifier: GPL-2.0-only
/*
 * Unit tests of dcbm's streams.  dcbm has channels of one device of dmasim, the
 * simulated DMA engine, and copies folios that the tests allocate.
 *
 * tools/testing/selftests/migrate_offload/engines/dcbm_streams.sh loads both
 * modules.
 */

#include <kunit/test.h>
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/leafops.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nodemask.h>
#include <linux/string.h>

#include "stream_test.h"

MODULE_IMPORT_NS("EXPORTED_FOR_KUNIT_TESTING");

/* Slow enough to look during the copy: four channels take 262 ms for 2 MiB. */
#define TEST_SLOW_MBPS 2
#define TEST_EARLY_MS 200
#define TEST_LARGE_ORDER get_order(SZ_2M)
/* Only a copy that never completes takes this long. */
#define TEST_TIMEOUT (20 * HZ)
/* Timeout of a stalled channel.  A busy host may delay the test by a second. */
#define TEST_STALL_MS 4000

static bool test_same(struct migrate_copy_pair *pair)
{
	return !memcmp(folio_address(pair->dst), folio_address(pair->src),
		       folio_size(pair->src));
}

int test_open_for(struct test_ctx *ctx, int which, size_t bytes,
		  enum migrate_reason reason)
{
	int rc;

	ctx->streams[which].reason = reason;
	ctx->streams[which].dst_nid = first_memory_node;
	ctx->streams[which].bytes = bytes;
	rc = dcbm_ops.open(&ctx->streams[which]);
	ctx->open[which] = !rc;
	return rc;
}

static int test_open(struct test_ctx *ctx, int which, size_t bytes)
{
	return test_open_for(ctx, which, bytes, MR_SYSCALL);
}

void test_close(struct test_ctx *ctx, int which)
{
	if (ctx->open[which])
		dcbm_ops.close(&ctx->streams[which]);
	ctx->open[which] = false;
}

static unsigned int test_nr_chans(struct test_ctx *ctx, int which)
{
	struct dcbm_stream *stream = ctx->streams[which].private;

	return stream->nr_chans;
}

static bool test_done(const struct migrate_copy_batch *batch)
{
	return batch->nr_done == batch->nr_pairs;
}

/* Reap until @batch is done.  Returns how many reaps reported pairs of it. */
unsigned int test_reap(struct kunit *test, int which,
		       struct migrate_copy_batch *batch)
{
	struct test_ctx *ctx = test->priv;
	unsigned long end = jiffies + TEST_TIMEOUT;
	unsigned int nr = 0, before;

	while (!test_done(batch)) {
		KUNIT_ASSERT_TRUE(test, time_before(jiffies, end));
		before = batch->nr_done;
		dcbm_ops.reap(&ctx->streams[which], U64_MAX);
		nr += batch->nr_done != before;
	}
	return nr;
}

/* Check all results and the copied folios.  Returns how many folios failed. */
unsigned int test_check(struct kunit *test, struct migrate_copy_batch *batch,
			int error)
{
	unsigned int i, nr_failed = 0;

	KUNIT_EXPECT_TRUE(test, test_done(batch));
	for (i = 0; i < batch->nr_pairs; i++) {
		struct migrate_copy_pair *pair = &batch->pairs[i];

		KUNIT_EXPECT_FALSE(test, pair->held);
		KUNIT_EXPECT_TRUE(test, pair->done);
		if (pair->result) {
			KUNIT_EXPECT_EQ(test, pair->result, error);
			nr_failed++;
		} else {
			KUNIT_EXPECT_TRUE(test, test_same(pair));
		}
	}
	return nr_failed;
}

static void test_set_rate(struct test_ctx *ctx, u32 mbps)
{
	int i;

	for (i = 0; i < TEST_CHANS; i++)
		WRITE_ONCE(ctx->sim[i]->bandwidth_mbps, mbps);
}

/* Submit one large folio, then many small ones. */
static void test_submit_two(struct kunit *test, unsigned int order)
{
	struct test_ctx *ctx = test->priv;
	int i;

	test_batch(test, 0, 1, TEST_LARGE_ORDER);
	test_batch(test, 1, TEST_MANY, order);
	KUNIT_ASSERT_EQ(test, test_open(ctx, 0, SZ_2M), 0);
	KUNIT_ASSERT_EQ(test, test_nr_chans(ctx, 0), TEST_CHANS);
	for (i = 0; i < TEST_BATCHES; i++)
		KUNIT_ASSERT_EQ(test, dcbm_ops.submit(&ctx->streams[0],
						      ctx->batches[i]), 0);
}

/* dcbm starts the second batch before the first has ended. */
static void dcbm_stream_two_batches(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	unsigned int nr_reaps, submitted, most_reaps = 0, nr_early = 0;
	int round, i;

	test_set_rate(ctx, TEST_SLOW_MBPS);
	/* At least two rounds: the second starts from the first's state. */
	for (round = 0; round < 2 ||
	     (round < 10 && (most_reaps <= 1 || !nr_early)); round++) {
		unsigned long late = jiffies + msecs_to_jiffies(TEST_EARLY_MS);

		test_submit_two(test, 4);
		submitted = ctx->batches[0]->nr_done;
		dcbm_ops.reap(&ctx->streams[0], 0);
		/* The checks are valid only if this task ran early enough. */
		if (time_before(jiffies, late)) {
			KUNIT_EXPECT_EQ(test, submitted, 0);
			KUNIT_EXPECT_EQ(test, ctx->batches[1]->nr_done, 0);
			nr_early++;
		}
		nr_reaps = test_reap(test, 0, ctx->batches[1]);
		most_reaps = max(most_reaps, nr_reaps);
		test_reap(test, 0, ctx->batches[0]);
		for (i = 0; i < TEST_BATCHES; i++) {
			KUNIT_EXPECT_EQ(test, test_check(test, ctx->batches[i],
							 0), 0);
			test_batch_free(ctx->batches[i]);
			ctx->batches[i] = NULL;
		}
		test_close(ctx, 0);
	}
	/* dcbm reports folios before their batch has ended. */
	KUNIT_EXPECT_GT(test, most_reaps, 1);
	KUNIT_EXPECT_GT(test, nr_early, 0);
}

/* dcbm reports folios in the order of their completion, each once. */
static void dcbm_stream_order(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct migrate_copy_batch *batch;
	unsigned int i, overtaken = 0;

	test_set_rate(ctx, TEST_SLOW_MBPS);
	test_submit_two(test, 0);
	batch = ctx->batches[1];
	test_reap(test, 0, ctx->batches[0]);
	test_reap(test, 0, batch);
	for (i = 0; i < TEST_MANY; i++) {
		KUNIT_EXPECT_LT(test, batch->pairs[i].nth_done, TEST_MANY);
		overtaken += batch->pairs[i].nth_done != i;
	}
	/* On channels that complete in any order, folios overtake others. */
	if (!ctx->chans[0]->ordered)
		KUNIT_EXPECT_GT(test, overtaken, 0);
	KUNIT_EXPECT_EQ(test, test_check(test, batch, 0), 0);
}

static void dcbm_stream_fail(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;

	test_set_rate(ctx, TEST_SLOW_MBPS);
	atomic_set(&ctx->sim[1]->triggers[DMASIM_FAIL].nth, 1);
	test_submit_two(test, 0);
	test_reap(test, 0, ctx->batches[0]);
	test_reap(test, 0, ctx->batches[1]);
	KUNIT_EXPECT_EQ(test, test_check(test, ctx->batches[0], -EIO), 1);
	KUNIT_EXPECT_EQ(test, test_check(test, ctx->batches[1], -EIO), 0);
}

/*
 * A channel stalls with pieces of both batches.  Other folios of the second
 * batch do not fail, and do not wait for the timeout.
 */
static void dcbm_stream_stall(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct migrate_copy_batch *second;
	unsigned int nr_failed, early;
	unsigned long end;

	WRITE_ONCE(dcbm_timeout_ms, TEST_STALL_MS);
	WRITE_ONCE(ctx->chans[1]->stops, true);
	atomic_set(&ctx->sim[1]->triggers[DMASIM_STALL].nth, 1);
	test_submit_two(test, 0);
	second = ctx->batches[1];
	end = jiffies + msecs_to_jiffies(TEST_STALL_MS / 2);
	do {
		usleep_range(5000, 6000);
		dcbm_ops.reap(&ctx->streams[0], 0);
		early = second->nr_done;
	} while (!early && time_before(jiffies, end));
	test_reap(test, 0, ctx->batches[0]);
	test_reap(test, 0, second);
	KUNIT_EXPECT_EQ(test, test_check(test, ctx->batches[0], -ETIMEDOUT), 1);
	nr_failed = test_check(test, second, -ETIMEDOUT);
	KUNIT_EXPECT_LE(test, nr_failed, TEST_MANY / 2);
	KUNIT_EXPECT_GT(test, early, 0);
	KUNIT_EXPECT_EQ(test, ctx->chans[1]->nr_away, 0);

	/* The channel works again. */
	test_batch_free(second);
	second = test_batch(test, 1, TEST_MANY, 0);
	KUNIT_ASSERT_EQ(test, dcbm_ops.submit(&ctx->streams[0], second), 0);
	test_reap(test, 0, second);
	KUNIT_EXPECT_EQ(test, test_check(test, second, 0), 0);
}

/*
 * dcbm reports the last folio of the channels' part while other folios are
 * still in flight.  The core may then free this folio, and its pages may become
 * a larger folio, which test_grow() imitates.  Then the channels take over the
 * CPU's share behind this folio.  dcbm must not use the new size.
 */
static void dcbm_stream_reported(struct kunit *test)
{
	const size_t behind = (PAGE_SIZE << TEST_GROWN_ORDER) - PAGE_SIZE;
	/* A channel gets so many small folios at once. */
	const unsigned int run = SZ_32K / PAGE_SIZE;
	const unsigned int nr = (TEST_CHANS + 1) * run;
	const unsigned int last = TEST_CHANS * run - 1;
	struct test_ctx *ctx = test->priv;
	unsigned long end = jiffies + TEST_TIMEOUT;
	struct migrate_copy_batch *batch = test_batch_to_grow(test, nr);
	struct dcbm_stream *stream;
	struct dcbm_chan *chan;
	struct dcbm_job *job;
	unsigned int i;

	KUNIT_ASSERT_EQ(test, test_open(ctx, 0, SZ_2M), 0);
	KUNIT_ASSERT_EQ(test, test_nr_chans(ctx, 0), TEST_CHANS);
	stream = ctx->streams[0].private;
	/*
	 * Each channel gets one run.  The last run comes back a second before
	 * the others, so that this task gets a CPU meanwhile.
	 */
	list_for_each_entry(chan, &stream->chans, lease)
		to_dmasim_chan(chan->dma)->latency_us = USEC_PER_SEC;
	chan = list_last_entry(&stream->chans, struct dcbm_chan, lease);
	to_dmasim_chan(chan->dma)->latency_us = 0;
	WRITE_ONCE(dcbm_share_on, true);
	KUNIT_ASSERT_EQ(test, dcbm_ops.submit(&ctx->streams[0], batch), 0);
	job = list_first_entry(&stream->jobs, struct dcbm_job, node);
	KUNIT_ASSERT_EQ(test, job->share, SZ_32K);
	/* Do not wait, because a task that waits copies the share. */
	while (!test_done(batch)) {
		KUNIT_ASSERT_TRUE(test, time_before(jiffies, end));
		dcbm_ops.reap(&ctx->streams[0], 0);
		for (i = 0; i < nr; i++)
			if (batch->pairs[i].done)
				test_grow(batch->pairs[i].src);
		usleep_range(1000, 2000);
	}
	for (i = 0; batch->pairs[i].nth_done != last; i++)
		KUNIT_ASSERT_NE(test, batch->pairs[i].nth_done, 0);
	for (i = 0; i < nr; i++) {
		void *src = folio_address(batch->pairs[i].src);
		void *dst = folio_address(batch->pairs[i].dst);

		KUNIT_EXPECT_EQ(test, batch->pairs[i].result, 0);
		KUNIT_EXPECT_MEMEQ(test, dst, src, PAGE_SIZE);
		KUNIT_EXPECT_PTR_EQ(test,
				    memchr_inv(dst + PAGE_SIZE, 0xee, behind),
				    NULL);
	}
}

/* Copy the same folios once more. */
static void test_copy_again(struct kunit *test, struct migrate_copy_batch *batch)
{
	struct test_ctx *ctx = test->priv;
	unsigned int i;

	batch->nr_done = 0;
	for (i = 0; i < batch->nr_pairs; i++) {
		batch->pairs[i].result = -EINPROGRESS;
		batch->pairs[i].done = false;
	}
	KUNIT_ASSERT_EQ(test, dcbm_ops.submit(&ctx->streams[0], batch), 0);
	test_reap(test, 0, batch);
}

static void test_count(struct test_ctx *ctx, u64 *asked, u64 *seen)
{
	int i;

	*asked = 0;
	*seen = 0;
	for (i = 0; i < TEST_CHANS; i++) {
		*asked += ctx->chans[i]->interrupts;
		*seen += ctx->sim[i]->stats.interrupts;
	}
}

/* On channels that work in order, 16 small folios share an interrupt. */
static void dcbm_stream_interrupts(struct kunit *test)
{
	u64 asked, seen, asked_before, seen_before;
	struct test_ctx *ctx = test->priv;
	struct migrate_copy_batch *batch;
	int tries = 0;

	if (list_count_nodes(&ctx->sim[0]->free) < TEST_MANY)
		kunit_skip(test, "needs %u descriptors", TEST_MANY);
	batch = test_batch(test, 0, DCBM_MAX_PAIRS, 0);
	KUNIT_ASSERT_EQ(test, test_open(ctx, 0, SZ_2M), 0);
	/* The first list shows how many descriptors the channels take. */
	KUNIT_ASSERT_EQ(test, dcbm_ops.submit(&ctx->streams[0], batch), 0);
	test_reap(test, 0, batch);
	/*
	 * A busy host may stop the channels.  Their queues fill, and dcbm asks
	 * for an interrupt where a queue is full.
	 */
	do {
		test_count(ctx, &asked_before, &seen_before);
		test_copy_again(test, batch);
		test_count(ctx, &asked, &seen);
	} while (ctx->chans[0]->batches && ++tries < 10 &&
		 asked - asked_before > DCBM_MAX_PAIRS / 16);
	if (ctx->chans[0]->batches) {
		KUNIT_EXPECT_LE(test, asked - asked_before, DCBM_MAX_PAIRS / 16);
		KUNIT_EXPECT_LE(test, seen - seen_before, DCBM_MAX_PAIRS / 16);
	} else {
		KUNIT_EXPECT_GT(test, asked - asked_before, DCBM_MAX_PAIRS / 16);
	}
	KUNIT_EXPECT_EQ(test, test_check(test, batch, 0), 0);
}

/* Folios that are next to each other on both sides share a descriptor. */
static void dcbm_stream_adjacent(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	unsigned int i, nr_failed, nr = 0;
	struct migrate_copy_batch *batch;

	for (i = 0; i < TEST_CHANS; i++)
		nr -= ctx->chans[i]->descriptors;
	batch = test_batch_adjacent(test, 0, ilog2(TEST_MANY));
	KUNIT_ASSERT_EQ(test, test_open(ctx, 0, SZ_2M), 0);
	KUNIT_ASSERT_EQ(test, dcbm_ops.submit(&ctx->streams[0], batch), 0);
	test_reap(test, 0, batch);
	KUNIT_EXPECT_EQ(test, test_check(test, batch, 0), 0);
	for (i = 0; i < TEST_CHANS; i++)
		nr += ctx->chans[i]->descriptors;
	KUNIT_EXPECT_LE(test, nr, TEST_MANY / 2);

	/* An error concerns the folios of one descriptor. */
	test_batch_free(batch);
	batch = test_batch_adjacent(test, 0, ilog2(TEST_MANY));
	atomic_set(&ctx->sim[1]->triggers[DMASIM_FAIL].nth, 1);
	KUNIT_ASSERT_EQ(test, dcbm_ops.submit(&ctx->streams[0], batch), 0);
	test_reap(test, 0, batch);
	nr_failed = test_check(test, batch, -EIO);
	KUNIT_EXPECT_GT(test, nr_failed, 1);
	KUNIT_EXPECT_LE(test, nr_failed, TEST_MANY / TEST_CHANS);
}

/* A second stream gets its share, and the first one gets it back later. */
static void dcbm_stream_fair(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	unsigned long end = jiffies + TEST_TIMEOUT;
	struct migrate_copy_batch *a, *b;

	test_set_rate(ctx, TEST_SLOW_MBPS);
	a = test_batch(test, 0, 1, 4);
	b = test_batch(test, 1, 1, TEST_LARGE_ORDER);
	KUNIT_ASSERT_EQ(test, test_open(ctx, 0, SZ_2M), 0);
	KUNIT_ASSERT_EQ(test, dcbm_ops.submit(&ctx->streams[0], a), 0);
	KUNIT_EXPECT_EQ(test, test_nr_chans(ctx, 0), TEST_CHANS);
	KUNIT_EXPECT_FALSE(test, dcbm_ops.wants(first_memory_node, SZ_2M));
	test_reap(test, 0, a);
	/* Ask again, as dcbm forgets the first call.  The stream gives half. */
	dcbm_ops.wants(first_memory_node, SZ_2M);
	test_copy_again(test, a);
	KUNIT_EXPECT_EQ(test, test_nr_chans(ctx, 0), TEST_CHANS / 2);
	KUNIT_EXPECT_TRUE(test, dcbm_ops.wants(first_memory_node, SZ_2M));
	KUNIT_ASSERT_EQ(test, test_open(ctx, 1, SZ_2M), 0);
	KUNIT_EXPECT_EQ(test, test_nr_chans(ctx, 1), TEST_CHANS / 2);
	KUNIT_ASSERT_EQ(test, dcbm_ops.submit(&ctx->streams[1], b), 0);
	test_reap(test, 1, b);
	KUNIT_EXPECT_EQ(test, test_check(test, b, 0), 0);
	test_close(ctx, 1);

	while (test_nr_chans(ctx, 0) < TEST_CHANS) {
		KUNIT_ASSERT_TRUE(test, time_before(jiffies, end));
		msleep(20);
		test_copy_again(test, a);
	}
	KUNIT_EXPECT_EQ(test, test_check(test, a, 0), 0);
}

/*
 * A task does not run, and has channels that another one wants.  The other gets
 * them.  When the task runs again, it finds what was copied meanwhile.
 */
static void dcbm_stream_expires(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	unsigned long end = jiffies + TEST_TIMEOUT;
	struct migrate_copy_batch *a, *b;

	a = test_batch(test, 0, TEST_MANY, 0);
	b = test_batch(test, 1, 1, 4);
	KUNIT_ASSERT_EQ(test, test_open(ctx, 0, SZ_2M), 0);
	KUNIT_ASSERT_EQ(test, dcbm_ops.submit(&ctx->streams[0], a), 0);
	KUNIT_EXPECT_EQ(test, test_nr_chans(ctx, 0), TEST_CHANS);
	WRITE_ONCE(dcbm_lease_ms, 20);
	while (!dcbm_ops.wants(first_memory_node, SZ_2M)) {
		KUNIT_ASSERT_TRUE(test, time_before(jiffies, end));
		msleep(20);
	}
	/* Only the task itself may report. */
	KUNIT_EXPECT_EQ(test, a->nr_done, 0);
	KUNIT_ASSERT_EQ(test, test_open(ctx, 1, SZ_2M), 0);
	KUNIT_ASSERT_EQ(test, dcbm_ops.submit(&ctx->streams[1], b), 0);
	test_reap(test, 1, b);
	KUNIT_EXPECT_EQ(test, test_check(test, b, -EBUSY), 0);
	test_reap(test, 0, a);
	/* With few descriptors, some pieces were not submitted. */
	KUNIT_EXPECT_LT(test, test_check(test, a, -EBUSY), TEST_MANY);
}

static int dcbm_stream_test_init(struct kunit *test)
{
	struct test_ctx *ctx = kunit_kzalloc(test, sizeof(*ctx), GFP_KERNEL);
	struct dcbm_chan *chan;
	int i = 0;

	KUNIT_ASSERT_NOT_NULL(test, ctx);
	/* Nothing changes the list during the tests. */
	list_for_each_entry(chan, &dcbm_chans, node) {
		struct device_driver *driver = chan->provider->driver;

		if (i == TEST_CHANS || !driver ||
		    strcmp(driver->name, DMASIM_NAME))
			return -ENODEV;
		ctx->chans[i] = chan;
		ctx->sim[i++] = to_dmasim_chan(chan->dma);
	}
	if (i < TEST_CHANS)
		return -ENODEV;
	/* On an emulated machine, a short timeout would expire. */
	ctx->lease_ms = dcbm_lease_ms;
	WRITE_ONCE(dcbm_lease_ms, jiffies_to_msecs(TEST_TIMEOUT));
	ctx->timeout_ms = dcbm_timeout_ms;
	WRITE_ONCE(dcbm_timeout_ms, jiffies_to_msecs(TEST_TIMEOUT));
	test->priv = ctx;
	return 0;
}

static void dcbm_stream_test_exit(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	int i;

	if (!ctx)
		return;
	test_set_rate(ctx, 0);
	WRITE_ONCE(dcbm_timeout_ms, ctx->timeout_ms);
	WRITE_ONCE(dcbm_lease_ms, ctx->lease_ms);
	WRITE_ONCE(dcbm_share_on, false);
	for (i = 0; i < TEST_CHANS; i++) {
		WRITE_ONCE(ctx->sim[i]->latency_us, 0);
		memset(ctx->sim[i]->triggers, 0, sizeof(ctx->sim[i]->triggers));
		WRITE_ONCE(ctx->chans[i]->stops, false);
	}
	for (i = 0; i < 2; i++)
		test_close(ctx, i);
	for (i = 0; i < TEST_BATCHES; i++)
		test_batch_free(ctx->batches[i]);
	test_batch_grown_free(ctx->growing);
	/* Wait until dcbm forgets that a stream had too few channels. */
	msleep(500);
}

static struct kunit_case dcbm_stream_cases[] = {
	KUNIT_CASE(dcbm_stream_two_batches),
	KUNIT_CASE(dcbm_stream_order),
	KUNIT_CASE(dcbm_stream_fail),
	KUNIT_CASE(dcbm_stream_stall),
	KUNIT_CASE(dcbm_stream_reported),
	KUNIT_CASE(dcbm_stream_sparing),
	KUNIT_CASE(dcbm_stream_interrupts),
	KUNIT_CASE(dcbm_stream_adjacent),
	KUNIT_CASE(dcbm_stream_fair),
	KUNIT_CASE(dcbm_stream_expires),
	KUNIT_CASE(dcbm_stream_two_windows),
	{}
};

static struct kunit_suite dcbm_stream_suite = {
	.name = "migrate_dcbm_streams",
	.init = dcbm_stream_test_init,
	.exit = dcbm_stream_test_exit,
	.test_cases = dcbm_stream_cases,
};

kunit_test_suite(dcbm_stream_suite);

MODULE_DESCRIPTION("Unit tests of dcbm's streams");
MODULE_LICENSE("GPL");
