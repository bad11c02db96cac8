// SPDX-License-Identifier: GPL-2.0-only
/*
 * Movers move memory to and fro all the time, and writers change it.
 *
 * Each writer has its own pages in each area, and knows their content.  A
 * writer notices a lost or foreign write when it reads the word again.
 * load_verify() compares all bytes, and so finds such a write, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mo_area.h"
#include "mo_campaign.h"
#include "mo_util.h"

#define NR_MOVERS 2
#define NR_WRITERS 2
#define NR_SIZES 4
#define NR_AREAS (NR_MOVERS * NR_SIZES)

#define CALL_FOLIOS 256

/* A writer that never sleeps would leave no CPU time to the movers. */
#define WRITES_AT_ONCE 64
#define WRITER_SLEEP_US 300

static const struct {
	enum mo_type type;
	size_t folio_bytes;
	size_t bytes;
	/* Each call moves one batch. */
	size_t call_bytes;
} sizes[NR_SIZES] = {
	{ MO_ANON, SZ_4K, SZ_2M, SZ_1M },
	{ MO_ANON, 16 * SZ_4K, SZ_1M, SZ_1M },
	{ MO_ANON, SZ_2M, SZ_2M, SZ_2M },
	{ MO_HUGETLB, SZ_2M, SZ_2M, SZ_2M },
};

static struct mo_area areas[NR_AREAS];
static unsigned int nr_areas;
static pthread_t threads[NR_MOVERS + NR_WRITERS];
static atomic_bool stop;
static bool move_once;
static unsigned long limit_us;
static __u64 load_seed;

static struct {
	atomic_ulong moved, left, calls, over_limit, longest_us, writes;
	atomic_ulong wrong_reads;
} stats;

static unsigned long now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000UL + ts.tv_nsec / 1000;
}

static unsigned long count_on(void **pages, unsigned long nr, int node)
{
	static __thread int nodes[CALL_FOLIOS];
	unsigned long i, on = 0;

	mo_query(pages, nr, nodes);
	for (i = 0; i < nr; i++)
		on += nodes[i] == node;
	return on;
}

static void note_call(unsigned long us)
{
	unsigned long longest = atomic_load(&stats.longest_us);

	while (us > longest &&
	       !atomic_compare_exchange_weak(&stats.longest_us, &longest, us))
		;
	atomic_fetch_add(&stats.calls, 1);
	atomic_fetch_add(&stats.over_limit, us > limit_us);
}

static size_t call_bytes(const struct mo_area *area)
{
	unsigned int i;

	for (i = 0; sizes[i].folio_bytes != area->folio_bytes; i++)
		;
	return sizes[i].call_bytes;
}

static void move_some(const struct mo_area *area, size_t first, int node)
{
	static __thread void *pages[CALL_FOLIOS];
	unsigned long nr = 0, before, after, begin;
	size_t offset, end = first + call_bytes(area);
	long ret;

	for (offset = first; offset < end; offset += area->step)
		pages[nr++] = area->mem + offset;
	before = count_on(pages, nr, node);
	begin = now_us();
	ret = mo_move_pages(pages, nr, node);
	note_call(now_us() - begin);
	if (ret < 0 && ret != -ENOMEM)
		mo_die("cannot move pages: %s", strerror(-ret));
	after = count_on(pages, nr, node);
	if (after > before)
		atomic_fetch_add(&stats.moved, after - before);
	atomic_fetch_add(&stats.left, nr - after);
}

static void move_area(const struct mo_area *area, int node)
{
	size_t offset;

	for (offset = 0; offset < area->bytes && !atomic_load(&stop);
	     offset += call_bytes(area))
		move_some(area, offset, node);
}

static void *mover_fn(void *arg)
{
	unsigned int me = (unsigned long)arg, pass, i;

	for (pass = 1; !atomic_load(&stop) && !(move_once && pass > 1); pass++)
		for (i = me; i < nr_areas; i += NR_MOVERS)
			move_area(&areas[i], mo_nodes[pass % 2]);
	return NULL;
}

/* Write by the page tables, or as a debugger does, which takes references. */
static void write_word(__u64 *to, __u64 value, int mem_fd)
{
	if (mem_fd < 0)
		__atomic_store_n(to, value, __ATOMIC_RELAXED);
	else if (pwrite(mem_fd, &value, sizeof(value), (uintptr_t)to) !=
		 sizeof(value))
		mo_die("cannot write to my own memory: %m");
}

static void *writer_fn(void *arg)
{
	unsigned long me = (unsigned long)arg, nr = 0;
	__u64 seed = mo_mix(load_seed, me);
	int mem_fd = me ? open("/proc/self/mem", O_RDWR) : -1;
	unsigned int i;

	if (me && mem_fd < 0)
		mo_die("cannot open my own memory: %m");
	while (!atomic_load(&stop)) {
		for (i = 0; i < WRITES_AT_ONCE; i++) {
			__u64 value = mo_mix(seed, nr++);
			const struct mo_area *area = &areas[value % nr_areas];
			size_t nr_pages = area->bytes / SZ_4K;
			size_t page = value / 8 % (nr_pages / NR_WRITERS) *
				NR_WRITERS + me;
			size_t word = page * (SZ_4K / 8) + (value >> 40) % 512;
			__u64 *mem = (__u64 *)area->mem + word;

			if (__atomic_load_n(mem, __ATOMIC_RELAXED) !=
			    area->shadow[word])
				atomic_fetch_add(&stats.wrong_reads, 1);
			write_word(mem, value, mem_fd);
			area->shadow[word] = value;
		}
		atomic_fetch_add(&stats.writes, WRITES_AT_ONCE);
		usleep(WRITER_SLEEP_US);
	}
	if (me)
		close(mem_fd);
	return NULL;
}

static void map_areas(void)
{
	unsigned int i;

	for (nr_areas = 0, i = 0; i < NR_AREAS; i++) {
		unsigned int size = i / NR_MOVERS;
		const char *why_not = mo_map(&areas[nr_areas], sizes[size].type,
					     sizes[size].bytes,
					     sizes[size].folio_bytes);

		if (!why_not) {
			nr_areas++;
			continue;
		}
		printf("# no folios of %zu bytes this time: %s\n",
		       sizes[size].folio_bytes, why_not);
		mo_unmap(&areas[nr_areas]);
	}
}

void load_start(unsigned long call_limit_us, __u64 seed, bool once)
{
	unsigned long i;

	memset(&stats, 0, sizeof(stats));
	limit_us = call_limit_us;
	load_seed = seed;
	move_once = once;
	map_areas();
	atomic_store(&stop, false);
	for (i = 0; i < NR_MOVERS + NR_WRITERS; i++)
		if (i < NR_MOVERS ?
		    pthread_create(&threads[i], NULL, mover_fn, (void *)i) :
		    pthread_create(&threads[i], NULL, writer_fn,
				   (void *)(i - NR_MOVERS)))
			mo_die("cannot start a thread");
}

void load_see(struct load_stats *out)
{
	*out = (struct load_stats) {
		.moved = atomic_load(&stats.moved),
		.left = atomic_load(&stats.left),
		.calls = atomic_load(&stats.calls),
		.over_limit = atomic_load(&stats.over_limit),
		.longest_us = atomic_load(&stats.longest_us),
		.writes = atomic_load(&stats.writes),
		.wrong_reads = atomic_load(&stats.wrong_reads),
	};
}

void load_stop(struct load_stats *out)
{
	unsigned int i;

	atomic_store(&stop, true);
	for (i = 0; i < NR_MOVERS + NR_WRITERS; i++)
		pthread_join(threads[i], NULL);
	load_see(out);
}

size_t load_verify(void)
{
	size_t bytes = 0;
	unsigned int i;
	bool ok = true;

	for (i = 0; i < nr_areas; i++) {
		ok &= mo_content_ok(&areas[i]);
		bytes += areas[i].bytes;
	}
	return ok ? bytes : 0;
}

/*
 * Returns the number of folios that are not on the node.  The parts of a split
 * folio count as one folio.
 */
static unsigned long folios_elsewhere(const struct mo_area *area, int node)
{
	struct mo_area folio = *area;
	unsigned long nr = 0;
	size_t offset;

	folio.bytes = area->folio_bytes;
	for (offset = 0; offset < area->bytes; offset += folio.bytes) {
		folio.mem = area->mem + offset;
		nr += !!mo_elsewhere(&folio, node);
	}
	return nr;
}

unsigned long load_settle(unsigned long *longest_us)
{
	unsigned long left = 0;
	unsigned int i;

	atomic_store(&stop, false);
	atomic_store(&stats.longest_us, 0);
	for (i = 0; i < nr_areas; i++)
		move_area(&areas[i], mo_nodes[0]);
	*longest_us = atomic_load(&stats.longest_us);
	/* A folio that was split is many pages now. */
	for (i = 0; i < nr_areas; i++)
		if (mo_elsewhere(&areas[i], mo_nodes[0]) &&
		    mo_move(&areas[i], mo_nodes[0]))
			left += folios_elsewhere(&areas[i], mo_nodes[0]);
	return left;
}

void load_end(void)
{
	unsigned int i;

	for (i = 0; i < nr_areas; i++)
		mo_unmap(&areas[i]);
	nr_areas = 0;
}
