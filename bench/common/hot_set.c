// SPDX-License-Identifier: GPL-2.0-only
/* A thread that uses a known part of its memory, which changes with time. */
#include "hot_set.h"

#define PER_BLOCK 256
#define FORGET_NS 10000000

const char *const load_names[NR_LOADS + 1] = {
	[LOAD_STATIC] = "static",
	[LOAD_MOVING] = "moving",
	[LOAD_GROWING] = "growing",
};

unsigned int load_phases(enum load load)
{
	static const unsigned int phases[NR_LOADS] = {
		[LOAD_STATIC] = 1,
		[LOAD_MOVING] = 2,
		[LOAD_GROWING] = MAX_PHASES,
	};

	return phases[load];
}

struct window load_window(enum load load, unsigned int phase, size_t nr_pages)
{
	size_t nr = nr_pages / 2;
	struct window w = { .first = nr, .nr = nr };

	if (load == LOAD_MOVING && phase)
		w.first = 0;
	if (load == LOAD_GROWING)
		w.nr = nr * (phase + 1) / MAX_PHASES;
	return w;
}

static volatile uint64_t *word_of(const struct region *r, size_t page)
{
	return (volatile uint64_t *)(r->base + page * page_bytes());
}

static void *use(void *arg)
{
	struct hot_set *h = arg;
	size_t nr_pages = h->region->bytes / page_bytes(), page = 0, at = 0;
	uint64_t random = 1, now = bench_now_ns(), forgot = now;

	pin_to_cpu(h->cpu);
	while (!atomic_load(&h->stop)) {
		struct window w = load_window(h->load, atomic_load(&h->phase),
					      nr_pages);
		uint64_t begin = bench_now_ns();

		for (unsigned int i = 0; i < PER_BLOCK; i++) {
			random = random_step(random);
			page = w.first + (size_t)((random >> 32) * w.nr >> 32);
			++*word_of(h->region, page);
		}
		now = bench_now_ns();
		h->accesses += PER_BLOCK;
		if (now - begin > h->longest_ns)
			h->longest_ns = now - begin;
		atomic_store(&h->recent[at++ % RECENT], page);
		if (now - forgot >= FORGET_NS) {
			translations_forget();
			forgot = now;
		}
	}
	return NULL;
}

void hot_set_start(struct hot_set *h)
{
	for (size_t i = 0; i < RECENT; i++)
		h->recent[i] = SIZE_MAX;
	thread_start(&h->thread, use, h);
}

void hot_set_stop(struct hot_set *h)
{
	atomic_store(&h->stop, true);
	pthread_join(h->thread, NULL);
}

int hot_set_permille(struct hot_set *h, int node)
{
	static void *pages[RECENT];
	static int nodes[RECENT];
	size_t nr = 0, known = 0, there = 0;

	for (size_t i = 0; i < RECENT; i++) {
		size_t page = atomic_load(&h->recent[i]);

		if (page != SIZE_MAX)
			pages[nr++] = (void *)word_of(h->region, page);
	}
	pages_query(pages, nr, nodes);
	for (size_t i = 0; i < nr; i++) {
		known += nodes[i] >= 0;
		there += nodes[i] == node;
	}
	return known ? (int)(there * 1000 / known) : -1;
}

bool hot_set_undo(const struct hot_set *h, uint64_t seed)
{
	uint64_t writes = 0;

	for (size_t i = 0; i < h->region->bytes / page_bytes(); i++) {
		volatile uint64_t *word = word_of(h->region, i);
		uint64_t was;

		pattern_fill(&was, sizeof(was), seed, i);
		writes += *word - was;
		*word = was;
	}
	return writes == h->accesses;
}
