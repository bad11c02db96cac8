// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "bench.h"

/* The kernel flushes so many pages at once, and not one by one. */
#define SCRATCH_PAGES 64UL

/*
 * Make this CPU forget its translations.  One thread may call this.
 *
 * The CPU does not mark a page as accessed again while it keeps the
 * translation.  An emulated CPU can keep the translations of all the memory, as
 * long as it runs no other task.  DAMON would then see no access.  A real CPU
 * has to make room.
 *
 * Reading maps the zero page.  Written pages would be allocated on this CPU's
 * node, which might be the node that the memory has just left.
 */
void translations_forget(void)
{
	static volatile char *scratch;
	size_t bytes = SCRATCH_PAGES * page_bytes();

	if (!scratch) {
		void *map = mmap(NULL, bytes, PROT_READ,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (map == MAP_FAILED)
			bench_die(BENCH_LACKING, "mmap: %s", strerror(errno));
		scratch = map;
	}
	for (size_t i = 0; i < SCRATCH_PAGES; i++)
		(void)scratch[i * page_bytes()];
	if (madvise((void *)scratch, bytes, MADV_DONTNEED))
		bench_die(BENCH_FAILED, "madvise: %s", strerror(errno));
}
