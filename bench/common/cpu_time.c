// SPDX-License-Identifier: GPL-2.0-only
/* The kernel's accounting of one CPU's time. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "compaction.h"

/*
 * Find the line "cpuN user nice system idle iowait irq softirq steal ..." in
 * the text of /proc/stat.  Sums are in ticks.
 */
bool cpu_ticks_parse(const char *text, int cpu, struct cpu_ticks *ticks)
{
	unsigned long long n[8] = { 0 };
	char name[16];
	size_t len;

	snprintf(name, sizeof(name), "cpu%d ", cpu);
	len = strlen(name);
	while (text && strncmp(text, name, len)) {
		text = strchr(text, '\n');
		text += !!text;
	}
	if (!text || sscanf(text + len, "%llu %llu %llu %llu %llu %llu %llu %llu",
			    &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6],
			    &n[7]) < 7)
		return false;
	*ticks = (struct cpu_ticks){
		.user = n[0] + n[1],
		.system = n[2] + n[5] + n[6],
		.idle = n[3] + n[4],
		.steal = n[7],
	};
	return true;
}

bool cpu_ticks_read(int cpu, struct cpu_ticks *ticks)
{
	static char text[1 << 16];
	FILE *f = fopen("/proc/stat", "re");
	size_t len = 0;

	if (f) {
		/*
		 * The CPUs' lines come first, so a part of the file is enough.
		 */
		len = fread(text, 1, sizeof(text) - 1, f);
		fclose(f);
	}
	text[len] = '\0';
	return cpu_ticks_parse(text, cpu, ticks);
}

/* Returns the time between two sums of ticks. */
uint64_t cpu_ticks_ns(uint64_t before, uint64_t after)
{
	uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);

	/* The kernel may correct idle time downwards. */
	return after > before ? (after - before) * (1000000000ULL / hz) : 0;
}

/* CPU time of the calling thread. */
uint64_t thread_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}
