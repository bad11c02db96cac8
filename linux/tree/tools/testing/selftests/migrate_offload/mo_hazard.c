// SPDX-License-Identifier: GPL-2.0-only
/* Runs hazards, each with all rules, and with its own rule switched off. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../kselftest.h"
#include "mo_hazard.h"

#define PATH_UNPOISON "/sys/kernel/debug/hwpoison/unpoison-pfn"

/* How the engine copies where a case does not say. */
static enum mo_test_mode test_mode = MO_TEST_PLAIN;

int mo_skip(const char *why)
{
	printf("# %s\n", why);
	return SKIPPED;
}

void mo_wait_until_copying(void)
{
	int tries;

	for (tries = 0; tries < 10000; tries++) {
		if (mo_read_number(PATH_TEST "in_copy"))
			return;
		usleep(1000);
	}
	mo_die("the engine is not being used");
}

static sigjmp_buf on_sigbus;
static atomic_bool sigbus_jumps;

static void handle_sigbus(int sig)
{
	if (sigbus_jumps)
		siglongjmp(on_sigbus, 1);
}

/*
 * Pages that a case has poisoned.  When it has ended, some of them are free, and
 * would become another case's memory: they are healed before.
 */
static struct {
	unsigned int nr;
	__u64 pfns[8];
} *poisoned;

void mo_poison(void *page)
{
	struct sigaction action = { .sa_handler = handle_sigbus };

	sigaction(SIGBUS, &action, NULL);
	if (poisoned->nr == ARRAY_SIZE(poisoned->pfns))
		mo_die("more poisoned pages than there is room to note them");
	poisoned->pfns[poisoned->nr++] = mo_pfn(page);
	/* Fails if the page cannot be taken away; but it is poisoned then too. */
	madvise(page, SZ_4K, MADV_HWPOISON);
}

bool mo_raises_sigbus(const void *page)
{
	bool raised = true;

	sigbus_jumps = true;
	if (!sigsetjmp(on_sigbus, 1)) {
		(void)__atomic_load_n((const char *)page, __ATOMIC_RELAXED);
		raised = false;
	}
	sigbus_jumps = false;
	return raised;
}

/* Nothing that a case changed stays. */
static void clean_up(void)
{
	mo_write(PATH_DEBUG "break_rules", "none");
	mo_write(PATH_DEBUG "bad_pfn", "0");
	mo_reset();
}

/* The process that had poisoned pages is gone. */
static void heal(void)
{
	for (; poisoned->nr; poisoned->nr--) {
		__u64 pfn = poisoned->pfns[poisoned->nr - 1];
		char text[32];
		int ret;

		snprintf(text, sizeof(text), "%llu", (unsigned long long)pfn);
		ret = mo_try_write(PATH_UNPOISON, text);
		if (ret)
			printf("# page %s stays poisoned: %s\n", text,
			       strerror(-ret));
	}
}

/* In a process of its own: its memory may be damaged. */
static int run_case(const struct mo_hazard *hazard, const char *rule)
{
	int status;
	pid_t pid;

	clean_up();
	if (!mo_load_test_engine(hazard->posted ? MO_TEST_POSTED : test_mode))
		return mo_skip("cannot load the module migrate_offload_test");
	mo_write(PATH_DEBUG "break_rules", rule);
	/* Several windows, and it does not depend on the time how large. */
	mo_set_limit("max_unmapped_us", 0);
	mo_set_limit("max_batch_pages", 64);

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		mo_die("cannot fork: %m");
	if (!pid) {
		int result = hazard->run();

		fflush(stdout);
		_exit(result);
	}
	if (waitpid(pid, &status, 0) != pid)
		mo_die("cannot wait: %m");
	clean_up();
	mo_select("none");
	heal();
	if (!WIFEXITED(status))
		printf("# ended by signal %d\n", WTERMSIG(status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void report(const struct mo_hazard *hazard, const char *rule,
		   int expected)
{
	int result = run_case(hazard, rule ? rule : "none");

	if (result == SKIPPED)
		ksft_test_result_skip("%s %s\n", hazard->name,
				      rule ? "without_its_rule" : "with_all_rules");
	else
		ksft_test_result(result == expected, "%s %s\n", hazard->name,
				 rule ? "without_its_rule" : "with_all_rules");
}

static bool wanted(const struct mo_hazard *hazard, int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++)
		if (!strcmp(hazard->name, argv[i]))
			return true;
	return argc == 1;
}

int mo_hazards_main(const struct mo_hazard *hazards, size_t nr_hazards,
		    int argc, char **argv)
{
	const struct mo_hazard *hazard, *end = hazards + nr_hazards;
	unsigned int nr = 0;

	if (argc == 2 && !strcmp(argv[1], "-l")) {
		for (hazard = hazards; hazard < end; hazard++)
			printf("%s %s\n", hazard->name, hazard->rule ?: "-");
		return 0;
	}

	if (argc > 1 && !strcmp(argv[1], "-s")) {
		test_mode = MO_TEST_STREAM;
		argc--;
		argv++;
	}

	ksft_print_header();
	if (mo_cannot_run())
		ksft_exit_skip("%s\n", mo_cannot_run());
	if (!mo_exists(PATH_DEBUG "break_rules"))
		ksft_exit_skip("no CONFIG_MIGRATION_COPY_OFFLOAD_DEBUG\n");

	for (hazard = hazards; hazard < end; hazard++)
		if (wanted(hazard, argc, argv))
			nr += hazard->rule ? 2 : 1;
	if (!nr)
		ksft_exit_fail_msg("no such hazard, see %s -l\n", argv[0]);
	ksft_set_plan(nr);
	poisoned = mmap(NULL, sizeof(*poisoned), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (poisoned == MAP_FAILED)
		ksft_exit_fail_msg("no memory: %m\n");

	for (hazard = hazards; hazard < end; hazard++) {
		if (!wanted(hazard, argc, argv))
			continue;
		report(hazard, NULL, RIGHT);
		if (hazard->rule)
			report(hazard, hazard->rule, DAMAGED);
	}
	ksft_finished();
}
