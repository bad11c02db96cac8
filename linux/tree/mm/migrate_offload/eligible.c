// SPDX-License-Identifier: GPL-2.0-only
/*
 * Find folios that can be copied before they move: their content cannot change
 * any more.  Documentation/mm/migrate_offload.rst has the reasons.
 */

#include <linux/buffer_head.h>
#include <linux/leafops.h>
#include <linux/mm.h>
#include <linux/pagemap.h>

#include "../internal.h"
#include "internal.h"

/*
 * Does the mapping move folios through __migrate_folio(), and does the folio
 * lock protect their content?  Both are true for these callbacks:
 *
 * - migrate_folio: shmem and the swap cache.
 * - filemap_migrate_folio: file systems that move only folio->private.
 * - buffer_migrate_folio, buffer_migrate_folio_norefs: only without buffers,
 *   when both act like migrate_folio.  The holder of a buffer head may change
 *   the block without the folio lock.  Buffers are attached under the folio
 *   lock, so none can appear now.
 * - hugetlbfs_migrate_folio: hugetlb folios of files.  Programs write to these
 *   files only through page tables, and the folio is unmapped.
 *
 * Other mappings copy by themselves (aio), forbid reading (secretmem,
 * guest_memfd), or edit content under their own locks (btrfs metadata).
 * Without a callback, Linux 6.12 may map the folio and write it before the move.
 */
bool migrate_offload_mapping_ok(struct address_space *mapping,
				struct folio *src)
{
	int (*move)(struct address_space *mapping, struct folio *dst,
		    struct folio *src, enum migrate_mode mode);

	if (mapping_inaccessible(mapping))
		return false;
	/* migrate_copied_huge_folio() does the rest of this callback. */
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

/* Do pages have tags, which only copy_highpage() copies? */
bool migrate_offload_has_tags(struct folio *folio)
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
 * Most folios are small and anonymous, and have the isolation's reference only.
 * For these, read the flags once.  Any doubt is left to the checks of
 * migrate_offload_eligible(), which are looser.
 */
static bool migrate_offload_plain(struct folio *src, struct folio *dst)
{
	unsigned long not = BIT(PG_head) | BIT(PG_private) | BIT(PG_writeback) |
		BIT(PG_swapcache);

#ifdef CONFIG_MEMORY_FAILURE
	not |= BIT(PG_hwpoison);
#endif
	return !(READ_ONCE(*const_folio_flags(src, 0)) & not) &&
		!folio_test_large(dst) &&
		((unsigned long)src->mapping & FOLIO_MAPPING_FLAGS) ==
		FOLIO_MAPPING_ANON &&
		!folio_is_zone_device(src) && !folio_is_zone_device(dst) &&
		atomic_read(&src->_mapcount) == -1 &&
		folio_ref_count(src) == 1 && !migrate_offload_has_tags(src);
}

/*
 * Can the content of @src be copied before @src moves?
 *
 * Both folios are locked, @src is unmapped everywhere, and the TLBs are
 * flushed.  Users who took a reference before can still change the content: by
 * get_user_pages(), direct I/O, or a kernel object.  So can holders of buffer
 * heads, who need no reference, and callbacks of the mapping.
 *
 * The reference count must be read after the page table entries are gone.
 * GUP-fast takes its reference and then reads the entry again: either GUP-fast
 * backs off, or the count shows its reference.  If all references are accounted
 * for, only the page cache leads to the content.  Its writers need the folio
 * lock, so the content stays until the core unlocks or maps the folio.
 */
bool migrate_offload_eligible(struct folio *src, struct folio *dst)
{
	struct address_space *mapping;

	VM_WARN_ON_ONCE_FOLIO(!folio_test_locked(src), src);
	VM_WARN_ON_ONCE_FOLIO(!folio_test_locked(dst), dst);

	if (likely(migrate_offload_plain(src, dst)))
		return true;
	if (page_has_movable_ops(&src->page))
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
