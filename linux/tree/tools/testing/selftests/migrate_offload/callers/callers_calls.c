// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callers that migrate memory because a program, an administrator or the kernel
 * wants it on another node.
 */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "mo_area.h"
#include "mo_callers.h"
#include "mo_util.h"

#define MPOL_DEFAULT 0
#define MPOL_BIND 2
#define MPOL_MF_MOVE 2

#define PATH_CGROUP "/sys/fs/cgroup"
#define PATH_DEMOTION "/sys/kernel/mm/numa/demotion_enabled"
#define PATH_LRU_GEN "/sys/kernel/mm/lru_gen/enabled"
#define PATH_BALANCING "/proc/sys/kernel/numa_balancing"

#define SMALL_BYTES (SZ_1M / 2)
#define NR_LARGE 2
/* Reclaim can give an engine several huge pages at once. */
#define NR_DEMOTED 8
/* An attempt fails while a page has an extra reference for a moment. */
#define MAX_TRIES 20
#define BALANCING_LIMIT_S 120
#define BALANCING_WRITE_US 100000

struct node_mask {
	unsigned long bits[4];
};

static struct node_mask mask_of(int node)
{
	struct node_mask mask = {};

	mask.bits[node / 64] = 1UL << (node % 64);
	return mask;
}

/* Map small and large folios.  All of them have to move to the second node. */
static const char *map_so_many(struct mo_trip *trip, unsigned int nr_large)
{
	const char *why_not = mo_trip_map(trip, SMALL_BYTES, SZ_4K);

	if (!why_not)
		why_not = mo_trip_map(trip, nr_large * SZ_2M, SZ_2M);
	trip->to = mo_nodes[1];
	return why_not;
}

static const char *map_both(struct mo_trip *trip)
{
	return map_so_many(trip, NR_LARGE);
}

static void go_by_move_pages(struct mo_trip *trip)
{
	unsigned int n;

	for (n = 0; n < trip->nr_areas; n++)
		mo_move(&trip->areas[n], trip->to);
}

const struct mo_caller mo_move_pages_call = {
	.reason = "syscall_or_cpuset",
	.prepare = map_both,
	.go = go_by_move_pages,
};

static void go_by_mbind(struct mo_trip *trip)
{
	struct node_mask mask = mask_of(trip->to);
	unsigned int n, tries;

	for (tries = 0; tries < MAX_TRIES; tries++) {
		for (n = 0; n < trip->nr_areas; n++)
			if (syscall(SYS_mbind, trip->areas[n].mem,
				    trip->areas[n].bytes, MPOL_BIND, mask.bits,
				    8 * sizeof(mask.bits), MPOL_MF_MOVE))
				mo_die("cannot bind memory to node %d: %m",
				       trip->to);
		if (!mo_trip_elsewhere(trip, trip->to))
			break;
	}
}

const struct mo_caller mo_mbind_call = {
	.reason = "mempolicy_mbind",
	.prepare = map_both,
	.go = go_by_mbind,
};

static void go_by_migrate_pages(struct mo_trip *trip)
{
	struct node_mask from = mask_of(mo_nodes[0]), to = mask_of(trip->to);
	unsigned int tries;

	for (tries = 0; tries < MAX_TRIES; tries++) {
		if (syscall(SYS_migrate_pages, 0, 8 * sizeof(from.bits),
			    from.bits, to.bits) < 0)
			mo_die("cannot migrate the pages of a process: %m");
		if (!mo_trip_elsewhere(trip, trip->to))
			break;
	}
}

const struct mo_caller mo_migrate_pages_call = {
	.reason = "syscall_or_cpuset",
	.prepare = map_both,
	.go = go_by_migrate_pages,
};

/* The cgroup of this test, and the cgroup.procs file of the former cgroup. */
static char group[64], home[320];

static void group_write(const char *file, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", group, file);
	mo_write(path, text);
}

static bool has_word(const char *path, const char *word)
{
	char text[512];

	if (!mo_exists(path))
		return false;
	mo_read(path, text, sizeof(text));
	return strstr(text, word);
}

static void find_home(void)
{
	char text[256], *line;

	mo_read("/proc/self/cgroup", text, sizeof(text));
	line = strstr(text, "0::/");
	if (!line)
		mo_die("this process is in no cgroup");
	line[strcspn(line, "\n")] = '\0';
	snprintf(home, sizeof(home), PATH_CGROUP "%s/cgroup.procs", line + 3);
}

static const char *make_group(const char *controller)
{
	char enable[32];

	if (!has_word(PATH_CGROUP "/cgroup.controllers", controller))
		return "no cgroups (v2) with this controller";
	snprintf(enable, sizeof(enable), "+%s", controller);
	if (mo_try_write(PATH_CGROUP "/cgroup.subtree_control", enable))
		return "cannot enable this controller for a cgroup";
	find_home();
	snprintf(group, sizeof(group), PATH_CGROUP "/callers-%d", getpid());
	if (mkdir(group, 0755))
		mo_die("cannot make %s: %m", group);
	return NULL;
}

static void leave_group(struct mo_trip *trip)
{
	int tries;

	if (!group[0])
		return;
	/* "0" stands for the process that writes. */
	mo_write(home, "0");
	/* A thread that has been joined leaves the cgroup a moment later. */
	for (tries = 0; rmdir(group); tries++) {
		if (errno != EBUSY || tries == 600)
			mo_die("cannot remove %s: %m", group);
		usleep(100000);
	}
	group[0] = '\0';
}

static void set_mems(int node)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", node);
	group_write("cpuset.mems", text);
}

static const char *prepare_cpuset(struct mo_trip *trip)
{
	const char *why_not = make_group("cpuset");

	if (why_not)
		return why_not;
	set_mems(mo_nodes[0]);
	group_write("cgroup.procs", "0");
	return map_both(trip);
}

/* The write returns when all memory has migrated. */
static void go_by_cpuset(struct mo_trip *trip)
{
	unsigned int tries;

	for (tries = 0; tries < MAX_TRIES; tries++) {
		set_mems(trip->to);
		if (!mo_trip_elsewhere(trip, trip->to))
			break;
		set_mems(mo_nodes[0]);
	}
}

const struct mo_caller mo_cpuset = {
	.reason = "syscall_or_cpuset",
	.prepare = prepare_cpuset,
	.go = go_by_cpuset,
	.finish = leave_group,
};

static char demotion_was[16];

static const char *prepare_demotion(struct mo_trip *trip)
{
	const char *why_not = make_group("memory");

	if (why_not)
		return why_not;
	if (!mo_exists(PATH_DEMOTION))
		return "no demotion in this kernel";
	mo_read(PATH_DEMOTION, demotion_was, sizeof(demotion_was));
	/* Demotion must take the memory from the node, not write it to swap. */
	if (has_word("/proc/swaps", "/"))
		group_write("memory.swap.max", "0");
	group_write("cgroup.procs", "0");
	why_not = map_so_many(trip, NR_DEMOTED);
	/* Pages that the writer touches all the time are not cold. */
	trip->must_move /= 2;
	return why_not;
}

static void go_by_reclaim(struct mo_trip *trip)
{
	unsigned long pages = (SMALL_BYTES + NR_DEMOTED * SZ_2M) / SZ_4K;
	unsigned int n, tries;
	char path[128];

	snprintf(path, sizeof(path), "%s/memory.reclaim", group);
	mo_write(PATH_DEMOTION, "1");
	for (tries = 0; tries < MAX_TRIES; tries++) {
		if (mo_trip_elsewhere(trip, trip->to) <= pages / 4)
			break;
		for (n = 0; n < trip->nr_areas; n++)
			madvise(trip->areas[n].mem, trip->areas[n].bytes,
				MADV_COLD);
		/*
		 * The kernel reclaims a quarter of the request at a time.  A
		 * quarter of 128M is more than there is, so an engine gets all
		 * large folios at once.  The write fails with -EAGAIN, because
		 * there is less than 128M.
		 */
		mo_try_write(path, "128M");
	}
	mo_write(PATH_DEMOTION, demotion_was);
}

const struct mo_caller mo_demotion = {
	.reason = "demotion",
	.prepare = prepare_demotion,
	.go = go_by_reclaim,
	.finish = leave_group,
};

static char lru_gen_was[16];

/* Demote with the other kind of LRU lists: multi-generational or classic. */
static const char *prepare_other_lru(struct mo_trip *trip)
{
	if (!mo_exists(PATH_LRU_GEN))
		return "only one kind of LRU lists in this kernel";
	mo_read(PATH_LRU_GEN, lru_gen_was, sizeof(lru_gen_was));
	mo_write(PATH_LRU_GEN, strtoul(lru_gen_was, NULL, 0) ? "n" : "y");
	return prepare_demotion(trip);
}

static void leave_other_lru(struct mo_trip *trip)
{
	leave_group(trip);
	if (lru_gen_was[0])
		mo_write(PATH_LRU_GEN, lru_gen_was);
	lru_gen_was[0] = '\0';
}

const struct mo_caller mo_demotion_other_lru = {
	.reason = "demotion",
	.prepare = prepare_other_lru,
	.go = go_by_reclaim,
	.finish = leave_other_lru,
};

/*
 * Run on this node.  NUMA balancing then moves memory to the node that faults.
 */
static void run_on_node(int node)
{
	char path[96], list[256];

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist",
		 node);
	mo_read(path, list, sizeof(list));
	mo_run_on(atoi(list));
}

/*
 * One fault moves one folio, and mtcopy declines folios of 4K: use huge pages.
 * NUMA balancing does not move memory that is bound to a node.
 */
static const char *prepare_balancing(struct mo_trip *trip)
{
	const char *why_not;

	if (!mo_exists(PATH_BALANCING))
		return "no NUMA balancing in this kernel";
	why_not = mo_trip_map(trip, NR_LARGE * SZ_2M, SZ_2M);
	if (why_not)
		return why_not;
	if (mo_move(&trip->areas[0], mo_nodes[1]))
		mo_die("memory that cannot be moved");
	if (syscall(SYS_mbind, trip->areas[0].mem, trip->areas[0].bytes,
		    MPOL_DEFAULT, NULL, 0, 0))
		mo_die("cannot reset the memory policy: %m");
	trip->to = mo_nodes[0];
	/*
	 * mtcopy needs an idle CPU: the main thread has to fault, not the
	 * writer.
	 */
	trip->write_every_us = BALANCING_WRITE_US;
	return NULL;
}

static void go_by_balancing(struct mo_trip *trip)
{
	const struct mo_area *area = &trip->areas[0];
	time_t end = time(NULL) + BALANCING_LIMIT_S;
	cpu_set_t cpus;
	char was[16];
	size_t i, n;

	sched_getaffinity(0, sizeof(cpus), &cpus);
	run_on_node(mo_nodes[0]);
	mo_read(PATH_BALANCING, was, sizeof(was));
	/* Balance both between tiers and between nodes of one tier. */
	mo_write(PATH_BALANCING, "3");
	/*
	 * The kernel scans a program only after each period of CPU time that
	 * the program has used.
	 */
	for (n = 0; mo_elsewhere(area, trip->to) && time(NULL) < end; n++)
		for (i = 0; i < 16 * area->bytes; i += SZ_4K)
			(void)__atomic_load_n(area->mem + i % area->bytes,
					      __ATOMIC_RELAXED);
	mo_write(PATH_BALANCING, was);
	sched_setaffinity(0, sizeof(cpus), &cpus);
}

const struct mo_caller mo_numa_balancing = {
	.reason = "numa_misplaced",
	.prepare = prepare_balancing,
	.go = go_by_balancing,
};
