// SPDX-License-Identifier: GPL-2.0-only
/*
 * Find when a task had moved its last folio, by the tracepoint
 * mm_migrate_pages.  All kernels have it, and it fires once per list.
 */
#include <stdio.h>
#include <string.h>

#include "tiers.h"
#include "tracing.h"

#define EVENT "mm_migrate_pages"
#define NS_PER_US 1000ULL
#define US_PER_S 1000000ULL

/* Returns false if the event cannot be traced.  Then the time stays unknown. */
bool last_move_open(void)
{
	/* A filter replaces this one: see last_move_arm(). */
	return tracing_open("migrate/" EVENT, true, "0");
}

/*
 * From now on record lists of which this task moved a folio.  With @huge pages,
 * ignore its small ones, which may move later.
 */
void last_move_arm(pid_t pid, bool huge)
{
	char filter[64];

	snprintf(filter, sizeof(filter), "common_pid == %d && %s > 0", pid,
		 huge ? "thp_succeeded" : "succeeded");
	/* Without the filter, moves of all other tasks would count. */
	if (!tracing_set_event("filter", filter))
		tracing_close();
	tracing_empty();
}

/*
 * Parse "<...>-77 [000] ..... 12.345678: mm_migrate_pages: nr_succeeded=512 ...
 * reason=demotion".  The time before the colon is exact to a microsecond.
 */
bool last_move_parse(const char *line, const char *reason, uint64_t *at_ns)
{
	const char *name = strstr(line, ": " EVENT ": "), *begin = name;
	const char *last = strstr(line, " reason=");
	unsigned long long s, us;
	size_t len = strlen(reason);
	int used = 0;

	if (!name || !last)
		return false;
	last += strlen(" reason=");
	if (strncmp(last, reason, len) || !strchr(" \n", last[len]))
		return false;
	while (begin > line && begin[-1] != ' ')
		begin--;
	if (sscanf(begin, "%llu.%6llu%n", &s, &us, &used) != 2 ||
	    begin + used != name)
		return false;
	*at_ns = (s * US_PER_S + us) * NS_PER_US;
	return true;
}

/*
 * Read when the task had moved the last list for this reason, by
 * bench_now_ns().
 */
bool last_move_read(const char *reason, uint64_t *at_ns)
{
	FILE *f = tracing_read();
	bool found = false;
	char line[512];

	/* The trace merges the lines of all CPUs in order of time. */
	while (f && fgets(line, sizeof(line), f))
		found |= last_move_parse(line, reason, at_ns);
	if (f)
		tracing_read_done(f);
	return found;
}
