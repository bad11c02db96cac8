// SPDX-License-Identifier: GPL-2.0-only
/*
 * Moves of physical memory by DAMON: the only caller that moves memory which no
 * process maps, and nothing else.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"

#define KDAMONDS "/sys/kernel/mm/damon/admin/kdamonds"
#define NR_KDAMONDS KDAMONDS "/nr_kdamonds"
#define KDAMOND KDAMONDS "/0/"
#define CONTEXT "contexts/0/"
#define INTERVALS CONTEXT "monitoring_attrs/intervals/"
#define RANGES CONTEXT "targets/0/regions/"
#define SCHEME CONTEXT "schemes/0/"

/* DAMON looks at memory after this time, and then moves all of it at once. */
#define INTERVAL_US "1000000"
#define INTERVAL_NS 1000000000ULL

/* A filter leaves out anonymous memory, which other tasks have in the ranges. */
static const struct {
	const char *file, *value;
} settings[] = {
	{ "contexts/nr_contexts", "1" },
	{ CONTEXT "operations", "paddr" },
	{ INTERVALS "sample_us", INTERVAL_US },
	{ INTERVALS "aggr_us", INTERVAL_US },
	{ INTERVALS "update_us", INTERVAL_US },
	/* No fewer than ranges. */
	{ CONTEXT "monitoring_attrs/nr_regions/max", "1000" },
	{ CONTEXT "targets/nr_targets", "1" },
	{ CONTEXT "schemes/nr_schemes", "1" },
	{ SCHEME "action", "migrate_cold" },
	{ SCHEME "access_pattern/sz/max", "18446744073709551615" },
	{ SCHEME "access_pattern/nr_accesses/max", "4294967295" },
	{ SCHEME "access_pattern/age/max", "4294967295" },
	{ SCHEME "filters/nr_filters", "1" },
	{ SCHEME "filters/0/type", "anon" },
	{ SCHEME "filters/0/matching", "Y" },
};

static void must_write(const char *file, const char *value)
{
	char path[160];

	snprintf(path, sizeof(path), KDAMOND "%s", file);
	if (!file_write(path, value))
		bench_die(BENCH_LACKING, "cannot write '%s' to %s: %s", value,
			  path, strerror(errno));
}

/* Async-signal-safe. */
static void remove_kdamond(void)
{
	file_write(KDAMOND "state", "off");
	file_write(NR_KDAMONDS, "0");
}

/* CPU time of the kdamond, without that of its sleep. */
static uint64_t cpu_ns(uint64_t pid)
{
	unsigned long long ns;
	char path[64], text[96];

	snprintf(path, sizeof(path), "/proc/%llu/schedstat",
		 (unsigned long long)pid);
	if (!file_read(path, text, sizeof(text)) ||
	    sscanf(text, "%llu", &ns) != 1)
		bench_die(BENCH_LACKING, "cannot read %s: %s", path,
			  strerror(errno));
	return ns;
}

static void write_ranges(const struct physical *ranges, size_t nr)
{
	char file[80];

	must_write(RANGES "nr_regions", decimal(nr).text);
	for (size_t i = 0; i < nr; i++) {
		snprintf(file, sizeof(file), RANGES "%zu/start", i);
		must_write(file, decimal(ranges[i].start).text);
		snprintf(file, sizeof(file), RANGES "%zu/end", i);
		must_write(file, decimal(ranges[i].end).text);
	}
}

/*
 * Move the pages in @ranges that are no anonymous memory to @node.  Returns the
 * CPU time of that.
 */
uint64_t damon_move(const struct physical *ranges, size_t nr, int node)
{
	uint64_t nr_kdamonds, pid, before, after;

	if (!file_read_u64(NR_KDAMONDS, &nr_kdamonds))
		bench_die(BENCH_LACKING,
			  "cannot read " NR_KDAMONDS ": this needs CONFIG_DAMON_SYSFS and CONFIG_DAMON_PADDR");
	if (nr_kdamonds)
		bench_die(BENCH_LACKING,
			  "DAMON is in use: " NR_KDAMONDS " is not 0");
	settings_restore_after(remove_kdamond);
	if (!file_write(NR_KDAMONDS, "1"))
		bench_die(BENCH_LACKING, "cannot write '1' to " NR_KDAMONDS ": %s",
			  strerror(errno));
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		must_write(settings[i].file, settings[i].value);
	write_ranges(ranges, nr);
	must_write(SCHEME "target_nid", decimal((uint64_t)node).text);
	must_write("state", "on");
	if (!file_read_u64(KDAMOND "pid", &pid))
		bench_die(BENCH_FAILED, "DAMON has not started");
	bench_sleep_ns(INTERVAL_NS / 2);
	before = cpu_ns(pid);
	bench_sleep_ns(INTERVAL_NS);
	after = cpu_ns(pid);
	remove_kdamond();
	return after - before;
}
