// SPDX-License-Identifier: GPL-2.0-only
/* KUnit tests of copies.  mm/migrate_offload/copy.c includes this file. */

#include <kunit/test.h>
#include <linux/sizes.h>
#include <linux/string.h>

#include "kunit.h"

#define MO_GUARD 0xa5

struct mo_copy_pair {
	struct folio *src, *dst;
};

/* A pair of folios with room for @bytes and a page on both sides. */
static struct mo_copy_pair mo_copy_pair(struct kunit *test, size_t bytes)
{
	unsigned int order = get_order(bytes + 2 * PAGE_SIZE);
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

/* A copy has all bytes of the span, and no others. */
static void mo_test_span(struct kunit *test)
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

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_DEBUG
/*
 * A page that cannot be read ends the copy.  The pages before it are copied,
 * and none after it.  The page is read once.
 */
static void mo_test_bad_page(struct kunit *test)
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
#endif

static struct kunit_case migrate_copy_test_cases[] = {
	KUNIT_CASE(mo_test_span),
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
