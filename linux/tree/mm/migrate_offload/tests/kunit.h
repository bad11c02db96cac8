/* SPDX-License-Identifier: GPL-2.0-only */
/* Private folios for the KUnit tests of the batch copy. */
#ifndef _MM_MIGRATE_OFFLOAD_TESTS_KUNIT_H
#define _MM_MIGRATE_OFFLOAD_TESTS_KUNIT_H

#include <kunit/test.h>
#include <linux/mm.h>

static inline struct folio *mo_test_folio(struct kunit *test, unsigned int order)
{
	struct folio *folio = folio_alloc(GFP_KERNEL, order);

	KUNIT_ASSERT_NOT_NULL(test, folio);
	INIT_LIST_HEAD(&folio->lru);
	__folio_set_locked(folio);
	return folio;
}

static inline void mo_test_folio_free(struct folio *folio)
{
	list_del_init(&folio->lru);
	__folio_clear_locked(folio);
	folio_put(folio);
}

#endif /* _MM_MIGRATE_OFFLOAD_TESTS_KUNIT_H */
