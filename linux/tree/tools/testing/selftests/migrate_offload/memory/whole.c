// SPDX-License-Identifier: GPL-2.0-only
/*
 * Large folios stay whole when they migrate, however often, and however they
 * are mapped.  Bits of their page table entries stay unchanged.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../kselftest_harness.h"
#include "mo_area.h"
#include "mo_numa.h"
#include "mo_util.h"

#define PATH_BATCH PATH_OFFLOAD "batch_ptes"

/* Five times there and back. */
#define MOVES 10
#define TIMEOUT 600

/* Bits of /proc/self/pagemap. */
static const __u64 pm_soft_dirty = 1ULL << 55;
static const __u64 pm_exclusive = 1ULL << 56;
static const __u64 pm_uffd_wp = 1ULL << 57;

/* Bits of /proc/kpageflags. */
static const __u64 kpf_head = 1ULL << KPF_COMPOUND_HEAD;
static const __u64 kpf_tail = 1ULL << KPF_COMPOUND_TAIL;

/* The kernel's counters for folios of one size. */
struct folio_stats {
	long long partially_mapped;
	long long split;
	long long split_deferred;
	long long anon;
};

FIXTURE(whole)
{
	struct mo_area area;
	struct folio_stats before;
};

FIXTURE_VARIANT(whole)
{
	size_t folio_bytes;
};

FIXTURE_VARIANT_ADD(whole, 16k)
{
	.folio_bytes = 4 * SZ_4K,
};

FIXTURE_VARIANT_ADD(whole, 32k)
{
	.folio_bytes = 8 * SZ_4K,
};

FIXTURE_VARIANT_ADD(whole, 64k)
{
	.folio_bytes = 16 * SZ_4K,
};

FIXTURE_VARIANT_ADD(whole, 128k)
{
	.folio_bytes = 32 * SZ_4K,
};

FIXTURE_VARIANT_ADD(whole, 256k)
{
	.folio_bytes = 64 * SZ_4K,
};

FIXTURE_VARIANT_ADD(whole, 512k)
{
	.folio_bytes = 128 * SZ_4K,
};

FIXTURE_VARIANT_ADD(whole, 1m)
{
	.folio_bytes = SZ_1M,
};

FIXTURE_VARIANT_ADD(whole, 2m_by_ptes)
{
	.folio_bytes = SZ_2M,
};

static long long folio_stat(size_t folio_bytes, const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), PATH_THP "hugepages-%zukB/stats/%s",
		 folio_bytes / 1024, name);
	return mo_read_number(path);
}

static struct folio_stats folio_stats(size_t folio_bytes)
{
	return (struct folio_stats) {
		.partially_mapped = folio_stat(folio_bytes,
					       "nr_anon_partially_mapped"),
		.split = folio_stat(folio_bytes, "split"),
		.split_deferred = folio_stat(folio_bytes, "split_deferred"),
		.anon = folio_stat(folio_bytes, "nr_anon"),
	};
}

FIXTURE_SETUP(whole)
{
	const char *why_not = mo_cannot_run();
	size_t i;

	if (!why_not && !mo_exists(PATH_BATCH))
		why_not = "no CONFIG_MIGRATE_BATCH_PTES";
	if (why_not)
		SKIP(return, "%s", why_not);
	mo_reset();
	why_not = mo_map(&self->area, MO_ANON,
			 variant->folio_bytes >= SZ_1M ?
			 3 * variant->folio_bytes : SZ_2M,
			 variant->folio_bytes);
	if (why_not)
		SKIP(return, "%s", why_not);
	/* Protecting a part splits the mapping of the whole folio. */
	for (i = 0; variant->folio_bytes == SZ_2M && i < self->area.bytes;
	     i += SZ_2M) {
		ASSERT_EQ(mprotect(self->area.mem + i, SZ_4K, PROT_READ), 0);
		ASSERT_EQ(mprotect(self->area.mem + i, SZ_4K,
				   PROT_READ | PROT_WRITE), 0);
	}
	self->before = folio_stats(variant->folio_bytes);
}

FIXTURE_TEARDOWN(whole)
{
	if (self->area.mem)
		mo_unmap(&self->area);
	if (mo_exists(PATH_BATCH))
		mo_write(PATH_BATCH, "true");
	if (mo_exists(PATH_OFFLOAD "engine"))
		mo_select("none");
}

/* Count folios that were split. */
static size_t nr_split(const struct mo_area *area)
{
	size_t i, n, pages = area->folio_bytes / SZ_4K, nr = 0;
	__u64 *flags = calloc(pages, sizeof(*flags));
	__u64 *pfns = calloc(pages, sizeof(*pfns));

	if (!flags || !pfns)
		mo_die("no memory");
	for (i = 0; i < area->bytes; i += area->folio_bytes) {
		mo_pfns(area->mem + i, pages, pfns);
		mo_page_flags(pfns[0], pages, flags);
		for (n = 0; n < pages; n++)
			if (pfns[n] != pfns[0] + n ||
			    !(flags[n] & (n ? kpf_tail : kpf_head)))
				break;
		nr += n < pages;
	}
	free(pfns);
	free(flags);
	return nr;
}

/* Move each folio once.  No page may stay, and all content must be right. */
static bool moves(const struct mo_area *area, int node)
{
	long ret = mo_move_once(area, node);
	unsigned long left = mo_elsewhere(area, node);

	if (ret || left)
		printf("# move_pages: %ld, %lu pages are elsewhere\n", ret, left);
	return !ret && !left && mo_content_ok(area);
}

static bool stats_are(const struct mo_area *area,
		      const struct folio_stats *before)
{
	struct folio_stats now = folio_stats(area->folio_bytes);
	bool same = now.partially_mapped == before->partially_mapped &&
		now.split == before->split && now.anon == before->anon &&
		now.split_deferred == before->split_deferred;

	if (same)
		return true;
	printf("# partially mapped %lld, were %lld; queued %lld, were %lld\n",
	       now.partially_mapped, before->partially_mapped,
	       now.split_deferred, before->split_deferred);
	printf("# split %lld, were %lld; folios %lld, were %lld\n",
	       now.split, before->split, now.anon, before->anon);
	return false;
}

static bool stay_whole(const struct mo_area *area,
		       const struct folio_stats *before, unsigned int nr_moves)
{
	unsigned int i;

	for (i = 1; i <= nr_moves; i++) {
		size_t split;

		if (!moves(area, mo_nodes[i % 2]))
			return false;
		split = nr_split(area);
		if (split) {
			printf("# %zu folios were split\n", split);
			return false;
		}
	}
	return stats_are(area, before);
}

TEST_F_TIMEOUT(whole, stays_so, TIMEOUT)
{
	ASSERT_TRUE(stay_whole(&self->area, &self->before, MOVES));
}

TEST_F_TIMEOUT(whole, stays_so_with_an_engine, TIMEOUT)
{
	mo_select("cpu");
	ASSERT_TRUE(stay_whole(&self->area, &self->before, MOVES));
}

/*
 * Without batch_ptes, stock code splits folios.  Proves that the test notices.
 */
TEST_F_TIMEOUT(whole, is_split_without, TIMEOUT)
{
	mo_write(PATH_BATCH, "false");
	ASSERT_TRUE(moves(&self->area, mo_nodes[1]));
	ASSERT_EQ(folio_stats(variant->folio_bytes).partially_mapped,
		  self->before.partially_mapped +
		  self->area.bytes / variant->folio_bytes);
	ASSERT_EQ(mo_move(&self->area, mo_nodes[0]), 0);
	ASSERT_TRUE(mo_content_ok(&self->area));
	ASSERT_EQ(nr_split(&self->area), self->area.bytes / variant->folio_bytes);
}

/*
 * A folio that moved without batch_ptes looks partially mapped.  With
 * batch_ptes it stays whole.
 */
TEST_F_TIMEOUT(whole, stays_so_from_then_on, TIMEOUT)
{
	mo_write(PATH_BATCH, "false");
	ASSERT_TRUE(moves(&self->area, mo_nodes[1]));
	mo_write(PATH_BATCH, "true");
	ASSERT_TRUE(moves(&self->area, mo_nodes[0]));
	ASSERT_TRUE(moves(&self->area, mo_nodes[1]));
	ASSERT_EQ(nr_split(&self->area), 0);
	ASSERT_EQ(folio_stats(variant->folio_bytes).partially_mapped,
		  self->before.partially_mapped);
}

/* Two processes map the folios. */
TEST_F_TIMEOUT(whole, stays_so_when_shared, TIMEOUT)
{
	struct mo_area *area = &self->area;
	int go[2], status;
	pid_t child;
	char c;

	ASSERT_EQ(pipe(go), 0);
	child = fork();
	ASSERT_GE(child, 0);
	if (!child) {
		close(go[1]);
		/* Wait until the parent is done or dead. */
		if (read(go[0], &c, 1) < 0)
			_exit(2);
		_exit(!mo_content_ok(area) || nr_split(area));
	}
	close(go[0]);
	ASSERT_TRUE(stay_whole(area, &self->before, MOVES));
	close(go[1]);
	ASSERT_EQ(waitpid(child, &status, 0), child);
	ASSERT_TRUE(WIFEXITED(status));
	ASSERT_EQ(WEXITSTATUS(status), 0);
	/* Only the parent maps the folios now. */
	ASSERT_TRUE(stay_whole(area, &self->before, 2));
}

/* Two page tables map one folio. */
TEST_F_TIMEOUT(whole, stays_so_in_two_tables, TIMEOUT)
{
	struct mo_area *area = &self->area, other = *area;
	size_t half = variant->folio_bytes / 2;
	char *room, *to;

	room = mmap(NULL, 6 * SZ_2M, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ASSERT_NE(room, MAP_FAILED);
	to = (char *)(((size_t)room + 2 * SZ_2M - 1) & ~(SZ_2M - 1)) - half;
	ASSERT_EQ(mremap(area->mem, area->bytes, area->bytes,
			 MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
	other.mem = to;
	ASSERT_EQ(nr_split(&other), 0);
	ASSERT_TRUE(stay_whole(&other, &self->before, MOVES));
	ASSERT_EQ(mremap(to, area->bytes, area->bytes,
			 MREMAP_MAYMOVE | MREMAP_FIXED, area->mem), area->mem);
	ASSERT_TRUE(stay_whole(area, &self->before, 2));
	munmap(room, 6 * SZ_2M);
}

/* Several VMAs map one folio: every other page is read-only. */
TEST_F_TIMEOUT(whole, stays_so_in_many_vmas, TIMEOUT)
{
	struct mo_area *area = &self->area;
	size_t i;

	for (i = 0; i < variant->folio_bytes; i += 2 * SZ_4K)
		ASSERT_EQ(mprotect(area->mem + i, SZ_4K, PROT_READ), 0);
	ASSERT_TRUE(stay_whole(area, &self->before, MOVES));
	ASSERT_EQ(mprotect(area->mem, area->bytes, PROT_READ | PROT_WRITE), 0);
	memcpy(area->mem, area->shadow, area->bytes);
	ASSERT_TRUE(stay_whole(area, &self->before, 2));
}

/*
 * NUMA balancing has made half of one folio's entries inaccessible, and all of
 * another folio's.  The halves are in two VMAs, as one fault makes all of a
 * VMA's part accessible.
 */
TEST_F_TIMEOUT(whole, stays_so_with_hints, TIMEOUT)
{
	struct mo_area *area = &self->area;
	size_t pages = variant->folio_bytes / SZ_4K;
	long long faults;

	ASSERT_EQ(mprotect(area->mem, variant->folio_bytes / 2, PROT_READ), 0);
	if (!mo_numa_hint(area, 2 * pages))
		SKIP(return, "no NUMA balancing");
	/* A late scan may have marked the pages that this call uses, too. */
	mo_vm_counter("numa_hint_faults");
	faults = mo_vm_counter("numa_hint_faults");
	__atomic_load_n(area->mem + variant->folio_bytes / 2, __ATOMIC_RELAXED);
	ASSERT_EQ(mo_vm_counter("numa_hint_faults"), faults + 1);
	ASSERT_TRUE(stay_whole(area, &self->before, MOVES));
	ASSERT_EQ(mprotect(area->mem, area->bytes, PROT_READ | PROT_WRITE), 0);
	memcpy(area->mem, area->shadow, area->bytes);
	ASSERT_TRUE(stay_whole(area, &self->before, 2));
}

/* A partly unmapped folio is split, as in stock Linux, and no other. */
TEST_F_TIMEOUT(whole, is_split_when_it_is_not, TIMEOUT)
{
	struct mo_area *area = &self->area, rest = *area;
	size_t half = variant->folio_bytes / 2;

	ASSERT_EQ(madvise(area->mem, half, MADV_DONTNEED), 0);
	ASSERT_EQ(folio_stats(variant->folio_bytes).partially_mapped,
		  self->before.partially_mapped + 1);
	memset(area->shadow, 0, half);
	rest.mem += variant->folio_bytes;
	rest.shadow += variant->folio_bytes / sizeof(*rest.shadow);
	rest.bytes -= variant->folio_bytes;

	/* All present pages move. */
	ASSERT_EQ(mo_move(area, mo_nodes[1]), half / SZ_4K);
	ASSERT_TRUE(mo_content_ok(area));
	ASSERT_EQ(nr_split(&rest), 0);
	ASSERT_EQ(folio_stats(variant->folio_bytes).partially_mapped,
		  self->before.partially_mapped);
	ASSERT_EQ(folio_stats(variant->folio_bytes).split,
		  self->before.split + 1);
}

static void *unmap_a_half(void *arg)
{
	struct mo_area *area = arg;

	mo_wait_until_copying();
	madvise(area->mem, area->folio_bytes / 2, MADV_DONTNEED);
	if (!mo_read_number(PATH_TEST "in_copy"))
		mo_die("the folio had arrived before a half was unmapped");
	mo_write(PATH_TEST "delay_us", "0");
	return NULL;
}

/*
 * A thread unmaps a part of a folio while migration entries are in its place.
 * The thread cannot know this, so migration has to notice when it maps the
 * folio again.
 */
TEST_F_TIMEOUT(whole, is_seen_to_be_unmapped_meanwhile, TIMEOUT)
{
	struct mo_area *area = &self->area;
	pthread_t thread;

	if (!mo_load_test_engine(MO_TEST_PLAIN))
		SKIP(return, "no migrate_offload_test");
	mo_write(PATH_TEST "delay_us", "60000000");
	mo_select("test");
	/* Move all folios in one window. */
	mo_set_limit("max_unmapped_us", 0);
	mo_set_limit("max_batch_pages", 4096);
	ASSERT_EQ(pthread_create(&thread, NULL, unmap_a_half, area), 0);
	ASSERT_EQ(mo_move_once(area, mo_nodes[1]), 0);
	ASSERT_EQ(pthread_join(thread, NULL), 0);
	mo_reset();
	ASSERT_EQ(folio_stats(variant->folio_bytes).partially_mapped,
		  self->before.partially_mapped + 1);
	memset(area->shadow, 0, variant->folio_bytes / 2);
	ASSERT_TRUE(mo_content_ok(area));
}

static __u64 bits_of(const char *addr)
{
	return mo_pagemap(addr) & (pm_soft_dirty | pm_exclusive | pm_uffd_wp);
}

static void protect_by_uffd(int fd, char *mem, size_t bytes)
{
	struct uffdio_writeprotect protect = {
		.range = { .start = (size_t)mem, .len = bytes },
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};

	if (ioctl(fd, UFFDIO_WRITEPROTECT, &protect))
		mo_die("cannot protect memory by userfaultfd: %m");
}

/*
 * Pages of one folio have different bits in their entries.  Each must keep its
 * own.
 */
TEST_F_TIMEOUT(whole, keeps_the_bits_of_each_page, TIMEOUT)
{
	struct uffdio_api api = {
		.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP,
	};
	struct mo_area *area = &self->area;
	struct uffdio_register reg = {
		.range = { .start = (size_t)area->mem, .len = area->bytes },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	size_t i, wrong, nr = area->bytes / SZ_4K;
	__u64 *bits = calloc(nr, sizeof(*bits));
	long long kb;
	int fd, node;

	ASSERT_NE(bits, NULL);
	fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	ASSERT_GE(fd, 0);
	ASSERT_EQ(ioctl(fd, UFFDIO_API, &api), 0);
	ASSERT_EQ(ioctl(fd, UFFDIO_REGISTER, &reg), 0);
	mo_write("/proc/self/clear_refs", "4");
	for (i = 0; i < nr; i += 3)
		memcpy(area->mem + i * SZ_4K,
		       area->shadow + i * SZ_4K / sizeof(*bits), SZ_4K);
	for (i = 1; i < nr; i += 3)
		protect_by_uffd(fd, area->mem + i * SZ_4K, SZ_4K);
	mo_write("/proc/self/clear_refs", "1");
	for (i = 0; i < nr; i += 5)
		__atomic_load_n(area->mem + i * SZ_4K, __ATOMIC_RELAXED);
	for (i = 0; i < nr; i++)
		bits[i] = bits_of(area->mem + i * SZ_4K);
	ASSERT_EQ(bits[1] & pm_uffd_wp, pm_uffd_wp);
	ASSERT_EQ(bits[2] & pm_uffd_wp, 0);
	/*
	 * A lower bound: the CPU does not mark entries again that its TLB
	 * holds.
	 */
	kb = mo_referenced_kb(area->mem);
	ASSERT_GT(kb, 0);
	ASSERT_LT(kb, area->bytes / 1024);

	for (node = 1; node >= 0; node--) {
		ASSERT_EQ(mo_move_once(area, mo_nodes[node]), 0);
		ASSERT_EQ(mo_elsewhere(area, mo_nodes[node]), 0);
		ASSERT_EQ(nr_split(area), 0);
		for (i = 0, wrong = 0; i < nr; i++)
			wrong += bits_of(area->mem + i * SZ_4K) != bits[i];
		ASSERT_EQ(wrong, 0);
		ASSERT_EQ(mo_referenced_kb(area->mem), kb);
	}
	close(fd);
	ASSERT_TRUE(mo_content_ok(area));
	free(bits);
}

TEST_HARNESS_MAIN
