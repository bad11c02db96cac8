// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which folios can be copied before they are moved: those whose content cannot
 * change any more.  Documentation/mm/migrate_offload.rst has the reasons.
 */

#include <linux/buffer_head.h>
#include <linux/mm.h>
#include <linux/pagemap.h>

#include "../internal.h"
#include "internal.h"

/*
 * Does the mapping move its folios through __migrate_folio(), and is the folio
 * lock enough to keep their content still?  Known callbacks only:
 *
 * - migrate_folio: shmem and the swap cache.
 * - filemap_migrate_folio: file systems that move nothing but folio->private.
 * - buffer_migrate_folio, buffer_migrate_folio_norefs: as long as there are no
 *   buffers, when both are migrate_folio.  Whoever holds a buffer head may
 *   change the block without the folio lock.  Buffers are attached under the
 *   folio lock, so once absent they stay so.
 * - hugetlbfs_migrate_folio, which hugetlb folios with a mapping have and no
 *   others: files are not written to but through mappings.
 *
 * All others copy by themselves (aio), refuse (secretmem), want to be asked
 * first (guest_memfd), edit content under locks of their own (btrfs metadata),
 * or, having none, may map the folio again halfway (writeout).
 */
static bool migrate_offload_mapping_ok(struct address_space *mapping,
				       struct folio *src)
{
	int (*move)(struct address_space *mapping, struct folio *dst,
		    struct folio *src, enum migrate_mode mode);

	if (mapping_inaccessible(mapping))
		return false;
	/* Whoever moves it knows that, and does what is left of the callback. */
	if (folio_test_hugetlb(src))
		return true;

	move = mapping->a_ops->migrate_folio;
	if (!move)
		return false;
	if (move == filemap_migrate_folio)
		return true;
#ifdef CONFIG_BUFFER_HEAD
	if (move == buffer_migrate_folio || move == buffer_migrate_folio_norefs)
		return !migrate_rule(BUFFERS, folio_test_private(src));
#endif
	return move == migrate_folio && !folio_test_private(src);
}

/* Is there more to a page than its bytes, that only copy_highpage() copies? */
static bool migrate_offload_has_tags(struct folio *folio)
{
#ifdef CONFIG_ARM64_MTE
	long i, nr = folio_nr_pages(folio);

	if (!system_supports_mte())
		return false;
	for (i = 0; i < nr; i++)
		if (page_mte_tagged(folio_page(folio, i)))
			return true;
#endif
	return false;
}

/*
 * Can the content of @src be copied before it is moved?
 *
 * Both folios are locked, @src is unmapped everywhere and the TLBs have been
 * flushed.  Then its content can only be changed by somebody who had a
 * reference before (get_user_pages(), direct I/O, a kernel object), who holds
 * no reference but needs none (buffer heads), or by a callback of its mapping.
 *
 * The reference count must be read after the page table entries are gone:
 * get_user_pages_fast() takes its reference first and then looks at the entry
 * again, so either it backs off, or we see its reference here.  With all
 * references accounted for and no way to get at the content but through the
 * page cache, whose writers need the folio lock, the content stays as it is
 * until we unlock or remap.
 */
bool migrate_offload_eligible(struct folio *src, struct folio *dst)
{
	struct address_space *mapping;

	VM_WARN_ON_ONCE_FOLIO(!folio_test_locked(src), src);
	VM_WARN_ON_ONCE_FOLIO(!folio_test_locked(dst), dst);

	if (__folio_test_movable(src))
		return false;
	if (folio_is_zone_device(src) || folio_is_zone_device(dst))
		return false;
	if (folio_order(src) != folio_order(dst))
		return false;
	if (migrate_rule(POISON, folio_contain_hwpoisoned_page(src)))
		return false;
	if (folio_mapped(src) || folio_test_writeback(src))
		return false;

	mapping = folio_mapping(src);
	if (mapping) {
		if (migrate_rule(MAPPING,
				 !migrate_offload_mapping_ok(mapping, src)))
			return false;
	} else if (folio_test_private(src)) {
		return false;
	}

	if (migrate_offload_has_tags(src))
		return false;

	return !migrate_rule(REFCOUNT, folio_ref_count(src) !=
				       folio_expected_ref_count(src) + 1);
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/eligible_kunit.c"
#endif
