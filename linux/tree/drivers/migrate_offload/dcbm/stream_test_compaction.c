// SPDX-License-Identifier: GPL-2.0-only
/*
 * Unit tests of dcbm's streams: compaction.
 */

#include <linux/list.h>
#include <linux/time64.h>

#include "stream_test.h"

/* Folios of a window of compaction, for each channel. */
#define TEST_WINDOW 128

/* The CPU gets no share of compaction's batches, but a share of others. */
void dcbm_stream_sparing(struct kunit *test)
{
	static const struct {
		enum migrate_reason reason;
		bool sparing;
	} whose[] = { { MR_SYSCALL, false }, { MR_COMPACTION, true } };
	struct test_ctx *ctx = test->priv;
	unsigned int i;

	WRITE_ONCE(dcbm_share_on, true);
	for (i = 0; i < ARRAY_SIZE(whose); i++) {
		struct migrate_copy_batch *batch = test_batch(test, i, TEST_MANY, 0);
		u64 copied = atomic64_read(&dcbm_cpu_share_bytes);
		struct dcbm_stream *stream;
		struct dcbm_job *job;

		KUNIT_ASSERT_EQ(test, test_open_for(ctx, 0, SZ_2M, whose[i].reason), 0);
		stream = ctx->streams[0].private;
		KUNIT_EXPECT_EQ(test, stream->sparing, whose[i].sparing);
		KUNIT_ASSERT_EQ(test, dcbm_ops.submit(&ctx->streams[0], batch), 0);
		job = list_first_entry(&stream->jobs, struct dcbm_job, node);
		KUNIT_EXPECT_EQ(test, !job->share, whose[i].sparing);
		test_reap(test, 0, batch);
		test_close(ctx, 0);
		if (whose[i].sparing)
			KUNIT_EXPECT_EQ(test, atomic64_read(&dcbm_cpu_share_bytes),
					copied);
		KUNIT_EXPECT_EQ(test, test_check(test, batch, 0), 0);
	}
}

/* Two windows fit into the channels: the task need not wake up to submit. */
void dcbm_stream_two_windows(struct kunit *test)
{
	struct test_ctx *ctx = test->priv;
	struct dcbm_stream *stream;
	int i;

	if (list_count_nodes(&ctx->sim[0]->free) < TEST_BATCHES * TEST_WINDOW)
		kunit_skip(test, "needs %u descriptors", TEST_BATCHES * TEST_WINDOW);
	for (i = 0; i < TEST_BATCHES; i++)
		test_batch(test, i, TEST_CHANS * TEST_WINDOW, 0);
	/* Nothing completes before all is submitted. */
	for (i = 0; i < TEST_CHANS; i++)
		WRITE_ONCE(ctx->sim[i]->latency_us, USEC_PER_SEC);
	KUNIT_ASSERT_EQ(test, test_open_for(ctx, 0, SZ_2M, MR_COMPACTION), 0);
	stream = ctx->streams[0].private;
	KUNIT_ASSERT_EQ(test, stream->nr_chans, TEST_CHANS);
	for (i = 0; i < TEST_BATCHES; i++)
		KUNIT_ASSERT_EQ(test, dcbm_ops.submit(&ctx->streams[0],
						      ctx->batches[i]), 0);
	KUNIT_EXPECT_FALSE(test, stream->hungry);
	for (i = 0; i < TEST_BATCHES; i++) {
		test_reap(test, 0, ctx->batches[i]);
		KUNIT_EXPECT_EQ(test, test_check(test, ctx->batches[i], 0), 0);
	}
}
