// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs hazards, each with all rules, and with its own rule off.
 *
 * PROGRAM [-k] [-s] [NAME...] runs the named hazards, or all.  With -k all
 * rules stay on: the kernel is intact afterwards.  With -s the engine copies
 * several batches side by side.  PROGRAM -l lists the hazards.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_hazard.h"

#define PATH_POISON "/sys/kernel/debug/hwpoison/corrupt-pfn"
#define PATH_UNPOISON "/sys/kernel/debug/hwpoison/unpoison-pfn"

/* No case takes longer, in any kernel. */
#define CASE_LIMIT_S 900

/* Attempts at a case without its rule, until damage shows. */
#define MAX_TRIES 20

/* How the engine copies where a case does not say. */
static enum mo_test_mode test_mode = MO_TEST_PLAIN;
static bool keep_rules;

int mo_skip(const char *why)
{
	printf("# %s\n", why);
	return SKIPPED;
}

int mo_hold(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY);

	if (fd < 0)
		mo_die("cannot open %s: %m", file);
	if (write(fd, text, strlen(text)) < 0)
		mo_die("cannot write %s to %s: %m", text, file);
	return fd;
}

static sigjmp_buf on_sigbus;
static atomic_bool sigbus_jumps;

static void handle_sigbus(int sig)
{
	if (sigbus_jumps)
		siglongjmp(on_sigbus, 1);
}

/*
 * Pages that a case has poisoned.  Some are free after the case.  Unpoison all
 * of these, before another case allocates them.
 */
static struct {
	unsigned int nr;
	__u64 pfns[8];
} *poisoned;

static __u64 note_poisoned(const void *page)
{
	struct sigaction action = { .sa_handler = handle_sigbus };

	sigaction(SIGBUS, &action, NULL);
	if (poisoned->nr == ARRAY_SIZE(poisoned->pfns))
		mo_die("too many poisoned pages");
	poisoned->pfns[poisoned->nr] = mo_pfn(page);
	return poisoned->pfns[poisoned->nr++];
}

void mo_poison(void *page)
{
	note_poisoned(page);
	/*
	 * The call fails if the page cannot be unmapped, but it is poisoned
	 * then, too.
	 */
	madvise(page, SZ_4K, MADV_HWPOISON);
}

void mo_poison_isolated(void *page)
{
	__u64 flags, pfn = note_poisoned(page);
	char text[32];

	/*
	 * The write fails, because the kernel cannot isolate the page a second
	 * time.
	 */
	snprintf(text, sizeof(text), "%llu", (unsigned long long)pfn);
	mo_try_write(PATH_POISON, text);
	mo_page_flags(pfn, 1, &flags);
	if (!(flags & (1ULL << KPF_HWPOISON)) || mo_pfn(page) != pfn)
		mo_die("no poisoned page is mapped");
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

void mo_stay(void)
{
	int fd = open("/dev/null", O_RDWR);

	alarm(0);
	/* A reader of the output must not wait for this process. */
	fflush(stdout);
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	/* Close pipes, so that a child does not wait for the next question. */
	close_range(STDERR_FILENO + 1, ~0U, 0);
	/* An orphaned stopped process gets SIGHUP and SIGCONT. */
	signal(SIGHUP, SIG_IGN);
	for (;;)
		raise(SIGSTOP);
}

/* Restore all settings that a case may have changed. */
static void clean_up(void)
{
	mo_write(PATH_DEBUG "break_rules", "none");
	mo_write(PATH_DEBUG "bad_pfn", "0");
	mo_reset();
}

/* Unpoison the pages of a case.  Its process has exited, or stays stopped. */
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

/* Use a child: the case may damage its memory. */
static int run_case(const struct mo_hazard *hazard, const char *rule)
{
	int status;
	pid_t pid;

	clean_up();
	if (!mo_load_test_engine(hazard->posted ? MO_TEST_POSTED : test_mode))
		return mo_skip("cannot load the module migrate_offload_test");
	mo_write(PATH_DEBUG "break_rules", rule);
	/* Without this, the sizes of windows would depend on the speed. */
	mo_set_limit("max_unmapped_us", 0);
	mo_set_limit("max_batch_pages", 64);

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		mo_die("cannot fork: %m");
	if (!pid) {
		int result;

		alarm(CASE_LIMIT_S);
		result = hazard->run();
		fflush(stdout);
		_exit(result);
	}
	if (waitpid(pid, &status, WUNTRACED) != pid)
		mo_die("cannot wait: %m");
	clean_up();
	mo_select("none");
	heal();
	if (WIFSTOPPED(status)) {
		printf("# process %d has to stay\n", pid);
		return DAMAGED;
	}
	if (!WIFEXITED(status))
		printf("# ended by signal %d\n", WTERMSIG(status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void report(const struct mo_hazard *hazard, const char *how,
		   const char *rules, int expected)
{
	int tries = 0, result;

	/* Damage may need a race, which a busy host makes rarer. */
	do
		result = run_case(hazard, rules);
	while (expected == DAMAGED && result == RIGHT && ++tries < MAX_TRIES);
	if (result == SKIPPED)
		ksft_test_result_skip("%s %s\n", hazard->name, how);
	else
		ksft_test_result(result == expected, "%s %s\n", hazard->name,
				 how);
}

static void report_all(const struct mo_hazard *hazard)
{
	char rules[64];

	report(hazard, "with_all_rules", "none", RIGHT);
	if (hazard->hints)
		report(hazard, "without_hints", "run_hints", RIGHT);
	if (!hazard->rule || keep_rules)
		return;
	snprintf(rules, sizeof(rules), "%s%s", hazard->hints ? "run_hints," : "",
		 hazard->rule);
	report(hazard, "without_its_rule", rules, DAMAGED);
}

static unsigned int nr_reports(const struct mo_hazard *hazard)
{
	return 1 + hazard->hints + (hazard->rule && !keep_rules);
}

/* Returns true if @names has this hazard, or is empty.  NULL ends @names. */
static bool wanted(const struct mo_hazard *hazard, char **names)
{
	char **name;

	for (name = names; *name; name++)
		if (!strcmp(hazard->name, *name))
			return true;
	return !*names;
}

/* List each hazard with its rule, and whether it has hints. */
static int list(const struct mo_hazard *hazard, const struct mo_hazard *end)
{
	for (; hazard < end; hazard++)
		printf("%s %s%s\n", hazard->name, hazard->rule ?: "-",
		       hazard->hints ? " hints" : "");
	return 0;
}

int mo_hazards_main(const struct mo_hazard *hazards, size_t nr_hazards,
		    const char *(*cannot_run)(void), int argc, char **argv)
{
	const struct mo_hazard *hazard, *end = hazards + nr_hazards;
	unsigned int nr = 0;
	int opt;

	while ((opt = getopt(argc, argv, "kls")) != -1) {
		if (opt == 'k')
			keep_rules = true;
		else if (opt == 's')
			test_mode = MO_TEST_STREAM;
		else if (opt == 'l')
			return list(hazards, end);
		else
			return KSFT_FAIL;
	}

	ksft_print_header();
	if (cannot_run())
		ksft_exit_skip("%s\n", cannot_run());
	if (!mo_exists(PATH_DEBUG "break_rules"))
		ksft_exit_skip("no CONFIG_MIGRATION_COPY_OFFLOAD_DEBUG\n");

	for (hazard = hazards; hazard < end; hazard++)
		if (wanted(hazard, argv + optind))
			nr += nr_reports(hazard);
	if (!nr)
		ksft_exit_fail_msg("no such hazard, see %s -l\n", argv[0]);
	ksft_set_plan(nr);
	poisoned = mmap(NULL, sizeof(*poisoned), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (poisoned == MAP_FAILED)
		ksft_exit_fail_msg("no memory: %m\n");

	for (hazard = hazards; hazard < end; hazard++)
		if (wanted(hazard, argv + optind))
			report_all(hazard);
	ksft_finished();
}
