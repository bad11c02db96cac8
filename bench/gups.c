// SPDX-License-Identifier: GPL-2.0-only
/*
 * gups: random updates of a table with a hot part, for `pageferry compare`.
 *
 * Each update waits for the memory, as the steps of a graph walk do.  The
 * latencies are those of 256 updates.
 */
#include "common/work.h"

#define PER_BLOCK 256
/* A word has its index above, and the number of its updates below. */
#define COUNT_BITS 32
#define COUNT_MASK ((1UL << COUNT_BITS) - 1)

static struct work work = { WORK_DEFAULTS };
static const struct option_row rows[] = { ROWS_WORK(&work), { 0 } };
static const struct program program = {
	"gups", "Updates random words of a table, of which a part is hot.",
	"--bytes 1G --hot 20 --share 80", rows
};

static uint64_t *table;
static size_t nr_words;

static void update(struct worker *worker)
{
	for (unsigned int i = 0; i < PER_BLOCK; i++) {
		uint64_t *word = &table[work_pick(worker, nr_words)];
		uint64_t old = __atomic_fetch_add(word, 1, __ATOMIC_RELAXED);

		/* The next address depends on what this update has read. */
		worker->random ^= old & COUNT_MASK;
	}
}

/* No update may be lost, and no page may have another one's content. */
static void verify(uint64_t updates)
{
	uint64_t seen = 0;

	for (size_t i = 0; i < nr_words; i++) {
		if (table[i] >> COUNT_BITS != (i & COUNT_MASK))
			bench_die(BENCH_FAILED, "word %zu has other content",
				  i);
		seen += table[i] & COUNT_MASK;
	}
	if (seen != updates)
		bench_die(BENCH_FAILED, "%llu updates left %llu traces",
			  (unsigned long long)updates,
			  (unsigned long long)seen);
}

int main(int argc, char **argv)
{
	uint64_t blocks;

	options_parse(&program, argc, argv);
	nr_words = work.bytes / sizeof(*table);
	table = work_map(&work);
	for (size_t i = 0; i < nr_words; i++)
		table[i] = (uint64_t)i << COUNT_BITS;
	blocks = work_run(&work, update, "gups", "updates", PER_BLOCK);
	if (work.sabotage)
		table[nr_words / 2]++;
	verify(blocks * PER_BLOCK);
	return BENCH_OK;
}
