// SPDX-License-Identifier: GPL-2.0-only
/*
 * Operations of programs on memory that is being moved, and the content that
 * must result.
 *
 * Each operation owns a slot: no other thread of this process writes there or
 * changes its mappings.  At its end the slot is mapped as before.  No operation
 * allocates memory, or maps memory at an address that the kernel chooses.  The
 * address could be in a gap that another operation has made.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_torture.h"

/* Words of a page that have content. */
#define PAGE_WORDS DEVICE_WORD
/* The capacity of a pipe. */
#define PIPE_PAGES 16
#define MPOL_DEFAULT 0
#define MPOL_BIND 2
#define MPOL_MF_MOVE 2

#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif

/* Children of a process with threads call this, too: no stdio. */
void torture_wrong(const char *fmt, ...)
{
	char text[256];
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(text, sizeof(text) - 1, fmt, args);
	va_end(args);
	if (len > (int)sizeof(text) - 2)
		len = sizeof(text) - 2;
	text[len++] = '\n';
	/* The first reports are enough. */
	if (atomic_fetch_add(&shared->wrong, 1) < 20 &&
	    (write(STDOUT_FILENO, "# ", 2) < 0 ||
	     write(STDOUT_FILENO, text, len) < 0))
		_exit(1);
}

__u64 roll(struct worker *w)
{
	return mo_mix(w->seed, w->rolls++);
}

__u64 new_version(struct worker *w)
{
	/* Never 0, and different from all versions of other workers. */
	return roll(w) << 8 | (w->nr + 1);
}

static __u64 word_of(__u64 version, size_t i)
{
	return version ? mo_mix(version, i) : 0;
}

/* Load from memory each time, because the page moves. */
static __u64 get_word(const char *mem, size_t i)
{
	return __atomic_load_n((const __u64 *)mem + i, __ATOMIC_RELAXED);
}

static void put_word(char *mem, size_t i, __u64 value)
{
	__atomic_store_n((__u64 *)mem + i, value, __ATOMIC_RELAXED);
}

void fill_page(char *mem, __u64 version)
{
	size_t i;

	for (i = 0; i < PAGE_WORDS; i++)
		put_word(mem, i, word_of(version, i));
}

bool check_page(const char *what, const char *mem, __u64 version)
{
	__u64 found;
	size_t i;

	for (i = 0; i < PAGE_WORDS; i++) {
		found = get_word(mem, i);
		if (found == word_of(version, i))
			continue;
		torture_wrong("%s: %p, word %zu is %llx, not %llx", what, mem,
			      i, found, word_of(version, i));
		return false;
	}
	atomic_fetch_add(&shared->verified, 1);
	return true;
}

void check_slot(const char *what, const struct slot *s)
{
	size_t i;

	for (i = 0; i < SLOT_PAGES; i++)
		if (!check_page(what, s->mem + i * SZ_4K, s->version[i]))
			return;
}

/* Write new content to pages. */
void write_pages(struct worker *w, struct slot *s, size_t first, size_t step)
{
	size_t i;

	for (i = first; i < SLOT_PAGES; i += step) {
		s->version[i] = new_version(w);
		fill_page(s->mem + i * SZ_4K, s->version[i]);
	}
}

void slot_is_new(struct slot *s)
{
	/* Without this advice, the kernel may allocate folios of any size. */
	if (madvise(s->mem, SLOT_BYTES,
		    s->large ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) &&
	    errno != EINVAL)
		mo_die("madvise: %m");
	memset(s->version, 0, sizeof(s->version));
}

static void rest(struct worker *w)
{
	usleep(roll(w) % 4000);
}

static void advise(struct slot *s, int advice)
{
	/* EAGAIN: the kernel could not isolate some pages now. */
	if (madvise(s->mem, SLOT_BYTES, advice) && errno != EAGAIN &&
	    errno != EINVAL)
		mo_die("madvise(%d): %m", advice);
}

static void op_write(struct worker *w, struct slot *s)
{
	write_pages(w, s, roll(w) % 4, 1 + roll(w) % 4);
}

static void op_words(struct worker *w, struct slot *s)
{
	size_t page = roll(w) % SLOT_PAGES, i;
	__u64 version = new_version(w);

	/* Write slowly, so that the page moves in the middle. */
	for (i = 0; i < PAGE_WORDS; i++) {
		put_word(s->mem + page * SZ_4K, i, word_of(version, i));
		if (i % 64 == 0)
			usleep(roll(w) % 500);
	}
	s->version[page] = version;
}

static void forked(struct worker *w, struct slot *s)
{
	size_t i;

	rest(w);
	check_slot("child", s);
	write_pages(w, s, 0, 2);
	rest(w);
	for (i = 0; i < SLOT_PAGES; i++)
		if (!check_page("child after writing", s->mem + i * SZ_4K,
				s->version[i]))
			break;
	_exit(0);
}

static void op_fork(struct worker *w, struct slot *s)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return;
	if (!pid) {
		w->seed = mo_mix(w->seed, 1);
		forked(w, s);
	}
	write_pages(w, s, 0, 3);
	check_slot("parent", s);
	if (waitpid(pid, &status, 0) != pid)
		mo_die("cannot wait: %m");
	if (status)
		torture_wrong("a child ended with status %x", status);
}

static void protect(struct slot *s, size_t first, size_t nr, int prot)
{
	if (mprotect(s->mem + first * SZ_4K, nr * SZ_4K, prot))
		mo_die("mprotect: %m");
}

static void op_mprotect(struct worker *w, struct slot *s)
{
	size_t first = roll(w) % SLOT_PAGES;
	size_t nr = 1 + roll(w) % (SLOT_PAGES - first);

	protect(s, first, nr, PROT_NONE);
	rest(w);
	protect(s, first, nr, PROT_READ);
	check_slot("mprotect", s);
	protect(s, first, nr, PROT_READ | PROT_WRITE);
	write_pages(w, s, first, 2);
}

static void op_mremap(struct worker *w, struct slot *s)
{
	char *home = s->mem;

	if (mremap(home, SLOT_BYTES, SLOT_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
		   w->scratch) != w->scratch)
		mo_die("mremap: %m");
	s->mem = w->scratch;
	check_slot("mremap", s);
	write_pages(w, s, roll(w) % 2, 2);
	s->mem = home;
	if (mremap(w->scratch, SLOT_BYTES, SLOT_BYTES,
		   MREMAP_MAYMOVE | MREMAP_FIXED, home) != home)
		mo_die("mremap back: %m");
}

static void op_munmap(struct worker *w, struct slot *s)
{
	if (munmap(s->mem, SLOT_BYTES))
		mo_die("munmap: %m");
	if (mmap(s->mem, SLOT_BYTES, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		 0) != s->mem)
		mo_die("mmap: %m");
	slot_is_new(s);
	write_pages(w, s, 1, 2);
}

static void op_dontneed(struct worker *w, struct slot *s)
{
	size_t first = roll(w) % SLOT_PAGES, i;
	size_t nr = 1 + roll(w) % (SLOT_PAGES - first);

	if (madvise(s->mem + first * SZ_4K, nr * SZ_4K, MADV_DONTNEED))
		mo_die("madvise(DONTNEED): %m");
	for (i = first; i < first + nr; i++)
		s->version[i] = 0;
	if (roll(w) % 2)
		check_slot("dontneed", s);
	write_pages(w, s, first, 1);
}

/* The kernel may drop each page until the next write to the page. */
static void op_free(struct worker *w, struct slot *s)
{
	size_t last = PAGE_WORDS - 1, i, n;

	advise(s, MADV_FREE);
	rest(w);
	for (i = 0; i < SLOT_PAGES; i++) {
		__u64 version = s->version[i], last_word = word_of(version, last);
		char *page = s->mem + i * SZ_4K;

		put_word(page, last, last_word);
		if (!get_word(page, 0))
			version = 0;
		for (n = 0; n < last; n++)
			if (get_word(page, n) != word_of(version, n))
				break;
		if (n < last || get_word(page, last) != last_word)
			torture_wrong("free: %p, word %zu", page, n);
		fill_page(page, s->version[i]);
	}
}

static void op_cold(struct worker *w, struct slot *s)
{
	advise(s, MADV_COLD);
}

static void op_pageout(struct worker *w, struct slot *s)
{
	advise(s, MADV_PAGEOUT);
	if (roll(w) % 2)
		rest(w);
}

static void uffd_register(struct slot *s, __u64 mode)
{
	struct uffdio_register reg = {
		.range = { .start = (size_t)s->mem, .len = SLOT_BYTES },
		.mode = mode,
	};

	if (ioctl(torture_uffd(), UFFDIO_REGISTER, &reg))
		mo_die("cannot register memory with a userfaultfd: %m");
}

static void uffd_unregister(struct slot *s)
{
	struct uffdio_range range = {
		.start = (size_t)s->mem, .len = SLOT_BYTES,
	};

	if (ioctl(torture_uffd(), UFFDIO_UNREGISTER, &range))
		mo_die("cannot unregister memory from a userfaultfd: %m");
}

/* The thread that serves the userfaultfd fills each page with its version. */
static void op_uffd_missing(struct worker *w, struct slot *s)
{
	size_t i;

	if (torture_uffd() < 0)
		return;
	/* Set versions first: a device may fault before this thread does. */
	for (i = 0; i < SLOT_PAGES; i++)
		s->version[i] = new_version(w);
	uffd_register(s, UFFDIO_REGISTER_MODE_MISSING);
	advise(s, MADV_DONTNEED);
	check_slot("uffd missing", s);
	rest(w);
	check_slot("uffd missing, again", s);
	uffd_unregister(s);
}

static void op_uffd_wp(struct worker *w, struct slot *s)
{
	struct uffdio_writeprotect wp = {
		.range = { .start = (size_t)s->mem, .len = SLOT_BYTES },
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};
	size_t i;

	if (torture_uffd() < 0)
		return;
	/* Only present pages can be protected. */
	write_pages(w, s, 0, 1);
	uffd_register(s, UFFDIO_REGISTER_MODE_WP);
	for (i = 0; i < SLOT_PAGES; i++)
		atomic_store(&s->nr_caught[i], 0);
	while (ioctl(torture_uffd(), UFFDIO_WRITEPROTECT, &wp))
		if (errno != EAGAIN)
			mo_die("cannot protect memory by userfaultfd: %m");
	rest(w);
	check_slot("uffd wp", s);
	write_pages(w, s, 0, 2);
	for (i = 0; i < SLOT_PAGES; i++)
		if ((atomic_load(&s->nr_caught[i]) > 0) == i % 2)
			torture_wrong("uffd wp: page %zu of %p was caught %u times",
				      i, s->mem, atomic_load(&s->nr_caught[i]));
	uffd_unregister(s);
}

static void op_mlock(struct worker *w, struct slot *s)
{
	if (mlock(s->mem, SLOT_BYTES))
		mo_die("mlock: %m");
	rest(w);
	write_pages(w, s, roll(w) % 4, 4);
	if (munlock(s->mem, SLOT_BYTES))
		mo_die("munlock: %m");
}

/* A pipe holds references to pages, not copies. */
static void op_vmsplice(struct worker *w, struct slot *s)
{
	size_t first = roll(w) % (SLOT_PAGES - PIPE_PAGES);
	struct iovec iov = {
		.iov_base = s->mem + first * SZ_4K,
		.iov_len = PIPE_PAGES * SZ_4K,
	};
	ssize_t len, done, got;
	size_t i;

	len = vmsplice(w->pipe[1], &iov, 1, SPLICE_F_NONBLOCK);
	if (len < 0)
		mo_die("vmsplice: %m");
	rest(w);
	for (done = 0; done < len; done += got) {
		got = read(w->pipe[0], w->buf + done, len - done);
		if (got <= 0)
			mo_die("cannot read a spliced page: %m");
	}
	for (i = 0; i < len / SZ_4K; i++)
		check_page("vmsplice", w->buf + i * SZ_4K, s->version[first + i]);
}

/* Direct I/O from memory to disk and back holds references to pages. */
static void op_direct(struct worker *w, struct slot *s)
{
	size_t i;

	if (w->disk < 0)
		return;
	if (pwrite(w->disk, s->mem, SLOT_BYTES, w->disk_offset) != SLOT_BYTES ||
	    pread(w->disk, w->buf, SLOT_BYTES, w->disk_offset) != SLOT_BYTES)
		mo_die("direct I/O: %m");
	for (i = 0; i < SLOT_PAGES; i++) {
		check_page("written by direct I/O", w->buf + i * SZ_4K,
			   s->version[i]);
		s->version[i] = new_version(w);
		fill_page(w->buf + i * SZ_4K, s->version[i]);
	}
	if (pwrite(w->disk, w->buf, SLOT_BYTES, w->disk_offset) != SLOT_BYTES ||
	    pread(w->disk, s->mem, SLOT_BYTES, w->disk_offset) != SLOT_BYTES)
		mo_die("direct I/O: %m");
	check_slot("read by direct I/O", s);
}

/* As op_direct(), but with buffers that stay pinned between both transfers. */
static void op_uring(struct worker *w, struct slot *s)
{
	size_t i;

	if (w->disk < 0 || !w->ring ||
	    !mo_uring_register(w->ring, s->mem, SLOT_BYTES))
		return;
	rest(w);
	write_pages(w, s, 0, 3);
	if (mo_uring_rw(w->ring, true, w->disk, s->mem, SLOT_BYTES,
			w->disk_offset) != SLOT_BYTES ||
	    pread(w->disk, w->buf, SLOT_BYTES, w->disk_offset) != SLOT_BYTES)
		mo_die("cannot write a registered buffer");
	for (i = 0; i < SLOT_PAGES; i++) {
		check_page("written by io_uring", w->buf + i * SZ_4K,
			   s->version[i]);
		s->version[i] = new_version(w);
		fill_page(w->buf + i * SZ_4K, s->version[i]);
	}
	rest(w);
	if (pwrite(w->disk, w->buf, SLOT_BYTES, w->disk_offset) != SLOT_BYTES ||
	    mo_uring_rw(w->ring, false, w->disk, s->mem, SLOT_BYTES,
			w->disk_offset) != SLOT_BYTES)
		mo_die("cannot read into a registered buffer");
	check_slot("read by io_uring", s);
	mo_uring_unregister(w->ring);
}

/* A child's task: write to pages of the thread that waits for the child. */
struct tracer {
	struct worker *w;
	const struct slot *s;
	pid_t tid;
	size_t first, step;
};

static void attach(const struct tracer *t)
{
	if (ptrace(PTRACE_ATTACH, t->tid, NULL, NULL) ||
	    waitpid(t->tid, NULL, __WALL) != t->tid)
		_exit(1);
}

static int poke(void *arg)
{
	const struct tracer *t = arg;
	size_t page, i;

	attach(t);
	for (page = t->first; page < SLOT_PAGES; page += t->step)
		for (i = 0; i < PAGE_WORDS; i++)
			if (ptrace(PTRACE_POKEDATA, t->tid,
				   (__u64 *)(t->s->mem + page * SZ_4K) + i,
				   word_of(t->s->version[page], i)))
				_exit(1);
	_exit(!!ptrace(PTRACE_DETACH, t->tid, NULL, NULL));
}

static int write_proc_mem(void *arg)
{
	const struct tracer *t = arg;
	char path[32];
	size_t page;
	int fd;

	attach(t);
	snprintf(path, sizeof(path), "/proc/%d/mem", t->tid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	for (page = t->first; page < SLOT_PAGES; page += t->step) {
		fill_page(t->w->buf, t->s->version[page]);
		if (pwrite(fd, t->w->buf, SZ_4K,
			   (size_t)(t->s->mem + page * SZ_4K)) != SZ_4K)
			_exit(1);
	}
	_exit(!!ptrace(PTRACE_DETACH, t->tid, NULL, NULL));
}

/* A debugger may write where the program itself may not. */
static void debug(struct worker *w, struct slot *s, size_t step,
		  int (*write_by)(void *), int flags)
{
	struct tracer tracer = {
		.w = w,
		.s = s,
		.tid = syscall(SYS_gettid),
		.first = roll(w) % SLOT_PAGES,
		.step = step,
	};
	size_t page;
	pid_t pid;
	int status;

	for (page = tracer.first; page < SLOT_PAGES; page += step)
		s->version[page] = new_version(w);
	protect(s, 0, SLOT_PAGES, PROT_READ);
	/* The first page of the buffer is for data. */
	pid = clone(write_by, w->buf + SLOT_BYTES, flags | SIGCHLD, &tracer);
	if (pid < 0)
		mo_die("cannot clone: %m");
	while (waitpid(pid, &status, 0) != pid)
		if (errno != EINTR)
			mo_die("cannot wait: %m");
	if (status)
		mo_die("cannot trace my own threads: status %x", status);
	protect(s, 0, SLOT_PAGES, PROT_READ | PROT_WRITE);
}

/* Write to new pages, as the child shares the old ones. */
static void op_ptrace(struct worker *w, struct slot *s)
{
	debug(w, s, SLOT_PAGES / 4, poke, 0);
}

/*
 * Write to the same pages, as the child has the same memory.  Linux 7.3 lets only
 * a debugger write to pages that are read-only for the program.
 */
static void op_proc_mem(struct worker *w, struct slot *s)
{
	debug(w, s, 2, write_proc_mem, CLONE_VM);
}

static void op_mbind(struct worker *w, struct slot *s)
{
	unsigned long mask[4] = {};
	int node = mo_nodes[roll(w) % 2];

	mask[node / 64] = 1UL << (node % 64);
	/* The kernel may lack memory at first. */
	if (syscall(SYS_mbind, s->mem, SLOT_BYTES, MPOL_BIND, mask,
		    8 * sizeof(mask), MPOL_MF_MOVE) && errno != EIO)
		mo_die("mbind: %m");
	if (syscall(SYS_mbind, s->mem, SLOT_BYTES, MPOL_DEFAULT, NULL, 0, 0))
		mo_die("mbind: %m");
}

const struct torture_op torture_ops[] = {
	{ .name = "write", .run = op_write, .any_memory = true },
	{ .name = "words", .run = op_words, .any_memory = true },
	{ .name = "fork", .run = op_fork },
	{ .name = "mprotect", .run = op_mprotect, .any_memory = true },
	{ .name = "mremap", .run = op_mremap, .any_memory = true },
	{ .name = "munmap", .run = op_munmap },
	{ .name = "dontneed", .run = op_dontneed },
	{ .name = "free", .run = op_free },
	{ .name = "cold", .run = op_cold, .any_memory = true },
	{ .name = "pageout", .run = op_pageout, .any_memory = true },
	{ .name = "uffd-missing", .run = op_uffd_missing, .whole_pages = true },
	{ .name = "uffd-wp", .run = op_uffd_wp, .whole_pages = true },
	{ .name = "mlock", .run = op_mlock, .any_memory = true },
	{ .name = "vmsplice", .run = op_vmsplice, .any_memory = true },
	{ .name = "direct", .run = op_direct, .whole_pages = true },
	{ .name = "io_uring", .run = op_uring, .whole_pages = true },
	{ .name = "ptrace", .run = op_ptrace },
	{ .name = "proc-mem", .run = op_proc_mem, .whole_pages = true },
	{ .name = "mbind", .run = op_mbind },
	{ .name = "family", .run = op_family },
	{ .name = "file", .run = op_file, .whole_pages = true },
	{ .name = "shmem", .run = op_shmem, .whole_pages = true },
	{ .name = "compact", .run = op_compact },
};

const unsigned int nr_torture_ops = ARRAY_SIZE(torture_ops);
