// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who asked, and who pays: what cgroups are told about migration, and what their
 * limits keep others from doing for them.
 *
 *	add_up		three cgroups migrate at once, and what they are told adds
 *			up to what the counters of all say
 *	cpu_max		helpers take no more than cpu.max allows
 *	cpuset		nor any CPU that is not in cpuset.cpus
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../kselftest.h"
#include "mo_area.h"
#include "mo_util.h"

#define NR_GROUPS 3
#define TRIPS 4
#define PAUSE_US 20000
#define LIMITED_S 4
/* cpu.max, of 100 ms. */
#define QUOTA_US 10000
#define PERIOD_US 100000

/* memory.stat is exact two seconds later at the latest, see FLUSH_TIME. */
#define FLUSHED_MS 6000

static char top[] = "/tmp/mo_cgroup.XXXXXX";
static bool failed;

#define expect(ok) expect_at(ok, #ok, __LINE__)

static void expect_at(bool ok, const char *what, int line)
{
	if (ok)
		return;
	failed = true;
	printf("# line %d: not so: %s\n", line, what);
}

static const char *group_file(int group, const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/mo%d/%s", top, group, name);
	return path;
}

/* A figure of memory.stat or cpu.stat. */
static long long group_stat(int group, const char *file, const char *name)
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

static const char *groups_make(void)
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

static void groups_remove(void)
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

/* In a process of its own, which may stop the test: have memory in a cgroup. */
static struct mo_area *child_enter(int group, size_t bytes, size_t folio_bytes)
{
	static struct mo_area area;
	const char *why_not;
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", getpid());
	mo_write(group_file(group, "cgroup.procs"), pid);
	why_not = mo_map(&area, MO_ANON, bytes, folio_bytes);
	if (why_not)
		mo_die("group %d: %s", group, why_not);
	return &area;
}

/*
 * There and back; 1 if anything was left behind or is not as it was.  With pauses,
 * so that others find a CPU for helpers now and then.
 */
static int child_trips(struct mo_area *area, int trips, int pause_us)
{
	int i, left = 0;

	for (i = 0; i < 2 * trips; i++) {
		left |= mo_move(area, mo_nodes[(i + 1) % 2]) != 0;
		left |= !mo_content_ok(area);
		usleep(pause_us);
	}
	return left;
}

static void child_wait(pid_t child)
{
	int status;

	expect(waitpid(child, &status, 0) == child);
	expect(WIFEXITED(status) && !WEXITSTATUS(status));
}

static const char *const items[] = {
	"migrate_bytes", "migrate_engine_bytes", "migrate_engine_ns",
	"migrate_helper_ns",
};

enum { BYTES, ENGINE_BYTES, ENGINE_NS, HELPER_NS, NR_ITEMS };

static void groups_sum(long long *sums)
{
	int i, g;

	for (i = 0; i < NR_ITEMS; i++) {
		sums[i] = 0;
		for (g = 0; g < NR_GROUPS; g++)
			sums[i] += group_stat(g, "memory.stat", items[i]);
	}
}

static void all_sum(long long *sums)
{
	sums[ENGINE_BYTES] = mo_counter("engine_bytes");
	sums[BYTES] = sums[ENGINE_BYTES] + mo_counter("cpu_bytes");
	sums[ENGINE_NS] = mo_counter("engine_ns");
	sums[HELPER_NS] = mo_counter("helper_ns");
}

static bool within_2_percent(long long a, long long b)
{
	return llabs(a - b) * 50 <= b;
}

static void diff(long long *after, const long long *before)
{
	int i;

	for (i = 0; i < NR_ITEMS; i++)
		after[i] -= before[i];
}

/* Have memory, say so, and migrate it when all others have theirs, too. */
static void add_up_child(int group, size_t folio_bytes, int ready, int *go)
{
	struct mo_area *area = child_enter(group, 4 * SZ_2M, folio_bytes);
	char byte = 0;

	close(go[1]);
	if (write(ready, &byte, 1) != 1 || read(go[0], &byte, 1))
		_exit(KSFT_FAIL);
	_exit(child_trips(area, TRIPS, (group + 1) * PAUSE_US));
}

static void test_add_up_with(const char *engine)
{
	static const size_t folio_bytes[NR_GROUPS] = { SZ_4K, 16 * SZ_4K, SZ_2M };
	long long groups_before[NR_ITEMS], groups[NR_ITEMS];
	long long all_before[NR_ITEMS], all[NR_ITEMS];
	int g, waited_ms = 0, ready[2], go[2];
	pid_t children[NR_GROUPS];
	char byte;

	mo_select(engine);
	groups_sum(groups_before);
	all_sum(all_before);
	if (pipe(ready) || pipe(go))
		mo_die("no pipes: %m");
	for (g = 0; g < NR_GROUPS; g++) {
		children[g] = fork();
		if (!children[g])
			add_up_child(g, folio_bytes[g], ready[1], go);
		/* Sizes of folios are settings of the machine: one at a time. */
		expect(read(ready[0], &byte, 1) == 1);
	}
	close(go[0]);
	close(go[1]);
	for (g = 0; g < NR_GROUPS; g++)
		child_wait(children[g]);
	close(ready[0]);
	close(ready[1]);
	all_sum(all);
	diff(all, all_before);
	do {
		usleep(100000);
		groups_sum(groups);
		diff(groups, groups_before);
	} while (groups[BYTES] != all[BYTES] && (waited_ms += 100) < FLUSHED_MS);

	printf("# %s: cgroups %lld bytes, %lld by the engine in %lld ns, helpers %lld ns\n",
	       engine, groups[BYTES], groups[ENGINE_BYTES], groups[ENGINE_NS],
	       groups[HELPER_NS]);
	printf("# %s: all     %lld bytes, %lld by the engine in %lld ns, helpers %lld ns\n",
	       engine, all[BYTES], all[ENGINE_BYTES], all[ENGINE_NS],
	       all[HELPER_NS]);
	expect(groups[BYTES] == all[BYTES]);
	expect(groups[ENGINE_BYTES] == all[ENGINE_BYTES]);
	expect(within_2_percent(groups[ENGINE_NS], all[ENGINE_NS]));
	expect(within_2_percent(groups[HELPER_NS], all[HELPER_NS]));
	/* Each area, there and back, and all of it was in the cgroups. */
	expect(all[BYTES] >= NR_GROUPS * 4LL * SZ_2M * 2 * TRIPS);
	expect(all[ENGINE_BYTES] > 0);
	mo_select("none");
}

static void test_add_up(void)
{
	const char *engine;
	unsigned int i;

	for (i = 0; (engine = mo_engine(i)); i++)
		test_add_up_with(engine);
}

static long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/*
 * Have a process migrate for @seconds in the first cgroup.  Returns what helpers
 * took, in us, and in @used_us what the cgroup itself did.
 */
static long long helped_us(int seconds, long long *used_us,
			   long long *elapsed_us)
{
	long long helpers, used, begin, helped;
	int waited_ms = 0;
	pid_t child;

	begin = mo_counter("helper_ns");
	helpers = group_stat(0, "memory.stat", "migrate_helper_ns");
	used = group_stat(0, "cpu.stat", "usage_usec");
	*elapsed_us = now_ms() * 1000;
	child = fork();
	if (!child) {
		struct mo_area *area = child_enter(0, 4 * SZ_2M, SZ_2M);
		long long until = now_ms() + seconds * 1000LL;
		int left = 0;

		while (now_ms() < until)
			left |= child_trips(area, 1, 0);
		_exit(left);
	}
	child_wait(child);
	*elapsed_us = now_ms() * 1000 - *elapsed_us;
	*used_us = group_stat(0, "cpu.stat", "usage_usec") - used;
	begin = mo_counter("helper_ns") - begin;
	do {
		usleep(100000);
		helped = group_stat(0, "memory.stat", "migrate_helper_ns") -
			helpers;
	} while (helped < begin && (waited_ms += 100) < FLUSHED_MS);
	expect(within_2_percent(helped, begin));
	return helped / 1000;
}

static void test_cpu_max(void)
{
	long long helped, used, elapsed, alone, alone_elapsed, allowed;

	mo_select("mtcopy");
	helped = helped_us(1, &used, &elapsed);
	printf("# no limit: %lld us of %lld us, helpers %lld us\n", used,
	       elapsed, helped);
	expect(helped > 0);

	mo_write(group_file(0, "cpu.max"), "10000 100000");
	mo_select("none");
	helped_us(LIMITED_S, &alone, &alone_elapsed);
	mo_select("mtcopy");
	helped = helped_us(LIMITED_S, &used, &elapsed);
	mo_write(group_file(0, "cpu.max"), "max 100000");
	mo_select("none");
	/*
	 * No more in all than what the limit lets through without any helper,
	 * which is a little more than it says; and what is there in the beginning
	 * and owed in the end, a period's each at most.
	 */
	allowed = alone * elapsed / alone_elapsed * 11 / 10 + 2 * QUOTA_US;
	printf("# 10%%: %lld us of %lld us, helpers %lld us, allowed %lld us\n",
	       used, elapsed, helped, allowed);
	expect(helped <= elapsed * QUOTA_US / PERIOD_US);
	expect(used + helped <= allowed);
}

static void test_cpuset(void)
{
	long long helped, used, elapsed;

	mo_select("mtcopy");
	mo_write(group_file(0, "cpuset.cpus"), "0");
	helped = helped_us(1, &used, &elapsed);
	printf("# on CPU 0 alone: helpers %lld us\n", helped);
	expect(!helped);
	mo_write(group_file(0, "cpuset.cpus"), "0-1");
	helped = helped_us(1, &used, &elapsed);
	printf("# on CPUs 0 and 1: helpers %lld us\n", helped);
	expect(helped > 0);
	mo_select("none");
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "add_up", test_add_up },
	{ "cpu_max", test_cpu_max },
	{ "cpuset", test_cpuset },
};

int main(void)
{
	const char *why_not;
	size_t i;

	ksft_print_header();
	why_not = mo_cannot_run();
	if (!why_not)
		why_not = groups_make();
	if (why_not)
		ksft_exit_skip("%s\n", why_not);
	ksft_set_plan(ARRAY_SIZE(tests));
	for (i = 0; i < ARRAY_SIZE(tests); i++) {
		failed = false;
		mo_reset();
		tests[i].run();
		ksft_test_result(!failed, "%s\n", tests[i].name);
	}
	mo_reset();
	groups_remove();
	ksft_finished();
}
