// SPDX-License-Identifier: GPL-2.0-only
/*
 * Copy a folio, or a part of it, by a CPU.
 *
 * Stock Linux copies page by page.  Other routines bypass the caches, and copy
 * large folios only.  All fail for a page that cannot be read with -EHWPOISON,
 * and report that page as poisoned.
 */

#include <linux/highmem.h>
#include <linux/instrumented.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sizes.h>

#include "../internal.h"
#include "copy.h"
#include "internal.h"

static int migrate_copy_pages(struct folio *dst, struct folio *src,
			      size_t offset, size_t bytes, bool resched)
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

#ifdef CONFIG_MIGRATE_COPY_ROUTINES
#include <asm/asm.h>
#include <asm/extable_fixup_types.h>

/* Survive what copy_mc_to_kernel() survives. */
#define MIGRATE_COPY_EXTABLE(from, to) \
	_ASM_EXTABLE_TYPE(from, to, EX_TYPE_DEFAULT_MCE_SAFE)
#include "copy_asm.h"

/* Tens of microseconds of copying, after which cond_resched() is due. */
#define MIGRATE_COPY_PIECE_BYTES SZ_256K

/* Returns how many bytes an exception has left. */
static size_t migrate_copy_piece(bool direct, void *to, const void *from,
				 size_t bytes)
{
	size_t left;

	instrument_memcpy_before(to, from, bytes);
	left = direct ? migrate_copy_direct(to, from, bytes) :
		migrate_copy_nontemporal(to, from, bytes);
	instrument_memcpy_after(to, from, bytes, left);
	return left;
}

/*
 * A folio is contiguous in the kernel's mapping of all memory, so a loop copies
 * many pages.
 */
static int migrate_copy_pieces(bool direct, struct folio *dst,
			       struct folio *src, size_t offset, size_t bytes,
			       bool resched)
{
	void *to = folio_address(dst), *from = folio_address(src);
	size_t end = offset + bytes;

	for (;;) {
		struct page *page = folio_page(src, offset >> PAGE_SHIFT);
		size_t piece = min_t(size_t, end - offset,
				     MIGRATE_COPY_PIECE_BYTES);
		size_t readable = migrate_offload_readable(page, piece);
		size_t left = 0;

		if (readable)
			left = migrate_copy_piece(direct, to + offset,
						  from + offset, readable);
		if (unlikely(left)) {
			/* As in copy_mc_highpage(), without another read. */
			offset += readable - left;
			memory_failure_queue(folio_pfn(src) +
					     (offset >> PAGE_SHIFT), 0);
			return -EHWPOISON;
		}
		if (unlikely(readable < piece))
			return -EHWPOISON;
		offset += piece;
		if (offset == end)
			return 0;
		if (resched)
			cond_resched();
	}
}
#else
static int migrate_copy_pieces(bool direct, struct folio *dst,
			       struct folio *src, size_t offset, size_t bytes,
			       bool resched)
{
	return -EOPNOTSUPP;
}
#endif /* CONFIG_MIGRATE_COPY_ROUTINES */

/* Like migrate_copy_span(), with a routine that this machine has. */
int migrate_copy_by(enum migrate_copy_routine routine, struct folio *dst,
		    struct folio *src, size_t offset, size_t bytes,
		    bool resched)
{
	if (routine == MIGRATE_COPY_PAGES)
		return migrate_copy_pages(dst, src, offset, bytes, resched);
	return migrate_copy_pieces(routine == MIGRATE_COPY_DIRECT, dst, src,
				   offset, bytes, resched);
}

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
	enum migrate_copy_routine routine = migrate_copy_large_routine();

	if (folio_size(src) < MIGRATE_COPY_LARGE_BYTES)
		routine = MIGRATE_COPY_PAGES;
	return migrate_copy_by(routine, dst, src, offset, bytes, resched);
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/copy_kunit.c"
#endif
