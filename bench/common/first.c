// SPDX-License-Identifier: GPL-2.0-only
/*
 * When the first folio of a call was accessible again: the tracepoint
 * mm_migrate_first_folio, in an instance of tracefs that nobody else uses.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "latency.h"

#define EVENT "mm_migrate_first_folio"

static char instance[64];

static bool instance_write(const char *name, const char *value)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", instance, name);
	return file_write(path, value);
}

/* Async-signal-safe. */
void first_close(void)
{
	if (!instance[0])
		return;
	rmdir(instance);
	instance[0] = '\0';
}

/*
 * An instance made while record-cmd is off never learns the names of tasks, for
 * which tracing would look on at every task switch.
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

/* False where this cannot be traced: then nobody knows about the first folio. */
bool first_open(void)
{
	static const char *const places[] = { "/sys/kernel/tracing",
					      "/sys/kernel/debug/tracing" };
	char filter[32];

	if (!instance_make(places[0]) && !instance_make(places[1]))
		return false;
	if (atexit(first_close))
		bench_die(BENCH_FAILED, "atexit: %s", strerror(errno));
	/*
	 * Only the first event counts, so a small buffer that keeps what came
	 * first will do.  What others migrate meanwhile is not ours.
	 */
	snprintf(filter, sizeof(filter), "common_pid == %d", getpid());
	if (instance_write("buffer_size_kb", "16") &&
	    instance_write("options/overwrite", "0") &&
	    instance_write("events/migrate/" EVENT "/filter", filter) &&
	    instance_write("events/migrate/" EVENT "/enable", "1"))
		return true;
	first_close();
	return false;
}

void first_arm(void)
{
	char path[160];
	FILE *f;

	if (!instance[0])
		return;
	/* Opening it for writing empties it. */
	snprintf(path, sizeof(path), "%s/trace", instance);
	f = fopen(path, "we");
	if (f)
		fclose(f);
}

bool first_read(uint64_t *since_start_ns)
{
	static const char key[] = " since_start_ns=";
	char path[160], line[512];
	bool found = false;
	FILE *f;

	if (!instance[0])
		return false;
	snprintf(path, sizeof(path), "%s/trace", instance);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f)) {
		char *value = strstr(line, EVENT ":") ? strstr(line, key) :
							NULL;

		if (!value)
			continue;
		value += sizeof(key) - 1;
		value[strspn(value, "0123456789")] = '\0';
		found = parse_u64(value, since_start_ns);
	}
	if (f)
		fclose(f);
	return found;
}
