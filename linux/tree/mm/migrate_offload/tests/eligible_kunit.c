// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of which folios an engine may copy before the move.
 * mm/migrate_offload/eligible.c includes this file.
 */

#include <kunit/test.h>

#include "kunit.h"

/*
 * A page from the allocator looks like an unmapped anonymous page: it has one
 * reference and no mapping.  Each test changes one property, and restores it.
 */
struct mo_pair {
	struct folio *src, *dst;
};

static void mo_pair_init(struct kunit *test, struct mo_pair *pair)
{
	pair->src = mo_test_folio(test, 0);
	pair->dst = mo_test_folio(test, 0);
	KUNIT_ASSERT_TRUE(test, migrate_offload_eligible(pair->src, pair->dst));
}

/* Each test must have restored the pair. */
static void mo_pair_exit(struct kunit *test, struct mo_pair *pair)
{
	KUNIT_EXPECT_TRUE(test, migrate_offload_eligible(pair->src, pair->dst));
	mo_test_folio_free(pair->src);
	mo_test_folio_free(pair->dst);
}

static void mo_expect_not_eligible(struct kunit *test, struct mo_pair *pair)
{
	KUNIT_EXPECT_FALSE(test, migrate_offload_eligible(pair->src, pair->dst));
}

static void mo_test_eligible_refcount(struct kunit *test)
{
	struct mo_pair pair;

	mo_pair_init(test, &pair);
	folio_get(pair.src);
	mo_expect_not_eligible(test, &pair);
	folio_put(pair.src);
	/*
	 * References to the destination do not matter: only this code uses it.
	 */
	folio_get(pair.dst);
	KUNIT_EXPECT_TRUE(test, migrate_offload_eligible(pair.src, pair.dst));
	folio_put(pair.dst);
	mo_pair_exit(test, &pair);
}

/* A small anonymous folio, whose flags are read at once. */
static void mo_test_eligible_anonymous(struct kunit *test)
{
	static const unsigned int not[] = {
		PG_private, PG_writeback,
#ifdef CONFIG_MEMORY_FAILURE
		PG_hwpoison,
#endif
	};
	struct mo_pair pair;
	unsigned int i;

	mo_pair_init(test, &pair);
	pair.src->mapping = (void *)FOLIO_MAPPING_ANON;
	KUNIT_EXPECT_TRUE(test, migrate_offload_plain(pair.src, pair.dst));
	for (i = 0; i < ARRAY_SIZE(not); i++) {
		set_bit(not[i], folio_flags(pair.src, 0));
		mo_expect_not_eligible(test, &pair);
		clear_bit(not[i], folio_flags(pair.src, 0));
	}
	folio_get(pair.src);
	mo_expect_not_eligible(test, &pair);
	atomic_set(&pair.src->_mapcount, 0);
	mo_expect_not_eligible(test, &pair);
	folio_put(pair.src);
	mo_expect_not_eligible(test, &pair);
	atomic_set(&pair.src->_mapcount, -1);

	/* These may be eligible, and need the other checks. */
	set_bit(PG_swapcache, folio_flags(pair.src, 0));
	KUNIT_EXPECT_FALSE(test, migrate_offload_plain(pair.src, pair.dst));
	clear_bit(PG_swapcache, folio_flags(pair.src, 0));
	pair.src->mapping = (void *)FOLIO_MAPPING_FLAGS;
	KUNIT_EXPECT_FALSE(test, migrate_offload_plain(pair.src, pair.dst));
	pair.src->mapping = NULL;
	mo_pair_exit(test, &pair);
}

static void mo_test_eligible_flags(struct kunit *test)
{
	struct mo_pair pair;

	mo_pair_init(test, &pair);

	folio_set_private(pair.src);
	folio_get(pair.src);
	mo_expect_not_eligible(test, &pair);
	folio_put(pair.src);
	folio_clear_private(pair.src);

	set_bit(PG_writeback, folio_flags(pair.src, 0));
	mo_expect_not_eligible(test, &pair);
	clear_bit(PG_writeback, folio_flags(pair.src, 0));

#ifdef CONFIG_MEMORY_FAILURE
	SetPageHWPoison(&pair.src->page);
	mo_expect_not_eligible(test, &pair);
	ClearPageHWPoison(&pair.src->page);
#endif

	/* Simulate one mapping. */
	atomic_set(&pair.src->_mapcount, 0);
	folio_get(pair.src);
	mo_expect_not_eligible(test, &pair);
	folio_put(pair.src);
	atomic_set(&pair.src->_mapcount, -1);

	mo_pair_exit(test, &pair);
}

static void mo_test_eligible_size(struct kunit *test)
{
	struct folio *large = mo_test_folio(test, 2);
	struct mo_pair pair;

	mo_pair_init(test, &pair);
	KUNIT_EXPECT_FALSE(test, migrate_offload_eligible(pair.src, large));
	KUNIT_EXPECT_FALSE(test, migrate_offload_eligible(large, pair.dst));
	mo_test_folio_free(large);
	mo_pair_exit(test, &pair);
}

/* A callback that the core does not know. */
static int mo_test_migrate_folio(struct address_space *mapping,
				 struct folio *dst, struct folio *src,
				 enum migrate_mode mode)
{
	return -EBUSY;
}

struct mo_mapping_case {
	const char *name;
	int (*migrate_folio)(struct address_space *mapping, struct folio *dst,
			     struct folio *src, enum migrate_mode mode);
	unsigned long flags;
	bool eligible;
	bool eligible_private;
};

static const struct mo_mapping_case mo_mapping_cases[] = {
	{ "no callback", NULL, 0, false, false },
	{ "unknown callback", mo_test_migrate_folio, 0, false, false },
	{ "migrate_folio", migrate_folio, 0, true, false },
	{ "filemap", filemap_migrate_folio, 0, true, true },
	{ "inaccessible", migrate_folio, BIT(AS_INACCESSIBLE), false, false },
#ifdef CONFIG_BUFFER_HEAD
	{ "buffer", buffer_migrate_folio, 0, true, false },
	{ "buffer norefs", buffer_migrate_folio_norefs, 0, true, false },
#endif
};

KUNIT_ARRAY_PARAM_DESC(mo_mapping, mo_mapping_cases, name);

static void mo_test_eligible_mapping(struct kunit *test)
{
	const struct mo_mapping_case *param = test->param_value;
	const struct address_space_operations aops = {
		.migrate_folio = param->migrate_folio,
	};
	struct address_space *mapping;
	struct mo_pair pair;

	mapping = kunit_kzalloc(test, sizeof(*mapping), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, mapping);
	mapping->a_ops = &aops;
	mapping->flags = param->flags;

	mo_pair_init(test, &pair);

	/* The page cache holds a reference. */
	pair.src->mapping = mapping;
	folio_get(pair.src);
	KUNIT_EXPECT_EQ(test, param->eligible,
			migrate_offload_eligible(pair.src, pair.dst));

	/* The data in folio->private holds another one. */
	folio_set_private(pair.src);
	folio_get(pair.src);
	KUNIT_EXPECT_EQ(test, param->eligible_private,
			migrate_offload_eligible(pair.src, pair.dst));
	folio_put(pair.src);
	folio_clear_private(pair.src);

	/* An additional reference makes the folio ineligible. */
	folio_get(pair.src);
	mo_expect_not_eligible(test, &pair);
	folio_put(pair.src);

	folio_put(pair.src);
	pair.src->mapping = NULL;
	mo_pair_exit(test, &pair);
}

static void mo_test_eligible_movable(struct kunit *test)
{
	struct mo_pair pair;

	mo_pair_init(test, &pair);
	/* Balloons have such pages.  Linux 6.12 marks them by the mapping. */
	__folio_set_offline(pair.src);
	SetPageMovableOps(&pair.src->page);
	mo_expect_not_eligible(test, &pair);
	/* The other check of references must not be the one that fails. */
	folio_get(pair.src);
	mo_expect_not_eligible(test, &pair);
	folio_put(pair.src);
	pair.src->mapping = NULL;
	__folio_clear_offline(pair.src);
	mo_pair_exit(test, &pair);
}

static struct kunit_case migrate_eligible_test_cases[] = {
	KUNIT_CASE(mo_test_eligible_refcount),
	KUNIT_CASE(mo_test_eligible_anonymous),
	KUNIT_CASE(mo_test_eligible_flags),
	KUNIT_CASE(mo_test_eligible_size),
	KUNIT_CASE_PARAM(mo_test_eligible_mapping, mo_mapping_gen_params),
	KUNIT_CASE(mo_test_eligible_movable),
	{}
};

static struct kunit_suite migrate_eligible_test_suite = {
	.name = "migrate_eligible",
	.test_cases = migrate_eligible_test_cases,
};

kunit_test_suite(migrate_eligible_test_suite);
