/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations that the files of the torture test share. */
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

/* Memory consists of slots.  Each slot has one worker at a time. */
#define SLOT_PAGES 32
#define SLOT_BYTES (SLOT_PAGES * SZ_4K)
#define NR_SLOTS 64
#define NR_SLOT_PAGES (NR_SLOTS * SLOT_PAGES)
/*
 * The last quarter of slots has folios of 64K, where the kernel supports these.
 */
#define FIRST_LARGE_SLOT (NR_SLOTS - NR_SLOTS / 4)
/* A device writes to these slots of both kinds, and reads all others. */
#define FIRST_DEVICE_SLOT (FIRST_LARGE_SLOT - NR_SLOTS / 8)
#define LAST_DEVICE_SLOT (FIRST_LARGE_SLOT + NR_SLOTS / 8 - 1)
/*
 * The device writes to the last word of a page.  Workers do not use this word.
 */
#define DEVICE_WORD (SZ_4K / sizeof(__u64) - 1)
#define NR_WORKERS 4
#define NR_OPS_MAX 32

/* The disk for direct I/O. */
#define DISK "/dev/ram0"

/* Shared by the process that moves memory and its victim. */
struct torture_shared {
	atomic_bool stop;
	atomic_uintptr_t mem;		/* the first slot; 0: not mapped yet */
	atomic_ulong done[NR_OPS_MAX];	/* operations */
	atomic_ulong verified;		/* pages */
	atomic_ulong wrong;
	atomic_ulong moved;		/* pages, by move_pages(2) */
	atomic_ulong calls;		/* migrate_pages(2) among these */
	atomic_ulong killed;		/* processes, out of memory */
};

extern struct torture_shared *shared;

struct slot {
	pthread_mutex_t lock;
	char *mem;
	bool large;
	bool device;		/* a device writes here, too */
	/* The version of each page's content; 0: all zeroes. */
	__u64 version[SLOT_PAGES];
	/* Writes that the userfaultfd has caught since the last reset. */
	atomic_uint nr_caught[SLOT_PAGES];
};

/* A file that a worker maps at times. */
struct backing {
	const char *name;
	int fd;			/* -1: none */
	__u64 version[SLOT_PAGES];	/* the content while nobody maps it */
};

struct worker {
	unsigned int nr;
	__u64 seed;
	__u64 rolls;
	char *scratch;		/* address space for a slot, unmapped */
	char *buf;		/* a slot's size, for files and pipes */
	int pipe[2];
	int disk;		/* -1: none */
	off_t disk_offset;	/* this worker's part of the disk */
	struct mo_uring *ring;	/* NULL: none */
	struct backing file;	/* on a disk */
	struct backing shmem;
};

struct torture_op {
	const char *name;
	void (*run)(struct worker *w, struct slot *s);
	bool whole_pages;	/* writes the device's word, or checks it */
	bool any_memory;	/* also works with memory of a file */
};

/* torture_ops.c: operations of programs on their memory */
extern const struct torture_op torture_ops[];
extern const unsigned int nr_torture_ops;

__printf(1, 2) void torture_wrong(const char *fmt, ...);
__u64 roll(struct worker *w);
__u64 new_version(struct worker *w);
void fill_page(char *mem, __u64 version);
/* Report a page whose content is wrong.  @what names the check. */
bool check_page(const char *what, const char *mem, __u64 version);
void check_slot(const char *what, const struct slot *s);
void write_pages(struct worker *w, struct slot *s, size_t first, size_t step);
/* The slot has new mappings, without content. */
void slot_is_new(struct slot *s);

/* torture_files.c: operations on memory of files, and of several processes */
void torture_files_begin(void);
void torture_files_end(void);
void torture_files_open(struct worker *w);
void op_family(struct worker *w, struct slot *s);
void op_file(struct worker *w, struct slot *s);
void op_shmem(struct worker *w, struct slot *s);
void op_compact(struct worker *w, struct slot *s);

/*
 * torture_victim.c: the process that owns the memory.  Returns its exit status.
 */
int torture_victim(__u64 seed);
int torture_uffd(void);

#endif /* MO_TORTURE_H */
