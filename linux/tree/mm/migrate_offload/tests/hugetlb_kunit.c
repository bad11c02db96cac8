// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the times learned from hugetlb folios.
 * mm/migrate_offload/hugetlb.c includes this file, which gives access to static
 * functions.
 */

#include <kunit/test.h>

struct mo_own_case {
	const char *name;
	u64 unmapped_ns;
	u64 since_ns;
	u64 own_ns;
};

static const struct mo_own_case mo_own_cases[] = {
	{ "begins where the one before it ended", 1000, 700, 700 },
	{ "half of it at least", 1000, 300, 500 },
	{ "half, if both ended together", 1000, 0, 500 },
	{ "no more than all of it", 1000, 1200, 1000 },
	{ "rounds down", 7, 0, 3 },
	{ "of no time", 0, 0, 0 },
	{ "no overflow", U64_MAX, U64_MAX, U64_MAX },
};

KUNIT_ARRAY_PARAM_DESC(mo_own, mo_own_cases, name);

static void mo_test_own(struct kunit *test)
{
	const struct mo_own_case *param = test->param_value;

	KUNIT_EXPECT_EQ(test, migrate_huge_own_ns(param->unmapped_ns,
						  param->since_ns),
			param->own_ns);
}

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
		huge = kzalloc(sizeof(*huge), GFP_KERNEL);
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
	KUNIT_CASE_PARAM(mo_test_own, mo_own_gen_params),
	KUNIT_CASE(mo_test_finish),
	{}
};

static struct kunit_suite migrate_huge_test_suite = {
	.name = "migrate_huge",
	.test_cases = migrate_huge_test_cases,
};

kunit_test_suite(migrate_huge_test_suite);
