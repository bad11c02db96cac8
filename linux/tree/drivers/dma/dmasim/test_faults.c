// SPDX-License-Identifier: GPL-2.0-only
/*
 * Unit tests of the simulated DMA engine: each of its faults.
 */

#include <linux/delay.h>
#include <linux/device.h>
#include <linux/dma-direct.h>
#include <linux/ktime.h>

#include "test.h"

static void dmasim_test_fail(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct test_xfer *x = ctx->xfers;

	sim_need_descs(test, 3);
	sim_nth(ctx, DMASIM_FAIL, 2);
	sim_start(test, 3);
	sim_expect_copied(test, &x[0]);
	sim_expect_copied(test, &x[2]);
	KUNIT_ASSERT_TRUE(test, sim_wait(&x[1]));
	KUNIT_EXPECT_EQ(test, x[1].result.result, DMA_TRANS_WRITE_FAILED);
	KUNIT_EXPECT_EQ(test, x[1].result.residue, TEST_BYTES / 2);
	KUNIT_EXPECT_TRUE(test, sim_has(&x[1], TEST_BYTES / 2));
	KUNIT_EXPECT_EQ(test, sim_status(&x[1]), DMA_ERROR);
}

static void dmasim_test_every(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	unsigned int i;

	sim_need_descs(test, 6);
	ctx->c->triggers[DMASIM_FAIL].every = 2;
	sim_start(test, 6);
	for (i = 0; i < 6; i++) {
		KUNIT_ASSERT_TRUE(test, sim_wait(&ctx->xfers[i]));
		KUNIT_EXPECT_EQ(test, ctx->xfers[i].result.result, i % 2 ?
				DMA_TRANS_WRITE_FAILED : DMA_TRANS_NOERROR);
	}
}

static void dmasim_test_refuse(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct test_xfer *x = ctx->xfers;

	sim_map(test, x);
	sim_nth(ctx, DMASIM_REFUSE, 1);
	KUNIT_EXPECT_FALSE(test, sim_submit(x, TEST_BYTES));
	sim_start(test, 1);
	sim_expect_copied(test, x);
}

static void dmasim_test_stall(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct test_xfer *x = ctx->xfers;

	sim_need_terminate(test);
	sim_need_descs(test, 2);
	sim_nth(ctx, DMASIM_STALL, 1);
	sim_start(test, 2);
	if (sim_out_of_order(ctx))
		sim_expect_copied(test, &x[1]);
	msleep(TEST_PAUSE_MS);
	KUNIT_EXPECT_FALSE(test, completion_done(&x[0].done));
	if (!sim_out_of_order(ctx))
		KUNIT_EXPECT_FALSE(test, completion_done(&x[1].done));
	KUNIT_EXPECT_EQ(test, dmaengine_terminate_sync(ctx->chans[0]), 0);
	KUNIT_EXPECT_TRUE(test, sim_has(&x[0], 0));
	KUNIT_EXPECT_FALSE(test, completion_done(&x[0].done));
	KUNIT_EXPECT_EQ(test, ctx->c->stats.in_flight, 0);
	sim_start(test, 1);
	sim_expect_copied(test, &x[0]);
}

static void dmasim_test_late(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct test_xfer *x = ctx->xfers;
	ktime_t start = ktime_get();

	sim_nth(ctx, DMASIM_LATE, 1);
	sim_start(test, 1);
	sim_expect_copied(test, x);
	KUNIT_EXPECT_GE(test, ktime_ms_delta(ktime_get(), start), TEST_LATE_MS);
	KUNIT_EXPECT_GT(test, ctx->c->stats.late, 0);
}

static void dmasim_test_terminate_stops(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct test_xfer *x = ctx->xfers;
	u64 terminated = ctx->c->stats.terminated;

	sim_need_terminate(test);
	sim_nth(ctx, DMASIM_LATE, 1);
	sim_start(test, 1);
	KUNIT_EXPECT_EQ(test, dmaengine_terminate_sync(ctx->chans[0]), 0);
	KUNIT_EXPECT_EQ(test, ctx->c->stats.terminated, terminated + 1);
	msleep(TEST_LATE_MS + TEST_PAUSE_MS);
	KUNIT_EXPECT_TRUE(test, sim_has(x, 0));
	KUNIT_EXPECT_FALSE(test, completion_done(&x->done));
}

static void dmasim_test_terminate_lies(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	u64 unheard = ctx->c->stats.unheard;
	struct test_xfer *x = ctx->xfers;

	sim_need_terminate(test);
	ctx->c->terminate = DMASIM_TERMINATE_LIE;
	sim_nth(ctx, DMASIM_LATE, 1);
	sim_start(test, 1);
	KUNIT_EXPECT_EQ(test, dmaengine_terminate_sync(ctx->chans[0]), 0);
	KUNIT_EXPECT_TRUE(test, sim_has(x, 0));
	sim_until(test, &ctx->c->stats.unheard, unheard + 1);
	KUNIT_EXPECT_TRUE(test, sim_has(x, TEST_BYTES));
	KUNIT_EXPECT_FALSE(test, completion_done(&x->done));
	KUNIT_EXPECT_EQ(test, ctx->c->stats.in_flight, 0);
}

static void dmasim_test_terminate_fails(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;

	sim_need_terminate(test);
	ctx->c->terminate = DMASIM_TERMINATE_ERROR;
	sim_nth(ctx, DMASIM_LATE, 1);
	sim_start(test, 1);
	KUNIT_EXPECT_EQ(test, dmaengine_terminate_sync(ctx->chans[0]), -EIO);
	sim_expect_copied(test, &ctx->xfers[0]);
}

static void dmasim_test_lost_interrupt(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	u64 lost = ctx->c->stats.lost_irqs;
	struct test_xfer *x = ctx->xfers;

	sim_need_descs(test, 2);
	sim_nth(ctx, DMASIM_LOSE_IRQ, 1);
	sim_start(test, 1);
	sim_until(test, &ctx->c->stats.lost_irqs, lost + 1);
	msleep(TEST_PAUSE_MS);
	KUNIT_EXPECT_FALSE(test, completion_done(&x[0].done));
	KUNIT_EXPECT_TRUE(test, sim_has(&x[0], TEST_BYTES));
	KUNIT_EXPECT_EQ(test, sim_status(&x[0]), sim_out_of_order(ctx) ?
			DMA_OUT_OF_ORDER : DMA_COMPLETE);

	sim_map(test, &x[1]);
	KUNIT_ASSERT_TRUE(test, sim_submit(&x[1], TEST_BYTES));
	dma_async_issue_pending(ctx->chans[0]);
	sim_expect_copied(test, &x[1]);
	sim_expect_copied(test, &x[0]);
}

static void dmasim_test_hide_error(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct test_xfer *x = ctx->xfers;

	sim_nth(ctx, DMASIM_HIDE_ERROR, 1);
	sim_start(test, 1);
	KUNIT_ASSERT_TRUE(test, sim_wait(x));
	KUNIT_EXPECT_EQ(test, x->result.result, DMA_TRANS_NOERROR);
	KUNIT_EXPECT_EQ(test, x->result.residue, 0);
	KUNIT_EXPECT_TRUE(test, sim_has(x, TEST_BYTES / 2));
	KUNIT_EXPECT_GT(test, ctx->c->stats.hidden, 0);
}

/* The client hears that the transfer was aborted, and the bytes come later. */
static void dmasim_test_abort(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	u64 unheard = ctx->c->stats.unheard;
	struct test_xfer *x = ctx->xfers;

	sim_nth(ctx, DMASIM_ABORT, 1);
	sim_start(test, 1);
	KUNIT_ASSERT_TRUE(test, sim_wait(x));
	KUNIT_EXPECT_EQ(test, x->result.result, DMA_TRANS_ABORTED);
	KUNIT_EXPECT_TRUE(test, sim_has(x, 0));
	sim_until(test, &ctx->c->stats.unheard, unheard + 1);
	KUNIT_EXPECT_TRUE(test, sim_has(x, TEST_BYTES));
	sim_start(test, 1);
	sim_expect_copied(test, x);
}

/* The callback comes before the client knows that the submission failed. */
static void dmasim_test_reject(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct test_xfer *x = ctx->xfers;

	sim_map(test, x);
	sim_nth(ctx, DMASIM_REJECT, 1);
	KUNIT_EXPECT_TRUE(test, sim_submit(x, TEST_BYTES));
	KUNIT_EXPECT_EQ(test, x->cookie, -EIO);
	KUNIT_EXPECT_TRUE(test, completion_done(&x->done));
	KUNIT_EXPECT_EQ(test, x->result.result, DMA_TRANS_WRITE_FAILED);
	KUNIT_EXPECT_TRUE(test, sim_has(x, 0));
	KUNIT_EXPECT_EQ(test, ctx->c->stats.in_flight, 0);
	sim_start(test, 1);
	sim_expect_copied(test, x);
}

/* The end of a terminated transfer completes one that has not been copied. */
static void dmasim_test_terminate_early(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct test_xfer *x = ctx->xfers;

	sim_need_terminate(test);
	sim_need_descs(test, 2);
	ctx->c->terminate = DMASIM_TERMINATE_EARLY;
	sim_nth(ctx, DMASIM_LATE, 1);
	sim_start(test, 1);
	KUNIT_EXPECT_EQ(test, dmaengine_terminate_sync(ctx->chans[0]), 0);
	/* Without the first one, the second would never complete. */
	sim_nth(ctx, DMASIM_STALL, 1);
	sim_map(test, &x[1]);
	KUNIT_ASSERT_TRUE(test, sim_submit(&x[1], TEST_BYTES));
	dma_async_issue_pending(ctx->chans[0]);
	KUNIT_ASSERT_TRUE(test, sim_wait(&x[1]));
	KUNIT_EXPECT_EQ(test, x[1].result.result, DMA_TRANS_NOERROR);
	KUNIT_EXPECT_TRUE(test, sim_has(&x[1], 0));
	KUNIT_EXPECT_TRUE(test, sim_has(&x[0], TEST_BYTES));
	KUNIT_EXPECT_FALSE(test, completion_done(&x[0].done));
}

static void dmasim_test_dead(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct test_xfer *x = ctx->xfers;

	sim_map(test, x);
	KUNIT_ASSERT_TRUE(test, sim_submit(x, TEST_BYTES));
	WRITE_ONCE(ctx->c->dead, true);
	dma_async_issue_pending(ctx->chans[0]);
	msleep(TEST_PAUSE_MS);
	KUNIT_EXPECT_FALSE(test, completion_done(&x->done));
	KUNIT_EXPECT_FALSE(test, sim_submit(&ctx->xfers[1], TEST_BYTES));
	spin_lock_irq(&ctx->c->lock);
	WRITE_ONCE(ctx->c->dead, false);
	/* dead_set() calls dmasim_arm() here, which is not exported. */
	hrtimer_start(&ctx->c->timer, 0, HRTIMER_MODE_ABS_SOFT);
	spin_unlock_irq(&ctx->c->lock);
	sim_expect_copied(test, x);
}

static void dmasim_test_vanish(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct test_xfer *x = ctx->xfers;
	unsigned int i;

	sim_need_descs(test, 2);
	/* Do not map: no mapping may be left when the driver is unbound. */
	for (i = 0; i < 2; i++) {
		x[i].src_addr = phys_to_dma(ctx->dev, virt_to_phys(x[i].src));
		x[i].dst_addr = phys_to_dma(ctx->dev, virt_to_phys(x[i].dst));
	}
	sim_nth(ctx, DMASIM_STALL, 1);
	KUNIT_EXPECT_TRUE(test, sim_submit(&x[0], TEST_BYTES));
	dma_async_issue_pending(ctx->chans[0]);
	KUNIT_EXPECT_TRUE(test, sim_submit(&x[1], TEST_BYTES));

	device_release_driver(ctx->dev);
	for (i = 0; i < 2; i++) {
		KUNIT_ASSERT_TRUE(test, sim_wait(&x[i]));
		KUNIT_EXPECT_EQ(test, x[i].result.result, DMA_TRANS_ABORTED);
		KUNIT_EXPECT_EQ(test, x[i].result.residue, TEST_BYTES);
		KUNIT_EXPECT_TRUE(test, sim_has(&x[i], 0));
	}
	KUNIT_EXPECT_FALSE(test, sim_submit(&x[0], TEST_BYTES));
	KUNIT_EXPECT_EQ(test, device_attach(ctx->dev), 1);
}

struct kunit_case dmasim_test_fault_cases[] = {
	KUNIT_CASE(dmasim_test_fail),
	KUNIT_CASE(dmasim_test_every),
	KUNIT_CASE(dmasim_test_refuse),
	KUNIT_CASE(dmasim_test_stall),
	KUNIT_CASE(dmasim_test_late),
	KUNIT_CASE(dmasim_test_terminate_stops),
	KUNIT_CASE(dmasim_test_terminate_lies),
	KUNIT_CASE(dmasim_test_terminate_fails),
	KUNIT_CASE(dmasim_test_lost_interrupt),
	KUNIT_CASE(dmasim_test_hide_error),
	KUNIT_CASE(dmasim_test_abort),
	KUNIT_CASE(dmasim_test_reject),
	KUNIT_CASE(dmasim_test_terminate_early),
	KUNIT_CASE(dmasim_test_dead),
	KUNIT_CASE(dmasim_test_vanish),
	{}
};
