/* SPDX-License-Identifier: GPL-2.0-only */
/* work.c: programs that use memory, for `pageferry compare` */
#ifndef PF_BENCH_WORK_H
#define PF_BENCH_WORK_H

#include "latency.h"
#include "options.h"

struct work {
	uint64_t bytes;		/* of the table */
	uint64_t seconds;
	uint64_t threads;
	uint64_t hot_percent;	/* of the table: its first part */
	uint64_t share_percent;	/* of the accesses: those to the hot part */
	const char *sabotage;
};

#define WORK_MAX_THREADS 1024
#define WORK_DEFAULTS							       \
	.bytes = 128UL << 20, .seconds = 8, .threads = 1, .hot_percent = 10,   \
	.share_percent = 90
#define ROWS_WORK(w)							       \
	{ "bytes", "SIZE", "of the table, a multiple of 2M (default 128M)",   \
	  set_bytes, &(w)->bytes, PMD_BYTES, 1UL << 44, NULL },		       \
	{ "seconds", "N", "time of the work, or until SIGINT (default 8)", set_u64,	       \
	  &(w)->seconds, 1, 86400, NULL },				       \
	{ "threads", "N", "that work on the same table (default 1)", set_u64, \
	  &(w)->threads, 1, WORK_MAX_THREADS, NULL },			       \
	{ "hot", "PERCENT", "of the table that is hot (default 10)", set_u64, \
	  &(w)->hot_percent, 1, 99, NULL },				       \
	{ "share", "PERCENT", "of the accesses that go there (default 90)",   \
	  set_u64, &(w)->share_percent, 0, 100, NULL },			       \
	ROW_SABOTAGE(&(w)->sabotage, "")

/* A thread; @block is the work between two looks at the clock. */
struct worker {
	const struct work *work;
	void (*block)(struct worker *worker);
	pthread_t thread;
	uint64_t end_ns;
	uint64_t random;
	uint64_t blocks;
	uint64_t longest_ns;
	struct histogram took;
};

/* Memory that the kernel may place and migrate as it likes. */
void *work_map(const struct work *w);
/* A random number below @nr, of the hot part as often as --share says. */
size_t work_pick(struct worker *worker, size_t nr);
/*
 * Run all threads, print what they did, and return the number of blocks.
 * @unit names what @per_block counts.
 */
uint64_t work_run(const struct work *w, void (*block)(struct worker *worker),
		  const char *program, const char *unit, uint64_t per_block);

#endif /* PF_BENCH_WORK_H */
