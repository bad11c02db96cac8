// SPDX-License-Identifier: GPL-2.0-only
/* Changes to memory while its pages migrate. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_hazard.h"
#include "mo_numa.h"
#include "mo_run.h"
#include "mo_util.h"

#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif

#define FIRST_REWRITTEN 8
#define LAST_REWRITTEN 47

/* Free some pages, and write to their new replacements. */
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

/* After a fork each page has two migration entries.  Both must be replaced. */
int mo_run_forked(void)
{
	struct mo_area area;
	int result;

	mo_run_map(&area, RUN_PAGES);
	mo_run_move(&area, 0, fork_kin);
	/*
	 * A process with leftover entries must not exit.  The child stays, too.
	 */
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
	/* MLOCK_ONFAULT does not wait for absent pages. */
	if (syscall(SYS_mlock2, area->mem, area->bytes, MLOCK_ONFAULT))
		mo_die("mlock2: %m");
}

/* mlock() during migration finds no page.  The pages are locked on arrival. */
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

/* A thread writes a number to each page, and notes the last one. */
static struct {
	atomic_bool stop;
	atomic_bool stopped;
	atomic_ulong rounds;
	atomic_int tid;
	struct mo_area *area;
	size_t from, to;		/* the first and the last page */
	__u64 written[RUN_PAGES];	/* the last number, by page */
} writer;

/* No system calls here: these might flush the TLB. */
static void *write_on(void *arg)
{
	__u64 number = 0;
	size_t i;

	mo_run_on(sysconf(_SC_NPROCESSORS_ONLN) - 1);
	writer.tid = syscall(SYS_gettid);
	while (!atomic_load(&writer.stop)) {
		number++;
		for (i = writer.from; i <= writer.to; i++) {
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

/* Returns true if the writer waits for a page that migrates. */
static bool writer_waits(void)
{
	char path[48], text[256];

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", writer.tid);
	return !mo_try_read(path, text, sizeof(text)) &&
		strstr(text, ") D ");
}

/*
 * Called while the engine sleeps after its copy.  After a flush, the writer
 * waits in a page fault by now.  Without a flush, it still writes to the old
 * pages: let it write for a while, but stop it before the core frees them.
 * Measure by the clock, because each usleep() may take much longer.
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
	/* Without a flush, it must not write once the core frees the pages. */
	while (!writer.stopped && !writer_waits())
		usleep(10000);
}

/* Do not load from @addr: the TLB of this CPU may be stale, too. */
static __u64 read_remotely(int fd, const void *addr)
{
	__u64 number;

	if (pread(fd, &number, sizeof(number), (off_t)addr) != sizeof(number))
		mo_die("cannot read memory: %m");
	return number;
}

/* Count pages that lost their last number.  @act runs during the copy. */
static size_t count_lost(struct mo_area *area, size_t from, size_t to,
			 void (*act)(struct mo_area *area))
{
	int fd = open("/proc/self/mem", O_RDONLY);
	pthread_t thread;
	size_t i, lost = 0;

	if (fd < 0)
		mo_die("cannot open /proc/self/mem: %m");
	memset(&writer, 0, sizeof(writer));
	writer.area = area;
	writer.from = from;
	writer.to = to;
	if (pthread_create(&thread, NULL, write_on, NULL))
		mo_die("cannot create a thread");
	while (atomic_load(&writer.rounds) < 1000)
		usleep(1000);
	mo_run_move(area, 0, act);
	pthread_join(thread, NULL);
	for (i = from; i <= to; i++)
		lost += read_remotely(fd, area->mem + i * SZ_4K) !=
			writer.written[i];
	close(fd);
	return lost;
}

static int verdict_of_lost(size_t lost)
{
	if (lost)
		printf("# %zu pages lost their last write\n", lost);
	return lost ? DAMAGED : RIGHT;
}

/*
 * A CPU with a stale TLB entry writes to the old page.  Another process on that
 * CPU may flush its TLB, so try again.
 */
int mo_run_stale_tlb_of(void (*map)(struct mo_area *area))
{
	struct mo_area area;
	size_t lost = 0;
	int tries;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return mo_skip("the machine has one CPU");
	mo_run_on(0);
	for (tries = 0; tries < 5 && !lost; tries++) {
		map(&area);
		lost = count_lost(&area, 0, RUN_PAGES - 1, stop_writer);
		mo_unmap(&area);
	}
	return verdict_of_lost(lost);
}

static void map_small(struct mo_area *area)
{
	mo_run_map(area, RUN_PAGES);
}

int mo_run_stale_tlb(void)
{
	return mo_run_stale_tlb_of(map_small);
}

int mo_run_stale_tlb_of_file(void)
{
	return mo_run_stale_tlb_of(mo_run_map_file);
}

/*
 * No other CPU runs this process.  From the second long run on, its flushes are
 * deferred to the end of the list.  The kernel writes to the new pages, and the
 * process reads.  It must not read the old pages by a stale TLB entry.
 */
int mo_run_stale_own_tlb(void)
{
	const size_t nr = 4 * RUN_PAGES;
	struct mo_area area;
	size_t i, stale = 0;
	int tries, fd;

	mo_run_on(0);
	fd = open("/proc/self/mem", O_RDWR);
	if (fd < 0)
		mo_die("cannot open /proc/self/mem: %m");
	for (tries = 0; tries < 5 && !stale; tries++) {
		mo_run_map(&area, nr);
		if (mo_move_once(&area, mo_nodes[1]))
			mo_die("not all pages moved");
		for (i = 0; i < nr; i++) {
			char *at = area.mem + i * SZ_4K;
			char other = ~((char *)area.shadow)[i * SZ_4K];

			if (pwrite(fd, &other, 1, (off_t)at) != 1)
				mo_die("cannot write memory: %m");
			stale += __atomic_load_n(at, __ATOMIC_RELAXED) != other;
		}
		mo_unmap(&area);
	}
	close(fd);
	if (stale)
		printf("# %zu pages were the old ones\n", stale);
	return stale ? DAMAGED : RIGHT;
}

/* A thread that is nearly always in a zap, but never in one for long. */
static atomic_bool zapper_stop;

/* One call walks this many page tables, which takes some 100 us. */
#define ZAPPED_BYTES (16 * SZ_2M)

/*
 * During the walk, mm->tlb_flush_pending is above 0.  The walk finds no page,
 * so it flushes no TLB. The TLB of the writer, on the same CPU, stays
 * unchanged.
 */
static void *zap_on(void *arg)
{
	char *mem = arg;

	mo_run_on(sysconf(_SC_NPROCESSORS_ONLN) - 1);
	while (!atomic_load(&zapper_stop)) {
		if (madvise(mem, ZAPPED_BYTES, MADV_DONTNEED))
			mo_die("madvise: %m");
		mo_spin(1000);
	}
	return NULL;
}

static void stop_zapper_and_writer(struct mo_area *area)
{
	atomic_store(&zapper_stop, true);
	stop_writer(area);
}

#define HINTED_PAGES 2

/*
 * The first entry of each run is PROT_NONE, as NUMA balancing leaves it.
 * Whether a TLB may hold this entry depends on threads that change page tables.
 * A TLB does hold the other entries, so these need a flush in any case.  The
 * first run of a list has one page, the second one all others.
 */
int mo_run_stale_hint(void)
{
	const size_t nr = RUN_PAGES / 2;
	struct mo_area area;
	pthread_t zapper;
	size_t i, lost = 0;
	char *zapped;
	int tries;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return mo_skip("the machine has one CPU");
	mo_run_on(0);
	zapped = mmap(NULL, ZAPPED_BYTES, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (zapped == MAP_FAILED)
		mo_die("cannot map memory: %m");
	madvise(zapped, ZAPPED_BYTES, MADV_NOHUGEPAGE);
	for (i = 0; i < ZAPPED_BYTES; i += SZ_2M)
		zapped[i] = 1;

	for (tries = 0; tries < 5 && !lost; tries++) {
		mo_run_map(&area, nr);
		if (!mo_numa_hint(&area, HINTED_PAGES))
			return mo_skip("no NUMA balancing");
		atomic_store(&zapper_stop, false);
		if (pthread_create(&zapper, NULL, zap_on, zapped))
			mo_die("cannot create a thread");
		lost = count_lost(&area, HINTED_PAGES, nr - 1,
				  stop_zapper_and_writer);
		pthread_join(zapper, NULL);
		if (mo_elsewhere(&area, mo_nodes[1]))
			mo_die("not all pages were moved");
		mo_unmap(&area);
	}
	return verdict_of_lost(lost);
}

/*
 * A run has three pages: FIRST, SECOND and GONE.  GONE has the lowest offset in
 * the anon_vma, but mremap() has moved GONE to another address.  The flush must
 * cover the other two.  On one CPU, the flush covers addresses, not the whole
 * TLB.  PROBE is a run by itself, as the first page of the list.
 */
int mo_run_cut(void)
{
	enum { PROBE = 20, FIRST = 10, SECOND = 11, GONE = 5 };
	struct mo_area area;
	void *pages[4];
	int result, nodes[2], tries;

	mo_run_on(0);
	/* Another task on this CPU may flush its TLB, so try again. */
	for (tries = 0, result = RIGHT; tries < 5 && result == RIGHT; tries++) {
		mo_run_map(&area, RUN_PAGES);
		pages[0] = area.mem + PROBE * SZ_4K;
		pages[1] = area.mem + FIRST * SZ_4K;
		pages[2] = area.mem + SECOND * SZ_4K;
		pages[3] = mremap(area.mem + GONE * SZ_4K, SZ_4K, SZ_4K,
				  MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
		if (pages[3] == MAP_FAILED)
			mo_die("mremap: %m");
		mo_expect_byte(&area, GONE, 0);
		memset(pages[1], 1, SZ_4K);
		memset(pages[2], 1, SZ_4K);
		mo_move_pages(pages, 4, mo_nodes[1]);
		memset(pages[1], 2, SZ_4K);
		memset(pages[2], 2, SZ_4K);
		mo_expect_byte(&area, FIRST, 2);
		mo_expect_byte(&area, SECOND, 2);
		/* Each call changes all entries, and flushes all of them. */
		if (mprotect(area.mem, area.bytes, PROT_NONE) ||
		    mprotect(area.mem, area.bytes, PROT_READ | PROT_WRITE))
			mo_die("mprotect: %m");
		mo_query(pages + 1, 2, nodes);
		if (nodes[0] != mo_nodes[1] || nodes[1] != mo_nodes[1])
			mo_die("not all pages were moved");
		result = mo_verdict(&area);
		munmap(pages[3], SZ_4K);
		mo_unmap(&area);
	}
	return result;
}

/* Move the memory to another page table. */
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

/* Migration holds the last reference to the anon_vma when the pages arrive. */
int mo_run_unmapped(void)
{
	struct mo_area area;

	mo_run_map(&area, RUN_PAGES);
	mo_run_move(&area, 0, unmap_memory);
	/* New memory at this address must not have the old content. */
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
