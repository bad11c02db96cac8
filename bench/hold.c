// SPDX-License-Identifier: GPL-2.0-only
/*
 * hold: holds memory that others move, and verifies its content.
 *
 * The program prints "ready" and then executes words from stdin, one per line:
 *   verify  compares every byte, and counts folios that are no longer whole
 *   touch   reads every page, so that DAMON sees the memory in use
 *   nodes   counts the pages on each node
 *   move N  moves all memory to a node with one move_pages(2), and times this
 * With -w it increments one counter in each page all the time.
 */
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/bench.h"

#define SEED 20250627
#define NODES 8

static const char usage[] =
	"usage: hold [-b BYTES] [-s FOLIO] [-n NODE] [-w]\n";

static struct region memory;
static uint64_t *counters;	/* counters that -w has written, by page */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t nr_writes;

/* The last word of each page is the counter, or with 0 the pattern's word. */
static uint64_t *counter_of(size_t index)
{
	size_t page = page_bytes();

	return (uint64_t *)(memory.base + (index + 1) * page) - 1;
}

static void *writer(void *arg)
{
	size_t nr = memory.bytes / page_bytes();

	(void)arg;
	for (;;) {
		translations_forget();
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

/* Check the counters, and restore the pattern's words for a moment. */
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
	static int nodes[QUERY_PAGES];
	uint64_t count[NODES] = { 0 };
	size_t nr;

	for (size_t off = 0; off < memory.bytes; off += nr * page_bytes()) {
		nr = region_query(&memory, off, nodes);
		for (size_t i = 0; i < nr; i++)
			if (nodes[i] >= 0 && nodes[i] < NODES)
				count[nodes[i]]++;
	}
	json_begin("nodes");
	json_u64_array("pages", count, NODES);
	json_end();
}

static void move(int node)
{
	uint64_t elapsed_ns;
	long ret = region_move(&memory, node, &elapsed_ns);

	if (ret)
		bench_die(BENCH_FAILED,
			  "move_pages(2) returned %ld: not every page moved",
			  ret);
	json_begin("moved");
	json_u64("elapsed_ns", elapsed_ns);
	json_end();
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
	thread_start(&thread, writer, NULL);
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
	/* Bound memory is its owner's: DAMON's callers leave it where it is. */
	memory_unbind(memory.base, memory.bytes);
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
