// SPDX-License-Identifier: GPL-2.0-only
/* KTAP tests of how bench/tiers.c starts and stops policies. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/bench.h"
#include "common/hot_set.h"
#include "common/ktap.h"

/* Shell commands that do to files what kdamonds' starts and ends do to sysfs. */
#define FAKE "cd $KDAMONDS; mkdir -p 0; echo on >0/state; echo 1 >nr_kdamonds; "
/* As pageferry does: more kdamonds than it starts, and a notice. */
#define SERVE "cd $KDAMONDS; mkdir -p 0 1; echo off >0/state; echo off >1/state; " \
	"echo 2 >nr_kdamonds; echo on >0/state; echo keeps some memory free >&2; "
/* dash loses a signal that comes while it starts a command that it waits for. */
#define WAIT "trap 'echo ended >end; exit 0' TERM; sleep 1000 & wait"
/* The rest of a command runs while the program measures the policy. */
#define MEASURED "while ! [ -e measured ]; do sleep 0.01; done; rm measured; "

/* The command has ended, or has made the file "acted". */
static void wait_for_command(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/measured", getenv("KDAMONDS"));
	close(creat(path, 0600));
	snprintf(path, sizeof(path), "%s/acted", getenv("KDAMONDS"));
	while (unlink(path)) {
		siginfo_t info = { .si_pid = 0 };

		waitid(P_PID, (id_t)settings_child, &info,
		       WEXITED | WNOWAIT | WNOHANG);
		if (info.si_pid)
			break;
		bench_sleep_ns(10000000);
	}
}

static bool policy_runs_as(bool serves, const char *command, bool waits,
			   char *why)
{
	const struct policy p = {
		.name = "fake", .command = command, .serves = serves
	};
	cpu_set_t cpus;

	sched_getaffinity(0, sizeof(cpus), &cpus);
	why[0] = '\0';
	if (!policy_start(&p, &cpus, why, 256))
		return false;
	if (waits)
		wait_for_command();
	policy_stop(&p);
	return true;
}

static bool policy_runs(const char *command, char *why)
{
	return policy_runs_as(false, command, false, why);
}

/* A policy that ends early ends the program, so a child tries. */
static bool policy_ends_early(bool serves, const char *command)
{
	int status = 0;
	char why[256];
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		close(STDOUT_FILENO);
		settings_restore_on_exit();
		policy_runs_as(serves, command, true, why);
		_exit(BENCH_OK);
	}
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status) == BENCH_FAILED;
}

static void test_services(void)
{
	char why[256];

	check(policy_runs_as(true, SERVE WAIT, false, why) && !why[0],
	      "policies: a service with a notice, and a kdamond that it spares");
	check(!policy_runs_as(true, "echo no luck >&2; exit 0", false, why) &&
		      !strcmp(why, "no luck"),
	      "policies: a service that ends has not started");
	check(policy_ends_early(true, SERVE MEASURED "exit 0"),
	      "policies: a service that ends early is no measurement");
	check(policy_ends_early(true, SERVE "echo off >0/state; sleep 0.1; "
				"echo on >0/state; " MEASURED
				"echo off >0/state; echo >acted; " WAIT),
	      "policies: nor is one whose kdamonds are off at the end");
	check(policy_ends_early(false, FAKE MEASURED "echo off >0/state; "
				"echo >acted; " WAIT),
	      "policies: nor a kdamond that another program has stopped");
}

static void test_policies(void)
{
	char dir[] = "/tmp/pageferry-XXXXXX", path[64], why[256], value[32];

	if (!mkdtemp(dir) || setenv("KDAMONDS", dir, 1))
		exit(BENCH_FAILED);
	policies_open(dir);
	check(!policy_runs("true", why) && strstr(why, "has no"),
	      "policies: a kernel without DAMON");
	snprintf(path, sizeof(path), "%s/nr_kdamonds", dir);
	close(creat(path, 0600));
	check(!policy_runs("echo first; echo no luck >&2; exit 3", why) &&
		      !strcmp(why, "no luck"),
	      "policies: the last line of a command that fails");
	check(policy_runs(FAKE "exit 0", why) &&
		      file_read(path, value, sizeof(value)) && value[0] == '0',
	      "policies: a command that ends, and its kdamonds");
	/* The file shows that SIGTERM came. */
	check(policy_runs(FAKE WAIT, why), "policies: a command that goes on");
	snprintf(path, sizeof(path), "%s/end", dir);
	check(file_read(path, value, sizeof(value)) && !strcmp(value, "ended"),
	      "policies: the command can clean up");
	snprintf(path, sizeof(path), "%s/0/state", dir);
	check(file_read(path, value, sizeof(value)) && !strcmp(value, "off"),
	      "policies: no kdamond is left");
	check(policy_ends_early(false, FAKE MEASURED "exit 1"),
	      "policies: one that ends early is no measurement");
	test_services();
	check(!system("rm -r \"$KDAMONDS\""), "policies: no file is left");
}

int main(void)
{
	ktap_start();
	test_policies();
	return ktap_end();
}
