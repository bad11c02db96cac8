// SPDX-License-Identifier: GPL-2.0-only
/* Files, and memory that is their page cache. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"

/* A disk without interrupts, so that no time passes while it is read. */
#define DISK "/dev/ram0"
#define DISK_DIR "/disk"

static const char *directory = ".";

/* Copy @image to a RAM disk, which has all files from then on. */
void files_on_image(const char *image)
{
	int from = open(image, O_RDONLY | O_CLOEXEC);
	int to = open(DISK, O_WRONLY | O_CLOEXEC);
	static char buf[65536];
	ssize_t len = -1;

	while (from >= 0 && to >= 0 && (len = read(from, buf, sizeof(buf))) > 0)
		if (write(to, buf, (size_t)len) != len)
			break;
	if (len || fsync(to))
		bench_die(BENCH_LACKING, "cannot copy %s to " DISK ": %s", image,
			  strerror(errno));
	close(from);
	close(to);
	mkdir(DISK_DIR, 0755);
	if (mount(DISK, DISK_DIR, "ext4", MS_NOATIME, NULL))
		bench_die(BENCH_LACKING, "cannot mount " DISK ": %s",
			  strerror(errno));
	directory = DISK_DIR;
}

/* The page cache must have no page of the file, so that reads allocate them. */
static void drop_cache(const struct region *r, int fd)
{
	static unsigned char cached[QUERY_PAGES];
	size_t page = page_bytes(), nr_cached = 0;

	if (fsync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		bench_die(BENCH_FAILED, "cannot write the pages of a file: %s",
			  strerror(errno));
	for (size_t off = 0; off < r->bytes; off += QUERY_PAGES * page) {
		size_t len = r->bytes - off;

		if (len > QUERY_PAGES * page)
			len = QUERY_PAGES * page;
		if (mincore(r->base + off, len, cached))
			bench_die(BENCH_FAILED, "mincore: %s", strerror(errno));
		for (size_t i = 0; i < len / page; i++)
			nr_cached += cached[i] & 1;
	}
	if (nr_cached)
		bench_die(BENCH_LACKING,
			  "%zu pages of a file in %s stay in memory: this takes a filesystem on a disk",
			  nr_cached, directory);
}

/* Write the content that region_fill() gives to other memory. */
static void write_file(const struct region *r, int fd, uint64_t seed)
{
	size_t page = page_bytes();
	static char buf[65536];

	for (size_t off = 0; off < r->bytes; off += page) {
		pattern_fill(buf, page, seed, off / page);
		if (pwrite(fd, buf, page, (off_t)off) != (ssize_t)page)
			bench_die(BENCH_LACKING, "cannot write to a file in %s: %s",
				  directory, strerror(errno));
	}
}

/* Without readahead, which would allocate large folios on newer kernels. */
static void read_file(const struct region *r, int fd)
{
	size_t page = page_bytes();
	static char buf[65536];

	task_bind(r->node);
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	for (size_t off = 0; off < r->bytes; off += page)
		if (pread(fd, buf, page, (off_t)off) != (ssize_t)page)
			bench_die(BENCH_FAILED, "cannot read a file in %s: %s",
				  directory, strerror(errno));
	task_unbind();
}

/*
 * Map a file that has no name, and whose pages are clean, as those of programs
 * and of most data are.  The end of the process, or its last unmap, deletes it.
 */
void region_map_file(struct region *r, size_t bytes, int node, uint64_t seed)
{
	int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		bench_die(BENCH_LACKING, "cannot make a file in %s: %s",
			  directory, strerror(errno));
	region_map(r, bytes, page_bytes(), node);
	write_file(r, fd, seed);
	if (mmap(r->base, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) ==
	    MAP_FAILED)
		bench_die(BENCH_LACKING, "cannot map a file in %s: %s",
			  directory, strerror(errno));
	drop_cache(r, fd);
	read_file(r, fd);
	close(fd);
	region_touch(r);
}
