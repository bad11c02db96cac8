// SPDX-License-Identifier: GPL-2.0-only
/* Programs that use memory: threads, a hot set, and the time of each block. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "work.h"

void *work_map(const struct work *w)
{
	/* No policy: balancing would not promote memory that has one. */
	void *base = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (base == MAP_FAILED)
		bench_die(BENCH_LACKING, "mmap of %llu bytes: %s",
			  (unsigned long long)w->bytes, strerror(errno));
	return base;
}

static uint64_t random_below(struct worker *worker, uint64_t limit)
{
	worker->random = random_step(worker->random);
	return (uint64_t)((unsigned __int128)worker->random * limit >> 64);
}

size_t work_pick(struct worker *worker, size_t nr)
{
	const struct work *w = worker->work;
	size_t nr_hot = nr * w->hot_percent / 100;

	if (random_below(worker, 100) < w->share_percent)
		return random_below(worker, nr_hot);
	return nr_hot + random_below(worker, nr - nr_hot);
}

static atomic_bool work_is_over;

static void end_early(int signal)
{
	(void)signal;
	work_is_over = true;
}

static void *run(void *arg)
{
	struct worker *worker = arg;
	uint64_t now = bench_now_ns();

	while (now < worker->end_ns && !work_is_over) {
		uint64_t begin = now;

		worker->block(worker);
		worker->blocks++;
		now = bench_now_ns();
		histogram_add(&worker->took, now - begin);
		if (now - begin > worker->longest_ns)
			worker->longest_ns = now - begin;
	}
	return NULL;
}

/* The lower bound of the bucket in which @per_mille of all blocks have ended. */
static uint64_t percentile(const struct worker *workers, uint64_t nr,
			   uint64_t blocks, uint64_t per_mille)
{
	uint64_t left = (blocks * per_mille + 999) / 1000, below = 0, count;
	uint64_t lower;

	/* Each turn takes the next bucket of all threads. */
	do {
		lower = UINT64_MAX;
		count = 0;
		for (uint64_t i = 0; i < nr; i++) {
			const struct histogram *h = &workers[i].took;

			for (size_t j = 0; j < h->nr; j++) {
				if (h->lower[j] < below || h->lower[j] > lower)
					continue;
				if (h->lower[j] < lower)
					count = 0;
				lower = h->lower[j];
				count += h->count[j];
			}
		}
		below = lower + 1;
		left -= count < left ? count : left;
	} while (left);
	return lower;
}

static void report(const struct worker *workers, uint64_t nr, uint64_t blocks)
{
	static const struct {
		const char *key;
		uint64_t per_mille;
	} ranks[] = { { "p50_ns", 500 }, { "p95_ns", 950 }, { "p99_ns", 990 },
		      { "p99.9_ns", 999 } };
	uint64_t longest_ns = 0;

	for (size_t i = 0; i < ARRAY_SIZE(ranks); i++)
		json_u64(ranks[i].key, percentile(workers, nr, blocks,
						  ranks[i].per_mille));
	for (uint64_t i = 0; i < nr; i++)
		if (workers[i].longest_ns > longest_ns)
			longest_ns = workers[i].longest_ns;
	json_u64("max_ns", longest_ns);
}

uint64_t work_run(const struct work *w, void (*block)(struct worker *worker),
		  const char *program, const char *unit, uint64_t per_block)
{
	static struct worker workers[WORK_MAX_THREADS];
	uint64_t begin = bench_now_ns(), blocks = 0, elapsed_ns;
	char key[64];

	signal(SIGINT, end_early);
	for (uint64_t i = 0; i < w->threads; i++) {
		workers[i] = (struct worker){
			.work = w,
			.block = block,
			.end_ns = begin + w->seconds * 1000000000,
			.random = random_step(i + 1),
		};
		thread_start(&workers[i].thread, run, &workers[i]);
	}
	for (uint64_t i = 0; i < w->threads; i++) {
		pthread_join(workers[i].thread, NULL);
		blocks += workers[i].blocks;
	}
	elapsed_ns = bench_now_ns() - begin;
	snprintf(key, sizeof(key), "%s_per_s", unit);
	json_begin(program);
	json_u64(key, (uint64_t)((double)(blocks * per_block) * 1e9 /
				 (double)elapsed_ns));
	report(workers, w->threads, blocks);
	json_end();
	return blocks;
}
