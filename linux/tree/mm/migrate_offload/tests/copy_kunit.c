// SPDX-License-Identifier: GPL-2.0-only
/* KUnit tests of copies.  mm/migrate_offload/copy.c includes this file. */

#include <kunit/test.h>
#include <linux/minmax.h>
#include <linux/sizes.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

#include "kunit.h"

#define MO_GUARD 0xa5

struct mo_copy_pair {
	struct folio *src, *dst;
};

/* Two large folios with room for @bytes and a page on both sides. */
static struct mo_copy_pair mo_copy_pair(struct kunit *test, size_t bytes)
{
	unsigned int order = get_order(max(bytes + 2 * PAGE_SIZE, SZ_512K));
	struct mo_copy_pair pair = {
		.src = mo_test_folio(test, order),
		.dst = mo_test_folio(test, order),
	};
	u64 *word = folio_address(pair.src);
	size_t i;

	for (i = 0; i < folio_size(pair.src) / sizeof(*word); i++)
		word[i] = i * 0x9e3779b97f4a7c15ULL;
	memset(folio_address(pair.dst), MO_GUARD, folio_size(pair.dst));
	return pair;
}

static void mo_copy_free(struct mo_copy_pair pair)
{
	mo_test_folio_free(pair.src);
	mo_test_folio_free(pair.dst);
}

/* All of @bytes after the first page are copied, and nothing else. */
static void mo_copy_check(struct kunit *test, struct mo_copy_pair pair,
			  size_t bytes)
{
	void *from = folio_address(pair.src), *to = folio_address(pair.dst);
	size_t end = PAGE_SIZE + bytes;

	KUNIT_EXPECT_EQ(test, 0, memcmp(to + PAGE_SIZE, from + PAGE_SIZE, bytes));
	KUNIT_EXPECT_NULL(test, memchr_inv(to, MO_GUARD, PAGE_SIZE));
	KUNIT_EXPECT_NULL(test, memchr_inv(to + end, MO_GUARD,
					   folio_size(pair.dst) - end));
}

/* Run a test with each routine for large folios. */
static void mo_with_each_routine(struct kunit *test,
				 void (*run)(struct kunit *test))
{
#ifdef CONFIG_MIGRATE_COPY_ROUTINES
	enum migrate_copy_routine found = migrate_copy_routine, routine;

	for (routine = 0; routine < NR_MIGRATE_COPY_ROUTINES; routine++) {
		if (!migrate_copy_has(routine))
			continue;
		migrate_copy_use(routine);
		run(test);
	}
	migrate_copy_use(found);
#else
	run(test);
#endif
}

static void mo_copy_spans(struct kunit *test)
{
	size_t bytes;

	for (bytes = PAGE_SIZE; bytes <= SZ_1M; bytes *= 2) {
		struct mo_copy_pair pair = mo_copy_pair(test, bytes);

		KUNIT_EXPECT_EQ(test, 0,
				migrate_copy_span(pair.dst, pair.src, PAGE_SIZE,
						  bytes, true));
		mo_copy_check(test, pair, bytes);
		mo_copy_free(pair);
	}
}

/* A copy has all bytes of the span, and no others. */
static void mo_test_span(struct kunit *test)
{
	mo_with_each_routine(test, mo_copy_spans);
}

static void mo_copy_folios(struct kunit *test)
{
	unsigned int order;

	for (order = 0; order <= min(get_order(SZ_2M), MAX_PAGE_ORDER); order++) {
		struct folio *src = mo_test_folio(test, order);
		struct folio *dst = mo_test_folio(test, order);

		memset(folio_address(src), MO_GUARD + order, folio_size(src));
		memset(folio_address(dst), 0, folio_size(dst));
		KUNIT_EXPECT_EQ(test, 0, migrate_copy_folio(dst, src));
		KUNIT_EXPECT_NULL(test, memchr_inv(folio_address(dst),
						   MO_GUARD + order,
						   folio_size(dst)));
		mo_test_folio_free(src);
		mo_test_folio_free(dst);
	}
}

/* A copy of a folio has all of it, whatever its size. */
static void mo_test_folios(struct kunit *test)
{
	mo_with_each_routine(test, mo_copy_folios);
}

#ifdef CONFIG_MIGRATE_COPY_ROUTINES
/*
 * An exception ends a loop at the page that causes it, whether the loop reads or
 * writes there.  The page after an area of vmalloc() is unmapped.
 */
static void mo_copy_exception(struct kunit *test, u8 *small, u8 *large,
			      unsigned long (*copy)(void *dst, const void *src,
						    unsigned long bytes))
{
	const size_t two = 2 * PAGE_SIZE, four = 4 * PAGE_SIZE;

	memset(small, 1, two);
	memset(large, MO_GUARD, four);
	KUNIT_EXPECT_EQ(test, two, copy(large, small, four));
	KUNIT_EXPECT_NULL(test, memchr_inv(large, 1, two));
	KUNIT_EXPECT_NULL(test, memchr_inv(large + two, MO_GUARD, two));

	memset(large, 2, four);
	KUNIT_EXPECT_EQ(test, two, copy(small, large, four));
	KUNIT_EXPECT_NULL(test, memchr_inv(small, 2, two));
}

static void mo_test_exception(struct kunit *test)
{
	u8 *small = vmalloc(2 * PAGE_SIZE), *large = vmalloc(4 * PAGE_SIZE);

	KUNIT_EXPECT_TRUE(test, small && large);
	if (small && large) {
		mo_copy_exception(test, small, large, migrate_copy_nontemporal);
		if (migrate_copy_has(MIGRATE_COPY_DIRECT))
			mo_copy_exception(test, small, large,
					  migrate_copy_direct);
	}
	vfree(small);
	vfree(large);
}
#endif

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_DEBUG
static void mo_copy_bad_page(struct kunit *test)
{
	const size_t bytes = SZ_512K, good = SZ_256K + 2 * PAGE_SIZE;
	struct mo_copy_pair pair = mo_copy_pair(test, bytes);
	unsigned long bad = folio_pfn(pair.src) + 1 + (good >> PAGE_SHIFT);
	int nr_before = migrate_offload_set_bad_pfn(bad);

	KUNIT_EXPECT_EQ(test, -EHWPOISON,
			migrate_copy_span(pair.dst, pair.src, PAGE_SIZE, bytes,
					  true));
	KUNIT_EXPECT_EQ(test, nr_before + 1, migrate_offload_set_bad_pfn(0));
	mo_copy_check(test, pair, good);
	KUNIT_EXPECT_EQ(test, 0,
			migrate_copy_span(pair.dst, pair.src, PAGE_SIZE, bytes,
					  true));
	mo_copy_check(test, pair, bytes);
	mo_copy_free(pair);
}

/*
 * A page that cannot be read ends the copy.  The pages before it are copied,
 * and none after it.  The page is read once.
 */
static void mo_test_bad_page(struct kunit *test)
{
	mo_with_each_routine(test, mo_copy_bad_page);
}
#endif

static struct kunit_case migrate_copy_test_cases[] = {
	KUNIT_CASE(mo_test_span),
	KUNIT_CASE(mo_test_folios),
#ifdef CONFIG_MIGRATE_COPY_ROUTINES
	KUNIT_CASE(mo_test_exception),
#endif
#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_DEBUG
	KUNIT_CASE(mo_test_bad_page),
#endif
	{}
};

static struct kunit_suite migrate_copy_test_suite = {
	.name = "migrate_copy",
	.test_cases = migrate_copy_test_cases,
};

kunit_test_suite(migrate_copy_test_suite);
