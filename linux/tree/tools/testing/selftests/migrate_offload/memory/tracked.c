// SPDX-License-Identifier: GPL-2.0-only
/*
 * A userfaultfd tracks reads and writes of memory.  After the memory has moved,
 * the first access to each page still faults, and the content is right.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../kselftest_harness.h"
#include "mo_area.h"
#include "mo_util.h"

/* Headers of older kernels lack these names. */
#ifndef UFFD_FEATURE_RWP
#define UFFD_FEATURE_RWP 0x20000
#define UFFDIO_REGISTER_MODE_RWP 0x8ULL
#define UFFDIO_RWPROTECT_MODE_RWP 0x1ULL
#define UFFDIO_RWPROTECT _IOWR(UFFDIO, 0x09, struct uffdio_rwprotect)

struct uffdio_rwprotect {
	struct uffdio_range range;
	__u64 mode;
};
#endif

#define TIMEOUT 300

FIXTURE(tracked)
{
	struct mo_area area;
	int fd;
};

FIXTURE_VARIANT(tracked)
{
	size_t folio_bytes;
	bool by_ptes;
};

FIXTURE_VARIANT_ADD(tracked, 4k)
{
	.folio_bytes = SZ_4K,
};

FIXTURE_VARIANT_ADD(tracked, 64k)
{
	.folio_bytes = 16 * SZ_4K,
};

FIXTURE_VARIANT_ADD(tracked, 2m)
{
	.folio_bytes = SZ_2M,
};

FIXTURE_VARIANT_ADD(tracked, 2m_by_ptes)
{
	.folio_bytes = SZ_2M,
	.by_ptes = true,
};

FIXTURE_SETUP(tracked)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_RWP | UFFD_FEATURE_SIGBUS,
	};
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_RWP };
	struct mo_area *area = &self->area;
	const char *why_not = mo_cannot_run();

	self->fd = -1;
	if (why_not)
		SKIP(return, "%s", why_not);
	self->fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	ASSERT_GE(self->fd, 0);
	if (ioctl(self->fd, UFFDIO_API, &api))
		SKIP(return, "no userfaultfd tracks reads on this kernel");
	mo_reset();
	why_not = mo_map(area, MO_ANON, 2 * SZ_2M, variant->folio_bytes);
	if (why_not)
		SKIP(return, "%s", why_not);
	/* Protecting a part splits the mapping of the whole folio. */
	for (size_t i = 0; variant->by_ptes && i < area->bytes; i += SZ_2M) {
		ASSERT_EQ(mprotect(area->mem + i, SZ_4K, PROT_READ), 0);
		ASSERT_EQ(mprotect(area->mem + i, SZ_4K,
				   PROT_READ | PROT_WRITE), 0);
	}
	reg.range.start = (size_t)area->mem;
	reg.range.len = area->bytes;
	ASSERT_EQ(ioctl(self->fd, UFFDIO_REGISTER, &reg), 0);
}

FIXTURE_TEARDOWN(tracked)
{
	if (self->fd >= 0)
		close(self->fd);
	if (self->area.mem)
		mo_unmap(&self->area);
	if (mo_exists(PATH_OFFLOAD "engine"))
		mo_select("none");
}

static void track(int fd, char *mem, size_t bytes, bool on)
{
	struct uffdio_rwprotect protect = {
		.range = { .start = (size_t)mem, .len = bytes },
		.mode = on ? UFFDIO_RWPROTECT_MODE_RWP : 0,
	};

	if (ioctl(fd, UFFDIO_RWPROTECT, &protect))
		mo_die("UFFDIO_RWPROTECT failed: %m");
}

static sigjmp_buf faulted;

static void on_sigbus(int signal)
{
	siglongjmp(faulted, 1);
}

/* Count pages that a program can read without a fault. */
static size_t nr_readable(const char *mem, size_t bytes, size_t step)
{
	struct sigaction action = { .sa_handler = on_sigbus }, old;
	/* A local variable may lose its value in siglongjmp(). */
	static size_t i, nr;

	nr = 0;
	sigaction(SIGBUS, &action, &old);
	for (i = 0; i < bytes; i += step) {
		if (sigsetjmp(faulted, 1))
			continue;
		__atomic_load_n(mem + i, __ATOMIC_RELAXED);
		nr++;
	}
	sigaction(SIGBUS, &old, NULL);
	return nr;
}

/* Track every other page, or every page, and move all pages to and fro. */
static void move_and_look(struct __test_metadata *_metadata, int fd,
			  struct mo_area *area, bool all)
{
	size_t i, step = all ? SZ_4K : 2 * SZ_4K;
	int node;

	if (all)
		track(fd, area->mem, area->bytes, true);
	for (i = 0; !all && i < area->bytes; i += step)
		track(fd, area->mem + i, SZ_4K, true);
	for (node = 1; node >= 0; node--) {
		ASSERT_EQ(mo_move_once(area, mo_nodes[node]), 0);
		ASSERT_EQ(mo_elsewhere(area, mo_nodes[node]), 0);
		ASSERT_EQ(nr_readable(area->mem, area->bytes, step), 0);
		if (!all)
			ASSERT_EQ(nr_readable(area->mem + SZ_4K,
					      area->bytes - SZ_4K, step),
				  area->bytes / step);
	}
	track(fd, area->mem, area->bytes, false);
	ASSERT_EQ(nr_readable(area->mem, area->bytes, SZ_4K),
		  area->bytes / SZ_4K);
	ASSERT_TRUE(mo_content_ok(area));
}

TEST_F_TIMEOUT(tracked, stays_so, TIMEOUT)
{
	move_and_look(_metadata, self->fd, &self->area, true);
}

TEST_F_TIMEOUT(tracked, stays_so_in_part, TIMEOUT)
{
	move_and_look(_metadata, self->fd, &self->area, false);
}

TEST_F_TIMEOUT(tracked, stays_so_with_an_engine, TIMEOUT)
{
	mo_select("cpu");
	move_and_look(_metadata, self->fd, &self->area, true);
}

TEST_HARNESS_MAIN
