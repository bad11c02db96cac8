/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations that the files of migrate_notifier_test share. */
#ifndef _MIGRATE_OFFLOAD_TEST_NOTIFIER_H
#define _MIGRATE_OFFLOAD_TEST_NOTIFIER_H

#include <linux/atomic.h>
#include <linux/limits.h>
#include <linux/mm_types.h>
#include <linux/mmu_notifier.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/types.h>

/* The most pages that one open file can watch. */
#define NOTIFIER_MAX_PAGES	16384UL

/*
 * The most ranges that may be open at once.  A task has one range open, or two
 * while it splits a huge page inside the first.
 */
#define NOTIFIER_MAX_OPEN	128

/* The word of a device that only reads. */
#define NOTIFIER_NO_WORD	UINT_MAX

enum notifier_count {
	/* Events: */
	NOTIFIER_RANGES,	/* ranges that began and touched watched pages */
	NOTIFIER_DROPPED,	/* entries of the shadow that were dropped */
	NOTIFIER_FILLED,	/* entries of the shadow that were filled */
	NOTIFIER_ACCESSES,	/* by the device, through the shadow */
	/* Failures: */
	NOTIFIER_UNPAIRED,	/* an end without a start, or a start without end */
	NOTIFIER_IN_RANGE,	/* an access while a range was open */
	NOTIFIER_STALE,		/* the page table has another page, or none */
	NOTIFIER_LOST,		/* a write that is not in the page any more */
	NR_NOTIFIER_COUNTS,
};

/* A range between its start and its end. */
struct notifier_open {
	const struct task_struct *task;	/* NULL: this slot is free */
	unsigned long start, end;
};

/*
 * The device's copy of a page table entry, and the last number written there.
 */
struct notifier_page {
	struct page *page;		/* NULL: not in the shadow */
	u64 last;			/* 0: nothing so far */
	u32 nr_drops;			/* changes when the entry is dropped */
};

/**
 * struct notifier_watch - a device that uses the memory of a process
 * @mn: receives the changes of this memory.
 * @mm: the process; the device keeps the struct, but not the memory.
 * @thread: runs the device.
 * @start: the first watched address.
 * @nr_pages: the number of watched pages.
 * @word: the u64 of each page that the device writes, or NOTIFIER_NO_WORD.
 * @as_tlb: the shadow is a TLB that follows the CPU's flushes.
 * @lock: protects all members below, except @stale.
 * @stopped: the device makes no access.
 * @dead: the memory is gone.
 * @stale: an entry stayed stale for too long.  Only @thread uses this.
 * @nr_open: the number of used slots in @open.
 * @open: ranges that have begun and not ended.
 * @number: the last number that the device wrote.
 * @pages: one entry for each page.
 */
struct notifier_watch {
	struct mmu_notifier mn;
	struct mm_struct *mm;
	struct task_struct *thread;
	unsigned long start;
	unsigned long nr_pages;
	unsigned int word;
	bool as_tlb;

	spinlock_t lock;		/* taken by callbacks of the notifier */
	bool stopped;
	bool dead;
	bool stale;
	unsigned int nr_open;
	struct notifier_open open[NOTIFIER_MAX_OPEN];
	u64 number;
	struct notifier_page pages[] __counted_by(nr_pages);
};

/* shadow.c: the callbacks of the notifier */
extern atomic64_t notifier_counts[NR_NOTIFIER_COUNTS];
extern bool notifier_deaf;
void notifier_count(enum notifier_count which, unsigned long nr);
int notifier_register(struct notifier_watch *w);
void notifier_unregister(struct notifier_watch *w);
bool notifier_is_covered(struct notifier_watch *w, unsigned long addr);

/* device.c: the device */
extern u32 notifier_rest_us;
int notifier_device(void *data);

#endif /* _MIGRATE_OFFLOAD_TEST_NOTIFIER_H */
