/* SPDX-License-Identifier: GPL-2.0-only */
/* A program that uses a known part of its memory, and what happens to it. */
#ifndef PF_BENCH_HOT_SET_H
#define PF_BENCH_HOT_SET_H

#include <stdatomic.h>

#include "bench.h"

/* hot_set.c */
enum load {
	LOAD_STATIC,	/* the same pages all the time */
	LOAD_MOVING,	/* other pages from the middle of the time on */
	LOAD_GROWING,	/* a quarter of the pages more in each quarter */
	NR_LOADS,
};
#define MAX_PHASES 4

extern const char *const load_names[NR_LOADS + 1];

/* The pages of a region that are in use. */
struct window {
	size_t first, nr;
};

unsigned int load_phases(enum load load);
/* Two windows fit: the region has twice as many pages as are hot at most. */
struct window load_window(enum load load, unsigned int phase, size_t nr_pages);

#define RECENT 1024

/* A thread that increments the first word of random pages of the window. */
struct hot_set {
	const struct region *region;
	enum load load;
	int cpu;
	_Atomic unsigned int phase;
	pthread_t thread;
	_Atomic bool stop;
	_Atomic size_t recent[RECENT];	/* pages of some late accesses */
	uint64_t accesses;
	uint64_t longest_ns;	/* block of accesses between two looks at the clock */
};

void hot_set_start(struct hot_set *h);
void hot_set_stop(struct hot_set *h);
/* The share of late accesses that @node serves, in 1/1000.  -1: unknown. */
int hot_set_permille(struct hot_set *h, int node);
/* Undo all writes.  Returns false if a write is missing. */
bool hot_set_undo(const struct hot_set *h, uint64_t seed);

/* followed.c: a sample of pages, by their virtual addresses */
struct followed {
	void *page;
	int node;
	uint64_t promoted_ns;	/* 0: not promoted, or demoted since */
};

struct turns {
	uint64_t up, down;
	uint64_t ping_pong;	/* demoted within a minute after a promotion */
};

void pages_query(void **pages, size_t nr, int *nodes);
/* A node below 0 is that of a page in the middle of its move. */
void followed_look(struct followed *f, int node, int fast, uint64_t now_ns,
		   struct turns *t);
/* Look at all pages; all of them are in @t afterwards. */
void followed_look_all(struct followed *f, size_t nr, int fast,
		       struct turns *t);

/* policies.c: programs and settings that move memory between tiers */
struct policy {
	const char *name;
	bool balancing;		/* NUMA balancing promotes, reclaim demotes */
	const char *command;	/* for a shell; starts kdamonds.  NULL: none */
	bool serves;		/* the command goes on as long as it is in use */
};

#define DEMOTION_ENABLED "/sys/kernel/mm/numa/demotion_enabled"
#define NUMA_BALANCING "/proc/sys/kernel/numa_balancing"

#define KDAMONDS "/sys/kernel/mm/damon/admin/kdamonds"

/* End the program if another program uses DAMON, whose files are in @kdamonds. */
void policies_open(const char *kdamonds);
/* Returns false with the reason. */
bool policy_start(const struct policy *p, const cpu_set_t *cpus, char *why,
		  size_t size);
/* Returns true if the kernel tunes quotas of DAMON's schemes by goals. */
bool policy_has_goals(void);
void policy_stop(const struct policy *p);

#endif /* PF_BENCH_HOT_SET_H */
