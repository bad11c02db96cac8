// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program that needs its memory while it moves: a thread touches random words
 * one by one, and measures each touch.
 *
 * Before the move the thread touches memory that does not move, to learn the
 * usual time.  Touches that take far longer have lost time.  On a busy machine,
 * other tasks may also cause that.  So touches during which the thread slept,
 * as in a wait for a folio, are counted separately.
 *
 * A write increments the first word of a page.  The program undoes all writes
 * before it verifies the content, so a lost write shows as a wrong byte.
 */
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "latency.h"

#define QUIET_TOUCHES 1000
#define LOST_AT_LEAST_NS 20000ULL

const char *const touch_names[] = { "none", "read", "write", NULL };

enum phase { QUIET, READY, MOVING, STOP };

static uint64_t random_next(struct toucher *t)
{
	t->random ^= t->random << 13;
	t->random ^= t->random >> 7;
	t->random ^= t->random << 17;
	return t->random;
}

/* Voluntary context switches of the thread: it waited for something. */
static long nr_sleeps(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

static uint64_t touch_once(struct toucher *t)
{
	size_t nr_pages = t->region->bytes / page_bytes();
	size_t page = random_next(t) % nr_pages;
	volatile uint64_t *word =
		(volatile uint64_t *)(t->region->base + page * page_bytes());
	uint64_t start = bench_now_ns(), elapsed;

	if (t->mode == TOUCH_WRITE)
		(*word)++;
	else
		(void)*word;
	elapsed = bench_now_ns() - start;
	if (t->mode == TOUCH_WRITE)
		t->written[page]++;
	return elapsed;
}

static void count_touch(struct toucher *t, uint64_t ns, long slept)
{
	t->touches++;
	histogram_add(&t->hist, ns);
	if (ns > t->slowest_ns)
		t->slowest_ns = ns;
	if (ns <= t->threshold_ns)
		return;
	t->slow++;
	t->lost_ns += ns - t->quiet_ns;
	if (slept) {
		t->slept++;
		t->slept_ns += ns - t->quiet_ns;
	}
}

/*
 * Pause randomly, from half to one and a half times, to avoid a beat with
 * folios.
 */
static void pause_between(struct toucher *t)
{
	if (t->pause_ns)
		bench_sleep_ns(t->pause_ns / 2 + random_next(t) % t->pause_ns);
}

static int compare(const void *a, const void *b)
{
	const uint64_t *one = a, *other = b;

	return (*one > *other) - (*one < *other);
}

static void measure_quiet(struct toucher *t)
{
	uint64_t ns[QUIET_TOUCHES];

	for (size_t i = 0; i < QUIET_TOUCHES; i++) {
		ns[i] = touch_once(t);
		/* A pause cools the caches as it will during the move. */
		if (i % 4 == 0)
			pause_between(t);
	}
	qsort(ns, QUIET_TOUCHES, sizeof(ns[0]), compare);
	t->quiet_ns = ns[QUIET_TOUCHES / 2];
	t->threshold_ns = 4 * ns[QUIET_TOUCHES * 99 / 100];
	if (t->threshold_ns < LOST_AT_LEAST_NS)
		t->threshold_ns = LOST_AT_LEAST_NS;
}

static void *toucher_main(void *arg)
{
	struct toucher *t = arg;
	int phase;

	pin_to_cpu(t->cpu);
	prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
	measure_quiet(t);
	atomic_store(&t->phase, READY);
	while ((phase = atomic_load(&t->phase)) != STOP) {
		long before = nr_sleeps();
		uint64_t ns = touch_once(t);

		if (phase == MOVING)
			count_touch(t, ns, nr_sleeps() - before);
		pause_between(t);
	}
	return NULL;
}

/* Returns when the usual time of a touch is known. */
void toucher_start(struct toucher *t)
{
	t->random = 88172645463325252ULL;
	atomic_store(&t->phase, QUIET);
	t->written = calloc(t->region->bytes / page_bytes(),
			    sizeof(*t->written));
	if (!t->written)
		bench_die(BENCH_LACKING, "no memory for counts of writes");
	thread_start(&t->thread, toucher_main, t);
	while (atomic_load(&t->phase) == QUIET)
		bench_sleep_ns(1000000);
}

void toucher_moving(struct toucher *t)
{
	atomic_store(&t->phase, MOVING);
}

void toucher_stop(struct toucher *t)
{
	size_t nr_pages = t->region->bytes / page_bytes();

	atomic_store(&t->phase, STOP);
	pthread_join(t->thread, NULL);
	for (size_t i = 0; i < nr_pages; i++) {
		char *page = t->region->base + i * page_bytes();

		*(uint64_t *)page -= t->written[i];
	}
	free(t->written);
}

void toucher_report(const struct toucher *t)
{
	json_str("touch", touch_names[t->mode]);
	json_u64("touches", t->touches);
	json_u64("touch_quiet_ns", t->quiet_ns);
	json_u64("touch_threshold_ns", t->threshold_ns);
	json_u64("touch_slow", t->slow);
	json_u64("touch_slept", t->slept);
	json_u64("touch_slowest_ns", t->slowest_ns);
	json_u64("touch_lost_ns", t->lost_ns);
	json_u64("touch_slept_ns", t->slept_ns);
	json_histogram("touch_hist", &t->hist);
}
