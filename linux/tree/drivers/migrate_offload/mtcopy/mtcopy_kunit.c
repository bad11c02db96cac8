// SPDX-License-Identifier: GPL-2.0-only
/* KUnit tests of how mtcopy divides what it has to copy. */

#include <kunit/test.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "mtcopy.h"

struct mtcopy_share_case {
	const char *name;
	size_t ready_bytes;
	unsigned int nr_helpers;
	size_t chunk_bytes;
	unsigned int nr_left;		/* chunks of the job */
	unsigned int nr_chunks;		/* to take */
};

static const struct mtcopy_share_case mtcopy_share_cases[] = {
	{ "a part of what is there", SZ_256K, 1, SZ_32K, 8, 2 },
	{ "less for each of many", SZ_512K, 3, SZ_32K, 16, 2 },
	{ "no more than the largest", SZ_8M, 1, SZ_32K, 64, 8 },
	{ "what is left of the job", SZ_8M, 1, SZ_32K, 3, 3 },
	{ "large also at a job's end, if more waits", SZ_2M, 1, SZ_32K, 8, 8 },
	{ "small at the end of all", SZ_64K, 1, SZ_32K, 2, 1 },
	{ "one at least", SZ_32K, 31, SZ_32K, 1, 1 },
	{ "one, of large chunks", SZ_1G, 1, SZ_4M, 256, 1 },
	{ "alone", SZ_128K, 0, SZ_32K, 4, 2 },
};

KUNIT_ARRAY_PARAM_DESC(mtcopy_share, mtcopy_share_cases, name);

static struct mtcopy_job *mtcopy_a_job(struct kunit *test, size_t chunk_bytes,
				       unsigned int nr_chunks)
{
	struct mtcopy_job *job = kunit_kzalloc(test, sizeof(*job), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, job);
	job->chunk_bytes = chunk_bytes;
	job->nr_chunks = nr_chunks;
	return job;
}

static struct mtcopy_stream *mtcopy_a_stream(struct kunit *test,
					     size_t ready_bytes,
					     unsigned int nr_helpers)
{
	struct mtcopy_stream *stream =
		kunit_kzalloc(test, sizeof(*stream), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, stream);
	stream->ready_bytes = ready_bytes;
	stream->nr_helpers = nr_helpers;
	return stream;
}

static void mtcopy_test_share(struct kunit *test)
{
	const struct mtcopy_share_case *param = test->param_value;
	struct mtcopy_stream *stream =
		mtcopy_a_stream(test, param->ready_bytes, param->nr_helpers);
	struct mtcopy_job *job = mtcopy_a_job(test, param->chunk_bytes,
					      param->nr_left + 1);

	job->next_chunk = 1;
	KUNIT_EXPECT_EQ(test, mtcopy_share_chunks(stream, job),
			param->nr_chunks);
}

/* Take all of a job, and say what the last share was. */
static unsigned int mtcopy_take_all(struct kunit *test,
				    struct mtcopy_stream *stream,
				    struct mtcopy_job *job)
{
	unsigned int nr, last = UINT_MAX;

	while (job->next_chunk < job->nr_chunks) {
		nr = mtcopy_share_chunks(stream, job);
		KUNIT_ASSERT_GE(test, nr, 1);
		KUNIT_ASSERT_LE(test, nr, job->nr_chunks - job->next_chunk);
		KUNIT_ASSERT_LE(test, nr * job->chunk_bytes,
				max(MTCOPY_MAX_SHARE_BYTES, job->chunk_bytes));
		KUNIT_ASSERT_LE(test, nr, last);
		job->next_chunk += nr;
		stream->ready_bytes -= nr * job->chunk_bytes;
		last = nr;
	}
	KUNIT_ASSERT_EQ(test, stream->ready_bytes, 0);
	return last;
}

/*
 * Whatever the last job is: all of it is taken, no share is larger than the one
 * before, and of what is taken last the others wait for one chunk only.
 */
static void mtcopy_test_shares_shrink(struct kunit *test)
{
	static const size_t chunk_bytes[] = { PAGE_SIZE, SZ_32K, SZ_4M };
	struct mtcopy_stream *stream = mtcopy_a_stream(test, 0, 0);
	struct mtcopy_job *job = mtcopy_a_job(test, 0, 0);
	unsigned int i, helpers, chunks;

	for (i = 0; i < ARRAY_SIZE(chunk_bytes); i++) {
		for (helpers = 0; helpers < MTCOPY_MAX_THREADS; helpers++) {
			for (chunks = 1; chunks <= MTCOPY_MAX_CHUNKS; chunks++) {
				job->chunk_bytes = chunk_bytes[i];
				job->nr_chunks = chunks;
				job->next_chunk = 0;
				stream->ready_bytes = chunks * chunk_bytes[i];
				stream->nr_helpers = helpers;
				KUNIT_ASSERT_EQ(test,
						mtcopy_take_all(test, stream,
								job), 1);
			}
		}
	}
}

static struct kunit_case mtcopy_test_cases[] = {
	KUNIT_CASE_PARAM(mtcopy_test_share, mtcopy_share_gen_params),
	KUNIT_CASE(mtcopy_test_shares_shrink),
	{}
};

static struct kunit_suite mtcopy_test_suite = {
	.name = "migrate_mtcopy",
	.test_cases = mtcopy_test_cases,
};

kunit_test_suite(mtcopy_test_suite);

MODULE_DESCRIPTION("KUnit tests of mtcopy");
MODULE_LICENSE("GPL");
