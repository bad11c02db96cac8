// SPDX-License-Identifier: GPL-2.0-only
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "mo_numa.h"
#include "mo_util.h"

#define PATH_BALANCING "/proc/sys/kernel/numa_balancing"
#define PATH_SCAN "/sys/kernel/debug/sched/numa_balancing/"
/* Scans begin after a second of CPU time, which a busy host stretches. */
#define HINT_TIMEOUT_S 120

#define MPOL_BIND 2
#define MPOL_F_NUMA_BALANCING 0x2000

/*
 * One scan starts at once and covers all memory.  A page touched later is hot.
 */
static const struct {
	const char *path, *value;
} scan_settings[MO_SCAN_SETTINGS] = {
	{ PATH_SCAN "scan_delay_ms", "50" },
	{ PATH_SCAN "scan_period_min_ms", "50" },
	{ PATH_SCAN "scan_period_max_ms", "200" },
	{ PATH_SCAN "scan_size_mb", "256" },
	{ PATH_SCAN "hot_threshold_ms", "60000" },
};

void mo_scan_at_once(char saved[][MO_SETTING_BYTES])
{
	unsigned int i;

	for (i = 0; i < MO_SCAN_SETTINGS; i++) {
		/*
		 * The files need CONFIG_SCHED_DEBUG.  Without it, all takes
		 * seconds longer.
		 */
		if (!mo_exists(scan_settings[i].path))
			continue;
		mo_read(scan_settings[i].path, saved[i], MO_SETTING_BYTES);
		mo_write(scan_settings[i].path, scan_settings[i].value);
	}
}

void mo_scan_restore(char saved[][MO_SETTING_BYTES])
{
	unsigned int i;

	for (i = 0; i < MO_SCAN_SETTINGS; i++)
		if (saved[i][0])
			mo_write(scan_settings[i].path, saved[i]);
}

/* Touch all pages from the nth on.  Returns the number of NUMA hint faults. */
static long long touch(const struct mo_area *area, size_t nth)
{
	long long faults = mo_vm_counter("numa_hint_faults");
	size_t i;

	for (i = nth * SZ_4K; i < area->bytes; i += SZ_4K)
		__atomic_load_n(area->mem + i, __ATOMIC_RELAXED);
	return mo_vm_counter("numa_hint_faults") - faults;
}

/*
 * A second thread.  NUMA balancing skips pages on the local node of a
 * single-threaded process.
 */
static void *sleep_on(void *arg)
{
	pthread_mutex_t *until = arg;

	pthread_mutex_lock(until);
	pthread_mutex_unlock(until);
	return NULL;
}

bool mo_numa_hint(struct mo_area *area, size_t nr_kept)
{
	char saved[MO_SCAN_SETTINGS][MO_SETTING_BYTES] = {};
	unsigned long nodes = 1UL << mo_nodes[0];
	/* The first fault in a folio makes the whole folio accessible. */
	long long wanted = (area->bytes - nr_kept * SZ_4K) / area->folio_bytes;
	pthread_mutex_t until = PTHREAD_MUTEX_INITIALIZER;
	time_t give_up = time(NULL) + HINT_TIMEOUT_S;
	pthread_t second;

	if (!mo_exists(PATH_BALANCING))
		return false;
	/*
	 * Without this policy, a page moves to the node of a CPU that touches
	 * it.
	 */
	if (syscall(SYS_mbind, area->mem, area->bytes,
		    MPOL_BIND | MPOL_F_NUMA_BALANCING, &nodes,
		    8 * sizeof(nodes), 0))
		mo_die("mbind: %m");
	pthread_mutex_lock(&until);
	if (pthread_create(&second, NULL, sleep_on, &until))
		mo_die("cannot create a thread");
	mo_scan_at_once(saved);
	mo_write(PATH_BALANCING, "1");
	/*
	 * NUMA balancing scans only a process that uses CPU time, and scans a
	 * new VMA after a delay.
	 */
	do {
		mo_spin(10000000);
		if (time(NULL) > give_up)
			mo_die("NUMA balancing does not scan this memory");
	} while (touch(area, nr_kept) < wanted);
	mo_write(PATH_BALANCING, "0");
	mo_scan_restore(saved);
	pthread_mutex_unlock(&until);
	pthread_join(second, NULL);
	return true;
}
