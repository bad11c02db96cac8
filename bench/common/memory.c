// SPDX-License-Identifier: GPL-2.0-only
/* Memory on a node in folios of a size, and checks of its real place. */
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"

#define THP_DIR "/sys/kernel/mm/transparent_hugepage"

/* Documentation/admin-guide/mm/pagemap.rst */
#define PAGEMAP_PRESENT (1ULL << 63)
#define PAGEMAP_PFN_MASK ((1ULL << 55) - 1)
#define KPF_COMPOUND_HEAD (1ULL << 15)
#define KPF_COMPOUND_TAIL (1ULL << 16)

static void thp_path(char *buf, size_t size, size_t folio_bytes)
{
	snprintf(buf, size, THP_DIR "/hugepages-%zukB/enabled",
		 folio_bytes >> 10);
}

bool folio_size_supported(size_t folio_bytes)
{
	char path[96];

	if (folio_bytes == page_bytes())
		return true;
	thp_path(path, sizeof(path), folio_bytes);
	if (!access(path, F_OK))
		return true;
	/* Kernels without mTHP still support the PMD size. */
	return folio_bytes == PMD_BYTES && !access(THP_DIR "/enabled", F_OK);
}

/* Report if this kernel lacks folios of a requested size. */
bool folio_size_check(size_t folio_bytes, bool hugetlb)
{
	if (hugetlb ? hugetlb_supported(folio_bytes) :
		      folio_size_supported(folio_bytes))
		return true;
	json_begin("skipped");
	json_u64("folio_bytes", folio_bytes);
	json_str("reason", hugetlb ?
		 "this kernel has no huge pages of this size" :
		 "this kernel has no anonymous folios of this size");
	json_end();
	return false;
}

/* Returns how many sizes are left, or ends the program. */
size_t sizes_drop_unsupported(size_t *sizes, size_t nr, bool hugetlb)
{
	size_t left = 0;

	for (size_t i = 0; i < nr; i++)
		if (folio_size_check(sizes[i], hugetlb))
			sizes[left++] = sizes[i];
	if (!left)
		bench_die(BENCH_LACKING, "this kernel has no %s of any of the sizes asked for",
			  hugetlb ? "huge pages" : "anonymous folios");
	return left;
}

/*
 * Let page faults in MADV_HUGEPAGE regions allocate @folio_bytes and no other
 * size.  Base pages need no setting: their regions are MADV_NOHUGEPAGE.
 */
void folio_size_select(size_t folio_bytes)
{
	if (folio_bytes == page_bytes())
		return;
	for (size_t size = 2 * page_bytes(); size <= PMD_BYTES; size *= 2) {
		const char *want = size == folio_bytes ? "madvise" : "never";
		char path[96];

		thp_path(path, sizeof(path), size);
		if (access(path, F_OK)) {
			if (size != PMD_BYTES)
				continue;
			strcpy(path, THP_DIR "/enabled");
		}
		setting_must_pin(path, want);
	}
}

static void map_with(struct region *r, size_t bytes, size_t folio_bytes,
		     int node, int flags)
{
	int advice = folio_bytes == page_bytes() ? MADV_NOHUGEPAGE :
						   MADV_HUGEPAGE;

	*r = (struct region){ .bytes = bytes,
			      .folio_bytes = folio_bytes,
			      .node = node,
			      .map_bytes = bytes + PMD_BYTES };
	r->map = mmap(NULL, r->map_bytes, PROT_READ | PROT_WRITE,
		      MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
	if (r->map == MAP_FAILED)
		bench_die(BENCH_LACKING, "cannot map %zu bytes: %s",
			  r->map_bytes, strerror(errno));
	r->base = (char *)(((uintptr_t)r->map + PMD_BYTES - 1) &
			   ~(PMD_BYTES - 1));
	/*
	 * EINVAL: a kernel without transparent huge pages.
	 * folio_size_supported() has already rejected all sizes but 4K.
	 */
	if (madvise(r->base, bytes, advice) && errno != EINVAL)
		bench_die(BENCH_FAILED, "madvise: %s", strerror(errno));
	memory_bind(r->base, bytes, node, 0);
}

void region_map(struct region *r, size_t bytes, size_t folio_bytes, int node)
{
	map_with(r, bytes, folio_bytes, node, MAP_PRIVATE);
}

/* Map base pages of shmem. */
void region_map_shared(struct region *r, size_t bytes, int node)
{
	map_with(r, bytes, page_bytes(), node, MAP_SHARED);
}

void region_unmap(struct region *r)
{
	munmap(r->map, r->map_bytes);
	if (r->hugetlb)
		region_forget_hugetlb(r);
	r->map = NULL;
}

static bool counts(const struct region *r, size_t page)
{
	return !r->kept || r->kept[page];
}

struct content {
	const struct region *r;
	uint64_t seed;
	size_t bad[64];	/* the first wrong byte that each worker found */
};

/*
 * The bytes of one worker of parallel_run(), in whole PMDs: each folio has one
 * owner.
 */
void region_share(const struct region *r, unsigned int index,
		  unsigned int nr, size_t *start, size_t *end)
{
	size_t nr_pmds = (r->bytes + PMD_BYTES - 1) / PMD_BYTES;

	*start = nr_pmds * index / nr * PMD_BYTES;
	*end = nr_pmds * (index + 1) / nr * PMD_BYTES;
	if (*end > r->bytes)
		*end = r->bytes;
}

static void fill_share(void *arg, unsigned int index, unsigned int nr)
{
	struct content *c = arg;
	size_t page = page_bytes(), start, end;

	region_share(c->r, index, nr, &start, &end);
	for (size_t off = start; off < end; off += page)
		if (counts(c->r, off / page))
			pattern_fill(c->r->base + off, page, c->seed, off / page);
}

void region_fill(struct region *r, uint64_t seed)
{
	struct content c = { .r = r, .seed = seed };

	parallel_run(fill_share, &c);
}

/* Read all pages, so that this process maps them. */
void region_touch(const struct region *r)
{
	for (size_t off = 0; off < r->bytes; off += page_bytes())
		(void)*(const volatile char *)(r->base + off);
}

static void verify_share(void *arg, unsigned int index, unsigned int nr)
{
	struct content *c = arg;
	size_t page = page_bytes(), start, end;

	region_share(c->r, index, nr, &start, &end);
	c->bad[index] = c->r->bytes;
	for (size_t off = start; off < end; off += page) {
		size_t good = page;

		if (counts(c->r, off / page))
			good = pattern_verify(c->r->base + off, page, c->seed,
					      off / page);
		if (good != page) {
			c->bad[index] = off + good;
			return;
		}
	}
}

/* Returns false with the offset of the first wrong byte. */
bool region_verify(const struct region *r, uint64_t seed, size_t *offset)
{
	struct content c = { .r = r, .seed = seed };
	size_t first = r->bytes;

	for (size_t i = 0; i < ARRAY_SIZE(c.bad); i++)
		c.bad[i] = r->bytes;
	parallel_run(verify_share, &c);
	for (size_t i = 0; i < ARRAY_SIZE(c.bad); i++)
		if (c.bad[i] < first)
			first = c.bad[i];
	if (first == r->bytes)
		return true;
	*offset = first;
	return false;
}

/*
 * Query the node, or -errno, of QUERY_PAGES base pages from @offset on, or of
 * as many as are left.  Returns their number.
 */
size_t region_query(const struct region *r, size_t offset, int *nodes)
{
	static void *pages[QUERY_PAGES];
	size_t page = page_bytes(), nr = 0;

	for (; nr < QUERY_PAGES && offset + nr * page < r->bytes; nr++)
		pages[nr] = r->base + offset + nr * page;
	if (syscall(SYS_move_pages, 0, nr, pages, NULL, nodes, 0))
		bench_die(BENCH_FAILED, "move_pages query: %s",
			  strerror(errno));
	return nr;
}

/*
 * Returns false with the first base page on another node than @node, and this
 * node or -errno.
 */
bool region_on_node(const struct region *r, int node, size_t *offset,
		    int *found)
{
	static int nodes[QUERY_PAGES];
	size_t page = page_bytes(), nr;

	for (size_t off = 0; off < r->bytes; off += nr * page) {
		nr = region_query(r, off, nodes);
		for (size_t i = 0; i < nr; i++) {
			if (nodes[i] != node && counts(r, off / page + i)) {
				*offset = off + i * page;
				*found = nodes[i];
				return false;
			}
		}
	}
	return true;
}

/* Shuffle in an order that is always the same. */
static void shuffle(void **pages, size_t nr)
{
	uint64_t seed = 1;

	for (size_t i = nr; i > 1; i--) {
		void *page = pages[i - 1];
		size_t other;

		seed = random_step(seed);
		other = (seed >> 32) % i;
		pages[i - 1] = pages[other];
		pages[other] = page;
	}
}

/*
 * Make timed move_pages(2) calls, by default one, with one entry per folio.
 * With @r->turns the list goes on with the way back, and there again.  Returns
 * their result, -errno, or the number of entries that did not arrive.  The
 * arrays are written before the clock starts, so that their page faults do not
 * count.
 */
long region_move(const struct region *r, int node, uint64_t *elapsed_ns)
{
	size_t once = r->bytes / r->folio_bytes, nr = once * (r->turns ?: 1);
	void **pages = malloc(nr * sizeof(*pages));
	int *nodes = malloc(nr * sizeof(*nodes));
	int *status = malloc(nr * sizeof(*status));
	size_t per_call = r->per_call ?: nr;
	uint64_t start;
	long ret = 0;

	if (!pages || !nodes || !status)
		bench_die(BENCH_LACKING, "no memory for %zu list entries", nr);
	for (size_t i = 0; i < nr; i++) {
		pages[i] = r->base + i % once * r->folio_bytes;
		nodes[i] = i / once % 2 ? r->node : node;
		status[i] = -1;
	}

	if (r->shuffled)
		shuffle(pages, nr);

	start = bench_now_ns();
	for (size_t i = 0; i < nr && !ret; i += per_call)
		ret = syscall(SYS_move_pages, 0,
			      nr - i < per_call ? nr - i : per_call, pages + i,
			      nodes + i, status + i,
			      r->all ? MPOL_MF_MOVE_ALL : MPOL_MF_MOVE);
	*elapsed_ns = bench_now_ns() - start;
	if (ret < 0)
		ret = -errno;
	for (size_t i = 0; i < nr && r->turns && ret >= 0; i++)
		ret += status[i] != nodes[i];
	free(pages);
	free(nodes);
	free(status);
	return ret;
}

static void read_exact(int fd, void *buf, size_t bytes, uint64_t offset,
		       const char *path)
{
	if (pread(fd, buf, bytes, (off_t)offset) != (ssize_t)bytes)
		bench_die(BENCH_FAILED, "short read from %s", path);
}

/* A file with a number for each physical page. */
struct page_file {
	const char *path;
	int fd;
};

/* Read the numbers of @nr pages, one read per physically contiguous run. */
static void read_of_pages(const struct page_file *file, const uint64_t *pfn,
			  uint64_t *numbers, size_t nr)
{
	for (size_t i = 0; i < nr;) {
		size_t run = 1;

		while (i + run < nr && pfn[i + run] == pfn[i] + run)
			run++;
		read_exact(file->fd, &numbers[i], run * sizeof(*numbers),
			   pfn[i] * sizeof(*numbers), file->path);
		i += run;
	}
}

/* A folio is whole: contiguous, naturally aligned, one head, then tails. */
static bool folio_whole(const uint64_t *pfn, const uint64_t *flags, size_t nr)
{
	if (nr == 1)
		return !(flags[0] & (KPF_COMPOUND_HEAD | KPF_COMPOUND_TAIL));
	if (pfn[0] % nr || !(flags[0] & KPF_COMPOUND_HEAD))
		return false;
	for (size_t i = 1; i < nr; i++)
		if (pfn[i] != pfn[0] + i || !(flags[i] & KPF_COMPOUND_TAIL))
			return false;
	return true;
}

static size_t count_split_pages(const uint64_t *pfn, const uint64_t *flags,
				size_t nr_pages, void *arg)
{
	size_t nr_split = 0, nr_folio_pages = *(const size_t *)arg;

	for (size_t i = 0; i < nr_pages; i += nr_folio_pages)
		nr_split += !folio_whole(&pfn[i], &flags[i], nr_folio_pages);
	return nr_split;
}

/*
 * Read the numbers of all pages, and add up what @count says of each part.
 * Returns false if this process may not see physical addresses.
 */
static bool sum_pages(const struct region *r, const char *path,
		      size_t (*count)(const uint64_t *pfn,
				      const uint64_t *numbers, size_t nr_pages,
				      void *arg),
		      void *arg, size_t *sum)
{
	static uint64_t pfn[QUERY_PAGES], numbers[QUERY_PAGES];
	size_t page = page_bytes(), nr_total = r->bytes / page;
	int map_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	struct page_file file = { path, open(path, O_RDONLY | O_CLOEXEC) };
	bool ok = map_fd >= 0 && file.fd >= 0, visible = false;

	*sum = 0;
	for (size_t done = 0; ok && done < nr_total;) {
		size_t nr = nr_total - done;

		if (nr > QUERY_PAGES)
			nr = QUERY_PAGES;
		read_exact(map_fd, pfn, nr * sizeof(*pfn),
			   ((uintptr_t)r->base / page + done) * sizeof(*pfn),
			   "/proc/self/pagemap");
		for (size_t i = 0; i < nr; i++) {
			ok = ok && (pfn[i] & PAGEMAP_PRESENT);
			pfn[i] &= PAGEMAP_PFN_MASK;
			/* On some machines, page frame 0 is memory, too. */
			visible = visible || pfn[i];
		}
		if (!ok)
			break;
		read_of_pages(&file, pfn, numbers, nr);
		*sum += count(pfn, numbers, nr, arg);
		done += nr;
	}
	if (map_fd >= 0)
		close(map_fd);
	if (file.fd >= 0)
		close(file.fd);
	return ok && visible;
}

/*
 * Count folios that do not have the requested size.  Returns false if this
 * process may not see physical addresses.
 */
bool region_count_split(const struct region *r, size_t *nr_split)
{
	size_t nr_folio_pages = r->folio_bytes / page_bytes();

	return sum_pages(r, "/proc/kpageflags", count_split_pages,
			 &nr_folio_pages, nr_split);
}

static size_t count_unlike_pages(const uint64_t *pfn, const uint64_t *maps,
				 size_t nr_pages, void *arg)
{
	uint64_t times = *(const uint64_t *)arg;
	size_t nr_unlike = 0;

	(void)pfn;
	for (size_t i = 0; i < nr_pages; i++)
		nr_unlike += maps[i] != times;
	return nr_unlike;
}

/*
 * Count base pages that are not mapped exactly @times.  Returns false if this
 * process may not see physical addresses.
 */
bool region_count_unlike(const struct region *r, uint64_t times,
			 size_t *nr_unlike)
{
	return sum_pages(r, "/proc/kpagecount", count_unlike_pages, &times,
			 nr_unlike);
}

struct pfns {
	uint64_t *all;
	size_t nr;
};

static size_t collect_pfns(const uint64_t *pfn, const uint64_t *flags,
			   size_t nr_pages, void *arg)
{
	struct pfns *p = arg;

	(void)flags;
	memcpy(p->all + p->nr, pfn, nr_pages * sizeof(*pfn));
	p->nr += nr_pages;
	return 0;
}

static int compare_pfns(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;

	return one < other ? -1 : one > other;
}

/* Merge pages with at most @gap others in between.  Returns 0 if too many. */
static size_t merge_pfns(const struct pfns *p, uint64_t gap,
			 struct physical ranges[MAX_RANGES])
{
	size_t page = page_bytes(), nr = 0;

	for (size_t i = 0; i < p->nr; i++) {
		uint64_t start = p->all[i] * page;

		if (!nr || start > ranges[nr - 1].end + gap * page) {
			if (nr == MAX_RANGES)
				return 0;
			ranges[nr++].start = start;
		}
		ranges[nr - 1].end = start + page;
	}
	return nr;
}

/*
 * Find a few ranges of physical addresses that have all pages and little else.
 * Returns 0 if this process may not see the addresses.
 */
size_t region_ranges(const struct region *r, struct physical ranges[MAX_RANGES])
{
	struct pfns p = { .all = malloc(r->bytes / page_bytes() *
					sizeof(*p.all)) };
	size_t nr = 0, ignored;

	if (!p.all)
		bench_die(BENCH_LACKING, "no memory for physical addresses");
	if (sum_pages(r, "/proc/kpageflags", collect_pfns, &p, &ignored)) {
		qsort(p.all, p.nr, sizeof(*p.all), compare_pfns);
		for (uint64_t gap = 32; !nr; gap *= 2)
			nr = merge_pfns(&p, gap, ranges);
	}
	free(p.all);
	return nr;
}
