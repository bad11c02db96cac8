/* SPDX-License-Identifier: GPL-2.0-only */
/* The module migrate_notifier_test: a device that shares the page table. */
#ifndef MO_NOTIFY_H
#define MO_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PATH_NOTIFY "/sys/kernel/debug/migrate_notifier_test/"
/* The device reads, and writes nowhere. */
#define MO_NO_WORD -1

/* What it has seen so far.  The last four are failures. */
struct mo_notify {
	long long ranges;
	long long dropped;
	long long filled;
	long long accesses;
	long long unpaired;
	long long in_range;
	long long stale;
	long long lost;
};

/* False if there is no such module. */
bool mo_notify_load(void);
void mo_notify_read(struct mo_notify *now);
/* How many failures there are since @before; says which. */
long long mo_notify_failures(const struct mo_notify *before);

/*
 * Have a device use memory of a process (0: this one), and write to one u64 of
 * each page, until the file that is returned is closed.
 */
int mo_notify_watch(pid_t pid, const void *mem, size_t bytes, int word);
/* Let it make no access, or go on. */
void mo_notify_stop(int fd);
void mo_notify_go(int fd);
/* Wait until it has made so many more accesses.  False if it does not. */
bool mo_notify_wait(long long nr);

#endif /* MO_NOTIFY_H */
