// SPDX-License-Identifier: GPL-2.0-only
/* KUnit tests of what dcbm computes. */

#include <kunit/test.h>
#include <linux/limits.h>
#include <linux/module.h>
#include <linux/time64.h>

/* Not shared with the module, which may be absent. */
#include "math.c"

/* No folio is cut so that a piece breaks a limit, and all of it is covered. */
static void check_pieces(struct kunit *test, size_t max_seg, unsigned int align,
			 size_t opt, size_t folio_bytes, unsigned int nr_chans)
{
	size_t max_piece = dcbm_max_piece(max_seg, align, opt);
	size_t piece = dcbm_piece(folio_bytes, nr_chans, nr_chans % 2);
	size_t offset = 0, len;

	KUNIT_ASSERT_GT(test, max_piece, 0);
	while (offset < folio_bytes) {
		len = dcbm_next_len(folio_bytes, offset, piece, max_piece);
		KUNIT_ASSERT_GT(test, len, 0);
		KUNIT_ASSERT_LE(test, len, max_seg);
		KUNIT_ASSERT_LE(test, len, opt);
		KUNIT_ASSERT_EQ(test, offset % (1UL << align), 0);
		KUNIT_ASSERT_EQ(test, len % (1UL << align), 0);
		KUNIT_ASSERT_EQ(test, offset % SMP_CACHE_BYTES, 0);
		/* In one page, or of whole pages. */
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

static void test_max_piece(struct kunit *test)
{
	/* Devices that cannot take part. */
	KUNIT_EXPECT_EQ(test, dcbm_max_piece(SMP_CACHE_BYTES - 1, 0, SIZE_MAX),
			0);
	KUNIT_EXPECT_EQ(test, dcbm_max_piece(SZ_64K, PAGE_SHIFT + 1, SIZE_MAX),
			0);
	/* What dma-axi-dmac says when it means "any". */
	KUNIT_EXPECT_EQ(test, dcbm_max_piece(SZ_64K, 64, SIZE_MAX), 0);

	KUNIT_EXPECT_EQ(test, dcbm_max_piece(SZ_64K, 0, SIZE_MAX), SZ_64K);
	KUNIT_EXPECT_EQ(test, dcbm_max_piece(SZ_64K - 1, 0, SIZE_MAX),
			SZ_64K - PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, dcbm_max_piece(UINT_MAX, 0, SZ_128K), SZ_128K);
	KUNIT_EXPECT_EQ(test, dcbm_max_piece(UINT_MAX, 0, SIZE_MAX), SZ_512K);
	KUNIT_EXPECT_EQ(test, dcbm_max_piece(1000, 8, SIZE_MAX), 768);
}

/* A 2M folio reaches every one of 16 channels, and all get the same. */
static void test_spread(struct kunit *test)
{
	unsigned int nr;

	for (nr = 1; nr <= 16; nr *= 2) {
		size_t piece = dcbm_piece(SZ_2M, nr, true);

		KUNIT_EXPECT_EQ(test, dcbm_wanted(SZ_2M, nr), nr);
		KUNIT_EXPECT_LE(test, dcbm_piece(SZ_2M, nr, false), piece);
		KUNIT_EXPECT_EQ(test, SZ_2M / piece % nr, 0);
		KUNIT_EXPECT_GE(test, SZ_2M / piece, nr);
	}
	KUNIT_EXPECT_EQ(test, dcbm_wanted(PAGE_SIZE, 16), 1);
	KUNIT_EXPECT_EQ(test, dcbm_wanted(SZ_64K, 16), 2);
	KUNIT_EXPECT_EQ(test, dcbm_wanted(SZ_64K, 0), 1);
}

/* What a made-up engine would measure. */
static void make_samples(struct dcbm_samples *s, const struct dcbm_model *m,
			 unsigned int nr_chans)
{
	s->nr_chans = nr_chans;
	s->small_bytes = SZ_4K;
	s->small_ns = dcbm_engine_ns(m, 1, SZ_4K, nr_chans);
	s->nr_many = 64;
	s->many_ns = dcbm_engine_ns(m, 64, SZ_256K, nr_chans);
	s->large_bytes = SZ_2M;
	s->large_ns = dcbm_engine_ns(m, 1, SZ_2M, nr_chans);
	s->large_cpu_ns = dcbm_cpu_ns(m, SZ_2M);
}

static void expect_near(struct kunit *test, u64 a, u64 b)
{
	KUNIT_EXPECT_LE(test, max(a, b) - min(a, b), max(b / 10, 10ULL));
}

static void test_fit(struct kunit *test)
{
	/* 2 us, 500 ns a folio, 1 GB/s a channel; a CPU with 5 GB/s. */
	static const struct dcbm_model real = {
		.fixed_ns = 2000,
		.folio_ns = 500,
		.chan_ns_per_mib = 1048576,
		.cpu_ns_per_mib = 209715,
	};
	struct dcbm_samples s;
	struct dcbm_model m;
	unsigned int nr;

	for (nr = 1; nr <= 16; nr *= 2) {
		make_samples(&s, &real, nr);
		dcbm_fit(&m, &s);
		expect_near(test, m.cpu_ns_per_mib, real.cpu_ns_per_mib);
		expect_near(test, m.chan_ns_per_mib, real.chan_ns_per_mib);
		expect_near(test, m.folio_ns, real.folio_ns);
	}
}

static void test_fit_noise(struct kunit *test)
{
	/* Nonsense must not become a huge cost, or a division by zero. */
	struct dcbm_samples s = {
		.small_bytes = SZ_4K, .small_ns = 90000,
		.nr_many = 64, .many_ns = 1000,
		.large_bytes = SZ_2M, .large_ns = 10, .large_cpu_ns = 0,
		.nr_chans = 3,
	};
	struct dcbm_model m;

	dcbm_fit(&m, &s);
	KUNIT_EXPECT_EQ(test, m.chan_ns_per_mib, 0);
	KUNIT_EXPECT_EQ(test, m.folio_ns, 0);
	KUNIT_EXPECT_LE(test, m.fixed_ns, s.small_ns);
	KUNIT_EXPECT_GT(test, m.cpu_ns_per_mib, 0);
}

static void test_thresholds(struct kunit *test)
{
	struct dcbm_model m = {
		.fixed_ns = 10000,
		.folio_ns = 2000,
		.chan_ns_per_mib = 100000,
		.cpu_ns_per_mib = 200000,
	};
	struct dcbm_thresholds t;

	/* 12000 + 0.095 * bytes < 0.179 * bytes. */
	dcbm_compute_thresholds(&m, 1, &t);
	KUNIT_EXPECT_EQ(test, t.batch_bytes, SZ_256K);
	/* 4K: 390 ns saved for 2000 spent; 16K: 1560; 32K: 3125. */
	KUNIT_EXPECT_EQ(test, t.folio_bytes, SZ_32K);
	KUNIT_EXPECT_TRUE(test, dcbm_wins(&m, 1, SZ_256K, 1));
	KUNIT_EXPECT_FALSE(test, dcbm_wins(&m, 64, SZ_256K, 1));

	/* Slower than the CPU with one channel, but not with eight. */
	m.chan_ns_per_mib = 400000;
	dcbm_compute_thresholds(&m, 1, &t);
	KUNIT_EXPECT_EQ(test, t.batch_bytes, SIZE_MAX);
	KUNIT_EXPECT_EQ(test, t.folio_bytes, SIZE_MAX);
	dcbm_compute_thresholds(&m, 8, &t);
	KUNIT_EXPECT_LT(test, t.batch_bytes, SIZE_MAX);

	/* Nothing known. */
	m.cpu_ns_per_mib = 0;
	dcbm_compute_thresholds(&m, 8, &t);
	KUNIT_EXPECT_EQ(test, t.batch_bytes, 0);
	KUNIT_EXPECT_EQ(test, t.folio_bytes, 0);
}

static void test_cpu_share(struct kunit *test)
{
	size_t share;

	/* Three times as fast, and nothing else to do: a quarter. */
	share = dcbm_cpu_share(SZ_4M, 100, 300, 0);
	KUNIT_EXPECT_EQ(test, share, SZ_1M);
	/* Both need 75 for each MiB then. */
	KUNIT_EXPECT_EQ(test, (SZ_4M - share) / SZ_1M * 100,
			share / SZ_1M * 300);
	/* Half of the time is spent elsewhere. */
	share = dcbm_cpu_share(SZ_4M, 100, 300, 50);
	KUNIT_EXPECT_EQ(test, share, SZ_512K);
	/* All of it, or more. */
	KUNIT_EXPECT_EQ(test, dcbm_cpu_share(SZ_4M, 100, 300, 100), 0);
	KUNIT_EXPECT_EQ(test, dcbm_cpu_share(SZ_4M, 100, 300, 1000), 0);
	/* Nothing is known, of the one or of the other. */
	KUNIT_EXPECT_EQ(test, dcbm_cpu_share(SZ_4M, 0, 300, 0), 0);
	KUNIT_EXPECT_EQ(test, dcbm_cpu_share(SZ_4M, 100, 0, 0), 0);
	/* A slow CPU gains nothing, a fast one does not do it alone. */
	KUNIT_EXPECT_EQ(test, dcbm_cpu_share(SZ_2M, 1, 1000, 0), 0);
	KUNIT_EXPECT_EQ(test, dcbm_cpu_share(SZ_2M, 1000, 1, 0), SZ_1M);
	KUNIT_EXPECT_EQ(test, dcbm_cpu_share(PAGE_SIZE, 1000, 1, 0), 0);
	KUNIT_EXPECT_TRUE(test,
			  IS_ALIGNED(dcbm_cpu_share(SZ_2M, 37, 91, 3),
				     PAGE_SIZE));
}

/* However slow the channels seemed to be, waiting is bounded. */
static void test_job_times(struct kunit *test)
{
	const u64 timeout_ns = NSEC_PER_SEC;
	/* A GiB, of which 64 KiB took 500 ms. */
	const u64 hours_ns = 8192ULL * NSEC_PER_SEC;

	KUNIT_EXPECT_EQ(test, dcbm_extra_ns(0, timeout_ns), 0);
	KUNIT_EXPECT_EQ(test, dcbm_extra_ns(1000, timeout_ns), 2000);
	KUNIT_EXPECT_EQ(test, dcbm_extra_ns(3 * timeout_ns, timeout_ns),
			6 * timeout_ns);
	KUNIT_EXPECT_EQ(test, dcbm_extra_ns(hours_ns, timeout_ns),
			8 * timeout_ns);
	KUNIT_EXPECT_EQ(test, dcbm_extra_ns(U64_MAX, timeout_ns),
			8 * timeout_ns);
	KUNIT_EXPECT_EQ(test, dcbm_extra_ns(hours_ns, 0), 0);

	/* What is not known is not too long. */
	KUNIT_EXPECT_FALSE(test, dcbm_takes_too_long(0, timeout_ns));
	KUNIT_EXPECT_FALSE(test, dcbm_takes_too_long(0, 0));
	KUNIT_EXPECT_FALSE(test, dcbm_takes_too_long(4 * timeout_ns,
						     timeout_ns));
	KUNIT_EXPECT_TRUE(test, dcbm_takes_too_long(4 * timeout_ns + 1,
						    timeout_ns));
	KUNIT_EXPECT_TRUE(test, dcbm_takes_too_long(hours_ns, timeout_ns));
}

static struct kunit_case dcbm_cases[] = {
	KUNIT_CASE(test_pieces),
	KUNIT_CASE(test_max_piece),
	KUNIT_CASE(test_spread),
	KUNIT_CASE(test_fit),
	KUNIT_CASE(test_fit_noise),
	KUNIT_CASE(test_thresholds),
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
