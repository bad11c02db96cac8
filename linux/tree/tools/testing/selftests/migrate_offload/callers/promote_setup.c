// SPDX-License-Identifier: GPL-2.0-only
/*
 * Settings and checks of the test of promotions: nodes, NUMA balancing,
 * cgroups.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "mo_promote.h"

#define PATH_STATS PATH_OFFLOAD "stats/reasons/numa_misplaced/"
#define CGROUP "promote"
#define MPOL_DEFAULT 0
#define MPOL_BIND 2
#define MPOL_MF_STRICT 1
#define MPOL_MF_MOVE 2

long long promotion(const char *name)
{
	char path[96];

	snprintf(path, sizeof(path), PATH_PROMOTION "%s", name);
	return mo_read_number(path);
}

long long stat_of_reason(const char *name)
{
	char path[96];

	snprintf(path, sizeof(path), PATH_STATS "%s", name);
	return mo_read_number(path);
}

long long not_settled(void)
{
	return promotion("queued_folios") - promotion("moved_folios") -
	       promotion("returned_folios");
}

long long wait_for_isolated(void)
{
	long long nr = -1;
	int i;

	for (i = 0; i < 100 && nr; i++) {
		usleep(20000);
		nr = mo_vm_counter("nr_isolated_anon") + mo_vm_counter("nr_isolated_file");
	}
	/* The worker counts the folios after that, and the drain waits for it. */
	mo_drain();
	return nr;
}

bool promote_slowly(void)
{
	if (!mo_load_test_engine(MO_TEST_PLAIN))
		return false;
	mo_select_for_all("none");
	mo_select_for("numa_misplaced", "default");
	mo_write(PATH_TEST "delay_us", "100000");
	mo_select("test");
	return true;
}

/* The second page of a folio that is isolated would be busy, so name the first. */
static size_t move_all(const struct mo_area *area, bool move)
{
	size_t i, errors = 0, nr = area->bytes / area->step;
	int nodes[nr], status[nr];
	void *pages[nr];

	for (i = 0; i < nr; i++) {
		pages[i] = area->mem + i * area->step;
		nodes[i] = mo_nodes[0];
	}
	if (syscall(SYS_move_pages, 0, nr, pages, move ? nodes : NULL, status,
		    MPOL_MF_MOVE) < 0)
		mo_die("move_pages: %m");
	for (i = 0; i < nr; i++)
		errors += status[i] < 0;
	return errors;
}

static size_t bind_all(const struct mo_area *area)
{
	unsigned long mask[4] = {};
	long errors;
	int i;

	for (i = 0; i < 2; i++)
		mask[mo_nodes[i] / 64] |= 1UL << (mo_nodes[i] % 64);
	errors = -syscall(SYS_mbind, area->mem, area->bytes, MPOL_BIND, mask,
			  8 * sizeof(mask), MPOL_MF_STRICT);
	if (syscall(SYS_mbind, area->mem, area->bytes, MPOL_DEFAULT, NULL, 0, 0))
		mo_die("mbind: %m");
	return errors;
}

size_t find_all(const struct mo_area *area, unsigned int way)
{
	return way != FIND_BY_MBIND ? move_all(area, way) : bind_all(area);
}

static long long number_behind(const char *text, const char *name)
{
	const char *found = strstr(text, name);

	if (!found)
		mo_die("no number behind%s", name);
	return strtoll(found + strlen(name), NULL, 10);
}

void read_both(const char *path, const char *a, long long *of_a, const char *b,
	       long long *of_b)
{
	static char text[16384];

	mo_read(path, text, sizeof(text));
	*of_a = number_behind(text, a);
	*of_b = number_behind(text, b);
}

long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

time_t now_s(void)
{
	return now_ms() / 1000;
}

unsigned long wait_for_promotion(const struct mo_area *area, unsigned long left)
{
	time_t until = now_s() + WAIT_S;
	unsigned long nr;

	do {
		usleep(20000);
		nr = mo_elsewhere(area, mo_nodes[1]);
	} while (nr > left && now_s() < until);
	return nr;
}

void wait_for_marks(long long until)
{
	time_t end = now_s() + WAIT_S;

	while (mo_vm_counter("numa_pte_updates") < until) {
		if (now_s() > end)
			mo_die("NUMA balancing does not scan the memory");
		mo_spin(10000000);
	}
}

void wait_for_hints(long long until)
{
	time_t end = now_s() + WAIT_S;

	while (mo_vm_counter("numa_hint_faults") < until) {
		if (now_s() > end)
			mo_die("marked pages cause no hint faults");
		usleep(20000);
	}
}

const char *mo_find_tiers(int *cpu)
{
	char text[64], path[96];
	int first, node, tiers = 0;

	mo_read("/sys/devices/system/node/has_cpu", text, sizeof(text));
	first = atoi(text);
	if (strpbrk(text, ",-"))
		return "needs one node with CPUs";
	for (node = 0; node < 1024; node++) {
		snprintf(path, sizeof(path),
			 "/sys/devices/virtual/memory_tiering/memory_tier%d",
			 node);
		tiers += mo_exists(path);
	}
	if (tiers < 2)
		return "needs memory of two tiers";
	if (mo_nodes[0] == first)
		mo_nodes[0] = mo_nodes[1];
	mo_nodes[1] = first;
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist",
		 first);
	*cpu = mo_read_number(path);
	return NULL;
}

static void cgroup_write(const char *dir, const char *file, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	mo_write(path, text);
}

const char *mo_cgroup_enter(char *cgroups, const char *controller,
			    const char *file, const char *text)
{
	static const char name[] = "/tmp/mo_promote.XXXXXX";
	char dir[64], path[128];

	memcpy(cgroups, name, sizeof(name));
	if (!mkdtemp(cgroups))
		mo_die("cannot make a directory: %m");
	if (mount("cgroup2", cgroups, "cgroup2", 0, NULL))
		mo_die("cannot mount cgroups: %m");
	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", cgroups);
	if (mo_try_write(path, controller))
		return "no such controller";
	snprintf(dir, sizeof(dir), "%s/" CGROUP, cgroups);
	/* A test that died has left a cgroup, with its limits. */
	rmdir(dir);
	if (mkdir(dir, 0700))
		mo_die("cannot make a cgroup: %m");
	snprintf(path, sizeof(path), "%s/%s", dir, file);
	if (text && !mo_exists(path))
		return "no such limit";
	if (text)
		mo_write(path, text);
	cgroup_write(dir, "cgroup.procs", "0");
	return NULL;
}

void mo_cgroup_leave(const char *cgroups)
{
	char path[64];

	cgroup_write(cgroups, "cgroup.procs", "0");
	snprintf(path, sizeof(path), "%s/" CGROUP, cgroups);
	rmdir(path);
	umount(cgroups);
	rmdir(cgroups);
}
