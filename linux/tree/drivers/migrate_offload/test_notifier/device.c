// SPDX-License-Identifier: GPL-2.0-only
/*
 * The device is a thread that uses the watched pages through the shadow, round
 * after round.  The thread faults pages in as GUP users do, and keeps no
 * reference to pages.
 *
 * The thread detects three failures: an access while a range is open, a shadow
 * entry that differs from the page table, and a lost write.  The thread finds a
 * lost write when it fills an entry, and the page lacks the last number.
 */

#include <linux/delay.h>
#include <linux/highmem.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>

#include "test_notifier.h"

u32 notifier_rest_us = 100;

/*
 * A TLB's entry must not be stale in so many checks, at least 0.5 ms apart.  For
 * seconds, the host may stop the CPU that flushes.
 */
#define NOTIFIER_STALE_TRIES	10000
/* Nor an entry that follows ranges, in so many checks in a row. */
#define NOTIFIER_LOOKS		3

static unsigned int notifier_gup_flags(const struct notifier_watch *w)
{
	unsigned int flags = FOLL_HONOR_NUMA_FAULT;

	return w->word == NOTIFIER_NO_WORD ? flags : flags | FOLL_WRITE;
}

static unsigned long notifier_addr(const struct notifier_watch *w,
				   unsigned long nth)
{
	return w->start + nth * PAGE_SIZE;
}

/* Count a lost write if @page has another number.  A zero means a new page. */
static void notifier_look(struct notifier_watch *w, unsigned long nth,
			  struct page *page)
{
	u64 last = w->pages[nth].last, found;
	u64 *words;

	if (w->word == NOTIFIER_NO_WORD || !last)
		return;
	words = kmap_local_page(page);
	found = READ_ONCE(words[w->word]);
	kunmap_local(words);
	if (found && found != last) {
		notifier_count(NOTIFIER_LOST, 1);
		pr_info_ratelimited("%lx: %llu was written last, and %llu is there\n",
				    notifier_addr(w, nth), last, found);
	}
	w->pages[nth].last = 0;
}

/* Returns false if the page is absent, or the device may not access it. */
static bool notifier_fill(struct notifier_watch *w, unsigned long nth)
{
	unsigned long addr = notifier_addr(w, nth);
	struct page *page;
	bool filled = false;
	u32 nr_drops;

	spin_lock(&w->lock);
	nr_drops = w->pages[nth].nr_drops;
	if (w->dead || notifier_is_covered(w, addr)) {
		spin_unlock(&w->lock);
		return false;
	}
	spin_unlock(&w->lock);

	if (get_user_pages_fast(addr, 1, notifier_gup_flags(w), &page) != 1)
		return false;
	spin_lock(&w->lock);
	if (nr_drops == w->pages[nth].nr_drops &&
	    !notifier_is_covered(w, addr)) {
		w->pages[nth].page = page;
		notifier_look(w, nth, page);
		filled = true;
	}
	spin_unlock(&w->lock);
	put_page(page);
	if (filled)
		notifier_count(NOTIFIER_FILLED, 1);
	return filled;
}

/* Use one page through the shadow.  Returns false if the shadow lacks it. */
static bool notifier_access(struct notifier_watch *w, unsigned long nth)
{
	struct page *page;
	u64 *words;

	spin_lock(&w->lock);
	page = w->pages[nth].page;
	if (!page || w->stopped) {
		spin_unlock(&w->lock);
		return w->stopped;
	}
	words = kmap_local_page(page);
	if (w->word == NOTIFIER_NO_WORD) {
		(void)READ_ONCE(words[0]);
	} else {
		w->pages[nth].last = ++w->number;
		WRITE_ONCE(words[w->word], w->number);
		/*
		 * The entry may be clean, so mark the page dirty, as other
		 * notifier users do.
		 */
		if (!PageDirty(page))
			SetPageDirty(page);
	}
	kunmap_local(words);
	if (notifier_is_covered(w, notifier_addr(w, nth)))
		notifier_count(NOTIFIER_IN_RANGE, 1);
	spin_unlock(&w->lock);
	notifier_count(NOTIFIER_ACCESSES, 1);
	return true;
}

/*
 * Returns true if the page table has the same page as the shadow, or if the
 * shadow entry was dropped meanwhile.  Other code clears entries for a moment
 * under the page table lock.  If get_user_pages_fast() finds no page without
 * the lock, it looks again under the lock.
 */
static bool notifier_agrees(struct notifier_watch *w, unsigned long nth,
			    struct page **found)
{
	unsigned int flags = notifier_gup_flags(w) | FOLL_NOFAULT;
	struct page *page;
	u32 nr_drops;
	bool same;

	spin_lock(&w->lock);
	page = w->pages[nth].page;
	nr_drops = w->pages[nth].nr_drops;
	spin_unlock(&w->lock);
	if (!page)
		return true;

	if (get_user_pages_fast(notifier_addr(w, nth), 1, flags, found) == 1)
		put_page(*found);
	else
		*found = NULL;
	spin_lock(&w->lock);
	same = *found == page || nr_drops != w->pages[nth].nr_drops;
	spin_unlock(&w->lock);
	return same;
}

static unsigned long notifier_shadow_pfn(struct notifier_watch *w,
					 unsigned long nth)
{
	unsigned long pfn;

	spin_lock(&w->lock);
	pfn = w->pages[nth].page ? page_to_pfn(w->pages[nth].page) : 0;
	spin_unlock(&w->lock);
	return pfn;
}

static bool notifier_has_vma(struct notifier_watch *w, unsigned long addr)
{
	bool found;

	mmap_read_lock(w->mm);
	found = vma_lookup(w->mm, addr);
	mmap_read_unlock(w->mm);
	return found;
}

/*
 * With ranges, an entry is dropped before the page table changes.  But munmap(2)
 * takes the VMA away before it announces the range.  get_user_pages_fast() goes
 * by the VMA for the zero page, and if a bit of the entry changes meanwhile.  It
 * finds nothing then.  So count only looks that begin with a VMA, and wait
 * otherwise until the entry is dropped.
 *
 * A TLB is flushed soon after the change, so only an entry that stays wrong is a
 * failure.  After the first failure, the checks no longer wait.
 */
static void notifier_check(struct notifier_watch *w, unsigned long nth)
{
	unsigned int tries = w->as_tlb && !w->stale ? NOTIFIER_STALE_TRIES :
						      NOTIFIER_LOOKS;
	unsigned int waits = NOTIFIER_STALE_TRIES;
	unsigned long addr = notifier_addr(w, nth);
	struct page *found;
	bool has_vma;

	if (notifier_agrees(w, nth, &found))
		return;
	while (tries) {
		has_vma = notifier_has_vma(w, addr);
		if (notifier_agrees(w, nth, &found))
			return;
		if (!has_vma && waits)
			waits--;
		else
			tries--;
		if (!w->stale && (w->as_tlb || !has_vma))
			usleep_range(500, 1000);
	}
	w->stale = true;
	notifier_count(NOTIFIER_STALE, 1);
	pr_info_ratelimited("%lx: page %lx in the page table, not %lx as in the shadow that follows %s, with %s VMA\n",
			    addr, found ? page_to_pfn(found) : 0,
			    notifier_shadow_pfn(w, nth),
			    w->as_tlb ? "the TLB" : "ranges",
			    has_vma ? "a" : "no");
}

static void notifier_round(struct notifier_watch *w, bool check)
{
	unsigned long i;

	for (i = 0; i < w->nr_pages; i++) {
		if (kthread_should_stop() || READ_ONCE(w->stopped))
			break;
		if (!notifier_access(w, i) && notifier_fill(w, i))
			notifier_access(w, i);
		if (check)
			notifier_check(w, i);
		cond_resched();
	}
}

/* At the end, check all entries, and find each last write in its page. */
static void notifier_final(struct notifier_watch *w)
{
	unsigned long i;

	for (i = 0; i < w->nr_pages; i++) {
		notifier_check(w, i);
		spin_lock(&w->lock);
		w->pages[i].page = NULL;
		spin_unlock(&w->lock);
		notifier_fill(w, i);
		cond_resched();
	}
}

/*
 * Use the memory of the process, if it still exists.  A permanent reference
 * would keep the memory after the exit of the process.
 */
static bool notifier_use(struct notifier_watch *w,
			 void (*use)(struct notifier_watch *w, bool check),
			 bool check)
{
	if (!mmget_not_zero(w->mm))
		return false;
	kthread_use_mm(w->mm);
	use(w, check);
	kthread_unuse_mm(w->mm);
	mmput(w->mm);
	return true;
}

static void notifier_end_round(struct notifier_watch *w, bool check)
{
	notifier_final(w);
}

int notifier_device(void *data)
{
	struct notifier_watch *w = data;
	unsigned long nr_rounds = 0;

	while (!kthread_should_stop()) {
		/*
		 * Looking at the page table takes longer than an access, so do
		 * it rarely.
		 */
		if (READ_ONCE(w->stopped) ||
		    !notifier_use(w, notifier_round, nr_rounds++ % 8 == 0))
			schedule_timeout_idle(1);
		else
			fsleep(READ_ONCE(notifier_rest_us));
	}
	notifier_use(w, notifier_end_round, false);
	return 0;
}
