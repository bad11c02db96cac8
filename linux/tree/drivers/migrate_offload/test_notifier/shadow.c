// SPDX-License-Identifier: GPL-2.0-only
/*
 * The shadow of page table entries, and the rules that it follows.
 *
 * Ranges: from the start of a range to its end, the shadow has no entry of it.
 * The start takes the lock that each access of the device takes.  So no access
 * is under way when the start returns.
 *
 * TLB: an entry is dropped when the CPU's TLBs are flushed.  The device may
 * fill it again at any time, because the page table entry changes before the
 * flush.
 */

#include <linux/kernel.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/sched.h>
#include <linux/wait_bit.h>

#include "test_notifier.h"

/* Ticks to wait for the end of each range that is open when the watch ends. */
#define NOTIFIER_END_TRIES	1000

atomic64_t notifier_counts[NR_NOTIFIER_COUNTS];

/* Drop nothing from the shadow, to prove that the checks notice it. */
bool notifier_deaf;

void notifier_count(enum notifier_count which, unsigned long nr)
{
	atomic64_add(nr, &notifier_counts[which]);
}

static struct notifier_watch *notifier_of(struct mmu_notifier *mn)
{
	return container_of(mn, struct notifier_watch, mn);
}

static bool notifier_overlaps(const struct notifier_watch *w,
			      unsigned long start, unsigned long end)
{
	return start < w->start + w->nr_pages * PAGE_SIZE && end > w->start;
}

static void notifier_drop(struct notifier_watch *w, unsigned long start,
			  unsigned long end)
{
	unsigned long i, first, last, nr = 0;

	lockdep_assert_held(&w->lock);
	if (!notifier_overlaps(w, start, end))
		return;
	first = (max(start, w->start) - w->start) >> PAGE_SHIFT;
	last = (end - 1 - w->start) >> PAGE_SHIFT;
	last = min(last, w->nr_pages - 1);
	for (i = first; i <= last; i++) {
		w->pages[i].nr_drops++;
		nr += !!w->pages[i].page;
		w->pages[i].page = NULL;
	}
	notifier_count(NOTIFIER_DROPPED, nr);
}

/* Returns true if @addr lies in an open range. */
bool notifier_is_covered(struct notifier_watch *w, unsigned long addr)
{
	unsigned int i;

	lockdep_assert_held(&w->lock);
	for (i = 0; w->nr_open && i < NOTIFIER_MAX_OPEN; i++)
		if (w->open[i].task && addr >= w->open[i].start &&
		    addr < w->open[i].end)
			return true;
	return false;
}

/* Returns the slot of a range of @task, or a free slot if @task is NULL. */
static struct notifier_open *
notifier_find_open(struct notifier_watch *w, const struct task_struct *task,
		   unsigned long start, unsigned long end)
{
	struct notifier_open *open;

	for (open = w->open; open < w->open + NOTIFIER_MAX_OPEN; open++)
		if (open->task == task &&
		    (!task || (open->start == start && open->end == end)))
			return open;
	return NULL;
}

static int notifier_start(struct mmu_notifier *mn,
			  const struct mmu_notifier_range *range)
{
	struct notifier_watch *w = notifier_of(mn);
	struct notifier_open *open;

	spin_lock(&w->lock);
	open = notifier_find_open(w, NULL, 0, 0);
	if (open) {
		open->task = current;
		open->start = range->start;
		open->end = range->end;
		w->nr_open++;
	}
	WARN_ONCE(!open, "more ranges are open than there is room for\n");
	if (notifier_overlaps(w, range->start, range->end))
		notifier_count(NOTIFIER_RANGES, 1);
	if (!READ_ONCE(notifier_deaf))
		notifier_drop(w, range->start, range->end);
	spin_unlock(&w->lock);
	return 0;
}

static void notifier_end(struct mmu_notifier *mn,
			 const struct mmu_notifier_range *range)
{
	struct notifier_watch *w = notifier_of(mn);
	struct notifier_open *open;

	spin_lock(&w->lock);
	open = notifier_find_open(w, current, range->start, range->end);
	if (open) {
		open->task = NULL;
		w->nr_open--;
	} else {
		notifier_count(NOTIFIER_UNPAIRED, 1);
	}
	spin_unlock(&w->lock);
}

static void notifier_flush(struct mmu_notifier *mn, struct mm_struct *mm,
			   unsigned long start, unsigned long end)
{
	struct notifier_watch *w = notifier_of(mn);

	/*
	 * The caller often holds a page table lock, which the device never
	 * takes.
	 */
	spin_lock(&w->lock);
	if (!READ_ONCE(notifier_deaf))
		notifier_drop(w, start, end);
	spin_unlock(&w->lock);
}

/*
 * Called when the memory goes away.  If the watch ends first,
 * notifier_unregister() has this called after the device has stopped.
 */
static void notifier_release(struct mmu_notifier *mn, struct mm_struct *mm)
{
	struct notifier_watch *w = notifier_of(mn);

	spin_lock(&w->lock);
	w->dead = true;
	notifier_drop(w, 0, ULONG_MAX);
	spin_unlock(&w->lock);
}

static const struct mmu_notifier_ops notifier_range_ops = {
	.release = notifier_release,
	.invalidate_range_start = notifier_start,
	.invalidate_range_end = notifier_end,
};

static const struct mmu_notifier_ops notifier_tlb_ops = {
	.release = notifier_release,
	.arch_invalidate_secondary_tlbs = notifier_flush,
};

/* Registering takes all locks under which ranges are open: none is open now. */
int notifier_register(struct notifier_watch *w)
{
	w->mn.ops = w->as_tlb ? &notifier_tlb_ops : &notifier_range_ops;
	return mmu_notifier_register(&w->mn, w->mm);
}

static unsigned int notifier_nr_open(struct notifier_watch *w)
{
	unsigned int nr_open;

	spin_lock(&w->lock);
	nr_open = w->nr_open;
	spin_unlock(&w->lock);
	return nr_open;
}

/*
 * Other tasks may open ranges all the time, so wait only for those ranges that
 * are open at the beginning.
 */
void notifier_unregister(struct notifier_watch *w)
{
	unsigned int i, tries;

	for (i = 0; notifier_nr_open(w) && i < NOTIFIER_MAX_OPEN; i++) {
		struct notifier_open first, now;

		spin_lock(&w->lock);
		first = w->open[i];
		spin_unlock(&w->lock);
		for (tries = 0; first.task; tries++) {
			spin_lock(&w->lock);
			now = w->open[i];
			spin_unlock(&w->lock);
			if (now.task != first.task || now.start != first.start ||
			    now.end != first.end)
				break;
			if (tries == NOTIFIER_END_TRIES) {
				notifier_count(NOTIFIER_UNPAIRED, 1);
				break;
			}
			schedule_timeout_idle(1);
		}
	}
	mmu_notifier_unregister(&w->mn, w->mm);
}
