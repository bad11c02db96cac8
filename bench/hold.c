// SPDX-License-Identifier: GPL-2.0-only
/*
 * hold: a program that has memory, for others to move, and knows what is in it.
 *
 * It says "ready" and then does what it reads on stdin, a word per line:
 *   verify  compares every byte, and counts folios that are no longer whole
 *   touch   reads every page, which is how DAMON sees that memory is in use
 *   nodes   counts the pages on each node
 *   move N  moves all of it to a node with one move_pages(2), and times that
 * With -w it writes to all of its pages all the time, one counter in each.
 */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/bench.h"

#define SEED 20250627
#define NODES 8
#define MPOL_MF_MOVE (1 << 1)
#define QUERY_PAGES 4096UL
#define SCRATCH_PAGES 64UL

static const char usage[] =
	"usage: hold [-b BYTES] [-s FOLIO] [-n NODE] [-w]\n";

static struct region memory;
static uint64_t *counters;	/* what -w has written, by page */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t nr_writes;

/* The last word of each page is the counter, or the pattern's when 0. */
static uint64_t *counter_of(size_t index)
{
	size_t page = page_bytes();

	return (uint64_t *)(memory.base + (index + 1) * page) - 1;
}

/*
 * Makes this CPU forget its translations: the pages of @scratch are more than
 * the kernel would flush one by one.
 *
 * A page whose translation is kept is not marked as accessed again, and an
 * emulator's CPU can keep those of all the memory, for as long as nothing else
 * runs on it. DAMON would see nobody use it. A real one has to make room.
 *
 * They are read, which maps the zero page: pages of its own would come and go on
 * this CPU's node, whatever this program's memory was just asked to be.
 */
static void forget_translations(const volatile char *scratch)
{
	for (size_t i = 0; i < SCRATCH_PAGES; i++)
		(void)scratch[i * page_bytes()];
	if (madvise((void *)scratch, SCRATCH_PAGES * page_bytes(),
		    MADV_DONTNEED))
		bench_die(BENCH_FAILED, "madvise: %s", strerror(errno));
}

static void *writer(void *arg)
{
	size_t nr = memory.bytes / page_bytes();
	char *scratch = mmap(NULL, SCRATCH_PAGES * page_bytes(),
			     PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)arg;
	if (scratch == MAP_FAILED)
		bench_die(BENCH_LACKING, "mmap: %s", strerror(errno));
	for (;;) {
		forget_translations(scratch);
		for (size_t i = 0; i < nr; i += 64) {
			pthread_mutex_lock(&writing);
			for (size_t j = i; j < i + 64 && j < nr; j++)
				*counter_of(j) = ++counters[j];
			pthread_mutex_unlock(&writing);
			nr_writes += 64;
		}
	}
	return NULL;
}

/* Looks at the counters, and puts the pattern's words back for a moment. */
static bool verify(size_t *offset)
{
	size_t nr = memory.bytes / page_bytes(), page = page_bytes();
	bool ok = true;

	if (!counters)
		return region_verify(&memory, SEED, offset);
	for (size_t i = 0; i < nr && ok; i++) {
		if (*counter_of(i) != counters[i] ||
		    pattern_verify(memory.base + i * page, page - 8, SEED, i) !=
			    page - 8) {
			*offset = i * page;
			ok = false;
		}
	}
	return ok;
}

static void say_verified(void)
{
	size_t offset = 0, nr_split = 0;
	bool ok, known;

	pthread_mutex_lock(&writing);
	ok = verify(&offset);
	known = region_count_split(&memory, &nr_split);
	pthread_mutex_unlock(&writing);
	json_begin("verified");
	json_bool("ok", ok);
	json_u64("offset", offset);
	json_u64("writes", nr_writes);
	if (known)
		json_u64("split_folios", nr_split);
	json_end();
}

static void say_nodes(void)
{
	static void *pages[QUERY_PAGES];
	static int status[QUERY_PAGES];
	uint64_t count[NODES] = { 0 };
	size_t page = page_bytes();

	for (size_t off = 0; off < memory.bytes;) {
		size_t nr = 0;

		for (; nr < QUERY_PAGES && off + nr * page < memory.bytes; nr++)
			pages[nr] = memory.base + off + nr * page;
		if (syscall(SYS_move_pages, 0, nr, pages, NULL, status, 0))
			bench_die(BENCH_FAILED, "move_pages query: %s",
				  strerror(errno));
		for (size_t i = 0; i < nr; i++)
			if (status[i] >= 0 && status[i] < NODES)
				count[status[i]]++;
		off += nr * page;
	}
	json_begin("nodes");
	json_u64_array("pages", count, NODES);
	json_end();
}

/* One address for each folio, as for the kernel the whole folio moves. */
static void move(int node)
{
	size_t nr = memory.bytes / memory.folio_bytes;
	void **pages = calloc(nr, sizeof(*pages));
	int *nodes = calloc(nr, sizeof(*nodes));
	int *status = calloc(nr, sizeof(*status));
	uint64_t start_ns;

	if (!pages || !nodes || !status)
		bench_die(BENCH_LACKING, "no memory for %zu addresses", nr);
	for (size_t i = 0; i < nr; i++) {
		pages[i] = memory.base + i * memory.folio_bytes;
		nodes[i] = node;
	}
	start_ns = bench_now_ns();
	if (syscall(SYS_move_pages, 0, nr, pages, nodes, status, MPOL_MF_MOVE))
		bench_die(BENCH_FAILED, "move_pages: %s", strerror(errno));
	json_begin("moved");
	json_u64("elapsed_ns", bench_now_ns() - start_ns);
	json_end();
	free(pages);
	free(nodes);
	free(status);
}

static void touch(void)
{
	size_t page = page_bytes();
	uint64_t sum = 0;

	for (size_t off = 0; off < memory.bytes; off += page)
		sum += *(volatile uint8_t *)(memory.base + off);
	json_begin("touched");
	json_u64("sum", sum);
	json_end();
}

static void start_writer(void)
{
	size_t nr = memory.bytes / page_bytes();
	pthread_t thread;

	counters = calloc(nr, sizeof(*counters));
	if (!counters)
		bench_die(BENCH_LACKING, "no memory for %zu counters", nr);
	for (size_t i = 0; i < nr; i++)
		*counter_of(i) = 0;
	if (pthread_create(&thread, NULL, writer, NULL))
		bench_die(BENCH_FAILED, "cannot start a thread");
}

int main(int argc, char **argv)
{
	uint64_t bytes = 64UL << 20, folio = page_bytes(), node = 0;
	bool write = false;
	char line[64];
	unsigned int to;
	int option;

	while ((option = getopt(argc, argv, "b:s:n:w")) != -1) {
		bool ok = true;

		if (option == 'b')
			ok = parse_bytes(optarg, &bytes);
		else if (option == 's')
			ok = parse_bytes(optarg, &folio);
		else if (option == 'n')
			ok = parse_u64(optarg, &node) && node < NODES;
		else if (option == 'w')
			write = true;
		else
			ok = false;
		if (!ok)
			bench_die(BENCH_USAGE, "%s", usage);
	}
	if (!bytes || bytes % PMD_BYTES || !folio_size_supported(folio))
		bench_die(BENCH_USAGE, "%s", usage);
	settings_restore_on_exit();
	folio_size_select(folio);
	region_allocate(&memory, bytes, folio, (int)node, SEED);
	if (write)
		start_writer();
	json_begin("ready");
	json_u64("pid", (uint64_t)getpid());
	json_u64("address", (uint64_t)(uintptr_t)memory.base);
	json_u64("pages", bytes / page_bytes());
	json_end();
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "verify\n"))
			say_verified();
		else if (!strcmp(line, "nodes\n"))
			say_nodes();
		else if (!strcmp(line, "touch\n"))
			touch();
		else if (sscanf(line, "move %u\n", &to) == 1 && to < NODES)
			move((int)to);
		else
			bench_die(BENCH_USAGE, "not understood: %s", line);
	}
	return BENCH_OK;
}
