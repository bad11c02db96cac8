/* SPDX-License-Identifier: GPL-2.0-only */
/* Migrating what a scheme finds, in lists that are as long as possible. */
#ifndef _DAMON_MIGRATE_H
#define _DAMON_MIGRATE_H

#include <linux/damon.h>
#include <linux/list.h>

struct folio;
struct mm_struct;

/**
 * struct damos_migration - folios of a region on their way to other nodes
 * @dests: where to; one destination stands for a scheme without any.
 * @target: that one.
 * @total_weight: of all destinations.
 * @lists: for each destination, the folios that were isolated for it.
 * @nr_pages: how much is in the lists.
 * @nr_moved: how many pages moved.
 * @missed: a folio was not on the LRU.
 * @again: the region is not walked once more: it was, or a filter forbids it.
 */
struct damos_migration {
	struct damos_dests dests;
	struct damos_dest target;
	u64 total_weight;
	struct list_head *lists;
	unsigned long nr_pages;
	unsigned long nr_moved;
	bool missed;
	bool again;
};

/* False if nothing can move; then the others must not be called. */
bool damos_migration_begin(struct damos_migration *m, const struct damos *s);

/*
 * Where does a folio have to go?  The number of its destination, or -1 if it can
 * stay, or has to.  The caller has a reference, or the lock of a page table that
 * maps it.
 */
int damos_migration_dest(const struct damos_migration *m, struct folio *folio);

/* Isolate a folio for that destination.  The caller as above. */
void damos_migration_add(struct damos_migration *m, struct folio *folio,
			 int dest);

/* Migrate what was isolated if it is a lot.  May sleep. */
void damos_migration_flush_much(struct damos_migration *m);

/*
 * Should the region be walked again?  Folios that somebody has just made wait on
 * the CPU where he did, and are not found on the LRU before: up to a few dozen on
 * each CPU, which would else be found when more were made there.  May sleep.
 */
bool damos_migration_again(struct damos_migration *m);

/* Migrate the rest.  Returns how many bytes moved. */
unsigned long damos_migration_end(struct damos_migration *m);

/*
 * Migrate a region of an address space.  The caller has a reference to the
 * structure, see mmgrab(), and none to the memory.  Returns how many bytes moved.
 */
#if defined(CONFIG_DAMON_VADDR) && defined(CONFIG_NUMA)
unsigned long damos_va_migrate(struct mm_struct *mm, struct damon_region *r,
			       struct damos *s);
#else
static inline unsigned long damos_va_migrate(struct mm_struct *mm,
					     struct damon_region *r,
					     struct damos *s)
{
	return 0;
}
#endif

#ifdef CONFIG_DAMON_PADDR
/* Migrate a region of physical addresses.  Returns how many bytes moved. */
unsigned long damos_pa_migrate(struct damon_region *r, struct damos *s);

/* mm/damon/paddr.c */
bool damos_pa_filter_out(struct damos *scheme, struct folio *folio);
#endif

#endif /* _DAMON_MIGRATE_H */
