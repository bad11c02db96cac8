// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exchange two folios: each gets the place of the other, without a free page.
 *
 * A folio has a place, its page frames on one node, and an owner: the content,
 * the page table entries, the reverse mapping, the charge to a cgroup, and the
 * flags that say how the content is used.  Migration moves an owner to a free
 * place.  An exchange moves two owners at once.  Both move, or neither:
 *
 *   lock both, without waiting
 *   replace the page table entries of both by migration entries; flush TLBs
 *   check that no other task has a reference
 *   exchange the content
 *   freeze both reference counts, and exchange what else belongs to the owner
 *   map each owner at its new place
 *
 * If a step fails, the content is exchanged back, and both are mapped where
 * they were.  The last two steps cannot fail.
 *
 * Only tasks with a page table entry, or with a reference from before, can read
 * or change the content.  The entries are gone, and the check shows the
 * references.  A reference that another task takes later leads to no content:
 * GUP-fast looks at the entry again, faults wait for the lock of the place, and
 * code that begins with a page frame needs this lock, too.  But such code may
 * look at the state of the owner.  So that state changes under frozen counts.
 *
 * Migration entries of the two cannot be confused, even in one process: an
 * entry has the page frame.  The first walk makes present entries, which the
 * second walk skips.
 */

#include <linux/bitops.h>
#include <linux/highmem.h>
#include <linux/huge_mm.h>
#include <linux/ktime.h>
#include <linux/leafops.h>
#include <linux/memcontrol.h>
#include <linux/memory-tiers.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/page_owner.h>
#include <linux/pagemap.h>
#include <linux/rmap.h>
#include <linux/sched/numa_balancing.h>
#include <linux/sched/sysctl.h>
#include <linux/swap.h>
#include <linux/uaccess.h>
#include <linux/vmstat.h>

#include "../internal.h"
#include "exchange.h"
#include "hooks.h"

/*
 * This many bytes are on the stack, between their two places.  The first read
 * of a cache line on a slow node takes long, and the rest of the copy is done
 * in the CPU's own cache.
 */
#define EXCHANGE_BYTES 512

/* Flags of the owner.  All others belong to the place, or are not set here. */
#define EXCHANGE_FLAGS (BIT(PG_referenced) | BIT(PG_uptodate) |		\
			BIT(PG_dirty) | BIT(PG_active) |		\
			BIT(PG_workingset) | BIT(PG_reclaim) |		\
			LRU_REFS_MASK | EXCHANGE_IDLE_FLAGS)
#ifdef CONFIG_PAGE_IDLE_FLAG
#define EXCHANGE_IDLE_FLAGS (BIT(PG_young) | BIT(PG_idle))
#else
#define EXCHANGE_IDLE_FLAGS 0
#endif

/* One of the two folios, with what its owner had there. */
struct exchange_place {
	struct folio *folio;
	struct anon_vma *anon_vma;	/* with a reference */
	int refs;			/* before the freeze */
	bool queued;			/* to be split */
	bool partially_mapped;
};

/*
 * Returns true if the owner can be exchanged.  The folio is locked.
 *
 * The reverse mapping and the charge of an anonymous folio are in the folio
 * alone.  A folio of a file, of KSM or of the swap cache is also in an index
 * that leads to its place.  A folio that may be freed instead of swapped is not
 * worth an exchange, and is on another LRU list.  The kernel counts mlocked
 * folios while they are on their list.  As in migrate_pages_batch(), a huge page
 * needs migration entries for huge pages.
 */
static bool exchange_can(struct folio *folio)
{
	unsigned long need = BIT(PG_swapbacked) | BIT(PG_uptodate);
	unsigned long not = BIT(PG_swapcache) | BIT(PG_writeback) |
		BIT(PG_private) | BIT(PG_mlocked) | BIT(PG_unevictable) |
		BIT(PG_lru);
	unsigned long flags = READ_ONCE(*const_folio_flags(folio, 0));

	return (flags & (need | not)) == need &&
		((unsigned long)folio->mapping & FOLIO_MAPPING_FLAGS) ==
		FOLIO_MAPPING_ANON &&
		!folio_test_hugetlb(folio) && !folio_is_zone_device(folio) &&
		(thp_migration_supported() || !folio_test_pmd_mappable(folio)) &&
		!migrate_offload_has_tags(folio);
}

static bool exchange_is_poisoned(struct folio *folio)
{
	return migrate_rule(EXCHANGE_POISON,
			    folio_contain_hwpoisoned_page(folio));
}

/*
 * Exchange the first @bytes of two pages.  Returns how many could be read, and
 * sets @bad to the page that could not.  The pages have changed up to there.
 */
static noinline_for_stack size_t
exchange_pages(struct page *a, struct page *b, size_t bytes, struct page **bad)
{
	char hold[EXCHANGE_BYTES];
	char *at_a, *at_b;
	size_t done;

	if (!migrate_offload_readable(a, PAGE_SIZE) ||
	    !migrate_offload_readable(b, PAGE_SIZE))
		return 0;
	at_a = kmap_local_page(a);
	at_b = kmap_local_page(b);
	for (done = 0; done < bytes; done += EXCHANGE_BYTES) {
		if (copy_mc_to_kernel(hold, at_a + done, EXCHANGE_BYTES)) {
			*bad = a;
			break;
		}
		if (copy_mc_to_kernel(at_a + done, at_b + done,
				      EXCHANGE_BYTES)) {
			memcpy(at_a + done, hold, EXCHANGE_BYTES);
			*bad = b;
			break;
		}
		memcpy(at_b + done, hold, EXCHANGE_BYTES);
	}
	kunmap_local(at_b);
	kunmap_local(at_a);
	return done;
}

/* The same for the first @bytes of two folios. */
static size_t exchange_bytes(struct folio *a, struct folio *b, size_t bytes,
			     struct page **bad)
{
	size_t done = 0, wanted, got;
	long i;

	BUILD_BUG_ON(PAGE_SIZE % EXCHANGE_BYTES);
	for (i = 0; done < bytes; i++) {
		wanted = min_t(size_t, bytes - done, PAGE_SIZE);
		got = exchange_pages(folio_page(a, i), folio_page(b, i),
				     wanted, bad);
		done += got;
		if (got < wanted)
			break;
		cond_resched();
	}
	return done;
}

/*
 * Exchange the first @bytes back.  This reads memory that was written a moment
 * ago.  If it fails nevertheless, an owner has lost content that this task has
 * overwritten elsewhere, and no machine check will tell that owner.
 */
static void exchange_back(struct folio *a, struct folio *b, size_t bytes)
{
	struct page *bad;

	if (migrate_rule(EXCHANGE_UNDO, true) &&
	    exchange_bytes(a, b, bytes, &bad) != bytes)
		panic("migrate_offload: memory failed twice in an exchange");
}

/*
 * Exchange the charges.  The counters of both cgroups stay, because the folios
 * have one size.  mem_cgroup_migrate() moves a charge to a folio without one,
 * and knows about cgroups that are going away.  So put one charge aside.
 */
static void exchange_charges(struct folio *a, struct folio *b)
{
#ifdef CONFIG_MEMCG
	unsigned long aside = b->memcg_data;

	b->memcg_data = 0;
	mem_cgroup_migrate(a, b);
	swap(aside, b->memcg_data);
	mem_cgroup_migrate(b, a);
	b->memcg_data = aside;
#endif
}

/* As in folio_migrate_flags(), which says why. */
static void exchange_cpupids(struct folio *a, struct folio *b)
{
	int of_a = folio_last_cpupid(a), of_b = folio_last_cpupid(b);

	if (sysctl_numa_balancing_mode & NUMA_BALANCING_MEMORY_TIERING &&
	    node_is_toptier(folio_nid(a)) != node_is_toptier(folio_nid(b))) {
		of_a = -1;
		of_b = -1;
	}
	folio_xchg_last_cpupid(a, of_b);
	folio_xchg_last_cpupid(b, of_a);
}

/* A task that waits for one of the folios may set PG_waiters meanwhile. */
static void exchange_flags(struct folio *a, struct folio *b)
{
	unsigned long of_a = READ_ONCE(*folio_flags(a, 0)) & EXCHANGE_FLAGS;
	unsigned long of_b = READ_ONCE(*folio_flags(b, 0)) & EXCHANGE_FLAGS;

	set_mask_bits(folio_flags(a, 0), EXCHANGE_FLAGS, of_b);
	set_mask_bits(folio_flags(b, 0), EXCHANGE_FLAGS, of_a);
}

/*
 * Take a frozen folio off the queue of folios to split, while it still has its
 * owner's cgroup.  Migration entries tell which pages are exclusive.  The flag
 * of a page that the owner had unmapped earlier must not stay: the next owner
 * may share this page.
 */
static void exchange_take_off(struct folio *folio)
{
	long i;

	folio_unqueue_deferred_split(folio);
	for (i = 0; i < folio_nr_pages(folio); i++)
		if (test_bit(PG_anon_exclusive, folio_flags(folio, i)))
			clear_bit(PG_anon_exclusive, folio_flags(folio, i));
}

/*
 * Exchange the owners of two frozen folios, whose content is exchanged.  The
 * allocation stays with the place: that is what page_owner and allocation
 * profiling count.
 */
static void exchange_owners(struct folio *a, struct folio *b)
{
	exchange_take_off(a);
	exchange_take_off(b);
	exchange_charges(a, b);
	swap(a->mapping, b->mapping);
	swap(a->index, b->index);
	exchange_flags(a, b);
	if (IS_ENABLED(CONFIG_NUMA_BALANCING))
		exchange_cpupids(a, b);
}

/*
 * Freeze both folios, and exchange their owners.  The content is exchanged.
 *
 * Memory may also have failed without a read by this task.  Its owner keeps it
 * then: another owner must not lose data by getting this place.  A task that
 * handles the failure has a reference, and waits for the lock.
 */
static int exchange_commit(struct exchange_place *a, struct exchange_place *b)
{
	int rc = -EAGAIN;

	if (!folio_ref_freeze(a->folio, a->refs))
		return rc;
	if (folio_ref_freeze(b->folio, b->refs)) {
		rc = 0;
		if (exchange_is_poisoned(a->folio) ||
		    exchange_is_poisoned(b->folio))
			rc = -EHWPOISON;
		else
			exchange_owners(a->folio, b->folio);
		folio_ref_unfreeze(b->folio, b->refs);
	}
	folio_ref_unfreeze(a->folio, a->refs);
	return rc;
}

/*
 * Returns true if only the isolation has a reference to an unmapped folio.  The
 * TLBs are flushed.  mlock(2) marks a mapped folio without its lock, so look at
 * the flags again: now mlock(2) does not find the folio any more.
 */
static bool exchange_is_alone(struct exchange_place *place)
{
	struct folio *folio = place->folio;

	place->refs = folio_ref_count(folio);
	if (migrate_rule(EXCHANGE_PIN, place->refs != 1))
		return false;
	if (folio_mapped(folio) || !exchange_can(folio))
		return false;
	if (folio_order(folio) > 1 &&
	    /* The queue may change meanwhile, as for migrate_folio_move(). */
	    !data_race(list_empty(&folio->_deferred_list))) {
		place->queued = true;
		place->partially_mapped = folio_test_partially_mapped(folio);
	}
	return true;
}

static int exchange_unmapped(struct exchange_place *a, struct exchange_place *b,
			     struct page **bad)
{
	size_t done;
	int rc;

	if (!exchange_is_alone(a) || !exchange_is_alone(b))
		return -EAGAIN;
	done = exchange_bytes(a->folio, b->folio, folio_size(a->folio), bad);
	rc = done < folio_size(a->folio) ? -EHWPOISON : exchange_commit(a, b);
	if (rc)
		exchange_back(a->folio, b->folio, done);
	return rc;
}

/* Map the owner that was at @from.  Its anonymous memory is at @to now. */
static void exchange_map(const struct exchange_place *from, struct folio *to)
{
	/* Before another CPU may unmap a part: see migrate_requeue(). */
	if (from->queued && from->folio != to &&
	    !migrate_requeue(to, true, from->partially_mapped))
		deferred_split_folio(to, from->partially_mapped);
	flush_dcache_folio(to);
	remove_migration_ptes(from->folio, to, 0);
	migrate_queue_if_partial(to);
}

/* Both folios are locked, and can be exchanged. */
static int exchange_locked(struct exchange_place *a, struct exchange_place *b,
			   enum migrate_reason reason, struct page **bad)
{
	int rc = -EAGAIN;
	u64 start_ns;

	/* The last page table entry may go at any time, and its VMA with it. */
	a->anon_vma = folio_get_anon_vma(a->folio);
	if (!a->anon_vma)
		return rc;
	b->anon_vma = folio_get_anon_vma(b->folio);
	if (!b->anon_vma)
		goto out;

	start_ns = ktime_get_ns();
	try_to_migrate(a->folio, TTU_BATCH_FLUSH);
	try_to_migrate(b->folio, TTU_BATCH_FLUSH);
	if (migrate_rule(EXCHANGE_FLUSH, true))
		try_to_unmap_flush();
	rc = exchange_unmapped(a, b, bad);
	exchange_map(a, rc ? a->folio : b->folio);
	exchange_map(b, rc ? b->folio : a->folio);
	if (migrate_offload_on())
		migrate_offload_note_unmapped(reason, ktime_get_ns() - start_ns,
					      2);

	put_anon_vma(b->anon_vma);
out:
	put_anon_vma(a->anon_vma);
	return rc;
}

static void exchange_count(struct folio *folio, int rc)
{
	long nr = 2 * folio_nr_pages(folio);

	count_vm_events(rc ? PGMIGRATE_FAIL : PGMIGRATE_SUCCESS, nr);
	if (folio_test_pmd_mappable(folio))
		count_vm_events(rc ? THP_MIGRATION_FAIL : THP_MIGRATION_SUCCESS,
				2);
}

/**
 * migrate_exchange_folios - exchange the places of two anonymous folios
 * @a: The first folio, isolated, with a reference of the isolation.
 * @b: The other folio, isolated in the same way, and of the same size.
 * @reason: The reason, as for migrate_pages().
 *
 * The caller puts both folios back, exchanged or not.  Sleeps, but does not
 * wait for the lock of a folio, and needs no memory.
 *
 * Return: 0; -EAGAIN if another task has the lock of a folio or a reference to
 * it; -EOPNOTSUPP for memory that cannot be exchanged; -EINVAL for two sizes;
 * -EHWPOISON if memory has failed.  After an error, both are where they were.
 */
int migrate_exchange_folios(struct folio *a, struct folio *b,
			    enum migrate_reason reason)
{
	struct exchange_place place_a = { .folio = a };
	struct exchange_place place_b = { .folio = b };
	struct page *bad = NULL;
	int rc = -EAGAIN;

	/* Trying both locks, in any order, cannot deadlock. */
	if (!folio_trylock(a))
		return rc;
	if (!folio_trylock(b))
		goto out;
	if (!exchange_can(a) || !exchange_can(b)) {
		rc = -EOPNOTSUPP;
	} else if (folio_order(a) != folio_order(b)) {
		rc = -EINVAL;
	} else if (exchange_is_poisoned(a) || exchange_is_poisoned(b)) {
		rc = -EHWPOISON;
	} else {
		rc = exchange_locked(&place_a, &place_b, reason, &bad);
		exchange_count(a, rc);
	}
	if (!rc) {
		folio_set_owner_migrate_reason(a, reason);
		folio_set_owner_migrate_reason(b, reason);
	}
	folio_unlock(b);
out:
	folio_unlock(a);
	if (bad)
		memory_failure_queue(page_to_pfn(bad), 0);
	return rc;
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/exchange_kunit.c"
#endif
