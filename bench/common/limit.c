// SPDX-License-Identifier: GPL-2.0-only
/*
 * The limit: a plain copy in user space between the same two nodes, with the
 * same number of CPUs.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

#define MAX_COPIERS 64

/*
 * A copy by words. memcpy(3) picks vector instructions.  An emulated CPU
 * executes these more slowly than the kernel's copy by registers, so the limit
 * would be too low.
 */
static void *copy_words(void *dst, const void *src, size_t bytes)
{
	const uint64_t *from = src;
	uint64_t *to = dst;

	for (size_t i = 0; i < bytes / sizeof(*to); i += 8) {
		/*
		 * Unrolled by hand: gcc would turn a simple loop into a call to
		 * memcpy().
		 */
		uint64_t a = from[i], b = from[i + 1], c = from[i + 2],
			 d = from[i + 3], e = from[i + 4], f = from[i + 5],
			 g = from[i + 6], h = from[i + 7];

		to[i] = a;
		to[i + 1] = b;
		to[i + 2] = c;
		to[i + 3] = d;
		to[i + 4] = e;
		to[i + 5] = f;
		to[i + 6] = g;
		to[i + 7] = h;
	}
	return dst;
}

typedef void *(*copy_fn)(void *dst, const void *src, size_t bytes);

static copy_fn copy_best = memcpy;

static uint64_t copy_time_ns(copy_fn copy, char *dst, const char *src,
			     size_t bytes)
{
	uint64_t best = UINT64_MAX;

	/* The first run has cold caches.  The fastest run counts. */
	for (int i = 0; i < 5; i++) {
		uint64_t start = bench_now_ns(), elapsed;

		copy(dst, src, bytes);
		elapsed = bench_now_ns() - start;
		if (elapsed < best)
			best = elapsed;
	}
	return best;
}

/* Choose the faster of the two copies.  Returns its name. */
const char *limit_choose_copy(void)
{
	const size_t bytes = PMD_BYTES;
	char *src = malloc(bytes), *dst = malloc(bytes);

	if (!src || !dst)
		bench_die(BENCH_LACKING, "no memory to try copies in");
	memset(src, 1, bytes);
	memset(dst, 2, bytes);
	if (copy_time_ns(copy_words, dst, src, bytes) <
	    copy_time_ns(memcpy, dst, src, bytes))
		copy_best = copy_words;
	free(src);
	free(dst);
	return copy_best == copy_words ? "words" : "memcpy";
}

struct copier {
	pthread_t thread;
	int cpu;
	const struct region *src;
	struct region *dst;
	size_t first, end;	/* folios */
	atomic_bool *go;
	atomic_uint *nr_ready;
};

static void copy_folios(const struct copier *c)
{
	size_t folio = c->src->folio_bytes;

	for (size_t i = c->first; i < c->end; i++)
		copy_best(c->dst->base + i * folio, c->src->base + i * folio,
			  folio);
}

static void *copier_main(void *arg)
{
	struct copier *c = arg;

	pin_to_cpu(c->cpu);
	atomic_fetch_add(c->nr_ready, 1);
	/* Yield, as the machine may have more threads than CPUs. */
	while (!atomic_load(c->go))
		sched_yield();
	copy_folios(c);
	return NULL;
}

/* The CPU number @index of those allowed, from @first on, with wrap-around. */
static int nth_cpu(const cpu_set_t *cpus, int first, unsigned int index)
{
	int cpu = first;

	for (;; cpu = (cpu + 1) % CPU_SETSIZE) {
		if (CPU_ISSET(cpu, cpus) && !index--)
			return cpu;
	}
}

/*
 * Copy @src to @dst folio by folio with @nr_threads threads, including the
 * caller, each on its own CPU. Returns the nanoseconds from the start signal to
 * the end of the last thread.  The time to create threads does not count.
 */
uint64_t limit_copy_ns(const struct region *src, struct region *dst,
		       unsigned int nr_threads, const cpu_set_t *cpus,
		       int first_cpu)
{
	struct copier copiers[MAX_COPIERS];
	size_t nr_folios = src->bytes / src->folio_bytes;
	atomic_uint nr_ready = 0;
	atomic_bool go = false;
	uint64_t start, elapsed;

	if (!nr_threads || nr_threads > MAX_COPIERS)
		bench_die(BENCH_USAGE, "a limit needs 1 to %d threads, not %u",
			  MAX_COPIERS, nr_threads);
	for (unsigned int i = 0; i < nr_threads; i++) {
		copiers[i] = (struct copier){
			.cpu = nth_cpu(cpus, first_cpu, i),
			.src = src,
			.dst = dst,
			.first = nr_folios * i / nr_threads,
			.end = nr_folios * (i + 1) / nr_threads,
			.go = &go,
			.nr_ready = &nr_ready,
		};
		if (i)
			thread_start(&copiers[i].thread, copier_main,
				     &copiers[i]);
	}
	while (atomic_load(&nr_ready) != nr_threads - 1)
		sched_yield();

	start = bench_now_ns();
	atomic_store(&go, true);
	copy_folios(&copiers[0]);
	for (unsigned int i = 1; i < nr_threads; i++)
		pthread_join(copiers[i].thread, NULL);
	elapsed = bench_now_ns() - start;
	return elapsed;
}
