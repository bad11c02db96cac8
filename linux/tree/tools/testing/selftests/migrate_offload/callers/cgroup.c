// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which cgroup migrates, and which one is charged: the counters of cgroups, and
 * their limits, which also bind the helpers that work for them.
 *
 *	add_up		Three cgroups migrate at once, one of them also hugetlb
 *			memory.  The sum of their counters must equal the global
 *			counters.
 *	uncharged	The root cgroup counts memory that no cgroup is charged
 *			for.
 *	removed		A cgroup is removed while its memory migrates.  The root
 *			cgroup and the global counters agree.
 *	cpu_max		Helpers use no more CPU time than cpu.max allows.
 *	cpu_max_movers	The same for the helpers of several tasks together.
 *	cpuset		Helpers run on no CPU outside cpuset.cpus.
 *	owed_is_paid	A cgroup owes the CPU time of its helpers.  The kernel
 *			throttles the cgroup only while no folio is unmapped.
 *			The cgroup pays while it is idle, too, and owes nothing
 *			after its limit is lifted.
 *	cpu_time	Helpers are not charged for other tasks on their CPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_cgroup.h"
#include "mo_util.h"

#define TRIPS 4
#define PAUSE_US 20000
#define LIMITED_S 4
#define MAX_MOVERS 4
#define REMOVED_US 300000

static const char *const items[] = {
	"migrate_bytes", "migrate_engine_bytes", "migrate_engine_ns",
	"migrate_helper_ns",
};

enum { BYTES, ENGINE_BYTES, ENGINE_NS, HELPER_NS, NR_ITEMS };

/* Counters of the three cgroups, the root cgroup, /proc/vmstat and the core. */
struct sums {
	long long groups[NR_ITEMS], root[NR_ITEMS], vm[NR_ITEMS], all[NR_ITEMS];
};

static long long vm_stat(const char *name)
{
	char line[128], key[64];
	long long nr = -1;
	FILE *file = fopen("/proc/vmstat", "r");

	if (!file)
		mo_die("cannot open /proc/vmstat: %m");
	snprintf(key, sizeof(key), "%s ", name);
	while (nr < 0 && fgets(line, sizeof(line), file))
		if (!strncmp(line, key, strlen(key)))
			nr = atoll(line + strlen(key));
	fclose(file);
	if (nr < 0)
		mo_die("no %s in /proc/vmstat", name);
	return nr;
}

static struct sums sum_up(void)
{
	struct sums sums = {};
	int i, g;

	for (i = 0; i < NR_ITEMS; i++) {
		for (g = 0; g < NR_GROUPS; g++)
			sums.groups[i] += group_stat(g, "memory.stat", items[i]);
		sums.root[i] = group_stat(ROOT_GROUP, "memory.stat", items[i]);
		sums.vm[i] = vm_stat(items[i]);
	}
	sums.all[ENGINE_BYTES] = mo_counter("engine_bytes");
	sums.all[BYTES] = sums.all[ENGINE_BYTES] + mo_counter("cpu_bytes");
	sums.all[ENGINE_NS] = mo_counter("engine_ns");
	sums.all[HELPER_NS] = mo_counter("helper_ns");
	return sums;
}

/* The increase since @before, after memory.stat has become exact. */
static struct sums sum_up_since(const struct sums *before)
{
	struct sums sums;
	int i, waited_ms = 0;

	do {
		usleep(100000);
		sums = sum_up();
		for (i = 0; i < NR_ITEMS; i++) {
			sums.groups[i] -= before->groups[i];
			sums.root[i] -= before->root[i];
			sums.vm[i] -= before->vm[i];
			sums.all[i] -= before->all[i];
		}
	} while (sums.root[BYTES] != sums.all[BYTES] &&
		 (waited_ms += 100) < FLUSHED_MS);
	return sums;
}

static void print_sums(const char *engine, const char *whose,
		       const long long *sums)
{
	printf("# %s: %-7s %lld bytes, %lld by the engine in %lld ns, helpers %lld ns\n",
	       engine, whose, sums[BYTES], sums[ENGINE_BYTES], sums[ENGINE_NS],
	       sums[HELPER_NS]);
}

static bool within_2_percent(long long a, long long b)
{
	return llabs(a - b) * 50 <= b;
}

static void expect_sums(const long long *sums, const long long *all)
{
	expect(sums[BYTES] == all[BYTES]);
	expect(sums[ENGINE_BYTES] == all[ENGINE_BYTES]);
	expect(within_2_percent(sums[ENGINE_NS], all[ENGINE_NS]));
	expect(within_2_percent(sums[HELPER_NS], all[HELPER_NS]));
}

/* The memory that each cgroup of add_up migrates. */
static const struct mover {
	int group;
	enum mo_type type;
	size_t bytes;
	size_t folio_bytes;
} movers[] = {
	{ 0, MO_ANON, 4 * SZ_2M, SZ_4K },
	{ 1, MO_ANON, 4 * SZ_2M, 16 * SZ_4K },
	{ 2, MO_ANON, 4 * SZ_2M, SZ_2M },
	{ 0, MO_HUGETLB, 2 * SZ_2M, SZ_2M },
};

/* Map memory, report that to the parent, and migrate when all are ready. */
static void add_up_child(unsigned int nr, int ready, int *go)
{
	const struct mover *mover = &movers[nr];
	struct mo_area *area = child_map(mover->group, mover->type, mover->bytes,
					 mover->folio_bytes);
	char byte = 0;
	int left;

	close(go[1]);
	if (write(ready, &byte, 1) != 1 || read(go[0], &byte, 1))
		_exit(KSFT_FAIL);
	left = child_trips(area, TRIPS, (nr + 1) * PAUSE_US);
	mo_unmap(area);
	_exit(left);
}

static void test_add_up_with(const char *engine)
{
	pid_t children[ARRAY_SIZE(movers)];
	struct sums before, sums;
	long long least = 0;
	int ready[2], go[2];
	unsigned int i;
	char byte;

	mo_select(engine);
	before = sum_up();
	if (pipe(ready) || pipe(go))
		mo_die("no pipes: %m");
	for (i = 0; i < ARRAY_SIZE(movers); i++) {
		least += movers[i].bytes * 2 * TRIPS;
		children[i] = fork();
		if (!children[i])
			add_up_child(i, ready[1], go);
		/*
		 * Mapping changes the folio sizes of the whole machine: one
		 * child at a time.
		 */
		expect(read(ready[0], &byte, 1) == 1);
	}
	close(go[0]);
	close(go[1]);
	for (i = 0; i < ARRAY_SIZE(movers); i++)
		child_wait(children[i]);
	close(ready[0]);
	close(ready[1]);
	sums = sum_up_since(&before);
	mo_select("none");

	print_sums(engine, "cgroups", sums.groups);
	print_sums(engine, "all", sums.all);
	expect_sums(sums.groups, sums.all);
	expect_sums(sums.root, sums.all);
	expect_sums(sums.vm, sums.all);
	/*
	 * Each area moved there and back, and all memory was charged to the
	 * cgroups.
	 */
	expect(sums.all[BYTES] >= least);
	expect(sums.all[ENGINE_BYTES] > 0);
}

static void test_add_up(void)
{
	const char *engine;
	unsigned int i;

	groups_remount("memory_hugetlb_accounting");
	for (i = 0; (engine = mo_engine(i)); i++)
		test_add_up_with(engine);
	groups_remount("");
}

static void test_uncharged(void)
{
	struct sums before, sums;
	pid_t child;

	mo_select("cpu");
	before = sum_up();
	child = fork();
	if (!child) {
		struct mo_area *area = child_map(0, MO_HUGETLB, SZ_2M, SZ_2M);
		int left = child_trips(area, 1, 0);

		mo_unmap(area);
		_exit(left);
	}
	child_wait(child);
	sums = sum_up_since(&before);
	mo_select("none");

	print_sums("cpu", "cgroups", sums.groups);
	print_sums("cpu", "all", sums.all);
	expect(!sums.groups[BYTES]);
	expect(sums.all[ENGINE_BYTES] >= 2 * (long long)SZ_2M);
	expect_sums(sums.root, sums.all);
	expect_sums(sums.vm, sums.all);
}

static void removed_child(int ready)
{
	struct mo_area *area = child_map(0, MO_ANON, 4 * SZ_2M, SZ_4K);
	char byte = 0;
	int left;

	/* The memory stays charged to the first cgroup. */
	child_enter(ROOT_GROUP);
	if (write(ready, &byte, 1) != 1)
		_exit(KSFT_FAIL);
	left = child_moves(area, REMOVED_US);
	mo_unmap(area);
	_exit(left);
}

static void test_removed(void)
{
	struct sums before, sums;
	int ready[2];
	pid_t child;
	char byte;

	mo_select("cpu");
	before = sum_up();
	if (pipe(ready))
		mo_die("no pipe: %m");
	child = fork();
	if (!child)
		removed_child(ready[1]);
	expect(read(ready[0], &byte, 1) == 1);
	usleep(REMOVED_US / 3);
	expect(!rmdir(group_file(0, "")));
	child_wait(child);
	close(ready[0]);
	close(ready[1]);
	expect(!mkdir(group_file(0, ""), 0755));
	sums = sum_up_since(&before);
	mo_select("none");

	print_sums("cpu", "all", sums.all);
	expect_sums(sums.root, sums.all);
	expect_sums(sums.vm, sums.all);
	expect(sums.all[BYTES] >= 4 * (long long)SZ_2M);
}

/*
 * Have processes migrate for @seconds in the first cgroup.  Returns the CPU
 * time of their helpers, in us.  @used_us gets the CPU time of the cgroup itself.
 */
static long long helped_us(int nr_movers, int seconds, long long *used_us,
			   long long *elapsed_us)
{
	long long helpers, used, begin, helped;
	pid_t movers[MAX_MOVERS];
	int i, waited_ms = 0;

	begin = mo_counter("helper_ns");
	helpers = group_stat(0, "memory.stat", "migrate_helper_ns");
	used = group_stat(0, "cpu.stat", "usage_usec");
	*elapsed_us = now_us();
	for (i = 0; i < nr_movers; i++) {
		struct mo_area *area;

		movers[i] = fork();
		if (movers[i])
			continue;
		area = child_map(0, MO_ANON, 4 * SZ_2M, SZ_2M);
		_exit(child_moves(area, seconds * 1000000LL));
	}
	for (i = 0; i < nr_movers; i++)
		child_wait(movers[i]);
	*elapsed_us = now_us() - *elapsed_us;
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

static void check_cpu_max(int nr_movers)
{
	long long helped, used, elapsed, alone, alone_elapsed, allowed;

	mo_write(group_file(0, "cpu.max"), LIMITED);
	mo_select("none");
	helped_us(nr_movers, LIMITED_S, &alone, &alone_elapsed);
	mo_select("mtcopy");
	helped = helped_us(nr_movers, LIMITED_S, &used, &elapsed);
	mo_write(group_file(0, "cpu.max"), UNLIMITED);
	mo_select("none");
	/*
	 * Allow the larger of the limit and of the CPU time used without
	 * helpers, which may be a little above the limit.  Add one period at
	 * the start, and one that is owed at the end.
	 */
	allowed = alone * elapsed / alone_elapsed;
	if (allowed < elapsed * QUOTA_US / PERIOD_US)
		allowed = elapsed * QUOTA_US / PERIOD_US;
	allowed = allowed * 11 / 10 + 2 * QUOTA_US;
	printf("# 10%%: %lld us of %lld us, helpers %lld us, allowed %lld us\n",
	       used, elapsed, helped, allowed);
	expect(helped <= elapsed * QUOTA_US / PERIOD_US);
	expect(used + helped <= allowed);
}

/* The host may stop the CPU of the helpers for the whole second. */
static long long helped_at_last_us(long long *used, long long *elapsed)
{
	long long helped;
	int tries = 0;

	do
		helped = helped_us(1, 1, used, elapsed);
	while (!helped && ++tries < 10);
	return helped;
}

static void test_cpu_max(void)
{
	long long helped, used, elapsed;

	mo_select("mtcopy");
	helped = helped_at_last_us(&used, &elapsed);
	printf("# no limit: %lld us of %lld us, helpers %lld us\n", used,
	       elapsed, helped);
	expect(helped > 0);
	check_cpu_max(1);
}

/* On a machine with idle CPUs, each task has helpers. */
static void test_cpu_max_movers(void)
{
	check_cpu_max(MAX_MOVERS);
}

static void test_cpuset(void)
{
	long long helped, used, elapsed, offered;

	mo_select("mtcopy");
	mo_write(group_file(0, "cpuset.cpus"), "0");
	offered = mo_counter("offered_folios");
	helped = helped_us(1, 1, &used, &elapsed);
	offered = mo_counter("offered_folios") - offered;
	printf("# on CPU 0 alone: helpers %lld us\n", helped);
	expect(!helped);
	/* The core must not offer folios that mtcopy could only decline. */
	expect(!offered);
	mo_write(group_file(0, "cpuset.cpus"), "0-1");
	helped = helped_at_last_us(&used, &elapsed);
	printf("# on CPUs 0 and 1: helpers %lld us\n", helped);
	expect(helped > 0);
	mo_select("none");
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "add_up", test_add_up },
	{ "uncharged", test_uncharged },
	{ "removed", test_removed },
	{ "cpu_max", test_cpu_max },
	{ "cpu_max_movers", test_cpu_max_movers },
	{ "cpuset", test_cpuset },
	{ "owed_is_paid", test_owed_is_paid },
	{ "cpu_time", test_cpu_time },
};

/* Returns true if the command line names this test, or no test. */
static bool wanted(const char *name, int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc < 2;
}

/* ./cgroup [TEST...] */
int main(int argc, char **argv)
{
	unsigned int i, nr = 0;
	const char *why_not;

	ksft_print_header();
	why_not = mo_cannot_run();
	if (!why_not)
		why_not = groups_make();
	if (why_not)
		ksft_exit_skip("%s\n", why_not);
	for (i = 0; i < ARRAY_SIZE(tests); i++)
		nr += wanted(tests[i].name, argc, argv);
	ksft_set_plan(nr);
	for (i = 0; i < ARRAY_SIZE(tests); i++) {
		if (!wanted(tests[i].name, argc, argv))
			continue;
		mo_failed = false;
		mo_reset();
		/* Compaction in the background would change the sums. */
		mo_select_for_all("none");
		mo_select_for("syscall_or_cpuset", "default");
		tests[i].run();
		ksft_test_result(!mo_failed, "%s\n", tests[i].name);
	}
	mo_reset();
	groups_remove();
	ksft_finished();
}
