// SPDX-License-Identifier: GPL-2.0-only
/*
 * Unit tests of the simulated DMA engine: channels behave as the parameters of
 * dmasim say.  The tests take two channels of a device, as any client would.
 * To switch faults on, the tests write to dmasim's data of the channels.
 */

#include <linux/delay.h>
#include <linux/dma-direct.h>
#include <linux/dma-mapping.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/nodemask.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "test.h"

static void sim_callback(void *param, const struct dmaengine_result *result)
{
	struct test_xfer *x = param;

	x->result = *result;
	x->place = atomic_inc_return(&x->ctx->nr_done);
	complete(&x->done);
}

void sim_map(struct kunit *test, struct test_xfer *x)
{
	struct test_ctx *ctx = x->ctx;

	x->src_addr = dma_map_single(ctx->dev, x->src, TEST_BYTES,
				     DMA_TO_DEVICE);
	KUNIT_ASSERT_FALSE(test, dma_mapping_error(ctx->dev, x->src_addr));
	x->dst_addr = dma_map_single(ctx->dev, x->dst, TEST_BYTES,
				     DMA_BIDIRECTIONAL);
	KUNIT_ASSERT_FALSE(test, dma_mapping_error(ctx->dev, x->dst_addr));
	x->mapped = true;
}

void sim_unmap(struct test_xfer *x)
{
	if (!x->mapped)
		return;
	dma_unmap_single(x->ctx->dev, x->src_addr, TEST_BYTES, DMA_TO_DEVICE);
	dma_unmap_single(x->ctx->dev, x->dst_addr, TEST_BYTES,
			 DMA_BIDIRECTIONAL);
	x->mapped = false;
}

/* Prepare and submit a transfer between the current DMA addresses. */
bool sim_submit(struct test_xfer *x, size_t bytes)
{
	struct dma_async_tx_descriptor *tx;

	reinit_completion(&x->done);
	x->place = 0;
	tx = dmaengine_prep_dma_memcpy(x->chan, x->dst_addr, x->src_addr,
				       bytes, x->quiet ? 0 : DMA_PREP_INTERRUPT);
	if (!tx)
		return false;
	tx->callback_result = sim_callback;
	tx->callback_param = x;
	x->cookie = dmaengine_submit(tx);
	return true;
}

void sim_start(struct kunit *test, unsigned int nr)
{
	struct test_ctx *ctx = test->priv;
	unsigned int i;

	for (i = 0; i < nr; i++) {
		struct test_xfer *x = &ctx->xfers[i];

		if (!x->mapped)
			sim_map(test, x);
		KUNIT_ASSERT_TRUE(test, sim_submit(x, TEST_BYTES));
	}
	dma_async_issue_pending(ctx->chans[0]);
}

bool sim_wait(struct test_xfer *x)
{
	return wait_for_completion_timeout(&x->done, TEST_TIMEOUT);
}

/* Returns true if exactly @bytes have been copied. */
bool sim_has(struct test_xfer *x, size_t bytes)
{
	if (x->mapped)
		dma_sync_single_for_cpu(x->ctx->dev, x->dst_addr, TEST_BYTES,
					DMA_BIDIRECTIONAL);
	return !memcmp(x->dst, x->src, bytes) &&
		!memchr_inv(x->dst + bytes, TEST_EMPTY, TEST_BYTES - bytes);
}

/* Check that the transfer completes without error, and has copied all. */
void sim_expect_copied(struct kunit *test, struct test_xfer *x)
{
	KUNIT_ASSERT_TRUE(test, sim_wait(x));
	KUNIT_EXPECT_EQ(test, x->result.result, DMA_TRANS_NOERROR);
	KUNIT_EXPECT_EQ(test, x->result.residue, 0);
	KUNIT_EXPECT_TRUE(test, sim_has(x, TEST_BYTES));
}

void sim_need_terminate(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;

	if (!ctx->chans[0]->device->device_terminate_all)
		kunit_skip(test, "the device cannot terminate");
}

void sim_need_descs(struct kunit *test, unsigned int nr)
{
	struct test_ctx *ctx = test->priv;

	if (list_count_nodes(&ctx->c->free) < nr)
		kunit_skip(test, "needs %u descriptors", nr);
}

/* Wait until the channel has counted to @count. */
void sim_until(struct kunit *test, u64 *counter, u64 count)
{
	unsigned long end = jiffies + TEST_TIMEOUT;

	while (READ_ONCE(*counter) < count) {
		KUNIT_ASSERT_TRUE(test, time_before(jiffies, end));
		usleep_range(1000, 2000);
	}
}

static void dmasim_test_copies(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct test_xfer *x = ctx->xfers;
	u64 bytes = ctx->c->stats.bytes;

	sim_start(test, 1);
	sim_expect_copied(test, x);
	KUNIT_EXPECT_EQ(test, ctx->c->stats.bytes, bytes + TEST_BYTES);
	KUNIT_EXPECT_EQ(test, ctx->c->stats.in_flight, 0);
	KUNIT_EXPECT_EQ(test, sim_status(x), sim_out_of_order(ctx) ?
			DMA_OUT_OF_ORDER : DMA_COMPLETE);

	memset(x->dst, TEST_EMPTY, TEST_BYTES);
	dma_sync_single_for_device(ctx->dev, x->dst_addr, TEST_BYTES,
				   DMA_BIDIRECTIONAL);
	KUNIT_ASSERT_TRUE(test, sim_submit(x, SZ_64));
	dma_async_issue_pending(ctx->chans[0]);
	KUNIT_ASSERT_TRUE(test, sim_wait(x));
	KUNIT_EXPECT_TRUE(test, sim_has(x, SZ_64));
}

static void dmasim_test_bounce_buffer_needs_sync(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct test_xfer *x = ctx->xfers;

	sim_map(test, x);
	if (device_iommu_mapped(ctx->dev) ||
	    x->dst_addr == phys_to_dma(ctx->dev, virt_to_phys(x->dst)))
		kunit_skip(test, "no bounce buffer, boot with swiotlb=force");
	sim_start(test, 1);
	KUNIT_ASSERT_TRUE(test, sim_wait(x));
	/* Without a sync, a client sees old bytes. */
	KUNIT_EXPECT_NULL(test, memchr_inv(x->dst, TEST_EMPTY, TEST_BYTES));
	sim_unmap(x);
	KUNIT_EXPECT_TRUE(test, sim_has(x, TEST_BYTES));
}

/* Time TEST_RATE_XFERS transfers on each of @nr_chans channels. */
static s64 sim_time_us(struct kunit *test, unsigned int nr_chans)
{
	struct test_ctx *ctx = test->priv;
	ktime_t start = ktime_get();
	unsigned int chan, i;

	for (chan = 0; chan < nr_chans; chan++) {
		ctx->xfers[chan].chan = ctx->chans[chan];
		for (i = 0; i < TEST_RATE_XFERS; i++)
			KUNIT_ASSERT_TRUE(test,
					  sim_submit(&ctx->xfers[chan],
						     TEST_BYTES));
		dma_async_issue_pending(ctx->chans[chan]);
	}
	for (chan = 0; chan < nr_chans; chan++)
		for (i = 0; i < TEST_RATE_XFERS; i++)
			KUNIT_ASSERT_TRUE(test, sim_wait(&ctx->xfers[chan]));
	return ktime_us_delta(ktime_get(), start);
}

/*
 * Time TEST_RATE_XFERS sleeps of the length of a transfer.  In a virtual
 * machine on a busy host, sleeps take several times as long as they should.
 */
static s64 sim_sleeps_us(void)
{
	ktime_t start = ktime_get();
	unsigned int i;

	for (i = 0; i < TEST_RATE_XFERS; i++)
		usleep_range(TEST_BYTES, TEST_BYTES + 1);
	return ktime_us_delta(ktime_get(), start);
}

static void dmasim_test_keeps_its_rate(struct kunit *test)
{
	/* At a byte per microsecond, on one channel or on each of two. */
	s64 min_us = TEST_RATE_XFERS * TEST_BYTES, max_us = min_us, us = 0;
	struct test_ctx *ctx = test->priv;
	unsigned int chan, try;

	sim_need_descs(test, TEST_RATE_XFERS);
	for (chan = 0; chan < ARRAY_SIZE(ctx->chans); chan++) {
		sim_map(test, &ctx->xfers[chan]);
		to_dmasim_chan(ctx->chans[chan])->bandwidth_mbps = 1;
	}
	for (chan = 0; chan < ARRAY_SIZE(ctx->chans); chan++) {
		/* A virtual machine may stop for a moment. */
		for (try = 0; try < 5; try++) {
			us = sim_time_us(test, chan + 1);
			KUNIT_EXPECT_GE(test, us, min_us);
			max_us = max(min_us, sim_sleeps_us()) * 3 / 2;
			if (us <= max_us)
				break;
		}
		KUNIT_EXPECT_LE(test, us, max_us);
	}
}

static void dmasim_test_order(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	unsigned int i, round, overtaken = 0;

	sim_need_descs(test, 4);
	ctx->c->bandwidth_mbps = 8;
	for (round = 0; round < 30 && !overtaken; round++) {
		atomic_set(&ctx->nr_done, 0);
		sim_start(test, 4);
		for (i = 0; i < 4; i++)
			sim_expect_copied(test, &ctx->xfers[i]);
		for (i = 0; i < 4; i++)
			overtaken += ctx->xfers[i].place != i + 1;
		if (!sim_out_of_order(ctx) && round == 1)
			break;
	}
	KUNIT_EXPECT_EQ(test, overtaken > 0, sim_out_of_order(ctx));
}

static void dmasim_test_coalesces(struct kunit *test)
{
	/*
	 * The transfers are due every 4 ms, the last one after 32 ms.  In the
	 * second case, the first interrupt is due after 18 ms, and the second
	 * one is for what is left.
	 */
	static const struct {
		u32 coalesce_us;
		unsigned int interrupts;
	} cases[] = { { 0, TEST_XFERS }, { 14000, 2 }, { 1000000, 1 } };
	struct test_ctx *ctx = test->priv;
	u64 seen = 0;
	unsigned int i, j, try;
	ktime_t start;

	if (sim_out_of_order(ctx))
		kunit_skip(test, "it is not known which is the last");
	sim_need_descs(test, TEST_XFERS);
	ctx->c->bandwidth_mbps = 1;
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		ctx->c->coalesce_us = cases[i].coalesce_us;
		seen = 0;
		/* A virtual machine may stop for a moment. */
		for (try = 0; try < 100 && seen != cases[i].interrupts; try++) {
			seen = ctx->c->stats.interrupts;
			start = ktime_get();
			sim_start(test, TEST_XFERS);
			for (j = 0; j < TEST_XFERS; j++)
				sim_expect_copied(test, &ctx->xfers[j]);
			KUNIT_EXPECT_GE(test, ktime_us_delta(ktime_get(), start),
					TEST_XFERS * TEST_BYTES);
			seen = ctx->c->stats.interrupts - seen;
		}
		KUNIT_EXPECT_EQ(test, seen, cases[i].interrupts);
	}
}

/* The next interrupt runs the callback of a transfer that asked for none. */
static void dmasim_test_quiet(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	u64 copied = ctx->c->stats.descriptors, seen = ctx->c->stats.interrupts;
	struct test_xfer *x = ctx->xfers;

	sim_need_descs(test, 2);
	x[0].quiet = true;
	sim_start(test, 1);
	sim_until(test, &ctx->c->stats.descriptors, copied + 1);
	msleep(TEST_PAUSE_MS);
	KUNIT_EXPECT_FALSE(test, completion_done(&x[0].done));
	KUNIT_EXPECT_EQ(test, ctx->c->stats.interrupts, seen);
	sim_map(test, &x[1]);
	KUNIT_ASSERT_TRUE(test, sim_submit(&x[1], TEST_BYTES));
	dma_async_issue_pending(ctx->chans[0]);
	sim_expect_copied(test, &x[1]);
	sim_expect_copied(test, &x[0]);
	KUNIT_EXPECT_EQ(test, ctx->c->stats.interrupts, seen + 1);

	/* The device reports an error at once. */
	sim_nth(ctx, DMASIM_FAIL, 1);
	sim_start(test, 1);
	KUNIT_ASSERT_TRUE(test, sim_wait(&x[0]));
	KUNIT_EXPECT_EQ(test, x[0].result.result, DMA_TRANS_WRITE_FAILED);
}

static void dmasim_test_limits(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct dma_device *dma = ctx->chans[0]->device;
	u64 refused = ctx->c->stats.refused;
	size_t most = dma_get_max_seg_size(ctx->dev);
	struct test_xfer *x = ctx->xfers;

	sim_map(test, x);
	KUNIT_EXPECT_FALSE(test, sim_submit(x, 0));
	KUNIT_EXPECT_FALSE(test, sim_submit(x, most + 1));
	if (dma->copy_align)
		KUNIT_EXPECT_FALSE(test, sim_submit(x, SZ_64 + 1));
	else
		KUNIT_EXPECT_TRUE(test, sim_submit(x, SZ_64 + 1));
	KUNIT_EXPECT_EQ(test, ctx->c->stats.refused,
			refused + 2 + !!dma->copy_align);
	dma_async_issue_pending(ctx->chans[0]);
}

static void dmasim_test_pool(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct test_xfer *x = ctx->xfers;
	size_t i, nr = list_count_nodes(&ctx->c->free);

	KUNIT_EXPECT_GT(test, nr, 0);
	sim_map(test, x);
	for (i = 0; i < nr; i++)
		KUNIT_EXPECT_TRUE(test, sim_submit(x, SZ_64));
	KUNIT_EXPECT_FALSE(test, sim_submit(x, SZ_64));
	KUNIT_EXPECT_EQ(test, ctx->c->stats.in_flight, nr);
	dma_async_issue_pending(ctx->chans[0]);
	for (i = 0; i < nr; i++)
		KUNIT_ASSERT_TRUE(test, sim_wait(x));
	KUNIT_EXPECT_EQ(test, list_count_nodes(&ctx->c->free), nr);
}

static void dmasim_test_bad_address(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct test_xfer *x = ctx->xfers;

	sim_map(test, x);
	/* No memory has this source address. */
	x->src_addr ^= TEST_NOWHERE;
	KUNIT_EXPECT_TRUE(test, sim_submit(x, TEST_BYTES));
	x->src_addr ^= TEST_NOWHERE;
	dma_async_issue_pending(ctx->chans[0]);
	KUNIT_ASSERT_TRUE(test, sim_wait(x));
	KUNIT_EXPECT_EQ(test, x->result.result, DMA_TRANS_READ_FAILED);
	KUNIT_EXPECT_EQ(test, x->result.residue, TEST_BYTES);
	KUNIT_EXPECT_EQ(test, sim_status(x), DMA_ERROR);
}

static bool sim_is_dmasim(struct dma_chan *chan, void *other)
{
	struct device *dev = chan->device->dev;

	/* All channels are of one device, for which the tests map. */
	return dev->driver && !strcmp(dev->driver->name, DMASIM_NAME) &&
		(!other || ((struct dma_chan *)other)->device == chan->device);
}

static int dmasim_test_init(struct kunit *test)
{
	struct test_ctx *ctx = kunit_kzalloc(test, sizeof(*ctx), GFP_KERNEL);
	int node, last = NUMA_NO_NODE;
	dma_cap_mask_t mask;
	unsigned int i, j;

	KUNIT_ASSERT_NOT_NULL(test, ctx);
	for_each_node_state(node, N_MEMORY)
		last = node;
	dma_cap_zero(mask);
	dma_cap_set(DMA_MEMCPY, mask);
	for (i = 0; i < ARRAY_SIZE(ctx->chans); i++) {
		ctx->chans[i] = dma_request_channel(mask, sim_is_dmasim,
						    ctx->chans[0]);
		if (!ctx->chans[i])
			return -ENODEV;
		/* From here on, the exit function releases the channels. */
		test->priv = ctx;
		to_dmasim_chan(ctx->chans[i])->late_ms = TEST_LATE_MS;
		ctx->coalesce_us = to_dmasim_chan(ctx->chans[i])->coalesce_us;
	}
	ctx->c = to_dmasim_chan(ctx->chans[0]);
	ctx->dev = ctx->chans[0]->device->dev;
	for (i = 0; i < TEST_XFERS; i++) {
		struct test_xfer *x = &ctx->xfers[i];

		init_completion(&x->done);
		x->ctx = ctx;
		x->chan = ctx->chans[0];
		/* With few address_bits, memory of the last node is bounced. */
		x->src = kmalloc_node(TEST_BYTES, GFP_KERNEL, last);
		x->dst = kmalloc_node(TEST_BYTES, GFP_KERNEL, last);
		if (!x->src || !x->dst)
			return -ENOMEM;
		for (j = 0; j < TEST_BYTES; j++)
			x->src[j] = (i * 16 + j + j / 256) & 0x7f;
		memset(x->dst, TEST_EMPTY, TEST_BYTES);
	}
	return 0;
}

static void sim_reset(struct dmasim_chan *c)
{
	memset(c->triggers, 0, sizeof(c->triggers));
	c->terminate = DMASIM_TERMINATE_STOP;
	WRITE_ONCE(c->dead, false);
	c->bandwidth_mbps = 0;
	c->latency_us = 0;
}

static void dmasim_test_exit(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	unsigned int i;

	if (!ctx)
		return;
	/* The release stops everything, even if clients cannot terminate. */
	for (i = 0; i < ARRAY_SIZE(ctx->chans) && ctx->chans[i]; i++) {
		sim_reset(to_dmasim_chan(ctx->chans[i]));
		to_dmasim_chan(ctx->chans[i])->coalesce_us = ctx->coalesce_us;
		dma_release_channel(ctx->chans[i]);
	}
	for (i = 0; i < TEST_XFERS; i++) {
		sim_unmap(&ctx->xfers[i]);
		kfree(ctx->xfers[i].src);
		kfree(ctx->xfers[i].dst);
	}
}

static struct kunit_case dmasim_test_cases[] = {
	KUNIT_CASE(dmasim_test_copies),
	KUNIT_CASE(dmasim_test_bounce_buffer_needs_sync),
	KUNIT_CASE(dmasim_test_keeps_its_rate),
	KUNIT_CASE(dmasim_test_order),
	KUNIT_CASE(dmasim_test_coalesces),
	KUNIT_CASE(dmasim_test_quiet),
	KUNIT_CASE(dmasim_test_limits),
	KUNIT_CASE(dmasim_test_pool),
	KUNIT_CASE(dmasim_test_bad_address),
	{}
};

static struct kunit_suite dmasim_test_suites[] = {
	{
		.name = "migrate_dmasim",
		.init = dmasim_test_init,
		.exit = dmasim_test_exit,
		.test_cases = dmasim_test_cases,
	}, {
		.name = "migrate_dmasim_faults",
		.init = dmasim_test_init,
		.exit = dmasim_test_exit,
		.test_cases = dmasim_test_fault_cases,
	},
};

kunit_test_suites(&dmasim_test_suites[0], &dmasim_test_suites[1]);

MODULE_DESCRIPTION("Unit tests of the simulated DMA engine");
MODULE_LICENSE("GPL");
MODULE_SOFTDEP("pre: dmasim");
