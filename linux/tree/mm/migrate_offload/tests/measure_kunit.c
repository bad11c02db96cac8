// SPDX-License-Identifier: GPL-2.0-only
/*
 * A KUnit test of the time of a copy.  mm/migrate_offload/measure.c includes
 * this file.
 */

#include <kunit/test.h>

/* The measurement yields a time with any amount of free memory. */
static void mo_test_measure(struct kunit *test)
{
	KUNIT_EXPECT_GT(test, migrate_measure_copy_2m_ns(), 0);
}

static struct kunit_case migrate_measure_test_cases[] = {
	KUNIT_CASE(mo_test_measure),
	{}
};

static struct kunit_suite migrate_measure_test_suite = {
	.name = "migrate_measure",
	.test_cases = migrate_measure_test_cases,
};

kunit_test_suite(migrate_measure_test_suite);
