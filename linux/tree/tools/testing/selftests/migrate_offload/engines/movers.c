// SPDX-License-Identifier: GPL-2.0-only
/*
 * No engine may make migration slower.  Movers, as threads or processes, move
 * their own memory to and fro by move_pages(2).  Rounds with each engine, and
 * with none, take turns.  Prints the rates, and fails if an engine's median is
 * below a part of the median without an engine.  Checks all content.
 *
 *	movers [--movers=N] [--processes] [--mib=M] [--folio=BYTES] [--busy=N]
 *	       [--rounds=N] [--ms=MS] [--warm-ms=MS] [--least=PERCENT]
 *	       [--always]
 *
 * With --always the engine gets all copies, also where the CPU is faster.
 * Stock Linux has no engine: then the program prints the rate and checks the
 * content.
 */
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_area.h"
#include "mo_util.h"

#define MAX_MOVERS 64
#define MAX_ENGINES 8
#define MAX_ROUNDS 64

static struct {
	unsigned int movers, busy, rounds, ms, warm_ms, least;
	size_t mib, folio_bytes;
	bool processes, always;
} opt = {
	.movers = 4, .rounds = 7, .ms = 400, .warm_ms = 2000, .least = 80,
	.mib = 8, .folio_bytes = SZ_4K,
};

/* Shared by the movers and the parent, also where movers are processes. */
static struct shared {
	atomic_bool stop, go;
	atomic_uint nr_ready, nr_moving, nr_bad;
	atomic_ulong pages[MAX_MOVERS];
} *shared;

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void sleep_ms(unsigned int ms)
{
	usleep(ms * 1000);
}

/* Mapping changes settings of the whole machine, so only one thread may map. */
static pthread_mutex_t map_lock = PTHREAD_MUTEX_INITIALIZER;

static void *move_all_the_time(void *arg)
{
	unsigned int nr = (unsigned long)arg;
	struct mo_area area;
	int to = 1;
	const char *why_not;

	pthread_mutex_lock(&map_lock);
	why_not = mo_map(&area, MO_ANON, opt.mib * SZ_1M, opt.folio_bytes);
	pthread_mutex_unlock(&map_lock);
	if (why_not)
		mo_die("%s", why_not);
	atomic_fetch_add(&shared->nr_ready, 1);
	while (!shared->stop) {
		if (!shared->go) {
			usleep(1000);
			continue;
		}
		atomic_fetch_add(&shared->nr_moving, 1);
		if (mo_move_once(&area, mo_nodes[to]) < 0)
			mo_die("cannot move");
		atomic_fetch_sub(&shared->nr_moving, 1);
		atomic_fetch_add(&shared->pages[nr], area.bytes / SZ_4K);
		to = !to;
	}
	if (mo_move(&area, mo_nodes[to]) || !mo_content_ok(&area))
		atomic_fetch_add(&shared->nr_bad, 1);
	return NULL;
}

static void *burn(void *unused)
{
	while (!shared->stop)
		;
	return unused;
}

static pthread_t threads[2 * MAX_MOVERS];
static pid_t children[MAX_MOVERS];
static unsigned int nr_threads;

static void start_thread(void *(*what)(void *), unsigned long arg)
{
	if (pthread_create(&threads[nr_threads++], NULL, what, (void *)arg))
		mo_die("cannot start a thread");
}

static void start(void)
{
	unsigned long nr;

	for (nr = 0; nr < opt.movers; nr++) {
		if (!opt.processes) {
			start_thread(move_all_the_time, nr);
			continue;
		}
		/*
		 * Mapping changes settings of the whole machine: one child at a
		 * time.
		 */
		children[nr] = fork();
		if (children[nr] < 0)
			mo_die("cannot fork: %m");
		if (!children[nr]) {
			move_all_the_time((void *)nr);
			_exit(0);
		}
		while (shared->nr_ready <= nr && !waitpid(children[nr], NULL, WNOHANG))
			sleep_ms(1);
	}
	for (nr = 0; nr < opt.busy; nr++)
		start_thread(burn, 0);
	while (!opt.processes && shared->nr_ready < opt.movers)
		sleep_ms(1);
}

static void stop(void)
{
	unsigned int i;
	int status;

	shared->stop = true;
	for (i = 0; i < nr_threads; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; opt.processes && i < opt.movers; i++)
		if (waitpid(children[i], &status, 0) != children[i] || status)
			atomic_fetch_add(&shared->nr_bad, 1);
}

static unsigned long moved(void)
{
	unsigned long sum = 0;
	unsigned int i;

	for (i = 0; i < opt.movers; i++)
		sum += shared->pages[i];
	return sum;
}

/* Pages per second with an engine.  Calls from before the choice have ended. */
static double rate(const char *engine, unsigned int ms)
{
	unsigned long before;
	long long start_ns;

	if (mo_exists(PATH_OFFLOAD "engine"))
		mo_write(PATH_OFFLOAD "engine", engine);
	before = moved();
	start_ns = now_ns();
	shared->go = true;
	sleep_ms(ms);
	shared->go = false;
	while (shared->nr_moving)
		usleep(100);
	return (moved() - before) * 1e9 / (now_ns() - start_ns);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median_of(const double *values)
{
	double sorted[MAX_ROUNDS];

	memcpy(sorted, values, opt.rounds * sizeof(*values));
	qsort(sorted, opt.rounds, sizeof(*sorted), compare);
	return (sorted[(opt.rounds - 1) / 2] + sorted[opt.rounds / 2]) / 2;
}

/* Print counters of the engine: its batches, and what became of the folios. */
static void report_counters(const char *engine)
{
	static const char *const names[] = {
		"batches", "engine_folios", "cpu_folios", "too_slow_folios",
		"declined_folios", "over_limit_folios",
	};
	char path[128];
	unsigned int i;

	printf("# %s:", engine);
	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), PATH_OFFLOAD "stats/engines/%s/%s",
			 engine, names[i]);
		printf(" %s %lld", names[i], mo_read_number(path));
	}
	printf("\n");
}

static void measure(char **engines, unsigned int nr)
{
	static double rates[MAX_ENGINES][MAX_ROUNDS];
	double ratios[MAX_ROUNDS];
	unsigned int i, round;

	/* The first moves are slow, because the host has to find memory. */
	for (i = 0; i < nr; i++)
		rate(engines[i], opt.warm_ms);
	/* Each engine is the first of a round in turn. */
	for (round = 0; round < opt.rounds; round++) {
		for (i = 0; i < nr; i++) {
			unsigned int turn = (round + i) % nr;

			rates[turn][round] = rate(engines[turn], opt.ms);
		}
	}
	for (i = 0; i < nr; i++) {
		for (round = 0; round < opt.rounds; round++)
			ratios[round] = rates[i][round] / rates[0][round];
		printf("# %-8s %9.0f pages/s, %3.0f%% of none\n", engines[i],
		       median_of(rates[i]), 100 * median_of(ratios));
		if (!i)
			continue;
		report_counters(engines[i]);
		ksft_test_result(100 * median_of(ratios) >= opt.least,
				 "movers.%s is_no_slower_than_none\n",
				 engines[i]);
	}
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "movers", required_argument, NULL, 'm' },
		{ "processes", no_argument, NULL, 'p' },
		{ "mib", required_argument, NULL, 'b' },
		{ "folio", required_argument, NULL, 'f' },
		{ "busy", required_argument, NULL, 'u' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "ms", required_argument, NULL, 't' },
		{ "warm-ms", required_argument, NULL, 'w' },
		{ "least", required_argument, NULL, 'l' },
		{ "always", no_argument, NULL, 'a' },
		{}
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		unsigned long number = optarg ? strtoul(optarg, NULL, 0) : 0;

		if (c == 'a')
			opt.always = true;
		else if (c == 'm')
			opt.movers = number;
		else if (c == 'p')
			opt.processes = true;
		else if (c == 'b')
			opt.mib = number;
		else if (c == 'f')
			opt.folio_bytes = number;
		else if (c == 'u')
			opt.busy = number;
		else if (c == 'r')
			opt.rounds = number;
		else if (c == 't')
			opt.ms = number;
		else if (c == 'w')
			opt.warm_ms = number;
		else if (c == 'l')
			opt.least = number;
		else
			mo_die("see the head of movers.c for options");
	}
	if (!opt.movers || opt.movers > MAX_MOVERS || opt.busy > MAX_MOVERS ||
	    !opt.rounds || opt.rounds > MAX_ROUNDS || !opt.mib)
		mo_die("a number is too large, or 0");
}

int main(int argc, char **argv)
{
	const char *const engines_of_tests[] = { "cpu", "test", NULL };
	char *engines[MAX_ENGINES] = { "none" };
	unsigned int i, nr = 1;
	const char *why_not, *name;
	bool ours;

	ksft_print_header();
	parse(argc, argv);
	ours = mo_exists(PATH_OFFLOAD "engine");
	why_not = geteuid() ? "needs root" : mo_find_nodes();
	if (why_not)
		ksft_exit_skip("%s\n", why_not);
	for (i = 0; ours && (name = mo_engine(i)) && nr < MAX_ENGINES; i++) {
		if (strcmp(name, engines_of_tests[0]) &&
		    strcmp(name, engines_of_tests[1]))
			engines[nr++] = strdup(name);
	}
	if (ours && nr == 1)
		ksft_exit_skip("no engine that copies by itself\n");

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		mo_die("no memory");
	/* Other tests set engine_always by mo_select(). */
	mo_set_limit("engine_always", opt.always);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("# %u %s, %zu MiB each, folios of %zu bytes\n", opt.movers,
	       opt.processes ? "processes" : "threads", opt.mib,
	       opt.folio_bytes);
	ksft_set_plan(nr);
	start();
	measure(engines, nr);
	stop();
	if (ours)
		mo_write(PATH_OFFLOAD "engine", "none");
	ksft_test_result(!shared->nr_bad, "movers content_is_right\n");
	ksft_finished();
}
