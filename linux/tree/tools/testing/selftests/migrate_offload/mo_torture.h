/* SPDX-License-Identifier: GPL-2.0-only */
/* What the parts of the torture test share. */
#ifndef MO_TORTURE_H
#define MO_TORTURE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/types.h>
#include <sys/types.h>

#include "mo_uring.h"
#include "mo_util.h"

/* Memory is divided into slots, of which each has one worker at a time. */
#define SLOT_PAGES 32
#define SLOT_BYTES (SLOT_PAGES * SZ_4K)
#define NR_SLOTS 64
#define NR_SLOT_PAGES (NR_SLOTS * SLOT_PAGES)
/* The last of them are of folios of 64K, where the kernel has them. */
#define FIRST_LARGE_SLOT (NR_SLOTS - NR_SLOTS / 4)
/* A device writes to these, of both kinds, and reads all others. */
#define FIRST_DEVICE_SLOT (FIRST_LARGE_SLOT - NR_SLOTS / 8)
#define LAST_DEVICE_SLOT (FIRST_LARGE_SLOT + NR_SLOTS / 8 - 1)
/* To one word of each page, the last, which is no content of the page. */
#define DEVICE_WORD (SZ_4K / sizeof(__u64) - 1)
#define NR_WORKERS 4
#define NR_OPS_MAX 32

/* The disk that is read and written by direct I/O. */
#define DISK "/dev/ram0"

/* Of both processes: who moves the memory, and whose it is. */
struct torture_shared {
	atomic_bool stop;
	atomic_uintptr_t mem;		/* the first slot; 0: not there yet */
	atomic_ulong done[NR_OPS_MAX];	/* operations */
	atomic_ulong verified;		/* pages */
	atomic_ulong wrong;
	atomic_ulong moved;		/* pages, by move_pages(2) */
	atomic_ulong calls;		/* of that, of migrate_pages(2) */
	atomic_ulong killed;		/* processes, for want of memory */
};

extern struct torture_shared *shared;

struct slot {
	pthread_mutex_t lock;
	char *mem;
	bool large;
	bool device;		/* a device writes here, too */
	/* Says what each page contains; 0: nothing but zeroes. */
	__u64 version[SLOT_PAGES];
	/* Writes that a userfaultfd has seen, since it was asked to. */
	atomic_uint nr_caught[SLOT_PAGES];
};

struct worker {
	unsigned int nr;
	__u64 seed;
	__u64 rolls;
	char *scratch;		/* as large as a slot; nothing is there */
	char *buf;		/* as large as a slot, for files and pipes */
	int pipe[2];
	int disk;		/* -1: none */
	off_t disk_offset;	/* a slot's bytes there are this worker's */
	int mem_fd;
	struct mo_uring *ring;	/* NULL: none */
};

struct torture_op {
	const char *name;
	void (*run)(struct worker *w, struct slot *s);
	bool whole_pages;	/* writes to the device's word, or watches it */
};

/* torture_ops.c: what programs do to memory, and know of it afterwards */
extern const struct torture_op torture_ops[];
extern const unsigned int nr_torture_ops;

__printf(1, 2) void torture_wrong(const char *fmt, ...);
__u64 roll(struct worker *w);
__u64 new_version(struct worker *w);
void fill_page(char *mem, __u64 version);
/* Complains if a page has another content.  @what says who looks. */
bool check_page(const char *what, const char *mem, __u64 version);
void check_slot(const char *what, const struct slot *s);
void write_pages(struct worker *w, struct slot *s, size_t first, size_t step);
/* What is mapped there now is new. */
void slot_is_new(struct slot *s);

/* torture_victim.c: the process whose memory it is.  Returns its exit status. */
int torture_victim(__u64 seed);
int torture_uffd(void);

#endif /* MO_TORTURE_H */
