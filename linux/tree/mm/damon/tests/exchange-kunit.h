/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * KUnit tests of notes about cold folios.  mm/damon/exchange.c includes this
 * file.
 */
#ifdef CONFIG_DAMON_MIGRATE_KUNIT_TEST

#include <kunit/test.h>
#include <linux/leafops.h>
#include <linux/page-flags.h>

#define DAMOS_TEST_NOTED 3

/* Note anonymous folios of one node, for which this node had no room. */
static void damos_test_note(struct kunit *test, struct folio **folios)
{
	int i, nid = numa_mem_id();
	unsigned long begin;
	LIST_HEAD(cold);

	for (i = 0; i < DAMOS_TEST_NOTED; i++) {
		folios[i] = __folio_alloc_node(GFP_KERNEL | __GFP_THISNODE, 0,
					       nid);
		KUNIT_ASSERT_NOT_NULL(test, folios[i]);
		folios[i]->mapping = (void *)FOLIO_MAPPING_ANON;
		list_add_tail(&folios[i]->lru, &cold);
	}
	begin = jiffies;
	damos_exchange_note(&cold, 0, nid);
	KUNIT_EXPECT_TRUE(test, time_in_range(damos_notes_until, begin + HZ,
					      jiffies + HZ));
	/* A host that stalls must not end the notes. */
	for (i = 0; i < DAMOS_NOTES; i++)
		damos_notes[i].until += 3600UL * HZ;
}

static void damos_test_free(struct folio **folios)
{
	int i;

	for (i = 0; i < DAMOS_TEST_NOTED; i++) {
		folios[i]->mapping = NULL;
		folio_put(folios[i]);
	}
	for (i = 0; i < DAMOS_NOTES; i++)
		damos_notes[i].valid = false;
}

/* Each note serves once, and the first serves first. */
static void damos_test_notes_in_order(struct kunit *test)
{
	struct folio *folios[DAMOS_TEST_NOTED];
	int i, nid;
	struct damos_note note;

	damos_test_note(test, folios);
	nid = folio_nid(folios[0]);
	KUNIT_EXPECT_FALSE(test, damos_take_note(folios[0], nid + 1, &note));
	for (i = 0; i < DAMOS_TEST_NOTED; i++) {
		KUNIT_EXPECT_TRUE(test, damos_take_note(folios[0], nid, &note));
		KUNIT_EXPECT_EQ(test, note.pfn, folio_pfn(folios[i]));
	}
	KUNIT_EXPECT_FALSE(test, damos_take_note(folios[0], nid, &note));
	damos_test_free(folios);
}

/* By now, other memory may be there. */
static void damos_test_notes_expire(struct kunit *test)
{
	struct folio *folios[DAMOS_TEST_NOTED];
	struct damos_note note;
	int i;

	damos_test_note(test, folios);
	for (i = 0; i < DAMOS_NOTES; i++)
		damos_notes[i].until = jiffies - 1;
	KUNIT_EXPECT_FALSE(test, damos_take_note(folios[0],
						 folio_nid(folios[0]), &note));
	damos_test_free(folios);
}

/* The page frame may have another owner. */
static void damos_test_notes_other_owner(struct kunit *test)
{
	struct folio *folios[DAMOS_TEST_NOTED];
	struct damos_note note;

	damos_test_note(test, folios);
	KUNIT_ASSERT_TRUE(test, damos_take_note(folios[0], folio_nid(folios[0]),
						&note));
	KUNIT_EXPECT_TRUE(test, damos_is_noted(folios[0], &note));
	KUNIT_EXPECT_FALSE(test, damos_is_noted(folios[1], &note));
	folios[0]->index++;
	KUNIT_EXPECT_FALSE(test, damos_is_noted(folios[0], &note));
	folios[0]->index--;
	folios[0]->mapping = (void *)(sizeof(long) | FOLIO_MAPPING_ANON);
	KUNIT_EXPECT_FALSE(test, damos_is_noted(folios[0], &note));
	damos_test_free(folios);
}

static struct kunit_case damos_exchange_test_cases[] = {
	KUNIT_CASE(damos_test_notes_in_order),
	KUNIT_CASE(damos_test_notes_expire),
	KUNIT_CASE(damos_test_notes_other_owner),
	{},
};

static struct kunit_suite damos_exchange_test_suite = {
	.name = "exchange_damon",
	.test_cases = damos_exchange_test_cases,
};

kunit_test_suite(damos_exchange_test_suite);

#endif /* CONFIG_DAMON_MIGRATE_KUNIT_TEST */
