// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of gathering runs.  mm/migrate_run/gather.c includes this file,
 * which gives access to static functions.
 */

#include <kunit/test.h>

/* Neighbours rise after migrate_run_rise(), and their groups keep their order. */
static void mo_test_rise(struct kunit *test)
{
	static const unsigned int before[] = { 7, 6, 5, 1, 2, 9, 4, 3 };
	static const unsigned int after[] = { 5, 6, 7, 1, 2, 9, 3, 4 };
	struct page *pages[ARRAY_SIZE(before)];
	struct page *first = ZERO_PAGE(0);
	unsigned int i, nr;

	for (i = 0; i < ARRAY_SIZE(pages); i++)
		pages[i] = first + before[i];
	migrate_run_rise(pages, ARRAY_SIZE(pages));
	for (i = 0; i < ARRAY_SIZE(pages); i++)
		KUNIT_EXPECT_EQ(test, pages[i] - first, after[i]);

	/* It does not look beyond the last page. */
	for (nr = 0; nr <= 2; nr++) {
		pages[0] = first + 2;
		pages[1] = first + 1;
		pages[2] = first;
		migrate_run_rise(pages, nr);
		KUNIT_EXPECT_PTR_EQ(test, pages[0], first + (nr == 2 ? 1 : 2));
		KUNIT_EXPECT_PTR_EQ(test, pages[2], first);
	}
}

static struct kunit_case migrate_gather_test_cases[] = {
	KUNIT_CASE(mo_test_rise),
	{}
};

static struct kunit_suite migrate_gather_test_suite = {
	.name = "migrate_gather",
	.test_cases = migrate_gather_test_cases,
};

kunit_test_suite(migrate_gather_test_suite);
