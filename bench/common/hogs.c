// SPDX-License-Identifier: GPL-2.0-only
/*
 * Work that keeps all CPUs busy: one counting process per CPU.
 *
 * Hogs are processes, not threads, because they stand for other programs.  The
 * kernel must not treat them as part of the program that migrates.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define CACHE_LINE_WORDS 8

static volatile pid_t hog_pids[CPU_SETSIZE];
static int nr_hogs;
static volatile uint64_t *progress;	/* one cache line for each hog */

/* Async-signal-safe. */
static void hogs_kill(void)
{
	for (int i = 0; i < CPU_SETSIZE && hog_pids[i]; i++)
		kill(hog_pids[i], SIGKILL);
	for (int i = 0; i < CPU_SETSIZE && hog_pids[i]; i++)
		waitpid(hog_pids[i], NULL, 0);
}

static _Noreturn void hog_main(int cpu, volatile uint64_t *counter,
			       pid_t parent)
{
	cpu_set_t cpus;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(BENCH_FAILED);
	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	/* Not bench_die(): its exit handlers belong to the parent. */
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		_exit(BENCH_FAILED);
	for (;;)
		(*counter)++;
}

static void wait_stopped(void)
{
	for (int i = 0; i < nr_hogs; i++) {
		int status = 0;

		while (waitpid(hog_pids[i], &status, WUNTRACED) < 0)
			if (errno != EINTR)
				bench_die(BENCH_FAILED, "hog %d: %s", i,
					  strerror(errno));
		if (!WIFSTOPPED(status))
			bench_die(BENCH_FAILED, "hog %d died", i);
	}
}

/* Create one stopped hog on each CPU that this process may use. */
void hogs_create(void)
{
	cpu_set_t cpus;
	pid_t self = getpid();

	settings_restore_after(hogs_kill);
	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		bench_die(BENCH_FAILED, "sched_getaffinity: %s",
			  strerror(errno));
	progress = mmap(NULL, CPU_SETSIZE * CACHE_LINE_WORDS * sizeof(uint64_t),
			PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
			0);
	if (progress == MAP_FAILED)
		bench_die(BENCH_FAILED, "mmap: %s", strerror(errno));
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &cpus))
			continue;
		if (!settings_fork(&hog_pids[nr_hogs]))
			hog_main(cpu, &progress[nr_hogs * CACHE_LINE_WORDS],
				 self);
		nr_hogs++;
	}
	hogs_pause();
}

/* Returns after each hog has run.  Until then its CPU may be idle. */
void hogs_run(void)
{
	for (int i = 0; i < nr_hogs; i++) {
		uint64_t before = progress[i * CACHE_LINE_WORDS];

		kill(hog_pids[i], SIGCONT);
		while (progress[i * CACHE_LINE_WORDS] == before)
			sched_yield();
	}
}

void hogs_pause(void)
{
	for (int i = 0; i < nr_hogs; i++)
		kill(hog_pids[i], SIGSTOP);
	wait_stopped();
}

uint64_t hogs_progress(void)
{
	uint64_t sum = 0;

	for (int i = 0; i < nr_hogs; i++)
		sum += progress[i * CACHE_LINE_WORDS];
	return sum;
}
