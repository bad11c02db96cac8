/* SPDX-License-Identifier: GPL-2.0-only */
/* Nodes, files in sysfs and debugfs, and kernel information about pages. */
#ifndef MO_UTIL_H
#define MO_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>

#include "../../kselftest.h"

#define PATH_OFFLOAD "/sys/kernel/mm/migrate_offload/"
#define PATH_DEBUG "/sys/kernel/debug/migrate_offload/"
#define PATH_TEST "/sys/kernel/debug/migrate_offload_test/"
#define PATH_THP "/sys/kernel/mm/transparent_hugepage/"
#define PATH_KSM "/sys/kernel/mm/ksm/"
#define PATH_COMPACT "/proc/sys/vm/compact_memory"

/* Enough for the content of a settings file, or for a path below /tmp. */
#define MO_SETTING_BYTES 32

#define SZ_4K 0x1000UL
#define SZ_1M 0x100000UL
#define SZ_2M 0x200000UL

/* Bits of /proc/kpageflags, see Documentation/admin-guide/mm/pagemap.rst. */
#define KPF_REFERENCED 2
#define KPF_DIRTY 4
#define KPF_LRU 5
#define KPF_ACTIVE 6
#define KPF_SWAPCACHE 13
#define KPF_SWAPBACKED 14
#define KPF_COMPOUND_HEAD 15
#define KPF_COMPOUND_TAIL 16
#define KPF_UNEVICTABLE 18
#define KPF_HWPOISON 19
#define KPF_IDLE 25
#define KPF_MLOCKED 33

/* Print the reason, and end the test. */
__noreturn __printf(1, 2) void mo_die(const char *fmt, ...);

/* Returns NULL if the tests can run, else the reason. */
const char *mo_cannot_run(void);

/* Memory moves between these two nodes. */
extern int mo_nodes[2];
/* Set mo_nodes.  Returns NULL, or the reason.  mo_cannot_run() calls this. */
const char *mo_find_nodes(void);

bool mo_exists(const char *path);
/* mo_try_read() and mo_try_write() return 0 or -errno. */
int mo_try_read(const char *path, char *buf, size_t size);
void mo_read(const char *path, char *buf, size_t size);
long long mo_read_number(const char *path);
int mo_try_write(const char *path, const char *text);
void mo_write(const char *path, const char *text);
void mo_write_number(const char *path, long long number);

/* Run this thread only on the CPU. */
void mo_run_on(int cpu);
/* Use the CPU for this many loops. */
static inline void mo_spin(unsigned int turns)
{
	while (turns--)
		__asm__ __volatile__("" : : : "memory");
}

/*
 * Returns the number after @name, in a file with a name and a number per line.
 */
long long mo_read_line(const char *path, const char *name);
/* A number of /proc/vmstat, including counts that CPUs keep. */
long long mo_vm_counter(const char *name);

/*
 * Write data to a file and to its device.  File systems of newer kernels keep
 * what one call writes in one large folio, so each page is a call.
 */
void mo_write_pages(int fd, const void *data, size_t bytes);

/* A counter of the reason of move_pages(2). */
long long mo_counter(const char *name);

/*
 * Returns the time in ns for which this thread waited for a CPU, or 0 if the
 * kernel does not count it.
 */
long long mo_waited_ns(void);
/* Activate an engine for all copies that it can make. */
void mo_select(const char *engine);
/* Set the engine of one reason, or of each.  "default" removes the setting. */
void mo_select_for(const char *reason, const char *engine);
void mo_select_for_all(const char *engine);
/*
 * The nth engine to test, from 0: the engine that ENGINE names, or else all
 * available ones.  Returns NULL after the last.
 */
const char *mo_engine(unsigned int nth);
/* Modes of the test engine. */
enum mo_test_mode {
	MO_TEST_PLAIN,	/* batch by batch, with a result per folio */
	MO_TEST_POSTED,	/* batch by batch, as a struct migrator */
	MO_TEST_STREAM,	/* batches side by side */
};

/* Load the test engine without activating it.  Returns false on failure. */
bool mo_load_test_engine(enum mo_test_mode mode);
/* Wait until the test engine copies, with a timeout. */
void mo_wait_until_copying(void);
/* Set a number in sysfs or in debugfs, on a kernel that has it. */
void mo_set_limit(const char *name, long long number);
/*
 * Restore the default settings, except engine_always.  This does not load
 * mtcopy: load it with min_thread_bytes=4096, or mtcopy declines small batches.
 */
void mo_reset(void);
int mo_run(const char *const argv[]);

/* An entry of /proc/self/pagemap, or those of @nr pages in a row. */
__u64 mo_pagemap(const void *addr);
void mo_pagemaps(const void *addr, size_t nr, __u64 *entries);
__u64 mo_pfn(const void *addr);
/* The frames of @nr adjacent pages, which must be present. */
void mo_pfns(const void *addr, size_t nr, __u64 *pfns);
/* Entries of /proc/kpageflags. */
void mo_page_flags(__u64 pfn, size_t nr, __u64 *flags);
/* The kernel's count of accessed KiB in the VMA of @mem. */
long long mo_referenced_kb(const char *mem);
bool mo_swapped(const void *addr);
bool mo_page_flag(const void *addr, unsigned int flag);

/* move_pages(2) of this process.  Returns its result, or -errno. */
long mo_move_pages(void **pages, unsigned long nr, int node);
/*
 * Let all CPUs drain their LRU caches.  move_pages(2) does this only for a page
 * that seems to be in one.
 */
void mo_drain(void);
/* Query the node of each page, or -errno. */
void mo_query(void **pages, unsigned long nr, int *nodes);

/* A random number, different in each call. */
__u64 mo_seed(void);
__u64 mo_mix(__u64 a, __u64 b);

#endif /* MO_UTIL_H */
