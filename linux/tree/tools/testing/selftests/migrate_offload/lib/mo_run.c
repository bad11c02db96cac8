// SPDX-License-Identifier: GPL-2.0-only
#include <fcntl.h>
#include <linux/ioctl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_hazard.h"
#include "mo_run.h"
#include "mo_util.h"

#define MPOL_MF_MOVE_ALL 4
#define PATH_BATCH PATH_OFFLOAD "batch_ptes"
#define PATH_IDLE "/sys/kernel/mm/page_idle/bitmap"
/* Longer than any @act takes.  After @act, act_in_flight() ends the copy. */
#define FLIGHT_US 60000000
/* Page offsets in the file differ from those that follow from the address. */
#define FILE_OFFSET (3 * SZ_4K)

/* Bits of /proc/self/pagemap. */
static const __u64 pm_exclusive = 1ULL << 56;
static const __u64 pm_present = 1ULL << 63;

/* linux/fs.h of the running system may be too old. */
#ifndef PAGEMAP_SCAN
#define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan_arg)
#define PAGE_IS_SWAPPED 0x10

struct page_region {
	__u64 start;
	__u64 end;
	__u64 categories;
};

struct pm_scan_arg {
	__u64 size;
	__u64 flags;
	__u64 start;
	__u64 end;
	__u64 walk_end;
	__u64 vec;
	__u64 vec_len;
	__u64 max_pages;
	__u64 category_inverted;
	__u64 category_mask;
	__u64 category_anyof_mask;
	__u64 return_mask;
};
#endif

const char *mo_run_cannot(void)
{
	char on[8];

	if (mo_cannot_run())
		return mo_cannot_run();
	if (!mo_exists(PATH_BATCH))
		return "no CONFIG_MIGRATE_BATCH_PTES";
	mo_read(PATH_BATCH, on, sizeof(on));
	return strcmp(on, "true\n") ? "batch_ptes is off" : NULL;
}

static size_t folio_bytes = SZ_4K;

void mo_run_use_large(size_t bytes)
{
	folio_bytes = bytes;
}

/* Take the pages out of the batches of CPUs, and check their size. */
static void settle(const struct mo_area *area)
{
	bool large = area->folio_bytes > SZ_4K;
	size_t i;

	mo_drain();
	for (i = 0; i < area->bytes / SZ_4K; i++) {
		const void *page = area->mem + i * SZ_4K;

		if ((mo_page_flag(page, KPF_COMPOUND_HEAD) ||
		     mo_page_flag(page, KPF_COMPOUND_TAIL)) != large ||
		    !(mo_pagemap(page) & pm_present) ||
		    !(mo_pagemap(page) & pm_exclusive))
			mo_die("page %zu is not one for a run", i);
	}
}

void mo_run_map(struct mo_area *area, size_t nr_pages)
{
	size_t bytes = nr_pages * SZ_4K;

	mo_map_anon(area, bytes < folio_bytes ? folio_bytes : bytes, folio_bytes);
	area->scattered = true;
	settle(area);
}

/* Map RUN_PAGES of a file, with these flags of mmap(2). */
static void map_file(struct mo_area *area, int flags)
{
	int fd = memfd_create("migrate_offload", 0);

	mo_map_anon(area, RUN_PAGES * SZ_4K, SZ_4K);
	if (fd < 0 || ftruncate(fd, area->bytes + FILE_OFFSET))
		mo_die("cannot make a file: %m");
	if (mmap(area->mem, area->bytes, PROT_READ | PROT_WRITE,
		 flags | MAP_FIXED, fd, FILE_OFFSET) != area->mem)
		mo_die("cannot map a file: %m");
	close(fd);
	mo_bind(area->mem, area->bytes);
	mo_fill(area);
	area->scattered = true;
	settle(area);
}

void mo_run_map_file(struct mo_area *area)
{
	map_file(area, MAP_PRIVATE);
}

void mo_run_map_cache(struct mo_area *area)
{
	map_file(area, MAP_SHARED);
}

void mo_run_batch(bool on)
{
	mo_write(PATH_BATCH, on ? "true" : "false");
}

void mo_run_set_idle(const struct mo_area *area)
{
	int fd = open(PATH_IDLE, O_WRONLY);
	__u64 pfn, entry;
	ssize_t len;
	size_t i;

	for (i = 0; i < area->bytes; i += SZ_4K) {
		pfn = mo_pfn(area->mem + i);
		entry = 1ULL << (pfn % 64);
		len = pwrite(fd, &entry, sizeof(entry), pfn / 64 * sizeof(entry));
		/* 0: the end of memory fills no whole entry. */
		if (len && len != sizeof(entry))
			mo_die("cannot write to " PATH_IDLE ": %m");
	}
	close(fd);
}

bool mo_is_exclusive(char *page)
{
	struct iovec part = { .iov_base = page, .iov_len = SZ_4K };
	__u64 pfn = mo_pfn(page);
	int fds[2];
	bool same;

	if (pipe(fds) || vmsplice(fds[1], &part, 1, 0) != SZ_4K)
		mo_die("cannot splice a page: %m");
	__atomic_store_n(page, *page, __ATOMIC_RELAXED);
	same = mo_pfn(page) == pfn;
	close(fds[0]);
	close(fds[1]);
	return same;
}

/* Bits of /proc/kpageflags that move with a page. */
static const __u64 page_bits = 1 << KPF_REFERENCED | 1 << KPF_DIRTY |
	1 << KPF_ACTIVE | 1 << KPF_SWAPBACKED | 1 << KPF_IDLE;

void mo_run_vary(struct mo_area *area)
{
	size_t i;

	mo_write("/proc/self/clear_refs", "4");
	for (i = 0; i < RUN_PAGES; i++) {
		char *page = area->mem + i * SZ_4K;

		if (i % 5 == 1 && madvise(page, SZ_4K, MADV_FREE))
			mo_die("madvise: %m");
		if (i % 7 == 2 && madvise(page, SZ_4K, MADV_COLD))
			mo_die("madvise: %m");
		if (i % 3 == 0)
			memcpy(page, area->shadow + i * SZ_4K / sizeof(__u64),
			       SZ_4K);
	}
	/* The effects of madvise(2) may wait in the caches of two CPUs. */
	mo_drain();
	mo_run_set_idle(area);
	/* This also flushes TLBs, so that CPUs set accessed bits again. */
	mo_write("/proc/self/clear_refs", "1");
	for (i = 0; i < RUN_PAGES; i += 2)
		__atomic_load_n(area->mem + i * SZ_4K, __ATOMIC_RELAXED);
}

void mo_run_look(const struct mo_area *area, __u64 *bits)
{
	__u64 pfns[RUN_PAGES], flags;
	size_t i;

	mo_pfns(area->mem, RUN_PAGES, pfns);
	for (i = 0; i < RUN_PAGES; i++) {
		mo_page_flags(pfns[i], 1, &flags);
		bits[i] = (flags & page_bits) |
			(mo_pagemap(area->mem + i * SZ_4K) & mo_map_bits);
	}
}

size_t mo_run_changed(const char *what, const __u64 *bits,
		      const __u64 *expected, __u64 mask)
{
	size_t i, nr = 0;

	for (i = 0; i < RUN_PAGES; i++) {
		if (!((bits[i] ^ expected[i]) & mask))
			continue;
		printf("# page %zu: %llx, not %llx as %s\n", i, bits[i],
		       expected[i], what);
		nr++;
	}
	return nr;
}

struct act {
	struct mo_area *area;
	void (*act)(struct mo_area *area);
};

static void *act_in_flight(void *arg)
{
	const struct act *act = arg;

	mo_wait_until_copying();
	act->act(act->area);
	if (!mo_read_number(PATH_TEST "in_copy"))
		mo_die("the pages had arrived before this was done");
	mo_write(PATH_TEST "delay_us", "0");
	return NULL;
}

static void move_all(const struct mo_area *area, pid_t pid)
{
	size_t i, nr = area->bytes / area->step;
	void **pages = malloc(nr * sizeof(*pages));
	int *nodes = malloc(2 * nr * sizeof(*nodes));

	if (!pages || !nodes)
		mo_die("no memory");
	for (i = 0; i < nr; i++) {
		pages[i] = area->mem + mo_nth(area, i) * area->step;
		nodes[i] = mo_nodes[1];
	}
	if (syscall(SYS_move_pages, pid, nr, pages, nodes, nodes + nr,
		    MPOL_MF_MOVE_ALL) < 0)
		mo_die("cannot move pages: %m");
	free(nodes);
	free(pages);
}

void mo_run_move(struct mo_area *area, pid_t pid,
		 void (*act)(struct mo_area *area))
{
	struct act arg = { .area = area, .act = act };
	pthread_t thread;

	mo_write_number(PATH_TEST "delay_us", FLIGHT_US);
	mo_select("test");
	if (pthread_create(&thread, NULL, act_in_flight, &arg))
		mo_die("cannot create a thread");
	move_all(area, pid);
	pthread_join(thread, NULL);
	mo_select("none");
}

void mo_run_keep_some(struct mo_area *area, size_t turn)
{
	size_t i;

	for (i = 0; i < area->bytes / SZ_4K; i++) {
		char *page = area->mem + i * SZ_4K;
		char *shadow = (char *)area->shadow + i * SZ_4K;

		if (i / 3 % 2 == turn)
			continue;
		if (madvise(page, SZ_4K, MADV_DONTNEED))
			mo_die("madvise: %m");
		memset(shadow, 0, SZ_4K);
	}
}

void mo_run_own_some(struct mo_area *area, size_t turn)
{
	size_t i;

	for (i = 0; i < area->bytes; i += SZ_4K)
		if (i / SZ_4K / 3 % 2 == turn)
			__atomic_store_n(area->mem + i, area->mem[i],
					 __ATOMIC_RELAXED);
}

/* Watch for missing pages until this process ends. */
static void kin_watch(const struct mo_area *area)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = {
		.range = { .start = (size_t)area->mem, .len = area->bytes },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) ||
	    ioctl(fd, UFFDIO_REGISTER, &reg))
		mo_die("cannot watch memory by a userfaultfd: %m");
}

/*
 * Answer the parent until it asks for the exit.  Do not exit without that: the
 * mappings may be so damaged that the kernel must not unmap them.
 */
static __noreturn void kin_serve(struct mo_area *area, int from, int to)
{
	char question;

	while (read(from, &question, 1) == 1) {
		char answer = RIGHT;

		if (question == KIN_WRITES) {
			memset(area->shadow, 0xc3, area->bytes);
			memcpy(area->mem, area->shadow, area->bytes);
		} else if (question == KIN_CHECKS) {
			answer = mo_verdict(area);
		} else if (question == KIN_KEEPS) {
			mo_run_keep_some(area, 1);
		} else if (question == KIN_OWNS) {
			mo_run_own_some(area, 1);
		} else if (question == KIN_WATCHES) {
			kin_watch(area);
		} else if (question == KIN_EXECS) {
			/*
			 * The parent reads end of file when the exec has
			 * succeeded.
			 */
			fcntl(to, F_SETFD, FD_CLOEXEC);
			execlp("sleep", "sleep", "3600", NULL);
			_exit(1);
		} else {
			_exit(0);
		}
		fflush(stdout);
		if (write(to, &answer, 1) != 1)
			break;
	}
	/* The parent died without a question that allows the exit. */
	mo_stay();
}

void mo_kin_start(struct mo_kin *kin, struct mo_area *area)
{
	int to[2], from[2];

	if (pipe(to) || pipe(from))
		mo_die("cannot make a pipe: %m");
	fflush(stdout);
	kin->pid = fork();
	if (kin->pid < 0)
		mo_die("cannot fork: %m");
	if (!kin->pid) {
		close(to[1]);
		close(from[0]);
		kin_serve(area, to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	kin->to = to[1];
	kin->from = from[0];
}

int mo_kin_ask(const struct mo_kin *kin, enum mo_kin_question question)
{
	char byte = question;

	if (write(kin->to, &byte, 1) != 1 || read(kin->from, &byte, 1) != 1)
		mo_die("the child does not answer");
	return byte;
}

void mo_kin_exec(const struct mo_kin *kin)
{
	char byte = KIN_EXECS;

	if (write(kin->to, &byte, 1) != 1 || read(kin->from, &byte, 1))
		mo_die("the child does not run another program");
}

void mo_kin_end(struct mo_kin *kin)
{
	if (write(kin->to, "q", 1) != 1 ||
	    waitpid(kin->pid, NULL, 0) != kin->pid)
		mo_die("the child does not end");
	close(kin->to);
	close(kin->from);
}

/* PAGEMAP_SCAN does not look up the entry's page, which would be a BUG(). */
bool mo_run_dangles(pid_t pid, const struct mo_area *area)
{
	struct page_region region;
	struct pm_scan_arg arg = {
		.size = sizeof(arg),
		.start = (size_t)area->mem,
		.end = (size_t)area->mem + area->bytes,
		.vec = (size_t)&region,
		.vec_len = 1,
		.category_mask = PAGE_IS_SWAPPED,
		.return_mask = PAGE_IS_SWAPPED,
	};
	char path[32];
	int fd, nr;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	fd = open(path, O_RDONLY);
	nr = fd < 0 ? -1 : ioctl(fd, PAGEMAP_SCAN, &arg);
	if (nr < 0)
		mo_die("cannot scan the memory of process %d: %m", pid);
	close(fd);
	if (nr)
		printf("# process %d has entries that nobody will replace\n",
		       pid);
	return nr;
}
