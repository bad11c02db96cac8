// SPDX-License-Identifier: GPL-2.0-only
/*
 * Run another selftest while memory is short.
 *
 *	pressure full|slab|pages COMMAND...
 *
 * full:  the target node of migration is nearly full, and its free memory
 *        consists of single pages
 * slab:  some slab allocations in move_pages(2) fail
 * pages: some page allocations in move_pages(2) fail
 *
 * The exit status is that of the command.  No additional folio may be isolated
 * afterwards.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mo_pressure.h"
#include "mo_util.h"

#define PATH_FAULTS "/sys/kernel/debug/"
#define MPOL_BIND 2

/*
 * Stop this far above the high watermarks, or reclaim frees the hog's memory.
 */
#define STOP_KB (8 * 1024)
/* Memory that stays free above the watermarks: tests move 4 MiB at once. */
#define FREE_KB (24 * 1024)
#define CHUNK SZ_1M

/* Keep this low: a list ends at the first folio that finds no memory. */
#define SLAB_PERCENT 10
#define PAGES_PERCENT 2

#define SETTLE_TRIES 100
#define SETTLE_US 100000

static long long field(const char *path, const char *name)
{
	static char text[65536];
	const char *found;

	mo_read(path, text, sizeof(text));
	found = strstr(text, name);
	if (!found)
		mo_die("%s has no %s", path, name);
	return strtoll(found + strlen(name), NULL, 10);
}

static long long node_kb(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/meminfo",
		 mo_nodes[1]);
	return field(path, name);
}

static long long free_kb(void)
{
	return node_kb(" MemFree:");
}

/* Sum up the high watermarks of the node's zones. */
static long long high_kb(void)
{
	FILE *file = fopen("/proc/zoneinfo", "r");
	long long pages = 0, high;
	bool there = false;
	char line[256];
	int node;

	if (!file)
		mo_die("cannot read /proc/zoneinfo: %m");
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Node %d,", &node) == 1)
			there = node == mo_nodes[1];
		else if (there && sscanf(line, " high %lld", &high) == 1)
			pages += high;
	}
	fclose(file);
	return pages * (SZ_4K / 1024);
}

static char *map_there(size_t bytes)
{
	unsigned long mask[4] = {};
	char *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	mask[mo_nodes[1] / 64] = 1UL << (mo_nodes[1] % 64);
	if (mem == MAP_FAILED || madvise(mem, bytes, MADV_NOHUGEPAGE) ||
	    syscall(SYS_mbind, mem, bytes, MPOL_BIND, mask, 8 * sizeof(mask), 0))
		mo_die("cannot map memory: %m");
	/*
	 * Without the lock, reclaim could swap the memory out during a swap
	 * test.
	 */
	if (syscall(SYS_mlock2, mem, bytes, 1 /* MLOCK_ONFAULT */))
		mo_die("cannot lock memory: %m");
	return mem;
}

/* Take nearly all memory of the node, then free every other page. */
static void fill(void)
{
	size_t bytes = node_kb(" MemTotal:") * 1024 / CHUNK * CHUNK, used, i;
	long long high = high_kb();
	char *mem = map_there(bytes);

	for (used = 0; used < bytes && free_kb() > high + STOP_KB; used += CHUNK)
		for (i = 0; i < CHUNK; i += SZ_4K)
			__atomic_store_n(mem + used + i, 1, __ATOMIC_RELAXED);
	for (i = 0; i < used; i += 2 * SZ_4K) {
		if (i % CHUNK == 0 && free_kb() >= high + FREE_KB)
			break;
		munmap(mem + i, SZ_4K);
	}
	/*
	 * Some freed pages wait on lists of CPUs, and count as locked until
	 * this write drains the lists.
	 */
	mo_write("/proc/sys/vm/drop_caches", "1");
}

/* Returns the pid of the process that holds the memory. */
static pid_t start_hog(void)
{
	int ready[2];
	pid_t pid;
	char c;

	if (pipe(ready))
		mo_die("cannot make a pipe: %m");
	pid = fork();
	if (pid < 0)
		mo_die("cannot fork: %m");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fill();
		if (write(ready[1], "", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		mo_die("the node was not filled");
	printf("# node %d has %lld KiB free\n", mo_nodes[1], free_kb());
	return pid;
}

static void set_fault(const char *fault, const char *file, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), PATH_FAULTS "%s/%s", fault, file);
	mo_write(path, text);
}

/* Make allocations fail for tasks that have set make-it-fail. */
static void set_faults(const char *fault, int percent)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", percent);
	set_fault(fault, "verbose", "0");
	set_fault(fault, "times", "-1");
	set_fault(fault, "task-filter", "Y");
	set_fault(fault, "ignore-gfp-wait", percent ? "N" : "Y");
	set_fault(fault, "probability", text);
}

static long long isolated(void)
{
	return field("/proc/vmstat", "nr_isolated_anon ") +
		field("/proc/vmstat", "nr_isolated_file ");
}

static int run_command(char *const argv[])
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		mo_die("cannot fork: %m");
	if (!pid) {
		execv(argv[0], argv);
		mo_die("cannot execute %s: %m", argv[0]);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		mo_die("%s ended with status %x", argv[0], status);
	return WEXITSTATUS(status);
}

static int run_with_faults(const char *fault, int percent, char *const argv[])
{
	char path[128];
	int code;

	snprintf(path, sizeof(path), PATH_FAULTS "%s", fault);
	if (!mo_exists(path))
		ksft_exit_skip("no %s\n", fault);
	if (!strcmp(fault, "failslab")) {
		set_fault(fault, "cache-filter", "N");
	} else {
		set_fault(fault, "min-order", "0");
		set_fault(fault, "ignore-gfp-highmem", "N");
	}
	setenv(MO_PRESSURE, fault, 1);
	/*
	 * The kernel writes to the memory of rseq(2) itself.  If this page is
	 * shared after a fork and a copy finds no memory, the thread dies.
	 */
	setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);
	set_faults(fault, percent);
	code = run_command(argv);
	set_faults(fault, 0);
	return code;
}

static int run_when_full(char *const argv[])
{
	pid_t hog = start_hog();
	int code = run_command(argv);

	kill(hog, SIGKILL);
	waitpid(hog, NULL, 0);
	return code;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";
	int code, tries;
	long long before;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (mo_cannot_run())
		ksft_exit_skip("%s\n", mo_cannot_run());
	before = isolated();
	if (!strcmp(what, "full"))
		code = run_when_full(argv + 2);
	else if (!strcmp(what, "slab"))
		code = run_with_faults("failslab", SLAB_PERCENT, argv + 2);
	else if (!strcmp(what, "pages"))
		code = run_with_faults("fail_page_alloc", PAGES_PERCENT, argv + 2);
	else
		mo_die("usage: pressure full|slab|pages COMMAND...");

	for (tries = 0; tries < SETTLE_TRIES && isolated() > before; tries++)
		usleep(SETTLE_US);
	if (isolated() <= before)
		return code;
	printf("# %lld pages are isolated, and were %lld\n", isolated(), before);
	return 1;
}
