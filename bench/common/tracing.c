// SPDX-License-Identifier: GPL-2.0-only
/* One event of the kernel, in a private instance of tracefs. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "tracing.h"

static char instance[64];
static const char *event;

/*
 * An instance cannot be removed while a file of it is open, so block all
 * signals then.
 */
static sigset_t mask_was;

static void hold_signals(void)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &mask_was);
}

static void let_signals(void)
{
	pthread_sigmask(SIG_SETMASK, &mask_was, NULL);
}

/* Set a file of the trace instance.  False: it failed, or there is no instance. */
static bool tracing_set(const char *name, const char *value)
{
	char path[160];
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", instance, name);
	if (!instance[0])
		return false;
	hold_signals();
	ok = file_write(path, value);
	let_signals();
	return ok;
}

/* Set a file of the event, such as its filter, or whether it is enabled. */
bool tracing_set_event(const char *name, const char *value)
{
	char path[96];

	snprintf(path, sizeof(path), "events/%s/%s", event, name);
	return tracing_set(path, value);
}

/*
 * Async-signal-safe.  If another thread ends the program, it waits here for the
 * thread with the open file, but a second at most.
 */
void tracing_close(void)
{
	const struct timespec pause = { .tv_nsec = 10000000 };

	if (!instance[0])
		return;
	for (int tries = 0; tries < 100; tries++) {
		if (!rmdir(instance) || errno != EBUSY)
			break;
		nanosleep(&pause, NULL);
	}
	instance[0] = '\0';
}

/*
 * Make the instance while record-cmd is off.  It then does not trace each task
 * switch to record the names of tasks.
 */
static bool instance_make(const char *place)
{
	char option[64], value[8];
	bool was_on, ok;

	snprintf(option, sizeof(option), "%s/options/record-cmd", place);
	was_on = file_read(option, value, sizeof(value)) &&
		 !strcmp(value, "1") && file_write(option, "0");
	snprintf(instance, sizeof(instance), "%s/instances/pageferry-%d", place,
		 getpid());
	ok = !mkdir(instance, 0700);
	if (was_on)
		file_write(option, "1");
	if (!ok)
		instance[0] = '\0';
	return ok;
}

/* The kernel's PROC_PID_INIT_INO, for the first namespace. */
#define FIRST_PID_NS 0xeffffffcUL

/*
 * Filters match the pid of the first namespace.  The program knows this pid
 * only inside that namespace.  @path is its link to a namespace, and missing
 * without namespaces.
 */
bool tracing_knows_pids(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return errno == ENOENT;
	return st.st_ino == FIRST_PID_NS;
}

/*
 * Trace an event such as "migrate/mm_migrate_pages", by the clock of
 * bench_now_ns().  The buffer is small, and keeps the first or the latest
 * events, because only one counts.  Returns false if the event cannot be traced.
 */
bool tracing_open(const char *name, bool keep_latest, const char *filter)
{
	static const char *const places[] = { "/sys/kernel/tracing",
					      "/sys/kernel/debug/tracing" };

	if (!tracing_knows_pids("/proc/self/ns/pid") ||
	    (!instance_make(places[0]) && !instance_make(places[1])))
		return false;
	event = name;
	settings_restore_after(tracing_close);
	if (tracing_set("buffer_size_kb", "16") &&
	    tracing_set("trace_clock", "mono") &&
	    tracing_set("options/overwrite", keep_latest ? "1" : "0") &&
	    tracing_set_event("filter", filter) &&
	    tracing_set_event("enable", "1"))
		return true;
	tracing_close();
	return false;
}

/* Discard the trace so far. */
void tracing_empty(void)
{
	char path[160];
	FILE *f;

	if (!instance[0])
		return;
	/* Opening the file for writing empties it. */
	snprintf(path, sizeof(path), "%s/trace", instance);
	hold_signals();
	f = fopen(path, "we");
	if (f)
		fclose(f);
	let_signals();
}

/*
 * Open the trace, the oldest entry first; NULL on failure.  Signals wait until
 * tracing_read_done().
 */
FILE *tracing_read(void)
{
	char path[160];
	FILE *f;

	if (!instance[0])
		return NULL;
	snprintf(path, sizeof(path), "%s/trace", instance);
	hold_signals();
	f = fopen(path, "re");
	if (!f)
		let_signals();
	return f;
}

void tracing_read_done(FILE *f)
{
	fclose(f);
	let_signals();
}
