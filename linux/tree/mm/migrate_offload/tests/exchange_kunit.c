// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of an exchange: which folios it takes, their content, and the
 * state that goes with an owner.  mm/migrate_offload/exchange.c includes this
 * file.
 */

#include <kunit/test.h>

#include "kunit.h"

/* An address that no code follows. */
#define MO_ANON_VMA(n) ((void *)(64UL * (n) + FOLIO_MAPPING_ANON))

static struct folio *mo_owned(struct kunit *test, unsigned int order,
			      unsigned int n)
{
	struct folio *folio = mo_test_folio(test, order);
	size_t i;

	KUNIT_ASSERT_EQ(test, mem_cgroup_charge(folio, NULL, GFP_KERNEL), 0);
	folio->mapping = MO_ANON_VMA(n);
	folio->index = 100 * n;
	set_bit(PG_swapbacked, folio_flags(folio, 0));
	set_bit(PG_uptodate, folio_flags(folio, 0));
	for (i = 0; i < folio_size(folio); i++)
		*((u8 *)folio_address(folio) + i) = n + i / 7;
	return folio;
}

/* A folio must not have these when it is freed. */
static void mo_disown(struct folio *folio)
{
	set_mask_bits(folio_flags(folio, 0), EXCHANGE_FLAGS, 0);
	folio->mapping = NULL;
	mo_test_folio_free(folio);
}

/* How many bytes from the first on have the content of this owner? */
static size_t mo_owned_bytes(struct folio *folio, unsigned int n)
{
	size_t i;

	for (i = 0; i < folio_size(folio); i++)
		if (*((u8 *)folio_address(folio) + i) != (u8)(n + i / 7))
			break;
	return i;
}

static void mo_test_exchange_can(struct kunit *test)
{
	static const unsigned int not[] = {
		PG_swapcache, PG_writeback, PG_private, PG_mlocked,
		PG_unevictable, PG_lru,
	};
	static const unsigned int need[] = { PG_swapbacked, PG_uptodate };
	struct folio *folio = mo_owned(test, 0, 1);
	unsigned int i;

	KUNIT_EXPECT_TRUE(test, exchange_can(folio));
	for (i = 0; i < ARRAY_SIZE(not); i++) {
		set_bit(not[i], folio_flags(folio, 0));
		KUNIT_EXPECT_FALSE_MSG(test, exchange_can(folio), "flag %u",
				       not[i]);
		clear_bit(not[i], folio_flags(folio, 0));
	}
	for (i = 0; i < ARRAY_SIZE(need); i++) {
		clear_bit(need[i], folio_flags(folio, 0));
		KUNIT_EXPECT_FALSE_MSG(test, exchange_can(folio), "flag %u",
				       need[i]);
		set_bit(need[i], folio_flags(folio, 0));
	}
	/* No owner, a file, and KSM. */
	folio->mapping = NULL;
	KUNIT_EXPECT_FALSE(test, exchange_can(folio));
	folio->mapping = MO_ANON_VMA(1) - FOLIO_MAPPING_ANON;
	KUNIT_EXPECT_FALSE(test, exchange_can(folio));
	folio->mapping = (void *)((unsigned long)MO_ANON_VMA(1) |
				  FOLIO_MAPPING_FLAGS);
	KUNIT_EXPECT_FALSE(test, exchange_can(folio));
	folio->mapping = MO_ANON_VMA(1);
	KUNIT_EXPECT_TRUE(test, exchange_can(folio));
	mo_disown(folio);
}

/* A part of the content goes there and back as it does after a failed read. */
static void mo_test_exchange_content(struct kunit *test)
{
	static const size_t parts[] = {
		0, EXCHANGE_BYTES, PAGE_SIZE - EXCHANGE_BYTES, PAGE_SIZE,
		PAGE_SIZE + EXCHANGE_BYTES, 3 * PAGE_SIZE, 4 * PAGE_SIZE,
	};
	struct folio *a = mo_owned(test, 2, 1), *b = mo_owned(test, 2, 2);
	struct page *bad = NULL;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		KUNIT_EXPECT_EQ(test, exchange_bytes(a, b, parts[i], &bad),
				parts[i]);
		KUNIT_EXPECT_EQ(test, mo_owned_bytes(a, 2), parts[i]);
		KUNIT_EXPECT_EQ(test, mo_owned_bytes(b, 1), parts[i]);
		KUNIT_EXPECT_EQ(test, exchange_bytes(a, b, parts[i], &bad),
				parts[i]);
		KUNIT_EXPECT_EQ(test, mo_owned_bytes(a, 1), folio_size(a));
		KUNIT_EXPECT_EQ(test, mo_owned_bytes(b, 2), folio_size(b));
	}
	KUNIT_EXPECT_NULL(test, bad);
	mo_disown(a);
	mo_disown(b);
}

static void mo_exchange_owners(struct folio *a, struct folio *b)
{
	/* The queue of folios to split expects a frozen folio. */
	folio_ref_freeze(a, 1);
	folio_ref_freeze(b, 1);
	exchange_owners(a, b);
	folio_ref_unfreeze(a, 1);
	folio_ref_unfreeze(b, 1);
}

/* Each flag of an owner goes with the owner, and all other flags stay. */
static void mo_test_exchange_flags(struct kunit *test)
{
	unsigned int flag;

	for (flag = 0; flag < __NR_PAGEFLAGS; flag++) {
		struct folio *a, *b;

		/* These belong to the allocator, or decide who may look. */
		if (BIT(flag) & (BIT(PG_locked) | BIT(PG_head) |
				 BIT(PG_reserved) | BIT(PG_uptodate) |
				 BIT(PG_swapbacked) | BIT(PG_anon_exclusive)))
			continue;
		/* The charge moves only for folios that are not on a list. */
		if (flag == PG_lru)
			continue;
		a = mo_owned(test, 0, 1);
		b = mo_owned(test, 0, 2);
		set_bit(flag, folio_flags(a, 0));
		mo_exchange_owners(a, b);
		KUNIT_EXPECT_EQ_MSG(test, test_bit(flag, folio_flags(b, 0)),
				    !!(BIT(flag) & EXCHANGE_FLAGS),
				    "flag %u of the new place", flag);
		KUNIT_EXPECT_EQ_MSG(test, test_bit(flag, folio_flags(a, 0)),
				    !(BIT(flag) & EXCHANGE_FLAGS),
				    "flag %u of the old place", flag);
		clear_bit(flag, folio_flags(a, 0));
		clear_bit(flag, folio_flags(b, 0));
		mo_disown(a);
		mo_disown(b);
	}
}

static void mo_test_exchange_owners(struct kunit *test)
{
	struct folio *a = mo_owned(test, 2, 1), *b = mo_owned(test, 2, 2);
	struct mem_cgroup *of_a = folio_memcg(a), *of_b = folio_memcg(b);
	int nid_a = folio_nid(a), nid_b = folio_nid(b);

	/* The owner unmapped this page before, so no entry has the flag. */
	set_bit(PG_anon_exclusive, folio_flags(a, 3));
	mo_exchange_owners(a, b);
	KUNIT_EXPECT_PTR_EQ(test, (void *)a->mapping, MO_ANON_VMA(2));
	KUNIT_EXPECT_PTR_EQ(test, (void *)b->mapping, MO_ANON_VMA(1));
	KUNIT_EXPECT_EQ(test, a->index, 200);
	KUNIT_EXPECT_EQ(test, b->index, 100);
	KUNIT_EXPECT_PTR_EQ(test, folio_memcg(a), of_b);
	KUNIT_EXPECT_PTR_EQ(test, folio_memcg(b), of_a);
	KUNIT_EXPECT_FALSE(test, test_bit(PG_anon_exclusive, folio_flags(a, 3)));
	KUNIT_EXPECT_EQ(test, folio_nid(a), nid_a);
	KUNIT_EXPECT_EQ(test, folio_nid(b), nid_b);
	KUNIT_EXPECT_EQ(test, folio_ref_count(a), 1);
	KUNIT_EXPECT_EQ(test, folio_ref_count(b), 1);
	mo_disown(a);
	mo_disown(b);
}

static struct kunit_case migrate_exchange_test_cases[] = {
	KUNIT_CASE(mo_test_exchange_can),
	KUNIT_CASE(mo_test_exchange_content),
	KUNIT_CASE(mo_test_exchange_flags),
	KUNIT_CASE(mo_test_exchange_owners),
	{}
};

static struct kunit_suite migrate_exchange_test_suite = {
	.name = "migrate_exchange",
	.test_cases = migrate_exchange_test_cases,
};

kunit_test_suite(migrate_exchange_test_suite);
