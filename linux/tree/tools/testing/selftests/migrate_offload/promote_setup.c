// SPDX-License-Identifier: GPL-2.0-only
/* What the test of promotions sets and asks: nodes, NUMA balancing, cgroups. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mo_promote.h"

#define PATH_SCAN "/sys/kernel/debug/sched/numa_balancing/"
#define CGROUP "promote"

/* A scan begins at once, and is over in one go; what is touched after it is hot. */
static const struct {
	const char *path, *value;
} scan_settings[MO_SCAN_SETTINGS] = {
	{ PATH_SCAN "scan_delay_ms", "50" },
	{ PATH_SCAN "scan_period_min_ms", "50" },
	{ PATH_SCAN "scan_period_max_ms", "200" },
	{ PATH_SCAN "scan_size_mb", "256" },
	{ PATH_SCAN "hot_threshold_ms", "60000" },
};

long long mo_read_line(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	char key[64];
	long long number;

	if (!file)
		mo_die("cannot open %s: %m", path);
	while (fscanf(file, "%63s %lld\n", key, &number) == 2) {
		if (!strcmp(key, name)) {
			fclose(file);
			return number;
		}
	}
	mo_die("no %s in %s", name, path);
}

long long mo_vm_counter(const char *name)
{
	char ignored[8];

	/* CPUs keep some to themselves until they are asked. */
	mo_read("/proc/sys/vm/stat_refresh", ignored, sizeof(ignored));
	return mo_read_line("/proc/vmstat", name);
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

void mo_scan_at_once(char saved[][MO_SETTING_BYTES])
{
	unsigned int i;

	for (i = 0; i < MO_SCAN_SETTINGS; i++) {
		/* Of CONFIG_SCHED_DEBUG.  Without, all takes seconds longer. */
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
	if (mkdir(dir, 0700) && errno != EEXIST)
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
