// SPDX-License-Identifier: GPL-2.0-only
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mo_pressure.h"
#include "mo_util.h"

/* numaif.h is part of libnuma, which these tests do not need. */
#define MPOL_DEFAULT 0
#define MPOL_MF_MOVE 2
#define MPOL_MF_MOVE_ALL 4
#define PRESSURE_TRIES 8

int mo_nodes[2];

void mo_die(const char *fmt, ...)
{
	va_list args;

	printf("# ");
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	_exit(1);
}

void mo_run_on(int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		mo_die("cannot run on CPU %d: %m", cpu);
}

bool mo_exists(const char *path)
{
	return !access(path, F_OK);
}

int mo_try_read(const char *path, char *buf, size_t size)
{
	int ret = 0, fd = open(path, O_RDONLY);
	ssize_t len;

	if (fd < 0)
		return -errno;
	len = read(fd, buf, size - 1);
	if (len < 0)
		ret = -errno;
	else
		buf[len] = '\0';
	close(fd);
	return ret;
}

void mo_read(const char *path, char *buf, size_t size)
{
	int ret = mo_try_read(path, buf, size);

	if (ret)
		mo_die("cannot read %s: %s", path, strerror(-ret));
}

long long mo_read_number(const char *path)
{
	char text[32];

	mo_read(path, text, sizeof(text));
	return strtoll(text, NULL, 0);
}

long long mo_read_line(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	char key[64];
	long long number;

	if (!file)
		mo_die("cannot open %s: %m", path);
	while (fscanf(file, "%63s %lld\n", key, &number) == 2) {
		if (!strcmp(key, name)) {
			fclose(file);
			return number;
		}
	}
	mo_die("no %s in %s", name, path);
}

long long mo_vm_counter(const char *name)
{
	char ignored[8];

	/* CPUs keep some counts to themselves until this read. */
	mo_read("/proc/sys/vm/stat_refresh", ignored, sizeof(ignored));
	return mo_read_line("/proc/vmstat", name);
}

int mo_try_write(const char *path, const char *text)
{
	int ret = 0, fd = open(path, O_WRONLY);

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

void mo_write(const char *path, const char *text)
{
	int ret = mo_try_write(path, text);

	if (ret)
		mo_die("cannot write %s to %s: %s", text, path, strerror(-ret));
}

void mo_write_number(const char *path, long long number)
{
	char text[32];

	snprintf(text, sizeof(text), "%lld", number);
	mo_write(path, text);
}

void mo_write_pages(int fd, const void *data, size_t bytes)
{
	size_t at;

	for (at = 0; at < bytes; at += SZ_4K)
		if (pwrite(fd, (const char *)data + at, SZ_4K, at) != SZ_4K)
			mo_die("cannot write to a file: %m");
	if (fsync(fd))
		mo_die("cannot write to a file: %m");
}

long long mo_counter(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), PATH_OFFLOAD "stats/reasons/syscall_or_cpuset/%s",
		 name);
	return mo_read_number(path);
}

long long mo_waited_ns(void)
{
	static const char path[] = "/proc/thread-self/schedstat";
	long long ns = 0;
	char text[80];

	if (!mo_exists(path))
		return 0;
	mo_read(path, text, sizeof(text));
	if (sscanf(text, "%*d %lld", &ns) != 1)
		mo_die("%s: unexpected content", path);
	return ns;
}

void mo_select(const char *engine)
{
	/* On an emulated machine, the core would often choose the CPU. */
	mo_set_limit("engine_always", 1);
	mo_write(PATH_OFFLOAD "engine", engine);
}

void mo_select_for(const char *reason, const char *engine)
{
	char path[300];

	snprintf(path, sizeof(path), PATH_OFFLOAD "engine_of/%s", reason);
	mo_write(path, engine);
}

void mo_select_for_all(const char *engine)
{
	DIR *dir = opendir(PATH_OFFLOAD "engine_of");
	struct dirent *entry;

	if (!dir)
		mo_die("cannot read " PATH_OFFLOAD "engine_of: %m");
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			mo_select_for(entry->d_name, engine);
	closedir(dir);
}

const char *mo_engine(unsigned int nth)
{
	const char *wanted = getenv("ENGINE");
	static char names[256];
	char *rest = names, *name;

	if (wanted)
		return nth ? NULL : wanted;

	mo_read(PATH_OFFLOAD "available_engines", names, sizeof(names));
	while ((name = strsep(&rest, "\n ")))
		if (*name && strcmp(name, "none") && !nth--)
			return name;
	return NULL;
}

int mo_run(const char *const argv[])
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		mo_die("cannot fork: %m");
	if (!pid) {
		dup2(STDERR_FILENO, STDOUT_FILENO);
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) != pid)
		mo_die("cannot wait for %s: %m", argv[0]);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static const char *const test_engine_modes[] = {
	[MO_TEST_PLAIN] = "",
	[MO_TEST_POSTED] = "posted",
	[MO_TEST_STREAM] = "stream",
};

/* The mode in which the module is loaded. */
static enum mo_test_mode test_engine_mode(void)
{
	enum mo_test_mode mode;
	char path[96], now[8];

	for (mode = MO_TEST_POSTED; mode <= MO_TEST_STREAM; mode++) {
		snprintf(path, sizeof(path),
			 "/sys/module/migrate_offload_test/parameters/%s",
			 test_engine_modes[mode]);
		mo_read(path, now, sizeof(now));
		if (now[0] == 'Y')
			return mode;
	}
	return MO_TEST_PLAIN;
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

bool mo_load_test_engine(enum mo_test_mode mode)
{
	const char *const unload[] = { "modprobe", "-r", "migrate_offload_test",
				       NULL };
	char param[16] = "";
	const char *const load[] = { "modprobe", "migrate_offload_test",
				     *test_engine_modes[mode] ? param : NULL,
				     NULL };

	mo_select("none");
	if (mo_exists("/sys/module/migrate_offload_test")) {
		/* Reload a struct migrator: its registration activates it. */
		if (mode != MO_TEST_POSTED && mode == test_engine_mode())
			return true;
		if (mo_run(unload))
			return false;
	}
	snprintf(param, sizeof(param), "%s=1", test_engine_modes[mode]);
	return !mo_run(load);
}

static void reset_test_engine(void)
{
	static const char *const switches[] = {
		"decline", "unwilling", "delay_us", "fail_nth", "lie_nth",
		"hold_nth", "decline_submit", "decline_nth",
		"submit_delay_us", "pair_delay_us", "max_in_flight",
		"report_early", "report_now", "helper_ms",
	};
	char path[128];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(switches); i++) {
		snprintf(path, sizeof(path), PATH_TEST "%s", switches[i]);
		if (mo_exists(path))
			mo_write(path, "0");
	}
	if (mo_exists(PATH_TEST "order"))
		mo_write(PATH_TEST "order", "fifo");
}

void mo_set_limit(const char *name, long long number)
{
	char path[128];

	snprintf(path, sizeof(path), PATH_OFFLOAD "%s", name);
	if (!mo_exists(path))
		snprintf(path, sizeof(path), PATH_DEBUG "%s", name);
	if (mo_exists(path))
		mo_write_number(path, number);
}

void mo_reset(void)
{
	mo_select("none");
	mo_select_for_all("default");
	mo_set_limit("max_batch_pages", 512);
	mo_set_limit("max_windows", 2);
	mo_set_limit("streaming", 1);
	mo_set_limit("verify", 0);
	if (mo_exists(PATH_OFFLOAD "max_unmapped_us"))
		mo_write(PATH_OFFLOAD "max_unmapped_us", "default");
	reset_test_engine();
}

static void read_entries(const char *path, __u64 index, size_t nr,
			 __u64 *entries)
{
	ssize_t bytes = nr * sizeof(*entries);
	int fd = open(path, O_RDONLY);

	if (fd < 0)
		mo_die("cannot open %s: %m", path);
	if (pread(fd, entries, bytes, index * sizeof(*entries)) != bytes)
		mo_die("cannot read %s: %m", path);
	close(fd);
}

static __u64 read_entry(const char *path, __u64 index)
{
	__u64 entry;

	read_entries(path, index, 1, &entry);
	return entry;
}

__u64 mo_pagemap(const void *addr)
{
	return read_entry("/proc/self/pagemap", (uintptr_t)addr / SZ_4K);
}

void mo_pagemaps(const void *addr, size_t nr, __u64 *entries)
{
	read_entries("/proc/self/pagemap", (uintptr_t)addr / SZ_4K, nr, entries);
}

void mo_pfns(const void *addr, size_t nr, __u64 *pfns)
{
	size_t i;

	mo_pagemaps(addr, nr, pfns);
	for (i = 0; i < nr; i++) {
		if (!(pfns[i] & (1ULL << 63)))
			mo_die("no page at %p", addr + i * SZ_4K);
		pfns[i] &= (1ULL << 55) - 1;
	}
}

__u64 mo_pfn(const void *addr)
{
	__u64 pfn;

	mo_pfns(addr, 1, &pfn);
	return pfn;
}

void mo_page_flags(__u64 pfn, size_t nr, __u64 *flags)
{
	read_entries("/proc/kpageflags", pfn, nr, flags);
}

bool mo_swapped(const void *addr)
{
	return mo_pagemap(addr) & (1ULL << 62);
}

bool mo_page_flag(const void *addr, unsigned int flag)
{
	return read_entry("/proc/kpageflags", mo_pfn(addr)) & (1ULL << flag);
}

long long mo_referenced_kb(const char *mem)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	unsigned long long start, end;
	char line[256];
	bool here = false;
	long long kb = -1, sum = 0;

	if (!file)
		mo_die("cannot open /proc/self/smaps: %m");
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%llx-%llx ", &start, &end) == 2)
			here = start <= (size_t)mem && (size_t)mem < end;
		else if (here && sscanf(line, "Referenced: %lld", &kb) == 1)
			sum = kb;
	}
	fclose(file);
	return sum;
}

static long move_pages_once(void **pages, unsigned long nr, int *nodes, int *status)
{
	long ret = syscall(SYS_move_pages, 0, nr, pages, nodes, status,
			   MPOL_MF_MOVE_ALL);

	return ret < 0 ? -errno : ret;
}

long mo_move_pages(void **pages, unsigned long nr, int node)
{
	int *nodes = malloc(nr * sizeof(*nodes));
	int *status = malloc(nr * sizeof(*status));
	unsigned long i, tries;
	long ret;

	if (!nodes || !status)
		mo_die("no memory");
	for (i = 0; i < nr; i++)
		nodes[i] = node;
	/*
	 * Under pressure some pages stay.  Tests expect the later move to
	 * succeed.
	 */
	for (ret = 1, tries = 0; ret && tries < PRESSURE_TRIES; tries++) {
		if (!mo_pressure(true))
			break;
		ret = move_pages_once(pages, nr, nodes, status);
		mo_pressure(false);
	}
	if (ret)
		ret = move_pages_once(pages, nr, nodes, status);
	free(status);
	free(nodes);
	return ret;
}

void mo_drain(void)
{
	void *page = mmap(NULL, SZ_4K, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);

	if (page == MAP_FAILED)
		mo_die("cannot map a page: %m");
	if (syscall(SYS_mbind, page, SZ_4K, MPOL_DEFAULT, NULL, 0,
		    MPOL_MF_MOVE))
		mo_die("cannot bind a page: %m");
	munmap(page, SZ_4K);
}

void mo_query(void **pages, unsigned long nr, int *nodes)
{
	if (syscall(SYS_move_pages, 0, nr, pages, NULL, nodes, 0))
		mo_die("cannot query the nodes of pages: %m");
}

__u64 mo_mix(__u64 a, __u64 b)
{
	__u64 x = a + 0x9e3779b97f4a7c15ULL * (b + 1);

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

__u64 mo_seed(void)
{
	__u64 seed;

	/*
	 * With a fixed seed, a destination that was never written might hold
	 * the right content from an earlier move.
	 */
	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		mo_die("no random numbers: %m");
	return seed;
}

const char *mo_find_nodes(void)
{
	unsigned int nr = 0, first, last;
	char list[256], *rest = list;
	int len;

	/* A list of ranges, such as 0-1,4. */
	mo_read("/sys/devices/system/node/has_memory", list, sizeof(list));
	while (nr < 2 && sscanf(rest, "%u%n", &first, &len) == 1) {
		rest += len;
		last = first;
		if (sscanf(rest, "-%u%n", &last, &len) == 1)
			rest += len;
		for (; first <= last && nr < 2; first++)
			mo_nodes[nr++] = first;
		rest += *rest == ',';
	}
	return nr < 2 ? "needs two nodes with memory" : NULL;
}

const char *mo_cannot_run(void)
{
	if (geteuid())
		return "needs root";
	if (!mo_exists(PATH_OFFLOAD "engine"))
		return "this kernel has no batch copy";
	return mo_find_nodes();
}
