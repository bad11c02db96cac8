// SPDX-License-Identifier: GPL-2.0-only
/* KUnit tests of dcbm's arithmetic. */

#include <kunit/test.h>
#include <linux/limits.h>
#include <linux/module.h>
#include <linux/time64.h>

/* The tests need their own copy, as the module may not be loaded. */
#include "math.c"

/* Pieces keep all limits, and cover the whole folio. */
static void check_pieces(struct kunit *test, size_t max_seg, unsigned int align,
			 size_t opt, size_t folio_bytes, unsigned int nr_chans)
{
	size_t max_piece = dcbm_max_piece(max_seg, align, opt);
	size_t piece = dcbm_piece(folio_bytes, nr_chans);
	size_t offset = 0, len;

	KUNIT_ASSERT_GT(test, max_piece, 0);
	while (offset < folio_bytes) {
		len = min3(folio_bytes - offset, piece, max_piece);
		KUNIT_ASSERT_GT(test, len, 0);
		KUNIT_ASSERT_LE(test, len, max_seg);
		KUNIT_ASSERT_LE(test, len, opt);
		KUNIT_ASSERT_EQ(test, offset % (1UL << align), 0);
		KUNIT_ASSERT_EQ(test, len % (1UL << align), 0);
		KUNIT_ASSERT_EQ(test, offset % SMP_CACHE_BYTES, 0);
		/* A piece that spans pages ends at the end of a cache line. */
		if (offset / PAGE_SIZE != (offset + len - 1) / PAGE_SIZE)
			KUNIT_ASSERT_EQ(test, len % SMP_CACHE_BYTES, 0);
		offset += len;
	}
	KUNIT_EXPECT_EQ(test, offset, folio_bytes);
}

static void test_pieces(struct kunit *test)
{
	static const size_t max_segs[] = {
		256, 4095, 4096, 5000, SZ_64K - 1, SZ_64K, 1900800, 0xffffff,
		UINT_MAX,
	};
	static const size_t opts[] = { SZ_128K, SZ_256K - 512, SIZE_MAX };
	static const unsigned int aligns[] = { 0, 2, 6, 8 };
	static const size_t folios[] = {
		PAGE_SIZE, 2 * PAGE_SIZE, SZ_64K, SZ_2M,
	};
	int s, o, a, f, n;

	for (s = 0; s < ARRAY_SIZE(max_segs); s++)
		for (o = 0; o < ARRAY_SIZE(opts); o++)
			for (a = 0; a < ARRAY_SIZE(aligns); a++)
				for (f = 0; f < ARRAY_SIZE(folios); f++)
					for (n = 1; n <= 64; n += 7)
						check_pieces(test, max_segs[s],
							     aligns[a], opts[o],
							     folios[f], n);
}

static void test_max_seg(struct kunit *test)
{
	/* Each PCI device has this limit until its driver sets another. */
	KUNIT_EXPECT_EQ(test, dcbm_max_seg(SZ_64K, true), SIZE_MAX);
	KUNIT_EXPECT_EQ(test, dcbm_max_seg(SZ_64K, false), SZ_64K);
	KUNIT_EXPECT_EQ(test, dcbm_max_seg(SZ_64K - 1, true), SZ_64K - 1);
	KUNIT_EXPECT_EQ(test, dcbm_max_seg(0, false), SIZE_MAX);
}

static void test_max_piece(struct kunit *test)
{
	/* dcbm cannot use these devices. */
	KUNIT_EXPECT_EQ(test, dcbm_max_piece(SMP_CACHE_BYTES - 1, 0, SIZE_MAX),
			0);
	KUNIT_EXPECT_EQ(test, dcbm_max_piece(SZ_64K, PAGE_SHIFT + 1, SIZE_MAX),
			0);
	/* dma-axi-dmac reports this alignment if it supports any. */
	KUNIT_EXPECT_EQ(test, dcbm_max_piece(SZ_64K, 64, SIZE_MAX), 0);

	KUNIT_EXPECT_EQ(test, dcbm_max_piece(SZ_64K, 0, SIZE_MAX), SZ_64K);
	KUNIT_EXPECT_EQ(test, dcbm_max_piece(SZ_64K - 1, 0, SIZE_MAX),
			SZ_64K - PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, dcbm_max_piece(UINT_MAX, 0, SZ_128K), SZ_128K);
	KUNIT_EXPECT_EQ(test, dcbm_max_piece(UINT_MAX, 0, SIZE_MAX), SZ_512K);
	KUNIT_EXPECT_EQ(test, dcbm_max_piece(1000, 8, SIZE_MAX), 768);
}

/* A 2M folio occupies up to 16 channels, all with the same number of pieces. */
static void test_spread(struct kunit *test)
{
	unsigned int nr;

	for (nr = 1; nr <= 16; nr *= 2) {
		size_t piece = dcbm_piece(SZ_2M, nr);

		KUNIT_EXPECT_EQ(test, dcbm_wanted(SZ_2M, nr), nr);
		KUNIT_EXPECT_EQ(test, SZ_2M / piece % nr, 0);
		KUNIT_EXPECT_GE(test, SZ_2M / piece, nr);
	}
	/* 512 small folios: at least 16 share an interrupt. */
	for (nr = 1; nr <= 16; nr++)
		KUNIT_EXPECT_GE(test, dcbm_piece(SZ_2M, nr), 16 * SZ_4K);
	KUNIT_EXPECT_EQ(test, dcbm_wanted(PAGE_SIZE, 16), 1);
	KUNIT_EXPECT_EQ(test, dcbm_wanted(SZ_64K, 16), 2);
	KUNIT_EXPECT_EQ(test, dcbm_wanted(SZ_64K, 0), 1);
}

/* A short batch of small folios occupies all channels. */
static void test_run(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, dcbm_run(20 * PAGE_SIZE, 16), 2 * PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, dcbm_run(PAGE_SIZE, 16), PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, dcbm_run(SZ_2M, 1), SZ_64K);
}

static void test_cpu_share(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, dcbm_cpu_share(SZ_2M, 1), SZ_1M);
	KUNIT_EXPECT_EQ(test, dcbm_cpu_share(SZ_4M, 3), SZ_1M);
	KUNIT_EXPECT_EQ(test, dcbm_cpu_share(PAGE_SIZE, 1), 0);
	KUNIT_EXPECT_TRUE(test,
			  IS_ALIGNED(dcbm_cpu_share(SZ_2M, 2), PAGE_SIZE));
}

/* The time limit of a job is bounded, however large the job is. */
static void test_job_times(struct kunit *test)
{
	const u64 timeout_ns = NSEC_PER_SEC;

	KUNIT_EXPECT_EQ(test, dcbm_extra_ns(0, timeout_ns), 0);
	/* 10 MB/s. */
	KUNIT_EXPECT_EQ(test, dcbm_extra_ns(10 * 1000 * 1000, timeout_ns),
			NSEC_PER_SEC);
	KUNIT_EXPECT_EQ(test, dcbm_extra_ns(SZ_1G, timeout_ns), 8 * timeout_ns);
	KUNIT_EXPECT_EQ(test, dcbm_extra_ns(SZ_1G, 0), 0);

	/* The pieces in flight of a job that is cut short come back in time. */
	KUNIT_EXPECT_EQ(test, dcbm_max_flying(timeout_ns), 5 * 1000 * 1000);
	KUNIT_EXPECT_EQ(test, dcbm_max_flying(0), 1);
}

static struct kunit_case dcbm_cases[] = {
	KUNIT_CASE(test_pieces),
	KUNIT_CASE(test_max_seg),
	KUNIT_CASE(test_max_piece),
	KUNIT_CASE(test_spread),
	KUNIT_CASE(test_run),
	KUNIT_CASE(test_cpu_share),
	KUNIT_CASE(test_job_times),
	{}
};

static struct kunit_suite dcbm_suite = {
	.name = "migrate_dcbm",
	.test_cases = dcbm_cases,
};

kunit_test_suite(dcbm_suite);

MODULE_DESCRIPTION("KUnit tests of dcbm");
MODULE_LICENSE("GPL");
