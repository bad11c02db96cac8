// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the choice of a routine.  mm/migrate_offload/copy_routine.c
 * includes this file.
 */

#include <kunit/test.h>

/* The fastest routine wins.  Stock Linux's stays unless another saves 1/16. */
static void mo_test_fastest(struct kunit *test)
{
	static const struct {
		u64 ns[NR_MIGRATE_COPY_ROUTINES];
		enum migrate_copy_routine best;
	} cases[] = {
		{ { 0, 0, 0 }, MIGRATE_COPY_PAGES },
		{ { 1600, 1500, 0 }, MIGRATE_COPY_PAGES },
		{ { 1600, 1500, 1599 }, MIGRATE_COPY_PAGES },
		{ { 1600, 9999, 9999 }, MIGRATE_COPY_PAGES },
		{ { 1600, 1499, 0 }, MIGRATE_COPY_NONTEMPORAL },
		{ { 1600, 1400, 1401 }, MIGRATE_COPY_NONTEMPORAL },
		{ { 1600, 1400, 1399 }, MIGRATE_COPY_DIRECT },
		{ { 1600, 1700, 800 }, MIGRATE_COPY_DIRECT },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++)
		KUNIT_EXPECT_EQ_MSG(test, cases[i].best,
				    migrate_copy_fastest(cases[i].ns),
				    "case %d", i);
}

/* Write to the file, and return the result. */
static ssize_t mo_copy_write(const char *word)
{
	return copy_routine_store(NULL, NULL, word, strlen(word));
}

static void mo_expect_routine(struct kunit *test,
			      enum migrate_copy_routine routine,
			      const char *setting, const char *reason)
{
	char *buf = kunit_kzalloc(test, PAGE_SIZE, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, buf);
	KUNIT_EXPECT_EQ(test, routine, migrate_copy_routine);
	KUNIT_EXPECT_EQ(test, routine != MIGRATE_COPY_PAGES,
			static_key_enabled(&migrate_copy_key));
	copy_routine_show(NULL, NULL, buf);
	KUNIT_EXPECT_STREQ(test, setting, buf);
	copy_routine_reason_show(NULL, NULL, buf);
	KUNIT_EXPECT_NOT_NULL(test, strstr(buf, reason));
}

/* The administrator decides, until "auto" brings back the choice of the boot. */
static void mo_test_setting(struct kunit *test)
{
	unsigned int found = migrate_copy_setting;
	bool direct = migrate_copy_has(MIGRATE_COPY_DIRECT);

	KUNIT_EXPECT_EQ(test, 12, mo_copy_write("nontemporal\n"));
	mo_expect_routine(test, MIGRATE_COPY_NONTEMPORAL, "nontemporal\n",
			  "nontemporal administrator\n");
	KUNIT_EXPECT_EQ(test, direct ? 6 : -EOPNOTSUPP, mo_copy_write("direct"));
	KUNIT_EXPECT_EQ(test, 5, mo_copy_write("pages"));
	mo_expect_routine(test, MIGRATE_COPY_PAGES, "pages\n",
			  "pages administrator\n");
	KUNIT_EXPECT_EQ(test, -EINVAL, mo_copy_write("faster"));
	KUNIT_EXPECT_EQ(test, -EINVAL, mo_copy_write(""));
	mo_expect_routine(test, MIGRATE_COPY_PAGES, "pages\n",
			  "pages administrator\n");
	KUNIT_EXPECT_EQ(test, 4, mo_copy_write("auto"));
	mo_expect_routine(test, migrate_copy_fastest(migrate_copy_ns), "auto\n",
			  migrate_copy_missing ?: "measured pages_mb_s=");
	mo_copy_write(migrate_copy_names[found]);
}

static struct kunit_case migrate_copy_routine_test_cases[] = {
	KUNIT_CASE(mo_test_fastest),
	KUNIT_CASE(mo_test_setting),
	{}
};

static struct kunit_suite migrate_copy_routine_test_suite = {
	.name = "migrate_copy_routine",
	.test_cases = migrate_copy_routine_test_cases,
};

kunit_test_suite(migrate_copy_routine_test_suite);
