/* SPDX-License-Identifier: GPL-2.0-only */
/* A DAMON scheme that migrates, and what it did. */
#ifndef MO_DAMON_H
#define MO_DAMON_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PATH_DAMON "/sys/kernel/mm/damon/admin/kdamonds/"
#define PATH_CONTEXT PATH_DAMON "0/contexts/0/"
#define PATH_SCHEME PATH_CONTEXT "schemes/0/"
#define PATH_DESTS PATH_SCHEME "dests/"

/* As /sys/.../stats has them. */
struct mo_damon_stats {
	long long nr_tried;
	long long sz_tried;
	long long nr_applied;
	long long sz_applied;
	long long qt_exceeds;
};

/* NULL if there is a DAMON to test, and nobody uses it; else why not. */
const char *mo_damon_cannot_run(void);

/*
 * Set up, but do not start, one kdamond with one scheme for all of a region,
 * whether it is accessed or not.  The region is one of this process, or with
 * "paddr" of physical addresses.  "vaddr" needs none.
 */
void mo_damon_setup(const char *ops, const char *action, unsigned long start,
		    unsigned long end);
/* Another process instead of this one. */
void mo_damon_set_target(pid_t pid);
/* Several, each with the addresses of this area. */
struct mo_area;
void mo_damon_set_targets(unsigned int nr, const pid_t *pids,
			  const struct mo_area *area);
/* A file below the scheme's directory. */
void mo_damon_set(const char *file, const char *value);
void mo_damon_set_number(const char *file, long long value);
/* Destinations: a node and a weight each. */
void mo_damon_set_dests(unsigned int nr, const int *nodes,
			const unsigned int *weights);
/* A command for the kdamond: "on", "off", "commit", ...  0 or -errno. */
int mo_damon_command(const char *command);
bool mo_damon_is_on(void);
void mo_damon_stats(struct mo_damon_stats *stats);
/* Wait until all of it was tried twice and nothing moved.  False: it does not end. */
bool mo_damon_settles(size_t bytes);
/* The same, with what was counted by then. */
bool mo_damon_settles_at(size_t bytes, struct mo_damon_stats *now);
/* Wait until all of it was tried twice.  False: something moved. */
bool mo_damon_moves_nothing(size_t bytes);
/* Wait until the kdamond ends of its own. */
bool mo_damon_stops(void);
/* Stop, and leave nothing behind. */
void mo_damon_remove(void);

#endif /* MO_DAMON_H */
