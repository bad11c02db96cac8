// SPDX-License-Identifier: GPL-2.0-only
/*
 * A KUnit test of lists of hugetlb folios.  mm/migrate_offload/hugetlb.c
 * includes this file.
 */

#include <kunit/test.h>

/*
 * A list that ends early for lack of memory does not make its side look fast.
 */
static void mo_test_finish(struct kunit *test)
{
	static const unsigned int nrs[] = { 0, 512, 0 };
	struct migrate_choice choice = {};
	struct migrate_huge *huge;
	unsigned int i, sum = 0;

	for (i = 0; i < ARRAY_SIZE(nrs); i++) {
		huge = kzalloc_obj(*huge, GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, huge);
		huge->session.total_bytes = 100 * SZ_2M;
		huge->attempt.choice = &choice;
		huge->attempt.by_cpu = true;
		huge->attempt.start_ns = ktime_get_ns();
		__migrate_huge_finish(huge, nrs[i]);
		sum += nrs[i];
		KUNIT_EXPECT_EQ(test, choice.cpu.pages, sum);
	}
}

static struct kunit_case migrate_huge_test_cases[] = {
	KUNIT_CASE(mo_test_finish),
	{}
};

static struct kunit_suite migrate_huge_test_suite = {
	.name = "migrate_huge",
	.test_cases = migrate_huge_test_cases,
};

kunit_test_suite(migrate_huge_test_suite);
