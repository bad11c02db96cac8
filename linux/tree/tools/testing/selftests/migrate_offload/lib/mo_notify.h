/* SPDX-License-Identifier: GPL-2.0-only */
/* The module migrate_notifier_test: a device that shares the page table. */
#ifndef MO_NOTIFY_H
#define MO_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PATH_NOTIFY "/sys/kernel/debug/migrate_notifier_test/"
/* The word of a device that only reads. */
#define MO_NO_WORD -1

/* Events that the device has seen.  The last four are failures. */
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

/* Returns false if the module does not exist. */
bool mo_notify_load(void);
void mo_notify_read(struct mo_notify *now);
/* Returns the number of failures since @before, and prints each kind. */
long long mo_notify_failures(const struct mo_notify *before);

/*
 * Have a device use memory of a process (0: this one).  The device writes to
 * one u64 of each page, until the returned file is closed.
 */
int mo_notify_watch(pid_t pid, const void *mem, size_t bytes, int word);
/* Stop the accesses of the device, or resume them. */
void mo_notify_stop(int fd);
void mo_notify_go(int fd);
/* Wait for @nr more accesses.  Returns false after a timeout. */
bool mo_notify_wait(long long nr);

#endif /* MO_NOTIFY_H */
