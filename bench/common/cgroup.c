// SPDX-License-Identifier: GPL-2.0-only
/*
 * A new cgroup (v2) for this process.  The cgroup is charged for all memory
 * that the process allocates, so the kernel can reclaim this memory alone.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tiers.h"

#define CGROUP_ROOT "/sys/fs/cgroup"
#define SUBTREE CGROUP_ROOT "/cgroup.subtree_control"

static char group[64], home[320];
static bool enabled_memory;

/* The cgroup in which this process was started, by its cgroup.procs. */
static bool home_find(void)
{
	char text[256];
	char *line;

	if (!file_read("/proc/self/cgroup", text, sizeof(text)))
		return false;
	line = strstr(text, "0::/");
	if (!line)
		return false;
	line[strcspn(line, "\n")] = '\0';
	snprintf(home, sizeof(home), CGROUP_ROOT "%s/cgroup.procs", line + 3);
	return true;
}

/* Async-signal-safe. */
void cgroup_close(void)
{
	if (group[0]) {
		/* "0" stands for the process that writes. */
		file_write(home, "0");
		rmdir(group);
		group[0] = '\0';
	}
	if (enabled_memory) {
		file_write(SUBTREE, "-memory");
		enabled_memory = false;
	}
}

static bool has_memory(const char *path)
{
	char text[256];

	return file_read(path, text, sizeof(text)) && strstr(text, "memory");
}

static void file_path(char *path, size_t size, const char *name)
{
	snprintf(path, size, "%s/%s", group, name);
}

/* Ends the program where there is no cgroup v2 with the memory controller. */
void cgroup_open(void)
{
	char path[160];

	if (!has_memory(CGROUP_ROOT "/cgroup.controllers") || !home_find())
		bench_die(BENCH_LACKING,
			  CGROUP_ROOT "/cgroup.controllers does not list memory: this needs cgroup v2 mounted there and CONFIG_MEMCG");
	settings_restore_after(cgroup_close);
	if (!has_memory(SUBTREE)) {
		if (!file_write(SUBTREE, "+memory"))
			bench_die(BENCH_LACKING,
				  "cannot write '+memory' to " SUBTREE ": %s",
				  strerror(errno));
		enabled_memory = true;
	}
	snprintf(group, sizeof(group), CGROUP_ROOT "/pageferry-%d", getpid());
	if (mkdir(group, 0755)) {
		int err = errno;

		snprintf(path, sizeof(path), "%s", group);
		group[0] = '\0';
		bench_die(BENCH_LACKING, "cannot make %s: %s", path,
			  strerror(err));
	}
	file_path(path, sizeof(path), "memory.reclaim");
	if (access(path, W_OK))
		bench_die(BENCH_LACKING,
			  "cannot write %s: %s (Linux has it since 5.19)", path,
			  strerror(errno));
	/* Reclaim must move the memory to another node, not to swap. */
	file_path(path, sizeof(path), "memory.swap.max");
	if (!access(path, F_OK))
		file_write(path, "0");
	file_path(path, sizeof(path), "cgroup.procs");
	if (!file_write(path, "0"))
		bench_die(BENCH_LACKING, "cannot write '0' to %s: %s", path,
			  strerror(errno));
}

/* Returns false with the kernel's errno. */
bool cgroup_write(const char *name, const char *value)
{
	char path[160];

	file_path(path, sizeof(path), name);
	return file_write(path, value);
}

static void write_failed(const char *name, uint64_t bytes)
{
	bench_die(BENCH_FAILED, "cannot write %llu to %s: %s",
		  (unsigned long long)bytes, name, strerror(errno));
}

/*
 * Reclaim this much from the cgroup.  Returns false if the kernel found less.
 */
bool cgroup_reclaim(uint64_t bytes)
{
	bool done = cgroup_write("memory.reclaim", decimal(bytes).text);

	if (!done && errno != EAGAIN)
		write_failed("memory.reclaim", bytes);
	return done;
}

/* Set a limit this far above the present usage, or below it. */
void cgroup_limit(const char *name, int64_t above)
{
	uint64_t bytes;
	char path[160];

	file_path(path, sizeof(path), "memory.current");
	if (!file_read_u64(path, &bytes))
		bench_die(BENCH_FAILED, "cannot read memory.current: %s",
			  strerror(errno));
	bytes = above < 0 && bytes < (uint64_t)-above ? 0 : bytes + (uint64_t)above;
	if (!cgroup_write(name, decimal(bytes).text))
		write_failed(name, bytes);
}

/* Parse "some avg10=0.00 ... total=12", or the same line for "full". */
bool stall_parse(const char *text, const char *kind, uint64_t *us)
{
	static const char key[] = "total=";
	char number[32] = "";
	const char *line = text, *value;

	while (line && strncmp(line, kind, strlen(kind))) {
		line = strchr(line, '\n');
		line += line != NULL;
	}
	value = line ? strstr(line, key) : NULL;
	if (!value)
		return false;
	value += sizeof(key) - 1;
	memcpy(number, value, strnlen(value, sizeof(number) - 1));
	number[strspn(number, "0123456789")] = '\0';
	return parse_u64(number, us);
}

/* Read how long tasks of the cgroup waited for memory.  Needs CONFIG_PSI. */
bool cgroup_stall(struct stall *s)
{
	char path[160], text[512];

	file_path(path, sizeof(path), "memory.pressure");
	return file_read(path, text, sizeof(text)) &&
	       stall_parse(text, "some ", &s->some_us) &&
	       stall_parse(text, "full ", &s->full_us);
}
