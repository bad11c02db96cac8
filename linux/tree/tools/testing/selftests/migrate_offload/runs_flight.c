// SPDX-License-Identifier: GPL-2.0-only
/* What may happen to memory while its pages are under way. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../kselftest.h"
#include "mo_hazard.h"
#include "mo_run.h"
#include "mo_util.h"

#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif

#define FIRST_REWRITTEN 8
#define LAST_REWRITTEN 47

/* Give some pages back, and write to new ones that take their place. */
static void rewrite(struct mo_area *area)
{
	size_t i, bytes = (LAST_REWRITTEN - FIRST_REWRITTEN + 1) * SZ_4K;
	char *mem = area->mem + FIRST_REWRITTEN * SZ_4K;

	if (madvise(mem, bytes, MADV_DONTNEED))
		mo_die("madvise: %m");
	memset(mem, 0x3c, bytes);
	for (i = FIRST_REWRITTEN; i <= LAST_REWRITTEN; i++)
		mo_expect_byte(area, i, 0x3c);
}

int mo_run_rewritten(void)
{
	struct mo_area area;

	mo_run_map(&area, RUN_PAGES);
	mo_run_move(&area, 0, rewrite);
	return mo_verdict(&area);
}

static struct mo_kin kin;

static void fork_kin(struct mo_area *area)
{
	mo_kin_start(&kin, area);
}

/* Each page has two entries then, and both have to be replaced. */
int mo_run_forked(void)
{
	struct mo_area area;
	int result;

	mo_run_map(&area, RUN_PAGES);
	mo_run_move(&area, 0, fork_kin);
	/* Whoever has such entries must not end, which the child then does not. */
	if (mo_run_dangles(getpid(), &area))
		mo_stay();
	if (mo_run_dangles(kin.pid, &area))
		return DAMAGED;
	result = mo_kin_ask(&kin, KIN_CHECKS);
	memset(area.mem, 0x77, area.bytes);
	if (!result)
		result = mo_kin_ask(&kin, KIN_CHECKS);
	mo_kin_end(&kin);
	memset(area.shadow, 0x77, area.bytes);
	return result ?: mo_verdict(&area);
}

static void lock_memory(struct mo_area *area)
{
	/* Does not wait for pages that are not there. */
	if (syscall(SYS_mlock2, area->mem, area->bytes, MLOCK_ONFAULT))
		mo_die("mlock2: %m");
}

/* Whoever locks memory finds no pages there: they are locked when they arrive. */
int mo_run_mlocked(void)
{
	size_t i, unlocked = 0;
	struct mo_area area;

	mo_run_map(&area, RUN_PAGES);
	mo_run_move(&area, 0, lock_memory);
	for (i = 0; i < area.bytes; i += SZ_4K)
		unlocked += !mo_page_flag(area.mem + i, KPF_MLOCKED);
	if (mo_verdict(&area))
		return DAMAGED;
	if (unlocked)
		printf("# %zu pages are not mlocked\n", unlocked);
	return unlocked ? DAMAGED : RIGHT;
}

/* A thread that writes a number to each page, and knows which was the last. */
static struct {
	atomic_bool stop;
	atomic_bool stopped;
	atomic_ulong rounds;
	struct mo_area *area;
	__u64 written[RUN_PAGES];
} writer;

static void pin_to_cpu(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		mo_die("cannot run on CPU %d: %m", cpu);
}

/* No system calls here: what is in the TLB is to stay there. */
static void *write_on(void *arg)
{
	__u64 number = 0;
	size_t i;

	pin_to_cpu(sysconf(_SC_NPROCESSORS_ONLN) - 1);
	while (!atomic_load(&writer.stop)) {
		number++;
		for (i = 0; i < RUN_PAGES; i++) {
			__u64 *page = (__u64 *)(writer.area->mem + i * SZ_4K);

			__atomic_store_n(page, number, __ATOMIC_RELAXED);
			writer.written[i] = number;
		}
		atomic_fetch_add(&writer.rounds, 1);
	}
	writer.stopped = true;
	return NULL;
}

static unsigned long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000UL + now.tv_nsec / 1000000;
}

/*
 * The engine has copied, and sleeps.  A writer that may still write goes on for
 * some time, and must be done before the pages that it writes to are free.  Else
 * it is asleep by now.  By the clock: each nap may take much longer than it says.
 */
static void stop_writer(struct mo_area *area)
{
	unsigned long rounds, until;

	usleep(200000);
	rounds = writer.rounds;
	until = now_ms() + 300;
	while (writer.rounds < rounds + 100 && now_ms() < until)
		usleep(10000);
	writer.stop = true;
	until = now_ms() + 200;
	while (!writer.stopped && now_ms() < until)
		usleep(10000);
}

/* As the TLB of this CPU may be as wrong as that of the other one. */
static __u64 read_remotely(int fd, const void *addr)
{
	__u64 number;

	if (pread(fd, &number, sizeof(number), (off_t)addr) != sizeof(number))
		mo_die("cannot read memory: %m");
	return number;
}

static size_t count_lost(int fd)
{
	size_t i, lost = 0;
	struct mo_area area;
	pthread_t thread;

	mo_run_map(&area, RUN_PAGES);
	memset(&writer, 0, sizeof(writer));
	writer.area = &area;
	if (pthread_create(&thread, NULL, write_on, NULL))
		mo_die("cannot create a thread");
	while (atomic_load(&writer.rounds) < 1000)
		usleep(1000);
	mo_run_move(&area, 0, stop_writer);
	pthread_join(thread, NULL);
	for (i = 0; i < RUN_PAGES; i++)
		lost += read_remotely(fd, area.mem + i * SZ_4K) !=
			writer.written[i];
	mo_unmap(&area);
	return lost;
}

/*
 * A CPU that has an entry in its TLB writes to the page that was left.  When
 * another process runs there for a moment its TLB may be flushed: try again.
 */
int mo_run_stale_tlb(void)
{
	int fd = open("/proc/self/mem", O_RDONLY);
	size_t lost = 0;
	int tries;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return mo_skip("there is one CPU only");
	if (fd < 0)
		mo_die("cannot open /proc/self/mem: %m");
	pin_to_cpu(0);
	for (tries = 0; tries < 5 && !lost; tries++)
		lost = count_lost(fd);
	if (lost)
		printf("# what was written last to %zu pages is lost\n", lost);
	return lost ? DAMAGED : RIGHT;
}

/* Somewhere else, in another page table. */
static void move_memory(struct mo_area *area)
{
	char *to = mmap(NULL, area->bytes + SZ_2M, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (to == MAP_FAILED)
		mo_die("cannot map memory: %m");
	area->mem = mremap(area->mem, area->bytes, area->bytes,
			   MREMAP_MAYMOVE | MREMAP_FIXED, to + SZ_2M);
	if (area->mem == MAP_FAILED)
		mo_die("mremap: %m");
}

int mo_run_moved(void)
{
	struct mo_area area;

	mo_run_map(&area, RUN_PAGES);
	mo_run_move(&area, 0, move_memory);
	if (mo_elsewhere(&area, mo_nodes[1]))
		mo_die("not all pages were moved");
	return mo_verdict(&area);
}

static void unmap_memory(struct mo_area *area)
{
	if (munmap(area->mem, area->bytes))
		mo_die("munmap: %m");
}

/* Nobody but the migration has the anon_vma when the pages arrive. */
int mo_run_unmapped(void)
{
	struct mo_area area;

	mo_run_map(&area, RUN_PAGES);
	mo_run_move(&area, 0, unmap_memory);
	/* What comes next there has nothing of it. */
	if (mmap(area.mem, area.bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		mo_die("cannot map memory: %m");
	memset(area.shadow, 0, area.bytes);
	return mo_verdict(&area);
}

static void kill_kin(struct mo_area *area)
{
	kill(kin.pid, SIGKILL);
	if (waitpid(kin.pid, NULL, 0) != kin.pid)
		mo_die("the child does not end");
}

/* A process ends while another one migrates its memory. */
int mo_run_ended(void)
{
	struct mo_area area;

	mo_run_map(&area, RUN_PAGES);
	mo_kin_start(&kin, &area);
	mo_kin_ask(&kin, KIN_WRITES);
	munmap(area.mem, area.bytes);
	mo_run_move(&area, kin.pid, kill_kin);
	return RIGHT;
}
