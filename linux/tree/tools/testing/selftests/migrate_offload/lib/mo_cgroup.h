/* SPDX-License-Identifier: GPL-2.0-only */
/* Cgroups that migrate, and their counters. */
#ifndef MO_CGROUP_H
#define MO_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "mo_area.h"

#define NR_GROUPS 3
/* Stands for the root cgroup, which counts for all cgroups. */
#define ROOT_GROUP (-1)

/* The quota of cpu.max in each period of 100 ms. */
#define QUOTA_US 10000
#define PERIOD_US 100000
#define LIMITED "10000 100000"
#define UNLIMITED "max 100000"

/* memory.stat is exact after two seconds at most, see FLUSH_TIME. */
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

/* In a child, which may end the test: enter a cgroup. */
void child_enter(int group);
/* In such a child: map memory. */
struct mo_area *child_map(int group, enum mo_type type, size_t bytes,
			  size_t folio_bytes);
/*
 * Move there and back.  Returns 1 if a page stayed or its content changed.
 * Pauses let other tasks find idle CPUs for helpers.
 */
int child_trips(struct mo_area *area, int trips, int pause_us);
/* The same for @us.  The content is checked only at the end. */
int child_moves(struct mo_area *area, long long us);
void child_wait(pid_t child);

long long now_us(void);

/* cgroup_debts.c */
void test_owed_is_paid(void);
void test_cpu_time(void);

#endif /* MO_CGROUP_H */
