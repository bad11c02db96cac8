// SPDX-License-Identifier: GPL-2.0-only
/* Find when the first folio of a call was accessible again, by a tracepoint. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "latency.h"
#include "tracing.h"

#define EVENT "mm_migrate_first_folio"

/* Returns false if the event cannot be traced.  Then the time stays unknown. */
bool first_open(void)
{
	char filter[32];

	/* Exclude migrations of other tasks. */
	snprintf(filter, sizeof(filter), "common_pid == %d", getpid());
	return tracing_open("migrate/" EVENT, false, filter);
}

bool first_read(uint64_t *since_start_ns)
{
	static const char key[] = " since_start_ns=";
	FILE *f = tracing_read();
	bool found = false;
	char line[512];

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
		tracing_read_done(f);
	return found;
}
