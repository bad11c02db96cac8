/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Unit tests of the simulated DMA engine: declarations.
 */
#ifndef _DMASIM_TEST_H
#define _DMASIM_TEST_H

#include <kunit/test.h>
#include <linux/bits.h>
#include <linux/completion.h>
#include <linux/sizes.h>

#include "dmasim.h"

#define TEST_BYTES SZ_4K
#define TEST_XFERS 8
/* The number of timed transfers. */
#define TEST_RATE_XFERS 16
#define TEST_EMPTY 0xee
/* No memory has an address with this bit. */
#define TEST_NOWHERE BIT_ULL(50)
/* Only a transfer that never completes takes this long. */
#define TEST_TIMEOUT (20 * HZ)
/* Within this time, a transfer would complete that must not. */
#define TEST_PAUSE_MS 30
/* Late transfers complete after this pause, others long before. */
#define TEST_LATE_MS 300

struct test_ctx;

struct test_xfer {
	struct test_ctx *ctx;
	struct dma_chan *chan;
	u8 *src;
	u8 *dst;
	dma_addr_t src_addr;
	dma_addr_t dst_addr;
	bool mapped;
	bool quiet;		/* does not ask for an interrupt */
	dma_cookie_t cookie;
	struct completion done;
	struct dmaengine_result result;
	int place;		/* in the order of completion, from 1 */
};

struct test_ctx {
	struct dma_chan *chans[2];
	struct dmasim_chan *c;	/* the first of them */
	struct device *dev;
	u32 coalesce_us;	/* of each channel, as loaded */
	atomic_t nr_done;
	struct test_xfer xfers[TEST_XFERS];
};

void sim_map(struct kunit *test, struct test_xfer *x);
void sim_unmap(struct test_xfer *x);
bool sim_submit(struct test_xfer *x, size_t bytes);
void sim_start(struct kunit *test, unsigned int nr);
bool sim_wait(struct test_xfer *x);
bool sim_has(struct test_xfer *x, size_t bytes);
void sim_expect_copied(struct kunit *test, struct test_xfer *x);
void sim_need_terminate(struct kunit *test);
void sim_need_descs(struct kunit *test, unsigned int nr);
void sim_until(struct kunit *test, u64 *counter, u64 count);

static inline bool sim_out_of_order(struct test_ctx *ctx)
{
	return dma_has_cap(DMA_COMPLETION_NO_ORDER,
			   ctx->chans[0]->device->cap_mask);
}

static inline enum dma_status sim_status(struct test_xfer *x)
{
	return dmaengine_tx_status(x->chan, x->cookie, NULL);
}

static inline void sim_nth(struct test_ctx *ctx, enum dmasim_fault fault, int nth)
{
	atomic_set(&ctx->c->triggers[fault].nth, nth);
}

/* test_faults.c */
extern struct kunit_case dmasim_test_fault_cases[];

#endif /* _DMASIM_TEST_H */
