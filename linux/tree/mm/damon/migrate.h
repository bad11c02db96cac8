/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Migrate the folios that a scheme finds, in lists that are as long as
 * possible.
 */
#ifndef _DAMON_MIGRATE_H
#define _DAMON_MIGRATE_H

#include <linux/damon.h>
#include <linux/list.h>

struct folio;
struct mm_struct;

/**
 * struct damos_migration - folios of a region on their way to other nodes
 * @dests: the destinations; of a scheme without any, @target_nid alone.
 * @target_nid: the target node of a scheme without destinations.
 * @target_weight: its weight.
 * @total_weight: the sum of all weights.
 * @lists: the isolated folios for each destination.
 * @nr_pages: the number of pages in all lists.
 * @nr_moved: the number of pages that moved.
 * @missed: a folio was not on the LRU.
 * @cold: the action is migrate_cold.
 * @again: do not walk the region again: this was the second walk, or a filter
 *	forbids one.
 */
struct damos_migration {
	struct damos_migrate_dests dests;
	unsigned int target_nid;
	unsigned int target_weight;
	u64 total_weight;
	struct list_head *lists;
	unsigned long nr_pages;
	unsigned long nr_moved;
	bool missed;
	bool cold;
	bool again;
};

/* Returns false if no folio can move; then do not call the other functions. */
bool damos_migration_begin(struct damos_migration *m, const struct damos *s);

/*
 * Returns the index of the folio's destination, or -1 if the folio stays.  The
 * caller has a reference, or the lock of a page table that maps the folio.
 */
int damos_migration_dest(const struct damos_migration *m, struct folio *folio,
			 pgoff_t index);

/* Isolate a folio for this destination.  Needs the same reference or lock. */
void damos_migration_add(struct damos_migration *m, struct folio *folio,
			 int dest);

/* Migrate the isolated folios if there are many.  May sleep. */
void damos_migration_flush_much(struct damos_migration *m);

/*
 * Returns true if the caller should walk the region again.  New folios wait in
 * their CPU's batch, up to a few dozen, and are not on the LRU yet.  This
 * function drains the batches of all CPUs, so that a second walk finds the
 * folios.  May sleep.
 */
bool damos_migration_again(struct damos_migration *m);

/* Migrate the rest.  Returns the number of bytes that moved. */
unsigned long damos_migration_end(struct damos_migration *m);

/*
 * Migrate a region of an address space.  The caller has a reference to the
 * mm_struct by mmgrab(), but none to the memory.  Returns the number of bytes
 * that moved.
 */
#if defined(CONFIG_DAMON_VADDR) && defined(CONFIG_NUMA)
unsigned long damos_migrate_vaddr(struct mm_struct *mm, struct damon_region *r,
				  struct damos *s);
#else
static inline unsigned long damos_migrate_vaddr(struct mm_struct *mm,
						struct damon_region *r,
						struct damos *s)
{
	return 0;
}
#endif

#ifdef CONFIG_DAMON_PADDR
/*
 * Migrate a region of physical addresses, in units of @addr_unit bytes.  Adds
 * the units that pass the filters to @passed, which may be NULL.  Returns how
 * many units moved.
 */
unsigned long damos_migrate_paddr(struct damon_region *r,
				  unsigned long addr_unit, struct damos *s,
				  unsigned long *passed);

/* mm/damon/paddr.c */
bool damos_pa_filter_out(struct damos *scheme, struct folio *folio);
#endif

#endif /* _DAMON_MIGRATE_H */
