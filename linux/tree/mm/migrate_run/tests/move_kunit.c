// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit test of the state that moves with a folio.  mm/migrate_run/move.c
 * includes this file, which gives access to static functions.
 */

#include <kunit/test.h>

#include <linux/gfp.h>
#include <linux/migrate.h>

/* No folio of a run has these flags, or they stay with the folio. */
#define MO_OTHER_FLAGS (BIT(PG_locked) | BIT(PG_writeback) | BIT(PG_lru) |	\
			BIT(PG_head) | BIT(PG_waiters) | BIT(PG_reserved) |	\
			BIT(PG_private) | BIT(PG_mlocked) | BIT(PG_swapbacked))

static struct folio *mo_folio_of(struct kunit *test, unsigned int order,
				 bool charge)
{
	struct folio *folio = folio_alloc(GFP_KERNEL, order);

	KUNIT_ASSERT_NOT_NULL(test, folio);
	/* As the core has it. */
	__folio_set_locked(folio);
	if (charge)
		KUNIT_ASSERT_EQ(test, mem_cgroup_charge(folio, NULL, GFP_KERNEL), 0);
	return folio;
}

static struct folio *mo_folio(struct kunit *test, bool charge)
{
	return mo_folio_of(test, 0, charge);
}

static unsigned long mo_flags(const struct folio *folio)
{
	return READ_ONCE(*const_folio_flags(folio, 0)) &
		(BIT(__NR_PAGEFLAGS) - 1);
}

/* Free a folio with a flag that a free folio must not have. */
static void mo_free(struct folio *folio, unsigned int flag)
{
	clear_bit(flag, folio_flags(folio, 0));
	folio_unlock(folio);
	folio_put(folio);
}

static void mo_try_flags(struct kunit *test, bool anon)
{
	unsigned int flag, i;

	for (flag = 0; flag < __NR_PAGEFLAGS; flag++) {
		struct folio *src[2], *dst[2];

		if (BIT(flag) & MO_OTHER_FLAGS)
			continue;
		if (anon && flag == PG_anon_exclusive)
			continue;
		for (i = 0; i < 2; i++) {
			src[i] = mo_folio(test, true);
			dst[i] = mo_folio(test, false);
			set_bit(flag, folio_flags(src[i], 0));
		}
		folio_migrate_flags(dst[0], src[0]);
		migrate_run_move_state(dst[1], src[1], anon);
		KUNIT_EXPECT_EQ_MSG(test, mo_flags(dst[0]), mo_flags(dst[1]),
				    "flag %u of the destination", flag);
		/* A folio in the swap cache has PG_checked, and is not here. */
		if (flag != PG_checked)
			KUNIT_EXPECT_EQ_MSG(test, mo_flags(src[0]),
					    mo_flags(src[1]),
					    "flag %u of the source", flag);
		for (i = 0; i < 2; i++) {
			mo_free(src[i], flag);
			mo_free(dst[i], flag);
		}
	}
}

/* Each flag has the same effect as in folio_migrate_flags(). */
static void mo_test_flags(struct kunit *test)
{
	mo_try_flags(test, true);
}

/* The same for page cache, where PG_anon_exclusive is PG_mappedtodisk. */
static void mo_test_file_flags(struct kunit *test)
{
	mo_try_flags(test, false);
}

/* A large folio that the scan of the queue has put back does not move. */
static void mo_test_queued(struct kunit *test)
{
	struct folio *src = mo_folio_of(test, 2, true);
	struct folio *dst = mo_folio_of(test, 2, false);
	LIST_HEAD(queue);

	src->mapping = (void *)FOLIO_MAPPING_ANON;
	list_add(&src->_deferred_list, &queue);
	KUNIT_EXPECT_EQ(test, migrate_run_move(dst, src, false), -EAGAIN);
	list_del_init(&src->_deferred_list);
	KUNIT_EXPECT_EQ(test, migrate_run_move(dst, src, false), 0);
	KUNIT_EXPECT_PTR_EQ(test, dst->mapping, src->mapping);
	/* Only the destination counts as anonymous memory. */
	src->mapping = NULL;
	folio_unlock(src);
	folio_unlock(dst);
	folio_put(src);
	folio_put(dst);
}

static struct kunit_case migrate_move_test_cases[] = {
	KUNIT_CASE(mo_test_queued),
	KUNIT_CASE(mo_test_flags),
	KUNIT_CASE(mo_test_file_flags),
	{}
};

static struct kunit_suite migrate_move_test_suite = {
	.name = "migrate_run_move",
	.test_cases = migrate_move_test_cases,
};

kunit_test_suite(migrate_move_test_suite);
