/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Unit tests of dcbm's streams: declarations.
 */
#ifndef _DCBM_STREAM_TEST_H
#define _DCBM_STREAM_TEST_H

#include <kunit/test.h>

#include "../../dma/dmasim/dmasim.h"
#include "dcbm.h"

#define TEST_CHANS 4
#define TEST_BATCHES 2
#define TEST_MANY 64

struct test_ctx {
	struct dmasim_chan *sim[TEST_CHANS];
	struct dcbm_chan *chans[TEST_CHANS];
	struct migrate_copy_stream streams[2];
	bool open[2];
	struct migrate_copy_batch *batches[TEST_BATCHES];
	struct migrate_copy_batch *growing;
	unsigned int timeout_ms;
	unsigned int lease_ms;
};

/* stream_test.c */
int test_open_for(struct test_ctx *ctx, int which, size_t bytes,
		  enum migrate_reason reason);
void test_close(struct test_ctx *ctx, int which);
unsigned int test_reap(struct kunit *test, int which,
		       struct migrate_copy_batch *batch);
unsigned int test_check(struct kunit *test, struct migrate_copy_batch *batch,
			int error);

/* stream_test_compaction.c */
void dcbm_stream_sparing(struct kunit *test);
void dcbm_stream_two_windows(struct kunit *test);

/* stream_test_batch.c */
struct migrate_copy_batch *test_batch(struct kunit *test, int which,
				      unsigned int nr, unsigned int order);
struct migrate_copy_batch *test_batch_adjacent(struct kunit *test, int which,
					       unsigned int order);
void test_batch_free(struct migrate_copy_batch *batch);

/* Folios of one page, each with three free pages behind it to grow into. */
#define TEST_GROWN_ORDER 2

struct migrate_copy_batch *test_batch_to_grow(struct kunit *test,
					      unsigned int nr);
void test_grow(struct folio *folio);
void test_batch_grown_free(struct migrate_copy_batch *batch);

#endif
