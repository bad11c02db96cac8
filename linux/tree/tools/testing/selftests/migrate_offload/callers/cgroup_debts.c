// SPDX-License-Identifier: GPL-2.0-only
/*
 * A cgroup with a CPU limit owes the CPU time that its helpers used.  The tests
 * check how much a cgroup owes, and when it is charged and pays.  An engine of
 * the module migrate_offload_test reports as much CPU time as the test sets.
 */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_cgroup.h"
#include "mo_util.h"

/*
 * A CPU takes the quota of a whole period at once.  So a task that has begun to
 * run is not throttled as soon as its cgroup owes CPU time.
 */
#define PATH_SLICE "/proc/sys/kernel/sched_cfs_bandwidth_slice_us"
#define DEBTS_QUOTA_US 50000
#define DEBTS_PERIOD_US 250000
#define DEBTS_LIMITED "50000 250000"

/* The CPU time that the cgroup owes, and the elapsed time to pay it. */
#define OWED_MS 1000
#define OWED_US (OWED_MS * 1000LL * DEBTS_PERIOD_US / DEBTS_QUOTA_US)

/* Moving this takes less CPU time than the quota of one period. */
#define WORKER_BYTES (16 * SZ_4K)

/* How long the engine lets the worker wait. */
#define DELAY_US 20000

/* More than the rest of a quota.  Takes some periods even without a debt. */
#define BURN_NS 120000000LL

/* The kernel's pid_max with up to 32 CPUs. */
#define MAX_PID 32768

/* A process in the first cgroup that follows orders. */
struct worker {
	pid_t pid;
	int orders, answers;
};

/* Attempts to migrate all memory in one list, within the worker's own quota. */
#define MAX_TRIES 10

enum order { MOVE, BURN };

/* How long an order took, and how much CPU time the worker used for it. */
struct answer {
	long long us, cpu_us;
};

static long long cpu_clock_ns(clockid_t clock)
{
	struct timespec now;

	if (clock_gettime(clock, &now))
		return 0;
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void burn(long long ns)
{
	long long until = cpu_clock_ns(CLOCK_PROCESS_CPUTIME_ID) + ns;

	while (cpu_clock_ns(CLOCK_PROCESS_CPUTIME_ID) < until)
		continue;
}

static void work(int orders, int answers)
{
	struct mo_area *area = child_map(0, MO_ANON, WORKER_BYTES, SZ_4K);
	struct answer answer = { };
	int to = 1;
	char order;

	if (write(answers, &answer, sizeof(answer)) != sizeof(answer))
		_exit(KSFT_FAIL);
	while (read(orders, &order, 1) == 1) {
		answer.cpu_us = cpu_clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1000;
		answer.us = now_us();
		if (order == BURN)
			burn(BURN_NS);
		else if (mo_move_once(area, mo_nodes[to]) < 0)
			_exit(KSFT_FAIL);
		to ^= order == MOVE;
		answer.us = now_us() - answer.us;
		answer.cpu_us = cpu_clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1000 -
				answer.cpu_us;
		if (write(answers, &answer, sizeof(answer)) != sizeof(answer))
			_exit(KSFT_FAIL);
	}
	_exit(!mo_content_ok(area));
}

/* Wait until the worker has obeyed. */
static struct answer worker_answer(const struct worker *worker)
{
	struct answer answer;

	if (read(worker->answers, &answer, sizeof(answer)) != sizeof(answer))
		mo_die("the process to migrate has exited");
	return answer;
}

static struct answer worker_do(const struct worker *worker, enum order what)
{
	char order = what;

	if (write(worker->orders, &order, 1) != 1)
		mo_die("cannot give orders: %m");
	return worker_answer(worker);
}

static struct worker worker_start(void)
{
	int orders[2], answers[2];
	struct worker worker;

	if (pipe(orders) || pipe(answers))
		mo_die("no pipes: %m");
	worker.pid = fork();
	if (!worker.pid) {
		close(orders[1]);
		close(answers[0]);
		work(orders[0], answers[1]);
	}
	close(orders[0]);
	close(answers[1]);
	worker.orders = orders[1];
	worker.answers = answers[0];
	worker_answer(&worker);
	return worker;
}

static void worker_end(const struct worker *worker)
{
	close(worker->orders);
	child_wait(worker->pid);
	close(worker->answers);
}

/* Lifting the limit must cancel the debt. */
static void worker_lift(void)
{
	mo_write(group_file(0, "cpu.max"), UNLIMITED);
	mo_write(group_file(0, "cpu.max"), DEBTS_LIMITED);
}

/*
 * Migrate in one list, and owe a lot for it.  Returns how long a folio was
 * unmapped.  This test does not cover two cases, so it lifts the debt and tries
 * again:
 *  - A page that cannot be isolated for a moment splits the list in two.  The
 *    task is throttled between the two lists.
 *  - The worker uses up its own quota.  It is throttled for that, perhaps while
 *    folios are unmapped.  The guest counts the time that its host takes away
 *    from a CPU as CPU time of the task.
 */
static long long worker_owe(const struct worker *worker)
{
	long long folios, sum_ns, helper_ns, streams;
	struct answer answer;
	int tries;

	for (tries = 1; ; tries++) {
		helper_ns = mo_counter("helper_ns");
		folios = mo_counter("unmapped_folios");
		sum_ns = mo_counter("unmapped_sum_ns");
		streams = mo_read_number(PATH_TEST "streams");

		mo_write_number(PATH_TEST "helper_ms", OWED_MS);
		answer = worker_do(worker, MOVE);

		streams = mo_read_number(PATH_TEST "streams") - streams;
		sum_ns = mo_counter("unmapped_sum_ns") - sum_ns;
		folios = mo_counter("unmapped_folios") - folios;
		helper_ns = mo_counter("helper_ns") - helper_ns;
		printf("# moved %lld folios in %lld us, %lld us of CPU time, in %lld lists\n",
		       folios, answer.us, answer.cpu_us, streams);
		if (streams == 1 && answer.cpu_us < DEBTS_QUOTA_US)
			break;
		if (tries == MAX_TRIES)
			break;
		worker_lift();
	}
	expect(streams == 1);
	expect(answer.cpu_us < DEBTS_QUOTA_US);
	expect(helper_ns == OWED_MS * 1000000LL);
	expect(folios > 0);
	return sum_ns / (folios ?: 1) / 1000;
}

/*
 * Owe a lot, and pay it or have it lifted.  Returns how long a little CPU time
 * takes then.  The guest counts the time that its host takes away as CPU time of
 * the worker, which is throttled for that.  The host may also stop the engine
 * while folios are unmapped.  Begin again then.
 */
static long long worker_burn(const struct worker *worker, bool lift)
{
	long long unmapped_us;
	struct answer answer;
	int tries = 0;

	do {
		unmapped_us = worker_owe(worker);
		if (lift)
			worker_lift();
		else
			usleep(OWED_US + OWED_US / 4);
		answer = worker_do(worker, BURN);
	} while ((answer.cpu_us > BURN_NS / 1000 + DEBTS_QUOTA_US ||
		  unmapped_us >= OWED_US / 10) && ++tries < MAX_TRIES);
	printf("# a folio was unmapped for %lld us, and %lld us were owed\n",
	       unmapped_us, OWED_US);
	expect(unmapped_us < OWED_US / 10);
	return answer.us;
}

void test_owed_is_paid(void)
{
	long long paid_us, lifted_us, slice_us;
	struct worker worker;

	if (!mo_load_test_engine(MO_TEST_STREAM))
		mo_die("cannot load the module migrate_offload_test");
	mo_reset();
	/* The whole list is unmapped at once. */
	mo_set_limit("max_unmapped_us", 0);
	mo_write_number(PATH_TEST "delay_us", DELAY_US);
	mo_select("test");
	slice_us = mo_read_number(PATH_SLICE);
	mo_write_number(PATH_SLICE, DEBTS_QUOTA_US);
	worker = worker_start();
	mo_write(group_file(0, "cpu.max"), DEBTS_LIMITED);

	paid_us = worker_burn(&worker, false);
	lifted_us = worker_burn(&worker, true);

	mo_write(group_file(0, "cpu.max"), UNLIMITED);
	worker_end(&worker);
	mo_write_number(PATH_SLICE, slice_us);
	mo_load_test_engine(MO_TEST_PLAIN);
	printf("# %lld us of CPU time took %lld us with the debt paid, %lld us with it lifted\n",
	       BURN_NS / 1000, paid_us, lifted_us);
	expect(paid_us < OWED_US / 2);
	expect(lifted_us < OWED_US / 2);
}

/* These run mtcopy's work items; its rescuer does if no other can start. */
static bool may_help(const char *comm)
{
	return !strncmp(comm, "kworker/1:", 10) ||
	       !strncmp(comm, "kworker/R-mtco", 14);
}

/*
 * CPU time of threads that may help on CPU 1, since the last call.  One that is
 * idle for five minutes exits, so sum up what each has used since then.
 */
static long long kworkers_ns(void)
{
	static long long last_ns[MAX_PID];
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	long long ns = 0;

	if (!proc)
		mo_die("cannot read /proc: %m");
	while ((entry = readdir(proc))) {
		int pid = atoi(entry->d_name);
		char path[64], name[64];
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%d/comm", pid);
		file = pid > 0 && pid < MAX_PID ? fopen(path, "r") : NULL;
		if (!file)
			continue;
		if (fgets(name, sizeof(name), file) && may_help(name)) {
			/* Encode that task's clock as clock_getcpuclockid(). */
			long long now_ns =
				cpu_clock_ns(~(unsigned int)pid << 3 | 2);

			ns += now_ns - last_ns[pid];
			last_ns[pid] = now_ns;
		}
		fclose(file);
	}
	closedir(proc);
	return ns;
}

/* Preempt helpers while they copy. */
static pid_t start_hog(void)
{
	struct sched_param param = { .sched_priority = 1 };
	pid_t pid = fork();

	if (pid)
		return pid;
	mo_run_on(1);
	if (sched_setscheduler(0, SCHED_FIFO, &param))
		mo_die("no real-time priority: %m");
	for (;;) {
		burn(20000000);
		usleep(5000);
	}
}

void test_cpu_time(void)
{
	long long helpers_before, helper_ns, used_ns = 0;
	unsigned int tries = 10;
	pid_t hog, child;

	mo_write(group_file(0, "cpuset.cpus"), "0-1");
	mo_select("mtcopy");
	hog = start_hog();
	helpers_before = mo_counter("helper_ns");
	kworkers_ns();
	/*
	 * The host of an emulated CPU may miss the time that the hog leaves
	 * idle.
	 */
	do {
		child = fork();
		if (!child) {
			struct mo_area *area = child_map(0, MO_ANON, 4 * SZ_2M,
							 SZ_2M);

			mo_run_on(0);
			_exit(child_moves(area, 2000000));
		}
		child_wait(child);
		helper_ns = mo_counter("helper_ns") - helpers_before;
		used_ns += kworkers_ns();
	} while (!helper_ns && --tries);
	kill(hog, SIGKILL);
	waitpid(hog, NULL, 0);
	mo_select("none");
	printf("# helpers %lld ns, kernel threads that may have been helpers %lld ns\n",
	       helper_ns, used_ns);
	expect(helper_ns > 0);
	expect(helper_ns <= used_ns);
}
