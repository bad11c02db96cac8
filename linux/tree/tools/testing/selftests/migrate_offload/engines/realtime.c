// SPDX-License-Identifier: GPL-2.0-only
/*
 * A real-time task may preempt a helper of mtcopy.  The folios that this helper
 * copies must not stay unmapped meanwhile, as the migrating task itself runs.
 *
 * Load mtcopy before, on a machine with two CPUs.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_area.h"
#include "mo_util.h"

#define BYTES (16 * SZ_2M)
#define PATH_HIST PATH_OFFLOAD "stats/reasons/syscall_or_cpuset/unmapped_hist"
#define TURNS 20
#define NS_PER_MS 1000000LL
/* A helper finds its CPU idle for a while, and then loses it for longer. */
#define IDLE_US 30000
#define BURST_NS (800 * NS_PER_MS)

static atomic_uint turns;

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static long long helper_ns(void)
{
	return mo_vm_counter("migrate_helper_ns");
}

/* Returns how many folios were unmapped for half a burst or longer. */
static unsigned long long nr_long(void)
{
	FILE *hist = fopen(PATH_HIST, "r");
	unsigned long long ns, folios, nr = 0;

	if (!hist)
		mo_die("cannot open the times of folios: %m");
	while (fscanf(hist, "%llu %llu", &ns, &folios) == 2)
		nr += ns >= BURST_NS / 2 ? folios : 0;
	fclose(hist);
	return nr;
}

static void *burst(void *unused)
{
	const struct sched_param first = { .sched_priority = 1 };
	long long until;

	mo_run_on(1);
	if (sched_setscheduler(0, SCHED_FIFO, &first))
		mo_die("cannot be a real-time task: %m");
	while (turns < TURNS) {
		usleep(IDLE_US);
		for (until = now_ns() + BURST_NS; now_ns() < until; )
			;
		turns++;
	}
	return unused;
}

/*
 * Move memory while the task is busy now and then.  Returns how many folios were
 * unmapped for long.
 */
static unsigned long long nr_held_up(const struct mo_area *area,
				     long long *helped)
{
	unsigned long long unmapped = nr_long();
	pthread_t task;
	int to;

	*helped = helper_ns();
	turns = 0;
	if (pthread_create(&task, NULL, burst, NULL))
		mo_die("cannot start a thread: %m");
	for (to = 1; turns < TURNS; to = !to)
		if (mo_move_once(area, mo_nodes[to]) < 0)
			mo_die("cannot move");
	pthread_join(task, NULL);
	*helped = helper_ns() - *helped;
	unmapped = nr_long() - unmapped;
	printf("# helpers worked for %lld ms, %llu folios were unmapped for long\n",
	       *helped / NS_PER_MS, unmapped);
	return unmapped;
}

int main(void)
{
	const char *why_not = geteuid() ? "needs root" : mo_find_nodes();
	unsigned long long unmapped = 0;
	long long helped = 0;
	struct mo_area area;
	int tries;

	ksft_print_header();
	if (!why_not && sysconf(_SC_NPROCESSORS_ONLN) < 2)
		why_not = "needs two CPUs";
	if (why_not)
		ksft_exit_skip("%s\n", why_not);
	ksft_set_plan(3);
	why_not = mo_map(&area, MO_ANON, BYTES, SZ_2M);
	if (why_not)
		mo_die("%s", why_not);
	mo_select("mtcopy");
	mo_run_on(0);
	/* Each stall of the host adds the folios that are unmapped then. */
	for (tries = 0; tries < 3 && (!helped || unmapped >= TURNS / 5); tries++)
		unmapped = nr_held_up(&area, &helped);
	ksft_test_result(helped > 0, "realtime helpers_work\n");
	/* Preempted shares show in many turns, each time. */
	ksft_test_result(unmapped < TURNS / 5, "realtime preempts_no_share\n");
	ksft_test_result(mo_content_ok(&area), "realtime content_is_right\n");
	mo_unmap(&area);
	mo_reset();
	ksft_finished();
}
