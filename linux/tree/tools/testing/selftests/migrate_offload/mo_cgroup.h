/* SPDX-License-Identifier: GPL-2.0-only */
/* Cgroups that migrate, and what they are told. */
#ifndef MO_CGROUP_H
#define MO_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "mo_area.h"

#define NR_GROUPS 3
/* For all of them: what the root cgroup has. */
#define ROOT_GROUP (-1)

/* cpu.max, of 100 ms. */
#define QUOTA_US 10000
#define PERIOD_US 100000
#define LIMITED "10000 100000"
#define UNLIMITED "max 100000"

/* memory.stat is exact two seconds later at the latest, see FLUSH_TIME. */
#define FLUSHED_MS 6000

/* Of the test that runs. */
extern bool mo_failed;

#define expect(ok) mo_expect(ok, #ok, __LINE__)
void mo_expect(bool ok, const char *what, int line);

/* NULL, or why there cannot be any. */
const char *groups_make(void);
/* With what options the file system is mounted from now on. */
void groups_remount(const char *options);
void groups_remove(void);
const char *group_file(int group, const char *name);
/* A figure of memory.stat or cpu.stat. */
long long group_stat(int group, const char *file, const char *name);

/* In a process of its own, which may stop the test: be in a cgroup. */
void child_enter(int group);
/* Likewise: have memory. */
struct mo_area *child_map(int group, enum mo_type type, size_t bytes,
			  size_t folio_bytes);
/*
 * There and back; 1 if anything was left behind or is not as it was.  With pauses,
 * so that others find a CPU for helpers now and then.
 */
int child_trips(struct mo_area *area, int trips, int pause_us);
/* The same for @us, without looking whether all is as it was before the end. */
int child_moves(struct mo_area *area, long long us);
void child_wait(pid_t child);

long long now_us(void);

/* cgroup_debts.c */
void test_owed_is_paid(void);
void test_cpu_time(void);

#endif /* MO_CGROUP_H */
