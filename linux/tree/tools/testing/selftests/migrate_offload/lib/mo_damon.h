/* SPDX-License-Identifier: GPL-2.0-only */
/* A migrating DAMON scheme, and its statistics. */
#ifndef MO_DAMON_H
#define MO_DAMON_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PATH_DAMON "/sys/kernel/mm/damon/admin/kdamonds/"
#define PATH_CONTEXT PATH_DAMON "0/contexts/0/"
#define PATH_SCHEME PATH_CONTEXT "schemes/0/"
#define PATH_DESTS PATH_SCHEME "dests/"

/* The fields of the scheme's stats directory. */
struct mo_damon_stats {
	long long nr_tried;
	long long sz_tried;
	long long nr_applied;
	long long sz_applied;
	long long qt_exceeds;
};

/* Returns NULL if DAMON exists and is unused, else the reason. */
const char *mo_damon_cannot_run(void);

/*
 * Set up one kdamond, but do not start it.  Its scheme applies to a whole
 * region, accessed or not.  The region is of this process, or of physical
 * addresses with "paddr".  "vaddr" needs no region.
 */
void mo_damon_setup(const char *ops, const char *action, unsigned long start,
		    unsigned long end);
/* Sample, aggregate and apply the scheme after this time. */
void mo_damon_set_interval_us(unsigned long us);
/* Make another process the target. */
void mo_damon_set_target(pid_t pid);
/* Make several processes the targets, each with the region of this area. */
struct mo_area;
void mo_damon_set_targets(unsigned int nr, const pid_t *pids,
			  const struct mo_area *area);
/* Write to a file in the scheme's directory. */
void mo_damon_set(const char *file, const char *value);
void mo_damon_set_number(const char *file, long long value);
/* Set destinations: a node and a weight each. */
void mo_damon_set_dests(unsigned int nr, const int *nodes,
			const unsigned int *weights);
/*
 * Send a command to the kdamond: "on", "off", "commit", ... Returns 0 or
 * -errno.
 */
int mo_damon_command(const char *command);
bool mo_damon_is_on(void);
void mo_damon_stats(struct mo_damon_stats *stats);
/*
 * Wait for two whole passes in which nothing moved.  Returns false after a
 * timeout.
 */
bool mo_damon_settles(size_t bytes);
/* As mo_damon_settles().  @now gets the last statistics. */
bool mo_damon_settles_at(size_t bytes, struct mo_damon_stats *now);
/* Wait for two whole passes.  Returns false if a page moved. */
bool mo_damon_moves_nothing(size_t bytes);
/* Wait until the kdamond stops by itself.  Returns false after a timeout. */
bool mo_damon_stops(void);
/* Stop, and remove all settings. */
void mo_damon_remove(void);

#endif /* MO_DAMON_H */
