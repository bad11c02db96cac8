// SPDX-License-Identifier: GPL-2.0-only
/*
 * embed: sums of random rows of a table, for `pageferry compare`.
 *
 * Recommendation models do this with their tables of embeddings.  The rows are
 * read in full, so bandwidth limits the rate, not latency.  A hot row has hot
 * neighbours, as in a table that is sorted by popularity.
 */
#include <stdatomic.h>

#include "common/work.h"

#define COLUMNS 64
/* The rows of one sum. */
#define PER_BLOCK 80
/* Small whole numbers, so that sums of floats are exact. */
#define VALUES 251

static struct work work = { WORK_DEFAULTS };
static const struct option_row rows[] = { ROWS_WORK(&work), { 0 } };
static const struct program program = {
	"embed", "Adds up random rows of a table, of which a part is hot.",
	"--bytes 1G --threads 8", rows
};

static float (*table)[COLUMNS];
static size_t nr_rows;
/* A column whose sum was wrong; all threads may write it. */
static atomic_int wrong = -1;

/* Column @c of row @i has the value i % VALUES + c. */
static void sum(struct worker *worker)
{
	float total[COLUMNS] = { 0 };
	uint64_t wanted = 0;

	for (unsigned int i = 0; i < PER_BLOCK; i++) {
		size_t row = work_pick(worker, nr_rows);

		wanted += row % VALUES;
		for (unsigned int c = 0; c < COLUMNS; c++)
			total[c] += table[row][c];
	}
	for (unsigned int c = 0; c < COLUMNS; c++)
		if (total[c] != (float)(wanted + (uint64_t)c * PER_BLOCK))
			wrong = (int)c;
}

int main(int argc, char **argv)
{
	options_parse(&program, argc, argv);
	nr_rows = work.bytes / sizeof(*table);
	table = work_map(&work);
	for (size_t i = 0; i < nr_rows; i++)
		for (unsigned int c = 0; c < COLUMNS; c++)
			table[i][c] = (float)(i % VALUES + c);
	if (work.sabotage)
		table[0][0]++;
	work_run(&work, sum, "embed", "rows", PER_BLOCK);
	if (wrong >= 0)
		bench_die(BENCH_FAILED, "the sum of column %d is wrong", wrong);
	return BENCH_OK;
}
