// SPDX-License-Identifier: GPL-2.0-only
/* Allocates the memory that a measurement moves, and checks it afterwards. */
#include <errno.h>
#include <string.h>

#include "bench.h"

#define ALLOCATION_TRIES 3

static bool use_hugetlb;

/* From now on take memory from the pools of hugetlb, which the caller fills. */
void regions_are_hugetlb(void)
{
	use_hugetlb = true;
}

/* Map memory for @node, whose page faults allocate folios of the size. */
void region_prepare(struct region *r, size_t bytes, size_t folio_bytes,
		    int node)
{
	if (use_hugetlb) {
		region_map_hugetlb(r, bytes, folio_bytes, node);
		return;
	}
	folio_size_select(folio_bytes);
	region_map(r, bytes, folio_bytes, node);
}

/*
 * Allocate memory on @node in folios of the requested size.  On a fragmented
 * node, page faults fall back to smaller folios.  Then compact and try again,
 * because a measurement of the wrong size is useless.
 */
void region_allocate(struct region *r, size_t bytes, size_t folio_bytes,
		     int node, uint64_t seed)
{
	for (int try = 1;; try++) {
		size_t offset, nr_split;
		int found;

		region_prepare(r, bytes, folio_bytes, node);
		region_fill(r, seed);
		if (use_hugetlb || !region_count_split(r, &nr_split) ||
		    !nr_split) {
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

/* Returns the time, or ends the program if the kernel refuses to move. */
uint64_t region_must_move(const struct region *r, int node, const char *engine)
{
	uint64_t elapsed_ns;
	long ret = region_move(r, node, &elapsed_ns);

	if (ret < 0)
		bench_die(BENCH_FAILED, "move_pages(2) with engine %s: %s",
			  engine, strerror((int)-ret));
	return elapsed_ns;
}

/* End the program unless each byte is right. */
void region_check_content(const struct region *r, uint64_t seed,
			  const char *engine, unsigned int round)
{
	size_t offset;

	if (!region_verify(r, seed, &offset))
		bench_die(BENCH_FAILED,
			  "%s, %zu-byte folios, round %u: byte %zu has the wrong content",
			  engine, r->folio_bytes, round, offset);
}

/* The same, and each page has to be on @node. */
void region_check(const struct region *r, int node, uint64_t seed,
		  const char *engine, unsigned int round)
{
	size_t offset;
	int found;

	if (!region_on_node(r, node, &offset, &found))
		bench_die(BENCH_FAILED,
			  "%s, %zu-byte folios, round %u: the page at byte %zu is on node %d, not %d",
			  engine, r->folio_bytes, round, offset, found, node);
	region_check_content(r, seed, engine, round);
}

/*
 * Take a little memory on the target node, a different amount each time, until
 * the measurement is over.  Without this, each round would use the same source
 * and target pages.  Whether their addresses conflict, in a cache or in the
 * software TLB of an emulated CPU, would be fixed for a whole run.  So it evens
 * out over the rounds.
 */
static unsigned int spacer_turn;

/* A pool of hugetlb needs SPACER_MAX_BYTES more for this. */
void spacer_take(struct region *r, size_t folio_bytes, int node)
{
	/* All of 1 to 8, in an order that gives each variant other values. */
	size_t nr_pmds = 1 + (spacer_turn * 5 + spacer_turn / 8 * 3) % 8;

	spacer_turn++;
	region_prepare(r, nr_pmds * PMD_BYTES, folio_bytes, node);
	region_fill(r, spacer_turn);
}

/*
 * New pages wait in a batch of their CPU, and callers on other CPUs cannot
 * isolate these. move_pages(2) drains the batches of all CPUs before it moves a
 * page, even one that is on the target already.
 */
void region_drain_lru(const struct region *r)
{
	struct region first = *r;
	uint64_t ignored;

	first.bytes = first.folio_bytes;
	region_move(&first, first.node, &ignored);
}

/* Corrupt the last page, to prove that the check covers all pages. */
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
 * Get all CPUs that the program may use, and choose the caller's CPU. This is
 * @wanted, or the first CPU of the source node, the target node or of all.
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
