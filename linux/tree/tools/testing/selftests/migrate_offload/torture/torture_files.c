// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of files that is being moved: page cache, and shmem.
 *
 * Each worker has a part of a file on a disk, and a file without a disk.  An
 * operation maps the file where a slot's private memory was, and several
 * processes use it.  Later nobody maps it, and its pages stay in the page cache,
 * where compaction moves them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mo_torture.h"

#define FILE_DISK "/dev/ram2"
#define FILE_DIR "/tmp/torture.files"
/* Page tables of so many processes, and of the parent, map a page. */
#define MAX_FAMILY 15

/* A file system on a disk; the page cache of the disk itself has other rules. */
void torture_files_begin(void)
{
	const char *const argv[] = {
		"mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096",
		"-O", "^has_journal", FILE_DISK, NULL,
	};

	if (mkdir(FILE_DIR, 0700) && errno != EEXIST)
		mo_die("cannot make " FILE_DIR ": %m");
	if (mo_run(argv) || mount(FILE_DISK, FILE_DIR, "ext4", 0, NULL))
		printf("# no file system on " FILE_DISK "\n");
}

void torture_files_end(void)
{
	umount(FILE_DIR);
	rmdir(FILE_DIR);
}

static void backing_open(struct backing *b, const char *name, int fd)
{
	*b = (struct backing) { .name = name, .fd = fd };
	if (fd >= 0 && ftruncate(fd, SLOT_BYTES))
		mo_die("cannot make a file for %s: %m", name);
}

void torture_files_open(struct worker *w)
{
	char path[64];

	snprintf(path, sizeof(path), FILE_DIR "/%u", w->nr);
	backing_open(&w->file, "file",
		     open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
	backing_open(&w->shmem, "shmem", memfd_create("torture", MFD_CLOEXEC));
}

static void map(const struct slot *s, int flags, int fd)
{
	if (mmap(s->mem, SLOT_BYTES, PROT_READ | PROT_WRITE, MAP_FIXED | flags,
		 fd, 0) != s->mem)
		mo_die("mmap: %m");
}

/* Read by the descriptor, which finds the pages in another way. */
static void check_file(struct worker *w, const struct backing *b,
		       const __u64 *version)
{
	size_t i;

	if (pread(b->fd, w->buf, SLOT_BYTES, 0) != SLOT_BYTES)
		mo_die("cannot read from a %s: %m", b->name);
	for (i = 0; i < SLOT_PAGES; i++)
		if (!check_page(b->name, w->buf + i * SZ_4K, version[i]))
			return;
}

static void write_file(struct worker *w, const struct backing *b, struct slot *s)
{
	size_t i = roll(w) % SLOT_PAGES;

	s->version[i] = new_version(w);
	fill_page(w->buf, s->version[i]);
	if (pwrite(b->fd, w->buf, SZ_4K, i * SZ_4K) != SZ_4K)
		mo_die("cannot write to a %s: %m", b->name);
}

/* Take pages from the file while they move. */
static void punch(struct worker *w, const struct backing *b, struct slot *s)
{
	size_t first = roll(w) % SLOT_PAGES, i;
	size_t nr = 1 + roll(w) % (SLOT_PAGES - first);

	if (fallocate(b->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      first * SZ_4K, nr * SZ_4K))
		mo_die("a %s refuses a hole: %m", b->name);
	for (i = first; i < first + nr; i++)
		s->version[i] = 0;
}

/* Several processes map and read the same pages. */
static void read_by_family(struct worker *w, const struct slot *s,
			   const char *what)
{
	unsigned int most = roll(w) % 4 ? 3 : MAX_FAMILY;
	unsigned int nr = 1 + roll(w) % most, i;
	pid_t pid[MAX_FAMILY];
	int status;

	for (i = 0; i < nr; i++) {
		pid[i] = fork();
		if (pid[i])
			continue;
		w->seed = mo_mix(w->seed, i + 1);
		check_slot(what, s);
		usleep(roll(w) % 4000);
		check_slot(what, s);
		_exit(0);
	}
	check_slot(what, s);
	for (i = 0; i < nr; i++) {
		if (pid[i] < 0)
			continue;
		if (waitpid(pid[i], &status, 0) != pid[i])
			mo_die("cannot wait: %m");
		if (status)
			torture_wrong("a child ended with status %x", status);
	}
}

void op_family(struct worker *w, struct slot *s)
{
	read_by_family(w, s, "family");
}

/* Do an operation that works with any memory. */
static void any_op(struct worker *w, struct slot *s)
{
	unsigned int nr;

	do {
		nr = roll(w) % nr_torture_ops;
	} while (!torture_ops[nr].any_memory);
	torture_ops[nr].run(w, s);
}

static void use(struct worker *w, struct slot *s, struct backing *b)
{
	if (b->fd < 0)
		return;
	/* Since the last use, nobody has mapped the pages. */
	check_file(w, b, b->version);
	map(s, MAP_SHARED, b->fd);
	write_pages(w, s, 0, 1);
	read_by_family(w, s, b->name);
	any_op(w, s);
	if (roll(w) % 2 && fdatasync(b->fd))
		mo_die("cannot write a %s to its disk: %m", b->name);
	check_file(w, b, s->version);
	write_file(w, b, s);
	if (roll(w) % 2)
		punch(w, b, s);
	check_slot(b->name, s);
	write_pages(w, s, roll(w) % 2, 2);
	memcpy(b->version, s->version, sizeof(b->version));
	map(s, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	slot_is_new(s);
	write_pages(w, s, 1, 2);
}

void op_file(struct worker *w, struct slot *s)
{
	use(w, s, &w->file);
}

void op_shmem(struct worker *w, struct slot *s)
{
	use(w, s, &w->shmem);
}

/* Compaction moves all kinds of pages, also those that nobody maps. */
void op_compact(struct worker *w, struct slot *s)
{
	if (roll(w) % 32 == 0)
		mo_write("/proc/sys/vm/compact_memory", "1");
}
