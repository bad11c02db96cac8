// SPDX-License-Identifier: GPL-2.0-only
/*
 * Copying must yield the CPU.  A real-time thread sleeps for short times and
 * measures how late it wakes up.  The main thread, on the same CPU, moves a 2M
 * folio with an engine that copies on the CPU.  If the copy does not yield, the
 * real-time thread wakes up late by more than half the time of a move.
 *
 * A preemptible kernel interrupts the copy for a real-time thread at any time.
 * There the rule is not needed, and nothing may be late without it.
 *
 * The test is reliable only where time counts instructions: in a virtual
 * machine with one CPU, run by QEMU with -icount.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_area.h"
#include "mo_util.h"

#define NSEC_PER_SEC 1000000000LL
#define SLEEP_NS 100000
#define MOVES 40

static atomic_bool stop;
static long long worst_ns;

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NSEC_PER_SEC + now.tv_nsec;
}

static void *sleep_a_lot(void *unused)
{
	while (!stop) {
		long long late, until = now_ns() + SLEEP_NS;
		struct timespec time = {
			.tv_sec = until / NSEC_PER_SEC,
			.tv_nsec = until % NSEC_PER_SEC,
		};

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
		late = now_ns() - until;
		if (late > worst_ns)
			worst_ns = late;
	}
	return unused;
}

static pthread_t start_sleeper(void)
{
	struct sched_param param = { .sched_priority = 50 };
	pthread_attr_t attr;
	pthread_t thread;

	stop = false;
	worst_ns = 0;
	pthread_attr_init(&attr);
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, SCHED_FIFO);
	pthread_attr_setschedparam(&attr, &param);
	if (pthread_create(&thread, &attr, sleep_a_lot, NULL))
		mo_die("cannot start a real-time thread: %m");
	return thread;
}

static void measure(const struct mo_area *area, const char *engine,
		    const char *rule, long long *move_ns, long long *late_ns)
{
	long long start;
	pthread_t thread;
	int i;

	mo_write(PATH_DEBUG "break_rules", rule);
	mo_select(engine);
	/* The first move is slow, because the host has to find memory. */
	mo_move(area, mo_nodes[1]);
	mo_move(area, mo_nodes[0]);

	start = now_ns();
	for (i = 1; i <= MOVES; i++)
		if (mo_move_once(area, mo_nodes[i % 2]))
			mo_die("a folio was not moved");
	*move_ns = (now_ns() - start) / MOVES;

	thread = start_sleeper();
	for (i = 1; i <= MOVES; i++)
		if (mo_move_once(area, mo_nodes[i % 2]))
			mo_die("a folio was not moved");
	stop = true;
	pthread_join(thread, NULL);
	*late_ns = worst_ns;

	mo_select("none");
	mo_write(PATH_DEBUG "break_rules", "none");
	printf("# %s, rule off: %s; one move takes %lld us, the worst wake-up is %lld us late\n",
	       engine, rule, *move_ns / 1000, *late_ns / 1000);
}

static bool is_preemptible(void)
{
	struct utsname name;

	/* With PREEMPT_DYNAMIC, the command line of the kernel decides. */
	return !uname(&name) && strstr(name.version, " PREEMPT") &&
	       !strstr(name.version, "PREEMPT_DYNAMIC");
}

static void check(const struct mo_area *area, const char *engine)
{
	long long move_ns, late_ns;

	measure(area, engine, "none", &move_ns, &late_ns);
	ksft_test_result(late_ns < move_ns / 4,
			 "resched.%s with_all_rules\n", engine);
	measure(area, engine, "resched", &move_ns, &late_ns);
	ksft_test_result(is_preemptible() ? late_ns < move_ns / 4 :
			 late_ns > move_ns / 2, "resched.%s without_its_rule\n", engine);
}

int main(void)
{
	struct mo_area area;
	const char *why_not;

	ksft_print_header();
	why_not = mo_cannot_run();
	if (why_not)
		ksft_exit_skip("%s\n", why_not);
	if (!mo_exists(PATH_DEBUG "break_rules"))
		ksft_exit_skip("no CONFIG_MIGRATION_COPY_OFFLOAD_DEBUG\n");
	mo_run_on(sched_getcpu());
	if (!mo_load_test_engine(MO_TEST_PLAIN))
		ksft_exit_skip("no migrate_offload_test\n");
	why_not = mo_map(&area, MO_ANON, SZ_2M, SZ_2M);
	if (why_not)
		ksft_exit_skip("%s\n", why_not);

	if (mlockall(MCL_CURRENT))
		mo_die("cannot lock memory: %m");

	ksft_set_plan(4);
	/*
	 * Engine "cpu" uses folio_mc_copy(), "test" uses migrate_copy_range().
	 */
	check(&area, "cpu");
	check(&area, "test");
	mo_unmap(&area);
	ksft_finished();
}
