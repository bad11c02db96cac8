// SPDX-License-Identifier: GPL-2.0-only
/* Small pages that several processes map, or that are not in order. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define KSM_DIR "/sys/kernel/mm/ksm"
#define KSM_WAIT_S 120U

const char *const pages_names[NR_PAGES_KINDS + 1] = {
	[PAGES_RUNS] = "runs",		 [PAGES_RANDOM] = "random",
	[PAGES_SHARED] = "shared",	 [PAGES_SHARED16] = "shared16",
	[PAGES_SHMEM] = "shmem",	 [PAGES_SHMEM16] = "shmem16",
	[PAGES_FILE] = "file",		 [PAGES_FILE16] = "file16",
	[PAGES_MLOCKED] = "mlocked",	 [PAGES_KSM] = "ksm",
	[PAGES_INHERITED] = "inherited", [PAGES_MIXED] = "mixed",
	[PAGES_WATCHED] = "watched",
};

static_assert(MANY_PROCESSES == 16, "the names of kinds say 16");

/* The processes that map each page of a kind, for kinds about sharing. */
static size_t processes_of(enum pages_kind kind)
{
	switch (kind) {
	case PAGES_SHARED:
		return 2;
	case PAGES_SHARED16:
	case PAGES_SHMEM16:
	case PAGES_FILE16:
		return MANY_PROCESSES;
	default:
		return 1;
	}
}

bool pages_are_of_file(enum pages_kind kind)
{
	return kind == PAGES_FILE || kind == PAGES_FILE16;
}

/*
 * Start a child that maps all pages of its parent, and sleeps.  It touches
 * them, because a fork copies no page tables of files and of shmem.
 */
static void share_with_child(struct pages *pages)
{
	int touched[2];
	char byte = 0;

	if (pipe2(touched, O_CLOEXEC))
		bench_die(BENCH_LACKING, "pipe: %s", strerror(errno));
	if (!settings_fork(&pages->children[pages->nr_children])) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		region_touch(&pages->region);
		if (write(touched[1], &byte, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	pages->nr_children++;
	close(touched[1]);
	if (read(touched[0], &byte, 1) != 1)
		bench_die(BENCH_FAILED, "a child that shares memory failed");
	close(touched[0]);
}

/* A move must restore the mappings of all processes. */
static void check_shared(const struct pages *pages, const char *when)
{
	size_t nr_unlike, times = pages->nr_children + 1;

	if (region_count_unlike(&pages->region, times, &nr_unlike) && nr_unlike)
		bench_die(BENCH_FAILED,
			  "%zu pages are not mapped by %zu processes %s the passes",
			  nr_unlike, times, when);
}

/* Pages are no longer marked exclusive, until the next write. */
static void leave_to_child(void)
{
	pid_t pid;
	int status;

	if (!settings_fork(&pid))
		_exit(0);
	if (waitpid(pid, &status, 0) != pid || status)
		bench_die(BENCH_FAILED, "a child that does nothing failed");
}

/* Write to all pages but one in 16, so that only these stay inherited. */
static void write_most(const struct region *r)
{
	size_t nr = r->bytes / page_bytes();

	for (size_t i = 0; i < nr; i++) {
		volatile char *page = (char *)r->base + i * page_bytes();

		if (i % 16)
			*page = *page;
	}
}

/* A task that touches an absent page of @r would wait for this process. */
static int watch(const struct region *r)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register memory = {
		.range = { .start = (uintptr_t)r->base, .len = r->bytes },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = (int)syscall(__NR_userfaultfd, O_CLOEXEC);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) ||
	    ioctl(fd, UFFDIO_REGISTER, &memory))
		bench_die(BENCH_LACKING, "userfaultfd: %s", strerror(errno));
	return fd;
}

/*
 * KSM merges pages in pairs.  Unmap one page of each pair, so that the other is
 * mapped once, as unshared pages are.
 */
static void merge(struct region *r, uint64_t seed)
{
	uint64_t shared, nr = r->bytes / page_bytes();
	struct region twin;

	region_map(&twin, r->bytes, r->folio_bytes, r->node);
	region_fill(&twin, seed);
	if (madvise(r->base, r->bytes, MADV_MERGEABLE) ||
	    madvise(twin.base, twin.bytes, MADV_MERGEABLE))
		bench_die(BENCH_LACKING, "MADV_MERGEABLE: %s", strerror(errno));
	setting_must_pin(KSM_DIR "/pages_to_scan", "4096");
	setting_must_pin(KSM_DIR "/sleep_millisecs", "1");
	setting_must_pin(KSM_DIR "/run", "1");
	for (unsigned int s = 0; s < KSM_WAIT_S; s++) {
		sleep(1);
		if (file_read_u64(KSM_DIR "/pages_shared", &shared) &&
		    shared >= nr)
			break;
	}
	/* KSM merges and splits no page from here on. */
	setting_must_pin(KSM_DIR "/run", "0");
	if (shared < nr)
		bench_die(BENCH_FAILED, "KSM merged %llu pages of %llu in %u s",
			  (unsigned long long)shared, (unsigned long long)nr,
			  KSM_WAIT_S);
	region_unmap(&twin);
}

/* Make memory of a kind on node 0.  Pass @pages to pages_free(). */
void pages_make(struct pages *pages, enum pages_kind kind, size_t bytes,
		uint64_t seed)
{
	struct region *r = &pages->region;

	*pages = (struct pages){ .kind = kind, .watch_fd = -1 };
	if (pages_are_of_file(kind))
		region_map_file(r, bytes, 0, seed);
	else if (kind == PAGES_SHMEM || kind == PAGES_SHMEM16)
		region_map_shared(r, bytes, 0);
	else
		region_map(r, bytes, page_bytes(), 0);
	if (!pages_are_of_file(kind))
		region_fill(r, seed);
	r->shuffled = kind == PAGES_RANDOM;
	if (kind == PAGES_MLOCKED && mlock(r->base, r->bytes))
		bench_die(BENCH_LACKING, "mlock: %s", strerror(errno));
	if (kind == PAGES_KSM)
		merge(r, seed);
	if (kind == PAGES_INHERITED || kind == PAGES_MIXED)
		leave_to_child();
	if (kind == PAGES_MIXED)
		write_most(r);
	if (kind == PAGES_WATCHED)
		pages->watch_fd = watch(r);
	r->all = processes_of(kind) > 1;
	while (pages->nr_children + 1 < processes_of(kind))
		share_with_child(pages);
	if (r->all || pages_are_of_file(kind))
		check_shared(pages, "before");
}

void pages_free(struct pages *pages)
{
	if (pages->region.all || pages_are_of_file(pages->kind))
		check_shared(pages, "after");
	for (size_t i = 0; i < pages->nr_children; i++) {
		kill(pages->children[i], SIGKILL);
		waitpid(pages->children[i], NULL, 0);
	}
	if (pages->watch_fd >= 0)
		close(pages->watch_fd);
	region_unmap(&pages->region);
}
