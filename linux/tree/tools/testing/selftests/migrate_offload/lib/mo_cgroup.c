// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mo_cgroup.h"
#include "mo_util.h"

static char top[32] = "/tmp/mo_cgroup.XXXXXX";

bool mo_failed;

void mo_expect(bool ok, const char *what, int line)
{
	if (ok)
		return;
	mo_failed = true;
	printf("# line %d: not true: %s\n", line, what);
}

const char *group_file(int group, const char *name)
{
	static char path[128];

	if (group == ROOT_GROUP)
		snprintf(path, sizeof(path), "%s/%s", top, name);
	else
		snprintf(path, sizeof(path), "%s/mo%d/%s", top, group, name);
	return path;
}

long long group_stat(int group, const char *file, const char *name)
{
	static char text[16384];
	char key[64], *at;

	mo_read(group_file(group, file), text, sizeof(text));
	snprintf(key, sizeof(key), "\n%s ", name);
	at = strstr(text, key);
	if (at)
		return atoll(at + strlen(key));
	if (!strncmp(text, key + 1, strlen(key + 1)))
		return atoll(text + strlen(key + 1));
	mo_die("no %s in %s", name, group_file(group, file));
}

const char *groups_make(void)
{
	char path[64];
	int i;

	if (!mkdtemp(top))
		return "cannot make a directory in /tmp";
	if (mount("cgroup2", top, "cgroup2", 0, NULL))
		return "cannot mount cgroups";
	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", top);
	if (mo_try_write(path, "+memory +cpu +cpuset"))
		return "no control of memory, cpu and cpuset by cgroups";
	for (i = 0; i < NR_GROUPS; i++) {
		snprintf(path, sizeof(path), "%s/mo%d", top, i);
		if (mkdir(path, 0755))
			return "cannot make cgroups";
	}
	return NULL;
}

void groups_remount(const char *options)
{
	if (mount("cgroup2", top, "cgroup2", MS_REMOUNT, options))
		mo_die("cannot mount cgroups with \"%s\": %m", options);
}

void groups_remove(void)
{
	char path[64];
	int i;

	for (i = 0; i < NR_GROUPS; i++) {
		snprintf(path, sizeof(path), "%s/mo%d", top, i);
		rmdir(path);
	}
	umount(top);
	rmdir(top);
}

void child_enter(int group)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", getpid());
	mo_write(group_file(group, "cgroup.procs"), pid);
}

struct mo_area *child_map(int group, enum mo_type type, size_t bytes,
			  size_t folio_bytes)
{
	static struct mo_area area;
	const char *why_not;

	child_enter(group);
	why_not = mo_map(&area, type, bytes, folio_bytes);
	if (why_not)
		mo_die("group %d: %s", group, why_not);
	return &area;
}

int child_trips(struct mo_area *area, int trips, int pause_us)
{
	int i, left = 0;

	for (i = 0; i < 2 * trips; i++) {
		left |= mo_move(area, mo_nodes[(i + 1) % 2]) != 0;
		left |= !mo_content_ok(area);
		usleep(pause_us);
	}
	return left;
}

int child_moves(struct mo_area *area, long long us)
{
	long long until = now_us() + us;
	int failed = 0;

	do {
		failed |= mo_move_once(area, mo_nodes[1]) < 0;
		failed |= mo_move_once(area, mo_nodes[0]) < 0;
	} while (now_us() < until);
	return failed | !mo_content_ok(area);
}

void child_wait(pid_t child)
{
	int status;

	expect(waitpid(child, &status, 0) == child);
	expect(WIFEXITED(status) && !WEXITSTATUS(status));
}

long long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}
