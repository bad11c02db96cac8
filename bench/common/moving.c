// SPDX-License-Identifier: GPL-2.0-only
/* Memory that a measurement moves: made as it should be, and checked after. */
#include <errno.h>
#include <string.h>

#include "bench.h"

#define ALLOCATION_TRIES 3

/*
 * Memory on @node in folios of the wanted size.  Page faults fall back to
 * smaller folios when the node is fragmented; asking for compaction and
 * starting again is worth a try, measuring the wrong size never is.
 */
void region_allocate(struct region *r, size_t bytes, size_t folio_bytes,
		     int node, uint64_t seed)
{
	folio_size_select(folio_bytes);
	for (int try = 1;; try++) {
		size_t offset, nr_split;
		int found;

		region_map(r, bytes, folio_bytes, node);
		region_fill(r, seed);
		if (!region_count_split(r, &nr_split) || !nr_split) {
			if (region_on_node(r, node, &offset, &found))
				return;
			bench_die(BENCH_FAILED,
				  "byte %zu was allocated on node %d instead of %d",
				  offset, found, node);
		}
		if (try == ALLOCATION_TRIES)
			bench_die(BENCH_LACKING,
				  "node %d gave %zu of %zu folios of %zu bytes in another size: its memory is fragmented, move less",
				  node, nr_split, bytes / folio_bytes,
				  folio_bytes);
		region_unmap(r);
		file_write("/proc/sys/vm/compact_memory", "1");
	}
}

/* As above, from the pool of @node: whoever calls this has seen to that. */
void region_allocate_hugetlb(struct region *r, size_t bytes, size_t folio_bytes,
			     int node, uint64_t seed)
{
	size_t offset;
	int found;

	region_map_hugetlb(r, bytes, folio_bytes, node);
	region_fill(r, seed);
	if (!region_on_node(r, node, &offset, &found))
		bench_die(BENCH_FAILED,
			  "byte %zu was allocated on node %d instead of %d",
			  offset, found, node);
}

/* Ends the program unless every page is on @node and every byte is right. */
void region_check(const struct region *r, int node, uint64_t seed,
		  const char *engine, unsigned int round)
{
	size_t offset;
	int found;

	if (!region_on_node(r, node, &offset, &found))
		bench_die(BENCH_FAILED,
			  "%s, %zu-byte folios, round %u: the page at byte %zu is on node %d, not %d",
			  engine, r->folio_bytes, round, offset, found, node);
	if (!region_verify(r, seed, &offset))
		bench_die(BENCH_FAILED,
			  "%s, %zu-byte folios, round %u: byte %zu has the wrong content",
			  engine, r->folio_bytes, round, offset);
}

/*
 * Takes a little memory on the target node, another amount each time, until
 * the measurement is over.  Without it the same pages would be source and
 * target in every round, and whether their addresses clash, in the cache of a
 * real CPU or in the software TLB of an emulated one, would be settled once
 * for a whole run instead of evening out over its rounds.
 */
static unsigned int spacer_turn;

/* All of 1 to 8, in an order in which no variant keeps one of them. */
static size_t spacer_bytes(void)
{
	size_t nr_pmds = 1 + (spacer_turn * 5 + spacer_turn / 8 * 3) % 8;

	spacer_turn++;
	return nr_pmds * PMD_BYTES;
}

void spacer_take(struct region *r, size_t folio_bytes, int node)
{
	region_map(r, spacer_bytes(), folio_bytes, node);
	region_fill(r, spacer_turn);
}

/* From the pool of @node, which has SPACER_MAX_BYTES more for that. */
void spacer_take_hugetlb(struct region *r, size_t folio_bytes, int node)
{
	region_map_hugetlb(r, spacer_bytes(), folio_bytes, node);
	region_fill(r, spacer_turn);
}

/*
 * Pages that are new wait in a list of their CPU until there are some more, and
 * cannot be isolated by who looks for them elsewhere.  Before it moves anything, even
 * what is there already, move_pages(2) has all CPUs empty their lists.
 */
void region_drain_lru(const struct region *r)
{
	struct region first = *r;
	uint64_t ignored;

	first.bytes = first.folio_bytes;
	region_move(&first, first.node, &ignored);
}

/* Spoils the last page, to prove that the check looks at all of them. */
void region_sabotage(struct region *r, const char *what, int node)
{
	struct region last = *r;
	uint64_t ignored;

	if (!what)
		return;
	if (!strcmp(what, "content")) {
		r->base[r->bytes - 1] ^= 1;
		return;
	}
	last.base += r->bytes - r->folio_bytes;
	last.bytes = r->folio_bytes;
	region_move(&last, node, &ignored);
}

/*
 * All CPUs that the program may use, and where the caller is to run: @wanted,
 * or else the first CPU of the source node, the target node or of all.
 */
int caller_cpu(cpu_set_t *cpus, int wanted, int from, int to)
{
	int cpu = wanted;

	if (sched_getaffinity(0, sizeof(*cpus), cpus))
		bench_die(BENCH_FAILED, "sched_getaffinity: %s",
			  strerror(errno));
	if (cpu < 0)
		cpu = node_first_cpu(from);
	if (cpu < 0)
		cpu = node_first_cpu(to);
	if (cpu < 0 || !CPU_ISSET(cpu, cpus)) {
		cpu = 0;
		while (!CPU_ISSET(cpu, cpus))
			cpu++;
	}
	return cpu;
}
