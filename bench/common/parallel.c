// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fill and verify memory with all CPUs.
 *
 * This is faster, and warms all CPUs up.  Emulated CPUs need that most: QEMU
 * keeps a software TLB for each, which grows with the memory that the CPU
 * touches.  An idle CPU has a small one, in which the pages of a folio and its
 * copy evict each other.  Such a CPU copies several times more slowly than the
 * CPU that has filled the memory.
 */
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <string.h>

#include "bench.h"

#define MAX_WORKERS 64

struct worker {
	pthread_t thread;
	int cpu;
	void (*work)(void *arg, unsigned int index, unsigned int nr);
	void *arg;
	unsigned int index, nr;
};

static int worker_cpus[MAX_WORKERS];
static unsigned int nr_workers = 1;

/* Use the caller, which stays on @first_cpu, and all of @cpus. */
void parallel_setup(const cpu_set_t *cpus, int first_cpu)
{
	nr_workers = 1;
	for (int cpu = 0; cpu < CPU_SETSIZE && nr_workers < MAX_WORKERS; cpu++)
		if (CPU_ISSET(cpu, cpus) && cpu != first_cpu)
			worker_cpus[nr_workers++] = cpu;
}

/*
 * Start a thread that receives no signal.  A handler restores settings that the
 * main thread has pinned.  It must not do so while the main thread pins more.
 */
void thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		bench_die(BENCH_LACKING, "cannot start a thread: %s",
			  strerror(err));
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	pin_to_cpu(w->cpu);
	w->work(w->arg, w->index, w->nr);
	return NULL;
}

/* Run @work once on each CPU; @index selects its part. */
void parallel_run(void (*work)(void *arg, unsigned int index, unsigned int nr),
		  void *arg)
{
	struct worker workers[MAX_WORKERS];

	for (unsigned int i = 1; i < nr_workers; i++) {
		workers[i] = (struct worker){
			.cpu = worker_cpus[i],
			.work = work,
			.arg = arg,
			.index = i,
			.nr = nr_workers,
		};
		thread_start(&workers[i].thread, worker_main, &workers[i]);
	}
	work(arg, 0, nr_workers);
	for (unsigned int i = 1; i < nr_workers; i++)
		pthread_join(workers[i].thread, NULL);
}
