// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hazards of the engine itself: a device that writes late, and a module that
 * unloads while others migrate.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_area.h"
#include "mo_hazard.h"
#include "mo_util.h"

#define LATE_PAGE 8	/* counted from 1 */
#define NEVER_MS 3600000

void mo_wait_for_late_write(long long before)
{
	int tries;

	for (tries = 0; tries < 10000; tries++) {
		if (mo_read_number(PATH_TEST "late_writes") > before)
			return;
		usleep(1000);
	}
	mo_die("nothing was written late");
}

/*
 * A device that cannot be stopped writes to a destination after the engine gave
 * up.  The page stays at its source, so the late write is invisible.  After the
 * write the page moves normally.
 */
int mo_run_late(void)
{
	long long writes = mo_read_number(PATH_TEST "late_writes");
	long long held = mo_counter("held_folios");
	struct mo_area area;

	mo_map_anon(&area, SZ_2M, SZ_4K);
	mo_select("test");
	/*
	 * The device writes only after all other pages have moved, however long
	 * that takes.
	 */
	mo_write_number(PATH_TEST "late_ms", NEVER_MS);
	mo_write_number(PATH_TEST "hold_nth", LATE_PAGE);
	mo_move_once(&area, mo_nodes[1]);
	mo_write_number(PATH_TEST "late_now", 1);
	mo_wait_for_late_write(writes);
	if (mo_verdict(&area))
		return DAMAGED;
	if (mo_counter("held_folios") != held + 1 ||
	    mo_elsewhere(&area, mo_nodes[1]) != 1)
		mo_die("the number of held pages is not one");

	if (mo_read_number(PATH_OFFLOAD "held_folios"))
		mo_die("a page is still held after the device has written");
	mo_move_once(&area, mo_nodes[1]);
	if (mo_elsewhere(&area, mo_nodes[1]))
		mo_die("the formerly held page cannot be moved");
	return mo_verdict(&area);
}

/* A child moves its memory to and fro until it is killed. */
static pid_t start_mover(void)
{
	struct mo_area area;
	pid_t pid;
	int pass;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		mo_die("cannot fork: %m");
	if (pid)
		return pid;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	mo_map_anon(&area, SZ_2M, SZ_4K);
	for (pass = 1;; pass++) {
		if (mo_move(&area, mo_nodes[pass % 2]))
			mo_die("pages that could not be moved");
		if (!mo_content_ok(&area))
			_exit(DAMAGED);
	}
}

static int load(const char *module)
{
	const char *const argv[] = { "modprobe", "-q", module, NULL };

	return mo_run(argv);
}

static int load_mtcopy(void)
{
	/* With a larger minimum, mtcopy would decline batches of this size. */
	static const char *const argv[] = { "modprobe", "-q", "mtcopy",
					    "min_thread_bytes=4096", NULL };

	return mo_run(argv);
}

static int unload(const char *module)
{
	const char *const argv[] = { "modprobe", "-q", "-r", module, NULL };

	return mo_run(argv);
}

/* Wait until mtcopy has used helpers.  A machine with one CPU has none. */
static void wait_for_mtcopy(void)
{
	static const char path[] = PATH_OFFLOAD "stats/engines/mtcopy/engine_folios";
	long long before = mo_read_number(path);
	int tries;

	for (tries = 0; tries < 30000; tries++) {
		if (sysconf(_SC_NPROCESSORS_ONLN) == 1 ||
		    mo_read_number(path) > before)
			return;
		usleep(1000);
	}
	mo_die("mtcopy finds no idle CPU");
}

/*
 * Give one reason its own engine, or none.  The general engine copies for all
 * others.
 */
static void leave_by_reason(const char *engine)
{
	static const char path[] = PATH_OFFLOAD "engine_of/syscall_or_cpuset";

	mo_wait_until_copying();
	mo_write(path, engine);
	if (mo_read_number(PATH_TEST "in_copy"))
		mo_die("an engine still copies for a reason that has '%s' now",
		       engine);
	mo_write(path, "default");
}

/* Engines come and go during migration.  None may go while in use. */
static void come_and_go(void)
{
	if (mo_exists("/sys/module/mtcopy") && unload("mtcopy"))
		mo_die("cannot unload mtcopy");
	if (load_mtcopy() || load("migrate_offload_test"))
		mo_die("cannot load the engines");

	mo_select("mtcopy");
	wait_for_mtcopy();
	mo_select("cpu");
	if (unload("mtcopy") || load_mtcopy())
		mo_die("cannot load mtcopy again");
	mo_select("test");
	mo_write(PATH_TEST "delay_us", "10000");
	leave_by_reason("none");
	leave_by_reason("cpu");
	mo_wait_until_copying();
	if (!unload("migrate_offload_test"))
		mo_die("the active engine could be unloaded");
	mo_select("mtcopy");
	if (mo_read_number(PATH_TEST "in_copy"))
		mo_die("an engine still copies after it was switched off");
	if (unload("migrate_offload_test"))
		mo_die("cannot unload an idle engine");
	mo_select("none");
}

int mo_run_unload(void)
{
	/* mtcopy needs one idle CPU for its helper. */
	int nr_movers = sysconf(_SC_NPROCESSORS_ONLN) > 2 ? 2 : 1;
	pid_t movers[2];
	int round, i, status, result = RIGHT;

	for (i = 0; i < nr_movers; i++)
		movers[i] = start_mover();
	for (round = 0; round < 2; round++)
		come_and_go();
	for (i = 0; i < nr_movers; i++) {
		kill(movers[i], SIGTERM);
		if (waitpid(movers[i], &status, 0) != movers[i])
			mo_die("cannot wait: %m");
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM)
			result = DAMAGED;
	}
	return result;
}
