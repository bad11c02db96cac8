// SPDX-License-Identifier: GPL-2.0-only
/* Starts and stops what moves memory between tiers: settings, or a command. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hot_set.h"

#define POLL_NS 50000000ULL
/* Python may take a minute to start in a guest without KVM on a busy host. */
#define START_NS 300000000000ULL
#define STOP_NS 60000000000ULL
#define BUSY_TRIES 100
/* No policy makes more kdamonds.  pageferry makes 8, and starts some of them. */
#define MAX_KDAMONDS 8

/* Signal handlers write to these files. */
static char count[128], states[MAX_KDAMONDS][128], goals[192];
/* The output of the command. */
static FILE *said;

/*
 * The kernel returns EBUSY while a kdamond looks for a command.  Waits a moment
 * then, unless that lasts.  Async-signal-safe.
 */
static bool is_busy(int *tries)
{
	const struct timespec pause = { .tv_nsec = POLL_NS };

	return errno == EBUSY && (*tries)-- && !nanosleep(&pause, NULL);
}

static bool state_is_on(const char *path)
{
	int tries = BUSY_TRIES;
	char state[8];

	while (!file_read(path, state, sizeof(state)))
		if (!is_busy(&tries))
			return false;
	return !strcmp(state, "on");
}

static uint64_t nr_kdamonds(void)
{
	uint64_t nr = 0;

	file_read_u64(count, &nr);
	return nr;
}

/*
 * A command that ends starts all kdamonds that it makes.  A service may keep some
 * of them for later.
 */
static bool kdamonds_on(const struct policy *p)
{
	uint64_t nr = nr_kdamonds(), on = 0;

	if (nr > MAX_KDAMONDS)
		nr = MAX_KDAMONDS;
	for (size_t i = 0; i < nr; i++)
		on += state_is_on(states[i]);
	return on && (p->serves || on == nr);
}

bool policy_has_goals(void)
{
	uint64_t nr;

	return file_read_u64(goals, &nr) && nr;
}

/* Async-signal-safe.  The writes fail for kdamonds that do not run. */
static void kdamonds_off(void)
{
	for (size_t i = 0; i < MAX_KDAMONDS; i++) {
		int tries = BUSY_TRIES;

		while (!file_write(states[i], "off") && is_busy(&tries))
			;
	}
	file_write(count, "0");
}

void policies_open(const char *kdamonds)
{
	snprintf(count, sizeof(count), "%s/nr_kdamonds", kdamonds);
	for (int i = 0; i < MAX_KDAMONDS; i++)
		snprintf(states[i], sizeof(states[i]), "%s/%d/state", kdamonds, i);
	snprintf(goals, sizeof(goals),
		 "%s/0/contexts/0/schemes/0/quotas/goals/nr_goals", kdamonds);
	if (nr_kdamonds())
		bench_die(BENCH_LACKING,
			  "%s is %llu: another program uses DAMON (pageferry tier --status, damo stop)",
			  count, (unsigned long long)nr_kdamonds());
}

/* Runs in the child, so no exit handler may run. */
static _Noreturn void become(const char *command, const cpu_set_t *cpus)
{
	/* damo asks questions. */
	int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	sched_setaffinity(0, sizeof(*cpus), cpus);
	dup2(nothing, STDIN_FILENO);
	dup2(fileno(said), STDOUT_FILENO);
	dup2(fileno(said), STDERR_FILENO);
	execl("/bin/sh", "sh", "-c", command, NULL);
	_exit(127);
}

/* Pass the output on to stderr, and copy its last line. */
static void last_line(char *line, size_t size)
{
	char next[512];

	snprintf(line, size, "it printed nothing");
	rewind(said);
	while (fgets(next, sizeof(next), said)) {
		fputs(next, stderr);
		next[strcspn(next, "\n")] = '\0';
		if (next[0])
			snprintf(line, size, "%s", next);
	}
}

/* Returns true if the command has ended, with its status. */
static bool has_ended(int *status)
{
	if (!settings_child ||
	    waitpid(settings_child, status, WNOHANG) != settings_child)
		return false;
	settings_child = 0;
	return true;
}

static void command_end(void)
{
	uint64_t begin = bench_now_ns();
	pid_t group = settings_child;
	int status;

	if (group)
		kill(-group, SIGTERM);
	while (settings_child && !has_ended(&status)) {
		bench_sleep_ns(POLL_NS);
		if (bench_now_ns() - begin > STOP_NS)
			kill(-group, SIGKILL);
	}
	kdamonds_off();
	fclose(said);
	said = NULL;
}

/* A policy that has ended has moved nothing since, which is no measurement. */
static void command_check(const struct policy *p)
{
	bool ended = !settings_child;
	char line[256];
	int status = 0;

	ended = has_ended(&status) || ended;
	if (!status && !(p->serves && ended) && kdamonds_on(p))
		return;
	last_line(line, sizeof(line));
	bench_die(BENCH_FAILED, "%s, or a kdamond of it, ended early; its last line: %s",
		  p->name, line);
}

/* Say why the command is no use.  Its last line is the reason only if it ended. */
static void command_failed(bool ended, char *why, size_t size)
{
	size_t at = 0;

	if (!ended)
		at = (size_t)snprintf(why, size,
				      "no kdamond ran after %llu s; its last line: ",
				      START_NS / 1000000000);
	last_line(why + at, size - at);
	command_end();
}

/* The command is ready when its kdamonds run.  It may end before, or go on. */
static bool command_start(const struct policy *p, const cpu_set_t *cpus,
			  char *why, size_t size)
{
	uint64_t begin = bench_now_ns();

	if (access(count, F_OK)) {
		snprintf(why, size, "this kernel has no %s", count);
		return false;
	}
	said = tmpfile();
	if (!said)
		bench_die(BENCH_LACKING, "tmpfile: %s", strerror(errno));
	settings_restore_after(kdamonds_off);
	if (!settings_fork(&settings_child))
		become(p->command, cpus);
	/* Whichever process is first: command_end() must find the group. */
	setpgid(settings_child, settings_child);
	while (!kdamonds_on(p)) {
		int status = 0;
		bool ended = has_ended(&status) && (status || p->serves);

		if (ended || bench_now_ns() - begin > START_NS) {
			command_failed(ended, why, size);
			return false;
		}
		bench_sleep_ns(POLL_NS);
	}
	return true;
}

bool policy_start(const struct policy *p, const cpu_set_t *cpus, char *why,
		  size_t size)
{
	if (p->command)
		return command_start(p, cpus, why, size);
	if (!p->balancing)
		return true;
	if (!setting_pin(NUMA_BALANCING, "2")) {
		snprintf(why, size, "cannot write 2 to " NUMA_BALANCING ": %s",
			 strerror(errno));
		return false;
	}
	setting_must_pin(DEMOTION_ENABLED, "true");
	return true;
}

void policy_stop(const struct policy *p)
{
	if (p->balancing) {
		setting_must_pin(NUMA_BALANCING, "0");
		setting_must_pin(DEMOTION_ENABLED, "false");
	}
	if (!p->command)
		return;
	command_check(p);
	command_end();
}
