// SPDX-License-Identifier: GPL-2.0-only
/* Copy a folio, or a part of it, by a CPU. */

#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/sched.h>

#include "../internal.h"
#include "copy.h"
#include "internal.h"

/**
 * migrate_copy_span - copy a part of a folio
 * @dst: The destination, as large as @src.
 * @src: The source.
 * @offset: Where the part begins, a multiple of PAGE_SIZE.
 * @bytes: Its size, a multiple of PAGE_SIZE.
 * @resched: The caller may sleep.
 *
 * Return: 0, or -EHWPOISON at the first page that cannot be read, as
 * folio_mc_copy().
 */
int migrate_copy_span(struct folio *dst, struct folio *src, size_t offset,
		      size_t bytes, bool resched)
{
	long i = offset >> PAGE_SHIFT, end = (offset + bytes) >> PAGE_SHIFT;

	for (;;) {
		struct page *page = folio_page(src, i);

		if (!migrate_offload_readable(page, PAGE_SIZE) ||
		    copy_mc_highpage(folio_page(dst, i), page))
			return -EHWPOISON;
		if (++i >= end)
			return 0;
		if (resched)
			cond_resched();
	}
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/copy_kunit.c"
#endif
