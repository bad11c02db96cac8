// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mo_area.h"
#include "mo_util.h"

#define MPOL_BIND 2
#define FS_DISK "/dev/ram0"
#define SWAP_DISK "/dev/ram1"

/* Debug kernels are slow. */
#define WAIT_TRIES 600
#define WAIT_US 100000

static size_t thp_sizes_kb(unsigned int i)
{
	return 16UL << i;
}

#define NR_THP_SIZES 8

/* The settings that thp_allow() changes, and that thp_restore() restores. */
struct thp_settings {
	char anon[NR_THP_SIZES][64];
	char shmem[NR_THP_SIZES][64];
};

static void thp_path(char *path, size_t size, unsigned int i, const char *file)
{
	snprintf(path, size, PATH_THP "hugepages-%zukB/%s", thp_sizes_kb(i), file);
}

/* Of "always [madvise] never" keep the word in brackets. */
static void keep_chosen(char *text)
{
	char *open = strchr(text, '['), *end = strchr(text, ']');

	if (!open || !end)
		mo_die("no choice in %s", text);
	memmove(text, open + 1, end - open - 1);
	text[end - open - 1] = '\0';
}

static void set_one(const char *path, char *saved, size_t size,
		    const char *choice)
{
	if (!mo_exists(path)) {
		saved[0] = '\0';
		return;
	}
	mo_read(path, saved, size);
	keep_chosen(saved);
	mo_write(path, choice);
}

static void thp_allow(struct thp_settings *saved, size_t folio_bytes)
{
	char path[128];
	unsigned int i;

	for (i = 0; i < NR_THP_SIZES; i++) {
		bool this = thp_sizes_kb(i) * 1024 == folio_bytes;

		thp_path(path, sizeof(path), i, "enabled");
		set_one(path, saved->anon[i], sizeof(saved->anon[i]),
			this ? "madvise" : "never");
		thp_path(path, sizeof(path), i, "shmem_enabled");
		set_one(path, saved->shmem[i], sizeof(saved->shmem[i]),
			this ? "advise" : "never");
	}
}

static void thp_restore(const struct thp_settings *saved)
{
	char path[128];
	unsigned int i;

	for (i = 0; i < NR_THP_SIZES; i++) {
		thp_path(path, sizeof(path), i, "enabled");
		if (saved->anon[i][0])
			mo_write(path, saved->anon[i]);
		thp_path(path, sizeof(path), i, "shmem_enabled");
		if (saved->shmem[i][0])
			mo_write(path, saved->shmem[i]);
	}
}

static bool has_folio_size(size_t folio_bytes, const char *file)
{
	char path[128];

	snprintf(path, sizeof(path), PATH_THP "hugepages-%zukB/%s",
		 folio_bytes / 1024, file);
	return folio_bytes == SZ_4K || mo_exists(path);
}

void mo_bind(void *mem, size_t bytes)
{
	unsigned long mask[4] = {};

	mask[mo_nodes[0] / 64] = 1UL << (mo_nodes[0] % 64);
	if (syscall(SYS_mbind, mem, bytes, MPOL_BIND, mask, 8 * sizeof(mask), 0))
		mo_die("cannot bind memory to node %d: %m", mo_nodes[0]);
}

static void map_memory(struct mo_area *area, int flags)
{
	uintptr_t addr;

	area->mapped_bytes = area->bytes + SZ_2M;
	area->mapped = mmap(NULL, area->mapped_bytes, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (area->mapped == MAP_FAILED)
		mo_die("cannot map memory: %m");
	addr = ((uintptr_t)area->mapped + SZ_2M - 1) & ~(SZ_2M - 1);
	area->mem = mmap((void *)addr, area->bytes, PROT_READ | PROT_WRITE,
			 flags | MAP_FIXED, area->fd, 0);
	if (area->mem == MAP_FAILED)
		mo_die("cannot map memory: %m");
	mo_bind(area->mem, area->bytes);
	if (madvise(area->mem, area->bytes, area->folio_bytes > SZ_4K ?
		    MADV_HUGEPAGE : MADV_NOHUGEPAGE) && errno != EINVAL)
		mo_die("madvise: %m");
}

static void fill_shadow(struct mo_area *area)
{
	size_t per_page = SZ_4K / sizeof(*area->shadow);
	size_t i, nr = area->bytes / sizeof(*area->shadow);
	/* KSM merges pages of the same step, so give these the same content. */
	size_t same = area->type == MO_KSM ? 2 * per_page : nr;
	__u64 seed = mo_seed();

	for (i = 0; i < nr; i++)
		area->shadow[i] = mo_mix(seed, area->type == MO_KSM ?
					 i / same * per_page + i % per_page : i);
}

void mo_fill(struct mo_area *area)
{
	memcpy(area->mem, area->shadow, area->bytes);
}

static const char *map_large(struct mo_area *area, int flags, const char *file)
{
	struct thp_settings saved;
	size_t i;

	if (!has_folio_size(area->folio_bytes, file))
		return "no folios of this size in this kernel";
	thp_allow(&saved, area->folio_bytes);
	map_memory(area, flags);
	mo_fill(area);
	thp_restore(&saved);
	/* khugepaged must not collapse these pages. */
	madvise(area->mem, area->bytes, MADV_NOHUGEPAGE);
	for (i = 0; i < area->bytes && area->folio_bytes > SZ_4K;
	     i += area->folio_bytes)
		if (!mo_page_flag(area->mem + i, KPF_COMPOUND_HEAD))
			return "no memory for folios of this size";
	return NULL;
}

void mo_refill(struct mo_area *area, size_t at, size_t bytes, size_t folio_bytes)
{
	struct thp_settings saved;

	thp_allow(&saved, folio_bytes);
	if (madvise(area->mem + at, bytes, MADV_DONTNEED) ||
	    madvise(area->mem + at, bytes, MADV_HUGEPAGE))
		mo_die("madvise: %m");
	memcpy(area->mem + at, (char *)area->shadow + at, bytes);
	thp_restore(&saved);
	madvise(area->mem + at, bytes, MADV_NOHUGEPAGE);
}

static const char *map_anon(struct mo_area *area)
{
	return map_large(area, MAP_PRIVATE | MAP_ANONYMOUS, "enabled");
}

static const char *map_mlocked(struct mo_area *area)
{
	const char *why_not = map_anon(area);

	if (!why_not && mlock(area->mem, area->bytes))
		return "mlock is not allowed";
	return why_not;
}

static const char *map_shmem(struct mo_area *area)
{
	area->fd = memfd_create("migrate_offload", 0);
	if (area->fd < 0)
		return "no memfd";
	if (ftruncate(area->fd, area->bytes))
		mo_die("cannot make a memfd larger: %m");
	return map_large(area, MAP_SHARED, "shmem_enabled");
}

void mo_open_file(struct mo_area *area)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/file", area->dir);
	area->fd = open(path, O_RDWR | O_CREAT, 0600);
	if (area->fd < 0)
		mo_die("cannot open %s: %m", path);
}

bool mo_mount(struct mo_area *area, const char *what, const char *type,
	      const char *options)
{
	snprintf(area->dir, sizeof(area->dir), "/tmp/migrate_offload.XXXXXX");
	if (!mkdtemp(area->dir))
		mo_die("cannot make a directory: %m");
	if (!mount(what, area->dir, type, 0, options))
		return true;
	rmdir(area->dir);
	area->dir[0] = '\0';
	return false;
}

static const char *map_tmpfs(struct mo_area *area)
{
	if (!mo_mount(area, "tmpfs", "tmpfs", "size=16m"))
		return "cannot mount tmpfs";
	mo_open_file(area);
	if (ftruncate(area->fd, area->bytes))
		mo_die("cannot make a file larger: %m");
	map_memory(area, MAP_SHARED);
	mo_fill(area);
	return NULL;
}

static const char *mount_ext4(struct mo_area *area)
{
	const char *const mkfs[] = { "mkfs.ext4", "-q", "-F", "-b", "4096", "-O",
				     "^has_journal", FS_DISK, NULL };

	if (!mo_exists(FS_DISK))
		return "no " FS_DISK;
	if (mo_run(mkfs))
		return "cannot make an ext4 on " FS_DISK;
	return mo_mount(area, FS_DISK, "ext4", NULL) ? NULL : "cannot mount ext4";
}

static const char *map_ext4(struct mo_area *area)
{
	const char *why_not = mount_ext4(area);

	if (why_not)
		return why_not;
	mo_open_file(area);
	mo_write_pages(area->fd, area->shadow, area->bytes);
	if (area->type == MO_EXT4_CLEAN) {
		/* Mounting again drops the file from the page cache. */
		close(area->fd);
		if (umount(area->dir) ||
		    mount(FS_DISK, area->dir, "ext4", 0, NULL))
			mo_die("cannot mount ext4 again: %m");
		mo_open_file(area);
	}
	map_memory(area, MAP_SHARED);
	/* A read ahead would make large folios. */
	if (madvise(area->mem, area->bytes, MADV_RANDOM))
		mo_die("madvise: %m");
	if (area->type == MO_EXT4)
		mo_fill(area);
	return mo_content_ok(area) ? NULL : "the file has another content";
}

static const char *wait_until(const struct mo_area *area,
			      bool (*is_ready)(const struct mo_area *, size_t))
{
	int tries;
	size_t i;

	for (tries = 0; tries < WAIT_TRIES; tries++) {
		for (i = 0; i < area->bytes; i += SZ_4K)
			if (!is_ready(area, i))
				break;
		if (i == area->bytes)
			return NULL;
		usleep(WAIT_US);
	}
	return "the kernel does not bring pages into this state";
}

/* Each two pages are one.  Linux 6.12 sets KPF_KSM for all anonymous pages. */
static bool is_merged(const struct mo_area *area, size_t i)
{
	return mo_pfn(area->mem + i) == mo_pfn(area->mem + (i ^ SZ_4K));
}

static const char *map_ksm(struct mo_area *area)
{
	const char *why_not;

	if (!mo_exists(PATH_KSM "run"))
		return "no KSM";
	area->step = 2 * SZ_4K;
	map_memory(area, MAP_PRIVATE | MAP_ANONYMOUS);
	mo_fill(area);
	if (madvise(area->mem, area->bytes, MADV_MERGEABLE))
		mo_die("cannot merge memory: %m");
	mo_write(PATH_KSM "pages_to_scan", "10000");
	mo_write(PATH_KSM "run", "1");
	why_not = wait_until(area, is_merged);
	/* ksmd takes references to pages.  Other tests cover that. */
	mo_write(PATH_KSM "run", "0");
	return why_not;
}

const char *mo_swap_on(void)
{
	char header[SZ_4K] = {};
	__u32 *info = (__u32 *)(header + 1024);
	off_t bytes;
	int fd;

	/* A failed test may have left this swap area on. */
	swapoff(SWAP_DISK);
	fd = open(SWAP_DISK, O_RDWR);
	if (fd < 0)
		return "no " SWAP_DISK;
	bytes = lseek(fd, 0, SEEK_END);
	info[0] = 1;
	info[1] = bytes / SZ_4K - 1;
	memcpy(header + SZ_4K - 10, "SWAPSPACE2", 10);
	if (pwrite(fd, header, sizeof(header), 0) != sizeof(header) || fsync(fd))
		mo_die("cannot write to " SWAP_DISK ": %m");
	close(fd);
	if (swapon(SWAP_DISK, 0))
		return "cannot swap to " SWAP_DISK;
	return NULL;
}

void mo_swap_off(void)
{
	if (swapoff(SWAP_DISK))
		mo_die("cannot switch swap off: %m");
}

/*
 * Reclaim skips a page that is still in a batch for the LRU lists.  The batch
 * may belong to a CPU that this task has left.
 */
static const char *page_out(struct mo_area *area)
{
	int tries;
	size_t i;

	for (tries = 0; tries < WAIT_TRIES; tries++) {
		mo_drain();
		if (madvise(area->mem, area->bytes, MADV_PAGEOUT))
			return "cannot page out";
		for (i = 0; i < area->bytes; i += SZ_4K)
			if (!mo_swapped(area->mem + i))
				break;
		if (i == area->bytes)
			return NULL;
		usleep(WAIT_US);
	}
	return "the kernel does not page out";
}

static bool is_in_swap_cache(const struct mo_area *area, size_t i)
{
	return mo_page_flag(area->mem + i, KPF_SWAPCACHE);
}

/*
 * A page read from swap stays in the swap cache while another process needs its
 * swap entry.  area->keeper is such a process, which touches no memory.
 */
static const char *map_swapcache(struct mo_area *area)
{
	const char *why_not = mo_swap_on();

	if (why_not)
		return why_not;
	area->swap_on = true;
	map_memory(area, MAP_PRIVATE | MAP_ANONYMOUS);
	mo_fill(area);
	why_not = page_out(area);
	if (why_not)
		return why_not;

	fflush(stdout);
	area->keeper = fork();
	if (area->keeper < 0)
		mo_die("cannot fork: %m");
	if (!area->keeper) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	if (!mo_content_ok(area))
		mo_die("swapping lost content");
	return wait_until(area, is_in_swap_cache);
}

const char *mo_map(struct mo_area *area, enum mo_type type, size_t bytes,
		   size_t folio_bytes)
{
	static const char *(*const map[])(struct mo_area *) = {
		[MO_ANON] = map_anon,
		[MO_MLOCKED] = map_mlocked,
		[MO_SHMEM] = map_shmem,
		[MO_TMPFS] = map_tmpfs,
		[MO_EXT4] = map_ext4,
		[MO_EXT4_CLEAN] = map_ext4,
		[MO_KSM] = map_ksm,
		[MO_SWAPCACHE] = map_swapcache,
		[MO_HUGETLB] = mo_map_huge,
		[MO_HUGETLB_SHARED] = mo_map_huge,
		[MO_HUGETLB_FILE] = mo_map_huge,
	};
	const char *why_not;

	*area = (struct mo_area) {
		.type = type,
		.bytes = bytes,
		.folio_bytes = folio_bytes,
		.step = folio_bytes,
		.fd = -1,
	};
	area->shadow = malloc(bytes);
	if (!area->shadow)
		mo_die("no memory");
	fill_shadow(area);
	why_not = map[type](area);
	/* The binding does not move pages that the page cache already has. */
	if (!why_not && mo_elsewhere(area, mo_nodes[0]) &&
	    mo_move(area, mo_nodes[0]))
		mo_die("memory that cannot be moved");
	return why_not;
}

void mo_unmap(struct mo_area *area)
{
	char path[64];

	if (area->keeper > 0) {
		kill(area->keeper, SIGKILL);
		waitpid(area->keeper, NULL, 0);
	}
	if (area->mapped)
		munmap(area->mapped, area->mapped_bytes);
	if (area->swap_on && swapoff(SWAP_DISK))
		mo_die("cannot switch swap off: %m");
	if (area->fd >= 0)
		close(area->fd);
	if (area->dir[0]) {
		snprintf(path, sizeof(path), "%s/file", area->dir);
		unlink(path);
		if (umount(area->dir) || rmdir(area->dir))
			mo_die("cannot unmount %s: %m", area->dir);
	}
	mo_unmap_huge(area);
	free(area->shadow);
}

bool mo_page_ok(const struct mo_area *area, size_t page)
{
	return !memcmp(area->mem + page * SZ_4K,
		       (char *)area->shadow + page * SZ_4K, SZ_4K);
}

bool mo_content_ok(const struct mo_area *area)
{
	size_t i, wrong = 0, first = 0;

	for (i = 0; i < area->bytes / SZ_4K; i++) {
		if (mo_page_ok(area, i))
			continue;
		if (!wrong++)
			first = i;
	}
	if (wrong)
		printf("# wrong content in %zu pages, the first is page %zu\n",
		       wrong, first);
	return !wrong;
}

/*
 * Imitate the order of callers: compaction takes folios from the highest down,
 * and reclaim leaves gaps.
 */
size_t mo_nth(const struct mo_area *area, size_t nth)
{
	size_t in_row = nth % 64;

	if (!area->scattered || in_row < 32 ||
	    nth - in_row + 64 > area->bytes / area->folio_bytes)
		return nth;
	if (in_row < 48)
		return nth - in_row + 62 - 2 * (in_row - 32);
	return nth - in_row + 33 + 2 * (in_row - 48);
}

static size_t list_addresses(const struct mo_area *area, size_t step,
			     void ***addresses)
{
	size_t i, nr = area->bytes / step;

	*addresses = malloc(nr * sizeof(**addresses));
	if (!*addresses)
		mo_die("no memory");
	for (i = 0; i < nr; i++)
		(*addresses)[i] = area->mem + mo_nth(area, i) * step;
	return nr;
}

/* Keep the addresses of pages that are not on the node. */
static size_t keep_elsewhere(void **addresses, size_t nr, int node)
{
	int *nodes = malloc(nr * sizeof(*nodes));
	size_t i, kept = 0;

	if (!nodes)
		mo_die("no memory");
	mo_query(addresses, nr, nodes);
	for (i = 0; i < nr; i++)
		if (nodes[i] != node)
			addresses[kept++] = addresses[i];
	free(nodes);
	return kept;
}

unsigned long mo_elsewhere(const struct mo_area *area, int node)
{
	void **addresses;
	size_t nr = list_addresses(area, SZ_4K, &addresses);

	nr = keep_elsewhere(addresses, nr, node);
	free(addresses);
	return nr;
}

long mo_move_once(const struct mo_area *area, int node)
{
	void **addresses;
	size_t nr = list_addresses(area, area->step, &addresses);
	long ret = mo_move_pages(addresses, nr, node);

	free(addresses);
	return ret;
}

/*
 * A large folio that the kernel split is many folios now, and a process may
 * have held a reference for a moment.  So continue page by page with the rest.
 */
unsigned long mo_move(const struct mo_area *area, int node)
{
	unsigned long left = 0;
	int tries;

	for (tries = 0; tries < 20; tries++) {
		void **addresses;
		size_t nr = list_addresses(area, tries ? SZ_4K : area->step,
					   &addresses);
		long ret = 0;

		nr = keep_elsewhere(addresses, nr, node);
		if (nr)
			ret = mo_move_pages(addresses, nr, node);
		free(addresses);
		if (ret < 0)
			mo_die("cannot move pages: %s", strerror(-ret));
		left = mo_elsewhere(area, node);
		if (!left)
			break;
		if (tries > 1)
			usleep(10000);
	}
	return left;
}

void mo_expect_byte(struct mo_area *area, size_t page, int byte)
{
	memset((char *)area->shadow + page * SZ_4K, byte, SZ_4K);
}
