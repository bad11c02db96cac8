/* SPDX-License-Identifier: GPL-2.0-only */
/* Cgroups whose tasks migrate memory, and the counters of these cgroups. */
#ifndef MO_CGROUP_H
#define MO_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "mo_area.h"

#define NR_GROUPS 3
/* The root cgroup, whose counters include all cgroups. */
#define ROOT_GROUP (-1)

/* cpu.max: 10 ms of CPU time in each period of 100 ms, or no limit. */
#define QUOTA_US 10000
#define PERIOD_US 100000
#define LIMITED "10000 100000"
#define UNLIMITED "max 100000"

/*
 * The kernel updates memory.stat every two seconds (FLUSH_TIME), and later on
 * an idle CPU.  Tests wait for at most this time.
 */
#define FLUSHED_MS 6000

/* The running test has failed. */
extern bool mo_failed;

#define expect(ok) mo_expect(ok, #ok, __LINE__)
void mo_expect(bool ok, const char *what, int line);

/* Returns NULL, or the reason why there are no cgroups. */
const char *groups_make(void);
/* Mount the cgroup file system again with these options. */
void groups_remount(const char *options);
void groups_remove(void);
const char *group_file(int group, const char *name);
/* Read a counter of memory.stat or cpu.stat. */
long long group_stat(int group, const char *file, const char *name);

/* For a child process: enter a cgroup.  A failure ends the child. */
void child_enter(int group);
/* For a child process: enter a cgroup, and map memory in it. */
struct mo_area *child_map(int group, enum mo_type type, size_t bytes,
			  size_t folio_bytes);
/*
 * Move the area to the other node and back, @trips times.  Returns 1 if a page
 * stayed or its content changed.  The child sleeps for @pause_us after each
 * move, so that other tasks find an idle CPU for their helpers.
 */
int child_trips(struct mo_area *area, int trips, int pause_us);
/*
 * Move the area back and forth for @us.  Returns 1 if a move failed, or if the
 * content is wrong at the end.
 */
int child_moves(struct mo_area *area, long long us);
void child_wait(pid_t child);

long long now_us(void);

/* callers/cgroup_debts.c */
void test_owed_is_paid(void);
void test_cpu_time(void);

#endif /* MO_CGROUP_H */
