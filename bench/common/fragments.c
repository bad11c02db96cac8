// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory that leaves no large block free: every other page has its own content,
 * and the pages between are free.
 *
 * The choice is by physical address, and even pages are free.  When compaction
 * searches for free pages quickly, it looks at every 32nd page, or proceeds in
 * even steps.  Without a fixed choice it would find none or all of these, by
 * chance.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compaction.h"

/* Documentation/admin-guide/mm/pagemap.rst */
#define PAGEMAP_PFN_MASK ((1ULL << 55) - 1)

/* Each block of 2M has one owner, which works on its pages. */
struct fragments_work {
	struct fragments *f;
	int pagemap;
	atomic_bool denied;
};

/* Touch the pages of a block before @end, and choose those that stay. */
static bool choose_pages(struct fragments_work *work, size_t block, size_t end)
{
	uint64_t entries[PMD_BYTES / 4096];
	char *base = work->f->region.base + block;
	size_t page = page_bytes();
	size_t nr = (end - block < PMD_BYTES ? end - block : PMD_BYTES) / page;
	bool visible = false;

	for (size_t i = 0; i < nr; i++)
		base[i * page] = 1;
	if (pread(work->pagemap, entries, nr * sizeof(*entries),
		  (off_t)((uintptr_t)base / page * sizeof(*entries))) !=
	    (ssize_t)(nr * sizeof(*entries)))
		return false;
	for (size_t i = 0; i < nr; i++) {
		uint64_t pfn = entries[i] & PAGEMAP_PFN_MASK;

		/* On some machines, page frame 0 is memory, too. */
		visible = visible || pfn;
		work->f->kept[block / page + i] = pfn & 1;
	}
	/* Only root sees physical addresses. */
	return visible;
}

static void choose_share(void *arg, unsigned int index, unsigned int nr)
{
	struct fragments_work *work = arg;
	size_t start, end;

	region_share(&work->f->region, index, nr, &start, &end);
	for (size_t off = start; off < end; off += PMD_BYTES)
		if (!choose_pages(work, off, end))
			work->denied = true;
}

static void free_share(void *arg, unsigned int index, unsigned int nr)
{
	struct fragments_work *work = arg;
	size_t page = page_bytes(), start, end;

	region_share(&work->f->region, index, nr, &start, &end);
	for (size_t off = start; off < end; off += page)
		if (!work->f->kept[off / page] &&
		    madvise(work->f->region.base + off, page, MADV_DONTNEED))
			bench_die(BENCH_FAILED, "MADV_DONTNEED: %s",
				  strerror(errno));
}

/* Returns false with errno if this process may not see physical addresses. */
bool fragments_make(struct fragments *f, size_t bytes, int node, uint64_t seed)
{
	struct fragments_work work = {
		.f = f,
		.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC),
	};

	if (work.pagemap < 0)
		bench_die(BENCH_LACKING, "cannot open /proc/self/pagemap: %s",
			  strerror(errno));
	region_map(&f->region, bytes, page_bytes(), node);
	f->kept = calloc(bytes / page_bytes(), 1);
	if (!f->kept)
		bench_die(BENCH_LACKING, "no memory for %zu pages",
			  bytes / page_bytes());
	f->region.kept = f->kept;
	/*
	 * Allocate all pages before the first is freed: a freed one could be
	 * reused.
	 */
	parallel_run(choose_share, &work);
	close(work.pagemap);
	if (work.denied) {
		errno = EPERM;
		return false;
	}
	region_fill(&f->region, seed);
	parallel_run(free_share, &work);
	region_drain_lru(&f->region);
	return true;
}

/* Corrupt the last byte of the last allocated page.  Returns its offset. */
size_t fragments_sabotage(struct fragments *f)
{
	size_t page = page_bytes(), last = f->region.bytes / page - 1;

	while (last && !f->kept[last])
		last--;
	f->region.base[(last + 1) * page - 1] ^= 1;
	return (last + 1) * page - 1;
}

void fragments_free(struct fragments *f)
{
	region_unmap(&f->region);
	free(f->kept);
}
